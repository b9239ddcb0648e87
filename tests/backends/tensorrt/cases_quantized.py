"""Cases of quantize and dequantize, and of convolutions whose weights stay bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tvm import relax

from .case import Case, Cases, const, f, i, t
from .references import convolution, transposed

op, nn = relax.op, relax.op.nn

_ONCE = ("fp32",)
_ZERO = np.int8(0)


def _bytes(*shape: int) -> np.ndarray:
    return np.random.default_rng(6).integers(-128, 128, shape).astype(np.int8)


def _scales(count: int) -> np.ndarray:
    """Powers of two: the products are exact."""
    return (2.0 ** -np.arange(4, 4 + count)).astype(np.float32)


def _floats(stored: np.ndarray, scales: np.ndarray, axis: int) -> torch.Tensor:
    return t(stored).float() * t(scales).reshape(
        [-1 if n == axis else 1 for n in range(stored.ndim)]
    )


def _dequantized(stored: np.ndarray, scales: np.ndarray, axis: int) -> Any:
    zeros = const(np.zeros(scales.shape, np.int8))
    return op.dequantize(const(stored), const(scales), zeros, axis, "float32")


def _conv(x: Any, kernel: tuple[int, ...], attributes: dict[str, Any], *, turned: bool) -> Case:
    dims = len(kernel) - 2
    relay = getattr(nn, f"conv{dims}d{'_transpose' if turned else ''}")
    stored, axis = _bytes(*kernel), 1 if turned else 0
    scales = _scales(kernel[axis])
    of = transposed if turned else convolution
    return Case(
        lambda x: relay(x, _dequantized(stored, scales, axis), **attributes),
        lambda x: of(x, _floats(stored, scales, axis), **attributes),
        (x,),
        _ONCE,
    )


def _convolutions() -> Cases:
    cases: Cases = {}
    for dims in (1, 2, 3):
        x, window = f("n", 4, *(9, 8, 7)[:dims]), (3, 2, 2)[:dims]
        common = {"strides": (2, 1, 1)[:dims], "padding": (1, 0, 1)[:dims] * 2}
        cases[f"nn.conv{dims}d_of_bytes"] = {
            "scale by output": _conv(
                x,
                (6, 2, *window),
                {**common, "dilation": (1, 2, 1)[:dims], "groups": 2},
                turned=False,
            )
        }
        cases[f"nn.conv{dims}d_transpose_of_bytes"] = {
            "scale by output": _conv(
                x,
                (4, 6, *window),
                {**common, "output_padding": (1, 0, 0)[:dims], "groups": 1},
                turned=True,
            )
        }
    return cases


_EIGHTH = np.float32(0.125)

CASES: Cases = {
    "quantize": {
        "one scale": Case(
            lambda x: op.quantize(x, const(_EIGHTH), const(_ZERO), 0, "int8"),
            # Halves are among them.
            lambda x: (x / 0.125).round().clamp(-128, 127),
            (f("n", 40, low=-18, high=18),),
            _ONCE,
        ),
    },
    "dequantize": {
        "one scale": Case(
            lambda x: op.dequantize(x, const(_EIGHTH), const(_ZERO), 0, "float32"),
            lambda x: x * 0.125,
            (i("n", 40, low=-128, high=128, dtype="int8"),),
            _ONCE,
        ),
        "a scale for each channel of weights": Case(
            lambda x: op.matmul(x, _dequantized(_bytes(5, 6), _scales(6), 1)),
            lambda x: x @ _floats(_bytes(5, 6), _scales(6), 1),
            (f("n", 5),),
            _ONCE,
        ),
    },
    **_convolutions(),
}
