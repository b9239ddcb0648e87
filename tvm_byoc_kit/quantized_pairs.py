"""Pairs of quantize and dequantize, for backends that have signed bytes around 0 only.

Exporters write unsigned bytes with a zero point of their own for each tensor. Such a pair is a
function of a float: ``clip(round(x / scale), low - zero, high - zero) * scale``. Where that is what
signed bytes around 0 do, the pair becomes one of these; else the function is written out, which
keeps it in the region it stands in, to the bit.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.rewriting import (
    array_of,
    constant_of,
    op_name,
    permutation_of,
    rewrite_calls,
)

if TYPE_CHECKING:
    from tvm import IRModule

    from tvm_byoc_kit.rewriting import Scope

__all__ = ["is_stored_weights", "symmetric_pairs"]

_SIGNED = np.iinfo(np.int8)


def symmetric_pairs(mod: IRModule, notes: Counter[str] | None = None) -> IRModule:
    """`mod` with every pair that has one constant scale and one zero point other than 0 rewritten.

    Weights that are stored as bytes and transposed are transposed as bytes.

    Parameters
    ----------
    mod : tvm.IRModule
    notes : collections.Counter, optional
        Takes what was done.
    """
    rules = {"relax.dequantize": _rewritten, "relax.permute_dims": _transposed}
    return rewrite_calls(mod, rules, notes)


def _rewritten(call: Any, _original: Any, scope: Scope) -> Any:
    from tvm.relax.op import clip, dequantize, divide, multiply, quantize, round  # noqa: A004

    source = scope.value(call.args[0])
    if op_name(source) != "relax.quantize" or {
        str(source.args[0].ty.dtype),
        str(call.ty.dtype),
    } != {"float32"}:
        return None
    parameters = [[_scalar(x) for x in item.args[1:]] for item in (source, call)]
    scale, zero = parameters[0]
    dtype = str(source.ty.dtype)
    if scale is None or zero is None or parameters[0] != parameters[1] or "int" not in dtype:
        return None
    low, high = (int(limit - zero) for limit in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    if dtype == "int8" and not zero:
        return None
    step = constant_of(np.array(scale, np.float32))
    if (low, high) == (_SIGNED.min, _SIGNED.max):
        scope.notes[f"{dtype} around {zero:g} as int8 around 0"] += 1
        none = constant_of(np.array(0, np.int8))
        quantized = scope.emit(quantize(source.args[0], step, none, -1, "int8"))
        return dequantize(quantized, step, none, -1, "float32")
    scope.notes[f"{dtype} around another number in floating point"] += 1
    steps = scope.emit(round(scope.emit(divide(source.args[0], step))))
    return multiply(scope.emit(clip(steps, float(low), float(high))), step)


def _transposed(call: Any, _original: Any, scope: Scope) -> Any:
    from tvm.relax.op import dequantize

    source = scope.value(call.args[0])
    if not is_stored_weights(source):
        return None
    data, scale, zero_point = (array_of(argument) for argument in source.args)
    if data is None or scale is None or zero_point is None:
        return None
    order = permutation_of(call)
    moved = constant_of(np.ascontiguousarray(data.transpose(order)))
    axis = order.index(int(source.attrs.axis) % data.ndim)
    return dequantize(moved, *source.args[1:], axis, str(call.ty.dtype))


def _scalar(parameter: Any) -> float | None:
    array = array_of(parameter)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def is_stored_weights(call: Any) -> bool:
    """Whether `call` makes floats of a constant of signed bytes around 0."""
    arrays = [array_of(argument) for argument in call.args]
    if op_name(call) != "relax.dequantize" or any(array is None for array in arrays):
        return False
    data, _, zero_point = arrays
    return data is not None and data.dtype == np.int8 and not np.any(zero_point)
