"""What is known once the input shapes are: sizes, what is computed from them, branches taken.

onnxsim does this too, and more; but it is not always installed or taken, and TVM's importer cannot
use a computed shape as a number in every operator. A size is folded also where other dimensions
of the same value stay open.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Replacement,
    Scope,
    replace_nodes,
)
from tvm_byoc_kit.frontends.onnx.rewrites.size_arithmetic import has_open, of_sizes
from tvm_byoc_kit.frontends.onnx.rewrites.sizes import rewrite as write_sizes
from tvm_byoc_kit.frontends.onnx.shapes import infer_types

__all__ = ["rewrite"]

# Arithmetic on sizes; everything else is left to TVM's own constant folding.
_OPERATORS = frozenset(
    (
        *("Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Pow", "Sqrt"),
        *("Ceil", "Floor", "Reciprocal", "Cast", "CastLike", "Identity", "Where", "Not"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"),
        *("Gather", "Slice", "Concat", "Split", "Squeeze", "Unsqueeze", "Reshape", "Flatten"),
        *("Expand", "Tile", "Transpose", "ConstantOfShape", "Range", "Shape", "Size", "NonZero"),
        *("ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ScatterElements", "ScatterND"),
    )
)
_MOST_ELEMENTS = 65536


def rewrite(model: onnx.ModelProto) -> int:
    """Replace nodes whose results are known by constants, and an If by the branch it takes.

    What is computed from open sizes is written anew, after which more of them may be known.
    """
    count = _fold(model)
    while written := write_sizes(model):
        infer_types(model)
        found = _fold(model)
        count += written + found
        if not found:
            break
    return count


def _fold(model: onnx.ModelProto) -> int:
    count = 0
    while found := replace_nodes(model, _Folder()):
        count += found
        infer_types(model)  # a branch taken, or a shape known, may decide what comes after it
    return count


class _Folder:
    """What `replace_nodes` calls for each node; remembers the results within one pass."""

    def __init__(self) -> None:
        self._values: dict[tuple[int, str], np.ndarray] = {}

    def __call__(self, node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
        if node.domain not in MAIN_DOMAINS:
            return False
        if node.op_type == "If":
            return self._take_branch(node, scope, new)
        if node.op_type not in _OPERATORS:
            return False
        results = self._of_sizes(node, scope)
        if results is None:
            results = self._of_constants(node, scope)
        if results is None or any(value.size > _MOST_ELEMENTS for value in results):
            return False
        for name, value in zip(node.output, results, strict=True):
            if name:
                self._values[id(scope.graph), name] = value
                new.add("Constant", [], name, value=numpy_helper.from_array(value))
        return True

    def _value(self, name: str, scope: Scope) -> np.ndarray | None:
        found = self._values.get((id(scope.graph), name))
        return scope.constant(name) if found is None else found

    def _of_sizes(self, node: onnx.NodeProto, scope: Scope) -> list[np.ndarray] | None:
        """The result where the node picks known sizes among open ones."""
        sizes = of_sizes(node, scope, lambda name: self._value(name, scope))
        if sizes is None:
            return None
        if has_open(sizes):
            self._values[id(scope.graph), node.output[0]] = sizes
            return None
        if sizes.dtype != object:
            return [sizes]
        dtype = scope.dtype(node.output[0]) or onnx.TensorProto.INT64
        return [sizes.astype(helper.tensor_dtype_to_np_dtype(dtype))]

    def _of_constants(self, node: onnx.NodeProto, scope: Scope) -> list[np.ndarray] | None:
        inputs = {}
        for name in filter(None, node.input):
            value = self._value(name, scope)
            if value is None or value.size > _MOST_ELEMENTS or value.dtype.kind not in "iufb":
                return None
            inputs[name] = value
        if node.op_type == "Div" and any((value < 0).any() for value in inputs.values()):
            return None  # ONNX does not say which way integers are rounded
        return _evaluate(node, inputs, scope.opset) if inputs else None

    def _take_branch(self, node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
        condition = self._value(node.input[0], scope)
        if condition is None or condition.size != 1:
            return False
        wanted = "then_branch" if condition.reshape(()) else "else_branch"
        body = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        # Names in a body may hide those of the graph around it; then the If stays.
        inner = {name for part in body.node for name in part.output}
        inner |= {tensor.name for tensor in body.initializer}
        if any(scope.defines(name) for name in inner if name):
            return False
        for tensor in body.initializer:
            new.add("Constant", [], tensor.name, value=tensor)
        new.nodes.extend(body.node)
        for value, name in zip(body.output, node.output, strict=True):
            if name:
                new.add("Identity", [value.name], name)
        return True


def _evaluate(
    node: onnx.NodeProto, inputs: Mapping[str, np.ndarray], opset: int
) -> list[np.ndarray] | None:
    outputs = [name or f"unused output {i}" for i, name in enumerate(node.output)]
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    bare.domain = ""
    bare.output[:] = outputs
    tensors = [numpy_helper.from_array(value, name) for name, value in inputs.items()]
    results = [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in outputs]
    graph = helper.make_graph([bare], "folded", [], results, tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(model).run(None, {})
    except Exception:  # noqa: BLE001  NumPy's errors and the evaluator's own; the node stays
        return None
    return [np.asarray(value) for value in values]
