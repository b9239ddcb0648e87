"""The arithmetic of quantized operators, as ONNX Runtime does it, in plain ONNX operators."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter

__all__ = [
    "Quantized",
    "dynamic_matmul",
    "integer_matmul",
    "quantize_dynamically",
    "requantize",
    "scaled_matmul",
]


@dataclass(frozen=True)
class Quantized:
    """Names of a quantized tensor, its scale, and its zero point (None: zero)."""

    value: str
    scale: str
    zero_point: str | None


def quantize_dynamically(
    emit: Emitter, x: str, outputs: tuple[str | None, str | None, str | None] = (None, None, None)
) -> Quantized:
    """`x` as uint8 over its own range, which takes in zero; a range of zero has the scale 1.

    TVM's converter for DynamicQuantizeLinear divides by zero there.
    """
    zero = emit.scalar(0)
    high = emit("Max", emit("ReduceMax", x, keepdims=0), zero)
    low = emit("Min", emit("ReduceMin", x, keepdims=0), zero)
    span = emit("Sub", high, low)
    step = emit("Div", span, emit.scalar(255))
    flat = emit("Equal", span, zero)
    scale = emit("Where", flat, emit.scalar(1), step, output=outputs[1])
    below = emit("Round", emit("Neg", emit("Div", low, scale)))
    zero_point = emit("Cast", below, output=outputs[2], to=onnx.TensorProto.UINT8)
    value = emit("QuantizeLinear", x, scale, zero_point, output=outputs[0])
    return Quantized(value, scale, zero_point)


def integer_matmul(emit: Emitter, a: Quantized, b: Quantized) -> str:
    """The int32 product of the values less their zero points."""
    inputs = [a.value, b.value, a.zero_point or "", b.zero_point or ""]
    while not inputs[-1]:
        inputs.pop()
    return emit("MatMulInteger", *inputs)


def scaled_matmul(
    emit: Emitter, a: Quantized, b: Quantized, bias: str | None, output: str | None = None
) -> str:
    """The product in floating point, plus `bias`."""
    product = emit("Cast", integer_matmul(emit, a, b), to=emit.dtype)
    scale = emit("Mul", a.scale, b.scale)
    if bias is None:
        return emit("Mul", product, scale, output=output)
    return emit("Add", emit("Mul", product, scale), bias, output=output)


def dynamic_matmul(emit: Emitter, x: str, weights: Quantized) -> str:
    """`x`, quantized over its own range, times `weights`."""
    return scaled_matmul(emit, quantize_dynamically(emit, x), weights, bias=None)


def requantize(emit: Emitter, x: str, scale: str, to: Quantized) -> None:
    """Write `to`: the float `x`, a whole number, times `scale`; rounded half to even.

    The multiplier is computed first, as in ONNX Runtime; a scale of one leaves QuantizeLinear the
    rounding and saturation.
    """
    scaled = emit("Mul", x, emit("Div", scale, to.scale))
    one = emit.scalar(1)
    zero_point = () if to.zero_point is None else (to.zero_point,)
    emit("QuantizeLinear", scaled, one, *zero_point, output=to.value)
