"""The codegen: a region becomes a model of OpenVINO's, and that becomes a payload."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.openvino.constants import take_out
from tvm_byoc_kit.backends.openvino.memory import lent
from tvm_byoc_kit.backends.openvino.opset import element_type, integers, opset
from tvm_byoc_kit.backends.openvino.payload import Header, pack
from tvm_byoc_kit.errors import ModelError, reason
from tvm_byoc_kit.graph import Shape, Value
from tvm_byoc_kit.payload import Payload
from tvm_byoc_kit.signature import folded

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Dim, Graph, Op, Operand

__all__ = ["Conversion", "codegen"]


def codegen(graph: Graph, options: Mapping[str, Any]) -> Payload:
    """The payload of a region, with its large constants beside it.

    Weights that are stored as halves are in the payload: TVM has them as they were.

    Parameters
    ----------
    graph : Graph
    options : mapping
        The fields of :class:`OpenVINOOptions`; what is missing has its default.

    Raises
    ------
    ModelError
        Naming the region and the op that OpenVINO refuses.
    """
    from tvm_byoc_kit.backends.openvino.options import OpenVINOOptions

    chosen = OpenVINOOptions(**options)
    converted = Conversion(graph)
    fp16 = chosen.weights == "fp16"
    beside = () if fp16 else take_out(converted.model, converted.constants)
    header = Header(
        device=chosen.device,
        properties=_properties(chosen),
        inputs=converted.inputs,
        outputs=converted.outputs,
        copies=converted.copies,
        constants=len(beside),
    )
    model, weights = _serialized(converted.model, fp16=fp16)
    return Payload(pack(header, weights, model), beside)


def _properties(options: Any) -> dict[str, str]:
    properties = {
        "PERFORMANCE_HINT": options.performance.upper(),
        "INFERENCE_PRECISION_HINT": options.precision,
    }
    if options.device == "CPU":
        # Pinned threads wait for their core while others are free, on machines with other work.
        properties["ENABLE_CPU_PINNING"] = "NO"
    if options.threads:
        properties["INFERENCE_NUM_THREADS"] = str(options.threads)
    if options.cache_dir:
        properties["CACHE_DIR"] = options.cache_dir
    return properties


def _serialized(model: Any, *, fp16: bool) -> tuple[bytes, bytes]:
    """IR and weights; OpenVINO's Python writes them to files only."""
    import openvino

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.xml")
        if fp16:
            openvino.save_model(model, path, compress_to_fp16=True)
        else:
            openvino.serialize(model, path)
        return path.read_bytes(), path.with_suffix(".bin").read_bytes()


class Conversion:
    """One region as a model.

    Parameters
    ----------
    graph : Graph

    Attributes
    ----------
    model : openvino.Model
    inputs, outputs : list of int
        For each port of the model, the number of the call's argument: inputs, then outputs.
    copies : list of (int, int)
        Arguments that are outputs and equal one that is an input.
    constants : list of (Value, node)
        Those that the model was given as they are.
    """

    def __init__(self, graph: Graph) -> None:
        import openvino

        self._graph = graph
        self._symbols: dict[str, Node] = {}
        self.constants: list[tuple[Value, Node]] = []
        self._parameters = [self._parameter(number, v) for number, v in enumerate(graph.inputs)]
        self._nodes: dict[str, Node] = {
            value.name: node.output(0)
            for value, node in zip(graph.inputs, self._parameters, strict=True)
        }
        for op in graph.ops:
            self._convert(op)
        results = self._results()
        read = [n for n, node in enumerate(self._parameters) if node.output(0).get_target_inputs()]
        self.inputs = read
        # OpenVINO looks for the version of its format in the first 512 bytes, behind the name.
        self.model = openvino.Model(results, [self._parameters[n] for n in read], "region")

    def _parameter(self, number: int, value: Value) -> Node:
        shape = [dim if isinstance(dim, int) else -1 for dim in value.shape]
        node = opset.parameter(shape, element_type(value.dtype), name=f"input_{number}")
        node.output(0).set_names({f"input_{number}"})
        return node

    def _results(self) -> list[Node]:
        """The model's outputs.

        An input that is an output as well gets no port, but a copy by the executor: OpenVINO does
        not write such an output into the tensor it is given, and corrupts the input instead.
        """
        position = {node.get_friendly_name(): n for n, node in enumerate(self._parameters)}
        results = []
        self.outputs: list[int] = []
        self.copies: list[tuple[int, int]] = []
        for number, value in enumerate(self._graph.outputs, len(self._graph.inputs)):
            tensor = self._tensor(value)
            source = position.get(tensor.get_node().get_friendly_name())
            if source is not None:
                self.copies.append((source, number))
                continue
            results.append(opset.result(tensor))
            self.outputs.append(number)
        return results

    def _convert(self, op: Op) -> None:
        from tvm_byoc_kit.backends.openvino.ops import TABLE

        where = f"region `{self._graph.name}`, {op.name}"
        if op.name not in TABLE:
            raise ModelError(
                f"{where}: the OpenVINO backend has no such operator; partition the module again"
            )
        try:
            operands = [self._operand(operand) for operand in op.operands]
            made = TABLE[op.name].convert(op, *operands)
        except RuntimeError as error:  # OpenVINO's own, from validating the node
            raise ModelError(f"{where}: OpenVINO refuses it: {reason(error)}") from error
        outputs = made if isinstance(made, list) else [made]
        for value, node in zip(op.results, outputs, strict=True):
            self._nodes[value.name] = node.output(0) if hasattr(node, "output") else node

    def _operand(self, operand: Operand) -> Any:
        if isinstance(operand, Value):
            return self._tensor(operand)
        if isinstance(operand, Shape):
            return self._vector(operand.dims)
        if isinstance(operand, tuple):
            return tuple(self._operand(member) for member in operand)
        return operand

    def _tensor(self, value: Value) -> Node:
        if value.name not in self._nodes:
            node = _constant(value.data)
            self.constants.append((value, node))
            self._nodes[value.name] = node.output(0)
        return self._nodes[value.name]

    # --- Symbolic shapes: nodes that compute sizes from the shapes of the inputs ---

    def _vector(self, dims: tuple[Dim, ...]) -> Node:
        if all(isinstance(dim, int) for dim in dims):
            return integers(dims)  # type: ignore[arg-type]
        return opset.concat([opset.unsqueeze(self._size(dim), integers(0)) for dim in dims], 0)

    def _size(self, dim: Dim) -> Node:
        """A dimension, as a scalar."""
        if isinstance(dim, int):
            return integers(dim)
        if dim in self._graph.symbols:  # first: it may be called like a keyword of Python
            return self._symbol(dim)
        return folded(dim, self._leaf, lambda name, *sides: getattr(opset, _NODES[name])(*sides))

    def _leaf(self, leaf: int | str) -> Node:
        return integers(leaf) if isinstance(leaf, int) else self._symbol(leaf)

    def _symbol(self, name: str) -> Node:
        if name not in self._symbols:
            number, axis = self._graph.symbols[name]
            held = self._parameters[number]
            shape = held if self._graph.inputs[number].dims is not None else opset.shape_of(held)
            self._symbols[name] = opset.gather(shape, integers(axis), integers(0))
        return self._symbols[name]


def _constant(data: Any) -> Node:
    """A constant on the memory of the graph's own array, which outlives the model."""
    return opset.constant(lent(data), shared_memory=True) if data.ndim else opset.constant(data)


_NODES = {
    "Add": "add",
    "Sub": "subtract",
    "Mult": "multiply",
    "FloorDiv": "divide",
    "Mod": "floor_mod",
    "max": "maximum",
    "min": "minimum",
}
