"""CastLike as the Cast that it is, since the type is known: a constant can then be folded."""

from __future__ import annotations

import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Replacement,
    Scope,
    attributes_of,
    replace_nodes,
)

__all__ = ["rewrite"]


def rewrite(model: onnx.ModelProto) -> int:
    """Replace every CastLike whose type is known."""
    return replace_nodes(model, _replace)


def _replace(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    if node.op_type != "CastLike" or node.domain not in MAIN_DOMAINS:
        return False
    dtype = scope.dtype(node.input[1])
    if not dtype:
        return False
    new.add("Cast", [node.input[0]], node.output[0], to=dtype, **attributes_of(node))
    return True
