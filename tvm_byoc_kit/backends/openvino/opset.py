"""OpenVINO's operators, imported when the first one is used: partitioning needs none of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OPSET", "Node", "element_type", "integers", "opset", "scalar"]

# Of 16, the average pooling of one dimension crashes the process (2026.4.1).
OPSET = "openvino.opset15"

Node = Any  # openvino.Node, or one output of it: the package is optional


class _Opset:
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(OPSET), name)


opset: Any = _Opset()

_ELEMENT_TYPES = {
    "float16": "f16",
    "float32": "f32",
    "int8": "i8",
    "uint8": "u8",
    "int32": "i32",
    "int64": "i64",
    "bool": "boolean",
}


def element_type(dtype: str) -> Any:
    """OpenVINO's element type for NumPy's `dtype`."""
    return getattr(importlib.import_module("openvino").Type, _ELEMENT_TYPES[dtype])


def integers(values: int | Iterable[int]) -> Node:
    """A constant of one integer, or of a vector of them: an axis, axes, a shape, sizes."""
    array = values if isinstance(values, int) else list(values)
    return opset.constant(np.asarray(array, np.int64))


def scalar(value: float, dtype: str) -> Node:
    """A constant of no dimensions, which broadcasts to any shape."""
    return opset.constant(np.asarray(value, dtype))
