"""TVM's importer, made to say which node it cannot import."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.errors import reason as last_line
from tvm_byoc_kit.frontends.onnx.graph_tools import Scope, describe, scopes
from tvm_byoc_kit.frontends.onnx.reading import structure_of
from tvm_byoc_kit.frontends.onnx.shapes import Shape

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["ConversionError", "check_types", "convert"]

_SHOWN_CHARACTERS = 400
_SHOWN_NODES = 5

# How TVM's messages show an operator, and what they show in place of a constant.
_OPERATOR = re.compile(r"In ir\.Op\(span=.*?name=\"([\w.]+)\".*?support_level=\d+\), ")
_METADATA = "# Metadata omitted. Use show_meta=True in script() method to show it. "

# Messages of TVM's importer, and of what it calls, that do not say what is wrong.
_EXPLANATIONS = (
    ("new shape to be", "the shape is computed when the model runs; it must be known before"),
    ("not 'Var'", "a size that must be a number is open or computed when the model runs"),
    ("has no len()", "an input's rank or shape is not known"),
    ("cannot handle ShapeExpr", "a computed shape is used as data"),
    ("Cannot parse attribute", "an attribute is an empty list"),
)


class ConversionError(ModelError):
    """What TVM cannot import as it stands; simplified it may be another matter."""


def convert(
    model: onnx.ModelProto, shapes: Mapping[str, Shape], origin: str, *, simplified: bool
) -> IRModule:
    """Import `model`, whose weights are filled in.

    Raises
    ------
    ConversionError
        Naming the node that could not be imported, its inputs and their shapes.
    """
    from tvm.relax.frontend.onnx import from_onnx

    try:
        with _quiet():
            return from_onnx(
                model,
                shape_dict=_with_symbols(shapes),
                keep_params_in_input=False,
                sanitize_input_names=False,
            )
    except Exception as error:  # the importer raises whatever its converters do
        raise ConversionError(_explain(model, error, origin, simplified=simplified)) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what converters print, and what the importer warns about names, from the user."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _with_symbols(shapes: Mapping[str, Shape]) -> dict[str, list[Any]]:
    from tvm import tirx

    symbols: dict[str, Any] = {}
    return {
        name: [
            symbols.setdefault(dim, tirx.Var(dim, "int64")) if isinstance(dim, str) else dim
            for dim in shape
        ]
        for name, shape in shapes.items()
    }


def _explain(model: onnx.ModelProto, error: Exception, origin: str, *, simplified: bool) -> str:
    line = _OPERATOR.sub(r"\1: ", last_line(error)).replace(_METADATA, "")
    reason = f"{type(error).__name__}: {line.rstrip('.')}"
    for part, explanation in _EXPLANATIONS:
        if part in reason:
            reason = f"{explanation} ({reason})"
            break
    node = _failing_node(error.__traceback__)
    if node is None:
        return f"TVM cannot import the graph of {origin}: {reason}"
    scope = _scope_of(node, model)
    text = f"TVM cannot import {describe(node, scope)} of {origin}: {reason}"
    if scope.outer is not None:
        text += (
            f". The node stands in '{scope.graph.name}', a branch of an If; where the model always "
            "takes the other one, make what the condition depends on an initializer"
        )
    defect = _defect(model)
    if defect:
        return f"{text}. With these input shapes it is no valid ONNX: {defect}"
    if simplified:
        return text
    return (
        f"{text}. Simplifying the model with fixed input shapes may help: "
        "load_model(..., shapes=..., simplify=True)"
    )


def _failing_node(trace: TracebackType | None) -> onnx.NodeProto | None:
    """The node that the importer's innermost loop was at: it only prints that, and no name."""
    found = None
    while trace is not None:
        node = trace.tb_frame.f_locals.get("node")
        if isinstance(node, onnx.NodeProto):
            found = node
        trace = trace.tb_next
    return found


def _scope_of(node: onnx.NodeProto, model: onnx.ModelProto) -> Scope:
    every = list(scopes(model))
    for scope in every:
        if any(own.output == node.output and own.name == node.name for own in scope.graph.node):
            return scope
    return every[0]


def _defect(model: onnx.ModelProto) -> str:
    """What onnx's type inference finds wrong with the model, in one line."""
    try:
        onnx.shape_inference.infer_shapes(structure_of(model), check_type=True, strict_mode=True)
    except Exception as error:  # noqa: BLE001  onnx raises what its C++ throws
        text = " ".join(str(error).split())
        return text if len(text) < _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + " ..."
    return ""


def check_types(mod: IRModule, model: onnx.ModelProto, origin: str) -> None:
    """Refuse operators that can only be built for known shapes, and outputs without a rank.

    Raises
    ------
    ConversionError
        Naming the first Relax operator, and the ONNX nodes whose results have no known shape.
    """
    from tvm.relax import transform

    if not any(_is_unknown(var) for var in _variables(mod)):
        return
    with _quiet():
        legalized = transform.LegalizeOps()(mod)
    operator = next(_unlegalized(legalized), None)
    if operator is None and not _has_unknown_rank(mod["main"].body.body.ty):
        return
    what = f"{operator} must know" if operator else "its outputs must have a rank"
    nodes = (
        "; ".join(islice(_unknown_nodes(model), _SHOWN_NODES))
        or "none that onnx's shape inference finds"
    )
    raise ConversionError(
        f"{origin} computes a shape when it runs: {what} when it is built. ONNX nodes whose "
        f"results have no known shape: {nodes}. Fix the input shapes and simplify the model "
        "(load_model(..., shapes=..., simplify=True)), or cut it before these nodes"
    )


def _variables(mod: IRModule) -> Iterator[Any]:
    from tvm import relax

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            for block in function.body.blocks:
                for binding in block.bindings:
                    yield binding.var


def _is_unknown(var: Any) -> bool:
    from tvm.ir import TupleType
    from tvm.relax import TensorType

    types = [var.ty]
    while types:
        ty = types.pop()
        if isinstance(ty, TupleType):
            types.extend(ty.fields)
        elif isinstance(ty, TensorType) and ty.shape is None:
            return True
    return False


def _has_unknown_rank(ty: Any) -> bool:
    from tvm.ir import TupleType

    if isinstance(ty, TupleType):
        return any(map(_has_unknown_rank, ty.fields))
    return getattr(ty, "ndim", 0) < 0


def _unlegalized(mod: IRModule) -> Iterator[str]:
    """Relax operators that are there still, though they have a lowering."""
    from tvm import relax
    from tvm.ir import Op

    found: list[str] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relax.Call) and isinstance(expr.op, Op):
            lowering = expr.op.get_attr("FLegalize")
            if lowering is not None and expr.op.get_attr("FCallPacked") is None:
                found.append(expr.op.name)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    yield from found


def _unknown_nodes(model: onnx.ModelProto) -> Iterator[str]:
    for scope in scopes(model):
        for node in scope.graph.node:
            known = all(scope.static_shape(name) is not None for name in node.output if name)
            inputs = all(scope.static_shape(name) is not None for name in node.input if name)
            if not known and inputs:
                yield describe(node, scope)
