"""Arithmetic and mathematical functions of each element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.openvino.ops.table import Entry, same
from tvm_byoc_kit.backends.openvino.opset import element_type, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    ANY,
    BOOL,
    BYTE,
    FLOAT,
    INT,
    dtypes,
    same_dtype,
)

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _dtype(op: Op) -> str:
    return op.results[0].dtype


def _reciprocal_root(op: Op, x: Node) -> Node:
    return opset.divide(scalar(1, _dtype(op)), opset.sqrt(x))


def _truncate(op: Op, x: Node) -> Node:
    return opset.select(opset.less(x, scalar(0, _dtype(op))), opset.ceiling(x), opset.floor(x))


def _multiply_add(_op: Op, x: Node, y: Node, z: Node) -> Node:
    return opset.add(opset.multiply(x, y), z)


def _floor_divide(_op: Op, x: Node, y: Node) -> Node:
    return opset.floor(opset.divide(x, y))


def _clip(op: Op, x: Node, low: float, high: float) -> Node:
    """Bounds beyond the dtype bound nothing; `Clamp` would compute integers as ``float32``."""
    dtype = _dtype(op)
    if dtype in FLOAT and math.isfinite(low) and math.isfinite(high):
        return opset.clamp(x, float(low), float(high))
    if dtype in FLOAT:
        least, most = -math.inf, math.inf
    else:
        bounds = np.iinfo("int32" if dtype == "int64" else dtype)
        least, most = bounds.min, bounds.max
        low, high = _inside(math.ceil, low, least, most), _inside(math.floor, high, least, most)
    x = opset.maximum(x, scalar(low, dtype)) if low > least else x
    x = opset.minimum(x, scalar(high, dtype)) if high < most else x
    return x if low > least or high < most else opset.convert(x, element_type(dtype))


def _inside(round_: Any, bound: float, least: float, most: float) -> float:
    return (
        min(max(bound, least), most) if math.isinf(bound) else min(max(round_(bound), least), most)
    )


def _cast(op: Op, x: Node) -> Node:
    return opset.convert(x, element_type(_dtype(op)))


_WRAPS = "OpenVINO saturates integers of 8 bits, TVM wraps them"
_DIVIDES = "OpenVINO divides integers as float32"
_FLOATS = (dtypes(FLOAT), same_dtype)
_NUMBERS = (dtypes(FLOAT | INT, _WRAPS), same_dtype)
_ORDERED = (dtypes(FLOAT | INT | BYTE), same_dtype)
_QUOTIENT = (dtypes(FLOAT, _DIVIDES), same_dtype)

_FUNCTIONS = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
    "atanh": "atanh", "ceil": "ceiling", "cos": "cos", "cosh": "cosh", "erf": "erf", "exp": "exp",
    "floor": "floor", "log": "log", "sigmoid": "sigmoid", "sin": "sin", "sinh": "sinh",
    "sqrt": "sqrt", "tan": "tan", "tanh": "tanh",
}  # fmt: skip


TABLE: Table = {
    **{f"relax.{name}": Entry(same(node), _FLOATS) for name, node in _FUNCTIONS.items()},
    "relax.rsqrt": Entry(_reciprocal_root, _FLOATS),
    "relax.round": Entry(lambda _op, x: opset.round(x, "half_to_even"), _FLOATS),
    "relax.trunc": Entry(_truncate, _FLOATS),
    "relax.abs": Entry(same("abs"), _NUMBERS),
    "relax.negative": Entry(same("negative"), _NUMBERS),
    "relax.sign": Entry(same("sign"), _ORDERED),
    "relax.square": Entry(lambda _op, x: opset.multiply(x, x), _NUMBERS),
    "relax.add": Entry(same("add"), _NUMBERS, (2,)),
    "relax.subtract": Entry(same("subtract"), _NUMBERS, (2,)),
    "relax.multiply": Entry(same("multiply"), _NUMBERS, (2,)),
    "relax.ewise_fma": Entry(_multiply_add, _NUMBERS, (3,)),
    "relax.maximum": Entry(same("maximum"), _ORDERED, (2,)),
    "relax.minimum": Entry(same("minimum"), _ORDERED, (2,)),
    "relax.divide": Entry(same("divide"), _QUOTIENT, (2,)),
    "relax.floor_divide": Entry(_floor_divide, _QUOTIENT, (2,)),
    "relax.mod": Entry(same("mod"), _QUOTIENT, (2,)),
    "relax.floor_mod": Entry(same("floor_mod"), _QUOTIENT, (2,)),
    "relax.power": Entry(same("power"), _QUOTIENT, (2,)),
    "relax.clip": Entry(_clip, _ORDERED, (3,)),
    "relax.astype": Entry(_cast, (dtypes(ANY | BOOL),)),
}
