"""Arithmetic on sizes, some of them open, and how to write it so that TVM's importer follows it.

Exporters compute the target of a Reshape, an Expand or a Range from the sizes of a tensor. TVM's
importer keeps to such numbers through some operators and not through others. Here they are computed
as expressions, and written anew where another operator reads them: each open dimension is taken
from a tensor once, by the operators that the importer follows.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Names,
    Replacement,
    Scope,
    attributes_of,
    scopes,
)
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter

__all__ = ["has_open", "of_sizes", "rewrite"]


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
        rest = [part for part in first.operands if _text(part) != _text(second)]
        if len(rest) == 1:
            return rest[0]
    positive = op in _POSITIVE and all(
        part.positive if isinstance(part, Size) else part > 0 for part in (first, second)
    )
    return Size(op, (first, second), f"{op}({_text(first)}, {_text(second)})", positive)


def _text(number: Any) -> str:
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


# --- Operators on sizes -------------------------------------------------------------------------

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


# --- Writing them -------------------------------------------------------------------------------


def rewrite(model: onnx.ModelProto) -> int:
    """Write anew what is computed from open sizes; gives the number of nodes replaced."""
    names = Names(model)
    return sum(_Writer(scope, names).run() for scope in reversed(list(scopes(model))))


class _Writer:
    """Writes the nodes of one graph anew, without those that compute sizes."""

    def __init__(self, scope: Scope, names: Names) -> None:
        self.scope = scope
        self._new = Replacement(onnx.NodeProto(op_type="sizes"), names)
        self.emit = Emitter(self._new, scope.opset, TensorProto.INT64)
        self._sizes: dict[str, np.ndarray] = {}
        self._written: dict[str, str] = {}

    def run(self) -> int:
        """Gives the number of nodes that were left out or replaced."""
        graph = self.scope.graph
        kept = {value.name for value in graph.output} | set(_read_in_bodies(graph))
        count = 0
        for node in graph.node:
            left_out = self._computes_sizes(node) and node.output[0] not in kept
            if left_out or self._replaced(node):
                count += 1
            else:
                self._new.nodes.append(self._reading(node))
        if count:
            del graph.node[:]
            graph.node.extend(self._new.nodes)
        return count

    def value(self, name: str) -> np.ndarray | None:
        """What is known of an input: numbers, and a `Size` for what is computed from open ones."""
        found = self._sizes.get(name)
        return self.scope.constant(name) if found is None else found

    def vector(self, sizes: Iterable[Any]) -> str:
        """The name of a vector that holds `sizes`."""
        sizes = list(sizes)
        if not any(isinstance(size, Size) for size in sizes):
            return self.emit.constant(sizes)
        return self._once(f"[{', '.join(map(_text, sizes))}]", lambda: self._joined(sizes))

    def _joined(self, sizes: list[Any]) -> str:
        parts = [
            self.emit.unsqueeze(self.scalar(size), 0)
            if isinstance(size, Size)
            else self.emit.constant([int(size)])
            for size in sizes
        ]
        return self.emit("Concat", *parts, axis=0)

    def scalar(self, size: Any) -> str:
        """The name of a scalar that is `size`."""
        if not isinstance(size, Size):
            return self.emit.constant(int(size))
        return self._once(size.text, lambda: self._computed(size))

    def _computed(self, size: Size) -> str:
        if size.op != "Shape":
            return self.emit(size.op, *map(self.scalar, size.operands))
        tensor, axis = size.operands
        return self.emit("Gather", self.emit("Shape", tensor), self.emit.constant(axis))

    def _once(self, text: str, write: Callable[[], str]) -> str:
        if text not in self._written:
            self._written[text] = write()
        return self._written[text]

    def _computes_sizes(self, node: onnx.NodeProto) -> bool:
        sizes = of_sizes(node, self.scope, self.value)
        if sizes is None or sizes.ndim > 1 or not has_open(sizes):
            return False
        self._sizes[node.output[0]] = sizes
        return True

    def _replaced(self, node: onnx.NodeProto) -> bool:
        rule = _READERS.get(node.op_type) if node.domain in MAIN_DOMAINS else None
        return rule is not None and rule(node, self)

    def _reading(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """`node`, which reads sizes as they are written anew."""
        if any(name in self._sizes for name in node.input):
            write = self._shape if node.op_type in _SHAPE_READERS else self._tensor
            node.input[:] = [write(name) if name in self._sizes else name for name in node.input]
        return node

    def _shape(self, name: str) -> str:
        sizes = self._sizes[name]
        return self.vector(sizes) if sizes.ndim else self.scalar(sizes.item())

    def _tensor(self, name: str) -> str:
        """As data: what TVM takes for a shape it would compare by its form."""
        sizes, dtype = self._sizes[name], self.scope.dtype(name) or TensorProto.INT64
        written = self.emit("Cast", self.vector(sizes.flat), to=dtype)
        return written if sizes.ndim else self.emit.squeeze(written, 0)


def _read_in_bodies(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs:
                yield from (value.name for value in body.output)
                yield from (name for inner in body.node for name in inner.input)
                yield from _read_in_bodies(body)


# --- What reads them, and is not imported with open ones ----------------------------------------


def _range(node: onnx.NodeProto, writer: _Writer) -> bool:
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


def _tile(node: onnx.NodeProto, writer: _Writer) -> bool:
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


def _resize(node: onnx.NodeProto, writer: _Writer) -> bool:
    """Sizes that stay as they are need not be known."""
    sizes = writer.value(node.input[3]) if len(node.input) > _SIZES else None
    before = dimensions(node.input[0], writer.scope)
    if sizes is None or before is None or not has_open(sizes) or len(sizes) != len(before):
        return False
    known = [
        1 if isinstance(size, Size) and _text(size) == _text(old) else size
        for size, old in zip(sizes, before, strict=True)
    ]
    if any(isinstance(size, Size) for size in known):
        return False
    node.input[_SIZES] = writer.emit.constant(known)
    return False


def _sliced(node: onnx.NodeProto, writer: _Writer) -> bool:
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


def _reshaped(node: onnx.NodeProto, writer: _Writer) -> bool:
    """0 for a size that stays, and -1 for one that only the others tell."""
    target, before = writer.value(node.input[1]), dimensions(node.input[0], writer.scope)
    if target is None or before is None or not has_open(target):
        return False
    texts = [*map(_text, before), *[""] * len(target)]
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


_END = 10**9  # exporters write this, and the largest of int32 and of int64
_FOLLOWED = 13  # the first opset in whose operators onnx's inference follows sizes
_HARD = ("Div", "Min", "Sub")
_SLICED = 3  # starts, ends and axes
_SIZES = 3  # which input of Resize
_SHAPE_READERS = ("ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Tile")
_READERS = {
    "Range": _range,
    "Tile": _tile,
    "Resize": _resize,
    "Slice": _sliced,
    "Reshape": _reshaped,
}
