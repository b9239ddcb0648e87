"""Convolutions, plain and transposed, of one to three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.planes import (
    as_planes,
    channels_first,
    from_planes,
    in_planes,
    ordered,
)
from tvm_byoc_kit.backends.tensorrt.converters.table import BF16, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import Layer, NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Kernel = Tensor | np.ndarray

_PLAIN = tuple(f"relax.nn.conv{n}d" for n in (1, 2, 3))
_LINE = 3  # dimensions of the data; TensorRT has planes and volumes
_TRANSPOSED = tuple(f"{name}_transpose" for name in _PLAIN)


@converter(*_PLAIN)
def convolution(net: NetworkBuilder, op: Op, x: Tensor, kernel: Kernel) -> Tensor:
    """The kernel's outputs before its inputs."""
    x, kernel = _operands(net, op, x, kernel, "OI")
    outputs, _, *window = kernel.shape
    layer = net.network.add_convolution_nd(x, outputs, window, _fixed(net, kernel))
    if layer is not None:
        layer.dilation_nd = in_planes(op.attrs["dilation"], 1)
    return _windowed(net, op, layer, kernel)


# TensorRT has none of bfloat16.
@converter(*_TRANSPOSED, widened=BF16)
def deconvolution(net: NetworkBuilder, op: Op, x: Tensor, kernel: Kernel) -> Tensor:
    """The kernel's inputs before its outputs."""
    x, kernel = _operands(net, op, x, kernel, "IO")
    _, outputs, *window = kernel.shape
    maps = outputs * op.attrs["groups"]
    layer = net.network.add_deconvolution_nd(x, maps, window, _fixed(net, kernel))
    return _windowed(net, op, layer, kernel)


def _operands(
    net: NetworkBuilder, op: Op, x: Tensor, kernel: Kernel, channels: str
) -> tuple[Tensor, Kernel]:
    """Data and kernel as TensorRT has them; `channels` is the order of the kernel's."""
    x, kernel = net.widened(op, x, kernel)
    layout = op.attrs["data_layout"]
    x = as_planes(net, ordered(net, x, layout, channels_first(layout)))
    return net.tensor(x), as_planes(net, ordered(net, kernel, op.attrs["kernel_layout"], channels))


def _fixed(net: NetworkBuilder, kernel: Kernel) -> object:
    return net.weights(kernel) if isinstance(kernel, np.ndarray) else net.trt.Weights()


def _windowed(net: NetworkBuilder, op: Op, layer: Layer, kernel: Kernel) -> Tensor:
    """The result of a layer that has got everything else."""
    if layer is not None:
        padding = op.attrs["padding"]
        begin, end = padding[: len(padding) // 2], padding[len(padding) // 2 :]
        # What lengthens the output of a transposed convolution is less padding at its end.
        more = op.attrs.get("output_padding") or (0,) * len(end)
        end = tuple(pad - extra for pad, extra in zip(end, more, strict=True))
        layer.stride_nd = in_planes(op.attrs["strides"], 1)
        layer.pre_padding, layer.post_padding = in_planes(begin, 0), in_planes(end, 0)
        layer.num_groups = op.attrs["groups"]
        if not isinstance(kernel, np.ndarray):
            layer.set_input(1, kernel)
    layout = op.attrs["out_layout"] or op.attrs["data_layout"]
    result = net.check(layer)
    if len(layout) == _LINE:
        result = _without_fusion(net, result)
    return from_planes(net, result, layout)


def _without_fusion(net: NetworkBuilder, result: Tensor) -> Tensor:
    """A plane as it is, to which nothing behind is added inside of the convolution.

    TensorRT-RTX 1.7 fails to build a convolution, a reshape and the sum with a single number, which
    it takes for a bias of too few dimensions: the usual case of one channel.
    """
    if result.shape[1] != 1:
        return result
    return net.reduce("MAX", result, [_LINE], keep=True)
