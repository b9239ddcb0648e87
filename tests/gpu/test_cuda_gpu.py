"""TVM's own kernels on a GPU: float32, 16 bits, products of many sizes, artifacts.

``pytest -m gpu`` on a machine with an NVIDIA GPU and nvcc; elsewhere skipped, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import BackendUnavailable

pytestmark = [pytest.mark.gpu, pytest.mark.byoc("cuda", step="device")]

DIGITS = Path(byoc.__file__).parent / "data" / "digits.onnx"


@pytest.fixture(scope="module")
def digits() -> Any:
    return byoc.load_model(DIGITS)


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_model_gives_the_numbers_of_onnx_runtime(
    precision: str, digits: Any, tmp_path: Path
) -> None:
    model = digits if precision == "float32" else byoc.half_precision(digits, "cuda")
    byoc.compile(model, "cuda").export(tmp_path / "digits.so")
    exe = byoc.load(tmp_path / "digits.so")
    image = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    (expected,) = digits.reference.run({"image": image}).values()
    error = {"float32": 1e-4, "float16": 1e-2}[precision]
    np.testing.assert_allclose(exe(image), expected, atol=error * np.abs(expected).max())


# More and less than 64, where TVM schedules for tensor cores.
@pytest.mark.parametrize("size", [16, 80, 200])
@pytest.mark.parametrize(
    ("dtype", "wide", "error"),
    [
        ("float32", "float32", 1e-5),
        ("float16", "float32", 1e-3),
        ("float16", "float16", 1e-2),
        ("int8", "int32", 0.0),
    ],
)
def test_products_are_those_of_numpy(
    dtype: str, wide: str, error: float, size: int, make_module: Callable[..., Any]
) -> None:
    shape = ((size, size), dtype)
    mod = make_module({"x": shape, "w": shape}, lambda x, w: relax.op.matmul(x, w, out_dtype=wide))
    rng = np.random.default_rng(size)
    x, w = (rng.integers(-4, 5, (size, size)).astype(dtype) for _ in range(2))
    if dtype != "int8":
        x, w = x / 4, w / 4
    exact = x.astype("float64") @ w.astype("float64")
    found = byoc.compile(mod, "cuda")(x, w)
    np.testing.assert_allclose(found, exact, atol=error * max(1.0, np.abs(exact).max()), rtol=0)


def test_code_for_another_gpu_is_refused_before_it_runs(make_module: Callable[..., Any]) -> None:
    import tvm

    major = int(float(tvm.cuda(0).compute_version))
    other = "t4" if major != 7 else "a100"
    mod = make_module({"x": ((4,), "float32")}, relax.op.nn.relu)
    with pytest.raises(BackendUnavailable, match="compute capability"):
        byoc.compile(mod, "cuda", target=other)(np.zeros(4, "float32"))
