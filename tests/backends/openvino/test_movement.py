"""Operators that move, choose, repeat or scatter elements, in each dtype, against PyTorch."""

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
from tvm.tirx import FloatImm

pytestmark = pytest.mark.byoc("openvino")

RNG = np.random.default_rng(12)
DTYPES = ("float32", "float16", "int32", "int64", "uint8", "int8", "bool")


def values(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype.startswith("float"):
        return RNG.normal(size=shape).astype(dtype)
    return RNG.integers(0, 2 if dtype == "bool" else 100, shape).astype(dtype)


def indices(*shape: int, below: int, dtype: str = "int64") -> np.ndarray:
    return RNG.integers(0, below, shape).astype(dtype)


Case = tuple[Callable[..., Any], Callable[..., Any]]

# Each is applied to a tensor of 2 by 3 by 4.
MOVES: dict[str, Case] = {
    "reshape": (lambda x: op.reshape(x, (4, -1)), lambda x: x.reshape(4, -1)),
    "flatten": (op.flatten, torch.flatten),
    "batch_flatten": (op.nn.batch_flatten, lambda x: x.flatten(1)),
    "permute_dims": (lambda x: op.permute_dims(x, [2, 0, -2]), lambda x: x.permute(2, 0, 1)),
    "permute_dims without axes": (op.permute_dims, lambda x: x.permute(2, 1, 0)),
    "expand_dims": (lambda x: op.expand_dims(x, [0, -1]), lambda x: x[None, ..., None]),
    "broadcast_to": (lambda x: op.broadcast_to(x, (5, 2, 3, 4)), lambda x: x.expand(5, 2, 3, 4)),
    "concat": (lambda x: op.concat([x, x], -2), lambda x: torch.cat([x, x], -2)),
    "stack": (lambda x: op.stack([x, x], -1), lambda x: torch.stack([x, x], -1)),
    "split in parts": (lambda x: op.split(x, 2, 2), lambda x: torch.split(x, 2, 2)),
    "split at places": (
        lambda x: op.split(x, [1, 3], -1),
        lambda x: torch.tensor_split(x, [1, 3], -1),
    ),
    "slice": (lambda x: op.strided_slice(x, [0, 2], [0, -3], [1, 2**40]), lambda x: x[:1, :, -3:]),
    "slice with a stride": (
        lambda x: op.strided_slice(x, [2], [0], [4], [2]),
        lambda x: x[:, :, ::2],
    ),
    "slice backwards": (
        lambda x: op.strided_slice(x, [2], [-1], [-(2**31)], [-1]),
        lambda x: x.flip(2),
    ),
    "tile": (lambda x: op.tile(x, [2, 1, 3]), lambda x: x.repeat(2, 1, 3)),
    "tile of more axes": (lambda x: op.tile(x, [2, 2, 1, 3]), lambda x: x.repeat(2, 2, 1, 3)),
    "tile of fewer axes": (lambda x: op.tile(x, [3]), lambda x: x.repeat(1, 1, 3)),
    "repeat": (lambda x: op.repeat(x, 3, -2), lambda x: x.repeat_interleave(3, 1)),
    "repeat of all": (lambda x: op.repeat(x, 3), lambda x: x.flatten().repeat_interleave(3)),
    "pad": (
        lambda x: op.nn.pad(x, [0, 0, 1, 2, 2, 0], "constant", 1.0),
        lambda x: F.pad(x, (2, 0, 1, 2), value=1),
    ),
    "flip": (lambda x: op.flip(x, -2), lambda x: x.flip(1)),
    "tril": (lambda x: op.tril(x, 1), lambda x: x.tril(1)),
    "triu": (lambda x: op.triu(x, -1), lambda x: x.triu(-1)),
    "zeros_like": (op.zeros_like, torch.zeros_like),
    "ones_like": (op.ones_like, torch.ones_like),
    "full_like": (
        lambda x: op.full_like(x, relax.const(1, x.ty.dtype)),
        lambda x: torch.full_like(x, 1),
    ),
}


@pytest.mark.parametrize("name", MOVES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_moved_in_each_dtype(check: Any, name: str, dtype: str) -> None:
    make, reference = MOVES[name]
    check(make, reference, values(2, 3, 4, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_squeeze(check: Any, dtype: str) -> None:
    x = values(1, 6, 4, 1, dtype=dtype)
    check(lambda x: op.squeeze(x, [0, -1]), lambda x: x.squeeze(-1).squeeze(0), x)
    check(op.squeeze, torch.squeeze, x)
    check(op.squeeze, torch.squeeze, values(2, 3, dtype=dtype))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pad_by_what_is_there(check: Any, mode: str) -> None:
    check(
        lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 2, 2, 0], mode),
        lambda x: F.pad(x, (2, 0, 1, 2), mode=mode),
        values(1, 2, 4, 5),
    )


def test_pads_that_openvino_does_not_have_are_refused(check: Any) -> None:
    x = ((1, 2, 4, 5), "float32")
    assert "pads by a constant" in check.refusal(
        lambda x: op.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], "circular"), x
    )


def test_pixel_shuffle(check: Any) -> None:
    check(lambda x: op.nn.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), values(1, 8, 3, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_take(check: Any, dtype: str, index: str) -> None:
    x = values(2, 3, 4, dtype=dtype)
    where = indices(2, 2, below=3, dtype=index)
    check(lambda x, i: op.take(x, i, 1), lambda x, i: x[:, i.long()], x, where)
    check(op.take, lambda x, i: x[i.long()], x[0, 0], where)
    beyond = RNG.integers(-5, 9, (2, 2)).astype(index)
    check(
        lambda x, i: op.take(x, i, -2, mode="clip"),
        lambda x, i: x[:, i.clamp(0, 2).long()],
        x,
        beyond,
    )


@pytest.mark.parametrize("size", [1, 3, 7, 1000, 65537])
@pytest.mark.parametrize("index", ["int32", "int64"])
def test_take_wraps_any_index_around(check: Any, size: int, index: str) -> None:
    far = np.array([0, -1, size - 1, size, -size, -size - 1, 2**24 + 1, 2**31 - 1, -(2**31)])
    near = RNG.integers(-3 * size, 3 * size, 20)
    check(
        lambda x, i: op.take(x, i, 0, mode="wrap"),
        lambda x, i: x[i.long() % size],
        np.arange(size, dtype=np.float32),
        np.concatenate([far, near]).astype(index),
    )


def test_take_that_wraps_around_a_symbolic_size_is_refused(check: Any) -> None:
    inputs = (("n", 4), "float32"), ((2,), "int64")
    assert "wraps" in check.refusal(lambda x, i: op.take(x, i, 0, mode="wrap"), *inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gathers(check: Any, dtype: str) -> None:
    x = values(2, 3, 4, dtype=dtype)
    check(
        lambda x, i: op.gather_elements(x, i, -1),
        lambda x, i: torch.gather(x, 2, i),
        x,
        indices(2, 3, 2, below=4),
    )
    check(op.gather_nd, lambda x, i: x[i[..., 0], i[..., 1]], x, indices(5, 2, below=2))
    check(
        lambda x, i: op.gather_nd(x, i, 1),
        lambda x, i: torch.stack([x[n][i[n][..., 0]] for n in range(2)]),
        x,
        indices(2, 5, 1, below=3),
    )
    check(
        lambda x, i, j: op.index_tensor(x, [i, j]),
        lambda x, i, j: x[i, j],
        x,
        indices(3, 1, below=2),
        indices(4, below=3),
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatters(check: Any, dtype: str) -> None:
    x = values(2, 3, 4, dtype=dtype)
    check(
        lambda x, i, u: op.scatter_elements(x, i, u, 1),
        lambda x, i, u: x.scatter(1, i, u),
        x,
        np.array([[[0, 1, 2, 0]], [[1, 1, 0, 2]]]),
        values(2, 1, 4, dtype=dtype),
    )
    check(
        op.scatter_nd,
        lambda x, i, u: x.index_put((i[:, 0], i[:, 1]), u),
        x,
        np.array([[0, 1], [1, 2]]),
        values(2, 4, dtype=dtype),
    )


REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax", "mean": "mean"}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_scatters_that_reduce(check: Any, name: str) -> None:
    check(
        lambda x, i, u: op.scatter_elements(x, i, u, -2, name),
        lambda x, i, u: x.scatter_reduce(1, i, u, REDUCTIONS[name]),
        values(2, 3, 4),
        indices(2, 3, 4, below=3),
        values(2, 3, 4),
    )


COMBINED = {
    "add": torch.add,
    "mul": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}


@pytest.mark.parametrize("name", COMBINED)
def test_scatters_of_slices_that_reduce(check: Any, name: str) -> None:
    def reference(x: torch.Tensor, places: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        for place, update in zip(places[:, 0], updates, strict=True):
            x[place] = COMBINED[name](x[place], update)
        return x

    places = np.array([[1], [1], [3]])
    check(
        lambda x, i, u: op.scatter_nd(x, i, u, name), reference, values(4, 3), places, values(3, 3)
    )


def test_scatters_that_reduce_integers_are_refused(check: Any) -> None:
    inputs = ((4, 3), "int32"), ((2, 3), "int64"), ((2, 3), "int32")
    reason = check.refusal(lambda x, i, u: op.scatter_elements(x, i, u, 0, "add"), *inputs)
    assert "reduces integers as float32" in reason


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(check: Any, axis: int) -> None:
    on, off = FloatImm("float32", 2.0), FloatImm("float32", -1.0)
    check(
        lambda x: op.one_hot(x, on, off, 4, axis),
        lambda x: (F.one_hot(x, 4) * 3.0 - 1).movedim(-1, axis),
        indices(2, 3, below=4),
    )


SYMBOLIC: dict[str, Case] = {
    "reshape": (
        lambda x: op.reshape(x, (x.ty.shape[1] * x.ty.shape[0], 4)),
        lambda x: x.reshape(-1, 4),
    ),
    "reshape of a sum": (
        lambda x: op.reshape(op.concat([x, x], 1), (x.ty.shape[0], x.ty.shape[1] * 2, 2, 2)),
        lambda x: torch.cat([x, x], 1).reshape(2, -1, 2, 2),
    ),
    **{
        name: MOVES[name]
        for name in (
            *("flatten", "batch_flatten", "permute_dims", "expand_dims", "concat", "stack"),
            *("split in parts", "slice with a stride", "slice backwards", "tile", "repeat", "pad"),
            *("flip", "tril", "triu", "zeros_like", "full_like"),
        )
    },
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(check: Any, name: str) -> None:
    make, reference = SYMBOLIC[name]
    check(make, reference, values(2, 3, 4), shapes=[("n", "m", 4)])


def test_symbolic_sizes_of_indices(check: Any) -> None:
    x, i = values(2, 3, 4), indices(5, below=2)
    shapes = [("n", "m", 4), ("k",), ("k",)]
    check(lambda x, i: op.take(x, i, 0), lambda x, i: x[i], x, i, shapes=shapes[:2])
    check(
        lambda x, i: op.take(x, i, 1, mode="clip"),
        lambda x, i: x[:, i.clamp(0, 2)],
        x,
        i + 9,
        shapes=shapes[:2],
    )
    check(
        lambda x, *i: op.index_tensor(x, list(i)), lambda x, i, j: x[i, j], x, i, i, shapes=shapes
    )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_slice(check: Any, data: st.DataObject) -> None:
    size, step = data.draw(st.integers(1, 7)), data.draw(st.sampled_from([1, 2, 3]))
    begin = data.draw(st.integers(-size - 2, size - 1))
    end = data.draw(st.integers(begin % size + 1 if begin >= -size else 1, size + 3))
    check(
        lambda x: op.strided_slice(x, [1], [begin], [end], [step]),
        lambda x: x[:, slice(begin, end, step)],
        values(2, size),
    )


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_reshape_and_permutation(check: Any, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    axes = data.draw(st.permutations(range(len(shape))))
    target = data.draw(st.permutations(shape))
    x = values(*shape, dtype=data.draw(st.sampled_from(DTYPES)))
    check(
        lambda x: op.reshape(op.permute_dims(x, list(axes)), target),
        lambda x: x.permute(*axes).reshape(*target),
        x,
    )
