"""The kit on the TVM that is installed: scripts/build_tvm.sh runs this on the one that it built.

A TVM with the example NPU built in has upstream's, which computes nothing; the kit's is not loaded.
"""

from __future__ import annotations

from collections.abc import Callable
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


def test_the_kits_core_is_built_for_this_tvm_ffi() -> None:
    assert native.load("core")


@pytest.mark.byoc("example_npu", step="codegen")
def test_a_convolution_is_compiled_for_the_example_npu(convolution: tvm.IRModule) -> None:
    parts = byoc.partition(convolution, "example_npu")
    assert len(parts.coverage.regions) == 1
    (module,) = relax.transform.RunCodegen()(parts.mod).attrs["external_mods"]
    assert module.kind == "example_npu_json"


@pytest.mark.byoc("llvm", step="codegen")
def test_the_host_computes(convolution: tvm.IRModule) -> None:
    if tvm.get_global_func("target.build.llvm", allow_missing=True) is None:
        pytest.skip("this TVM was built with USE_LLVM=OFF")
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, dtype=np.float32) for shape in ((1, 3, 8, 8), (4, 3, 3, 3)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    expected = np.maximum(np.einsum("nchwij,ocij->nohw", windows, w), 0)
    np.testing.assert_allclose(byoc.compile(convolution, "llvm")(x, w), expected, atol=1e-4)
