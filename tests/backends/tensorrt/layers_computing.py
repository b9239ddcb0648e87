"""The oracle's layers that compute: element by element, convolutions, pools, norms, products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional

from .interpreter import Layer, OracleError, Tensor, axes_of, layer, same_rank

# --- Element by element -------------------------------------------------------------------------

_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "RELU": lambda x, _a, _b: x.clamp(min=0),
    "SIGMOID": lambda x, _a, _b: torch.sigmoid(x),
    "TANH": lambda x, _a, _b: torch.tanh(x),
    "LEAKY_RELU": lambda x, a, _b: torch.where(x >= 0, x, a * x),
    "ELU": lambda x, a, _b: torch.where(x >= 0, x, a * torch.expm1(x)),
    "SELU": lambda x, a, b: b * torch.where(x > 0, x, a * torch.expm1(x)),
    "SOFTSIGN": lambda x, _a, _b: x / (1 + x.abs()),
    "SOFTPLUS": lambda x, a, b: a * torch.logaddexp(b * x, torch.zeros(())),
    "CLIP": lambda x, a, b: x.clamp(a, b),
    "HARD_SIGMOID": lambda x, a, b: (a * x + b).clamp(0, 1),
    "SCALED_TANH": lambda x, a, b: a * torch.tanh(b * x),
    "THRESHOLDED_RELU": lambda x, a, _b: torch.where(x > a, x, torch.zeros(())),
    "GELU_ERF": lambda x, _a, _b: functional.gelu(x),
    "GELU_TANH": lambda x, _a, _b: functional.gelu(x, approximate="tanh"),
}
_UNARY = {"RECIP": "reciprocal", "NOT": "logical_not", "ROUND": "round"}
_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "SUM": torch.add,
    "PROD": torch.mul,
    "MAX": torch.maximum,
    "MIN": torch.minimum,
    "SUB": torch.sub,
    "POW": torch.pow,
    "FLOOR_DIV": torch.floor_divide,
    "AND": torch.logical_and,
    "OR": torch.logical_or,
    "XOR": torch.logical_xor,
    "EQUAL": torch.eq,
    "GREATER": torch.gt,
    "LESS": torch.lt,
}
_LOGIC = frozenset({"AND", "OR", "XOR"})


@layer("ACTIVATION", "IActivationLayer", "type alpha beta")
def activation(this: Layer, x: Tensor) -> Tensor:
    return _ACTIVATIONS[this.type.name](x, this.alpha, this.beta)


@layer("UNARY", "IUnaryLayer", "op")
def unary(this: Layer, x: Tensor) -> Tensor:
    name = this.op.name
    if name == "NOT" and x.dtype != torch.bool:
        raise OracleError(f"{this.name}: NOT of {x.dtype}")
    return getattr(torch, _UNARY.get(name, name.lower()))(x)


@layer("ELEMENTWISE", "IElementWiseLayer", "op")
def elementwise(this: Layer, a: Tensor, b: Tensor) -> Tensor:
    same_rank(this, a, b)
    name = this.op.name
    if a.dtype != b.dtype or (a.dtype != torch.bool and name in _LOGIC):
        raise OracleError(f"{this.name}: {name} of {a.dtype} and {b.dtype}")
    if name == "DIV":
        return torch.div(a, b, rounding_mode=None if a.is_floating_point() else "trunc")
    return _BINARY[name](a, b)


@layer("PARAMETRIC_RELU", "IParametricReLULayer")
def parametric_relu(this: Layer, x: Tensor, slope: Tensor) -> Tensor:
    same_rank(this, x, slope)
    return torch.where(x >= 0, x, x * slope)


@layer("SELECT", "ISelectLayer")
def select(this: Layer, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    same_rank(this, condition, a, b)
    if condition.dtype != torch.bool or a.dtype != b.dtype:
        raise OracleError(f"{this.name}: {condition.dtype} selects {a.dtype} or {b.dtype}")
    return torch.where(condition, a, b)


@layer("CAST", "ICastLayer", "to_type")
def cast(this: Layer, x: Tensor) -> Tensor:
    if this.to_type != this.outputs[0].dtype:
        raise OracleError(f"{this.name}: to {this.to_type}, which is not the output's")
    return x


@layer("IDENTITY", "IIdentityLayer")
def identity(_this: Layer, x: Tensor) -> Tensor:
    return x


@layer("SCALE", "IScaleLayer", "mode channel_axis shift scale power")
def scale(this: Layer, x: Tensor) -> Tensor:
    def shaped(attribute: str, default: float) -> Tensor:
        found = this.stored(attribute)
        if found is None:
            return torch.tensor(default)
        if this.mode.name == "CHANNEL":
            return found.float().reshape(
                [-1 if i == this.channel_axis else 1 for i in range(x.dim())]
            )
        return found.float().reshape(() if this.mode.name == "UNIFORM" else x.shape[1:])

    return (x * shaped("scale", 1) + shaped("shift", 0)) ** shaped("power", 1)


# --- Convolutions and pools ---------------------------------------------------------------------

_WINDOW = "padding_mode pre_padding post_padding stride_nd "
_CONVOLUTION = _WINDOW + "kernel bias kernel_size_nd num_output_maps num_groups dilation_nd"


def _padded(this: Layer, x: Tensor, value: float = 0.0) -> Tensor:
    pairs = zip(reversed(this.pre_padding), reversed(this.post_padding), strict=True)
    return functional.pad(x, [width for pair in pairs for width in pair], value=value)


def _weights(this: Layer, shape: Sequence[int], kernel: Tensor | None) -> Tensor:
    stored = this.stored("kernel")
    if (stored is None) == (kernel is None):
        raise OracleError(f"{this.name}: the kernel is stored and an input, or neither")
    found = kernel if stored is None else stored
    if found is None or (kernel is not None and tuple(kernel.shape) != tuple(shape)):
        raise OracleError(f"{this.name}: a kernel other than {list(shape)}")
    return found.float().reshape(tuple(shape))


def _bias(this: Layer, bias: Tensor | None) -> Tensor | None:
    stored = this.stored("bias")
    if stored is not None and bias is not None:
        raise OracleError(f"{this.name}: the bias is stored and an input")
    return bias if stored is None else stored.float()


@layer("CONVOLUTION", "IConvolutionLayer", _CONVOLUTION)
def convolution(
    this: Layer, x: Tensor, kernel: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    this.expect(padding_mode="EXPLICIT_ROUND_DOWN")
    window, groups = tuple(this.kernel_size_nd), this.num_groups
    weights = _weights(this, (this.num_output_maps, x.shape[1] // groups, *window), kernel)
    conv = {2: functional.conv2d, 3: functional.conv3d}[len(window)]
    strides, dilation = tuple(this.stride_nd), tuple(this.dilation_nd)
    return conv(_padded(this, x), weights, _bias(this, bias), strides, 0, dilation, groups)


@layer("DECONVOLUTION", "IDeconvolutionLayer", _CONVOLUTION)
def deconvolution(
    this: Layer, x: Tensor, kernel: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    this.expect(padding_mode="EXPLICIT_ROUND_DOWN")
    window, groups = tuple(this.kernel_size_nd), this.num_groups
    weights = _weights(this, (x.shape[1], this.num_output_maps // groups, *window), kernel)
    conv = {2: functional.conv_transpose2d, 3: functional.conv_transpose3d}[len(window)]
    strides, dilation = tuple(this.stride_nd), tuple(this.dilation_nd)
    y = conv(x, weights, _bias(this, bias), strides, 0, 0, groups, dilation)
    for i, (pre, post) in enumerate(zip(this.pre_padding, this.post_padding, strict=True)):
        y = y.narrow(2 + i, pre, y.shape[2 + i] - pre - post)
    return y


@layer(
    "POOLING",
    "IPoolingLayer",
    _WINDOW + "type window_size_nd average_count_excludes_padding blend_factor",
)
def pooling(this: Layer, x: Tensor) -> Tensor:
    window, stride = tuple(this.window_size_nd), tuple(this.stride_nd)
    beyond = _beyond(this, x.shape[2:])

    def reach(tensor: Tensor, value: float) -> Tensor:
        ends = [width for more in reversed(beyond) for width in (0, more)]
        return functional.pad(_padded(this, tensor, value), ends, value=value)

    mean = {2: functional.avg_pool2d, 3: functional.avg_pool3d}[len(window)]
    if this.type.name == "MAX":
        most = {2: functional.max_pool2d, 3: functional.max_pool3d}[len(window)]
        return most(reach(x, -torch.inf), window, stride)
    if this.type.name != "AVERAGE":
        raise OracleError(f"{this.name}: {this.type.name}")
    if this.average_count_excludes_padding:
        return mean(reach(x, 0), window, stride) / mean(
            reach(torch.ones_like(x), 0), window, stride
        )
    if any(beyond):
        raise OracleError(f"{this.name}: an average that counts elements beyond the padding")
    return mean(reach(x, 0), window, stride)


def _beyond(this: Layer, sizes: Sequence[int]) -> list[int]:
    """How far the last windows reach over the end padding where the size is rounded up."""
    mode = this.padding_mode.name
    if mode == "EXPLICIT_ROUND_DOWN":
        return [0] * len(sizes)
    if mode != "EXPLICIT_ROUND_UP":
        raise OracleError(f"{this.name}: padding_mode is {mode}")
    padded = [sum(n) for n in zip(sizes, this.pre_padding, this.post_padding, strict=True)]
    windows = zip(padded, this.window_size_nd, this.stride_nd, strict=True)
    return [-(size - window) % stride for size, window, stride in windows]


# --- Reductions, norms and products -------------------------------------------------------------

_REDUCTIONS: dict[str, Callable[..., Tensor]] = {
    "SUM": torch.sum,
    "AVG": torch.mean,
    "MAX": torch.amax,
    "MIN": torch.amin,
}


@layer("REDUCE", "IReduceLayer", "op axes keep_dims")
def reduce(this: Layer, x: Tensor) -> Tensor:
    axes, keep = axes_of(this.axes), this.keep_dims
    if not axes or axes[-1] >= x.dim():
        raise OracleError(f"{this.name}: over the axes {axes} of {list(x.shape)}")
    if this.op.name == "PROD":
        for axis in reversed(axes):
            x = x.prod(axis, keepdim=keep)
        return x
    return _REDUCTIONS[this.op.name](x, axes, keepdim=keep)


@layer("SOFTMAX", "ISoftMaxLayer", "axes")
def softmax(this: Layer, x: Tensor) -> Tensor:
    (axis,) = axes_of(this.axes)
    return torch.softmax(x, axis)


@layer("NORMALIZATION", "INormalizationLayer", "axes epsilon num_groups is_v2")
def normalization(this: Layer, x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    axes, groups, shape = axes_of(this.axes), this.num_groups, x.shape
    same_rank(this, x, gain, bias)
    if groups != 1:
        if axes != list(range(2, x.dim())) or not this.is_v2:
            raise OracleError(f"{this.name}: {groups} groups over the axes {axes}")
        x = x.reshape(shape[0], groups, -1)
        axes = [2]
    mean = x.mean(axes, keepdim=True)
    variance = ((x - mean) ** 2).mean(axes, keepdim=True)
    return ((x - mean) / torch.sqrt(variance + this.epsilon)).reshape(shape) * gain + bias


@layer("CUMULATIVE", "ICumulativeLayer", "op exclusive reverse")
def cumulative(this: Layer, x: Tensor, axis: Tensor) -> Tensor:
    this.expect(op="SUM")
    at = int(axis)
    x = x.flip(at) if this.reverse else x
    y = x.cumsum(at)
    if this.exclusive:
        first = torch.zeros_like(x.narrow(at, 0, 1))
        y = torch.cat([first, y.narrow(at, 0, x.shape[at] - 1)], at)
    return y.flip(at) if this.reverse else y


@layer("MATRIX_MULTIPLY", "IMatrixMultiplyLayer", "op0 op1")
def matrix_multiply(this: Layer, a: Tensor, b: Tensor) -> Tensor:
    first, second = this.op0.name, this.op1.name
    a = a.unsqueeze(-2) if first == "VECTOR" else a.mT if first == "TRANSPOSE" else a
    b = b.unsqueeze(-1) if second == "VECTOR" else b.mT if second == "TRANSPOSE" else b
    same_rank(this, a, b)
    y = torch.matmul(a, b)
    y = y.squeeze(-1) if second == "VECTOR" else y
    return y.squeeze(-1 if second == "VECTOR" else -2) if first == "VECTOR" else y


@layer("EINSUM", "IEinsumLayer", "equation")
def einsum(this: Layer, *operands: Tensor) -> Tensor:
    return torch.einsum(this.equation, *operands)


# --- Quantization -------------------------------------------------------------------------------


def _along(this: Layer, x: Tensor, values: Tensor) -> Tensor:
    if values.numel() == 1:
        return values.reshape(())
    return values.reshape([-1 if i == this.axis else 1 for i in range(x.dim())])


def _symmetric(this: Layer, zero: Tensor | None) -> None:
    if this.block_shape is not None and tuple(this.block_shape):
        raise OracleError(f"{this.name}: blocks of {tuple(this.block_shape)}")
    if zero is not None and zero.any():
        raise OracleError(f"{this.name}: a zero point that is not 0")


@layer("QUANTIZE", "IQuantizeLayer", "axis block_shape to_type")
def quantize(this: Layer, x: Tensor, step: Tensor, zero: Tensor | None = None) -> Tensor:
    this.expect(to_type="INT8")
    _symmetric(this, zero)
    return (x / _along(this, x, step)).round().clamp(-128, 127)


@layer("DEQUANTIZE", "IDequantizeLayer", "axis block_shape to_type")
def dequantize(this: Layer, x: Tensor, step: Tensor, zero: Tensor | None = None) -> Any:
    _symmetric(this, zero)
    if x.dtype != torch.int8:
        raise OracleError(f"{this.name}: of {x.dtype}")
    return x.float() * _along(this, x, step)
