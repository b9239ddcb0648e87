"""Several tensors made one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Parts = tuple[Tensor | np.ndarray, ...]


def _joined(net: NetworkBuilder, tensors: Sequence[Tensor], axis: int) -> Tensor:
    layer = net.network.add_concatenation(tensors)
    layer.axis = axis
    return net.check(layer)


@converter("relax.concat")
def concatenated(net: NetworkBuilder, op: Op, given: Parts) -> Tensor:
    """Along an axis; vectors need none named."""
    axis = (op.attrs["axis"] or 0) % len(op.results[0].shape)
    return _joined(net, [net.tensor(part) for part in given], axis)


@converter("relax.stack")
def stacked(net: NetworkBuilder, op: Op, given: Parts) -> Tensor:
    """Along an axis of their own."""
    axis = (op.attrs["axis"] or 0) % len(op.results[0].shape)
    return _joined(net, [net.unsqueeze(part, [axis]) for part in given], axis)
