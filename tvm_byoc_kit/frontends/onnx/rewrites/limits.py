"""Inputs that TVM must know when it imports: axes, counts, sizes, thresholds.

What is computed from constants and fixed shapes has been folded before. Where such an input depends
on the model's inputs, the node is refused here: TVM's converter of NonMaxSuppression would take
defaults for it, others would fail in words that do not say why.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    describe,
    replaces,
)

__all__ = ["rewrite"]


@dataclass(frozen=True)
class _Limit:
    """An input that must be known.

    Parameters
    ----------
    name : str
        ONNX's name of the input.
    default : numpy.ndarray, optional
        What ONNX takes where it is left out, and TVM does not.
    computed : bool
        Whether the importer also takes a value that depends on open dimensions.
    """

    name: str
    default: np.ndarray | None = None
    computed: bool = False


_REDUCTIONS = (
    *("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2"),
    *("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)
_LIMITS: dict[str, dict[int, _Limit]] = {
    "NonMaxSuppression": {
        2: _Limit("max_output_boxes_per_class", np.zeros(1, np.int64)),
        3: _Limit("iou_threshold", np.zeros(1, np.float32)),
        4: _Limit("score_threshold", np.full(1, np.finfo(np.float32).min)),
    },
    "TopK": {1: _Limit("K")},
    "OneHot": {1: _Limit("depth"), 2: _Limit("values")},
    "Pad": {1: _Limit("pads"), 2: _Limit("constant_value"), 3: _Limit("axes")},
    "Reshape": {1: _Limit("shape", computed=True)},
    "Expand": {1: _Limit("shape", computed=True)},  # TVM would not broadcast, but take the shape
    "Squeeze": {1: _Limit("axes")},
    "Resize": {2: _Limit("scales", computed=True), 3: _Limit("sizes", computed=True)},
    "Upsample": {1: _Limit("scales")},
    "Split": {1: _Limit("split")},
    "CumSum": {1: _Limit("axis")},
    "ConstantOfShape": {0: _Limit("input", computed=True)},
    "MaxUnpool": {2: _Limit("output_shape")},
    "AffineGrid": {1: _Limit("size", computed=True)},
    "SequenceAt": {1: _Limit("position")},
    **{operator: {1: _Limit("axes")} for operator in _REDUCTIONS},
}


@replaces(*_LIMITS)
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Refuse inputs of :data:`_LIMITS` that are not known; write out defaults that TVM has not."""
    inputs = list(node.input)
    for index, limit in _LIMITS[node.op_type].items():
        if index < len(inputs) and inputs[index]:
            _check(node, index, limit, scope)
        elif limit.default is not None:
            inputs += [""] * (index + 1 - len(inputs))
            inputs[index] = new.constant(limit.default)
    if inputs == list(node.input):
        return False
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[:] = inputs
    new.nodes.append(changed)
    return True


def _check(node: onnx.NodeProto, index: int, limit: _Limit, scope: Scope) -> None:
    name = node.input[index]
    if scope.constant(name) is not None:
        return
    if limit.computed and _depends_on_open_sizes(name, scope):
        return
    raise ModelError(
        f"{describe(node, scope)} takes `{limit.name}` from '{name}', which depends on the model's "
        "inputs; it must be known when the model is imported. Make it an initializer (or a "
        "Constant) with the value that you need, and import again"
    )


def _depends_on_open_sizes(name: str, scope: Scope) -> bool:
    """Whether `name` is computed from constants and shapes alone, so that TVM may follow it."""
    pending, seen = [name], set[str]()
    while pending:
        value = pending.pop()
        if value in seen or scope.constant(value) is not None:
            continue
        seen.add(value)
        node = scope.producer(value)
        if node is None or any(attribute.type == attribute.GRAPH for attribute in node.attribute):
            return False
        if node.op_type not in ("Shape", "Size"):
            pending.extend(filter(None, node.input))
    return True
