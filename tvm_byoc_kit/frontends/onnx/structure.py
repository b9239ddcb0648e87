"""What every later step relies on: a graph of tensors, in order, each value named once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, describe, scopes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = [
    "check_nodes",
    "check_structure",
    "model_inputs",
    "opset_of",
    "show_inputs",
    "type_label",
]

_SHOWN_NAMES = 8
_FIRST_IR_VERSION = 3

# What NumPy can hold, and so can go in and out of a built model.
_DTYPES = (
    *("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "BOOL"),
    *("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64"),
)


def model_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs without initializers, which old files list as inputs too."""
    initializers = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in initializers]


def opset_of(model: onnx.ModelProto) -> int:
    """Version of ONNX's own operators that the model was written for.

    Raises
    ------
    ModelError
        When the model does not say, or says a version that the onnx package does not know.
    """
    versions = [entry.version for entry in model.opset_import if entry.domain in MAIN_DOMAINS]
    newest = onnx.defs.onnx_opset_version()
    if not versions:
        raise ModelError(
            "the model does not say which version of ONNX's operators it uses (opset_import); set "
            f"it: onnx.helper.make_opsetid('', N), with N at most {newest}"
        )
    if not 1 <= versions[0] <= newest:
        raise ModelError(
            f"the model uses ONNX opset {versions[0]}; the installed onnx {onnx.__version__} knows "
            f"1 to {newest}. Install a newer onnx, or export the model with an older opset"
        )
    return int(versions[0])


def check_structure(model: onnx.ModelProto) -> None:
    """Refuse what is no graph of tensors; sort nodes, fill sparse initializers, shorten domains.

    Raises
    ------
    ModelError
        For a value that is written twice or never, a cycle, an input or output that is not a
        tensor of a supported dtype, or a graph without outputs.
    """
    graph = model.graph
    _shorten_domain(model)
    if model.ir_version < _FIRST_IR_VERSION:
        raise ModelError(
            f"the model has IR version {model.ir_version}; TVM imports {_FIRST_IR_VERSION} and "
            "newer. Load and save it with the onnx package, with model.ir_version set to 8"
        )
    if not graph.output:
        raise ModelError("the model's graph has no outputs, so there is nothing to run")
    for value in (*model_inputs(graph), *graph.output):
        _check_type(value, "input" if value in graph.input else "output")
    outputs = Counter(value.name for value in graph.output)
    if repeated := [name for name, count in outputs.items() if count > 1]:
        raise ModelError(f"the graph lists an output twice: {', '.join(repeated)}")
    _check_graph(graph, set())
    for function in model.functions:
        if function.domain in MAIN_DOMAINS and onnx.defs.has(function.name):
            raise ModelError(
                f"the model redefines ONNX's own operator {function.name} by a function; runtimes "
                "do not agree what that means. Give the function a domain of its own"
            )
        _sort(function.node, set(function.input), f"function {function.domain}.{function.name}")


def _shorten_domain(model: onnx.ModelProto) -> None:
    """Write ONNX's own domain as the empty one, which every tool knows."""
    opsets = [entry for entry in model.opset_import if entry.domain in MAIN_DOMAINS]
    for entry in opsets[:1]:
        entry.domain = ""
    for scope in scopes(model):
        for node in scope.graph.node:
            if node.domain in MAIN_DOMAINS:
                node.domain = ""


def check_nodes(model: onnx.ModelProto) -> None:
    """Refuse nodes whose number of inputs, outputs or attributes is not what ONNX says.

    Raises
    ------
    ModelError
        Naming the first such node.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}
    for scope in scopes(model):
        for node in scope.graph.node:
            if node.op_type == "Constant" or any(True for _ in _bodies(node)):
                continue  # bodies are scopes of their own
            try:
                onnx.checker.check_node(node, context)
            except onnx.checker.ValidationError as error:
                reason = str(error).strip().splitlines()[0]
                raise ModelError(f"{describe(node, scope)} is not valid ONNX: {reason}") from error


def _check_data(tensor: onnx.TensorProto, where: str) -> None:
    """Refuse a tensor with more or less data than its shape says."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type in _PACKED:
        return
    count = 1
    for dim in tensor.dims:
        count *= dim
    if tensor.HasField("raw_data"):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        found, wanted, unit = len(tensor.raw_data), count * dtype.itemsize, "bytes"
    else:
        fields = (tensor.float_data, tensor.int32_data, tensor.int64_data, tensor.double_data)
        found = sum(map(len, (*fields, tensor.uint64_data, tensor.string_data)))
        wanted, unit = count, "elements"
    if found != wanted:
        raise ModelError(
            f"{where}: the tensor '{tensor.name}' of shape {list(tensor.dims)} has {found} {unit} "
            f"where {wanted} are needed; the model is damaged"
        )


# More than one element in a byte, or two numbers for one element.
_PACKED = frozenset(
    number
    for name, number in onnx.TensorProto.DataType.items()
    if name in ("UNDEFINED", "COMPLEX64", "COMPLEX128") or name.endswith(("INT2", "INT4", "4E2M1"))
)


def _check_type(value: onnx.ValueInfoProto, role: str) -> None:
    if not value.name:
        raise ModelError(f"an {role} of the graph has no name")
    kind = value.type.WhichOneof("value")
    if kind is None and role == "output":
        return  # inferred later
    if kind != "tensor_type":
        raise ModelError(
            f"{role} '{value.name}' is {_KINDS.get(kind or '', 'of no type')}; only tensors can go "
            "in and out of a built model"
        )
    label = onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type)
    undefined = label == "UNDEFINED" and role == "output"
    if label not in _DTYPES and not undefined:
        raise ModelError(
            f"{role} '{value.name}' has the element type {label.lower()}; supported are "
            f"{', '.join(_DTYPES).lower()}"
        )


_KINDS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "an opaque value",
}


def _check_graph(graph: onnx.GraphProto, outer: set[str]) -> None:
    _fill_sparse(graph)
    where = f"graph '{graph.name}'"
    inputs = Counter(value.name for value in graph.input)
    tensors = Counter(tensor.name for tensor in graph.initializer)
    written = Counter(name for node in graph.node for name in node.output if name)
    for counts, what in ((inputs, "input"), (tensors, "initializer"), (written, "value")):
        if repeated := [name for name, count in counts.items() if count > 1]:
            raise ModelError(f"{where} has more than one {what} called {_quoted(repeated)}")
    if "" in tensors:
        raise ModelError(f"{where} has an initializer without a name")
    for tensor in graph.initializer:
        _check_data(tensor, where)
    known = set(inputs) | set(tensors)
    if again := sorted(known & set(written)):
        raise ModelError(f"{where} writes {_quoted(again)}, which is an input or initializer")
    _sort(graph.node, known | outer, where)
    visible = known | set(written) | outer
    if lost := [value.name for value in graph.output if value.name not in visible]:
        raise ModelError(f"{where} gives {_quoted(lost)}, which nothing writes")
    for node in graph.node:
        for body in _bodies(node):
            _check_graph(body, visible)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == attribute.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _reads(node: onnx.NodeProto) -> set[str]:
    """What a node reads, with what its bodies read of the graph around them."""
    names = {name for name in node.input if name}
    for body in _bodies(node):
        inner = {value.name for value in body.input} | {t.name for t in body.initializer}
        inner |= {t.values.name for t in body.sparse_initializer}
        inner |= {name for part in body.node for name in part.output}
        read = {name for part in body.node for name in _reads(part)}
        read |= {value.name for value in body.output}
        names |= read - inner
    return names


def _sort(nodes: Sequence[onnx.NodeProto], known: set[str], where: str) -> None:
    """Put `nodes` into an order in which values are written before they are read."""
    reads = [_reads(node) for node in nodes]
    written = {name for node in nodes for name in node.output if name}
    for node, names in zip(nodes, reads, strict=True):
        if missing := sorted(names - known - written):
            raise ModelError(
                f"{where}: node '{node.name}' ({node.op_type}) reads {_quoted(missing)}, which "
                "nothing writes"
            )
    order = _topological(nodes, reads, known, where)
    if order != list(range(len(order))):
        ordered = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]
        del nodes[:]  # type: ignore[attr-defined]
        nodes.extend(ordered)  # type: ignore[attr-defined]


def _topological(
    nodes: Sequence[onnx.NodeProto], reads: Sequence[set[str]], known: set[str], where: str
) -> list[int]:
    ready, order, waiting = set(known), list[int](), list(range(len(nodes)))
    while waiting:
        left = []
        for index in waiting:
            if reads[index] <= ready:
                ready.update(nodes[index].output)
                order.append(index)
            else:
                left.append(index)
        if len(left) == len(waiting):
            names = [nodes[index].name or nodes[index].op_type for index in left]
            raise ModelError(f"{where} has a cycle through the nodes {_quoted(names)}")
        waiting = left
    return order


def _fill_sparse(graph: onnx.GraphProto) -> None:
    for sparse in graph.sparse_initializer:
        dense = dense_tensor(sparse)
        graph.initializer.append(numpy_helper.from_array(dense, sparse.values.name))
    del graph.sparse_initializer[:]


def dense_tensor(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """The array that a sparse tensor, in COO form, stands for."""
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def _quoted(names: Iterable[str]) -> str:
    names = list(names)
    shown = ", ".join(f"'{name}'" for name in names[:_SHOWN_NAMES])
    hidden = len(names) - _SHOWN_NAMES
    return shown + (f" and {hidden} more" if hidden > 0 else "")


def type_label(value: onnx.ValueInfoProto) -> str:
    """``x float32[batch, 3]``, for messages."""
    tensor = value.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if not tensor.HasField("shape"):
        return f"{value.name} {dtype} of unknown rank"
    dims = [
        str(dim.dim_value) if dim.HasField("dim_value") else dim.dim_param or "?"
        for dim in tensor.shape.dim
    ]
    return f"{value.name} {dtype}[{', '.join(dims)}]"


def show_inputs(graph: onnx.GraphProto) -> str:
    """All inputs with their types, for messages."""
    return ", ".join(map(type_label, model_inputs(graph))) or "none"
