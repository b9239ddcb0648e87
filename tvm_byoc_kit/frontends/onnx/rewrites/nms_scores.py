"""NonMaxSuppression of scores that may be negative, which TVM ranks wrong or drops.

Only a score above the threshold counts, so a threshold of 0 or more keeps negative scores out.
Below that, or without one, scores are moved up: by twice the lowest one where it is negative, and
not at all where none is. Moved scores are rounded, so two that differ by less may change places.
"""

from __future__ import annotations

import numpy as np
import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    replaces,
)

__all__ = ["rewrite"]

_SCORES, _THRESHOLD = 1, 4


@replaces("NonMaxSuppression")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Make the scores positive where the threshold, a constant by now, does not."""
    threshold = scope.constant(node.input[_THRESHOLD])
    if threshold is None or (threshold >= 0).all():
        return False
    scores = node.input[_SCORES]
    lowest = new.add("ReduceMin", [scores], keepdims=0)
    negative = new.add("Relu", [new.add("Neg", [lowest])])
    lift = new.add("Mul", [negative, new.constant(2, np.float32)])
    lifted = new.add("Add", [scores, lift])
    tiny = new.constant(np.finfo(np.float32).tiny, np.float32)
    positive = new.add("Where", [new.add("Less", [lifted, tiny]), tiny, lifted])
    limit, zero = new.constant(threshold.reshape(()), np.float32), new.constant(0, np.float32)
    counted = new.add("Where", [new.add("Greater", [scores, limit]), positive, zero])
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[_SCORES] = counted
    changed.input[_THRESHOLD] = new.constant(np.zeros(1, np.float32))
    new.nodes.append(changed)
    return True
