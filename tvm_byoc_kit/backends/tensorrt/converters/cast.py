"""Changes of the dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op


@converter("relax.astype")
def as_type(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Towards zero from floating point to integers; whatever is not zero is true."""
    return net.cast(x, net.result_dtype(op))
