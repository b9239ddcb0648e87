"""OneHot as a comparison with the numbers below the depth: TVM's converter takes no tensors."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]

_AXES_ARE_INPUTS = 13


@replaces("OneHot")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every OneHot; the depth must be a constant."""
    indices, depth_name, values = node.input
    depth, shape = scope.constant(depth_name), scope.shape(indices)
    if depth is None or shape is None:
        raise ModelError(
            f"{describe(node, scope)} has indices of unknown rank, or a depth that is no constant"
        )
    rank = len(shape) + 1
    axis = int(attributes_of(node).get("axis", -1)) % rank
    count = int(depth.reshape(-1)[0])
    indices = new.add("Cast", [indices], to=TensorProto.INT64)
    below = new.add("Less", [indices, new.constant(np.int64(0))])
    wrapped = new.add("Add", [indices, new.constant(np.int64(count))])
    indices = new.add("Where", [below, wrapped, indices])
    if scope.opset >= _AXES_ARE_INPUTS:
        indices = new.add("Unsqueeze", [indices, new.constant([axis])])
    else:
        indices = new.add("Unsqueeze", [indices], axes=[axis])
    numbers = np.arange(count).reshape([-1 if i == axis else 1 for i in range(rank)])
    hit = new.add("Equal", [indices, new.constant(numbers)])
    off, on = (
        new.add("Gather", [values, new.constant(np.int64(index))], axis=0) for index in (0, 1)
    )
    new.add("Where", [hit, on, off], node.output[0])
    return True
