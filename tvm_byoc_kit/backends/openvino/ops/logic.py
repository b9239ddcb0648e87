"""Comparisons, logic, bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, same, tensor
from tvm_byoc_kit.backends.openvino.opset import opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    ANY,
    BOOL,
    BYTE,
    FLOAT,
    INT,
    dtypes,
    same_dtype,
)

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.ops.table import Converter, Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _is_integer(op: Op) -> bool:
    return tensor(op).dtype in INT


def _equal(op: Op, x: Node, y: Node) -> Node:
    """OpenVINO compares integers as ``float32``; their difference is exact, and so is 0 of it."""
    if _is_integer(op):
        return opset.equal(opset.subtract(x, y), scalar(0, tensor(op).dtype))
    return opset.equal(x, y)


def _not_equal(op: Op, x: Node, y: Node) -> Node:
    return opset.logical_not(_equal(op, x, y)) if _is_integer(op) else opset.not_equal(x, y)


def _less(op: Op, x: Node, y: Node) -> Node:
    """Integers that are the same as ``float32`` are near each other: their difference decides."""
    if not _is_integer(op):
        return opset.less(x, y)
    difference_is_negative = opset.less(opset.subtract(x, y), scalar(0, tensor(op).dtype))
    near = opset.logical_and(opset.equal(x, y), difference_is_negative)
    return opset.logical_or(opset.less(x, y), near)


def _less_equal(op: Op, x: Node, y: Node) -> Node:
    return opset.logical_not(_less(op, y, x)) if _is_integer(op) else opset.less_equal(x, y)


def _greater_equal(op: Op, x: Node, y: Node) -> Node:
    return opset.logical_not(_less(op, x, y)) if _is_integer(op) else opset.greater_equal(x, y)


def _bits_or_logic(bits: str, logic: str) -> Converter:
    """The bits of a bool are its truth."""

    def convert(op: Op, *operands: Node) -> Node:
        return getattr(opset, logic if op.results[0].dtype == "bool" else bits)(*operands)

    return convert


_LOGIC = (dtypes(BOOL, "OpenVINO's logic is of bool"),)
_BITS = (dtypes(INT | BYTE | BOOL), same_dtype)
_ANY = (dtypes(ANY),)
_32_BITS = (dtypes(frozenset({"int32"}), "OpenVINO shifts within 32 bits"),)
_FLOATS = (dtypes(FLOAT),)


TABLE: Table = {
    "relax.equal": Entry(_equal, _ANY, (2,)),
    "relax.not_equal": Entry(_not_equal, _ANY, (2,)),
    "relax.less": Entry(_less, _ANY, (2,)),
    "relax.less_equal": Entry(_less_equal, _ANY, (2,)),
    "relax.greater": Entry(lambda op, x, y: _less(op, y, x), _ANY, (2,)),
    "relax.greater_equal": Entry(_greater_equal, _ANY, (2,)),
    "relax.logical_and": Entry(same("logical_and"), _LOGIC, (2,)),
    "relax.logical_or": Entry(same("logical_or"), _LOGIC, (2,)),
    "relax.logical_xor": Entry(same("logical_xor"), _LOGIC, (2,)),
    "relax.logical_not": Entry(same("logical_not"), _LOGIC),
    "relax.bitwise_and": Entry(_bits_or_logic("bitwise_and", "logical_and"), _BITS, (2,)),
    "relax.bitwise_or": Entry(_bits_or_logic("bitwise_or", "logical_or"), _BITS, (2,)),
    "relax.bitwise_xor": Entry(_bits_or_logic("bitwise_xor", "logical_xor"), _BITS, (2,)),
    "relax.bitwise_not": Entry(_bits_or_logic("bitwise_not", "logical_not"), _BITS),
    "relax.left_shift": Entry(same("bitwise_left_shift"), _32_BITS, (2,)),
    "relax.right_shift": Entry(same("bitwise_right_shift"), _32_BITS, (2,)),
    "relax.isnan": Entry(same("is_nan"), _FLOATS),
    "relax.isinf": Entry(same("is_inf"), _FLOATS),
    "relax.isfinite": Entry(same("is_finite"), _FLOATS),
    "relax.where": Entry(same("select"), _ANY, (3,)),
}
