"""NonMaxSuppression's overlap threshold: ONNX drops a box above it, TVM one that is at it, too."""

from __future__ import annotations

import numpy as np
import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    replaces,
)

__all__ = ["rewrite"]

_THRESHOLD = 3


@replaces("NonMaxSuppression")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Give every NonMaxSuppression the next larger float32; the limits must be constants."""
    threshold = scope.constant(node.input[_THRESHOLD])
    if threshold is None:
        return False
    moved = onnx.NodeProto.FromString(node.SerializeToString())
    next_larger = np.nextafter(threshold.astype(np.float32), np.float32(np.inf))
    # Denormal numbers count as 0, which TVM takes for no threshold at all.
    moved.input[_THRESHOLD] = new.constant(np.maximum(next_larger, np.finfo(np.float32).tiny))
    new.nodes.append(moved)
    return True
