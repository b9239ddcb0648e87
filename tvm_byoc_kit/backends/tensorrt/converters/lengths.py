"""Sizes of axes, and what is calculated from them, where some are known at run time only.

They are asked of the operator's own operand, so that it does not matter whether an input of the
network tells them as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor

__all__ = ["Length", "calculated", "length", "shuffled", "vector"]

#: A number, or a tensor of ``int64[1]``.
Length: TypeAlias = "int | Tensor"

_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "SUM": operator.add,
    "SUB": operator.sub,
    "PROD": operator.mul,
    "FLOOR_DIV": operator.floordiv,
    "MAX": max,
    "MIN": min,
}


def length(net: NetworkBuilder, x: Tensor, axis: int) -> Length:
    """The size of an axis of `x`."""
    size = int(x.shape[axis])
    if size >= 0:
        return size
    shape = net.check(net.network.add_shape(x))
    return net.check(net.network.add_slice(shape, (axis,), (1,), (1,)))


def calculated(net: NetworkBuilder, kind: str, a: Length, b: Length) -> Length:
    """One of ``trt.ElementWiseOperation``, now or at run time."""
    if isinstance(a, int) and isinstance(b, int):
        return _ARITHMETIC[kind](a, b)
    return net.elementwise(kind, _part(a), _part(b))


def vector(net: NetworkBuilder, lengths: Sequence[Length]) -> Tensor:
    """All of them as one tensor, which layers take for a shape."""
    parts = [net.tensor(_part(each)) for each in lengths]
    return net.check(net.network.add_concatenation(parts))


def _part(size: Length) -> Tensor | np.ndarray:
    return np.array([size], "int64") if isinstance(size, int) else size


def shuffled(net: NetworkBuilder, x: Tensor, lengths: Sequence[Length]) -> Tensor:
    """`x` with other dimensions, of which one may be -1: whatever is left for it."""
    layer = net.network.add_shuffle(x)
    layer.zero_is_placeholder = False
    if all(isinstance(each, int) for each in lengths):
        layer.reshape_dims = tuple(lengths)
    else:
        layer.set_input(1, vector(net, lengths))
    return net.check(layer)
