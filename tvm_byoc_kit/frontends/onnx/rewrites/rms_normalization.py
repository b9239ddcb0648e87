"""RMSNormalization over all axes, for which TVM's lowering of its own operator fails."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    replaces,
)

__all__ = ["rewrite"]

_EPSILON = 1e-5


@replaces("RMSNormalization")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write out every RMSNormalization that leaves no axis."""
    said, shape = attributes_of(node), scope.shape(node.input[0])
    if not shape or int(said.get("axis", -1)) % len(shape) != 0:
        return False
    stash = int(said.get("stash_type", TensorProto.FLOAT))
    kind = helper.tensor_dtype_to_np_dtype(stash)
    x = new.add("Cast", [node.input[0]], to=stash)
    axes = new.constant(np.arange(len(shape)))
    mean = new.add("ReduceMean", [new.add("Mul", [x, x]), axes], keepdims=1)
    epsilon = new.constant(said.get("epsilon", _EPSILON), kind)
    root = new.add("Sqrt", [new.add("Add", [mean, epsilon])])
    y = new.add("Cast", [new.add("Div", [x, root])], to=scope.dtype(node.input[0]))
    new.add("Mul", [y, node.input[1]], node.output[0])
    return True
