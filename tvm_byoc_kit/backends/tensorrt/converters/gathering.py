"""Elements by their positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Data = Tensor | np.ndarray


def _gathered(
    net: NetworkBuilder, x: Data, indices: Data, mode: str, *, axis: int = 0, batch: int = 0
) -> Tensor:
    modes = net.trt.GatherMode
    layer = net.network.add_gather_v2(net.tensor(x), net.tensor(indices), getattr(modes, mode))
    layer.axis = axis
    layer.num_elementwise_dims = batch
    return net.check(layer)


@converter("relax.take")
def taken(net: NetworkBuilder, op: Op, x: Data, indices: Data) -> Tensor:
    """Slices along an axis; a vector needs none named. Constant indices are within the bounds."""
    axis = (op.attrs["axis"] or 0) % len(x.shape)
    if op.attrs["mode"] != "fast" and not isinstance(indices, np.ndarray):
        indices = _BOUNDED[op.attrs["mode"]](net, indices, x.shape[axis])
    return _gathered(net, x, indices, "DEFAULT", axis=axis)


def _clipped(net: NetworkBuilder, indices: Tensor, size: int) -> Tensor:
    least, most = (net.scalar(bound, indices) for bound in (0, size - 1))
    return net.elementwise("MAX", net.elementwise("MIN", indices, most), least)


def _wrapped(net: NetworkBuilder, indices: Tensor, size: int) -> Tensor:
    """The rest of a division that rounds down, which is never negative."""
    divisor = net.scalar(size, indices)
    times = net.elementwise("FLOOR_DIV", indices, divisor)
    return net.elementwise("SUB", indices, net.elementwise("PROD", times, divisor))


_BOUNDED = {"clip": _clipped, "wrap": _wrapped}


@converter("relax.repeat")
def repeated(net: NetworkBuilder, op: Op, x: Data) -> Tensor:
    """Each element a number of times, along an axis or of all elements in a row."""
    axis = op.attrs["axis"]
    if axis is None:
        x, axis = net.reshape(x, [math.prod(x.shape)]), 0
    each = np.arange(x.shape[axis]).repeat(op.attrs["repeats"])
    axis %= len(x.shape)
    return _gathered(net, x, each, "DEFAULT", axis=axis)


@converter("relax.gather_elements")
def elements(net: NetworkBuilder, op: Op, x: Data, indices: Data) -> Tensor:
    """Along an axis; the other axes are those of the indices."""
    return _gathered(net, x, indices, "ELEMENT", axis=op.attrs["axis"] % len(x.shape))


@converter("relax.gather_nd")
def at_positions(net: NetworkBuilder, op: Op, x: Data, positions: Data) -> Tensor:
    """By the last axis of the positions, behind the batch's axes."""
    return _gathered(net, x, positions, "ND", batch=op.attrs["batch_dims"])
