"""CastLike as the Cast that it is, since the type is known: a constant can then be folded."""

from __future__ import annotations

import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    replaces,
)

__all__ = ["rewrite"]


@replaces("CastLike")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every CastLike whose type is known."""
    dtype = scope.dtype(node.input[1])
    if not dtype:
        return False
    new.add("Cast", [node.input[0]], node.output[0], to=dtype, **attributes_of(node))
    return True
