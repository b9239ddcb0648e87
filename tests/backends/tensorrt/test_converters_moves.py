"""Converters at their edges: scalars, bounds, integers that floats do not hold, symbolic sizes.

`test_converters` has what every operator does; here is what a converter could get wrong beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch.nn import functional
from tvm import relax

from .case import Case, Input, b, const, f, i, t, weights

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

op, nn = relax.op, relax.op.nn
Group = dict[str, Case]

_ONCE = ("fp32",)
_LONG = 2**53  # from which on floating point of 64 bits leaves integers out


def _sizes(x: Any) -> list[Any]:
    return list(x.ty.shape.values)


def _long(number: int) -> Any:
    return tvm.tirx.IntImm("int64", number)


def _same(name: str, *operands: Input, of: Callable[..., Any] | None = None) -> Case:
    return Case(getattr(op, name), of or getattr(torch, name), operands)


ARITHMETIC: Group = {
    f"{name} of scalars": _same(name, f(low=0.5), f(low=0.5), of=of)
    for name, of in {
        "add": torch.add,
        "divide": torch.divide,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "multiply": torch.multiply,
        "power": torch.pow,
        "subtract": torch.subtract,
    }.items()
}
ARITHMETIC |= {
    "two symbols raised": _same("subtract", f("m", "h"), f("n", "m", "h")),
    "a vector of symbols raised": _same("multiply", f("n", "m", "h"), f("h")),
    "a sum beyond the integers of floats": Case(
        lambda x: op.add(x, const(np.int64(_LONG))),
        lambda x: x + _LONG,
        (i("n", 9, dtype="int64"),),
        _ONCE,
    ),
    "a product beyond the integers of floats": Case(
        lambda x: op.multiply(x, const(np.int64(_LONG // 8 + 1))),
        lambda x: x * (_LONG // 8 + 1),
        (i(2, 9, dtype="int64"),),
        _ONCE,
    ),
    "large integers squared": Case(
        op.square, torch.square, (i(5, low=-(2**15), high=-(2**15) + 1),), _ONCE
    ),
    "a negative base": Case(
        lambda x: op.power(x, const(np.float32(3))), lambda x: x**3, (f(3, 5),)
    ),
}

CLIPPED: Group = {
    "from above": Case(
        lambda x: op.clip(x, -math.inf, 0.25), lambda x: x.clamp(max=0.25), (f("n", 5),)
    ),
    "a scalar": Case(lambda x: op.clip(x, 0, 1), lambda x: x.clamp(0, 1), (f(low=1.5),)),
    "within bounds beyond int32": Case(
        lambda x: op.clip(x, _long(-(2**40)), _long(2**40)), lambda x: x, (i(3, 5),), _ONCE
    ),
    "below a bound beyond int32": Case(
        lambda x: op.clip(x, 2, _long(2**40)), lambda x: x.clamp(min=2), (i(3, 5),), _ONCE
    ),
    "by long integers": Case(
        lambda x: op.clip(op.add(x, const(np.int64(_LONG))), _long(_LONG - 3), _long(_LONG + 5)),
        lambda x: (x + _LONG).clamp(_LONG - 3, _LONG + 5),
        (i(30, dtype="int64"),),
        _ONCE,
    ),
}

_EDGES = Input((2, 4), values=(1.0, math.inf, -math.inf, 0.0, -0.0, 2.0, math.nan, -1.0))
COMPARED: Group = {
    f"{name} at {where}": case
    for name, of in {
        "equal": torch.eq,
        "greater": torch.gt,
        "greater_equal": torch.ge,
        "less": torch.lt,
        "less_equal": torch.le,
        "not_equal": torch.ne,
    }.items()
    for where, case in {
        "edges": Case(
            lambda x, name=name: getattr(op, name)(
                const(np.array([1, -np.inf, np.nan, 0], "f4")), x
            ),
            lambda x, of=of: of(torch.tensor([1, -math.inf, math.nan, 0]), x),
            (_EDGES,),
        ),
        "long integers": Case(
            lambda x, name=name: getattr(op, name)(
                op.add(x, const(np.int64(_LONG))), const(np.int64(_LONG + 1))
            ),
            lambda x, of=of: of(x, torch.tensor(1)),
            (i(9, low=0, high=3, dtype="int64"),),
            _ONCE,
        ),
        "scalars and symbols": _same(name, f(), f("n", "m"), of=of),
    }.items()
}
COMPARED |= {
    "where of truth": _same("where", b(4), b("n", 4), b(1)),
    "where of long integers": Case(
        lambda c, x: op.where(c, op.add(x, const(np.int64(_LONG))), x),
        lambda c, x: torch.where(c, x + _LONG, x),
        (b(3, 1), i(3, 5, dtype="int64")),
        _ONCE,
    ),
    "where by a constant": Case(
        lambda x, y: op.where(const(np.array([True, False, False])), x, y),
        lambda x, y: torch.where(torch.tensor([True, False, False]), x, y),
        (f("n", 3), f("m", 1, 3)),
    ),
    "where of scalars": _same("where", b(), f(), f()),
}

CASTS: Group = {
    "from bfloat16 to integers": Case(
        lambda x: op.astype(x, "int64"), torch.trunc, (f(4, 9, low=-5, high=5, dtype="bfloat16"),)
    ),
    "from half to truth": Case(
        lambda x: op.astype(x, "bool"),
        lambda x: x != 0,
        (Input((6,), "float16", values=(0.0, -0.0, 6e-8, 1.0, -3.0, 0.5)),),
    ),
    "bytes to integers": Case(
        lambda x: op.astype(x, "int32"),
        lambda x: x.int(),
        (i("n", 50, low=0, high=256, dtype="uint8"),),
        _ONCE,
    ),
    "there and back": Case(
        lambda x: op.astype(op.astype(x, "int32"), "float32"),
        torch.trunc,
        (f("n", 9, low=-5, high=5),),
    ),
}

REDUCED: Group = {
    f"{name} of {what}": Case(
        lambda x, name=name, axes=axes: getattr(op, name)(x, axes),
        lambda x, of=of, axes=axes: of(x, axes),
        (given,),
    )
    for name, of in {
        "sum": torch.sum,
        "max": torch.amax,
        "min": torch.amin,
        "mean": torch.mean,
        "variance": lambda x, axes: torch.var(x, axes, correction=0),
        "std": lambda x, axes: torch.std(x, axes, correction=0),
    }.items()
    for what, (axes, given) in {
        "a vector": ([0], f(7)),
        "axes out of order": ([3, -4], f("n", 2, 3, "m")),
        "two symbols": ([0, 1], f("n", "m", 3)),
    }.items()
}
REDUCED |= {
    f"{name} of {dtype}": Case(
        lambda x, name=name: getattr(op, name)(x, [1, 0], keepdims=True),
        lambda x, of=of: of(x),
        (i(3, 5, 2, dtype=dtype),),
        _ONCE,
    )
    for name, of in {
        "sum": lambda x: x.sum((0, 1), keepdim=True, dtype=x.dtype),
        "prod": lambda x: x.prod(0, True, dtype=x.dtype).prod(1, True, dtype=x.dtype),
        "max": lambda x: x.amax((0, 1), keepdim=True),
        "min": lambda x: x.amin((0, 1), keepdim=True),
    }.items()
    for dtype in ("int32", "int64")
}
REDUCED["variance far from zero"] = Case(
    lambda x: op.variance(x, [-1]),
    lambda x: torch.var(x, -1, correction=0),
    (f(4, 50, low=100, high=101),),
)

RUNNING: Group = {
    "of everything": Case(op.cumsum, lambda x: x.flatten().cumsum(0), (f("n", 3, "m"),)),
    "of truth": Case(
        lambda x: op.cumsum(x, 1, "int64"), lambda x: x.cumsum(1), (b(3, "m"),), _ONCE
    ),
    "of integers, longer": Case(
        lambda x: op.cumsum(x, -2, "int64"), lambda x: x.cumsum(0), (i("n", 5),), _ONCE
    ),
    "of halves, wider": Case(
        lambda x: op.cumsum(x, 0, "float32"), lambda x: x.cumsum(0), (f("n", 5, dtype="float16"),)
    ),
    "of integers, exclusive": Case(
        lambda x: op.cumsum(x, 1, exclusive=True),
        lambda x: x.cumsum(1) - x,
        (i("n", 5, dtype="int64"),),
        _ONCE,
    ),
}

SHAPES: Group = {
    "to a scalar": Case(lambda x: op.reshape(x, ()), lambda x: x.reshape(()), (f(1, 1),)),
    "of a scalar": Case(lambda x: op.reshape(x, (1, 1)), lambda x: x.reshape(1, 1), (i(),), _ONCE),
    "a scalar to a vector": Case(lambda x: op.expand_dims(x, 0), lambda x: x[None], (f(),)),
    "a vector to a scalar": Case(op.squeeze, torch.squeeze, (f(1, 1),)),
    "both symbols moved": Case(
        lambda x: op.reshape(x, (_sizes(x)[2], _sizes(x)[0] * 3)),
        lambda x: x.reshape(x.shape[2], -1),
        (f("n", 3, "m"),),
    ),
    "three symbols, two joined": Case(
        lambda x: op.reshape(x, (2, _sizes(x)[0] * _sizes(x)[1], _sizes(x)[2])),
        lambda x: x.reshape(2, -1, x.shape[2]),
        (f("n", "m", "h", 2),),
    ),
    "an axis before two symbols": Case(
        lambda x: op.expand_dims(x, [0, 2]),
        lambda x: x[None, :, None],
        (f("n", "m", 4),),
    ),
    "an axis between symbols, away": Case(
        lambda x: op.squeeze(x, [1]), lambda x: x[:, 0], (f("n", 1, "m"),)
    ),
    "pixels of symbols": Case(
        lambda x: nn.pixel_shuffle(x, 2),
        lambda x: functional.pixel_shuffle(x, 2),
        (f("n", 12, "h", "w"),),
    ),
    "pixels of an image": Case(
        lambda x: nn.pixel_shuffle(x, 3), lambda x: functional.pixel_shuffle(x, 3), (f(18, 2, 5),)
    ),
    "stretched beside symbols": Case(
        lambda x: op.broadcast_to(x, (3, _sizes(x)[0], 5, _sizes(x)[2])),
        lambda x: x.expand(3, x.shape[0], 5, x.shape[2]),
        (f("n", 1, "m"),),
    ),
    "stretched to a symbol": Case(
        lambda x: op.broadcast_to(x, (_sizes(x)[0], _sizes(x)[2], _sizes(x)[2])),
        lambda x: x.expand(x.shape[0], x.shape[2], x.shape[2]),
        (f("n", 1, "m"),),
    ),
    "a scalar, stretched": Case(
        lambda x: op.broadcast_to(x, (2, 3)), lambda x: x.expand(2, 3), (i(dtype="int64"),), _ONCE
    ),
}


def _slice(begin: int | None, end: int | None, step: int | None = None) -> Case:
    at = slice(begin, end, step)
    bounds = [begin or 0], [2**31 - 1 if end is None else end], [step or 1]
    return Case(lambda x: op.strided_slice(x, [1], *bounds), lambda x: x[:, at], (f("n", "h", 3),))


SLICES: Group = {
    f"{begin}:{end}:{step} of a symbol": _slice(begin, end, step)
    for begin, end, step in (
        (1, None, None),
        (None, -1, None),
        (-3, None, None),
        (-100, -2, 3),
        (None, 4, None),
        (2, 100, 3),
        (None, None, 4),
    )
}
SLICES |= {
    "backwards beyond the first": Case(
        lambda x: op.strided_slice(x, [1], [-2], [-100], [-2]),
        lambda x: x.flip(1)[:, 1::2],
        (f("n", 7),),
    ),
    "of truth": Case(lambda x: op.strided_slice(x, [0], [1], [7], [2]), lambda x: x[1::2], (b(7),)),
    "parts between indices": Case(
        lambda x: op.split(x, [1, 4], -2),
        lambda x: torch.tensor_split(x, [1, 4], 1),
        (i("n", 6, 2),),
        _ONCE,
    ),
    "a symbol, backwards": Case(lambda x: op.flip(x, 1), lambda x: x.flip(1), (f("n", "m", 3),)),
    "truth, backwards": Case(lambda x: op.flip(x, 0), lambda x: x.flip(0), (b("n", 3),)),
    "symbols, again and again": Case(
        lambda x: op.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3), (f("n", 3, "m"),)
    ),
    "long integers, again": Case(
        lambda x: op.tile(op.add(x, const(np.int64(_LONG))), (1, 2)),
        lambda x: (x + _LONG).tile(1, 2),
        (i("n", 3, dtype="int64"),),
        _ONCE,
    ),
    "everything, each twice": Case(
        lambda x: op.repeat(x, 2), lambda x: x.repeat_interleave(2), (f(2, 3),)
    ),
    "truth, each twice": Case(
        lambda x: op.repeat(x, 2, -1), lambda x: x.repeat_interleave(2, 1), (b("n", 3),)
    ),
    "symbols, padded": Case(
        lambda x: nn.pad(x, (1, 0, 0, 0, 2, 3), "constant", 1.5),
        lambda x: functional.pad(x, (2, 3, 0, 0, 1, 0), value=1.5),
        (f("n", 3, "m"),),
    ),
    "symbols, replicated": Case(
        lambda x: nn.pad(x, (0, 0, 1, 2, 0, 3), "replicate"),
        lambda x: functional.pad(x, (0, 3, 1, 2), "replicate"),
        (f("n", "m", "h"),),
    ),
    "less of an axis": Case(
        lambda x: nn.pad(x, (0, 0, -1, 2, 1, -2), "constant", 1.5),
        lambda x: functional.pad(x, (1, -2, -1, 2), value=1.5),
        (f("n", 3, 4),),
    ),
    "padded by infinity": Case(
        lambda x: nn.pad(x, (0, 0, 2, 1), "constant", -math.inf),
        lambda x: functional.pad(x, (2, 1), value=-math.inf),
        (f("n", 4),),
    ),
    "padded by truth": Case(
        lambda x: nn.pad(x, (2, 1), "constant", 1),
        lambda x: functional.pad(x, (2, 1), value=True),
        (b(5),),
    ),
    "long integers, mirrored": Case(
        lambda x: nn.pad(op.add(x, const(np.int64(_LONG))), (0, 0, 0, 3), "reflect"),
        lambda x: (x + _LONG)[:, [0, 1, 2, 3, 2, 1, 0]],
        (i("n", 4, dtype="int64"),),
        _ONCE,
    ),
}

_TABLE = weights(6, 5)
_MODES: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "wrap": lambda at, size: at % size,
    "clip": lambda at, size: at.clamp(0, size - 1),
}
GATHERS: Group = {
    "of truth": Case(
        lambda x, at: op.take(x, at, 0),
        lambda x, at: x[at.long()],
        (b(5, 2), i("n", low=0, high=5)),
    ),
    "a table, by one": Case(
        lambda at: op.take(const(_TABLE), at, 0),
        lambda at: t(_TABLE)[at.long()],
        (i(low=0, high=6),),
    ),
    **{
        f"{mode} {dtype}{' of a symbol' if size == 'h' else ''}": Case(
            lambda x, at, mode=mode: op.take(x, at, 1, mode=mode),
            lambda x, at, of=of: x[:, of(at.long(), x.shape[1])],
            (f("n", size, 3), i("m", 5, low=-20, high=20, dtype=dtype)),
        )
        for mode, of in _MODES.items()
        for dtype in ("int32", "int64")
        for size in (4, "h")
    },
    **{
        f"{mode} {known.tolist()}{' of a symbol' if size == 'h' else ''}": Case(
            lambda x, mode=mode, known=known: op.take(x, const(known), 1, mode=mode),
            lambda x, of=of, known=known: x[:, of(t(known), x.shape[1])],
            (f("n", size, 3),),
        )
        for mode, of in _MODES.items()
        for known in (np.array(9 if mode == "clip" else -1), np.array([[3, -2], [17, -9]]))
        for size in (4, "h")
    },
    "a table, by one from behind": Case(
        lambda at: op.take(const(_TABLE), at, 0, mode="wrap"),
        lambda at: t(_TABLE)[at.long()],
        (i(low=-6, high=0),),
    ),
    "elements of integers": Case(
        lambda x, at: op.gather_elements(x, at, -1),
        lambda x, at: x.gather(1, at),
        (i(3, 4), i(3, "m", low=0, high=4, dtype="int64")),
        _ONCE,
    ),
    "positions of elements": Case(
        op.gather_nd,
        lambda x, at: x[at[..., 0], at[..., 1]],
        (i(3, 3), i("n", 2, 2, low=0, high=3, dtype="int64")),
        _ONCE,
    ),
}

JOINED: Group = {
    "scalars": Case(lambda x, y: op.stack([x, y], 0), lambda x, y: torch.stack([x, y]), (f(), f())),
    "before symbols": Case(
        lambda x, y: op.stack([x, y], 1),
        lambda x, y: torch.stack([x, y], 1),
        (f("n", "m", 2), f("n", "m", 2)),
    ),
    "truth": Case(
        lambda x, y: op.concat([x, y], -1),
        lambda x, y: torch.cat([x, y], -1),
        (b("n", 2), b("n", 3)),
    ),
    "symbols": Case(
        lambda x, y: op.concat([x, y], -2),
        lambda x, y: torch.cat([x, y], -2),
        (i("n", "m", 3), i("n", "h", 3)),
        _ONCE,
    ),
}

CASES = {
    f"{group}: {name}": case
    for group, cases in {
        "arithmetic": ARITHMETIC,
        "clip": CLIPPED,
        "comparison": COMPARED,
        "cast": CASTS,
        "reduction": REDUCED,
        "running sum": RUNNING,
        "shape": SHAPES,
        "slice": SLICES,
        "gather": GATHERS,
        "joined": JOINED,
    }.items()
    for name, case in cases.items()
}
RUNS = {f"{name}, {p}": (case, p) for name, case in CASES.items() for p in case.precisions}


@pytest.mark.parametrize(("case", "precision"), RUNS.values(), ids=RUNS)
def test_the_network_computes_what_pytorch_does(case: Case, precision: str) -> None:
    case.check(precision)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_engine_is_built(case: Case) -> None:
    case.engine("fp32")
