"""Constant nodes in the one form that TVM's converter reads: a tensor in `value`."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    describe,
    replaces,
)
from tvm_byoc_kit.frontends.onnx.structure import dense_tensor

__all__ = ["rewrite"]


@replaces("Constant")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Turn numbers, lists of numbers and sparse tensors into dense tensors; refuse strings."""
    attribute = next(iter(node.attribute), None)
    if attribute is None:
        raise ModelError(f"{describe(node, scope)} has no value")
    if attribute.name == "value" and attribute.t.data_type != onnx.TensorProto.STRING:
        return False
    if attribute.name == "sparse_value":
        value: np.ndarray | None = dense_tensor(attribute.sparse_tensor)
    else:
        value = scope.constant(node.output[0])
    if value is None or value.dtype.kind not in "fiub":
        raise ModelError(
            f"{describe(node, scope)} holds {attribute.name}: text has no form in TVM. Do this "
            "part of the model outside"
        )
    tensor = onnx.numpy_helper.from_array(value)
    new.add("Constant", [], node.output[0], value=tensor)
    return True
