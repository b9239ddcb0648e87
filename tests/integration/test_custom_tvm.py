"""The kit on the TVM that is installed: scripts/build_tvm.sh runs this on the one that it built.

A TVM with the example NPU built in has upstream's, which computes nothing; the kit's is not loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native

RunPython = Callable[..., Any]


@pytest.fixture
def convolution(make_module: Any) -> tvm.IRModule:
    shapes = {"x": ((1, 3, 8, 8), "float32"), "w": ((4, 3, 3, 3), "float32")}
    return make_module(shapes, lambda x, w: relax.op.nn.relu(relax.op.nn.conv2d(x, w)))


def convolved() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of `convolution`, and what NumPy makes of them."""
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((1, 3, 8, 8), (4, 3, 3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    return x, w, np.maximum(np.einsum("nchwij,ocij->nohw", windows, w), 0)


def test_import_tvm_gives_no_warning_with_the_kit_installed(run_python: RunPython) -> None:
    done = run_python("import sys; sys.modules['torch'] = None; import tvm", PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr


@pytest.mark.byoc("example_npu", step="codegen")
def test_the_example_npu_is_there_once(run_python: RunPython) -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from tvm_byoc_kit import native\n"
        "status = native.load('example_npu')\n"
        "opened = 'libbyoc_example_npu' in open('/proc/self/maps').read()\n"
        "assert status and opened != ('built into this TVM' in status.detail), (status, opened)\n"
    )
    done = run_python(script)
    assert done.returncode == 0, done.stderr


def test_the_doctor_says_where_the_example_npu_comes_from(run_python: RunPython) -> None:
    done = run_python("from tvm_byoc_kit.cli import app; app()", "doctor", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["ok"]
    rows = {(row["what"], row["step"]): row for row in report["rows"]}
    assert rows["plugin:core", ""]["ok"]
    assert rows["plugin:example_npu", ""]["detail"] == native.load("example_npu").detail
    # Upstream's computes nothing.
    assert rows["example_npu", "device"]["ok"] == native.is_loaded("example_npu")


def test_the_kits_core_is_built_for_this_tvm_ffi() -> None:
    assert native.load("core")


@pytest.mark.byoc("example_npu", step="codegen")
def test_a_convolution_is_compiled_for_the_example_npu(convolution: tvm.IRModule) -> None:
    parts = byoc.partition(convolution, "example_npu")
    assert len(parts.coverage.regions) == 1
    (module,) = relax.transform.RunCodegen()(parts.mod).attrs["external_mods"]
    assert module.kind == "example_npu_json"


@pytest.mark.byoc("example_npu")
def test_the_example_npu_computes_or_says_that_it_does_not(convolution: tvm.IRModule) -> None:
    x, w, expected = convolved()
    model = byoc.compile(convolution, "example_npu")
    if native.is_loaded("example_npu"):
        np.testing.assert_allclose(model(x, w), expected, atol=1e-4)
    else:
        with pytest.raises(byoc.BackendUnavailable, match="computes nothing"):
            model(x, w)


@pytest.mark.byoc("llvm", step="codegen")
def test_the_host_computes(convolution: tvm.IRModule) -> None:
    if tvm.get_global_func("target.build.llvm", allow_missing=True) is None:
        pytest.skip("this TVM was built with USE_LLVM=OFF")
    x, w, expected = convolved()
    np.testing.assert_allclose(byoc.compile(convolution, "llvm")(x, w), expected, atol=1e-4)


# A backend in Python: its bytes come back through TVM's module of the kit's core.
IN_PYTHON = """
import sys
sys.modules["torch"] = None
import numpy as np
import tvm_byoc_kit as byoc

def runtime(payload, constants):
    def execute(x, y, out):
        np.from_dlpack(out)[...] = np.maximum(np.from_dlpack(x) + np.from_dlpack(y), float(payload))
    return execute

byoc.register_backend(
    byoc.Backend(
        "floor",
        "add, then relu",
        [byoc.Pattern("add_relu", ["relax.add", "relax.nn.relu"])],
        codegen=lambda graph, options: byoc.Payload(b"0", graph.constants),
        runtime=runtime,
    )
)
"""


def test_a_backend_in_python_computes_in_the_process_that_loads_the_artifact(
    make_module: Any, run_python: RunPython, tmp_path: Path
) -> None:
    shapes = {"x": ((4, 5), "float32"), "y": ((4, 5), "float32")}
    module = make_module(shapes, lambda x, y: relax.op.nn.relu(relax.op.add(x, y)))
    (tmp_path / "module.json").write_text(tvm.ir.save_json(module), encoding="utf-8")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((4, 5), dtype=np.float32) for _ in range(2))
    np.savez(tmp_path / "inputs.npz", x=x, y=y)
    built = run_python(
        f"{IN_PYTHON}\nimport tvm\n"
        "module = tvm.ir.load_json(open(sys.argv[1] + '/module.json').read())\n"
        "byoc.compile(module, 'floor').export(sys.argv[1] + '/model.so')",
        tmp_path,
    )
    assert built.returncode == 0, built.stderr
    ran = run_python(
        f"{IN_PYTHON}\nfiles = np.load(sys.argv[1] + '/inputs.npz')\n"
        "result = byoc.load(sys.argv[1] + '/model.so')(files['x'], files['y'])\n"
        "np.save(sys.argv[1] + '/result.npy', result)",
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), np.maximum(x + y, 0))
