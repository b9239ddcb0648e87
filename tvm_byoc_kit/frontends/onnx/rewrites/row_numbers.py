"""GatherND that takes each row by its number: what it takes is then along the other axes alone.

Exporters write ``mask[batch_index, key_index]`` so for a mask of attention, where the first index
counts the rows of the batch. Said by `batch_dims`, it is plain that rows stay apart.
"""

from __future__ import annotations

import onnx
from onnx import numpy_helper

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    replaces,
)

__all__ = ["rewrite"]

_BATCH_DIMS = 12  # the opset that brought them


@replaces("GatherND")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Say `batch_dims` where the first index is the row's own number."""
    if scope.opset < _BATCH_DIMS:
        return False
    joined = scope.producer(node.input[1])
    data, indices = map(scope.shape, node.input)
    if joined is None or joined.op_type != "Concat" or not data or not indices:
        return False
    rows, *others = joined.input
    is_last = attributes_of(joined)["axis"] in (-1, len(indices) - 1)
    if not others or not is_last or attributes_of(node).get("batch_dims", 0):
        return False
    if not isinstance(data[0], str) or data[0] != indices[0] or not _are_numbers(rows, scope):
        return False
    rest = others[0] if len(others) == 1 else new.add("Concat", others, axis=-1)
    new.add("GatherND", [node.input[0], rest], node.output[0], batch_dims=1)
    return True


def _are_numbers(name: str, scope: Scope) -> bool:
    """Whether it holds at each place the number of its row, as `sizes` writes a Range."""
    node = scope.producer(name)
    while node is not None and _keeps_rows(node, scope):
        node = scope.producer(node.input[0])
    if node is None or node.op_type != "CumSum" or not attributes_of(node).get("exclusive"):
        return False
    ones = scope.producer(node.input[0])
    if ones is None or ones.op_type != "ConstantOfShape" or not ones.attribute:
        return False
    return bool((numpy_helper.to_array(attributes_of(ones)["value"]) == 1).all())


def _keeps_rows(node: onnx.NodeProto, scope: Scope) -> bool:
    """Whether the first axis is left where it is."""
    before, after = scope.shape(node.input[0]), scope.shape(node.output[0])
    if node.op_type == "Unsqueeze":
        axes = attributes_of(node).get("axes") or scope.constant(node.input[1])
        return axes is not None and after is not None and all(axis % len(after) for axis in axes)
    if node.op_type == "Expand":
        return before is not None and after is not None and len(before) == len(after)
    return node.op_type in ("Cast", "Identity")
