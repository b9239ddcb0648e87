"""What TensorRT takes of quantize and dequantize ops, and the reasons against the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc

op, nn = relax.op, relax.op.nn
X = {"x": ((2, 4, 6, 6), "float32")}


def const(value: Any, dtype: str) -> Any:
    return relax.const(np.asarray(value, dtype), dtype)


STEP, ZERO = const(0.1, "float32"), const(0, "int8")


def pair(x: Any, step: Any = STEP, zero: Any = ZERO, dtype: str = "int8", axis: int = 1) -> Any:
    return op.dequantize(op.quantize(x, step, zero, axis, dtype), step, zero, axis, "float32")


def weights(axis: int = 0, *, zero: int = 0, dtype: str = "int8") -> Any:
    data = const(np.ones((4, 4, 3, 3)), dtype)
    steps, zeros = const(np.full(4, 0.1), "float32"), const(np.full(4, zero), dtype)
    return op.dequantize(data, steps, zeros, axis, "float32")


def left_on_the_host(mod: Any) -> dict[str, str]:
    """Ops with their reasons."""
    coverage = byoc.partition(mod, "tensorrt", prepare=False).coverage
    return {entry.op: str(entry.reason.text) for entry in coverage.ops if entry.region is None}


@pytest.mark.parametrize(
    "body",
    [
        pair,
        lambda x: pair(x, zero=const(0, "int32")),
        lambda x: pair(x, step=const([0.1], "float32"), zero=const([0], "int8")),
        lambda x: nn.conv2d(pair(x), weights()),
        lambda x: nn.conv2d(x, weights()),  # weights alone
        lambda x: nn.conv2d_transpose(pair(x), weights(1)),
        lambda x: op.matmul(pair(x), pair(x)),
    ],
)
def test_signed_bytes_around_0_are_taken(make_module: Any, body: Any) -> None:
    assert left_on_the_host(make_module(X, body)) == {}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (lambda x: pair(x, zero=const(3, "int8")), "the zero point is 3; TensorRT has 0"),
        (
            lambda x: pair(x, zero=const(128, "uint8"), dtype="uint8"),
            "result is uint8; TensorRT has int8",
        ),
        (
            lambda x: pair(x, const([0.1, 0.2, 0.3, 0.4], "float32"), const([0] * 4, "int8")),
            "4 scales for 2x4x6x6; TensorRT has one, and one for each channel of constant weights",
        ),
        (lambda x: pair(x, const(-0.1, "float32")), "a scale is -0.1"),
        (
            lambda x: pair(x, zero=const(0, "int16"), dtype="int16"),
            "result is int16; TensorRT has int8",
        ),
        (lambda x: pair(x, op.max(x)), "the scale is computed or an input"),
        (
            lambda x: op.quantize(x, STEP, ZERO, -1, "float8_e4m3fn"),
            "result is float8_e4m3fn; TensorRT has int8",
        ),
    ],
)
def test_other_pairs_stay_with_the_reason(make_module: Any, body: Any, reason: str) -> None:
    left = left_on_the_host(make_module(X, body))
    assert reason in left["relax.quantize"]


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (lambda: weights(zero=2), "the zero point is one for each channel"),
        (lambda: weights(dtype="uint8"), "operand 0 is uint8; TensorRT has int8"),
    ],
)
def test_weights_that_tensorrt_cannot_read_keep_their_convolution_on_the_host(
    make_module: Any, kernel: Any, reason: str
) -> None:
    left = left_on_the_host(make_module(X, lambda x: nn.conv2d(x, kernel())))
    assert reason in left["relax.dequantize"]
    assert "relax.nn.conv2d" in left


def test_preparation_computes_what_tensorrt_cannot_read(make_module: Any) -> None:
    mod = make_module(X, lambda x: nn.conv2d(pair(x), weights(zero=2)))
    coverage = byoc.partition(mod, "tensorrt", prepare=True).coverage
    assert [entry.op for entry in coverage.ops if entry.region is None] == []
