"""Quantized operators that TVM's importer lacks, or gets wrong.

Integer results are those of ONNX Runtime to the last bit, and so are results of QLinearConv,
QLinearMatMul and QGemm, which scale an integer sum once. What is computed between DequantizeLinear
and QuantizeLinear here (addition, sigmoid, pooling and the like) may differ from ONNX Runtime by
one step where a value lies half way, because the arithmetic is in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Replacement,
    Scope,
    describe,
    replace_nodes,
)
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter
from tvm_byoc_kit.frontends.onnx.rewrites.integer_conv import Convolution
from tvm_byoc_kit.frontends.onnx.rewrites.quantization import (
    Quantized,
    integer_matmul,
    quantize_dynamically,
    requantize,
    scaled_matmul,
)

__all__ = ["LOWERS", "rewrite_quantized"]


def rewrite_quantized(model: onnx.ModelProto) -> int:
    """Replace every operator of :data:`LOWERS`; gives how many there were.

    Raises
    ------
    ModelError
        For an integer convolution whose sums cannot be computed exactly, and for attributes that
        ONNX's operators do not have.
    """

    def lower(node: onnx.NodeProto, scope: Scope, replacement: Replacement) -> bool:
        write = _OPERATORS.get((node.domain, node.op_type))
        if write is None:
            return False
        emit = Emitter(replacement, scope.opset, onnx.TensorProto.FLOAT)
        write(_Node(node, scope, emit))
        return True

    return replace_nodes(model, lower)


@dataclass(frozen=True)
class _Node:
    """A node with what is needed to replace it."""

    proto: onnx.NodeProto
    scope: Scope
    emit: Emitter

    def optional(self, index: int) -> str | None:
        """The input's name, or None where it is left out."""
        return (self.proto.input[index] or None) if index < len(self.proto.input) else None

    def quantized(self, index: int) -> Quantized:
        """The tensor, scale and zero point that start at input `index`."""
        value, scale = self.proto.input[index : index + 2]
        return Quantized(value, scale, self.optional(index + 2))

    def result(self, index: int) -> Quantized:
        """The node's output, with the scale and zero point that start at input `index`.

        A zero point left out is zero, of the type of the node's first input.
        """
        zero_point = self.optional(index + 1)
        if zero_point is None:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(self.scope.dtype(self.proto.input[0]))
            zero_point = self.emit.constant(0, dtype)
        return Quantized(self.output, self.proto.input[index], zero_point)

    @property
    def output(self) -> str:
        """The name of the only output."""
        return str(self.proto.output[0])

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name."""
        return {attr.name: onnx.helper.get_attribute_value(attr) for attr in self.proto.attribute}


def _dynamic_quantize_linear(node: _Node) -> None:
    value, scale, zero_point = node.proto.output
    quantize_dynamically(node.emit, node.proto.input[0], (value, scale, zero_point))


def _conv_integer(node: _Node) -> None:
    x, w = node.proto.input[:2]
    unscaled = (Quantized(x, "", node.optional(2)), Quantized(w, "", node.optional(3)))
    Convolution(node.emit, node.proto, node.scope, *unscaled).write_integer(node.output)


def _qlinear_conv(node: _Node) -> None:
    conv = Convolution(
        node.emit,
        node.proto,
        node.scope,
        node.quantized(0),
        node.quantized(3),
        bias=node.optional(8),
    )
    conv.write_scaled(node.result(6))


def _qlinear_matmul(node: _Node) -> None:
    emit, a, b = node.emit, node.quantized(0), node.quantized(3)
    product = emit("Cast", integer_matmul(emit, a, b), to=emit.dtype)
    requantize(emit, product, emit("Mul", a.scale, b.scale), node.result(6))


def _qgemm(node: _Node) -> None:
    emit, said = node.emit, node.attributes
    a, b = (
        _transposed(emit, node.quantized(index)) if said.get(name) else node.quantized(index)
        for index, name in ((0, "transA"), (3, "transB"))
    )
    product = integer_matmul(emit, a, b)
    total = emit("Cast", emit.add(product, node.optional(6)), to=emit.dtype)
    scale = emit("Mul", a.scale, b.scale)
    if (alpha := said.get("alpha", 1.0)) != 1:
        scale = emit("Mul", scale, emit.scalar(alpha))
    if node.optional(7) is None:
        emit("Mul", total, scale, output=node.output)
    else:
        requantize(emit, total, scale, node.result(7))


def _transposed(emit: Emitter, matrix: Quantized) -> Quantized:
    return Quantized(emit("Transpose", matrix.value), matrix.scale, matrix.zero_point)


def _matmul_integer_to_float(node: _Node) -> None:
    a, b, a_scale, b_scale = node.proto.input[:4]
    left = Quantized(a, a_scale, node.optional(4))
    right = Quantized(b, b_scale, node.optional(5))
    scaled_matmul(node.emit, left, right, node.optional(6), node.output)


def _dynamic_quantize_matmul(node: _Node) -> None:
    x, b, b_scale = node.proto.input[:3]
    left = quantize_dynamically(node.emit, x)
    right = Quantized(b, b_scale, node.optional(3))
    scaled_matmul(node.emit, left, right, node.optional(4), node.output)


def _in_main_domain(node: _Node) -> None:
    node.emit(node.proto.op_type, *node.proto.input, output=node.output, **node.attributes)


def _dequantized(op: str, operands: int) -> Callable[[_Node], None]:
    """Write `op` between DequantizeLinear of its operands and QuantizeLinear of its result."""

    def write(node: _Node) -> None:
        inputs = [node.quantized(3 * index) for index in range(operands)]
        _between(node, op, inputs, node.result(3 * operands))

    return write


def _qlinear_concat(node: _Node) -> None:
    inputs = [node.quantized(index) for index in range(2, len(node.proto.input), 3)]
    _between(node, "Concat", inputs, node.result(0))


def _between(node: _Node, op: str, inputs: list[Quantized], to: Quantized) -> None:
    said = node.attributes
    if said.pop("channels_last", 0):
        raise _refusal(node, "has channels_last=1", "quantize the model with channels first")
    if said.pop("opset", node.scope.opset) < _SOFTMAX_OF_ONE_AXIS <= node.scope.opset:
        raise _refusal(
            node, "is a softmax of an older opset", "quantize the model at its own opset"
        )
    floats = [_dequantize(node.emit, value) for value in inputs]
    result = node.emit(op, *floats, **said)
    node.emit("QuantizeLinear", result, to.scale, str(to.zero_point), output=to.value)


# Before this opset, Softmax ran over all axes from `axis` on.
_SOFTMAX_OF_ONE_AXIS = 13


def _refusal(node: _Node, what: str, remedy: str) -> ModelError:
    return ModelError(f"{describe(node.proto, node.scope)} {what}: {remedy}")


def _dequantize(emit: Emitter, x: Quantized) -> str:
    zero_point = () if x.zero_point is None else (x.zero_point,)
    return emit("DequantizeLinear", x.value, x.scale, *zero_point)


_OPERATORS: dict[tuple[str, str], Callable[[_Node], None]] = {
    **{
        (domain, op): write
        for domain in MAIN_DOMAINS
        for op, write in {
            "DynamicQuantizeLinear": _dynamic_quantize_linear,
            "ConvInteger": _conv_integer,
            "QLinearConv": _qlinear_conv,
            "QLinearMatMul": _qlinear_matmul,
        }.items()
    },
    **{
        ("com.microsoft", op): write
        for op, write in {
            "QGemm": _qgemm,
            "MatMulIntegerToFloat": _matmul_integer_to_float,
            "DynamicQuantizeMatMul": _dynamic_quantize_matmul,
            "QuantizeLinear": _in_main_domain,
            "DequantizeLinear": _in_main_domain,
            "QLinearAdd": _dequantized("Add", 2),
            "QLinearMul": _dequantized("Mul", 2),
            "QLinearSigmoid": _dequantized("Sigmoid", 1),
            "QLinearLeakyRelu": _dequantized("LeakyRelu", 1),
            "QLinearSoftmax": _dequantized("Softmax", 1),
            "QLinearAveragePool": _dequantized("AveragePool", 1),
            "QLinearGlobalAveragePool": _dequantized("GlobalAveragePool", 1),
            "QLinearConcat": _qlinear_concat,
        }.items()
    },
}

LOWERS = frozenset(_OPERATORS)
