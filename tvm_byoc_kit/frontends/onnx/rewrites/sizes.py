"""Arithmetic on sizes, some of them open, and how to write it so that TVM's importer follows it.

Exporters compute the target of a Reshape, an Expand or a Range from the sizes of a tensor. TVM's
importer keeps to such numbers through some operators and not through others. Here they are computed
as expressions, and written anew where another operator reads them: each open dimension is taken
from a tensor once, by the operators that the importer follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, Names, Replacement, Scope, scopes
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter
from tvm_byoc_kit.frontends.onnx.rewrites.size_arithmetic import (
    Size,
    has_open,
    of_sizes,
    text_of,
)
from tvm_byoc_kit.frontends.onnx.rewrites.size_readers import READERS

__all__ = ["rewrite"]

_SHAPE_READERS = ("ConstantOfShape", "Expand", "Range", "Reshape", "Resize", "Slice", "Tile")


def rewrite(model: onnx.ModelProto) -> int:
    """Write anew what is computed from open sizes; gives the number of nodes replaced."""
    names = Names(model)
    return sum(Writer(scope, names).run() for scope in reversed(list(scopes(model))))


class Writer:
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
        return self._once(f"[{', '.join(map(text_of, sizes))}]", lambda: self._joined(sizes))

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
        rule = READERS.get(node.op_type) if node.domain in MAIN_DOMAINS else None
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
