"""Products of matrices, and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, tensor
from tvm_byoc_kit.backends.openvino.opset import integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import FLOAT, dims, dtypes, same_dtype, unless

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _matmul(_op: Op, x: Node, y: Node) -> Node:
    return opset.matmul(x, y, transpose_a=False, transpose_b=False)


def _outer(_op: Op, x: Node, y: Node) -> Node:
    return opset.multiply(opset.unsqueeze(x, integers(1)), opset.unsqueeze(y, integers(0)))


def _einsum(op: Op, operands: tuple[Node, ...]) -> Node:
    equation = "".join(op.attrs["subscripts"].split())
    nodes = [_as_node(operand) for operand in operands]
    return opset.einsum(nodes, equation)


def _as_node(operand: Node) -> Node:
    """`Einsum` of OpenVINO's Python takes nodes only, and no outputs of them."""
    return (
        operand.get_node() if hasattr(operand, "get_node") and operand.get_index() == 0 else operand
    )


_HEADS_FIRST = (0, 2, 1, 3)


def _attention(op: Op, q: Node, k: Node, v: Node, bias: Node | None = None) -> Node:
    """Relax has the heads behind the sequence, OpenVINO before it."""
    q, k, v = (opset.transpose(x, integers(_HEADS_FIRST)) for x in (q, k, v))
    dtype, size = op.results[0].dtype, tensor(op).shape[-1]
    scale = op.attrs["scale"]
    factor = scalar(float(size) ** -0.5 if scale is None else scale, dtype)
    if bias is None:
        bias = scalar(0, dtype)
    causal = op.attrs["causal_mask"] is not None
    attended = (
        opset.scaled_dot_product_attention(q, k, v, scale=factor, causal=True)
        if causal
        else opset.scaled_dot_product_attention(q, k, v, bias, factor, causal=False)
    )
    return opset.transpose(attended, integers(_HEADS_FIRST))


def _mask_is_at_the_end(call: Call) -> bool:
    lengths = dims(call.args[0])[1], dims(call.args[1])[1]
    return call.attrs.causal_mask == "BottomRight" and (None in lengths or lengths[0] != lengths[1])


def _has_mask_and_bias(call: Call) -> bool:
    return call.attrs.causal_mask is not None


_PRODUCT = (dtypes(FLOAT, "OpenVINO multiplies matrices of integers as float32"), same_dtype)
_ATTENTION = (
    *_PRODUCT,
    unless(lambda call: call.attrs.window_size is not None, "has a sliding window"),
    unless(_mask_is_at_the_end, "is masked from the bottom right"),
    unless(lambda call: dims(call.args[0])[-1] is None, "the size of the heads is symbolic"),
)

TABLE: Table = {
    "relax.matmul": Entry(_matmul, _PRODUCT, (2,)),
    "relax.outer": Entry(_outer, _PRODUCT, (2,)),
    "relax.einsum": Entry(_einsum, _PRODUCT),
    "relax.nn.attention": Entry(_attention, _ATTENTION, (3,)),
    "relax.nn.attention_bias": Entry(
        _attention, (*_ATTENTION, unless(_has_mask_and_bias, "has a bias and a mask")), (4,)
    ),
}
