"""Cases of what moves data: shapes, orders, slices, joins, gathers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tvm import relax

from .case import Case, Cases, b, const, f, i, t, weights

op, nn = relax.op, relax.op.nn

_ONCE = ("fp32",)


def _sizes(x: Any) -> list[Any]:
    return list(x.ty.shape.values)


_SHAPES: Cases = {
    "reshape": {
        "two that move": Case(
            lambda x: op.reshape(x, (2, _sizes(x)[1], _sizes(x)[0], 3)),
            lambda x: x.reshape(2, x.shape[1], x.shape[0], 3),
            (f("n", "m", 6),),
        ),
        "fixed": Case(
            lambda x: op.reshape(x, (3, 4, 2)), lambda x: x.reshape(3, 4, 2), (f(2, 3, 4),)
        ),
        "dynamic batch": Case(
            lambda x: op.reshape(x, (_sizes(x)[0], 12)),
            lambda x: x.reshape(-1, 12),
            (f("n", 3, 4),),
        ),
        "to the end": Case(
            lambda x: op.reshape(x, (4, 3, _sizes(x)[0])),
            lambda x: x.reshape(4, 3, -1),
            (f("n", 3, 4),),
        ),
        "two that stay": Case(
            lambda x: op.reshape(x, (*_sizes(x)[:2], 3, 2)),
            lambda x: x.reshape(*x.shape[:2], 3, 2),
            (f("n", "m", 6),),
        ),
        "merged": Case(
            lambda x: op.reshape(x, (_sizes(x)[0] * 3, 4)),
            lambda x: x.reshape(-1, 4),
            (f("n", 3, 4),),
        ),
        "truth": Case(lambda x: op.reshape(x, (6, 4)), lambda x: x.reshape(6, 4), (b(2, 3, 4),)),
    },
    "flatten": {
        "two symbols": Case(op.flatten, torch.flatten, (f("n", "m", 4),)),
        "everything": Case(op.flatten, torch.flatten, (f("n", 3, 4),)),
    },
    "nn.batch_flatten": {
        "dynamic": Case(nn.batch_flatten, lambda x: x.flatten(1), (f("n", 3, 4, 2),)),
    },
    "expand_dims": {
        "two that move": Case(
            lambda x: op.expand_dims(x, [0, 2]), lambda x: x[None, :, None], (f("n", "m", 4),)
        ),
        "several": Case(
            lambda x: op.expand_dims(x, [0, -1, 2]),
            lambda x: x[None, :, None, :, None],
            (f("n", 4),),
        ),
        "integers": Case(lambda x: op.expand_dims(x, 1), lambda x: x[:, None], (i(3, 4),), _ONCE),
    },
    "squeeze": {
        "some": Case(
            lambda x: op.squeeze(x, [-1, 1]), lambda x: x[:, 0, :, :, 0], (f("n", 1, 4, 1, 1),)
        ),
        "all": Case(op.squeeze, torch.squeeze, (f(1, 3, 1, 4),)),
        "all by name": Case(
            lambda x: op.squeeze(x, [0, 1, 2, 3]), torch.squeeze, (f(1, 3, 1, 4),), _ONCE
        ),
    },
    "transpose": {
        "three in a circle": Case(
            lambda x: op.permute_dims(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1), (f("n", 3, 4),)
        ),
        "four in a circle": Case(
            lambda x: op.permute_dims(x, [-3, 2, 3, 0]),
            lambda x: x.permute(1, 2, 3, 0),
            (f("n", 3, 4, 5),),
        ),
        "a cube": Case(
            lambda x: op.permute_dims(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1), (f(3, 3, 3),)
        ),
        "backwards": Case(op.permute_dims, lambda x: x.permute(2, 1, 0), (f("n", 3, 4),)),
        "truth": Case(
            lambda x: op.permute_dims(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1), (b(2, 3, 4),)
        ),
    },
    "layout_transform": {
        "a circle": Case(
            lambda x: op.layout_transform(x, lambda n, c, h, w: (c, h, w, n)),
            lambda x: x.permute(1, 2, 3, 0),
            (f("n", 3, 4, 5),),
        ),
        "a cube": Case(
            lambda x: op.layout_transform(x, lambda n, c, w: (c, w, n)),
            lambda x: x.permute(1, 2, 0),
            (f(3, 3, 3),),
        ),
    },
    "nn.pixel_shuffle": {
        "symbols": Case(
            lambda x: nn.pixel_shuffle(x, 2),
            lambda x: functional.pixel_shuffle(x, 2),
            (f("n", 8, "h", "w"),),
        ),
        "three": Case(
            lambda x: nn.pixel_shuffle(x, 3),
            lambda x: functional.pixel_shuffle(x, 3),
            (f("n", 18, 4, 5),),
        ),
        "more dimensions": Case(
            lambda x: nn.pixel_shuffle(x, 2),
            lambda x: functional.pixel_shuffle(x, 2),
            (f("n", 2, 8, 3, 2),),
        ),
    },
}


def sliced(x: Any, axes: list[int], begin: list[int], end: list[int], strides: Any = None) -> Case:
    def reference(x: torch.Tensor) -> np.ndarray:
        at = [slice(None)] * x.dim()
        for axis, first, last, step in zip(
            axes, begin, end, strides or [1] * len(axes), strict=True
        ):
            at[axis] = slice(first, last, step)
        return x.numpy()[tuple(at)]  # PyTorch steps forwards only

    given = () if strides is None else (strides,)
    return Case(lambda x: op.strided_slice(x, axes, begin, end, *given), reference, (x,))


_SLICES: Cases = {
    "strided_slice": {
        "a symbol": sliced(f("h", "w", 3), [0, 1], [1, 2], [-1, 5], [2, 1]),
        "a symbol from the end": sliced(f("h", 3), [0], [-6], [100], [3]),
        "steps": sliced(f("n", 7, 9), [1, 2], [1, 0], [7, 9], [2, 3]),
        "without steps": sliced(f("n", 7, 9), [2, 1], [3, 1], [8, 4]),
        "from the end": sliced(f("n", 7, 9), [-1, 1], [-5, -6], [-1, 6], [1, 2]),
        "backwards": sliced(f("n", 7, 9), [1, 2], [5, 8], [0, 1], [-2, -3]),
        "beyond the ends": sliced(f(5, 7), [0, 1], [-99, 3], [99, 1000], [2, 1]),
        "integers": sliced(i(5, 7), [1], [2], [6], [3]),
    },
    "split": {
        "equal": Case(lambda x: op.split(x, 3, 1), lambda x: torch.chunk(x, 3, 1), (f("n", 6, 4),)),
        "uneven": Case(
            lambda x: op.split(x, [2, 3], -1),
            lambda x: torch.tensor_split(x, [2, 3], -1),
            (f("n", 3, 8),),
        ),
        "a rest": Case(lambda x: op.split(x, 3, 0), lambda x: torch.split(x, 3, 0), (f(7, 4),)),
    },
    "flip": {
        "a symbol": Case(lambda x: op.flip(x, 0), lambda x: x.flip(0), (f("h", 4),)),
        "axis": Case(lambda x: op.flip(x, 1), lambda x: x.flip(1), (f("n", 5, 4),)),
        "last axis": Case(lambda x: op.flip(x, -1), lambda x: x.flip(2), (f("n", 5, 4),)),
    },
    "broadcast_to": {
        "beside a symbol": Case(
            lambda x: op.broadcast_to(x, (2, _sizes(x)[0], 3)),
            lambda x: x.expand(2, x.shape[0], 3),
            (f("n", 1),),
        ),
        "stretched": Case(
            lambda x: op.broadcast_to(x, (2, 3, 4, 5)),
            lambda x: x.expand(2, 3, 4, 5),
            (f(3, 1, 5),),
        ),
        "truth": Case(lambda x: op.broadcast_to(x, (3, 5)), lambda x: x.expand(3, 5), (b(3, 1),)),
    },
    "tile": {
        "a symbol": Case(lambda x: op.tile(x, (2, 3)), lambda x: x.tile(2, 3), (f("n", 4),)),
        "several": Case(
            lambda x: op.tile(x, (1, 2, 3)), lambda x: x.tile(1, 2, 3), (f("n", 3, 4),)
        ),
        "more dimensions": Case(
            lambda x: op.tile(x, (2, 1, 3)), lambda x: x.tile(2, 1, 3), (f(3, 4),)
        ),
        "fewer repeats": Case(lambda x: op.tile(x, (2,)), lambda x: x.tile(2), (f("n", 3, 4),)),
    },
    "repeat": {
        "everything": Case(lambda x: op.repeat(x, 3), lambda x: x.repeat_interleave(3), (f(3, 4),)),
        "axis": Case(
            lambda x: op.repeat(x, 3, 1), lambda x: x.repeat_interleave(3, 1), (f("n", 3, 4),)
        ),
        "last axis": Case(
            lambda x: op.repeat(x, 2, -1), lambda x: x.repeat_interleave(2, 2), (f("n", 3, 4),)
        ),
    },
    "nn.pad": {
        "a symbol": Case(
            lambda x: nn.pad(x, (1, 2, 0, 3), "constant", -1.5),
            lambda x: functional.pad(x, (0, 3, 1, 2), value=-1.5),
            (f("n", "m"),),
        ),
        "a symbol, replicated": Case(
            lambda x: nn.pad(x, (0, 0, 0, 0, 1, 2), "replicate"),
            lambda x: functional.pad(x, (1, 2), "replicate"),
            (f("n", 3, "m"),),
        ),
        "a value": Case(
            lambda x: nn.pad(x, (0, 0, 1, 2, 3, 0), "constant", 2.5),
            lambda x: functional.pad(x, (3, 0, 1, 2), value=2.5),
            (f("n", 4, 5),),
        ),
        "zeros": Case(
            lambda x: nn.pad(x, (0, 0, 0, 0, 0, 2)),
            lambda x: functional.pad(x, (0, 2)),
            (f("n", 4, 5),),
        ),
        "integers": Case(
            lambda x: nn.pad(x, (1, 0, 0, 2), "constant", 7.0),
            lambda x: functional.pad(x, (0, 2, 1, 0), value=7),
            (i(4, 5),),
            _ONCE,
        ),
        **{
            mode: Case(
                lambda x, mode=mode: nn.pad(x, (0, 0, 0, 0, 1, 2, 3, 0), mode),
                lambda x, mode=mode: functional.pad(x, (3, 0, 1, 2), mode),
                (f("n", 2, 4, 5),),
            )
            for mode in ("reflect", "replicate", "circular")
        },
    },
}

PART = weights(1, 4, seed=8)

_JOINS: Cases = {
    "concatenate": {
        "axis": Case(
            lambda a, b: op.concat([a, b], 1),
            lambda a, b: torch.cat([a, b], 1),
            (f("n", 3, 4), f("n", 2, 4)),
        ),
        "last axis, a constant between": Case(
            lambda a, b: op.concat([a, const(PART[0]), b], -1),
            lambda a, b: torch.cat([a, t(PART[0]), b], -1),
            (f(3), f("n")),
        ),
        "batches": Case(
            lambda a, b: op.concat([a, const(PART), b], 0),
            lambda a, b: torch.cat([a, t(PART), b], 0),
            (f("n", 4), f("m", 4)),
        ),
        "vectors": Case(
            lambda a, b: op.concat([b, a], None),
            lambda a, b: torch.cat([b, a]),
            (i(3), i(4)),
            _ONCE,
        ),
    },
    "stack": {
        "two symbols": Case(
            lambda a, b: op.stack([a, b], 1),
            lambda a, b: torch.stack([a, b], 1),
            (f("n", "m"), f("n", "m")),
        ),
        "first": Case(
            lambda a, b: op.stack([a, b], 0),
            lambda a, b: torch.stack([a, b]),
            (f("n", 4), f("n", 4)),
        ),
        "last": Case(
            lambda a, b: op.stack([b, a, const(PART[0])], -1),
            lambda a, b: torch.stack([b, a, t(PART[0])], -1),
            (f(4), f(4)),
        ),
        "middle": Case(
            lambda a, b: op.stack([a, b, a], 1),
            lambda a, b: torch.stack([a, b, a], 1),
            (f(2, 4), f(2, 4)),
        ),
        "a cube": Case(
            lambda a, b: op.stack([a, b], -1),
            lambda a, b: torch.stack([a, b], 2),
            (f(2, 2), f(2, 2)),
        ),
    },
}

IDS = np.array([[3, 0, 1], [2, 2, 0]], "int64")
POSITIONS = np.array([[[0, 2], [1, 0]], [[1, 2], [0, 1]]], "int64")


def _elements(axis: int) -> Any:
    return lambda x, at: torch.gather(x, axis, at.long())


_GATHERS: Cases = {
    "take": {
        "clipped": Case(
            lambda x, at: op.take(x, at, 1, "clip"),
            lambda x, at: x[:, at.long().clamp(0, 3)],
            (f("n", 4, 5), i(2, 9)),
        ),
        "wrapped": Case(
            lambda x, at: op.take(x, at, 0, "wrap"),
            lambda x, at: x[at.long() % x.shape[0]],
            (f("m", 5), i("n", 9)),
        ),
        "an axis": Case(
            lambda x: op.take(x, const(IDS), 1), lambda x: x[:, t(IDS)], (f("n", 4, 5),)
        ),
        "the last axis": Case(
            lambda x, at: op.take(x, at, -1),
            lambda x, at: x[..., at.long()],
            (f("n", 3, 5), i("m", low=0, high=5)),
        ),
        "a table": Case(
            lambda at: op.take(const(weights(4, 6)), at, 0),
            lambda at: t(weights(4, 6))[at],
            (i("n", 3, low=0, high=4, dtype="int64"),),
        ),
        "one": Case(
            lambda x: op.take(x, const(np.int64(2)), 1), lambda x: x[:, 2], (f("n", 4, 5),)
        ),
        "a vector": Case(op.take, lambda x, at: x[at.long()], (f(7), i("n", 2, low=0, high=7))),
    },
    "gather_elements": {
        "an axis": Case(
            lambda x, at: op.gather_elements(x, at, 1),
            _elements(1),
            (f(2, 4, 3), i(2, 6, 3, low=0, high=4, dtype="int64")),
        ),
        "a square": Case(
            lambda x, at: op.gather_elements(x, at, 1),
            _elements(1),
            (f(3, 3), i(3, 3, low=0, high=3)),
        ),
        "the first axis": Case(
            lambda x, at: op.gather_elements(x, at, 0),
            _elements(0),
            (f(4, 3), i("n", 3, low=0, high=4)),
        ),
        "the last axis": Case(
            lambda x, at: op.gather_elements(x, at, -1),
            _elements(-1),
            (f("n", 4), i("n", 2, low=0, high=4)),
        ),
    },
    "gather_nd": {
        "rows": Case(
            lambda x: op.gather_nd(x, const(POSITIONS)),
            lambda x: x[t(POSITIONS)[..., 0], t(POSITIONS)[..., 1]],
            (f(2, 3, "n"),),
        ),
        "given positions": Case(
            op.gather_nd,
            lambda x, at: x[at[:, 0]],
            (f(4, 5), i("n", 1, low=0, high=4, dtype="int64")),
        ),
        "batches": Case(
            lambda x: op.gather_nd(x, const(POSITIONS), 1),
            lambda x: torch.stack(
                [x[n][t(POSITIONS)[n, :, 0], t(POSITIONS)[n, :, 1]] for n in range(2)]
            ),
            (f(2, 2, 3, 5),),
        ),
    },
}

CASES: Cases = {**_SHAPES, **_SLICES, **_JOINS, **_GATHERS}
