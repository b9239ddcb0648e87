"""Expand of a value whose sizes are open in part, or that has more axes than the target.

TVM's converter takes a constant target for one of a value whose sizes are all known. Joined from
parts, it is a shape, and open sizes pass.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    replaces,
)
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter

__all__ = ["rewrite"]


@replaces("Expand")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write the targets of such nodes as joined vectors."""
    x, target = node.input
    sizes, length = scope.shape(x), scope.static_shape(target)
    if sizes is None or length is None or scope.static_shape(x) is not None:
        return False
    missing = len(sizes) - length[0]
    if missing <= 0 and scope.constant(target) is None:
        return False
    emit = Emitter(new, scope.opset, TensorProto.INT64)
    ones = [emit.constant([1] * missing)] if missing > 0 else []
    emit("Expand", x, emit("Concat", *ones, target, axis=0), output=node.output[0])
    return True
