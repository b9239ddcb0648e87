"""Reductions, searches, sorting and sums along an axis, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm.relax import op

pytestmark = pytest.mark.byoc("openvino")

RNG = np.random.default_rng(13)
X = RNG.normal(size=(2, 3, 5)).astype(np.float32)
DISTINCT = RNG.permutation(60).reshape(3, 4, 5)
AXES = (None, [1], [-1, 0])

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "max": torch.amax,
    "min": torch.amin,
    "variance": lambda x, dim, keepdim: torch.var(x, dim, correction=0, keepdim=keepdim),
    "std": lambda x, dim, keepdim: torch.std(x, dim, correction=0, keepdim=keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_reductions(check: Any, name: str, axes: list[int] | None, keep: bool, dtype: str) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        dim = tuple(axes or range(3))
        return REDUCTIONS[name](x.float(), dim=dim, keepdim=keep).to(x.dtype)

    check(lambda x: getattr(op, name)(x, axes, keep), reference, X.astype(dtype))


def test_product(check: Any) -> None:
    check(lambda x: op.prod(x, [1]), lambda x: x.prod(1), X)


INTEGERS = np.array([2**24 + 1, 2**24, -5, 65535, 65536, 2**31 - 1, -(2**31), -(2**30) - 1, 3, 0])


@pytest.mark.parametrize("name", ["max", "min", "sum"])
@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_reductions_of_integers_are_exact(
    check: Any, name: str, axes: list[int] | None, keep: bool, dtype: str
) -> None:
    x = RNG.choice(INTEGERS, (2, 4, 6)).astype(dtype)
    x = x // 64 if name == "sum" and dtype == "int64" else x  # wraps around at 32 bits

    def reference(x: torch.Tensor) -> torch.Tensor:
        dim = tuple(axes or range(3))
        if name == "sum":
            return torch.sum(x, dim=dim, keepdim=keep, dtype=torch.int64).to(x.dtype)
        return REDUCTIONS[name](x, dim=dim, keepdim=keep)

    check(lambda x: getattr(op, name)(x, axes, keep), reference, x)


@settings(max_examples=30, deadline=None)
@given(data=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=9))
def test_extremes_of_any_integers_are_exact(check: Any, data: list[int]) -> None:
    x = np.array(data, np.int32)
    check(lambda x: op.max(x, [0]), lambda x: x.max(), x)
    check(lambda x: op.min(x, [0]), lambda x: x.min(), x)


@pytest.mark.parametrize("name", ["mean", "prod", "variance", "std"])
def test_reductions_of_integers_that_openvino_does_as_floats_are_refused(
    check: Any, name: str
) -> None:
    reason = check.refusal(lambda x: getattr(op, name)(x, [0]), ((4, 2), "int32"))
    assert "reduces integers as float32" in reason


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 1, -1])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_extreme_places(check: Any, name: str, axis: int | None, keep: bool, dtype: str) -> None:
    check(
        lambda x: getattr(op, name)(x, axis, keep),
        lambda x: getattr(torch, name)(x, dim=axis, keepdim=keep),
        DISTINCT.astype(dtype),
    )


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_first_of_equal_extremes_counts(check: Any, name: str) -> None:
    x = np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)
    expected = np.argmax(x, 1) if name == "argmax" else np.argmin(x, 1)
    check(lambda x: getattr(op, name)(x, 1), lambda _: torch.from_numpy(expected), x)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_top_k(check: Any, largest: bool, dtype: str) -> None:
    x = DISTINCT.astype(dtype)
    check(
        lambda x: op.topk(x, 2, 1, "both", largest, "int64"),
        lambda x: tuple(torch.topk(x, 2, 1, largest)),
        x,
    )
    check(
        lambda x: op.topk(x, 2, -1, "indices", largest, "int32"),
        lambda x: torch.topk(x, 2, -1, largest).indices.int(),
        x,
    )
    check(
        lambda x: op.topk(x, 3, 0, "values", largest),
        lambda x: torch.topk(x, 3, 0, largest).values,
        x,
    )


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("axis", [0, -1])
def test_sorting(check: Any, descending: bool, axis: int) -> None:
    x = DISTINCT.astype(np.float32)
    check(
        lambda x: op.sort(x, axis, descending),
        lambda x: torch.sort(x, axis, descending).values,
        x,
    )
    check(
        lambda x: op.argsort(x, axis, descending, "int64"),
        lambda x: torch.argsort(x, axis, descending),
        x,
    )


def test_sorting_an_axis_of_symbolic_size_is_refused(check: Any) -> None:
    assert "is symbolic" in check.refusal(lambda x: op.sort(x, 0), (("n",), "float32"))


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int64"])
def test_cumulative_sums(check: Any, axis: int, dtype: str) -> None:
    x = (X * 3).astype(dtype)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, axis, dtype=x.dtype)

    check(lambda x: op.cumsum(x, axis), reference, x)
    check(lambda x: op.cumsum(x, axis, exclusive=True), lambda x: reference(x) - x, x)


def test_cumulative_sum_of_bools_counts(check: Any) -> None:
    check(lambda x: op.cumsum(x, 1, "int64"), lambda x: torch.cumsum(x, 1), X > 0)


def test_cumulative_sum_of_all(check: Any) -> None:
    check(op.cumsum, lambda x: torch.cumsum(x.flatten(), 0), X)


def test_cumulative_sum_of_integers_is_exact_beyond_what_floats_hold(check: Any) -> None:
    x = np.array([2**24 + 1, 2, 2**25 + 1], np.int32)
    check(lambda x: op.cumsum(x, 0), lambda x: torch.cumsum(x, 0, dtype=torch.int32), x)


def test_symbolic_sizes(check: Any) -> None:
    shapes = [("n", "m", 5)]
    check(lambda x: op.mean(x, [1]), lambda x: x.mean(1), X, shapes=shapes)
    check(op.argmax, torch.argmax, X, shapes=shapes)
    check(lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), X, shapes=shapes)
    check(
        lambda x: op.topk(x, 2, 1, "both", True, "int64"),
        lambda x: tuple(x.topk(2, 1)),
        X,
        shapes=shapes,
    )
