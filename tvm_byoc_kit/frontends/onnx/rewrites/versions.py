"""Operators of old opsets, which TVM's converters would read as their newer forms."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import helper, version_converter

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, describe, scopes
from tvm_byoc_kit.frontends.onnx.reading import merge_structure, structure_of

__all__ = ["upgrade"]

# The first opset that TVM's converters read right throughout.
_TARGET = 13
_FREE_INITIALIZERS = 4  # the IR version from which initializers are not listed as inputs too


def _always(_: onnx.NodeProto) -> bool:
    return True


def _has(*names: str) -> Callable[[onnx.NodeProto], bool]:
    return lambda node: any(attribute.name in names for attribute in node.attribute)


_NUMPY_BROADCASTS = 7  # the opset from which operators broadcast as NumPy does
_BROADCAST = (
    *("Add", "Sub", "Mul", "Div", "Pow", "PRelu"),
    *("And", "Or", "Xor", "Less", "Greater", "Equal"),
)
# Operator -> the first opset whose form the converter reads, and which nodes of older opsets it
# would read wrong.
_FIRST_RIGHT: dict[str, tuple[int, Callable[[onnx.NodeProto], bool]]] = {
    **dict.fromkeys(_BROADCAST, (_NUMPY_BROADCASTS, _has("axis", "broadcast"))),
    "Gemm": (_NUMPY_BROADCASTS, _has("broadcast")),
    "BatchNormalization": (9, _always),
    **dict.fromkeys(("Clip", "Min", "Max"), (9, _always)),  # what they become has comparisons
    "Cast": (6, _always),
    "Concat": (4, _always),
    "Dropout": (7, _always),
    "Pad": (2, _always),
    "Reshape": (5, _always),
    "Resize": (11, _always),
    "Slice": (10, _always),
    "Split": (2, _always),
    "Tile": (6, _always),
    "TopK": (11, _always),
    "Upsample": (10, _always),
    "LpPool": (2, _always),
    "GlobalLpPool": (2, _always),
}


def upgrade(model: onnx.ModelProto) -> int:
    """Convert the model to opset 13 where a node needs it; gives the number of such nodes.

    Raises
    ------
    ModelError
        When onnx cannot convert the model.
    """
    old = _misread(model)
    if not old:
        return 0
    _refuse_axes(model)
    if any(scope.outer is not None for scope in scopes(model)):
        raise ModelError(
            f"{old[0]} has the form of an old opset, and onnx cannot convert a model with If, Loop "
            f"or Scan. Export the model with opset {_TARGET} or newer"
        )
    light = structure_of(model)
    light.ir_version = max(model.ir_version, _FREE_INITIALIZERS)
    try:
        light = version_converter.convert_version(light, _TARGET)
    except Exception as error:  # onnx raises what its C++ throws
        reason = str(error).strip().splitlines()[0].rpartition("failed: ")[2]
        raise ModelError(
            f"{old[0]} has the form of an old opset, and onnx cannot convert the model to opset "
            f"{_TARGET}: {reason}. Export the model with opset {_TARGET} or newer"
        ) from error
    _keep_interface(model, light)
    _restore_coordinates(light.graph)
    merge_structure(model, light)
    return len(old)


def _refuse_axes(model: onnx.ModelProto) -> None:
    for scope in scopes(model):
        for node in scope.graph.node:
            legacy = node.op_type in _BROADCAST and scope.opset < _NUMPY_BROADCASTS
            if legacy and _has("axis")(node):
                raise ModelError(
                    f"{describe(node, scope)} broadcasts along an axis in the way of opset "
                    f"{scope.opset}, which onnx converts wrong. Export the model with opset "
                    f"{_TARGET} or newer"
                )


def _restore_coordinates(graph: onnx.GraphProto) -> None:
    """Say what Resize of opset 10, and Upsample, meant: the converter leaves the newer default."""
    for node in graph.node:
        if node.op_type == "Resize" and not _has("coordinate_transformation_mode")(node):
            node.attribute.extend(
                helper.make_attribute(name, value)
                for name, value in (
                    ("coordinate_transformation_mode", "asymmetric"),
                    ("nearest_mode", "floor"),
                )
            )


def _keep_interface(model: onnx.ModelProto, light: onnx.ModelProto) -> None:
    for field in ("input", "output"):
        before, after = (
            [value.name for value in getattr(proto.graph, field)] for proto in (model, light)
        )
        if before != after:
            raise ModelError(
                f"onnx's conversion to opset {_TARGET} changed the model's {field}s. Export the "
                f"model with opset {_TARGET} or newer"
            )


def _misread(model: onnx.ModelProto) -> list[str]:
    found = []
    for scope in scopes(model):
        for node in scope.graph.node:
            first, wrong = _FIRST_RIGHT.get(node.op_type, (0, _always))
            if node.domain in MAIN_DOMAINS and scope.opset < first and wrong(node):
                found.append(describe(node, scope))
    return found
