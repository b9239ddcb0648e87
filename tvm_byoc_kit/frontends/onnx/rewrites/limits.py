"""Inputs that TVM must know when it imports: axes, counts, sizes, thresholds.

Where such an input is computed from constants and fixed shapes, its value is put in its place.
Where it depends on the model's inputs, the node is refused here: TVM's converter of
NonMaxSuppression would take defaults for it, others would fail in words that do not say why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Replacement,
    Scope,
    describe,
    replace_nodes,
)

__all__ = ["rewrite"]


def rewrite(model: onnx.ModelProto) -> int:
    """Make the inputs of :data:`_LIMITS` constant; refuse those that depend on the model's inputs.

    Raises
    ------
    ModelError
        Also for Dropout in training mode.
    """
    producers: dict[int, Mapping[str, onnx.NodeProto]] = {}

    def replace(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
        if node.domain not in MAIN_DOMAINS or node.op_type not in _LIMITS:
            return False
        values = _Values(scope, producers)
        inputs = list(node.input)
        for index, limit in _LIMITS[node.op_type].items():
            if index < len(inputs) and inputs[index]:
                inputs[index] = _fixed(node, index, limit, values, new)
            elif limit.default is not None:
                inputs += [""] * (index + 1 - len(inputs))
                inputs[index] = new.constant(limit.default)
        if inputs == list(node.input):
            return False
        changed = onnx.NodeProto()
        changed.CopyFrom(node)
        del changed.input[:]
        changed.input.extend(inputs)
        new.nodes.append(changed)
        return True

    return replace_nodes(model, replace)


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
    allowed : callable, optional
        Which values are supported.
    """

    name: str
    default: np.ndarray | None = None
    computed: bool = False
    allowed: Callable[[np.ndarray], bool] | None = None


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
    "Dropout": {2: _Limit("training_mode", allowed=lambda value: not value.any())},
    "TopK": {1: _Limit("K")},
    "OneHot": {1: _Limit("depth"), 2: _Limit("values")},
    "Pad": {1: _Limit("pads"), 2: _Limit("constant_value"), 3: _Limit("axes")},
    "Reshape": {1: _Limit("shape", computed=True)},
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


def _fixed(
    node: onnx.NodeProto, index: int, limit: _Limit, values: _Values, new: Replacement
) -> str:
    name: str = node.input[index]
    value = values.scope.constant(name)
    known = value is not None
    if value is None:
        try:
            value = values.evaluate(name)
        except _OpenError:
            if limit.computed:
                return name
        except _DataError:
            pass
    if value is None:
        raise ModelError(
            f"{describe(node, values.scope)} takes `{limit.name}` from '{name}', which depends on "
            "the model's inputs; it must be known when the model is imported. Make it an "
            "initializer (or a Constant) with the value that you need, and import again"
        )
    if limit.allowed is not None and not limit.allowed(value):
        raise ModelError(
            f"{describe(node, values.scope)} has `{limit.name}` = {value.tolist()}, which is not "
            "supported; export the model for inference"
        )
    return name if known else new.constant(value)


class _DataError(Exception):
    """A value depends on what the model is given."""


class _OpenError(_DataError):
    """A value depends on a dimension that stays open."""


_MOST_NODES = 500


class _Values:
    """Computes what depends on constants and shapes alone, with onnx's reference evaluator."""

    def __init__(self, scope: Scope, producers: dict[int, Mapping[str, onnx.NodeProto]]) -> None:
        self.scope = scope
        self._producers = producers

    def evaluate(self, name: str) -> np.ndarray:
        """The value, or a _DataError."""
        nodes: dict[str, onnx.NodeProto] = {}
        known: dict[str, np.ndarray] = {}
        pending = [name]
        while pending:
            value = pending.pop()
            if value in known or value in nodes:
                continue
            found = self._known(value)
            if found is not None:
                known[value] = found
                continue
            node = self._producer(value)
            if node is None or len(nodes) > _MOST_NODES or _has_body(node):
                raise _DataError
            nodes.update(dict.fromkeys(node.output, node))
            pending.extend(filter(None, node.input))
        return self._run(name, nodes, known)

    def _known(self, name: str) -> np.ndarray | None:
        constant = self.scope.constant(name)
        if constant is not None:
            return constant
        node = self._producer(name)
        if node is None or node.op_type not in ("Shape", "Size"):
            return None
        shape = self.scope.static_shape(node.input[0])
        if shape is None:
            if self.scope.shape(node.input[0]) is None:
                raise _DataError
            raise _OpenError
        if node.op_type == "Size":
            return np.array(np.prod(shape, dtype=np.int64))
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        return np.array(shape[bounds.get("start", 0) : bounds.get("end", len(shape))], np.int64)

    def _producer(self, name: str) -> onnx.NodeProto | None:
        scope: Scope | None = self.scope
        while scope is not None:
            if id(scope.graph) not in self._producers:
                self._producers[id(scope.graph)] = {
                    output: node for node in scope.graph.node for output in node.output
                }
            if name in self._producers[id(scope.graph)]:
                return self._producers[id(scope.graph)][name]
            scope = scope.outer
        return None

    def _run(
        self, name: str, nodes: Mapping[str, onnx.NodeProto], known: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        if name in known:
            return known[name]
        order: list[onnx.NodeProto] = []
        scope: Scope | None = self.scope
        while scope is not None:
            inside = [node for node in scope.graph.node if any(o in nodes for o in node.output)]
            order, scope = [*inside, *order], scope.outer
        tensors = [numpy_helper.from_array(value, key) for key, value in known.items()]
        result = helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None)
        graph = helper.make_graph(order, "limit", [], [result], tensors)
        opset = helper.make_opsetid("", self.scope.opset)
        try:
            value = ReferenceEvaluator(helper.make_model(graph, opset_imports=[opset])).run(
                None, {}
            )
        except Exception as error:  # the reference implementation raises what NumPy does
            raise _DataError from error
        return np.asarray(value[0])


def _has_body(node: onnx.NodeProto) -> bool:
    return any(attribute.type == attribute.GRAPH for attribute in node.attribute)
