"""Arithmetic, functions, activations, comparisons and logic, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - what everybody calls it
from tvm import relax
from tvm.relax import op

pytestmark = pytest.mark.byoc("openvino")

RNG = np.random.default_rng(11)
X = RNG.normal(size=(2, 3, 5)).astype(np.float32)
WIDE = X * 10
POSITIVE = np.abs(X) + 0.1
UNIT = np.tanh(X) * 0.9
HALVES = np.arange(-9, 10, dtype=np.float32) / 2
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1, 0], np.float32)
# Neighbours that are the same number in float32, and the ends of the range.
NEAR = np.array([2**24, 2**24 + 1, -(2**31), 2**31 - 1, 5])

DTYPES = ("float32", "float16", "int32", "int64", "uint8", "int8", "bool")
NUMBERS = ("float32", "float16", "int32", "int64")


def values(*shape: int, dtype: str, below: int = 6) -> np.ndarray:
    """Small integers, with zeros and ties; of both signs where the dtype has them."""
    if dtype == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    return RNG.integers(0 if dtype.startswith("u") else -below, below, shape).astype(dtype)


def relax_op(name: str) -> Callable[..., Any]:
    return getattr(op.nn if hasattr(op.nn, name) else op, name)


UNARY = {
    **dict.fromkeys(("abs", "ceil", "cos", "cosh", "erf", "exp", "floor", "negative", "sign"), X),
    **dict.fromkeys(("sigmoid", "sin", "sinh", "square", "tan", "tanh", "atan", "asinh"), X),
    **dict.fromkeys(("log", "sqrt", "rsqrt"), POSITIVE),
    **dict.fromkeys(("acos", "asin", "atanh"), UNIT),
    **dict.fromkeys(("round", "trunc"), HALVES),
    "acosh": POSITIVE + 1,
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_those_of_pytorch(check: Any, name: str) -> None:
    check(relax_op(name), getattr(torch, name), UNARY[name])


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_half_precision_are_those_of_single_precision_rounded(
    check: Any, name: str
) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch, name)(x.float()).half()

    check(relax_op(name), reference, UNARY[name].astype(np.float16))


@pytest.mark.parametrize("name", ["abs", "negative", "sign", "square", "relu"])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_functions_of_integers(check: Any, name: str, dtype: str) -> None:
    check(relax_op(name), getattr(torch, name), values(4, 5, dtype=dtype))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_special_values_are_told(check: Any, name: str) -> None:
    check(relax_op(name), getattr(torch, name), SPECIAL)


BINARY = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_arithmetic_broadcasts_in_each_dtype(check: Any, name: str, dtype: str) -> None:
    check(relax_op(name), BINARY[name], values(2, 3, 4, dtype=dtype), values(3, 1, dtype=dtype))


@pytest.mark.parametrize("name", ["add", "subtract", "multiply"])
def test_arithmetic_of_32_bits_wraps_around(check: Any, name: str) -> None:
    check(relax_op(name), BINARY[name], NEAR.astype(np.int32), NEAR[::-1].astype(np.int32).copy())


QUOTIENTS = {
    "divide": torch.div,
    "mod": torch.fmod,
    "floor_mod": torch.remainder,
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients_and_remainders_have_the_signs_of_pytorch(check: Any, name: str) -> None:
    check(relax_op(name), QUOTIENTS[name], X * 5, RNG.normal(size=(3, 1)).astype(np.float32))


@pytest.mark.parametrize("name", QUOTIENTS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_quotients_of_integers_are_refused(check: Any, name: str, dtype: str) -> None:
    assert "divides integers as float32" in check.refusal(
        relax_op(name), ((4,), dtype), ((4,), dtype)
    )


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "abs", "negative"])
def test_arithmetic_of_8_bits_is_refused(check: Any, name: str) -> None:
    inputs = [((4,), "int8")] * (2 if name in BINARY else 1)
    assert "saturates integers of 8 bits" in check.refusal(relax_op(name), *inputs)


def test_powers(check: Any) -> None:
    exponent = RNG.normal(size=(3, 1)).astype(np.float32)
    check(op.power, torch.pow, POSITIVE, exponent)
    check(op.power, torch.pow, np.array([-2, -3], np.float32), np.array([3, 2], np.float32))
    for number in (0.5, 2.0, 3.0, -1.0):
        check(lambda x, n=number: op.power(x, relax.const(n)), lambda x, n=number: x**n, POSITIVE)


def test_fused_multiply_add(check: Any) -> None:
    check(op.ewise_fma, lambda x, y, z: x * y + z, X, X[::-1].copy(), X + 1)


COMPARISONS = {
    "equal": torch.eq,
    "not_equal": torch.ne,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_comparisons_in_each_dtype(check: Any, name: str, dtype: str) -> None:
    x, y = values(4, 5, dtype=dtype, below=3), values(5, dtype=dtype, below=3)
    check(relax_op(name), COMPARISONS[name], x, y)


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_comparisons_of_integers_are_exact_beyond_what_floats_tell_apart(
    check: Any, name: str, dtype: str
) -> None:
    x, y = np.meshgrid(NEAR, NEAR)
    check(relax_op(name), COMPARISONS[name], x.astype(dtype), y.astype(dtype))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logic(check: Any, name: str) -> None:
    x, y = values(4, 5, dtype="bool"), values(5, dtype="bool")
    check(relax_op(name), getattr(torch, name), x, y)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_bits(check: Any, name: str, dtype: str) -> None:
    x, y = values(4, 5, dtype=dtype, below=100), values(5, dtype=dtype, below=100)
    check(relax_op(name), getattr(torch, name), x, y)


@pytest.mark.parametrize("dtype", DTYPES[2:])
def test_complements(check: Any, dtype: str) -> None:
    check(op.bitwise_not, torch.bitwise_not, values(9, dtype=dtype, below=100))
    if dtype == "bool":
        check(op.logical_not, torch.logical_not, values(9, dtype=dtype))


def test_shifts(check: Any) -> None:
    x, by = values(9, dtype="int32", below=1000), RNG.integers(0, 5, 9).astype(np.int32)
    check(op.right_shift, torch.bitwise_right_shift, x, by)
    check(op.left_shift, torch.bitwise_left_shift, x, by)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where_chooses_in_each_dtype(check: Any, dtype: str) -> None:
    condition = values(4, 5, dtype="bool")
    check(op.where, torch.where, condition, values(4, 5, dtype=dtype), values(5, dtype=dtype))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_casts_keep_small_numbers(check: Any, source: str, target: str) -> None:
    x = np.abs(values(9, dtype=source, below=4)) if source != "bool" else values(9, dtype=source)
    check(lambda x: op.astype(x, target), lambda x: x.to(getattr(torch, target)), x.astype(source))


CASTS = {
    "to integers towards zero": (np.array([1.9, -1.9, -0.5], np.float32), "int32"),
    "to bool by being zero": (np.array([0.9, -1.9, -0.5, 0], np.float32), "bool"),
    "to half precision with infinities": (np.array([1e6, -1e6, 7e4, 1e-8], np.float32), "float16"),
    "to uint8 by its bits": (np.array([300, -1, 5], np.int32), "uint8"),
    "to int8 by its bits": (np.array([300, -1, 200], np.int32), "int8"),
    "to float by rounding": (np.array([2**24 + 1, -5], np.int32), "float32"),
}


@pytest.mark.parametrize("case", CASTS)
def test_casts_convert(check: Any, case: str) -> None:
    x, target = CASTS[case]
    check(lambda x: op.astype(x, target), lambda x: x.to(getattr(torch, target)), x)


@pytest.mark.parametrize("bounds", [(-1, 0.5), (-np.inf, 0.5), (-1, np.inf), (-np.inf, np.inf)])
def test_clip_of_floats(check: Any, bounds: tuple[float, float]) -> None:
    check(lambda x: op.clip(x, *bounds), lambda x: torch.clamp(x, *bounds), X)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int8"])
@pytest.mark.parametrize("bounds", [(1, 3), (-2, 3), (-(2**40), 2**40)])
def test_clip_of_integers(check: Any, dtype: str, bounds: tuple[int, int]) -> None:
    x = values(4, 5, dtype=dtype)
    low, high = (min(max(bound, np.iinfo(dtype).min), np.iinfo(dtype).max) for bound in bounds)
    check(lambda x: op.clip(x, *bounds), lambda x: torch.clamp(x, low, high), x)


ACTIVATIONS = {
    "relu": (op.nn.relu, F.relu),
    "silu": (op.nn.silu, F.silu),
    "gelu": (op.nn.gelu, F.gelu),
    "gelu tanh": (op.nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "leaky relu": (lambda x: op.nn.leakyrelu(x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "selu": (op.nn.selu, F.selu),
    "softplus": (op.nn.softplus, F.softplus),
    "softplus of a beta": (
        lambda x: op.nn.softplus(x, beta=2.0, threshold=3.0),
        lambda x: F.softplus(x, 2, 3),
    ),
    **{
        f"softmax {axis}": (
            lambda x, axis=axis: op.nn.softmax(x, axis),
            lambda x, axis=axis: F.softmax(x, axis),
        )
        for axis in (0, 1, -1)
    },
    **{
        f"log softmax {axis}": (
            lambda x, axis=axis: op.nn.log_softmax(x, axis),
            lambda x, axis=axis: F.log_softmax(x, axis),
        )
        for axis in (0, -1)
    },
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_activations(check: Any, name: str, dtype: str) -> None:
    make, reference = ACTIVATIONS[name]
    check(make, lambda x: reference(x.float()).to(x.dtype), WIDE.astype(dtype))


@pytest.mark.parametrize(("axis", "size"), [(1, 3), (2, 5), (-1, 5), (1, 1)])
def test_prelu_has_its_slopes_on_any_axis(check: Any, axis: int, size: int) -> None:
    slopes = RNG.normal(size=size).astype(np.float32)
    shape = [1, 1, 1]
    shape[axis] = size

    def reference(x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, x * slope.reshape(shape))

    check(lambda x, s: op.nn.prelu(x, s, axis=axis), reference, X, slopes)


def test_symbolic_sizes(check: Any) -> None:
    shapes = [("n", "m", 5)] * 2
    check(op.add, torch.add, X, X, shapes=shapes)
    check(lambda x: op.nn.softmax(x, -1), lambda x: F.softmax(x, -1), X, shapes=shapes[:1])
    mask = values(2, 3, 5, dtype="bool")
    check(op.where, torch.where, mask, X, -X, shapes=[("n", "m", 5)] * 3)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_shapes_broadcast(check: Any, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 4))
    full = data.draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    shapes = []
    for _ in range(2):
        kept = [1 if data.draw(st.booleans()) else size for size in full]
        shapes.append(kept[data.draw(st.integers(0, rank)) :])
    name = data.draw(st.sampled_from([*BINARY, *COMPARISONS]))
    dtype = data.draw(st.sampled_from(NUMBERS))
    reference = {**BINARY, **COMPARISONS}[name]
    check(relax_op(name), reference, *(values(*shape, dtype=dtype) for shape in shapes))


def test_constants_beyond_32_bits_are_refused(check: Any) -> None:
    reason = check.refusal(lambda x: op.add(x, relax.const(2**40, "int64")), ((2,), "int64"))
    assert "exceeds 32 bits" in reason


@pytest.mark.parametrize("dtype", ["float64", "int16", "uint32", "bfloat16"])
def test_other_dtypes_are_refused(check: Any, dtype: str) -> None:
    assert f"is {dtype}" in check.refusal(op.add, ((2,), dtype), ((2,), dtype))


def test_empty_tensors_are_refused(check: Any) -> None:
    assert "is empty" in check.refusal(op.abs, ((0, 3), "float32"))
