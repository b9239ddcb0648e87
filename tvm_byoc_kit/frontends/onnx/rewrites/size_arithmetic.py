"""Whole numbers that are computed from sizes, some of them open, as expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, Scope, attributes_of

__all__ = ["Size", "dimensions", "has_open", "of_sizes", "text_of"]


class _UndecidedError(Exception):
    """Whether two sizes are equal depends on the sizes."""


@dataclass(frozen=True, eq=False)
class Size:
    """A whole number that is computed from open dimensions.

    Parameters
    ----------
    op : str
        The ONNX operator that computes it; "Shape" for an open dimension itself.
    operands : tuple
        Numbers and `Size`; of a dimension the tensor that has it, and its axis.
    text : str
        Equal ones are the same number.
    positive : bool
        Whether it is known to be at least 1.
    """

    op: str
    operands: tuple[Any, ...]
    text: str
    positive: bool

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and other.text == self.text:
            return True
        if self.positive and isinstance(other, (int, np.integer)) and other < 1:
            return False
        raise _UndecidedError

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Any) -> Any:
        return _computed("Add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _computed("Add", self, other)

    def __mul__(self, other: Any) -> Any:
        return _computed("Mul", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _computed("Mul", self, other)

    def __sub__(self, other: Any) -> Any:
        return _computed("Sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _computed("Sub", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return _computed("Div", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _computed("Div", other, self)


_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1}
_POSITIVE = ("Add", "Mul", "Min")  # where all operands are


def _computed(op: str, first: Any, second: Any) -> Any:
    if not isinstance(second, Size) and second == _NEUTRAL.get(op):
        return first
    if op == "Mul" and not isinstance(second, Size) and second == 0:
        return 0
    if op == "Div" and isinstance(first, Size) and first.op == "Mul":
        rest = [part for part in first.operands if text_of(part) != text_of(second)]
        if len(rest) == 1:
            return rest[0]
    positive = op in _POSITIVE and all(
        part.positive if isinstance(part, Size) else part > 0 for part in (first, second)
    )
    return Size(op, (first, second), f"{op}({text_of(first)}, {text_of(second)})", positive)


def text_of(number: Any) -> str:
    """A number or a `Size` as text; equal ones have the same."""
    return number.text if isinstance(number, Size) else str(int(number))


def dimensions(name: str, scope: Scope) -> np.ndarray | None:
    """The shape of the value `name`: numbers, and a `Size` for each open dimension."""
    shape = scope.shape(name)
    if shape is None:
        return None
    sizes = [
        dim
        if isinstance(dim, int)
        else Size("Shape", (name, axis), dim or f"{name}[{axis}]", positive=True)
        for axis, dim in enumerate(shape)
    ]
    return np.array(sizes, object)


def has_open(sizes: np.ndarray) -> bool:
    """Whether one of them is open."""
    return sizes.dtype == object and any(isinstance(size, Size) for size in sizes.flat)


_Inputs = list[Any]
_Attributes = dict[str, Any]


def of_sizes(
    node: onnx.NodeProto, scope: Scope, value: Callable[[str], np.ndarray | None]
) -> np.ndarray | None:
    """What `node` computes from sizes, an array of objects; None where it does something else.

    Parameters
    ----------
    node : onnx.NodeProto
    scope : Scope
    value : callable
        Gives the inputs that are known.
    """
    if node.domain not in MAIN_DOMAINS:
        return None
    if node.op_type in ("Shape", "Size"):
        return _of_tensor(node, scope)
    rule = _RULES.get(node.op_type)
    inputs = None if rule is None else _known(node, value)
    if rule is None or inputs is None:
        return None
    try:
        result = np.asarray(rule(attributes_of(node), inputs))
    except (_UndecidedError, ArithmeticError, IndexError, TypeError, ValueError):
        return None
    return result if result.dtype == bool else result.astype(object)


def _of_tensor(node: onnx.NodeProto, scope: Scope) -> np.ndarray | None:
    sizes = dimensions(node.input[0], scope)
    if sizes is None:
        return None
    if node.op_type == "Size":
        return np.array(sizes.prod(), object)
    said = attributes_of(node)
    return np.asarray(sizes[said.get("start", 0) : said.get("end")])


def _known(
    node: onnx.NodeProto, value: Callable[[str], np.ndarray | None]
) -> list[np.ndarray | None] | None:
    """The inputs, None for one left out; None unless all are known, and one is open."""
    inputs: list[np.ndarray | None] = []
    for name in node.input:
        inputs.append(value(name) if name else None)
        if name and inputs[-1] is None:
            return None
    return inputs if any(item is not None and has_open(item) for item in inputs) else None


def _elementwise(compute: Callable[[Any, Any], Any]) -> Callable[[_Attributes, _Inputs], Any]:
    return lambda _, inputs: compute(*(np.asarray(known, object) for known in inputs))


def _divided(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    for number in (*first.flat, *second.flat):
        if not isinstance(number, Size) and number < 0:
            raise ArithmeticError  # ONNX does not say which way integers are rounded
    return np.asarray(first // second)


def _least(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(partial(_computed, "Min"), 2, 1)(first, second))


def _axes(said: _Attributes, inputs: _Inputs) -> tuple[int, ...] | None:
    """An attribute in old opsets, an input in newer ones."""
    axes = inputs[1] if len(inputs) > 1 else said.get("axes")
    return None if axes is None else tuple(int(axis) for axis in axes)


def _slice(_: _Attributes, inputs: _Inputs) -> Any:
    first, last, _axis, step = (
        None if known is None else int(known[0]) for known in [*inputs[1:], None, None][:4]
    )
    return inputs[0][first:last:step]


def _cast(said: _Attributes, inputs: _Inputs) -> Any:
    if said["to"] not in (TensorProto.INT64, TensorProto.INT32):
        raise TypeError  # the quotient of two floats is another one
    return inputs[0]


def _reduce_prod(said: _Attributes, inputs: _Inputs) -> Any:
    return inputs[0].prod(_axes(said, inputs), keepdims=bool(said.get("keepdims", 1)))


_RULES: dict[str, Callable[[_Attributes, _Inputs], Any]] = {
    "Add": _elementwise(operator.add),
    "Sub": _elementwise(operator.sub),
    "Mul": _elementwise(operator.mul),
    "Div": _elementwise(_divided),
    "Min": _elementwise(_least),
    "Equal": _elementwise(operator.eq),
    "Cast": _cast,
    "Identity": lambda _, inputs: inputs[0],
    "Where": lambda _, inputs: np.where(*inputs),
    "Gather": lambda said, inputs: inputs[0].take(inputs[1], said.get("axis", 0)),
    "Slice": _slice,
    "Concat": lambda said, inputs: np.concatenate(inputs, said["axis"]),
    "Reshape": lambda _, inputs: inputs[0].reshape(inputs[1]),
    "Squeeze": lambda said, inputs: inputs[0].squeeze(_axes(said, inputs)),
    "Unsqueeze": lambda said, inputs: np.expand_dims(inputs[0], _axes(said, inputs) or ()),
    "ReduceProd": _reduce_prod,
}
