"""SpaceToDepth in the order column-row-depth, whose attribute TVM's converter does not look at."""

from __future__ import annotations

import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]


@replaces("SpaceToDepth")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write it as reshapes and a transposition."""
    said = attributes_of(node)
    if said.get("mode", b"DCR") == b"DCR":
        return False
    shape = scope.shape(node.input[0])
    if shape is None or not all(isinstance(dim, int) for dim in shape[1:]):
        raise ModelError(
            f"{describe(node, scope)} has mode CRD, which is imported for known channels, height "
            "and width only; fix them with load_model(..., shapes=...)"
        )
    block = int(said["blocksize"])
    channels, height, width = (int(dim) for dim in shape[1:] if isinstance(dim, int))
    rows, columns = height // block, width // block
    split = new.constant([-1, channels, rows, block, columns, block])
    x = new.add("Reshape", [node.input[0], split])
    x = new.add("Transpose", [x], perm=[0, 1, 3, 5, 2, 4])
    joined = new.constant([-1, channels * block * block, rows, columns])
    new.add("Reshape", [x, joined], node.output[0])
    return True
