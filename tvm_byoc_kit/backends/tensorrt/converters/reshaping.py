"""Other dimensions for the same elements, or their dimensions in another order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Operand, Tensor
    from tvm_byoc_kit.graph import Op


@converter("relax.reshape", "relax.flatten", "relax.nn.batch_flatten")
def reshaped(net: NetworkBuilder, op: Op, x: Tensor, _target: Operand = None) -> Tensor:
    """To the shape that Relax derived, in which no dimension is left open."""
    return net.reshape(x, op.results[0].shape)


@converter("relax.expand_dims")
def unsqueezed(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Dimensions of one at axes of the result."""
    rank = len(op.results[0].shape)
    return net.unsqueeze(x, sorted(axis % rank for axis in op.attrs["axis"]))


@converter("relax.squeeze")
def squeezed(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Without axes of size 1; without all of them where none are named."""
    axes, dims = op.attrs["axis"], tuple(x.shape)
    if axes is None:
        axes = [axis for axis, size in enumerate(dims) if size == 1]
    return net.squeeze(x, sorted(axis % len(dims) for axis in axes))


@converter("relax.permute_dims")
def permuted(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Dimensions in the order of the axes; in the opposite one where none are named."""
    axes, rank = op.attrs["axes"], len(x.shape)
    return net.transpose(x, range(rank)[::-1] if axes is None else [axis % rank for axis in axes])


@converter("relax.layout_transform")
def laid_out(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """A permutation: each final index is one of the initial ones, ``i0`` and so on."""
    initial = {f"i{axis}": axis for axis in range(len(x.shape))}
    return net.transpose(x, [initial[index] for index in op.attrs["index_map"]])


@converter("relax.nn.pixel_shuffle")
def pixels_from_channels(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Channels ``c, i, j`` become rows ``h, i`` and columns ``w, j`` of channel ``c``."""
    factor = op.attrs["upscale_factor"]
    target = op.results[0].shape
    *batch, channels, height, width = target
    rows, columns = (side // factor for side in (height, width))  # type: ignore[operator]
    split = net.reshape(x, (*batch, channels, factor, factor, rows, columns))
    at = len(batch)
    order = (*range(at), at, at + 3, at + 1, at + 4, at + 2)
    return net.reshape(net.transpose(split, order), target)
