"""Quantize and dequantize."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import Layer, NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op


@converter("relax.quantize")
def quantize(
    net: NetworkBuilder, op: Op, x: Tensor | np.ndarray, scale: np.ndarray, _zero_point: np.ndarray
) -> Tensor:
    """Rounded half to even, and saturated, as in Relax."""
    layer = net.network.add_quantize(net.tensor(x), _scale(net, scale), net.trt.DataType.INT8)
    return net.check(_along(layer, op, scale))


@converter("relax.dequantize")
def dequantize(
    net: NetworkBuilder, op: Op, x: Tensor | np.ndarray, scale: np.ndarray, _zero_point: np.ndarray
) -> Tensor:
    """Floats from bytes, those of weights too: TensorRT stores the bytes."""
    layer = net.network.add_dequantize(net.tensor(x), _scale(net, scale), net.result_dtype(op))
    return net.check(_along(layer, op, scale))


def _scale(net: NetworkBuilder, scale: np.ndarray) -> Tensor:
    return net.tensor(scale.reshape(() if scale.size == 1 else scale.shape))


def _along(layer: Layer, op: Op, scale: np.ndarray) -> Layer:
    """`layer` with the axis of its scales, where there are several."""
    if layer is not None and scale.size > 1:
        layer.axis = op.attrs["axis"] % len(op.results[0].shape)
    return layer
