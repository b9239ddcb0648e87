"""Pools, of one to three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

_DIMS = ("1d", "2d", "3d")
_LINE = 3  # dimensions of the data; TensorRT has planes and volumes


@converter(*(f"relax.nn.max_pool{dims}" for dims in _DIMS))
def max_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Padding never is the maximum."""
    return _pool(net, op, x, "MAX")


@converter(*(f"relax.nn.avg_pool{dims}" for dims in _DIMS))
def avg_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Of the elements in the window, or of the padding in it as well."""
    return _pool(net, op, x, "AVERAGE")


def _pool(net: NetworkBuilder, op: Op, x: Tensor, kind: str) -> Tensor:
    line = len(x.shape) == _LINE
    if line:
        x = net.unsqueeze(x, [_LINE])
    window = _in_planes(op.attrs["pool_size"], 1)
    layer = net.network.add_pooling_nd(x, getattr(net.trt.PoolingType, kind), window)
    if layer is not None:
        begin, end = _padding(op)
        if op.attrs["ceil_mode"] and _is_dynamic(op):
            layer.padding_mode = net.trt.PaddingMode.EXPLICIT_ROUND_UP
        layer.stride_nd = _in_planes(op.attrs["strides"], 1)
        layer.pre_padding, layer.post_padding = _in_planes(begin, 0), _in_planes(end, 0)
        if kind == "AVERAGE":
            padded = any((*begin, *end))
            layer.average_count_excludes_padding = not (padded and op.attrs["count_include_pad"])
    result = net.check(layer)
    return net.squeeze(result, [_LINE]) if line else result


def _in_planes(numbers: tuple[int, ...], filler: int) -> tuple[int, ...]:
    """What an attribute says of each axis, also where there is one."""
    return numbers if len(numbers) > 1 else (*numbers, filler)


def _padding(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """At the beginning, and at the end.

    Rounding up takes in a last window that is not filled. The end padding that gives as many
    windows as Relax counts says so exactly, where the sizes are known. TensorRT's own rounding
    counts windows that begin in the end padding too.
    """
    padding = op.attrs["padding"]
    half = len(padding) // 2
    begin, end = padding[:half], padding[half:]
    if not op.attrs["ceil_mode"] or _is_dynamic(op):
        return begin, end
    sizes: Any = zip(
        _sizes(op.operands[0]),
        _sizes(op.results[0]),
        op.attrs["strides"],
        op.attrs["pool_size"],
        begin,
        strict=True,
    )
    return begin, tuple(
        max((count - 1) * stride + window - size - pad, 0)
        for size, count, stride, window, pad in sizes
    )


def _is_dynamic(op: Op) -> bool:
    return any(isinstance(size, str) for size in _sizes(op.operands[0]))


def _sizes(value: Any) -> tuple[int, ...]:
    return tuple(value.shape[2:])


@converter(*(f"relax.nn.adaptive_avg_pool{dims}" for dims in _DIMS), widened=NARROW)
def adaptive_avg_pool(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """The mean of everything, or of windows of one size."""
    counts = _sizes(op.results[0])
    if all(count == 1 for count in counts):
        return net.reduce("AVG", x, range(2, len(x.shape)), keep=True)
    line = len(x.shape) == _LINE
    window = tuple(
        size // count for size, count in zip(_sizes(op.operands[0]), counts, strict=True)
    )
    window = _in_planes(window, 1)
    x = net.unsqueeze(x, [_LINE]) if line else x
    layer = net.network.add_pooling_nd(x, net.trt.PoolingType.AVERAGE, window)
    if layer is not None:
        layer.stride_nd = window
    result = net.check(layer)
    return net.squeeze(result, [_LINE]) if line else result
