"""ONNX files and protos in; weights kept in other files are read once, and late."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx.external_data_helper import (
    ExternalDataInfo,
    load_external_data_for_model,
    uses_external_data,
)

from tvm_byoc_kit.errors import ModelError

__all__ = ["ModelSource", "all_tensors", "merge_structure", "read", "structure_of", "weight_bytes"]

# Tensors above this are left out where only the structure of a model counts. Shapes, axes and
# other values that decide about types are far smaller.
_SMALL_BYTES = 4096


@dataclass
class ModelSource:
    """A model as it was given.

    Parameters
    ----------
    proto : onnx.ModelProto
        The kit's own copy, free to be changed; tensors with external data are not filled yet.
    path : pathlib.Path, optional
        The file; None for a model given as a proto.
    given : onnx.ModelProto, optional
        The user's proto; None for a file.
    name : str
        For messages.
    """

    proto: onnx.ModelProto
    path: Path | None
    given: onnx.ModelProto | None
    name: str

    @property
    def original(self) -> Path | onnx.ModelProto:
        """The model as it was given, for ONNX Runtime."""
        return self.path or self.given or self.proto

    def load_weights(self) -> None:
        """Read the tensors that lie in other files into `proto`."""
        if self.path is None or not any(map(uses_external_data, all_tensors(self.proto))):
            return
        try:
            load_external_data_for_model(self.proto, str(self.path.parent))
        except Exception as error:  # onnx raises several unrelated types
            raise ModelError(f"the weights of {self.path} cannot be read: {error}") from error


def read(source: str | os.PathLike[str] | onnx.ModelProto) -> ModelSource:
    """Read a file without its external data, or copy a proto.

    Raises
    ------
    ModelError
        When there is no such file, it is no ONNX model, or a file with weights is missing.
    """
    if isinstance(source, onnx.ModelProto):
        return _copy(source)
    path = Path(source)
    try:
        proto = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"no such model file: {path}") from None
    except Exception as error:  # protobuf's DecodeError and onnx's own have no common base
        raise ModelError(f"{path} is not an ONNX model: {error}") from error
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(f"{path} is not an ONNX model: it has no graph")
    for tensor in all_tensors(proto):
        if uses_external_data(tensor):
            _check_external(tensor, path)
    return ModelSource(proto, path, None, str(path))


def _copy(given: onnx.ModelProto) -> ModelSource:
    proto = onnx.ModelProto()
    proto.CopyFrom(given)
    name = f"the ONNX model '{given.graph.name}'" if given.graph.name else "the ONNX model"
    for tensor in all_tensors(proto):
        if uses_external_data(tensor):
            raise ModelError(
                f"{name} keeps '{tensor.name}' in another file, and a ModelProto does not say in "
                "which folder; give the path of the .onnx file instead"
            )
    return ModelSource(proto, None, given, name)


def _check_external(tensor: onnx.TensorProto, path: Path) -> None:
    info = ExternalDataInfo(tensor)
    folder = path.parent.resolve()
    file = (folder / info.location).resolve()
    where = f"{path} keeps the weight '{tensor.name}' in {info.location}"
    if folder not in file.parents:
        raise ModelError(f"{where}, which is not in the model's folder; move it there")
    if not file.is_file():
        raise ModelError(f"{where}, which is not there: expected {file}")
    end = (info.offset or 0) + (info.length or 0)
    if file.stat().st_size < end:
        raise ModelError(
            f"{where}, which has {file.stat().st_size} bytes where {end} are needed: it is "
            "truncated or belongs to another model"
        )


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Every tensor: initializers and attributes, also of bodies and functions."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        yield from _node_tensors(function.node)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _node_tensors(graph.node)


def _node_tensors(nodes: Iterator[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == attribute.TENSOR:
                yield attribute.t
            yield from attribute.tensors
            if attribute.type == attribute.GRAPH:
                yield from _graph_tensors(attribute.g)
            for body in attribute.graphs:
                yield from _graph_tensors(body)


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of all tensors, wherever they lie; packed 4-bit types count as whole bytes."""
    return sum(map(_tensor_bytes, all_tensors(model)))


def _tensor_bytes(tensor: onnx.TensorProto) -> int:
    size = 1
    for dim in tensor.dims:
        size *= dim
    if tensor.data_type in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        return size
    return size * int(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def structure_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose large initializers have dtype and shape, but no data.

    onnx's passes in C++ take and give whole models as bytes: with the weights they would cost
    several copies, and fail above 2 GB.
    """
    light = onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name != "graph":
            _set(light, descriptor.name, value)
    for descriptor, value in model.graph.ListFields():
        if descriptor.name != "initializer":
            _set(light.graph, descriptor.name, value)
    light.graph.initializer.extend(map(_without_data, model.graph.initializer))
    return light


def _set(message: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    if hasattr(value, "extend"):
        getattr(message, name).extend(value)
    elif hasattr(value, "CopyFrom"):
        getattr(message, name).CopyFrom(value)
    else:
        setattr(message, name, value)


def _without_data(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if _tensor_bytes(tensor) <= _SMALL_BYTES:
        return tensor
    light = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    light.data_location = onnx.TensorProto.EXTERNAL
    light.external_data.add(key="location", value="left_out")
    return light


def merge_structure(model: onnx.ModelProto, light: onnx.ModelProto) -> None:
    """Give `model` the nodes of `light`, a changed :func:`structure_of` it; the weights stay."""
    own = {tensor.name: tensor for tensor in model.graph.initializer}
    for field in ("node", "value_info"):
        del getattr(model.graph, field)[:]
        getattr(model.graph, field).extend(getattr(light.graph, field))
    model.graph.initializer.extend(
        tensor for tensor in light.graph.initializer if tensor.name not in own
    )
    for field in ("opset_import", "functions"):
        del getattr(model, field)[:]
        getattr(model, field).extend(getattr(light, field))
