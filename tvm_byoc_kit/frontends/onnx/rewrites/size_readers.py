"""Operators that read open sizes where TVM's importer does not follow them, as others that it does.

Each function takes a node and what writes the graph anew, and tells whether it has written another
node in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_byoc_kit.frontends.onnx.rewrites.size_arithmetic import (
    Size,
    dimensions,
    has_open,
    text_of,
)

if TYPE_CHECKING:
    from tvm_byoc_kit.frontends.onnx.rewrites.sizes import Writer

__all__ = ["READERS"]

_END = 10**9  # exporters write this, and the largest of int32 and of int64
_FOLLOWED = 13  # the first opset in whose operators onnx's inference follows sizes
_HARD = ("Div", "Min", "Sub")
_SLICED = 3  # starts, ends and axes
_SIZES = 3  # which input of Resize


def _range(node: onnx.NodeProto, writer: Writer) -> bool:
    """Steps of one: the number of ones before each of as many ones, as TVM knows its length."""
    start, limit, delta = map(writer.value, node.input)
    if start is None or limit is None or delta is None or not has_open(limit):
        return False
    if has_open(start) or has_open(delta) or delta.item() != 1:
        return False
    dtype = writer.scope.dtype(node.output[0]) or TensorProto.INT64
    one = numpy_helper.from_array(np.ones(1, helper.tensor_dtype_to_np_dtype(dtype)))
    emit, count = writer.emit, writer.vector([limit.item() - start.item()])
    ones, axis = emit("ConstantOfShape", count, value=one), emit.constant(0)
    if start.item() == 0:
        emit("CumSum", ones, axis, output=node.output[0], exclusive=1)
    else:
        emit("Add", emit("CumSum", ones, axis, exclusive=1), node.input[0], output=node.output[0])
    return True


def _tile(node: onnx.NodeProto, writer: Writer) -> bool:
    """An Expand along an axis of its own for each that is repeated, which is then joined."""
    repeats, sizes = writer.value(node.input[1]), dimensions(node.input[0], writer.scope)
    if repeats is None or sizes is None or not (has_open(repeats) or has_open(sizes)):
        return False
    axes: list[int] = []
    expanded: list[Any] = []
    joined: list[Any] = []
    for count, size in zip(repeats, sizes, strict=True):
        if not isinstance(count, Size) and count == 1:
            expanded.append(size)
        elif not isinstance(size, Size) and size == 1:
            expanded.append(count)
        else:
            axes.append(len(expanded))
            expanded += [count, size]
        joined.append(count * size)
    emit, x = writer.emit, node.input[0]
    for axis in axes:
        x = emit.unsqueeze(x, axis)
    x = emit("Expand", x, writer.vector(expanded), output=None if axes else node.output[0])
    if axes:
        emit("Reshape", x, writer.vector(joined), output=node.output[0])
    return True


def _resize(node: onnx.NodeProto, writer: Writer) -> bool:
    """Sizes that stay as they are need not be known."""
    sizes = writer.value(node.input[3]) if len(node.input) > _SIZES else None
    before = dimensions(node.input[0], writer.scope)
    if sizes is None or before is None or not has_open(sizes) or len(sizes) != len(before):
        return False
    known = [
        1 if isinstance(size, Size) and text_of(size) == text_of(old) else size
        for size, old in zip(sizes, before, strict=True)
    ]
    if any(isinstance(size, Size) for size in known):
        return False
    node.input[_SIZES] = writer.emit.constant(known)
    return False


def _sliced(node: onnx.NodeProto, writer: Writer) -> bool:
    """A number that stands for the end is the size, of which TVM would take the lesser."""
    sizes = dimensions(node.input[0], writer.scope)
    parts = [part for part in map(writer.value, node.input[1:]) if part is not None]
    if sizes is None or len(parts) < _SLICED or len(parts) < len(node.input) - 1:
        return False
    starts, ends, axes, steps = (*parts, np.ones(len(parts[0]), int))[:4]
    if has_open(axes) or has_open(steps):
        return False
    left, count = [], 0
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        to_end = not isinstance(end, Size) and end >= _END and step > 0
        count += to_end and isinstance(sizes[axis], Size)
        if not (to_end and not isinstance(start, Size) and (start, step) == (0, 1)):
            left.append((start, sizes[axis] if to_end else end, axis, step))
    if not count:
        return False
    if left:
        numbers = map(writer.vector, zip(*left, strict=True))
        writer.emit("Slice", node.input[0], *numbers, output=node.output[0])
    else:
        writer.emit("Identity", node.input[0], output=node.output[0])
    return True


def _reshaped(node: onnx.NodeProto, writer: Writer) -> bool:
    """0 for a size that stays, and -1 for one that only the others tell."""
    target, before = writer.value(node.input[1]), dimensions(node.input[0], writer.scope)
    if target is None or before is None or not has_open(target):
        return False
    texts = [*map(text_of, before), *[""] * len(target)]
    sizes = [
        0 if isinstance(size, Size) and size.text == text else size
        for size, text in zip(target, texts, strict=False)
    ]
    left = {index: size for index, size in enumerate(sizes) if isinstance(size, Size)}
    told = [index for index, size in left.items() if size.op in _HARD]
    if len(left) == 1 and writer.scope.opset < _FOLLOWED:
        told = list(left)
    if len(told) == 1 and all(isinstance(size, Size) or size >= 0 for size in sizes):
        sizes[told[0]] = -1
    writer.emit("Reshape", node.input[0], writer.vector(sizes), output=node.output[0])
    return True


READERS: dict[str, Callable[[onnx.NodeProto, Writer], bool]] = {
    "Range": _range,
    "Tile": _tile,
    "Resize": _resize,
    "Slice": _sliced,
    "Reshape": _reshaped,
}
