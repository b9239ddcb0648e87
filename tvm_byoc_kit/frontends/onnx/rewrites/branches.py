"""If whose condition is not known at import: both branches computed, and one result selected.

TVM's importer takes an If, but no branch with an operator of several outputs, and no pass that
partitions takes a function with one. Models have no side effects, so that both branches may
be computed; only what could fail on values that the branch was there to keep away stays an If.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    replaces,
)

__all__ = ["rewrite"]

_WHERE = 9  # the opset that brought Where
_INTEGERS = (
    *(TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64),
    *(TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64),
)
# Operators that read or write where an input says, and which input that is.
_INDEXED = {
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), 1),
    **dict.fromkeys(("Scatter", "ScatterElements", "ScatterND"), 1),
    "OneHot": 0,
}


@replaces("If")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every If whose branches give the same shapes and cannot fail."""
    if scope.opset < _WHERE:
        return False
    bodies = {attribute.name: attribute.g for attribute in node.attribute}
    branches = [Scope(bodies[name], scope.opset, scope) for name in ("then_branch", "else_branch")]
    if not all(_is_safe(branch) for branch in branches) or not _give_the_same(*branches):
        return False
    condition = _scalar(node.input[0], scope, new)
    if not condition:
        return False
    results = [_inline(branch, new) for branch in branches]
    for name, first, second in zip(node.output, *results, strict=True):
        if name:
            new.add("Where", [condition, first, second], name)
    return True


def _give_the_same(first: Scope, second: Scope) -> bool:
    for one, other in zip(first.graph.output, second.graph.output, strict=True):
        shape = first.shape(one.name)  # the same name is the same size
        if shape is None or None in shape or shape != second.shape(other.name):
            return False
        if not first.dtype(one.name) or first.dtype(one.name) != second.dtype(other.name):
            return False
    return True


def _is_safe(branch: Scope) -> bool:
    for node in branch.graph.node:
        if any(attribute.type == attribute.GRAPH for attribute in node.attribute):
            return False
        if node.op_type in _INDEXED:
            if branch.constant(node.input[_INDEXED[node.op_type]]) is None:
                return False
        elif node.op_type in ("Div", "Mod") and branch.dtype(node.output[0]) in (*_INTEGERS, 0):
            divisor = branch.constant(node.input[1])
            if divisor is None or not divisor.all():
                return False
    return True


def _scalar(name: str, scope: Scope, new: Replacement) -> str:
    """The condition without a dimension; empty where its shape is not known."""
    shape = scope.static_shape(name)
    if shape == ():
        return name
    if shape is None or set(shape) != {1}:  # ONNX says one element, of whatever rank
        return ""
    return new.add("Reshape", [name, new.constant([], "int64")])


def _inline(branch: Scope, new: Replacement) -> list[str]:
    """Add the branch's nodes under names of their own; gives the names of its results."""
    renamed: dict[str, str] = {}
    for tensor in branch.graph.initializer:
        renamed[tensor.name] = new.add("Constant", [], value=tensor)
    for node in branch.graph.node:
        inlined = onnx.NodeProto()
        inlined.CopyFrom(node)
        inlined.name = new.names.fresh(node.name or node.op_type)
        inlined.input[:] = [renamed.get(name, name) for name in node.input]
        for name in filter(None, node.output):
            renamed[name] = new.names.fresh(name)
        inlined.output[:] = [renamed[name] if name else "" for name in node.output]
        new.nodes.append(inlined)
    return [renamed.get(value.name, value.name) for value in branch.graph.output]
