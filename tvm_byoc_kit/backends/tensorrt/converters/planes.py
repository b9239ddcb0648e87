"""What windows move over: TensorRT has planes and volumes, channels first.

Other layouts are transposed around a layer, and a line becomes a plane that is one element wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Dim

__all__ = ["as_planes", "channels_first", "from_planes", "in_planes", "ordered", "sizes"]

_LINE = 3  # dimensions of a batch of lines, or of a kernel for them


def channels_first(layout: str) -> str:
    """The layout of the same axes that TensorRT has, such as ``NCHW``."""
    return "NC" + _spatial(layout)


def _spatial(layout: str) -> str:
    return "".join(sorted(set(layout) - set("NCOI")))  # depth, height, width


def ordered(
    net: NetworkBuilder, x: Tensor | np.ndarray, layout: str, wanted: str
) -> Tensor | np.ndarray:
    """`x`, which is in `layout`, with its axes as in `wanted`; ``OI`` there is for a kernel.

    What `wanted` says of batch, channels, inputs and outputs goes before depth, height and width.
    """
    wanted = wanted if len(wanted) == len(layout) else wanted + _spatial(layout)
    order = [layout.index(axis) for axis in wanted]
    if order == sorted(order):
        return x
    return x.transpose(order) if isinstance(x, np.ndarray) else net.transpose(x, order)


def sizes(value: Any, layout: str) -> tuple[Dim, ...]:
    """Depth, height and width of a value."""
    return tuple(value.shape[layout.index(axis)] for axis in _spatial(layout))


def as_planes(net: NetworkBuilder, x: Tensor | np.ndarray) -> Tensor | np.ndarray:
    """`x`, of channels first, with two dimensions behind them or more."""
    if len(x.shape) > _LINE:
        return x
    return x[..., None] if isinstance(x, np.ndarray) else net.unsqueeze(x, [_LINE])


def from_planes(net: NetworkBuilder, x: Tensor, layout: str) -> Tensor:
    """The result of a layer in `layout`."""
    if len(layout) == _LINE:
        x = net.squeeze(x, [_LINE])
    return ordered(net, x, channels_first(layout), layout)


def in_planes(numbers: Sequence[int], filler: int) -> tuple[int, ...]:
    """What an attribute says of each axis, also where there is one."""
    return tuple(numbers) if len(numbers) > 1 else (*numbers, filler)
