"""Attention over queries, keys and values of ``[batch, sequence, heads, features]``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Data = Tensor | np.ndarray

_HEADS_FIRST = (0, 2, 1, 3)


@converter("relax.nn.attention", "relax.nn.attention_bias")
def attention(net: NetworkBuilder, op: Op, *operands: Data) -> Tensor:
    """Two products around a softmax, which is computed in float32; TensorRT fuses them."""
    queries, keys, values = (net.transpose(x, _HEADS_FIRST) for x in operands[:3])
    scores = _product(net, queries, keys, transposed=True)
    narrow = scores.dtype
    scores = net.cast(scores, net.dtype("float32"))
    scores = net.elementwise("PROD", scores, net.scalar(_scale(op), scores))
    for bias in operands[3:]:
        scores = net.elementwise("SUM", scores, net.cast(bias, scores.dtype))
    if op.attrs["causal_mask"] is not None:
        scores = net.elementwise("SUM", scores, _causal(op))
    layer = net.network.add_softmax(scores)
    layer.axes = net.axes(scores, [-1])
    weights = net.cast(net.check(layer), narrow)
    return net.transpose(_product(net, weights, values), _HEADS_FIRST)


def _product(net: NetworkBuilder, a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    kinds = net.trt.MatrixOperation
    of_b = kinds.TRANSPOSE if transposed else kinds.NONE
    return net.check(net.network.add_matrix_multiply(a, kinds.NONE, b, of_b))


def _scale(op: Op) -> float:
    scale = op.attrs["scale"]
    queries: Any = op.operands[0]
    return 1 / math.sqrt(queries.shape[3]) if scale is None else scale


def _causal(op: Op) -> np.ndarray:
    """What is added to scores, so that a query sees no keys behind its own place.

    Its place is counted from the first, or, where there are more keys, from the last.
    """
    sizes: Any = op.operands
    queries, keys = sizes[0].shape[1], sizes[1].shape[1]
    offset = keys - queries if op.attrs["causal_mask"] == "BottomRight" else 0
    seen = np.tri(queries, keys, offset, dtype="bool")
    mask: np.ndarray = np.where(seen, np.float32(0), np.float32(-np.inf))
    return mask[None, None]
