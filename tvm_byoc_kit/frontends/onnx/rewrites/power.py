"""Pow of integers, and of two types: TVM's power takes floats of one type.

The result has the base's type. Integers are computed in double, as ONNX Runtime does.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import Replacement, Scope, replaces

__all__ = ["rewrite"]

_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@replaces("Pow")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Cast around every Pow that needs it."""
    base, exponent = (scope.dtype(name) for name in node.input)
    if not base or not exponent or (base == exponent and base in _FLOATS):
        return False
    if base in _FLOATS:
        cast = new.add("Cast", [node.input[1]], to=base)
        new.add("Pow", [node.input[0], cast], node.output[0])
        return True
    doubles = [new.add("Cast", [name], to=TensorProto.DOUBLE) for name in node.input]
    new.add("Cast", [new.add("Pow", doubles)], node.output[0], to=base)
    return True
