"""Arithmetic and mathematical functions of each element, and changes of its dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tvm_byoc_kit.backends.tensorrt.converters.table import NARROW, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Data = Tensor | np.ndarray

# Of trt.UnaryOperation.
_EXACT = {
    "relax.abs": "ABS",
    "relax.ceil": "CEIL",
    "relax.floor": "FLOOR",
    "relax.negative": "NEG",
    "relax.round": "ROUND",  # halves to the even neighbour, as Relax has it
    "relax.sign": "SIGN",
    "relax.sqrt": "SQRT",
}
_ROUNDED = {
    "relax.acos": "ACOS",
    "relax.acosh": "ACOSH",
    "relax.asin": "ASIN",
    "relax.asinh": "ASINH",
    "relax.atan": "ATAN",
    "relax.atanh": "ATANH",
    "relax.cos": "COS",
    "relax.cosh": "COSH",
    "relax.erf": "ERF",
    "relax.exp": "EXP",
    "relax.log": "LOG",
    "relax.sin": "SIN",
    "relax.sinh": "SINH",
    "relax.tan": "TAN",
}
# Of trt.ElementWiseOperation.
_BINARY = {
    "relax.add": "SUM",
    "relax.divide": "DIV",
    "relax.maximum": "MAX",
    "relax.minimum": "MIN",
    "relax.multiply": "PROD",
    "relax.subtract": "SUB",
}


@converter(*_EXACT)
def exact_function(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """What half computes as well as any other dtype."""
    return net.unary(_EXACT[op.name], x)


@converter(*_ROUNDED, widened=NARROW)
def rounded_function(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """What loses digits on its way."""
    return net.unary(_ROUNDED[op.name], x)


@converter("relax.rsqrt", widened=NARROW)
def reciprocal_root(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """``1 / sqrt(x)``."""
    return net.unary("RECIP", net.unary("SQRT", x))


@converter("relax.square")
def square(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """``x * x``, which integers have too."""
    return net.elementwise("PROD", x, x)


@converter(*_BINARY)
def arithmetic(net: NetworkBuilder, op: Op, a: Data, b: Data) -> Tensor:
    """What one layer computes of two tensors."""
    a, b = (_for_channels(x, op) for x in (a, b))
    return net.elementwise(_BINARY[op.name], a, b)


_LINE = 3  # dimensions of data that TensorRT has as planes


def _for_channels(x: Data, op: Op) -> Data:
    """A constant of one number with it once for each channel of a line.

    TensorRT-RTX 1.7 fails to build the sum of a line's convolution and a single number.
    """
    dims = op.results[0].shape
    if not isinstance(x, np.ndarray) or x.size != 1 or len(dims) != _LINE:
        return x
    return np.full((1, dims[1], 1), x.reshape(-1)[0], x.dtype) if isinstance(dims[1], int) else x


@converter("relax.power", widened=NARROW)
def power(net: NetworkBuilder, _op: Op, base: Data, exponent: Data) -> Tensor:
    """``base ** exponent``."""
    return net.elementwise("POW", base, exponent)


@converter("relax.clip")
def clip(net: NetworkBuilder, op: Op, x: Tensor, low: float, high: float) -> Tensor:
    """Not above `high`, then not below `low`; integers have no activation layer."""
    if net.is_float(x):
        return net.activation("CLIP", x, float(low), float(high))
    limits = np.iinfo(op.results[0].dtype)
    least, most = (int(np.clip(bound, limits.min, limits.max)) for bound in (low, high))
    return net.elementwise(
        "MAX", net.elementwise("MIN", x, net.scalar(most, x)), net.scalar(least, x)
    )


@converter("relax.astype")
def as_type(net: NetworkBuilder, op: Op, x: Tensor) -> Tensor:
    """Towards zero from floating point to integers; whatever is not zero is true."""
    return net.cast(x, net.result_dtype(op))
