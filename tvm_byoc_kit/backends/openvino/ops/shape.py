"""Operators that move elements or repeat them, and compute nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, same, tensor
from tvm_byoc_kit.backends.openvino.opset import integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    ANY,
    constant_numbers,
    dims,
    dtypes,
    has_symbolic_axis,
    same_dtype,
    static_result,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Dim, Op

__all__ = ["TABLE"]


def _shape(op: Op) -> tuple[Dim, ...]:
    return tensor(op).shape


def _rank(op: Op) -> int:
    return len(_shape(op))


def _reshape(op: Op, x: Node, shape: Node) -> Node:
    """By a constant where it says all: 0 is the size of that axis before, -1 what is left.

    Else the shape is an argument of each call, and what OpenVINO plans with is known less well.
    """
    before = _shape(op)
    sizes = [
        size if isinstance(size, int) else 0 if before[axis : axis + 1] == (size,) else -1
        for axis, size in enumerate(op.results[0].shape)
    ]
    if sizes.count(-1) > 1:
        return opset.reshape(x, shape, special_zero=False)
    return opset.reshape(x, integers(sizes), special_zero=True)


def _flatten(_op: Op, x: Node) -> Node:
    return opset.reshape(x, integers([-1]), special_zero=False)


def _batch_flatten(_op: Op, x: Node) -> Node:
    return opset.reshape(x, integers([0, -1]), special_zero=True)


def _permute(op: Op, x: Node) -> Node:
    axes, rank = op.attrs["axes"], _rank(op)
    order = reversed(range(rank)) if axes is None else (axis % rank for axis in axes)
    return opset.transpose(x, integers(order))


def _squeeze(op: Op, x: Node) -> Node:
    axes = op.attrs["axis"]
    if axes is None:
        axes = [axis for axis, size in enumerate(_shape(op)) if size == 1]
    if not axes:
        return opset.reshape(x, opset.shape_of(x), special_zero=False)
    return opset.squeeze(x, integers(sorted(axis % _rank(op) for axis in axes)))


def _expand_dims(op: Op, x: Node) -> Node:
    rank = len(op.results[0].shape)
    return opset.unsqueeze(x, integers(sorted(axis % rank for axis in op.attrs["axis"])))


def _concat(op: Op, members: tuple[Node, ...]) -> Node:
    axis = op.attrs["axis"] or 0  # None: members of one axis
    return opset.concat(list(members), axis % len(op.results[0].shape))


def _stack(op: Op, members: tuple[Node, ...]) -> Node:
    axis = (op.attrs["axis"] or 0) % len(op.results[0].shape)
    return opset.concat([opset.unsqueeze(member, integers(axis)) for member in members], axis)


def _split(op: Op, x: Node) -> list[Node]:
    axis, parts = op.attrs["axis"] % _rank(op), op.attrs["indices_or_sections"]
    if isinstance(parts, int):
        sizes = [int(result.shape[axis]) for result in op.results]
    else:
        size = int(_shape(op)[axis])
        cuts = [min(max(cut, 0), size) for cut in parts]
        sizes = [end - begin for begin, end in pairwise([0, *cuts, size])]
    split = opset.variadic_split(x, integers(axis), integers(sizes))
    return list(split.outputs())


def _slice(
    _op: Op,
    x: Node,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Node:
    steps = strides or (1,) * len(axes)
    return opset.slice(x, integers(begin), integers(end), integers(steps), integers(axes))


def _tile(op: Op, x: Node) -> Node:
    return opset.tile(x, integers(op.attrs["repeats"]))


def _repeat(op: Op, x: Node) -> Node:
    """Each element `repeats` times: a new axis behind its own, tiled, and merged into it."""
    repeats, axis, rank = op.attrs["repeats"], op.attrs["axis"], _rank(op)
    if axis is None:
        x, axis, rank = _flatten(op, x), 0, 1
    axis %= rank
    tiled = opset.tile(
        opset.unsqueeze(x, integers(axis + 1)),
        integers([repeats if i == axis + 1 else 1 for i in range(rank + 1)]),
    )
    shape = opset.shape_of(x)
    factor = integers([repeats if i == axis else 1 for i in range(rank)])
    return opset.reshape(tiled, opset.multiply(shape, factor), special_zero=False)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}


def _pad(op: Op, x: Node) -> Node:
    widths, mode = op.attrs["pad_width"], op.attrs["pad_mode"]
    before, after = integers(widths[::2]), integers(widths[1::2])
    if mode != "constant":
        return opset.pad(x, before, after, _PAD_MODES[mode])
    value = scalar(op.attrs["pad_value"], op.results[0].dtype)
    return opset.pad(x, before, after, "constant", value)


def _flip(op: Op, x: Node) -> Node:
    axis = op.attrs["axis"] % _rank(op)
    last, beyond = integers([-1]), integers([-(2**31) + 1])
    return opset.slice(x, last, beyond, integers([-1]), integers([axis]))


def _pixel_shuffle(op: Op, x: Node) -> Node:
    return opset.depth_to_space(x, "depth_first", op.attrs["upscale_factor"])


def _repeats_nothing(call: Call) -> bool:
    return len(call.attrs.repeats) == 0


def _pad_mode_is_other(call: Call) -> bool:
    return str(call.attrs.pad_mode) not in _PAD_MODES


def _reflects_too_far(call: Call) -> bool:
    if str(call.attrs.pad_mode) != "reflect":
        return False
    widths = [int(width) for width in call.attrs.pad_width]
    pairs = zip(dims(call.args[0]), zip(widths[::2], widths[1::2], strict=True), strict=True)
    return any(max(pair) > 0 and (size is None or max(pair) >= size) for size, pair in pairs)


def _rank_is_not_four(call: Call) -> bool:
    return bool(call.args[0].ty.ndim != 4)  # noqa: PLR2004 - NCHW


_MOVED = (dtypes(ANY), same_dtype)

TABLE: Table = {
    "relax.reshape": Entry(_reshape, _MOVED, (2,)),
    "relax.flatten": Entry(_flatten, _MOVED),
    "relax.nn.batch_flatten": Entry(_batch_flatten, _MOVED),
    "relax.permute_dims": Entry(_permute, _MOVED),
    "relax.squeeze": Entry(_squeeze, _MOVED),
    "relax.expand_dims": Entry(_expand_dims, _MOVED),
    # TVM loses a symbolic shape inside a composite function, and nobody could allocate the result.
    "relax.broadcast_to": Entry(same("broadcast"), (*_MOVED, static_result), (2,)),
    "relax.concat": Entry(_concat, _MOVED),
    "relax.stack": Entry(_stack, _MOVED),
    "relax.split": Entry(
        _split, (*_MOVED, unless(has_symbolic_axis, "the size of the split axis is symbolic"))
    ),
    "relax.strided_slice": Entry(_slice, (*_MOVED, constant_numbers), (4, 5)),
    "relax.tile": Entry(_tile, (*_MOVED, unless(_repeats_nothing, "repeats is empty"))),
    "relax.repeat": Entry(_repeat, _MOVED),
    "relax.nn.pad": Entry(
        _pad,
        (
            *_MOVED,
            unless(_pad_mode_is_other, "OpenVINO pads by a constant, reflection or replication"),
            unless(_reflects_too_far, "reflects more than the axis is known to have"),
        ),
    ),
    "relax.flip": Entry(_flip, _MOVED),
    "relax.nn.pixel_shuffle": Entry(
        _pixel_shuffle, (*_MOVED, unless(_rank_is_not_four, "OpenVINO takes batches of images"))
    ),
}
