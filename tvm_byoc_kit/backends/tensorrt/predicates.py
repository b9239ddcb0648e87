"""What TensorRT cannot run, as reasons.

Each predicate gets a call that a pattern matched. What it refuses is what TensorRT's builder
rejects, what TensorRT computes otherwise than Relax means it, or what its network API cannot say.
A dynamic batch is none of these: optimization profiles have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.operands import computed_tuple, named_tensors, static
from tvm_byoc_kit.backends.tensorrt import layers, moves, quantization
from tvm_byoc_kit.backends.tensorrt.dtypes import mixed_dtypes, refused_dtype
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["refusal"]

_MOST_DIMENSIONS = 8  # nvinfer1::Dims::MAX_DIMS
_SCALAR_OPERANDS = frozenset({"relax.clip"})


def _unknown(call: Call) -> str | None:
    for name, ty in named_tensors(call):
        if ty.ndim < 0 or not hasattr(ty.shape, "values"):
            return f"the shape of {name} is unknown; TensorRT needs its rank"
        if ty.dtype is None:
            return f"the dtype of {name} is unknown"
    return None


def _number(call: Call) -> str | None:
    from tvm.ir import PrimType

    for i, arg in enumerate(call.args):
        if isinstance(arg.ty, PrimType) and call.op.name not in _SCALAR_OPERANDS:
            return f"operand {i} is a number; TensorRT has tensors"
    return None


def _rank(call: Call) -> str | None:
    for name, ty in named_tensors(call):
        if ty.ndim > _MOST_DIMENSIONS:
            return f"{name} has {ty.ndim} dimensions; TensorRT has up to {_MOST_DIMENSIONS}"
    return None


def _empty(call: Call) -> str | None:
    for name, ty in named_tensors(call):
        if any(static(dim) == 0 for dim in ty.shape.values):
            return f"{name} has no elements; TensorRT has one or more"
    return None


def _constants_only(call: Call) -> str | None:
    from tvm import relax
    from tvm.ir import GenericConst

    if call.op.name == "relax.dequantize":  # of weights, which TensorRT keeps as bytes
        return None
    parts = [
        part
        for arg in call.args
        for part in (arg.fields if isinstance(arg, relax.Tuple) else [arg])
    ]
    tensors = [part for part in parts if isinstance(part.ty, relax.TensorType)]
    if tensors and all(isinstance(part, GenericConst) for part in tensors):
        return "every operand is a constant; byoc.prepare computes such calls"
    return None


#: Asked of every call, in this order: the later ones read shapes and dtypes.
_ALWAYS: tuple[Predicate, ...] = (
    computed_tuple,
    _number,
    _unknown,
    _rank,
    _empty,
    _constants_only,
    refused_dtype,
    mixed_dtypes,
)


def refusal(call: Call) -> str | None:
    """Why TensorRT cannot run `call`, or None when it can."""
    name = call.op.name
    tables = (layers.PREDICATES, moves.PREDICATES, quantization.PREDICATES)
    own = (predicate for table in tables for predicate in table.get(name, ()))
    return first_reason((*_ALWAYS, *own), call)
