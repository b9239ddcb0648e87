"""Sums, extremes and moments over axes, and running sums along one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

# Of trt.ReduceOperation.
_EXTREMES = {"relax.max": "MAX", "relax.min": "MIN"}
_TOTALS = {"relax.mean": "AVG", "relax.prod": "PROD", "relax.sum": "SUM"}


def _axes(op: Op, x: Tensor) -> Sequence[int]:
    axes = op.attrs["axis"]
    return range(len(x.shape)) if axes is None else axes


def _keep(op: Op) -> bool:
    return bool(op.attrs["keepdims"])


@converter(*_EXTREMES)
def extreme(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The largest or the smallest."""
    return net.reduce(_EXTREMES[op.name], x, _axes(op, x), keep=_keep(op))


@converter(*_TOTALS, widened=NARROW)
def total(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """What half would overflow in, or lose the last summands of."""
    return net.reduce(_TOTALS[op.name], x, _axes(op, x), keep=_keep(op))


@converter("relax.variance", widened=NARROW)
def variance(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The mean square of the distances from the mean."""
    axes = _axes(op, x)
    distance = net.elementwise("SUB", x, net.reduce("AVG", x, axes, keep=True))
    return net.reduce("AVG", net.elementwise("PROD", distance, distance), axes, keep=_keep(op))


@converter("relax.std", widened=NARROW)
def standard_deviation(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The root of the variance."""
    return net.unary("SQRT", variance(net, op, x))


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
