"""Pools, of one to three dimensions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.planes import (
    as_planes,
    channels_first,
    from_planes,
    in_planes,
    ordered,
    sizes,
)
from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

_DIMS = ("1d", "2d", "3d")


@converter(*(f"relax.nn.max_pool{dims}" for dims in _DIMS))
def max_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Padding never is the maximum."""
    return _result(net, op, _pool(net, op, x, "MAX"))


@converter(*(f"relax.nn.avg_pool{dims}" for dims in _DIMS))
def avg_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Of the elements in the window, or of the padding in it as well.

    A last window that is not filled reaches beyond the padding, and what is there never counts.
    TensorRT cannot tell it from padding, so that the mean of the elements alone is taken, and
    multiplied by the part that they are of what counts.
    """
    begin, end = _halves(op.attrs["padding"])
    counts = op.attrs["count_include_pad"] and any((*begin, *end))
    _, needed = _padding(op)
    beyond = any(more > given for more, given in zip(needed, end, strict=True))
    mean = _pool(net, op, x, "AVERAGE", counts_padding=counts and not beyond)
    if counts and beyond:
        mean = net.elementwise("PROD", mean, net.cast(_parts(op), mean.dtype))
    return _result(net, op, mean)


def _result(net: NetworkBuilder, op: Op, pooled: Tensor) -> Tensor:
    return from_planes(net, pooled, op.attrs["out_layout"] or op.attrs["layout"])


def _planes(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    layout = op.attrs["layout"]
    return net.tensor(as_planes(net, ordered(net, x, layout, channels_first(layout))))


def _pool(
    net: NetworkBuilder, op: Op, x: Tensor, kind: str, *, counts_padding: bool = False
) -> Tensor:
    window = in_planes(op.attrs["pool_size"], 1)
    type_ = getattr(net.trt.PoolingType, kind)
    layer = net.network.add_pooling_nd(_planes(net, op, x), type_, window)
    if layer is not None:
        begin, end = _padding(op)
        if op.attrs["ceil_mode"] and _is_dynamic(op):
            layer.padding_mode = net.trt.PaddingMode.EXPLICIT_ROUND_UP
        layer.stride_nd = in_planes(op.attrs["strides"], 1)
        layer.pre_padding, layer.post_padding = in_planes(begin, 0), in_planes(end, 0)
        if kind == "AVERAGE":
            layer.average_count_excludes_padding = not counts_padding
    return net.check(layer)


def _halves(padding: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    return padding[: len(padding) // 2], padding[len(padding) // 2 :]


def _padding(op: Op) -> tuple[Sequence[int], Sequence[int]]:
    """At the beginning, and at the end.

    Rounding up takes in a last window that is not filled. The end padding that gives as many
    windows as Relax counts says so exactly, where the sizes are known. TensorRT's own rounding
    counts windows that begin in the end padding too.
    """
    begin, end = _halves(op.attrs["padding"])
    if not op.attrs["ceil_mode"] or _is_dynamic(op):
        return begin, end
    axes: Any = zip(*_sizes(op), op.attrs["strides"], op.attrs["pool_size"], begin, strict=True)
    return begin, [
        max((count - 1) * stride + window - size - pad, 0)
        for size, count, stride, window, pad in axes
    ]


def _parts(op: Op) -> np.ndarray:
    """For each window, how much of what counts in it are elements."""
    begin, end = _halves(op.attrs["padding"])
    geometry: Any = zip(
        *_sizes(op), op.attrs["strides"], op.attrs["pool_size"], begin, end, strict=True
    )
    axes: list[np.ndarray] = []
    for size, count, stride, window, before, after in geometry:
        first = np.arange(count) * stride - before
        last = first + window
        elements = np.minimum(last, size) - np.maximum(first, 0)
        axes.append(elements / (np.minimum(last, size + after) - first))
    parts = functools.reduce(np.multiply.outer, axes)
    return parts.astype("float32").reshape(1, 1, *in_planes(parts.shape, 1))


def _sizes(op: Op) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Depth, height and width before and after."""
    layout = op.attrs["layout"]
    before: Any = op.operands[0]
    return sizes(before, layout), sizes(op.results[0], op.attrs["out_layout"] or layout)


def _is_dynamic(op: Op) -> bool:
    return any(isinstance(size, str) for size in _sizes(op)[0])


# --- Adaptive pools -----------------------------------------------------------------------------


@converter(*(f"relax.nn.adaptive_avg_pool{dims}" for dims in _DIMS), widened=NARROW)
def adaptive_avg_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The mean of everything, of windows of one size, or of windows as they come."""
    pairs = list(zip(*_sizes(op), strict=True))
    x = _planes(net, op, x)
    if all(count == 1 for _, count in pairs):
        return _result(net, op, net.reduce("AVG", x, range(2, len(x.shape)), keep=True))
    if all(isinstance(size, int) and size % count == 0 for size, count in pairs):
        window = in_planes([size // count for size, count in pairs], 1)
        layer = net.network.add_pooling_nd(x, net.trt.PoolingType.AVERAGE, window)
        if layer is not None:
            layer.stride_nd = window
        return _result(net, op, net.check(layer))
    for axis, (size, count) in enumerate(pairs, 2):
        x = _means(net, x, axis, size, count)
    return _result(net, op, x)


def _means(net: NetworkBuilder, x: Tensor, axis: int, size: Any, count: Any) -> Tensor:
    """Means along one axis, which are a product with a matrix: those of a box are one by one."""
    if size == count:
        return x
    if count == 1:
        return net.reduce("AVG", x, [axis], keep=True)
    weights = np.zeros((size, count), "float32")
    for i in range(count):
        begin, end = i * size // count, -(-(i + 1) * size // count)
        weights[begin:end, i] = 1 / (end - begin)
    rank = len(x.shape)
    last = [*(other for other in range(rank) if other != axis), axis]
    matrix, kind = net.tensor(weights, rank), net.trt.MatrixOperation.NONE
    product = net.network.add_matrix_multiply(net.transpose(x, last), kind, matrix, kind)
    return net.transpose(net.check(product), np.argsort(last).tolist())
