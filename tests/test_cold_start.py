"""Processes that only run artifacts: what they import, and that TVM's runtime alone will do."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_byoc_kit as byoc

RunPython = Callable[..., subprocess.CompletedProcess[str]]
X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
Y = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)
BACKENDS = [
    "llvm",
    pytest.param("example_npu", marks=pytest.mark.byoc("example_npu", step="runtime")),
    pytest.param("openvino", marks=pytest.mark.byoc("openvino", step="runtime")),
]

RUN = """
import json, sys
import numpy as np
import tvm_byoc_kit as byoc

with np.load(sys.argv[2]) as inputs:
    results = byoc.load(sys.argv[1]).run(dict(inputs))
import tvm
heavy = {"torch", "onnx", "onnxruntime", "rich", "typer", "tvm.relax"} & sys.modules.keys()
print(json.dumps([tvm._RUNTIME_ONLY, sorted(heavy), [x.tolist() for x in results.values()]]))
"""


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_with_tvms_runtime_alone_runs_an_artifact_and_imports_no_framework(
    two_outputs: tvm.IRModule,
    two_outputs_numpy: Callable[..., Any],
    backend: str,
    tmp_path: Path,
    run_python: RunPython,
) -> None:
    byoc.compile(two_outputs, backend).export(tmp_path / "m.so")
    np.savez(tmp_path / "in.npz", x=X, y=Y)
    variables = {"TVM_USE_RUNTIME_LIB": "1"}
    done = run_python(RUN, tmp_path / "m.so", tmp_path / "in.npz", **variables)
    alone, heavy, results = answer(done)
    assert (alone, heavy) == (True, [])
    for mine, theirs in zip(results, two_outputs_numpy(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_whole_tvm_comes_without_frameworks_too(
    host_artifact: Path, tmp_path: Path, run_python: RunPython
) -> None:
    np.savez(tmp_path / "in.npz", x=X, y=Y)
    alone, heavy, _ = answer(run_python(RUN, host_artifact, tmp_path / "in.npz"))
    assert (alone, heavy) == (False, ["tvm.relax"])


def test_the_command_line_runs_with_the_runtime_alone(
    host_artifact: Path, run_python: RunPython
) -> None:
    script = """
import json, os, sys
from tvm_byoc_kit import cli
sys.argv = ["tvm-byoc", "run", sys.argv[1], "--json"]
try:
    cli.app()
except SystemExit as done:
    assert not done.code
import tvm
print(json.dumps([tvm._RUNTIME_ONLY, "torch" in sys.modules, "TVM_USE_RUNTIME_LIB" in os.environ]))
"""
    assert answer(run_python(script, host_artifact)) == [True, False, False]


def test_a_damaged_artifact_is_refused_before_tvm_is_imported(
    host_artifact: Path, tmp_path: Path, run_python: RunPython
) -> None:
    data = bytearray(host_artifact.read_bytes())
    data[100] ^= 1
    path = tmp_path / "m.so"
    path.write_bytes(data)
    script = """
import json, sys, tvm_byoc_kit as byoc
try:
    byoc.load(sys.argv[1])
except byoc.ArtifactError as error:
    print(json.dumps([str(error), "tvm" in sys.modules, "numpy" in sys.modules]))
"""
    message, *imported = answer(run_python(script, path))
    assert "its checksum does not match" in message
    assert imported[0] is False


def test_a_process_with_the_runtime_alone_says_why_it_compiles_nothing(
    onnx_path: Path, run_python: RunPython
) -> None:
    script = """
import json, sys, tvm_byoc_kit as byoc
try:
    byoc.compile(sys.argv[1], "llvm")
except byoc.ModelError as error:
    print(json.dumps(str(error)))
"""
    message = answer(run_python(script, onnx_path, TVM_USE_RUNTIME_LIB="1"))
    assert message.endswith("start it without TVM_USE_RUNTIME_LIB=1")
