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
    """Along an axis, or of all elements in a row; with each element or, exclusively, without it."""
    axis = op.attrs["axis"]
    if axis is None:
        x, axis = net.reshape(x, op.results[0].shape), 0
    dtype = op.results[0].dtype
    x = net.cast(x, net.dtype("float32" if dtype in NARROW else dtype))
    at = net.tensor(np.array(axis % len(x.shape), "int32"))
    operation = net.trt.CumulativeOperation.SUM
    exclusive = bool(op.attrs["exclusive"])
    return net.check(net.network.add_cumulative(x, at, operation, exclusive, False))
