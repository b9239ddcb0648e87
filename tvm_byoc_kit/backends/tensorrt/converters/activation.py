"""Activation functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

# Of trt.ActivationType.
_LAYERS = {
    "relax.nn.relu": "RELU",
    "relax.sigmoid": "SIGMOID",
    "relax.tanh": "TANH",
    "relax.nn.gelu": "GELU_ERF",
    "relax.nn.gelu_tanh": "GELU_TANH",
}
# Klambauer et al., Self-Normalizing Neural Networks (2017).
_SELU_ALPHA = 1.6732632423543772
_SELU_SCALE = 1.0507009873554805


@converter(*_LAYERS)
def activation(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """What one layer computes; integers, which none takes, have a maximum."""
    if not net.is_float(x):
        return net.elementwise("MAX", x, net.scalar(0, x))
    return net.activation(_LAYERS[op.name], x)


@converter("relax.nn.silu")
def silu(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """``x * sigmoid(x)``, which TensorRT fuses."""
    return net.elementwise("PROD", x, net.activation("SIGMOID", x))


@converter("relax.nn.leakyrelu")
def leaky_relu(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """``x`` where positive, ``alpha * x`` elsewhere."""
    return net.activation("LEAKY_RELU", x, op.attrs["alpha"])


@converter("relax.nn.selu")
def selu(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """With the constants of the paper."""
    return net.activation("SELU", x, _SELU_ALPHA, _SELU_SCALE)


@converter("relax.nn.softplus", widened=NARROW)
def softplus(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``, and ``x`` where ``beta * x`` is above the threshold."""
    beta, threshold = op.attrs["beta"], op.attrs["threshold"]
    soft = net.activation("SOFTPLUS", x, 1 / beta, beta)
    scaled = net.elementwise("PROD", x, net.scalar(beta, x))
    above = net.elementwise("GREATER", scaled, net.scalar(threshold, x))
    return net.check(net.network.add_select(above, x, soft))


@converter("relax.nn.prelu")
def prelu(net: NetworkBuilder, op: Op, x: Tensor, slope: Tensor | np.ndarray) -> Tensor:
    """A slope for each channel, or one for all."""
    others = [axis for axis in range(len(x.shape)) if axis != op.attrs["axis"] % len(x.shape)]
    if isinstance(slope, np.ndarray):
        spread = net.tensor(np.expand_dims(slope, others))
    else:
        spread = net.unsqueeze(slope, others)
    return net.check(net.network.add_parametric_relu(net.tensor(x), spread))
