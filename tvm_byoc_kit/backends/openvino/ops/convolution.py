"""Convolutions, plain and transposed, of one to three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.openvino.ops.layouts import from_channels_first, spatial, to_layout
from tvm_byoc_kit.backends.openvino.ops.table import Entry
from tvm_byoc_kit.backends.openvino.opset import integers, opset
from tvm_byoc_kit.backends.openvino.predicates import (
    FLOAT,
    dtypes,
    plain_layouts,
    same_dtype,
    static_operand,
)

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _geometry(op: Op) -> dict[str, list[int]]:
    padding = list(op.attrs["padding"])
    half = len(padding) // 2
    return {
        "strides": list(op.attrs["strides"]),
        "pads_begin": padding[:half],
        "pads_end": padding[half:],
        "dilations": list(op.attrs["dilation"]),
    }


def _data_and_weights(op: Op, data: Node, weights: Node, kernel: str) -> tuple[Node, Node]:
    """Both operands channels first; `kernel` is the order of the weights' two channel axes."""
    layout = op.attrs["data_layout"]
    data = to_layout(data, layout, "NC" + spatial(layout))
    return data, to_layout(weights, op.attrs["kernel_layout"], kernel + spatial(layout))


def _by_groups(op: Op, weights: Node) -> Node:
    """Weights with the groups as an axis of its own in front: of the first channel axis."""
    sizes = weights.get_output_shape(0) if hasattr(weights, "get_output_shape") else weights.shape
    first, *rest = (int(size) for size in sizes)
    groups = op.attrs["groups"]
    return opset.reshape(weights, integers([groups, first // groups, *rest]), special_zero=False)


def _result(op: Op, node: Node) -> Node:
    return from_channels_first(node, op.attrs["out_layout"] or op.attrs["data_layout"])


def _convolution(op: Op, data: Node, weights: Node) -> Node:
    data, weights = _data_and_weights(op, data, weights, "OI")
    if op.attrs["groups"] == 1:
        return _result(op, opset.convolution(data, weights, **_geometry(op)))
    weights = _by_groups(op, weights)
    return _result(op, opset.group_convolution(data, weights, **_geometry(op)))


def _transposed(op: Op, data: Node, weights: Node) -> Node:
    data, weights = _data_and_weights(op, data, weights, "IO")
    rest: dict[str, Any] = {**_geometry(op), "output_padding": list(op.attrs["output_padding"])}
    if op.attrs["groups"] == 1:
        return _result(op, opset.convolution_backprop_data(data, weights, **rest))
    weights = _by_groups(op, weights)
    return _result(op, opset.group_convolution_backprop_data(data, weights, **rest))


_PREDICATES = (
    dtypes(FLOAT),
    same_dtype,
    static_operand(1),
    plain_layouts("data_layout", "kernel_layout", "out_layout"),
)

TABLE: Table = {
    **{f"relax.nn.conv{n}d": Entry(_convolution, _PREDICATES, (2,)) for n in (1, 2, 3)},
    **{f"relax.nn.conv{n}d_transpose": Entry(_transposed, _PREDICATES, (2,)) for n in (1, 2, 3)},
}
