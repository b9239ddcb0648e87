"""Pooling, by windows and adaptive, of one to three dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.layouts import from_channels_first, spatial, to_layout
from tvm_byoc_kit.backends.openvino.ops.table import Entry, tensor
from tvm_byoc_kit.backends.openvino.opset import integers, opset
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

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

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
    layout, sizes = op.attrs["layout"], op.attrs["output_size"]
    axes = list(range(2, len(layout)))
    x = _channels_first(op, x)
    if sizes is None:
        sizes = tuple(tensor(op).shape[layout.index(axis)] for axis in spatial(layout))
    if set(sizes) == {1}:  # the mean of everything, which OpenVINO fuses further
        return _result(op, opset.reduce_mean(x, integers(axes), keep_dims=True))
    return _result(op, opset.adaptive_avg_pool(x, integers(sizes)))


@dataclass(frozen=True)
class _Windows:
    """The windows along one axis of the image, whose size is None when it is symbolic."""

    size: int | None
    window: int
    stride: int
    before: int
    after: int

    @property
    def last_starts_beyond(self) -> bool:
        """Whether the last window, rounded up, starts behind the data, or may."""
        if self.size is None:
            return self.stride > self.window - self.after
        steps = -(-(self.size + self.before + self.after - self.window) // self.stride)
        return steps * self.stride >= self.size + self.before

    @property
    def last_is_clipped(self) -> bool:
        """Whether the last window, rounded up, ends behind the padding, or may."""
        if self.size is None:
            return self.stride > 1
        return (self.size + self.before + self.after - self.window) % self.stride != 0


def _windows(call: Call) -> list[_Windows]:
    attrs = call.attrs
    padding = [int(pad) for pad in attrs.padding]
    half = len(padding) // 2
    sizes = dict(zip(str(attrs.layout), dims(call.args[0]), strict=True))
    each = zip(
        spatial(str(attrs.layout)), attrs.pool_size, attrs.strides, attrs.dilation,
        padding[:half], padding[half:], strict=True,
    )  # fmt: skip
    return [
        _Windows(sizes[axis], (int(pool) - 1) * int(dilation) + 1, int(stride), before, after)
        for axis, pool, stride, dilation, before, after in each
    ]


def _last_window_is_in_padding(call: Call) -> bool:
    """With ``ceil_mode``; PyTorch and OpenVINO drop such a window, Relax's types do not."""
    return call.attrs.ceil_mode and any(axis.last_starts_beyond for axis in _windows(call))


def _counts_clipped_padding(call: Call) -> bool:
    """OpenVINO counts the elements of such windows otherwise than PyTorch and TVM."""
    attrs = call.attrs
    padded = attrs.count_include_pad and any(int(pad) for pad in attrs.padding)
    return attrs.ceil_mode and padded and any(axis.last_is_clipped for axis in _windows(call))


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
            _average_pool,
            (
                *_WINDOWED,
                unless(_is_dilated, "averages a dilated window"),
                unless(_counts_clipped_padding, "counts the padding of a window that is cut off"),
            ),
        )
        for n in (1, 2, 3)
    },
    **{f"relax.nn.adaptive_avg_pool{n}d": Entry(_adaptive, _PREDICATES) for n in (1, 2, 3)},
}
