"""Softmax and the normalizations, all computed in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Parameter = Tensor | np.ndarray


@converter("relax.nn.softmax", widened=NARROW)
def softmax(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Of one axis; TensorRT has it for two dimensions or more."""
    if len(x.shape) == 1:
        row = net.unsqueeze(x, [0])
        return net.squeeze(_softmax(net, row, 1), [0])
    return _softmax(net, x, op.attrs["axis"])


def _softmax(net: NetworkBuilder, x: Tensor, axis: int) -> Tensor:
    layer = net.network.add_softmax(x)
    layer.axes = net.axes(x, [axis])
    return net.check(layer)


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
    scale, bias = (net.tensor(_spread(net, p, x, op.attrs["axes"])) for p in (gamma, beta))
    # From TensorRT 10.15 on there is another layer for the same; in 11 the first is deprecated.
    add = getattr(net.network, "add_normalization_v2", None) or net.network.add_normalization
    layer = add(x, scale, bias, net.axes(x, op.attrs["axes"]))
    if layer is not None:
        layer.epsilon = op.attrs["epsilon"]
    return net.check(layer)


def _spread(net: NetworkBuilder, parameter: Parameter, x: Tensor, axes: Sequence[int]) -> Parameter:
    """A parameter of `axes` with the rank of `x`."""
    rank = len(x.shape)
    dims = [1] * rank
    for axis, size in zip(axes, parameter.shape, strict=True):
        dims[axis % rank] = size
    if isinstance(parameter, np.ndarray):
        return parameter.reshape(dims)
    return net.reshape(parameter, dims)


@converter("relax.nn.batch_norm", widened=NARROW)
def batch_norm(
    net: NetworkBuilder,
    op: Op,
    x: Tensor,
    gamma: Parameter,
    beta: Parameter,
    mean: Parameter,
    variance: Parameter,
) -> tuple[Any, ...]:
    """With the moving statistics, which it gives back as they are: a factor and a term."""
    epsilon = op.attrs["epsilon"]
    if all(isinstance(p, np.ndarray) for p in (gamma, beta, mean, variance)):
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
    """Over the channels of a group and all that is behind: the groups become an axis."""
    data: Any = op.operands[0]
    batch, channels, *rest = data.shape
    groups = op.attrs["num_groups"]
    grouped = net.reshape(x, [batch, groups, channels // groups, *rest])
    axes = range(2, len(rest) + 3)
    x = net.reshape(_normalized(net, grouped, axes, op.attrs["epsilon"]), data.shape)
    x = net.elementwise("PROD", x, _spread(net, gamma, x, [1]))
    return net.elementwise("SUM", x, _spread(net, beta, x, [1]))


def _normalized(net: NetworkBuilder, x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    centered = net.elementwise("SUB", x, net.reduce("AVG", x, axes, keep=True))
    squares = net.elementwise("PROD", centered, centered)
    variance = net.reduce("AVG", squares, axes, keep=True)
    return net.elementwise("PROD", centered, _reciprocal_deviation(net, variance, epsilon))
