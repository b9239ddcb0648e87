"""Triangles of matrices, and tensors of one value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry
from tvm_byoc_kit.backends.openvino.opset import element_type, integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import ANY, constant_numbers, dtypes, same_dtype

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.ops.table import Converter, Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _counted(x: Node, axis: int) -> Node:
    """0, 1, 2, … along `axis` of `x`, as a column for the last but one axis, else as a row."""
    size = opset.gather(opset.shape_of(x), integers(axis), integers(0))
    numbers = opset.range(integers(0), size, integers(1), "i64")
    return opset.unsqueeze(numbers, integers(1 if axis == -2 else 0))  # noqa: PLR2004 - rows


def _triangle(op: Op, x: Node, offset: int, *, upper: bool) -> Node:
    """What is on the side of the diagonal `offset` columns to the right, and zeros."""
    diagonal = opset.add(_counted(x, -2), integers(offset))
    columns = _counted(x, -1)
    kept = opset.greater_equal(columns, diagonal) if upper else opset.less_equal(columns, diagonal)
    return opset.select(kept, x, scalar(0, op.results[0].dtype))


def _lower(op: Op, x: Node, offset: int) -> Node:
    return _triangle(op, x, offset, upper=False)


def _upper(op: Op, x: Node, offset: int) -> Node:
    return _triangle(op, x, offset, upper=True)


def _filled_like(value: int) -> Converter:
    def convert(op: Op, x: Node) -> Node:
        return opset.broadcast(scalar(value, op.results[0].dtype), opset.shape_of(x))

    return convert


def _full_like(op: Op, x: Node, value: Node) -> Node:
    filling = opset.convert(value, element_type(op.results[0].dtype))
    return opset.broadcast(filling, opset.shape_of(x))


_MOVED = (dtypes(ANY), same_dtype)
_TRIANGLE = (*_MOVED, constant_numbers)

TABLE: Table = {
    "relax.tril": Entry(_lower, _TRIANGLE, (2,)),
    "relax.triu": Entry(_upper, _TRIANGLE, (2,)),
    "relax.zeros_like": Entry(_filled_like(0), (dtypes(ANY),)),
    "relax.ones_like": Entry(_filled_like(1), (dtypes(ANY),)),
    "relax.full_like": Entry(_full_like, (dtypes(ANY),), (2,)),
}
