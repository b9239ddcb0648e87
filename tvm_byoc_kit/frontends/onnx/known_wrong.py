"""What TVM's importer takes and then computes wrong, or cannot run, and no rewrite repairs.

Each entry is as narrow as the fault. scripts/onnx_node_tests.py found most of them, and
tests/integration/test_onnx_node_tests.py sees that they still are wrong upstream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx
from onnx import TensorProto

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    MAIN_DOMAINS,
    Scope,
    attributes_of,
    describe,
    scopes,
)

__all__ = ["KNOWN_WRONG", "KnownWrong", "refuse"]


@dataclass(frozen=True)
class KnownWrong:
    """One fault.

    Parameters
    ----------
    operator : str
        Empty: any.
    condition : str
        When it shows; ends the sentence "it has ...".
    applies : callable
        Whether a node shows it; also true where what it depends on is not known.
    reason : str
        What goes wrong.
    remedy : str
        What to do instead.
    """

    operator: str
    condition: str
    applies: Callable[[onnx.NodeProto, Scope], bool]
    reason: str
    remedy: str


def _trains(node: onnx.NodeProto, _: Scope) -> bool:
    said = attributes_of(node)
    return bool(said.get("training_mode", 0)) or len([name for name in node.output if name]) > 1


def _pools_maxima(node: onnx.NodeProto, _: Scope) -> bool:
    return bool(attributes_of(node).get("mode", b"avg") == b"max")


_SMALL = tuple(
    value
    for name, value in TensorProto.DataType.items()
    if name.startswith("FLOAT8") or name in ("INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1")
)


def _is_small(node: onnx.NodeProto, scope: Scope) -> bool:
    return any(scope.dtype(name) in _SMALL for name in (*node.input, *node.output) if name)


def _sorts_uint64(node: onnx.NodeProto, scope: Scope) -> bool:
    return bool(scope.dtype(node.input[0]) == TensorProto.UINT64)


KNOWN_WRONG: tuple[KnownWrong, ...] = (
    KnownWrong(
        "BatchNormalization",
        "training_mode, or more than one output",
        _trains,
        "TVM's running mean and variance are not those of ONNX",
        "export the model for inference",
    ),
    KnownWrong(
        "RoiAlign",
        "mode 'max'",
        _pools_maxima,
        "TVM takes the maximum of the interpolated samples, ONNX of their weighted neighbours",
        "use mode 'avg', or run this part outside",
    ),
    KnownWrong(
        "",
        "a value of float8, or of less than 8 bits",
        _is_small,
        "TVM's host code rounds and saturates it otherwise, and its runtime has no such arrays",
        "keep the value in 8-bit integers or in float16",
    ),
    KnownWrong(
        "TopK",
        "uint64 values",
        _sorts_uint64,
        "TVM's runtime does not sort them",
        "cast to int64 first",
    ),
)


def refuse(model: onnx.ModelProto) -> int:
    """Check the model as TVM's importer will see it; changes nothing.

    Raises
    ------
    ModelError
        Naming every node that would be computed wrong, why, and what to do.
    """
    found = [
        f"{describe(node, scope)} has {fault.condition}: {fault.reason}; {fault.remedy}"
        for scope in scopes(model)
        for node in scope.graph.node
        if node.domain in MAIN_DOMAINS
        for fault in KNOWN_WRONG
        if fault.operator in ("", node.op_type) and fault.applies(node, scope)
    ]
    if found:
        raise ModelError("TVM takes, but does not compute as ONNX does: " + ". ".join(found))
    return 0
