"""Softmax and the normalizations, all computed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.lengths import length, shuffled
from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Parameter = Tensor | np.ndarray


@converter("relax.nn.softmax", widened=NARROW)
def softmax(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Of one axis."""
    row = _as_row(net, x)
    layer = net.network.add_softmax(row)
    layer.axes = net.axes(row, [op.attrs["axis"] % len(x.shape) - len(x.shape)])
    return _as_before(net, net.check(layer), x)


def _as_row(net: NetworkBuilder, x: Tensor) -> Tensor:
    """A vector as a matrix: some layers take no less."""
    return net.unsqueeze(x, [0]) if len(x.shape) == 1 else x


def _as_before(net: NetworkBuilder, result: Tensor, x: Tensor) -> Tensor:
    return net.squeeze(result, [0]) if len(x.shape) == 1 else result


@converter("relax.nn.log_softmax", widened=NARROW)
def log_softmax(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """``x - max - log(sum(exp(x - max)))``: the logarithm of a softmax is not exact."""
    axes = [op.attrs["axis"]]
    x = net.elementwise("SUB", x, net.reduce("MAX", x, axes, keep=True))
    total = net.reduce("SUM", net.unary("EXP", x), axes, keep=True)
    return net.elementwise("SUB", x, net.unary("LOG", total))


@converter("relax.nn.layer_norm", widened=NARROW)
def layer_norm(net: NetworkBuilder, op: Op, x: Tensor, gamma: Parameter, beta: Parameter) -> Tensor:
    """Over axes that are in order, so that scale and bias need no transposition."""
    row = _as_row(net, x)
    axes = [axis % len(x.shape) - len(x.shape) for axis in op.attrs["axes"]]
    scale, bias = (net.tensor(_spread(net, parameter, row, axes)) for parameter in (gamma, beta))
    # From TensorRT 10.15 on there is another layer for the same; in 11 the first is deprecated.
    add = getattr(net.network, "add_normalization_v2", None) or net.network.add_normalization
    layer = add(row, scale, bias, net.axes(row, axes))
    if layer is not None:
        layer.epsilon = op.attrs["epsilon"]
    return _as_before(net, net.check(layer), x)


def _spread(net: NetworkBuilder, parameter: Parameter, x: Tensor, axes: Sequence[int]) -> Parameter:
    """A parameter of `axes`, which are in order, with the rank of `x`."""
    rank = len(x.shape)
    own = [axis % rank for axis in axes]
    others = [axis for axis in range(rank) if axis not in own]
    if isinstance(parameter, np.ndarray):
        return np.expand_dims(parameter, others)
    return net.unsqueeze(parameter, others)


@converter("relax.nn.batch_norm", widened=NARROW)
def batch_norm(
    net: NetworkBuilder, op: Op, x: Tensor, *parameters: Parameter
) -> tuple[Tensor | np.ndarray, ...]:
    """With the moving statistics, which it gives back as they are: a factor and a term."""
    gamma, beta, mean, variance = parameters
    epsilon = op.attrs["epsilon"]
    if all(isinstance(parameter, np.ndarray) for parameter in parameters):
        factor: Any = 1 / np.sqrt(variance.astype("float64") + epsilon)
        factor = factor * gamma if op.attrs["scale"] else factor
        term: Any = -mean * factor
        term = term + beta if op.attrs["center"] else term
        factor, term = factor.astype("float32"), term.astype("float32")
    else:
        factor = _reciprocal_deviation(net, variance, epsilon)
        factor = net.elementwise("PROD", factor, gamma) if op.attrs["scale"] else factor
        term = net.unary("NEG", net.elementwise("PROD", mean, factor))
        term = net.elementwise("SUM", term, beta) if op.attrs["center"] else term
    axis = [op.attrs["axis"]]
    scaled = net.elementwise("PROD", x, _spread(net, factor, x, axis))
    return net.elementwise("SUM", scaled, _spread(net, term, x, axis)), mean, variance


def _reciprocal_deviation(net: NetworkBuilder, variance: Parameter, epsilon: float) -> Tensor:
    variance = net.tensor(variance)
    raised = net.elementwise("SUM", variance, net.scalar(epsilon, variance))
    return net.unary("RECIP", net.unary("SQRT", raised))


@converter("relax.nn.rms_norm", widened=NARROW)
def rms_norm(net: NetworkBuilder, op: Op, x: Tensor, weight: Parameter) -> Tensor:
    """``x / sqrt(mean(x * x) + epsilon) * weight``."""
    axes = op.attrs["axes"]
    squares = net.reduce("AVG", net.elementwise("PROD", x, x), axes, keep=True)
    x = net.elementwise("PROD", x, _reciprocal_deviation(net, squares, op.attrs["epsilon"]))
    return net.elementwise("PROD", x, _spread(net, weight, x, axes))


@converter("relax.nn.instance_norm", widened=NARROW)
def instance_norm(
    net: NetworkBuilder, op: Op, x: Tensor, gamma: Parameter, beta: Parameter
) -> Tensor:
    """Over the axes of one channel of one sample."""
    channel = [op.attrs["channel_axis"]]
    x = _normalized(net, x, op.attrs["axes"], op.attrs["epsilon"])
    x = net.elementwise("PROD", x, _spread(net, gamma, x, channel))
    return net.elementwise("SUM", x, _spread(net, beta, x, channel))


@converter("relax.nn.group_norm", widened=NARROW)
def group_norm(net: NetworkBuilder, op: Op, x: Tensor, gamma: Parameter, beta: Parameter) -> Tensor:
    """Over the channels of a group and other axes: the groups become an axis."""
    rank = len(x.shape)
    sizes = [length(net, x, axis) for axis in range(rank)]
    channel, groups = op.attrs["channel_axis"] % rank, op.attrs["num_groups"]
    apart = (groups, gamma.shape[0] // groups)
    grouped = shuffled(net, x, [*sizes[:channel], *apart, *sizes[channel + 1 :]])
    # All from the channels on are one place farther back.
    axes = [axis % rank + (axis % rank > channel) for axis in op.attrs["axes"]]
    normalized = _normalized(net, grouped, [channel + 1, *axes], op.attrs["epsilon"])
    x = shuffled(net, normalized, sizes)
    x = net.elementwise("PROD", x, _spread(net, gamma, x, [channel]))
    return net.elementwise("SUM", x, _spread(net, beta, x, [channel]))


def _normalized(net: NetworkBuilder, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    centered = net.elementwise("SUB", x, net.reduce("AVG", x, axes, keep=True))
    squares = net.elementwise("PROD", centered, centered)
    variance = net.reduce("AVG", squares, axes, keep=True)
    return net.elementwise("PROD", centered, _reciprocal_deviation(net, variance, epsilon))
