"""Other dimensions for the same elements, or their dimensions in another order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.lengths import calculated, length, shuffled
from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.converters.lengths import Length
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Operand, Tensor
    from tvm_byoc_kit.graph import Dim, Op


@converter("relax.reshape", "relax.flatten", "relax.nn.batch_flatten")
def reshaped(net: NetworkBuilder, op: Op, x: Tensor, _target: Operand = None) -> Tensor:
    """Symbolic dimensions are those of the operand, but for one that TensorRT finds by itself."""
    source, target = op.operands[0].shape, op.results[0].shape  # type: ignore[union-attr]
    x = net.tensor(x)
    if sum(isinstance(dim, str) for dim in target) == 1:
        return shuffled(net, x, [dim if isinstance(dim, int) else -1 for dim in target])
    strange = [dim for dim in target if dim not in source and isinstance(dim, str)]
    if len(strange) > 1:  # which TVM may prove to be of the operand, but the texts do not tell
        return net.reshape(x, target)
    return shuffled(net, x, [_found(net, x, source, dim) for dim in target])


def _found(net: NetworkBuilder, x: Tensor, source: Sequence[Dim], dim: Dim) -> Length:
    if isinstance(dim, int):
        return dim
    return length(net, x, source.index(dim)) if dim in source else -1


@converter("relax.expand_dims")
def unsqueezed(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Dimensions of one at axes of the result."""
    rank = len(op.results[0].shape)
    return net.unsqueeze(x, sorted(axis % rank for axis in op.attrs["axis"]))


@converter("relax.squeeze")
def squeezed(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Without axes of size 1; Relax keeps others that are named, and names all by None."""
    axes, dims = op.attrs["axis"], op.operands[0].shape  # type: ignore[union-attr]
    named = range(len(dims)) if axes is None else {axis % len(dims) for axis in axes}
    return net.squeeze(x, [axis for axis in sorted(named) if dims[axis] == 1])


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
    *batch, _, height, width = (length(net, x, axis) for axis in range(len(x.shape)))
    fewer = op.results[0].shape[-3]
    split = shuffled(net, x, (*batch, fewer, factor, factor, height, width))
    at = len(batch)
    order = (*range(at), at, at + 3, at + 1, at + 4, at + 2)
    high, wide = (calculated(net, "PROD", side, factor) for side in (height, width))
    return shuffled(net, net.transpose(split, order), (*batch, fewer, high, wide))
