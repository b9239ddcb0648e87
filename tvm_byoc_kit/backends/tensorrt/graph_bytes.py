"""A region's `Graph` as bytes and back, for engines that are built where they run.

========  =================================================================================
bytes     content
========  =================================================================================
8         ``BYOCGRPH``
8         length of the header, little endian
n         the header, JSON: ``format``, ``values``, ``calls`` and the rest of the graph's fields
…         the constants, each at a multiple of 64 bytes, counted from the end of the header
========  =================================================================================

Nothing in it is code. A value is its number in ``values``; an operand is a number, a text or null
as it is, or ``{"value": n}``, ``{"shape": [...]}``, ``{"tuple": [...]}``.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.graph import Call, Graph, Op, Shape, Value

if TYPE_CHECKING:
    from tvm_byoc_kit.graph import Operand

__all__ = ["FORMAT", "digest", "pack_graph", "unpack_graph"]

FORMAT = 1
_MAGIC = b"BYOCGRPH"
_FIXED = struct.Struct("<8sQ")
_ALIGNMENT = 64


def pack_graph(graph: Graph) -> bytes:
    """The graph with its constants."""
    writer = _Writer(graph)
    text = json.dumps({"format": FORMAT, **writer.fields()}).encode()
    return b"".join((_FIXED.pack(_MAGIC, len(text)), text, *writer.constants()))


def digest(graph: Graph) -> str:
    """SHA-256 of all that a graph computes: everything but its name."""
    writer = _Writer(graph)
    fields = {**writer.fields(), "name": ""}
    found = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
    for piece in writer.constants():
        found.update(piece)
    return found.hexdigest()


def unpack_graph(data: bytes | memoryview) -> Graph:
    """The inverse of `pack_graph`; constants are views of `data`.

    Raises
    ------
    ArtifactError
        For bytes of another format, or that are cut off.
    """
    view = memoryview(data)
    magic, length = _FIXED.unpack_from(view) if len(view) >= _FIXED.size else (b"", 0)
    if magic != _MAGIC or len(view) < _FIXED.size + length:
        raise ArtifactError("a saved region is damaged; build the model again")
    fields = json.loads(bytes(view[_FIXED.size : _FIXED.size + length]))
    if fields["format"] != FORMAT:
        raise ArtifactError(
            f"a saved region has format {fields['format']}, this kit reads {FORMAT}; build the "
            "model again, or install the kit that it was built with"
        )
    return _Reader(fields, view[_FIXED.size + length :]).graph()


class _Writer:
    """Numbers the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._numbers: dict[Value, int] = {}
        self._values: list[Value] = []
        self._offsets: dict[int, int] = {}

    def fields(self) -> dict[str, Any]:
        graph = self._graph
        fields: dict[str, Any] = {
            "name": graph.name,
            "backend": graph.backend,
            "inputs": self._all(graph.inputs),
            "constants": self._all(graph.constants),
            "calls": [self._call(call) for call in graph.calls],
            "outputs": self._all(graph.outputs),
            "symbols": {name: list(place) for name, place in graph.symbols.items()},
        }
        self._place_constants()
        fields["values"] = [self._value(number) for number in range(len(self._values))]
        return fields

    def constants(self) -> Iterator[memoryview | bytes]:
        """The constants' bytes, with zeros between them; after `fields`."""
        for number in self._offsets:
            array = self._data(number)
            yield array.reshape(-1).view(np.uint8).data
            yield bytes(-array.nbytes % _ALIGNMENT)

    def _data(self, number: int) -> np.ndarray:
        return np.ascontiguousarray(self._values[number].data)

    def _place_constants(self) -> None:
        end = 0
        for number, value in enumerate(self._values):
            if value.data is not None:
                self._offsets[number] = end
                end += value.data.nbytes + -value.data.nbytes % _ALIGNMENT

    def _value(self, number: int) -> dict[str, Any]:
        value = self._values[number]
        fields: dict[str, Any] = {
            "name": value.name,
            "shape": list(value.shape),
            "dtype": value.dtype,
        }
        if value.dims is not None:
            fields["dims"] = list(value.dims)
        if value.data is not None:
            fields["at"] = self._offsets[number]
        return fields

    def _number(self, value: Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._values)
            self._values.append(value)
        return self._numbers[value]

    def _all(self, values: Sequence[Value]) -> list[int]:
        return [self._number(value) for value in values]

    def _call(self, call: Call) -> dict[str, Any]:
        return {
            "name": call.name,
            "inputs": self._all(call.inputs),
            "ops": [self._op(op) for op in call.ops],
            "results": self._all(call.results),
        }

    def _op(self, op: Op) -> dict[str, Any]:
        return {
            "name": op.name,
            "operands": [self._operand(operand) for operand in op.operands],
            "attrs": dict(op.attrs),
            "results": self._all(op.results),
        }

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return {"value": self._number(operand)}
        if isinstance(operand, Shape):
            return {"shape": list(operand.dims)}
        if isinstance(operand, tuple):
            return {"tuple": [self._operand(member) for member in operand]}
        return operand


class _Reader:
    """Makes the values first; everything else refers to them."""

    def __init__(self, fields: Mapping[str, Any], constants: memoryview) -> None:
        self._fields = fields
        self._constants = constants
        self._values = [self._value(value) for value in fields["values"]]

    def graph(self) -> Graph:
        fields = self._fields
        return Graph(
            name=fields["name"],
            backend=fields["backend"],
            inputs=self._all(fields["inputs"]),
            constants=self._all(fields["constants"]),
            calls=tuple(self._call(call) for call in fields["calls"]),
            outputs=self._all(fields["outputs"]),
            symbols={name: (place[0], place[1]) for name, place in fields["symbols"].items()},
        )

    def _value(self, fields: Mapping[str, Any]) -> Value:
        shape = tuple(fields["shape"])
        dims = tuple(fields["dims"]) if "dims" in fields else None
        data = None
        if "at" in fields:
            data = self._array(fields["at"], shape, _numpy_dtype(fields["dtype"]))
        return Value(fields["name"], shape, fields["dtype"], dims, data)

    def _array(self, at: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        end = at + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if end > len(self._constants):
            raise ArtifactError("a saved region is cut off; build the model again")
        array = np.frombuffer(self._constants[at:end], dtype).reshape(shape)
        array.setflags(write=False)
        return array

    def _all(self, numbers: Sequence[int]) -> tuple[Value, ...]:
        return tuple(self._values[number] for number in numbers)

    def _call(self, fields: Mapping[str, Any]) -> Call:
        ops = tuple(self._op(op) for op in fields["ops"])
        return Call(fields["name"], self._all(fields["inputs"]), ops, self._all(fields["results"]))

    def _op(self, fields: Mapping[str, Any]) -> Op:
        return Op(
            name=fields["name"],
            operands=tuple(self._operand(operand) for operand in fields["operands"]),
            attrs={name: _tuples(value) for name, value in fields["attrs"].items()},
            results=self._all(fields["results"]),
        )

    def _operand(self, found: Any) -> Operand:
        if not isinstance(found, dict):
            return _number(found)
        ((kind, content),) = found.items()
        if kind == "value":
            return self._values[content]
        if kind == "shape":
            return Shape(tuple(content))
        return tuple(self._operand(member) for member in content)


def _number(found: Any) -> int | float | str | None:
    """What JSON gave, which is one of these."""
    result: int | float | str | None = found
    return result


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype, which for what NumPy has not is that of ml_dtypes."""
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype
