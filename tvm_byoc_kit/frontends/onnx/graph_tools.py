"""What several rewrites need: scopes, names, constants, shapes and replacement of nodes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.external_data_helper import uses_external_data

__all__ = [
    "Names",
    "Replacement",
    "Scope",
    "attributes_of",
    "describe",
    "op_label",
    "replace_nodes",
    "replaces",
    "scopes",
]

MAIN_DOMAINS = ("", "ai.onnx")


class Names:
    """Gives names that no value or node of the model has."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._numbers = dict[str, int]()

    @functools.cached_property
    def _taken(self) -> set[str]:
        taken = set[str]()
        for scope in scopes(self._model):
            graph = scope.graph
            taken.update(value.name for value in graph.input)
            taken.update(tensor.name for tensor in graph.initializer)
            for node in graph.node:
                taken.update((node.name, *node.input, *node.output))
        return taken

    def fresh(self, base: str) -> str:
        """`base`, with a number behind it where that is taken."""
        name = base
        while name in self._taken:
            self._numbers[base] = self._numbers.get(base, 0) + 1
            name = f"{base}_{self._numbers[base]}"
        self._taken.add(name)
        return name


@dataclass
class Scope:
    """One graph of a model, and what its nodes can see.

    Parameters
    ----------
    graph : onnx.GraphProto
    opset : int
        Version of ONNX's own operators.
    outer : Scope, optional
        For the body of an If, Loop or Scan: the graph around it.
    """

    graph: onnx.GraphProto
    opset: int
    outer: Scope | None = None

    # Most rewrites find nothing to do, so what they would look things up in is made when asked for.

    @functools.cached_property
    def _tensors(self) -> dict[str, onnx.TensorProto]:
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @functools.cached_property
    def _types(self) -> dict[str, onnx.TypeProto.Tensor]:
        values = (*self.graph.value_info, *self.graph.output, *self.graph.input)
        return {
            value.name: value.type.tensor_type
            for value in values
            if value.type.HasField("tensor_type")
        }

    @functools.cached_property
    def _producers(self) -> dict[str, onnx.NodeProto]:
        return {name: node for node in self.graph.node for name in node.output}

    @functools.cached_property
    def _constants(self) -> dict[str, onnx.NodeProto]:
        return {
            node.output[0]: node
            for node in self.graph.node
            if node.op_type == "Constant" and node.domain in MAIN_DOMAINS
        }

    @functools.cached_property
    def _own(self) -> set[str]:
        return {*self._producers, *self._tensors, *(value.name for value in self.graph.input)}

    def defines(self, name: str) -> bool:
        """Whether this graph, or one around it, gives a value of this name."""
        return name in self._own or (self.outer is not None and self.outer.defines(name))

    def constant(self, name: str) -> np.ndarray | None:
        """The value of an initializer or Constant node; None for anything else.

        String constants are arrays of objects.
        """
        if name in self._tensors:
            if uses_external_data(self._tensors[name]):
                return None  # not loaded yet
            value: np.ndarray = numpy_helper.to_array(self._tensors[name])
            return value
        if name in self._constants:
            return _constant_value(self._constants[name])
        if self.outer is not None and name not in self._own:
            return self.outer.constant(name)
        return None

    def shape(self, name: str) -> tuple[int | str | None, ...] | None:
        """The value's shape, with a string for a symbolic and None for an unknown dimension.

        None where the rank is not known.
        """
        if name in self._tensors:
            return tuple(self._tensors[name].dims)
        if name in self._types:
            tensor = self._types[name]
            if not tensor.HasField("shape"):
                return None
            return tuple(_dimension(dim) for dim in tensor.shape.dim)
        constant = self.constant(name) if name in self._constants else None
        if constant is not None:
            return constant.shape
        if self.outer is not None and name not in self._own:
            return self.outer.shape(name)
        return None

    def static_shape(self, name: str) -> tuple[int, ...] | None:
        """The value's shape where every dimension is a known number, else None."""
        shape = self.shape(name)
        if shape is None or not all(isinstance(dim, int) for dim in shape):
            return None
        return tuple(dim for dim in shape if isinstance(dim, int))

    def dtype(self, name: str) -> int:
        """The value's element type as a TensorProto.DataType; 0 where it is not known."""
        if name in self._tensors:
            return int(self._tensors[name].data_type)
        if name in self._types:
            return int(self._types[name].elem_type)
        constant = self.constant(name) if name in self._constants else None
        if constant is not None:
            return int(helper.np_dtype_to_tensor_dtype(constant.dtype))
        if self.outer is not None and name not in self._own:
            return self.outer.dtype(name)
        return 0

    def producer(self, name: str) -> onnx.NodeProto | None:
        """The node that gives `name`, in this graph or one around it."""
        if name in self._producers:
            return self._producers[name]
        if self.outer is not None and name not in self._own:
            return self.outer.producer(name)
        return None


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or None


def _constant_value(node: onnx.NodeProto) -> np.ndarray | None:
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return np.asarray(numpy_helper.to_array(value))
        if attribute.name in _CONSTANT_DTYPES:
            return np.array(value, _CONSTANT_DTYPES[attribute.name])
    return None


_CONSTANT_DTYPES: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}


def scopes(model: onnx.ModelProto) -> Iterator[Scope]:
    """The main graph, then the bodies within it, each after the graph around it."""
    opset = next((entry.version for entry in model.opset_import if entry.domain in MAIN_DOMAINS), 1)
    yield from _scopes(Scope(model.graph, opset))


def _scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for node in scope.graph.node:
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs
            for body in bodies:
                yield from _scopes(Scope(body, scope.opset, scope))


@dataclass
class Replacement:
    """Collects the nodes that stand in for one node, under names that are free.

    Parameters
    ----------
    node : onnx.NodeProto
        What is replaced; its outputs must be written by the nodes added.
    names : Names
    nodes : list of onnx.NodeProto
    """

    node: onnx.NodeProto
    names: Names
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def constant(self, value: Any, dtype: Any = None) -> str:
        """The name of a Constant that holds `value`."""
        tensor = numpy_helper.from_array(np.asarray(value, dtype))
        return self.add("Constant", [], value=tensor)

    def add(
        self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node of one output; gives that output's name, which is fresh unless given."""
        return self.add_many(op, inputs, [output], **attributes)[0]

    def add_many(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str | None], **attributes: Any
    ) -> list[str]:
        """Add a node of several outputs; each None in `outputs` becomes a fresh name."""
        base = self.node.name or (self.node.output[0] if self.node.output else self.node.op_type)
        written = [self.names.fresh(f"{base}/{op}") if out is None else out for out in outputs]
        name = self.names.fresh(f"{base}/{op}")
        self.nodes.append(helper.make_node(op, list(inputs), written, name, **attributes))
        return written


Replace = Callable[["onnx.NodeProto", Scope, Replacement], bool]


def replace_nodes(model: onnx.ModelProto, replace: Replace) -> int:
    """Offer every node, also of bodies, to `replace`; gives how many it replaced.

    `replace` answers whether it did; the nodes it added to its Replacement, perhaps none, then
    take the node's place.
    """
    names = Names(model)
    count = 0
    for scope in reversed(list(scopes(model))):  # bodies first: writing a graph copies its nodes
        nodes = []
        changed = 0
        for node in scope.graph.node:
            replacement = Replacement(node, names)
            if replace(node, scope, replacement):
                nodes.extend(replacement.nodes)
                changed += 1
            else:
                nodes.append(node)
        if changed:
            del scope.graph.node[:]
            scope.graph.node.extend(nodes)
            count += changed
    return count


def replaces(*operators: str) -> Callable[[Replace], Callable[[onnx.ModelProto], int]]:
    """Make a rewrite of a function: `replace_nodes` for those of ONNX's own `operators`."""

    def make(replace: Replace) -> Callable[[onnx.ModelProto], int]:
        def replace_one(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
            named = node.op_type in operators and node.domain in MAIN_DOMAINS
            return named and replace(node, scope, new)

        @functools.wraps(replace)
        def rewrite(model: onnx.ModelProto) -> int:
            return replace_nodes(model, replace_one)

        return rewrite

    return make


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The node's attributes by name; strings are bytes."""
    return {item.name: helper.get_attribute_value(item) for item in node.attribute}


def op_label(node: onnx.NodeProto) -> str:
    """The operator with its domain, where that is not ONNX's own."""
    return node.op_type if node.domain in MAIN_DOMAINS else f"{node.domain}.{node.op_type}"


def describe(node: onnx.NodeProto, scope: Scope) -> str:
    """The node for a message: operator, name, inputs with their dtypes and shapes."""
    name = f"node '{node.name}'" if node.name else f"the node that gives '{node.output[0]}'"
    inputs = [_describe_value(value, scope) for value in node.input if value]
    return f"{op_label(node)} ({name}; inputs: {', '.join(inputs) or 'none'})"


def _describe_value(name: str, scope: Scope) -> str:
    dtype = scope.dtype(name)
    label = onnx.TensorProto.DataType.Name(dtype).lower() if dtype else "unknown type"
    shape = scope.shape(name)
    dims = "of unknown rank" if shape is None else f"[{', '.join(map(_show, shape))}]"
    return f"{name} {label}{' ' if shape is None else ''}{dims}"


def _show(dim: int | str | None) -> str:
    return "?" if dim is None else str(dim)
