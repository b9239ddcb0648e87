"""Parts of a tensor, and tensors continued beyond their bounds: all of them slices.

A slice of TensorRT takes, along each of its axes, a number of elements from a start in steps, which
may be negative or 0. Beyond the tensor it finds what its mode says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.lengths import calculated, length, vector
from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.converters.lengths import Length
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Operand, Tensor
    from tvm_byoc_kit.graph import Op

#: By axis: start, number of elements, step. Other axes stay whole.
Ranges: TypeAlias = "Mapping[int, tuple[Length, Length, int]]"


def _sliced(
    net: NetworkBuilder, x: Tensor, ranges: Ranges, mode: str = "STRICT_BOUNDS", fill: float = 0
) -> Tensor:
    if not ranges:
        return x
    starts, sizes, steps = zip(*ranges.values(), strict=True)
    layer = net.network.add_slice(x, _numbers(starts), _numbers(sizes), steps)
    layer.axes = tuple(ranges)
    layer.mode = getattr(net.trt.SampleMode, mode)
    for place, lengths in ((1, starts), (2, sizes)):
        if not all(isinstance(each, int) for each in lengths):
            layer.set_input(place, vector(net, lengths))
    if mode == "FILL":
        layer.set_input(4, net.tensor(np.array(fill, "float32"), like=x))
    return net.check(layer)


def _numbers(lengths: tuple[Length, ...]) -> tuple[int, ...]:
    """With a number for those that an input of the layer will tell."""
    return tuple(each if isinstance(each, int) else 0 for each in lengths)


@converter("relax.strided_slice")
def strided(net: NetworkBuilder, _op: Op, x: Tensor, *bounds: tuple[int, ...]) -> Tensor:
    """Axes, begins, ends and strides; they are clamped as Python's slices clamp them."""
    x = net.tensor(x)
    axes, begins, ends, *strides = bounds
    steps = strides[0] if strides else (1,) * len(axes)
    ranges = {}
    for axis, *bound in zip(
        (axis % len(x.shape) for axis in axes), begins, ends, steps, strict=True
    ):
        ranges[axis] = _range(net, length(net, x, axis), *bound)
    return _sliced(net, x, ranges)


def _range(
    net: NetworkBuilder, size: Length, first: int, last: int, step: int
) -> tuple[Length, Length, int]:
    """What ``first:last:step`` is of `size` elements; steps are forward where it is no number."""
    if isinstance(size, int):
        start, stop, _ = slice(first, last, step).indices(size)
        return start, len(range(start, stop, step)), step
    begin, end = (_bound(net, size, at) for at in (first, last))
    span = calculated(net, "SUB", end, begin)
    count = calculated(net, "FLOOR_DIV", calculated(net, "SUM", span, step - 1), step)
    return begin, calculated(net, "MAX", count, 0), step


def _bound(net: NetworkBuilder, size: Length, at: int) -> Length:
    if at < 0:
        return calculated(net, "MAX", calculated(net, "SUM", size, at), 0)
    return calculated(net, "MIN", size, at) if at else 0


@converter("relax.split")
def parts(net: NetworkBuilder, op: Op, x: Tensor) -> tuple[Tensor, ...]:
    """One behind the other, of the sizes that Relax derived."""
    axis = op.attrs["axis"] % len(x.shape)
    sizes = [int(part.shape[axis]) for part in op.results]
    return tuple(
        _sliced(net, x, {axis: (sum(sizes[:number]), size, 1)}) for number, size in enumerate(sizes)
    )


@converter("relax.flip")
def flipped(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """From the last element back."""
    axis = op.attrs["axis"] % len(x.shape)
    size = length(net, x, axis)
    return _sliced(net, x, {axis: (calculated(net, "SUB", size, 1), size, -1)})


@converter("relax.broadcast_to")
def broadcast(net: NetworkBuilder, op: Op, x: Tensor, _target: Operand) -> Tensor:
    """The one element of an axis, again and again."""
    target = op.results[0].shape
    source = op.operands[0].shape  # type: ignore[union-attr]
    x = net.tensor(x, len(target))
    source = (1,) * (len(target) - len(source)) + source
    ranges = {
        axis: (0, size if isinstance(size, int) else length(net, x, source.index(size)), 0)
        for axis, size in enumerate(target)
        if size != 1 and source[axis] == 1
    }
    return _sliced(net, x, ranges)


@converter("relax.tile")
def tiled(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The whole tensor, again and again."""
    rank = len(op.results[0].shape)
    x = net.tensor(x, rank)
    repeats = (1,) * (rank - len(op.attrs["repeats"])) + op.attrs["repeats"]
    ranges = {
        axis: (0, calculated(net, "PROD", length(net, x, axis), times), 1)
        for axis, times in enumerate(repeats)
        if times != 1
    }
    return _sliced(net, x, ranges, "WRAP")


_PAD_MODES = {
    "constant": "FILL",
    "reflect": "REFLECT",
    "replicate": "CLAMP",
    "circular": "WRAP",
}


@converter("relax.nn.pad")
def padded(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """A slice that starts before the tensor and ends behind it."""
    widths = op.attrs["pad_width"]
    ranges = {
        axis: (-before, calculated(net, "SUM", length(net, x, axis), before + after), 1)
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True))
        if before or after
    }
    return _sliced(net, x, ranges, _PAD_MODES[op.attrs["pad_mode"]], op.attrs["pad_value"])
