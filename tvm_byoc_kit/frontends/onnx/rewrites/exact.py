"""Small operators that TVM's converters read only in part, made exact.

Elu, Selu and ThresholdedRelu are converted with float32 constants, whatever the input's type is.

IsInf's converter does not look at which sign is asked for; and shifting by the width of the type,
or more, or by a negative amount, is undefined in the code TVM makes: ONNX gives 0, or the sign.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    describe,
    replaces,
)

__all__ = ["rewrite"]

_WHERE = 9  # the opset that brought Where
# Attributes and their defaults.
_ACTIVATIONS = {
    "Elu": {"alpha": 1.0},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "ThresholdedRelu": {"alpha": 1.0},
}


@replaces(*_ACTIVATIONS, "IsInf", "BitShift")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write the operators that this module is about with others; give the number replaced."""
    if node.op_type in _ACTIVATIONS and scope.opset >= _WHERE:
        return _replace_activation(node, scope, new)
    if node.op_type == "IsInf":
        return _replace_isinf(node, scope, new)
    if node.op_type == "BitShift":
        return _replace_shift(node, scope, new)
    return False


def _replace_activation(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    x, output = node.input[0], node.output[0]
    if scope.dtype(x) in (TensorProto.FLOAT, TensorProto.UNDEFINED):
        return False
    dtype = helper.tensor_dtype_to_np_dtype(scope.dtype(x))
    values = _ACTIVATIONS[node.op_type] | {a.name: a.f for a in node.attribute}
    alpha, zero = new.constant(values["alpha"], dtype), new.constant(0, dtype)
    if node.op_type == "ThresholdedRelu":
        new.add("Where", [new.add("Greater", [x, alpha]), x, zero], output)
        return True
    curve = new.add("Sub", [new.add("Exp", [x]), new.constant(1, dtype)])
    below = new.add("Mul", [curve, alpha])
    if node.op_type == "Elu":
        new.add("Where", [new.add("Less", [x, zero]), below, x], output)
        return True
    whole = new.add("Where", [new.add("Less", [x, zero]), below, x])
    new.add("Mul", [whole, new.constant(values["gamma"], dtype)], output)
    return True


def _replace_isinf(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    wanted = {attribute.name: attribute.i for attribute in node.attribute}
    positive, negative = wanted.get("detect_positive", 1), wanted.get("detect_negative", 1)
    if positive and negative:
        return False
    infinite = new.add("IsInf", node.input)
    dtype = helper.tensor_dtype_to_np_dtype(scope.dtype(node.input[0]) or TensorProto.FLOAT)
    zero = new.constant(0, dtype)
    if positive:
        sign = new.add("Greater", [node.input[0], zero])
    elif negative:
        sign = new.add("Less", [node.input[0], zero])
    else:
        sign = new.add("Not", [infinite])
    new.add("And", [infinite, sign], node.output[0])
    return True


_WIDTHS = {
    TensorProto.DataType.Value(f"{sign}INT{width}"): width
    for sign in ("", "U")
    for width in (8, 16, 32, 64)
}


def _replace_shift(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    value, amount = node.input
    width = _WIDTHS.get(scope.dtype(value))
    if width is None:
        raise ModelError(
            f"{describe(node, scope)} shifts what is not known to be an integer; cast it first"
        )
    known = scope.constant(amount)
    if known is not None and ((known >= 0) & (known < width)).all():
        return False
    dtype = helper.tensor_dtype_to_np_dtype(scope.dtype(value))
    limit, zero = new.constant(width, dtype), new.constant(0, dtype)
    within = new.add("Less", [amount, limit])
    if dtype.kind == "i":
        within = new.add("And", [within, new.add("Not", [new.add("Less", [amount, zero])])])
    direction = next(a.s.decode() for a in node.attribute if a.name == "direction")
    shifted = new.add(
        "BitShift", [value, new.add("Where", [within, amount, zero])], direction=direction
    )
    rest = zero
    if dtype.kind == "i" and direction == "RIGHT":  # the sign is what is left
        rest = new.add("Where", [new.add("Less", [value, zero]), new.constant(-1, dtype), zero])
    new.add("Where", [within, shifted, rest], node.output[0])
    return True
