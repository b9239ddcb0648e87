"""Convolutions of 8-bit integers by float32 convolutions that are exact.

Relax's convolution of integers has no counterpart in ONNX, and few backends have one. A float32
sum of whole numbers is exact while no partial sum passes 2**24; the weights say how many input
channels may be summed so. Where all of them are too many, their sums are added as int32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import Scope, describe
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter
from tvm_byoc_kit.frontends.onnx.rewrites.quantization import Quantized, requantize

__all__ = ["Convolution"]

_EXACT_BELOW = 2**24


@dataclass(frozen=True)
class Convolution:
    """A ConvInteger or QLinearConv.

    Parameters
    ----------
    emit : Emitter
    node : onnx.NodeProto
        Has the attributes of Conv.
    scope : Scope
    x, w : Quantized
    bias : str or None
        int32, added to the sums.
    """

    emit: Emitter
    node: onnx.NodeProto
    scope: Scope
    x: Quantized
    w: Quantized
    bias: str | None = None

    def write_integer(self, output: str) -> None:
        """Write `output`, the int32 sums of the products of values less their zero points.

        Raises
        ------
        ModelError
            Where the shape of the weights is not known, or float32 cannot hold the sums.
        """
        self.emit("Identity", _as_integer(self.emit, _float_sums(self)), output=output)

    def write_scaled(self, to: Quantized) -> None:
        """Write `to`: the sums, scaled and rounded; raises as `write_integer`."""
        emit = self.emit
        per_channel = [-1] + [1] * (self.rank - 2)
        sums = _float_sums(self)
        total = sums[0]
        if len(sums) > 1:
            total = emit("Cast", _as_integer(emit, sums), to=emit.dtype)
        scale = emit.reshape(emit("Mul", self.x.scale, self.w.scale), per_channel)
        requantize(emit, total, scale, to)

    @property
    def rank(self) -> int:
        """Number of dimensions of the weights."""
        return len(self.scope.shape(self.w.value) or ())

    def refusal(self, what: str) -> ModelError:
        """An error that names the node."""
        return ModelError(f"{describe(self.node, self.scope)} {what}")


def _as_integer(emit: Emitter, sums: list[str]) -> str:
    total, *rest = [emit("Cast", part, to=onnx.TensorProto.INT32) for part in sums]
    for part in rest:
        total = emit("Add", total, part)
    return total


def _float_sums(conv: Convolution) -> list[str]:
    """Exact float32 tensors whose sum is the result."""
    emit = conv.emit
    said = {attr.name: onnx.helper.get_attribute_value(attr) for attr in conv.node.attribute}
    bounds = _bounds(conv)
    sizes = _channel_groups(conv, bounds, said.get("group", 1))
    inputs = emit.split(_centered(conv, conv.x, []), sizes, axis=1)
    weights = emit.split(_centered(conv, conv.w, [-1] + [1] * (conv.rank - 1)), sizes, axis=1)
    operands = [list(pair) for pair in zip(inputs, weights, strict=True)]
    if conv.bias is None:
        return [emit("Conv", *pair, **said) for pair in operands]
    bias = conv.scope.constant(conv.bias)
    if bias is not None and len(sizes) == 1 and _fits(bounds.sum(axis=1) + np.abs(bias)):
        return [emit("Conv", *operands[0], emit("Cast", conv.bias, to=emit.dtype), **said)]
    sums = [emit("Conv", *pair, **said) for pair in operands]
    return [*sums, emit.reshape(conv.bias, [-1] + [1] * (conv.rank - 2))]


def _fits(sums: np.ndarray) -> bool:
    return bool(np.max(sums) <= _EXACT_BELOW)


def _centered(conv: Convolution, x: Quantized, zero_point_shape: list[int]) -> str:
    """The values less the zero point, as float."""
    emit = conv.emit
    value = emit("Cast", x.value, to=emit.dtype)
    if x.zero_point is None or _is_zero(conv.scope.constant(x.zero_point)):
        return value
    zero_point = emit.reshape(emit("Cast", x.zero_point, to=emit.dtype), zero_point_shape)
    return emit("Sub", value, zero_point)


def _is_zero(value: np.ndarray | None) -> bool:
    return value is not None and not np.any(value)


def _channel_groups(conv: Convolution, bounds: np.ndarray, group: int) -> list[int]:
    """How many input channels go into each float32 convolution."""
    sizes = [0]
    total = np.zeros(len(bounds))
    for channel in bounds.T:
        total = total + channel
        if not _fits(total):
            sizes.append(0)
            total = channel
        sizes[-1] += 1
        if not _fits(channel) or (group > 1 and len(sizes) > 1):
            raise conv.refusal(
                "is computed in float32, which does not hold its sums exactly: they may pass "
                "2**24. Keep this node in floating point when quantizing"
            )
    return sizes


def _bounds(conv: Convolution) -> np.ndarray:
    """For each output channel, how far each input channel of its group can change the sum."""
    largest = _largest(conv)
    weights = conv.scope.constant(conv.w.value)
    zero_point = (
        np.zeros(1) if conv.w.zero_point is None else conv.scope.constant(conv.w.zero_point)
    )
    if weights is not None and zero_point is not None:
        center = zero_point.astype(np.int64).reshape(-1, *[1] * (weights.ndim - 1))
        channels = np.abs(weights - center).reshape(*weights.shape[:2], -1)
        return np.asarray(channels.sum(-1) * largest)
    shape = conv.scope.static_shape(conv.w.value)
    if shape is None:
        raise conv.refusal(
            "has weights of unknown shape: make them constant, or fix the shapes of the inputs"
        )
    return np.full((1, shape[1]), math.prod(shape[2:]) * _BYTE_RANGE * largest)


_BYTE_RANGE = 255


def _largest(conv: Convolution) -> int:
    """The largest magnitude of an input value less its zero point."""
    x, scope = conv.x, conv.scope
    dtype = scope.dtype(x.value)
    zero_point = np.zeros(1) if x.zero_point is None else scope.constant(x.zero_point)
    if zero_point is None or not dtype:
        return _BYTE_RANGE
    limits = np.iinfo(onnx.helper.tensor_dtype_to_np_dtype(dtype))
    center = int(zero_point.item())
    return max(limits.max - center, center - limits.min)
