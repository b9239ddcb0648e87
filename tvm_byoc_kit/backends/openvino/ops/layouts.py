"""Layouts: OpenVINO takes channels first, so other layouts are transposed around its operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.opset import integers, opset

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.opset import Node

__all__ = ["from_channels_first", "spatial", "to_layout"]


def spatial(layout: str) -> str:
    """The axes of `layout` that are neither batch nor channels, outermost first."""
    return "DHW"[-(len(layout) - 2) :]


def to_layout(x: Node, layout: str, wanted: str) -> Node:
    """`x`, which is in `layout`, with its axes in the order `wanted`."""
    if layout == wanted:
        return x
    return opset.transpose(x, integers(layout.index(axis) for axis in wanted))


def from_channels_first(x: Node, layout: str) -> Node:
    """`x`, which has batch and channels first, in `layout`."""
    return to_layout(x, "NC" + spatial(layout), layout)
