"""Comparisons, operators of truth values, and the choice by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op

    Data = Tensor | np.ndarray

# Of trt.ElementWiseOperation.
_BINARY = {
    "relax.equal": "EQUAL",
    "relax.greater": "GREATER",
    "relax.less": "LESS",
    "relax.logical_and": "AND",
    "relax.logical_or": "OR",
    "relax.logical_xor": "XOR",
    # Only of truth values, of which they are the same.
    "relax.bitwise_and": "AND",
    "relax.bitwise_or": "OR",
    "relax.bitwise_xor": "XOR",
}
_OR_EQUAL = {"relax.greater_equal": "GREATER", "relax.less_equal": "LESS"}


@converter(*_BINARY)
def compared(net: NetworkBuilder, op: Op, a: Data, b: Data) -> Tensor:
    """What one layer says of two tensors."""
    return net.elementwise(_BINARY[op.name], a, b)


@converter(*_OR_EQUAL)
def compared_or_equal(net: NetworkBuilder, op: Op, a: Data, b: Data) -> Tensor:
    """Not the opposite of the other comparison, which is true of NaN."""
    a, b = net.broadcast(a, b)
    beyond = net.elementwise(_OR_EQUAL[op.name], a, b)
    return net.elementwise("OR", beyond, net.elementwise("EQUAL", a, b))


@converter("relax.not_equal")
def unequal(net: NetworkBuilder, _op: Op, a: Data, b: Data) -> Tensor:
    """NaN differs from everything."""
    return net.unary("NOT", net.elementwise("EQUAL", a, b))


@converter("relax.logical_not", "relax.bitwise_not")
def opposite(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """Of a truth value."""
    return net.unary("NOT", x)


@converter("relax.isnan")
def not_a_number(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """Whether it is NaN."""
    return net.unary("ISNAN", x)


@converter("relax.isinf")
def infinite(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """Whether it is one of the infinities."""
    return net.unary("ISINF", x)


@converter("relax.isfinite")
def finite(net: NetworkBuilder, _op: Op, x: Tensor) -> Tensor:
    """Whether it is a number, and not infinite."""
    return net.unary("NOT", net.elementwise("OR", net.unary("ISINF", x), net.unary("ISNAN", x)))


@converter("relax.where")
def chosen(net: NetworkBuilder, _op: Op, condition: Data, a: Data, b: Data) -> Tensor:
    """From `a` where the condition holds, else from `b`."""
    return net.check(net.network.add_select(*net.broadcast(condition, a, b)))
