"""Dropout of inference: the value itself, and a mask of ones, which TVM gives another type."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]

_MASK_IS_BOOL = 10
_HAS_TRAINING_MODE = 12
_RATIO = 0.5


@replaces("Dropout")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every Dropout; refuse those that drop."""
    if _drops(node, scope):
        raise ModelError(
            f"{describe(node, scope)} drops at random (its training_mode is, or may be, true); "
            "export the model for inference, with training_mode false"
        )
    new.add("Identity", [node.input[0]], node.output[0])
    if len(node.output) > 1 and node.output[1]:
        _write_mask(node, scope, new)
    return True


def _drops(node: onnx.NodeProto, scope: Scope) -> bool:
    _, ratio, training = [*node.input, "", ""][:3]
    if scope.opset < _HAS_TRAINING_MODE:
        return bool(attributes_of(node).get("is_test", 1) == 0)
    if not training:
        return False
    mode = scope.constant(training)
    if mode is not None and not mode.any():
        return False
    share = scope.constant(ratio) if ratio else np.asarray(_RATIO)
    return share is None or bool(share.any())


def _write_mask(node: onnx.NodeProto, scope: Scope, new: Replacement) -> None:
    x, mask = node.input[0], node.output[1]
    dtype = bool if scope.opset >= _MASK_IS_BOOL else _dtype(scope, x)
    shape = scope.static_shape(x)
    if shape is not None:
        new.add("Identity", [new.constant(np.ones(shape), dtype)], mask)
    else:
        new.add("Expand", [new.constant(1, dtype), new.add("Shape", [x])], mask)


def _dtype(scope: Scope, name: str) -> Any:
    return helper.tensor_dtype_to_np_dtype(scope.dtype(name) or onnx.TensorProto.FLOAT)
