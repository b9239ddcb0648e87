"""Reductions of no elements, of booleans, and of infinities alone.

TVM's code gives what it finds in memory for an axis of no elements; ONNX each reduction's neutral
element. Its maximum begins with the lowest finite number, so that of a row of -inf, as attention
masks have, is not -inf; the minimum likewise. That costs a second reduction to put right, which is
done where a constant that the values are computed from is infinite.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else -np.inf


def _highest(dtype: np.dtype) -> Any:
    if dtype.kind in "iu":
        return np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.inf


_OF_NOTHING: dict[str, Any] = {
    **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceL2", "ReduceSumSquare"), lambda _: 0),
    "ReduceProd": lambda _: 1,
    "ReduceMean": lambda _: np.nan,
    "ReduceMax": _lowest,
    "ReduceMin": _highest,
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), lambda _: -np.inf),
}


_BOUNDS = {"ReduceMax": -np.inf, "ReduceMin": np.inf}
_INFINITIES = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@replaces(*_OF_NOTHING)
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace the reductions that TVM gets wrong, or does not have."""
    shape = scope.shape(node.input[0])
    dtype = scope.dtype(node.input[0])
    if shape is not None and 0 in shape:
        return _replace_empty(node, scope, new, shape)
    if dtype in _INFINITIES and node.op_type in _BOUNDS and _meets_infinity(node, scope):
        _replace_infinite(node, scope, new)
        return True
    if dtype == TensorProto.BOOL and node.op_type in ("ReduceMax", "ReduceMin"):
        narrow = new.add("Cast", [node.input[0]], to=TensorProto.UINT8)
        reduced = new.add(node.op_type, [narrow, *node.input[1:]], **attributes_of(node))
        new.add("Cast", [reduced], node.output[0], to=TensorProto.BOOL)
        return True
    return False


def _meets_infinity(node: onnx.NodeProto, scope: Scope) -> bool:
    """Whether a constant behind the node's input holds the infinity that its result may be."""
    producers = {name: maker for maker in scope.graph.node for name in maker.output}
    seen, pending = set[str](), [node.input[0]]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        value = scope.constant(name)
        if value is not None and value.dtype.kind == "f" and np.isinf(value).any():
            return True
        if name in producers:
            pending += [source for source in producers[name].input if source]
    return False


def _replace_infinite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> None:
    """``Where(any element is another, the reduction, infinity)``."""
    kind = helper.tensor_dtype_to_np_dtype(scope.dtype(node.input[0]))
    infinity = new.constant(_BOUNDS[node.op_type], kind)
    said = attributes_of(node)
    other = new.add("Not", [new.add("Equal", [node.input[0], infinity])])
    count = new.add("Cast", [other], to=TensorProto.INT32)
    most = new.add("ReduceMax", [count, *node.input[1:]], **said)
    reduced = new.add(node.op_type, node.input, **said)
    any_other = new.add("Cast", [most], to=TensorProto.BOOL)
    new.add("Where", [any_other, reduced, infinity], node.output[0])


def _replace_empty(
    node: onnx.NodeProto, scope: Scope, new: Replacement, shape: tuple[int | str | None, ...]
) -> bool:
    said = attributes_of(node)
    axes = said.get("axes")
    if axes is None and len(node.input) > 1 and node.input[1]:
        axes = scope.constant(node.input[1])
        if axes is None:
            raise ModelError(
                f"{describe(node, scope)} reduces a tensor of no elements over axes that are "
                "computed or given at run time, which TVM gets wrong; make the axes constant"
            )
    if axes is None or len(axes) == 0:
        axes = [] if said.get("noop_with_empty_axes", 0) else range(len(shape))
    reduced = {int(axis) % len(shape) for axis in axes}
    result = [1 if i in reduced else dim for i, dim in enumerate(shape)]
    if not any(shape[axis] == 0 for axis in reduced):
        return False  # the result has no elements either
    if not said.get("keepdims", 1):
        result = [dim for i, dim in enumerate(result) if i not in reduced]
    sizes = [dim for dim in result if isinstance(dim, int)]
    if len(sizes) < len(result):
        raise ModelError(
            f"{describe(node, scope)} reduces a tensor of no elements, which TVM gets wrong; fix "
            "its other sizes with load_model(..., shapes=...)"
        )
    dtype = helper.tensor_dtype_to_np_dtype(scope.dtype(node.input[0]))
    value = np.full(sizes, _OF_NOTHING[node.op_type](dtype), dtype)
    new.add("Identity", [new.constant(value)], node.output[0])
    return True
