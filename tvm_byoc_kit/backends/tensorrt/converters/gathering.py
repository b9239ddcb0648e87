"""Elements by their positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.lengths import calculated, length
from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.converters.lengths import Length
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
    """Slices along an axis; a vector needs none named."""
    x = net.tensor(x)
    axis = (op.attrs["axis"] or 0) % len(x.shape)
    if op.attrs["mode"] != "fast":
        indices = _BOUNDED[op.attrs["mode"]](net, indices, length(net, x, axis))
    return _gathered(net, x, indices, "DEFAULT", axis=axis)


def _clipped(net: NetworkBuilder, indices: Data, size: Length) -> Data:
    if isinstance(indices, np.ndarray) and isinstance(size, int):
        return np.asarray(indices.clip(0, size - 1))
    indices = net.tensor(indices)
    most = _like(net, calculated(net, "SUB", size, 1), indices)
    return net.elementwise("MAX", net.elementwise("MIN", indices, most), net.scalar(0, indices))


def _wrapped(net: NetworkBuilder, indices: Data, size: Length) -> Data:
    """The rest of a division that rounds down, which is never negative."""
    if isinstance(indices, np.ndarray) and isinstance(size, int):
        return np.asarray(indices % size)  # of a scalar, too
    indices = net.tensor(indices)
    divisor = _like(net, size, indices)
    times = net.elementwise("FLOOR_DIV", indices, divisor)
    return net.elementwise("SUB", indices, net.elementwise("PROD", times, divisor))


def _like(net: NetworkBuilder, size: Length, indices: Tensor) -> Tensor:
    if isinstance(size, int):
        return net.scalar(size, indices)
    size = net.cast(size, indices.dtype)
    return size if len(indices.shape) else net.squeeze(size, [0])


_BOUNDED = {"clip": _clipped, "wrap": _wrapped}


@converter("relax.repeat")
def repeated(net: NetworkBuilder, op: Op, x: Data) -> Tensor:
    """Each element a number of times, along an axis or of all elements in a row."""
    dims, axis = op.operands[0].shape, op.attrs["axis"]  # type: ignore[union-attr]
    if axis is None:
        dims, axis = (math.prod(dims),), 0
        x = net.reshape(x, dims)
    each = np.arange(dims[axis]).repeat(op.attrs["repeats"])
    return _gathered(net, x, each, "DEFAULT", axis=axis % len(dims))


@converter("relax.gather_elements")
def elements(net: NetworkBuilder, op: Op, x: Data, indices: Data) -> Tensor:
    """Along an axis; the other axes are those of the indices."""
    return _gathered(net, x, indices, "ELEMENT", axis=op.attrs["axis"] % len(x.shape))


@converter("relax.gather_nd")
def at_positions(net: NetworkBuilder, op: Op, x: Data, positions: Data) -> Tensor:
    """By the last axis of the positions, behind the batch's axes."""
    return _gathered(net, x, positions, "ND", batch=op.attrs["batch_dims"])
