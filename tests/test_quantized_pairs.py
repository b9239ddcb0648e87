"""Pairs of quantize and dequantize in the form of signed bytes around 0: the same numbers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.prepare_report import count_ops
from tvm_byoc_kit.quantized_pairs import symmetric_pairs

Array = np.ndarray
# Halves of steps, which are rounded to even, values that saturate, and others.
VALUES = np.concatenate(
    [
        np.arange(-200, 200, dtype=np.float32) / 8,
        np.float32([-1e9, 1e9, np.inf, -np.inf, -0.0]),
        np.random.default_rng(0).standard_normal(95, dtype=np.float32) * 10,
    ]
)
SCALE = 0.25


def constant(value: Any, dtype: str) -> Any:
    return relax.const(np.array(value, dtype), dtype)


def pair(dtype: str, zero: Any, scale: Any = SCALE, axis: int = -1) -> Any:
    def body(x: Any) -> Any:
        parameters = constant(scale, "float32"), constant(zero, dtype)
        quantized = relax.op.quantize(x, *parameters, axis, dtype)
        return relax.op.dequantize(quantized, *parameters, axis, "float32")

    return body


def run(mod: tvm.IRModule, x: Array) -> Array:
    return byoc.compile(byoc.load_model(mod), "llvm", prepare=False)(x)


@pytest.mark.parametrize(
    ("dtype", "zero", "left"),
    [
        ("uint8", 128, "relax.quantize"),
        ("uint8", 0, "relax.clip"),
        ("uint8", 255, "relax.clip"),
        ("uint8", 93, "relax.clip"),
        ("int8", -7, "relax.clip"),
        ("int8", 0, "relax.quantize"),
        ("int16", 0, "relax.clip"),
    ],
)
def test_every_value_is_what_it_was(make_module: Any, dtype: str, zero: int, left: str) -> None:
    mod = make_module({"x": (VALUES.shape, "float32")}, pair(dtype, zero))
    rewritten = relax.transform.DeadCodeElimination()(symmetric_pairs(mod))
    ops = count_ops(rewritten)
    assert ops[left] == 1
    assert len({"relax.quantize", "relax.clip"} & set(ops)) == 1
    limits = np.iinfo(dtype)
    steps = np.clip(np.rint(VALUES / np.float32(SCALE)) + zero, limits.min, limits.max) - zero
    expected = (steps * np.float32(SCALE)).astype(np.float32)
    np.testing.assert_array_equal(run(rewritten, VALUES), expected)


def test_the_notes_say_what_was_done(make_module: Any) -> None:
    notes: Counter[str] = Counter()
    for dtype, zero in (("uint8", 128), ("uint8", 3), ("int8", 0)):
        symmetric_pairs(make_module({"x": ((4,), "float32")}, pair(dtype, zero)), notes)
    assert notes == {
        "uint8 around 128 as int8 around 0": 1,
        "uint8 around another number in floating point": 1,
    }


def other_scale(x: Any) -> Any:
    quantized = relax.op.quantize(x, constant(0.5, "float32"), constant(3, "uint8"), -1, "uint8")
    return relax.op.dequantize(
        quantized, constant(0.25, "float32"), constant(3, "uint8"), -1, "float32"
    )


def half(x: Any) -> Any:
    parameters = constant(0.5, "float32"), constant(3, "uint8")
    quantized = relax.op.quantize(relax.op.astype(x, "float16"), *parameters, -1, "uint8")
    return relax.op.dequantize(quantized, *parameters, -1, "float32")


@pytest.mark.parametrize(
    "body", [other_scale, half, pair("uint8", [1, 2, 3, 4], [0.5] * 4)], ids=["scale", "half", "4"]
)
def test_other_pairs_are_left_alone(make_module: Any, body: Any) -> None:
    mod = make_module({"x": ((4,), "float32")}, body)
    assert count_ops(symmetric_pairs(mod)) == count_ops(mod)


def bytes_of(shape: tuple[int, ...], axis: int) -> tuple[Any, Array]:
    """A dequantized constant, and what it is."""
    rng = np.random.default_rng(1)
    data = rng.integers(-128, 128, shape, np.int8)
    scale = rng.random(shape[axis], np.float32) + np.float32(0.1)
    stored = relax.op.dequantize(
        constant(data, "int8"),
        constant(scale, "float32"),
        constant(np.zeros(shape[axis]), "int8"),
        axis,
        "float32",
    )
    return stored, data * scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])


@pytest.mark.parametrize("axes", [None, [0, 2, 1], [2, 0, 1]])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_bytes_are_transposed_as_bytes(make_module: Any, axes: Any, axis: int) -> None:
    stored, values = bytes_of((2, 3, 4), axis)
    expected = values.transpose(axes)
    mod = make_module(
        {"x": (expected.shape, "float32")},
        lambda x: relax.op.add(x, relax.op.permute_dims(stored, axes)),
    )
    rewritten = relax.transform.DeadCodeElimination()(symmetric_pairs(mod))
    assert count_ops(rewritten) == {"relax.dequantize": 1, "relax.add": 1}
    np.testing.assert_array_equal(run(rewritten, np.zeros(expected.shape, "float32")), expected)


@pytest.mark.parametrize(("backend", "left"), [("tensorrt", 1), ("llvm", 0), (None, 0)])
def test_weights_stay_bytes_for_a_backend_that_computes_with_them(
    make_module: Any, backend: str | None, left: int
) -> None:
    stored, values = bytes_of((4, 3), 1)
    mod = make_module({"x": ((2, 4), "float32")}, lambda x: relax.op.matmul(x, stored))
    prepared = byoc.prepare(mod, backend)
    assert count_ops(prepared.mod)["relax.dequantize"] == left
    x = np.random.default_rng(2).standard_normal((2, 4), dtype=np.float32)
    got = byoc.compile(prepared, "llvm", prepare=False)(x)
    np.testing.assert_allclose(got, x @ values, rtol=1e-5, atol=1e-4)
