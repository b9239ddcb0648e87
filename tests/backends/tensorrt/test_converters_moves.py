"""Converters of arithmetic, comparisons, reductions and moves: their networks, by the oracle.

What a network computes is compared with NumPy or PyTorch. Every case has attributes that are not
the defaults and not their own inverse, where the operator has such.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax

from tvm_byoc_kit.backends.tensorrt.network import Network

from . import engines
from .harness import Subject, arrays_of, compare

op = relax.op
Array = np.ndarray
Body = Callable[..., Any]
Reference = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A call of an operator, and what it should give.

    Parameters
    ----------
    body : function
        Of Relax variables, one for each array.
    reference : function
        Of the arrays.
    arrays : tuple of numpy.ndarray
    dims : sequence of shapes, optional
        The declared shapes, texts for symbols; None: those of the arrays.
    """

    body: Body
    reference: Reference
    arrays: tuple[Array, ...]
    dims: Sequence[Sequence[int | str]] | None = None


def numbers(*shape: int, low: float = -2, high: float = 2, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


def integers(*shape: int, dtype: str = "int32", seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def truths(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def const(values: Any, dtype: str = "float32") -> Any:
    return relax.const(np.array(values, dtype), dtype)


def long(number: int) -> Any:
    return tvm.tirx.IntImm("int64", number)


def by_torch(function: Callable[..., Any]) -> Reference:
    def reference(*arrays: Array) -> Any:
        return function(*map(torch.from_numpy, arrays))

    return reference


def check(
    make_module: Callable[..., Any], case: Case, precision: str = "fp32", within: float = 2e-6
) -> Network:
    dims = case.dims or [array.shape for array in case.arrays]
    params = {
        f"x{number}": (shape, array.dtype.name)
        for number, (shape, array) in enumerate(zip(dims, case.arrays, strict=True))
    }
    subject = Subject.of_module(make_module(params, case.body))
    network = subject.network(precision)
    found = subject.run(network, case.arrays)
    compare(found, arrays_of(case.reference(*case.arrays)), precision, within)
    return network


X = numbers(2, 3, 4)
INTS = integers(2, 3, 4)
LONGS = integers(2, 3, 4, dtype="int64", seed=1)
HALVES = np.array([-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.6, 3.5], "float32")
SPECIAL = np.array([0, -0.0, 1.5, math.inf, -math.inf, math.nan], "float32")

UNARY: dict[str, Case] = {
    name: Case(getattr(op, name), by_torch(getattr(torch, name)), (x,))
    for name, x in {
        "abs": X,
        "acos": X / 2,
        "acosh": X + 3.5,
        "asin": X / 2,
        "asinh": X,
        "atan": X,
        "atanh": X / 2.1,
        "ceil": X,
        "cos": X,
        "cosh": X,
        "erf": X,
        "exp": X,
        "floor": X,
        "log": X + 2.5,
        "negative": X,
        "round": HALVES,
        "rsqrt": X + 2.5,
        "sign": np.concatenate([HALVES, np.zeros(1, "float32")]),
        "sin": X,
        "sinh": X,
        "sqrt": X + 2.5,
        "square": X,
        "tan": X / 2,
    }.items()
}
UNARY |= {
    f"{name} of {x.dtype}": Case(getattr(op, name), by_torch(getattr(torch, name)), (x,))
    for name in ("abs", "negative", "sign", "square")
    for x in (INTS, LONGS)
}
UNARY |= {
    "of a scalar": Case(op.exp, np.exp, (np.float32(0.7).reshape(()),)),
    "of a batch": Case(op.erf, by_torch(torch.erf), (X,), [("n", 3, "m")]),
    "isnan": Case(op.isnan, np.isnan, (SPECIAL,)),
    "isinf": Case(op.isinf, np.isinf, (SPECIAL,)),
    "isfinite": Case(op.isfinite, np.isfinite, (SPECIAL,)),
    "logical_not": Case(op.logical_not, np.logical_not, (truths(7),)),
    "bitwise_not": Case(op.bitwise_not, np.logical_not, (truths(7),)),
}

CLIP: dict[str, Case] = {
    "floats": Case(lambda x: op.clip(x, -0.5, 1.25), lambda x: x.clip(-0.5, 1.25), (X,)),
    "below only": Case(lambda x: op.clip(x, 0.1, math.inf), lambda x: x.clip(0.1), (X,)),
    "above only": Case(
        lambda x: op.clip(x, -math.inf, 0.1), lambda x: np.minimum(x, np.float32(0.1)), (X,)
    ),
    "int32": Case(lambda x: op.clip(x, -3, 5), lambda x: x.clip(-3, 5), (INTS,)),
    "int64": Case(lambda x: op.clip(x, -3, 5), lambda x: x.clip(-3, 5), (LONGS,)),
    "int32, low above high": Case(
        lambda x: op.clip(x, 4, 2), lambda x: np.full_like(x, 4), (INTS,)
    ),
    "int32, bounds beyond it": Case(lambda x: op.clip(x, -(2**40), 2**40), lambda x: x, (INTS,)),
    "int64, a large bound": Case(
        lambda x: op.clip(x, long(-(2**60) - 1), long(2**60 + 1)),
        lambda x: x.clip(-(2**60) - 1, 2**60 + 1),
        (np.array([-(2**62), -5, 2**62]),),
    ),
    "a scalar": Case(
        lambda x: op.clip(x, 0, 6), lambda x: x.clip(0, 6), (np.array(7.5, "float32"),)
    ),
}

A, B = numbers(2, 1, 4, low=0.5, high=3), numbers(3, 1, low=0.5, high=3, seed=1)
BINARY: dict[str, Case] = {}
for _name in ("add", "subtract", "multiply", "divide", "power", "maximum", "minimum"):
    _op, _np = getattr(op, _name), getattr(np, _name)
    BINARY |= {
        f"{_name}, broadcast": Case(_op, _np, (A, B)),
        f"{_name} from a constant": Case(
            lambda x, _op=_op: _op(const([1.5, 2, 2.5, 3]), x),
            lambda x, _np=_np: _np(np.array([1.5, 2, 2.5, 3], "float32"), x),
            (A,),
        ),
        f"{_name} with a scalar": Case(
            lambda x, _op=_op: _op(x, const(1.5)),
            lambda x, _np=_np: _np(x, np.float32(1.5)),
            (A,),
        ),
        f"{_name} of scalars": Case(_op, _np, (A[0, 0, 0].reshape(()), A[1, 0, 0].reshape(()))),
        f"{_name}, dynamic": Case(_op, _np, (A, B), [("n", 1, "m"), (3, 1)]),
        f"{_name}, raised": Case(_op, _np, (A[0], A), [("k", "m"), ("n", "k", "m")]),
    }
for _name in ("add", "subtract", "multiply", "maximum", "minimum"):
    _op, _np = getattr(op, _name), getattr(np, _name)
    for _data in (INTS, LONGS):
        _other = _data[:1, ::-1, :1].copy()
        BINARY[f"{_name} of {_data.dtype}"] = Case(_op, _np, (_data, _other))
_LARGE = np.array([2**53 + 1, -(2**53) - 1])
BINARY["add beyond the digits of floats"] = Case(op.add, np.add, (_LARGE, np.array([1, -1])))

EQUALS = np.array([[1, 2, math.nan], [-1, math.inf, -0.0]], "float32")
COMPARED: dict[str, Case] = {}
for _name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    _op, _np = getattr(op, _name), getattr(np, _name)
    COMPARED |= {
        _name: Case(_op, _np, (EQUALS, np.array([1, math.inf, math.nan], "float32"))),
        f"{_name}, same": Case(_op, _np, (EQUALS, EQUALS.copy())),
        f"{_name} of int32": Case(_op, _np, (INTS, INTS[:, ::-1, :1].copy())),
        f"{_name} of int64": Case(_op, _np, (_LARGE, _LARGE - 1)),
        f"{_name} with a scalar": Case(
            lambda x, _op=_op: _op(const(1.0), x), lambda x, _np=_np: _np(1.0, x), (EQUALS,)
        ),
        f"{_name}, dynamic": Case(_op, _np, (EQUALS, EQUALS[:1].copy()), [("n", "m"), (1, "m")]),
    }
for _name in ("equal", "not_equal"):
    COMPARED[f"{_name} of bool"] = Case(
        getattr(op, _name), getattr(np, _name), (truths(3, 4), truths(4, seed=1))
    )
TRUTH = truths(2, 1, 4), truths(3, 1, seed=1)
for _name in ("and", "or", "xor"):
    _np = getattr(np, f"logical_{_name}")
    COMPARED[f"logical_{_name}"] = Case(getattr(op, f"logical_{_name}"), _np, TRUTH)
    COMPARED[f"bitwise_{_name}"] = Case(getattr(op, f"bitwise_{_name}"), _np, TRUTH)
COMPARED |= {
    "where, broadcast": Case(op.where, np.where, (truths(3, 1), X, X[1] * 2)),
    "where of int64": Case(op.where, np.where, (truths(2, 3, 4), LONGS, LONGS[:, :1].copy())),
    "where of bool": Case(op.where, np.where, (truths(4, seed=2), truths(2, 4), truths(4, seed=1))),
    "where with a constant": Case(
        lambda c, x: op.where(c, const(-1e9), x),
        lambda c, x: np.where(c, np.float32(-1e9), x),
        (truths(2, 1, 4), X),
    ),
    "where by a constant": Case(
        lambda x, y: op.where(const([True, False, True, True], "bool"), x, y),
        lambda x, y: np.where([True, False, True, True], x, y),
        (X, -X),
    ),
    "where by a scalar": Case(
        lambda x, y: op.where(op.less(y, const(0.0)), x, y),
        lambda x, y: np.where(y < 0, x, y),
        (X, np.array(-1.5, "float32")),
    ),
    "where, dynamic": Case(
        op.where, np.where, (truths(2, 1), X[0, :2], X[1, :2]), [("n", 1), ("n", 4), ("n", 4)]
    ),
}

_PARTS = np.array([-2.7, -0.5, 0, -0.0, 0.5, 2.7], "float32")
CAST: dict[str, Case] = {
    f"{x.dtype} to {dtype}": Case(
        lambda x, dtype=dtype: op.astype(x, dtype),
        lambda x, dtype=dtype: x.astype(getattr(ml_dtypes, dtype, dtype)),
        (x,),
    )
    for x, dtypes in (
        (_PARTS, ("int32", "int64", "bool", "float16", "bfloat16")),
        (_PARTS.astype("float16"), ("float32", "int32")),
        (_PARTS.astype(ml_dtypes.bfloat16), ("float32", "int64")),
        (INTS, ("float32", "int64", "bool", "float16")),
        (_LARGE, ("int32", "float32", "bool")),
        (truths(7), ("float32", "int32", "int64", "float16")),
        (np.arange(256, dtype="uint8"), ("float32", "int32", "float16", "bool")),
    )
    for dtype in dtypes
}

REDUCED: dict[str, Case] = {}
_NUMPY = {"variance": np.var}
for _name in ("sum", "prod", "max", "min", "mean", "variance", "std"):
    _op, _np = getattr(op, _name), _NUMPY.get(_name) or getattr(np, _name)
    for _axes, _keep in (
        (None, False),
        (None, True),
        ([-1], False),
        ([1], True),
        ([2, 0], False),
        ([0, -2], True),
    ):
        REDUCED[f"{_name} over {_axes}{', kept' if _keep else ''}"] = Case(
            lambda x, _op=_op, _a=_axes, _k=_keep: _op(x, _a, _k),
            lambda x, _np=_np, _a=_axes, _k=_keep: _np(
                x, axis=None if _a is None else tuple(_a), keepdims=_k
            ),
            (X + 0.5,),
        )
    REDUCED |= {
        f"{_name} of a vector": Case(lambda x, _op=_op: _op(x, [0]), _np, (X[0, 0] + 1,)),
        f"{_name}, dynamic": Case(
            lambda x, _op=_op: _op(x, [1]),
            lambda x, _np=_np: _np(x, axis=1),
            (X,),
            [("n", "m", 4)],
        ),
    }
    if _name in "sum prod max min":
        for _data in (INTS, LONGS):
            REDUCED[f"{_name} of {_data.dtype}"] = Case(
                lambda x, _op=_op: _op(x, [0, 2], True),
                lambda x, _np=_np: _np(x, axis=(0, 2), keepdims=True).astype(x.dtype),
                (_data % 5 + 1,),
            )
REDUCED["variance of large numbers"] = Case(
    lambda x: op.variance(x, [-1]),
    lambda x: x.astype("float64").var(-1).astype("float32"),
    (X + 300,),
)

SHAPES: dict[str, Case] = {
    "reshape": Case(lambda x: op.reshape(x, (4, -1)), lambda x: x.reshape(4, 6), (X,)),
    "reshape to a scalar": Case(
        lambda x: op.reshape(x, ()), lambda x: x.reshape(()), (X[:1, 0, 0],)
    ),
    "reshape of a scalar": Case(
        lambda x: op.reshape(x, (1, 1)), lambda x: x.reshape(1, 1), (X[0, 0, 0].reshape(()),)
    ),
    "reshape, dynamic batch": Case(
        lambda x: op.reshape(x, (x.ty.shape[0], 12)),
        lambda x: x.reshape(2, 12),
        (X,),
        [("n", 3, 4)],
    ),
    "reshape that moves the batch": Case(
        lambda x: op.reshape(x, (12, x.ty.shape[0])),
        lambda x: x.reshape(12, 2),
        (X,),
        [("n", 3, 4)],
    ),
    "reshape by expressions": Case(
        lambda x: op.reshape(x, (x.ty.shape[0] * 3, 4)),
        lambda x: x.reshape(6, 4),
        (X,),
        [("n", 3, 4)],
    ),
    "reshape that moves both symbols": Case(
        lambda x: op.reshape(x, (x.ty.shape[2], x.ty.shape[0] * 3)),
        lambda x: x.reshape(4, 6),
        (X,),
        [("n", 3, "m")],
    ),
    "reshape beside two symbols": Case(
        lambda x: op.reshape(x, (x.ty.shape[0], x.ty.shape[1], 2, 2)),
        lambda x: x.reshape(2, 3, 2, 2),
        (X,),
        [("n", "m", 4)],
    ),
    "reshape of bool": Case(
        lambda x: op.reshape(x, (3, 4)), lambda x: x.reshape(3, 4), (truths(2, 6),)
    ),
    "flatten": Case(op.flatten, np.ravel, (INTS,)),
    "flatten, dynamic": Case(op.flatten, np.ravel, (X,), [("n", 3, "m")]),
    "batch_flatten": Case(op.nn.batch_flatten, lambda x: x.reshape(2, 12), (X,)),
    "batch_flatten, dynamic": Case(
        op.nn.batch_flatten, lambda x: x.reshape(2, 12), (X,), [("n", 3, 4)]
    ),
    "expand_dims": Case(
        lambda x: op.expand_dims(x, [-1, 1]), lambda x: np.expand_dims(x, (-1, 1)), (X,)
    ),
    "expand_dims of a scalar": Case(
        lambda x: op.expand_dims(x, 0), lambda x: x.reshape(1), (X[0, 0, 0].reshape(()),)
    ),
    "expand_dims, dynamic": Case(
        lambda x: op.expand_dims(x, [0, 2]),
        lambda x: x.reshape(1, 6, 1, 4),
        (X.reshape(6, 4),),
        [("n", 4)],
    ),
    "expand_dims before two symbols": Case(
        lambda x: op.expand_dims(x, [0, 2]),
        lambda x: x.reshape(1, 2, 1, 3, 4),
        (X,),
        [("n", "m", 4)],
    ),
    "squeeze": Case(
        lambda x: op.squeeze(x, [-2, 0]), lambda x: x.reshape(4, 2), (X[0, :2].reshape(1, 4, 1, 2),)
    ),
    "squeeze some": Case(
        lambda x: op.squeeze(x, [2]), lambda x: x.reshape(1, 4, 2), (X[0, :2].reshape(1, 4, 1, 2),)
    ),
    "squeeze all": Case(op.squeeze, np.squeeze, (X[0, :2].reshape(1, 4, 1, 2),)),
    "squeeze, dynamic": Case(
        lambda x: op.squeeze(x, [1]), lambda x: x[:, 0], (X.reshape(6, 1, 4),), [("n", 1, "m")]
    ),
    "permute_dims": Case(
        lambda x: op.permute_dims(x, [1, 2, 0]), lambda x: x.transpose(1, 2, 0), (X,)
    ),
    "permute_dims from behind": Case(
        lambda x: op.permute_dims(x, [-1, 0, -2]), lambda x: x.transpose(2, 0, 1), (INTS,)
    ),
    "permute_dims, reversed": Case(op.permute_dims, np.transpose, (X,)),
    "permute_dims, dynamic": Case(
        lambda x: op.permute_dims(x, [1, 2, 0]),
        lambda x: x.transpose(1, 2, 0),
        (X,),
        [("n", 3, "m")],
    ),
    "layout_transform": Case(
        lambda x: op.layout_transform(x, lambda n, h, w, c: (n, c, h, w)),
        lambda x: x.transpose(0, 3, 1, 2),
        (numbers(2, 3, 4, 5),),
    ),
    "layout_transform, dynamic": Case(
        lambda x: op.layout_transform(x, lambda a, b, c: (c, a, b)),
        lambda x: x.transpose(2, 0, 1),
        (X,),
        [("n", 3, 4)],
    ),
    "pixel_shuffle": Case(
        lambda x: op.nn.pixel_shuffle(x, 3),
        by_torch(lambda x: functional.pixel_shuffle(x, 3)),
        (numbers(2, 18, 2, 5),),
    ),
    "pixel_shuffle of an image": Case(
        lambda x: op.nn.pixel_shuffle(x, 2),
        by_torch(lambda x: functional.pixel_shuffle(x, 2)),
        (numbers(12, 2, 5),),
    ),
    "pixel_shuffle, dynamic": Case(
        lambda x: op.nn.pixel_shuffle(x, 2),
        by_torch(lambda x: functional.pixel_shuffle(x, 2)),
        (numbers(2, 12, 2, 5),),
        [("n", 12, 2, 5)],
    ),
    "pixel_shuffle of symbols": Case(
        lambda x: op.nn.pixel_shuffle(x, 2),
        by_torch(lambda x: functional.pixel_shuffle(x, 2)),
        (numbers(2, 12, 2, 5),),
        [("n", 12, "m", "k")],
    ),
    "broadcast_to beside symbols": Case(
        lambda x: op.broadcast_to(x, (3, x.ty.shape[0], 5, x.ty.shape[2])),
        lambda x: np.broadcast_to(x, (3, 2, 5, 4)),
        (X[:, :1],),
        [("n", 1, "m")],
    ),
    "broadcast_to a symbol": Case(
        lambda x: op.broadcast_to(x, (x.ty.shape[0], x.ty.shape[2], x.ty.shape[2])),
        lambda x: np.broadcast_to(x, (2, 4, 4)),
        (X[:, :1],),
        [("n", 1, "m")],
    ),
    "broadcast_to": Case(
        lambda x: op.broadcast_to(x, (5, 2, 3, 4)),
        lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
        (X[:, :1],),
    ),
    "broadcast_to of int64": Case(
        lambda x: op.broadcast_to(x, (3, 4)),
        lambda x: np.broadcast_to(x, (3, 4)),
        (LONGS[0, :, :1],),
    ),
    "broadcast_to of a scalar": Case(
        lambda x: op.broadcast_to(x, (2, 3)),
        lambda x: np.broadcast_to(x, (2, 3)),
        (X[0, 0, 0].reshape(()),),
    ),
}


def sliced(
    axes: list[int], begin: list[int], end: list[int], strides: list[int] | None = None
) -> Body:
    return lambda x: op.strided_slice(x, axes, begin, end, strides)


def padded(mode: str, *widths: int, value: float = 0) -> Body:
    return lambda x: op.nn.pad(x, widths, mode, value)


S = numbers(5, 6, 7)
SLICES: dict[str, Case] = {
    "strided_slice": Case(sliced([1], [1], [5]), lambda x: x[:, 1:5], (S,)),
    "strided_slice with strides": Case(
        sliced([2, 0], [1, 0], [7, 5], [2, 3]), lambda x: x[::3, :, 1::2], (S,)
    ),
    "strided_slice from behind": Case(
        sliced([-1, 1], [-5, -4], [-1, -1]), lambda x: x[:, -4:-1, -5:-1], (S,)
    ),
    "strided_slice backwards": Case(
        sliced([2, 1], [5, -1], [1, 0], [-2, -1]), lambda x: x[:, -1:0:-1, 5:1:-2], (S,)
    ),
    "strided_slice backwards to the first": Case(
        sliced([1], [-2], [-100], [-2]), lambda x: x[:, -2::-2], (S,)
    ),
    "strided_slice beyond the bounds": Case(
        sliced([0, 1], [-100, 2], [100, 2**31 - 1]), lambda x: x[:, 2:], (S,)
    ),
    "strided_slice of bool": Case(sliced([0], [1], [6], [2]), lambda x: x[1:6:2], (truths(7),)),
    "strided_slice, dynamic": Case(
        sliced([1], [1], [5], [2]), lambda x: x[:, 1:5:2], (S,), [("n", 6, "m")]
    ),
    **{
        f"strided_slice {at} of a symbol": Case(
            sliced([1], [at.start or 0], [at.stop or 2**31 - 1], [at.step or 1]),
            lambda x, at=at: x[:, at],
            (S,),
            [("n", "m", 7)],
        )
        for at in (
            slice(1, None),
            slice(None, -1),
            slice(-3, None),
            slice(-100, -2, 3),
            slice(None, 4),
            slice(2, 100, 3),
            slice(None, None, 4),
        )
    },
    "split": Case(lambda x: op.split(x, 3, 1), lambda x: np.split(x, 3, 1), (S,)),
    "split, unevenly": Case(lambda x: op.split(x, 4, -1), by_torch(lambda x: x.split(2, -1)), (S,)),
    "split at": Case(lambda x: op.split(x, [1, 4], -2), lambda x: np.split(x, [1, 4], 1), (S,)),
    "split of int32, dynamic": Case(
        lambda x: op.split(x, [1], 1), lambda x: np.split(x, [1], 1), (INTS,), [("n", 3, 4)]
    ),
    "flip": Case(lambda x: op.flip(x, 1), lambda x: x[:, ::-1], (X,)),
    "flip the last": Case(lambda x: op.flip(x, -1), lambda x: x[..., ::-1], (LONGS,)),
    "flip, dynamic": Case(lambda x: op.flip(x, 2), lambda x: x[..., ::-1], (X,), [("n", "m", 4)]),
    "flip of a symbol": Case(lambda x: op.flip(x, 1), lambda x: x[:, ::-1], (X,), [("n", "m", 4)]),
    "tile": Case(lambda x: op.tile(x, (1, 2, 3)), lambda x: np.tile(x, (1, 2, 3)), (X,)),
    "tile less": Case(lambda x: op.tile(x, (3,)), lambda x: np.tile(x, (3,)), (INTS,)),
    "tile more": Case(lambda x: op.tile(x, (2, 1, 1, 2)), lambda x: np.tile(x, (2, 1, 1, 2)), (X,)),
    "tile, dynamic": Case(
        lambda x: op.tile(x, (1, 2, 1)), lambda x: np.tile(x, (1, 2, 1)), (X,), [("n", 3, "m")]
    ),
    "tile of symbols": Case(
        lambda x: op.tile(x, (2, 1, 2)), lambda x: np.tile(x, (2, 1, 2)), (X,), [("n", 3, "m")]
    ),
    "repeat": Case(lambda x: op.repeat(x, 3, 1), lambda x: x.repeat(3, 1), (X,)),
    "repeat the last": Case(
        lambda x: op.repeat(x, 2, -1), lambda x: x.repeat(2, -1), (truths(2, 3),)
    ),
    "repeat a vector": Case(lambda x: op.repeat(x, 2), lambda x: x.repeat(2), (X[0, 0],)),
    "repeat all": Case(lambda x: op.repeat(x, 2), lambda x: x.repeat(2), (X,)),
    "repeat, dynamic": Case(
        lambda x: op.repeat(x, 2, 1), lambda x: x.repeat(2, 1), (X,), [("n", 3, "m")]
    ),
    "pad": Case(
        padded("constant", 0, 0, 1, 2, 0, 3, value=1.5),
        lambda x: np.pad(x, [(0, 0), (1, 2), (0, 3)], constant_values=1.5),
        (X,),
    ),
    "pad of int64": Case(
        padded("constant", 0, 1, 1, 0, 0, 3, value=-7),
        lambda x: np.pad(x, [(0, 1), (1, 0), (0, 3)], constant_values=-7),
        (LONGS,),
    ),
    "pad of bool": Case(
        padded("constant", 2, 1, value=1),
        lambda x: np.pad(x, [(2, 1)], constant_values=True),
        (truths(5),),
    ),
    "pad with infinity": Case(
        padded("constant", 0, 0, 0, 0, 2, 1, value=-math.inf),
        lambda x: np.pad(x, [(0, 0), (0, 0), (2, 1)], constant_values=-np.inf),
        (X,),
    ),
    "pad that cuts": Case(
        padded("constant", 0, 0, -1, 2, 1, -2, value=1.5),
        by_torch(lambda x: functional.pad(x, (1, -2, -1, 2), value=1.5)),
        (X,),
    ),
    "pad of symbols": Case(
        padded("constant", 1, 0, 1, 2, 0, 3, value=1.5),
        lambda x: np.pad(x, [(1, 0), (1, 2), (0, 3)], constant_values=1.5),
        (X,),
        [("n", 3, "m")],
    ),
    "pad, replicate, of symbols": Case(
        padded("replicate", 0, 0, 1, 2, 0, 3),
        lambda x: np.pad(x, [(0, 0), (1, 2), (0, 3)], "edge"),
        (X,),
        [("n", 3, "m")],
    ),
    "pad, dynamic": Case(
        padded("constant", 0, 0, 1, 2, 0, 0, value=1.5),
        lambda x: np.pad(x, [(0, 0), (1, 2), (0, 0)], constant_values=1.5),
        (X,),
        [("n", 3, "m")],
    ),
} | {
    f"pad, {mode}{', dynamic' if dims else ''}": Case(
        padded(mode, 0, 0, 1, 2, 3, 0),
        lambda x, known=known: np.pad(x, [(0, 0), (1, 2), (3, 0)], known),
        (X,),
        dims,
    )
    for mode, known in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"))
    for dims in (None, [("n", 3, 4)])
}

GATHERS: dict[str, Case] = {
    "take": Case(
        lambda x, i: op.take(x, i, 1), lambda x, i: x.take(i, 1), (S, np.array([[5, 0], [2, 2]]))
    ),
    "take from the last": Case(
        lambda x, i: op.take(x, i, -1), lambda x, i: x.take(i, -1), (S, np.array([6, 0], "int32"))
    ),
    "take one": Case(lambda x: op.take(x, const(3, "int64"), 1), lambda x: x[:, 3], (S,)),
    "take from a vector": Case(op.take, lambda x, i: x.take(i), (S[0, 0], np.array([3, 1]))),
    "take from a table": Case(
        lambda i: op.take(const(S[0]), i, 0),
        lambda i: S[0][i],
        (np.array([[1, 5, 0], [2, 2, 3]]),),
        [("n", "m")],
    ),
    "take of bool": Case(
        lambda x, i: op.take(x, i, 0), lambda x, i: x[i], (truths(5, 2), np.array([4, 1]))
    ),
    "gather_elements": Case(
        lambda x, i: op.gather_elements(x, i, 1),
        by_torch(lambda x, i: x.gather(1, i)),
        (S, np.random.default_rng(0).integers(0, 6, (5, 3, 7))),
    ),
    "gather_elements of the last": Case(
        lambda x, i: op.gather_elements(x, i, -1),
        by_torch(lambda x, i: x.gather(-1, i.long())),
        (INTS, np.random.default_rng(0).integers(0, 4, (2, 3, 6)).astype("int32")),
    ),
    "gather_elements, dynamic": Case(
        lambda x, i: op.gather_elements(x, i, 1),
        by_torch(lambda x, i: x.gather(1, i)),
        (S[0], np.random.default_rng(0).integers(0, 7, (6, 2))),
        [("n", 7), ("n", 2)],
    ),
    "gather_nd": Case(
        op.gather_nd,
        lambda x, i: x[i[..., 0], i[..., 1]],
        (S, np.array([[[4, 0], [1, 5]], [[0, 0], [3, 2]], [[2, 2], [1, 1]]])),
    ),
    "gather_nd of elements": Case(
        op.gather_nd,
        lambda x, i: x[i[:, 0], i[:, 1], i[:, 2]],
        (INTS, np.array([[1, 2, 3], [0, 1, 2]], "int64")),
    ),
    "gather_nd of a batch": Case(
        lambda x, i: op.gather_nd(x, i, 1),
        lambda x, i: np.stack([d[p[:, 0]] for d, p in zip(x, i, strict=True)]),
        (X, np.array([[[2], [0]], [[1], [1]]])),
    ),
}

JOINED: dict[str, Case] = {
    "concat": Case(
        lambda x, y: op.concat([x, y], 1),
        lambda x, y: np.concatenate([x, y], 1),
        (X, numbers(2, 2, 4)),
    ),
    "concat the last": Case(
        lambda x, y, z: op.concat([x, y, z], -1),
        lambda x, y, z: np.concatenate([x, y, z], -1),
        (INTS, INTS + 1, INTS[..., :1].copy()),
    ),
    "concat vectors": Case(
        lambda x, y: op.concat([x, y], None),
        lambda x, y: np.concatenate([x, y]),
        (X[0, 0], X[1, 1, :2]),
    ),
    "concat with a constant": Case(
        lambda x: op.concat([const(X[:1] * 3), x], 0),
        lambda x: np.concatenate([X[:1] * 3, x]),
        (X,),
    ),
    "concat, dynamic": Case(
        lambda x, y: op.concat([x, y], 1),
        lambda x, y: np.concatenate([x, y], 1),
        (X, numbers(2, 2, 4)),
        [("n", 3, 4), ("n", 2, 4)],
    ),
    "concat along the batch": Case(
        lambda x, y: op.concat([x, y], 0),
        lambda x, y: np.concatenate([x, y]),
        (X, numbers(3, 3, 4)),
        [("n", 3, 4), ("m", 3, 4)],
    ),
    "stack": Case(lambda x, y: op.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), (X, -X)),
    "stack behind": Case(
        lambda x, y: op.stack([x, y], -1), lambda x, y: np.stack([x, y], -1), (LONGS, LONGS + 1)
    ),
    "stack scalars": Case(
        lambda x, y: op.stack([x, y], 0),
        lambda x, y: np.stack([x, y]),
        (X[0, 0, 0].reshape(()), X[0, 0, 1].reshape(())),
    ),
    "stack with a constant": Case(
        lambda x: op.stack([const(X[0]), x], 2), lambda x: np.stack([X[0], x], 2), (X[1],)
    ),
    "stack, dynamic": Case(
        lambda x, y: op.stack([x, y], 1),
        lambda x, y: np.stack([x, y], 1),
        (X, -X),
        [("n", 3, 4), ("n", 3, 4)],
    ),
    "cumsum": Case(lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), (X,)),
    "cumsum of the last": Case(
        lambda x: op.cumsum(x, -1), lambda x: x.cumsum(-1, dtype=x.dtype), (INTS,)
    ),
    "cumsum, exclusive": Case(
        lambda x: op.cumsum(x, 1, exclusive=True), lambda x: x.cumsum(1) - x, (LONGS,)
    ),
    "cumsum of a vector": Case(op.cumsum, np.cumsum, (X[0, 0],)),
    "cumsum of all": Case(op.cumsum, np.cumsum, (X,), [("n", 3, "m")]),
    "cumsum of bool": Case(
        lambda x: op.cumsum(x, 1, "int64"), lambda x: x.cumsum(1), (truths(3, 5),)
    ),
    "cumsum of int32 as int64": Case(
        lambda x: op.cumsum(x, 0, "int64"), lambda x: x.cumsum(0, dtype="int64"), (INTS,)
    ),
    "cumsum of float16 as float32": Case(
        lambda x: op.cumsum(x, 0, "float32"),
        lambda x: x.astype("float32").cumsum(0),
        (X.astype("float16"),),
    ),
    "cumsum, dynamic": Case(lambda x: op.cumsum(x, 0), lambda x: x.cumsum(0), (X,), [("n", 3, 4)]),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "unary": UNARY,
        "clip": CLIP,
        "binary": BINARY,
        "compared": COMPARED,
        "cast": CAST,
        "reduced": REDUCED,
        "shapes": SHAPES,
        "slices": SLICES,
        "gathers": GATHERS,
        "joined": JOINED,
    }.items()
    for name, case in cases.items()
}


# Smallest, best and largest size of each symbol.
SIZES = dict.fromkeys("nmk", (1, 3, 6))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_network_computes_what_relax_means(make_module: Callable[..., Any], case: Case) -> None:
    engines.build(check(make_module, case), SIZES)
