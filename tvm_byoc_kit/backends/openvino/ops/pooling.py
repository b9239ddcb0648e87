"""Pooling, by windows and adaptive, of one to three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.opset import integers, opset
from tvm_byoc_kit.backends.openvino.ops.layouts import from_channels_first, spatial, to_layout
from tvm_byoc_kit.backends.openvino.ops.table import Entry
from tvm_byoc_kit.backends.openvino.predicates import (
    FLOAT,
    dims,
    dtypes,
    plain_layouts,
    same_dtype,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.graph import Op, Value

__all__ = ["TABLE"]


def _channels_first(op: Op, x: Node) -> Node:
    layout = op.attrs["layout"]
    return to_layout(x, layout, "NC" + spatial(layout))


def _result(op: Op, node: Node) -> Node:
    return from_channels_first(node, op.attrs["out_layout"] or op.attrs["layout"])


def _pads(op: Op) -> tuple[list[int], list[int]]:
    padding = list(op.attrs["padding"])
    return padding[: len(padding) // 2], padding[len(padding) // 2 :]


def _rounding(op: Op) -> str:
    """PyTorch's way of counting what a last, clipped window holds is TVM's too."""
    return "ceil_torch" if op.attrs["ceil_mode"] else "floor"


def _max_pool(op: Op, x: Node) -> Node:
    before, after = _pads(op)
    pooled = opset.max_pool(
        _channels_first(op, x),
        list(op.attrs["strides"]),
        list(op.attrs["dilation"]),
        before,
        after,
        list(op.attrs["pool_size"]),
        rounding_type=_rounding(op),
    )
    return _result(op, pooled.output(0))


def _average_pool(op: Op, x: Node) -> Node:
    before, after = _pads(op)
    pooled = opset.avg_pool(
        _channels_first(op, x),
        list(op.attrs["strides"]),
        before,
        after,
        list(op.attrs["pool_size"]),
        not op.attrs["count_include_pad"],
        rounding_type=_rounding(op),
    )
    return _result(op, pooled)


def _adaptive(op: Op, x: Node) -> Node:
    data: Value = op.operands[0]  # type: ignore[assignment]
    layout, sizes = op.attrs["layout"], op.attrs["output_size"]
    axes = list(range(2, len(layout)))
    x = _channels_first(op, x)
    if sizes is None:
        sizes = tuple(data.shape[layout.index(axis)] for axis in spatial(layout))
    if set(sizes) == {1}:  # the mean of everything, which OpenVINO fuses further
        return _result(op, opset.reduce_mean(x, integers(axes), keep_dims=True))
    return _result(op, opset.adaptive_avg_pool(x, integers(sizes)))


def _last_window_is_in_padding(call: Call) -> bool:
    """With ``ceil_mode``; PyTorch and OpenVINO drop such a window, Relax's types do not."""
    attrs = call.attrs
    if not attrs.ceil_mode:
        return False
    layout, padding = str(attrs.layout), [int(pad) for pad in attrs.padding]
    half = len(padding) // 2
    sizes = dict(zip(layout, dims(call.args[0]), strict=True))
    return any(
        _last_start_is_beyond(
            sizes[axis], int(pool), int(stride), int(dilation), padding[i], padding[half + i]
        )
        for i, (axis, pool, stride, dilation) in enumerate(
            zip(spatial(layout), attrs.pool_size, attrs.strides, attrs.dilation, strict=True)
        )
    )


def _last_start_is_beyond(
    size: int | None, pool: int, stride: int, dilation: int, before: int, after: int
) -> bool:
    window = (pool - 1) * dilation + 1
    if size is None:
        return stride > window - after
    steps = -(-(size + before + after - window) // stride)
    return steps * stride >= size + before


def _is_dilated(call: Call) -> bool:
    return any(int(step) != 1 for step in call.attrs.dilation)


def _pads_more_than_window(call: Call) -> bool:
    padding, pools = list(call.attrs.padding), list(call.attrs.pool_size) * 2
    return any(int(pad) >= int(pool) for pad, pool in zip(padding, pools, strict=True))


_PREDICATES = (dtypes(FLOAT), same_dtype, plain_layouts("layout", "out_layout"))
_WINDOWED = (
    *_PREDICATES,
    unless(_last_window_is_in_padding, "with ceil_mode, the last window may lie in the padding"),
    unless(_pads_more_than_window, "pads by a whole window or more"),
)

TABLE: Table = {
    **{f"relax.nn.max_pool{n}d": Entry(_max_pool, _WINDOWED) for n in (1, 2, 3)},
    **{
        f"relax.nn.avg_pool{n}d": Entry(
            _average_pool, (*_WINDOWED, unless(_is_dilated, "averages a dilated window"))
        )
        for n in (1, 2, 3)
    },
    **{f"relax.nn.adaptive_avg_pool{n}d": Entry(_adaptive, _PREDICATES) for n in (1, 2, 3)},
}
