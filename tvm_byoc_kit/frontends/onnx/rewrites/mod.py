"""Mod of floats with the divisor's sign: TVM's, ``x - floor(x / y) * y``, is NaN for infinite y."""

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

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


@replaces("Mod")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write the floored remainder of floats as the truncated one, plus the divisor where needed."""
    dtype = scope.dtype(node.input[0])
    if dtype not in _FLOATS or attributes_of(node).get("fmod", 0):
        return False
    zero = new.constant(np.zeros((), helper.tensor_dtype_to_np_dtype(dtype)))
    divisor = node.input[1]
    rest = new.add("Mod", node.input, fmod=1)
    signs_differ = new.add("Xor", [new.add("Less", [rest, zero]), new.add("Less", [divisor, zero])])
    is_zero = new.add("Equal", [rest, zero])
    whole = new.add("And", [signs_differ, new.add("Not", [is_zero])])
    new.add("Where", [whole, new.add("Add", [rest, divisor]), rest], node.output[0])
    return True
