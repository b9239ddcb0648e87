"""From an ONNX file to a Relax module: the steps of the import, in their order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from tvm_byoc_kit.frontends.onnx.conversion import ConversionError, check_types, convert
from tvm_byoc_kit.frontends.onnx.reading import ModelSource, read
from tvm_byoc_kit.frontends.onnx.rewrites import apply_rewrites, finish_import
from tvm_byoc_kit.frontends.onnx.rewrites.functions import inline_functions
from tvm_byoc_kit.frontends.onnx.rewrites.versions import upgrade
from tvm_byoc_kit.frontends.onnx.scan import check_operators
from tvm_byoc_kit.frontends.onnx.shapes import Shape, fix_shapes, write_shapes
from tvm_byoc_kit.frontends.onnx.simplification import Simplifier, Simplify
from tvm_byoc_kit.frontends.onnx.structure import check_nodes, check_structure

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["import_module"]


def import_module(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int | str]],
    simplify: Simplify,
) -> tuple[ModelSource, IRModule, list[str]]:
    """Import; gives what was read, the module, and the names of the outputs.

    A model that TVM does not take, and that was not simplified because nothing seemed to be left to
    fold, is simplified and tried once more.

    Raises
    ------
    ModelError
    """
    simplifier = Simplifier(simplify)
    model, fixed, edited = _open(source, shapes)
    outputs = [value.name for value in model.proto.graph.output]
    simplified = simplifier.wants(model, fixed) and simplifier.run(model, fixed, edited=edited)
    try:
        return model, _lower(model, fixed, simplified=simplified), outputs
    except ConversionError:
        if simplified or not simplifier.may_help(model, fixed):
            raise
        again, _, edited = _open(source, shapes)
        if not simplifier.run(again, fixed, edited=edited):
            raise
        return again, _lower(again, fixed, simplified=True), outputs


def _open(
    source: str | os.PathLike[str] | onnx.ModelProto, shapes: Mapping[str, Sequence[int | str]]
) -> tuple[ModelSource, dict[str, Shape], bool]:
    """Read and check; gives also the inputs' shapes, and whether the model had to be changed."""
    model = read(source)
    check_structure(model.proto)
    check_operators(model.proto, model.name)
    check_nodes(model.proto)
    fixed = fix_shapes(model.proto, shapes, model.name)
    # onnxsim refuses outputs without a shape; here they get one.
    bare = any(not value.type.tensor_type.HasField("shape") for value in model.proto.graph.output)
    edited = bare + upgrade(model.proto) + inline_functions(model.proto)
    check_operators(model.proto, model.name)  # what the functions' bodies use, too
    return model, fixed, bool(edited)


def _lower(model: ModelSource, fixed: Mapping[str, Shape], *, simplified: bool) -> IRModule:
    write_shapes(model.proto, fixed)
    model.load_weights()
    used = apply_rewrites(model.proto)
    mod = convert(model.proto, fixed, model.name, simplified=simplified)
    mod = finish_import(mod, used)
    check_types(mod, model.proto, model.name)
    return mod
