"""Processes that only run artifacts: what they import and load, and that all else may follow."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_byoc_kit as byoc
from tvm_byoc_kit import bare_runtime

RunPython = Callable[..., subprocess.CompletedProcess[str]]
X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
Y = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)
BACKENDS = [
    "llvm",
    pytest.param("example_npu", marks=pytest.mark.byoc("example_npu", step="runtime")),
    pytest.param("openvino", marks=pytest.mark.byoc("openvino", step="runtime")),
]

bare = pytest.mark.skipif(
    bare_runtime.wheel_libraries() is None, reason="needs TVM from its project's wheel"
)

RUN = """
import json, sys
import numpy as np
import tvm_byoc_kit as byoc

with np.load(sys.argv[2]) as inputs:
    results = byoc.load(sys.argv[1]).run(dict(inputs))
heavy = {"torch", "onnx", "onnxruntime", "rich", "typer", "tvm"} & sys.modules.keys()
with open("/proc/self/maps") as maps:
    libraries = {line.split("/")[-1].strip() for line in maps if "/libtvm_" in line}
sys.modules["torch"] = None  # it would be imported, for seconds
import tvm
facts = sorted(heavy), sorted(libraries), tvm._RUNTIME_ONLY
print(json.dumps([*facts, [x.tolist() for x in results.values()]]))
"""


def answer(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@bare
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_process_runs_an_artifact_with_tvms_runtime_alone_and_imports_no_framework(
    two_outputs: tvm.IRModule,
    two_outputs_numpy: Callable[..., Any],
    backend: str,
    tmp_path: Path,
    run_python: RunPython,
) -> None:
    byoc.compile(two_outputs, backend).export(tmp_path / "m.so")
    np.savez(tmp_path / "in.npz", x=X, y=Y)
    variables = {"TVM_USE_RUNTIME_LIB": "0" if backend == "example_npu" else "1"}
    done = run_python(RUN, tmp_path / "m.so", tmp_path / "in.npz", **variables)
    heavy, libraries, runtime_only, results = answer(done)
    assert heavy == []
    assert {"libtvm_runtime.so", "libtvm_runtime_extra.so"} <= set(libraries)
    assert "libtvm_compiler.so" not in libraries
    assert runtime_only == (backend != "example_npu")  # `import tvm` is still the user's own
    for mine, theirs in zip(results, two_outputs_numpy(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@bare
@pytest.mark.byoc("example_npu", step="runtime")
def test_the_compiler_may_follow_the_runtime(
    npu_artifact: Path,
    two_outputs_numpy: Callable[..., Any],
    onnx_path: Path,
    run_python: RunPython,
) -> None:
    script = """
import json, sys
import numpy as np
import tvm_byoc_kit as byoc
from tvm_byoc_kit import native

loaded = byoc.load(sys.argv[1])
inputs = {spec.name: np.ones((2, spec.shape[1]), "float32") for spec in loaded.inputs}
first, module = loaded.run(inputs), loaded.module
native.load("core")
assert "tvm" not in sys.modules
with native.without_torch():
    import tvm
assert not tvm._RUNTIME_ONLY
same = [first, loaded.run(inputs)]
assert isinstance(loaded.vm, tvm.relax.VirtualMachine)
assert isinstance(loaded.module, tvm.runtime.Module) and loaded.module is module
same.append(loaded.run(inputs))
byoc.probe("plugin:core")
tvm.transform.PassContext(config={"relax.ext.tensorrt.options": {}})
compiled = byoc.compile(sys.argv[2], "example_npu")
images = {spec.name: np.ones(spec.shape, "float32") for spec in compiled.inputs}
compiled.export("compiled.so")
again = byoc.load("compiled.so")
assert all((again.run(images)[name] == x).all() for name, x in compiled.run(images).items())
same.append(loaded.run(inputs))
print(json.dumps([[x.tolist() for x in results.values()] for results in same]))
"""
    results = answer(run_python(script, npu_artifact, onnx_path))
    assert len(results) == 4
    expected = two_outputs_numpy(np.ones_like(X), np.ones_like(Y))
    for result in results:
        for mine, theirs in zip(result, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@bare
def test_artifacts_are_loaded_and_started_in_threads_while_one_imports_tvm(
    host_artifact: Path, make_module: Any, tmp_path: Path, run_python: RunPython
) -> None:
    unique = make_module({"x": ((4,), "float32")}, tvm.relax.op.unique)
    byoc.compile(unique, "llvm").export(tmp_path / "unique.so")  # starts with all of TVM only
    script = """
import sys
sys.modules["torch"] = None
import importlib, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tvm_byoc_kit as byoc

together, unique = threading.Barrier(5), byoc.load(sys.argv[2])
def run(_):
    together.wait()
    assert unique(np.array([2, 1, 2, 1], "float32")).tolist() == [1, 2]
    exe = byoc.load(sys.argv[1])
    inputs = {spec.name: np.ones((2, spec.shape[1]), "float32") for spec in exe.inputs}
    return [x.tolist() for x in exe.run(inputs).values()]
def compiler():
    together.wait()
    return importlib.import_module("tvm").relax.VMExecutable is not None
with ThreadPoolExecutor(5) as pool:
    importing, results = pool.submit(compiler), list(pool.map(run, range(4)))
print(importing.result(), all(result == results[0] for result in results))
"""
    done = run_python(script, host_artifact, tmp_path / "unique.so")
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_what_tvm_has_in_python_alone_is_imported_with_it(
    make_module: Any, tmp_path: Path, run_python: RunPython
) -> None:
    unique = make_module({"x": ((4,), "float32")}, tvm.relax.op.unique)
    double = make_module({"x": ((4,), "bfloat16")}, lambda x: tvm.relax.op.add(x, x))
    byoc.compile(unique, "llvm").export(tmp_path / "unique.so")
    byoc.compile(double, "llvm").export(tmp_path / "bfloat16.so")
    script = """
import sys
import numpy as np
import tvm_byoc_kit as byoc
exe = byoc.load(sys.argv[1])
before = "tvm" in sys.modules
x = np.array([3, 1, 3, 2], "float32")
if "bfloat16" in sys.argv[1]:
    import ml_dtypes
    x = x.astype("bfloat16")
result = exe(x).astype(int)
print(before, "tvm" in sys.modules, "torch" in sys.modules, *result)
"""
    later = run_python(script, tmp_path / "unique.so")
    assert later.stdout.split()[1:] == ["True", "False", "1", "2", "3"], later.stderr
    at_once = run_python(script, tmp_path / "bfloat16.so")
    assert at_once.stdout.split() == ["True", "True", "False", "6", "2", "6", "4"], at_once.stderr


def test_a_tvm_of_ones_own_is_imported_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, wheel = Path(tvm.__file__).parent, "py3-none-manylinux_2_28_x86_64"

    def libraries_of(tag: str, root: Path = here.parent) -> Path | None:
        (tmp_path / "WHEEL").write_text(f"Tag: {tag}\n", encoding="utf-8")
        installed = importlib.metadata.PathDistribution(tmp_path)
        monkeypatch.setattr(installed, "locate_file", root.joinpath)
        monkeypatch.setattr(bare_runtime, "distribution", lambda _: installed)
        return bare_runtime.wheel_libraries()

    assert libraries_of(wheel) == here / "lib"
    assert libraries_of("py3-none-linux_x86_64") is None
    assert libraries_of(wheel, tmp_path) is None  # another is installed than is imported
    monkeypatch.setenv("TVM_LIBRARY_PATH", str(here / "lib"))
    assert libraries_of(wheel) is None


@bare
def test_the_command_line_runs_with_the_runtime_alone(
    host_artifact: Path, run_python: RunPython
) -> None:
    script = """
import json, sys
from tvm_byoc_kit import cli
sys.argv = ["tvm-byoc", "run", sys.argv[1], "--json"]
try:
    cli.app()
except SystemExit as done:
    assert not done.code
print(json.dumps(sorted({"tvm", "torch", "onnx"} & sys.modules.keys())))
"""
    assert answer(run_python(script, host_artifact)) == []


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
