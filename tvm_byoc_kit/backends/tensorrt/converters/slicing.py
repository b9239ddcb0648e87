"""Parts of a tensor, and tensors continued beyond their bounds: all of them slices.

A slice of TensorRT takes, along each of its axes, a number of elements from a start in steps, which
may be negative or 0. Beyond the tensor it finds what its mode says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Operand, Tensor
    from tvm_byoc_kit.graph import Op

#: By axis: start, number of elements, step. Other axes stay whole.
Ranges: TypeAlias = Mapping[int, tuple[int, int, int]]


def _sliced(
    net: NetworkBuilder, x: Tensor, ranges: Ranges, mode: str = "STRICT_BOUNDS", fill: float = 0
) -> Tensor:
    x = net.tensor(x)
    if not ranges:
        return x
    layer = net.network.add_slice(x, *zip(*ranges.values(), strict=True))
    layer.axes = tuple(ranges)
    layer.mode = getattr(net.trt.SampleMode, mode)
    if mode == "FILL":
        layer.set_input(4, net.tensor(np.array(fill, "float32"), like=x))
    return net.check(layer)


def _size(x: Tensor, axis: int) -> int:
    return int(x.shape[axis])


@converter("relax.strided_slice")
def strided(
    net: NetworkBuilder,
    op: Op,
    x: Tensor,
    axes: tuple[int, ...],
    begin: tuple[int, ...],
    end: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Tensor:
    """Bounds are clamped as Python's slices clamp them, for both signs of a stride."""
    ranges = {}
    for axis, *bounds in zip(axes, begin, end, strides or (1,) * len(axes), strict=True):
        start, stop, step = slice(*bounds).indices(_size(x, axis))
        ranges[axis % len(x.shape)] = start, len(range(start, stop, step)), step
    return _sliced(net, x, ranges)


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
    size = _size(x, axis)
    return _sliced(net, x, {axis: (size - 1, size, -1)})


@converter("relax.broadcast_to")
def broadcast(net: NetworkBuilder, op: Op, x: Tensor, _target: Operand) -> Tensor:
    """The one element of an axis, again and again."""
    target = op.results[0].shape
    x = net.tensor(x, len(target))
    stretched = [axis for axis, size in enumerate(target) if size != 1 and _size(x, axis) == 1]
    return _sliced(net, x, {axis: (0, int(target[axis]), 0) for axis in stretched})


@converter("relax.tile")
def tiled(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The whole tensor, again and again."""
    target = op.results[0].shape
    x = net.tensor(x, len(target))
    repeats = (1,) * (len(target) - len(op.attrs["repeats"])) + op.attrs["repeats"]
    longer = [axis for axis, times in enumerate(repeats) if times != 1]
    return _sliced(net, x, {axis: (0, int(target[axis]), 1) for axis in longer}, "WRAP")


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
    pairs = dict(enumerate(zip(widths[::2], widths[1::2], strict=True)))
    ranges = {
        axis: (-before, _size(x, axis) + before + after, 1)
        for axis, (before, after) in pairs.items()
        if before or after
    }
    return _sliced(net, x, ranges, _PAD_MODES[op.attrs["pad_mode"]], op.attrs["pad_value"])
