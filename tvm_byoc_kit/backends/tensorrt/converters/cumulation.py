"""Running sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op


@converter("relax.cumsum", widened=NARROW)
def running_sum(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Along an axis, with each element or, exclusively, without; a vector needs no axis named."""
    axis = net.tensor(np.array((op.attrs["axis"] or 0) % len(x.shape), "int32"))
    operation = net.trt.CumulativeOperation.SUM
    exclusive = bool(op.attrs["exclusive"])
    return net.check(net.network.add_cumulative(x, axis, operation, exclusive, False))
