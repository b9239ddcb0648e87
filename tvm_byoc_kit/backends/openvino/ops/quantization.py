"""Quantization to 8 bits and back, by plain arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.openvino.ops.table import Entry, tensor
from tvm_byoc_kit.backends.openvino.opset import element_type, integers, opset
from tvm_byoc_kit.backends.openvino.predicates import BYTE, dims, dtypes, unless

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _along_axis(op: Op, number: int, node: Node) -> Node:
    """Scale or zero point: of the whole tensor, or one for each place on an axis."""
    if all(size == 1 for size in tensor(op, number).shape):
        return opset.reshape(node, integers([]), special_zero=False)
    rank = len(op.results[0].shape)
    shape = [1] * rank
    shape[op.attrs["axis"] % rank] = -1
    return opset.reshape(node, integers(shape), special_zero=False)


def _quantize(op: Op, x: Node, scale: Node, zero: Node) -> Node:
    dtype = op.results[0].dtype
    offset = opset.convert(_along_axis(op, 2, zero), element_type("float32"))
    steps = opset.round(opset.divide(x, _along_axis(op, 1, scale)), "half_to_even")
    bounds = np.iinfo(dtype)
    inside = opset.clamp(opset.add(steps, offset), float(bounds.min), float(bounds.max))
    return opset.convert(inside, element_type(dtype))


def _dequantize(op: Op, x: Node, scale: Node, zero: Node) -> Node:
    wide = element_type("int32")
    offset = opset.convert(_along_axis(op, 2, zero), wide)
    steps = opset.subtract(opset.convert(x, wide), offset)
    return opset.multiply(opset.convert(steps, element_type("float32")), _along_axis(op, 1, scale))


def _is_spread(call: Call) -> bool:
    """Scale and zero point have one axis, or one element."""
    return any(len(sizes) > 1 and set(sizes) != {1} for sizes in map(dims, call.args[1:]))


_FLOAT32 = frozenset({"float32"})
_WIDE = BYTE | {"int32"}
_COMMON = (
    dtypes(_FLOAT32, operand=1),
    dtypes(_WIDE, operand=2),
    unless(_is_spread, "the scale varies along more than one axis"),
)

TABLE: Table = {
    "relax.quantize": Entry(
        _quantize,
        (
            dtypes(_FLOAT32, operand=0),
            *_COMMON,
            unless(lambda call: str(call.ty.dtype) not in BYTE, "the result is not of 8 bits"),
        ),
        (3,),
    ),
    "relax.dequantize": Entry(
        _dequantize,
        (
            dtypes(_WIDE, operand=0),
            *_COMMON,
            unless(lambda call: str(call.ty.dtype) != "float32", "the result is not float32"),
        ),
        (3,),
    ),
}
