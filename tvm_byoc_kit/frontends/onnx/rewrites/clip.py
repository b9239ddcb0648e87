"""Clip, Min and Max in a form that becomes Relax's own clip, minimum and maximum.

TVM's converters call a generated function for Clip, and stack the inputs of Min and Max before they
reduce the stack: no backend's pattern matches either. Here each becomes comparisons and
selections, ``Where(x < low, low, x)``, which say the same in ONNX, are imported one to one, and
are gathered into one Relax operator afterwards.

ONNX Runtime passes a NaN value through all three, and so does the comparison form. Relax's
``clip``, ``minimum`` and ``maximum``, like its ``relu``, give the bound instead on every target
that computes ``a < b ? a : b``. A NaN bound of Clip does not bound, as in ONNX Runtime; for a
bound left out ONNX Runtime takes the largest number of the type, so that an infinite value differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tvm_byoc_kit import rewriting
from tvm_byoc_kit.frontends.onnx.graph_tools import Replacement, Scope, replaces
from tvm_byoc_kit.rewriting import array_of, op_name, rewrite_calls

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["gather", "rewrite"]

_BOUNDS_ARE_INPUTS = 11  # the opset from which they are no attributes
_LARGEST = 2**63 - 1  # what clip's integer bounds can hold
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@replaces("Clip", "Min", "Max")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every Clip, and every Min and Max of several inputs, by comparisons."""
    if node.op_type == "Clip":
        return _replace_clip(node, scope, new)
    if node.op_type in ("Min", "Max") and len(node.input) > 1:
        total = node.input[0]
        for index, value in enumerate(node.input[1:], 2):
            last = index == len(node.input)
            total = _bound(new, node.op_type, total, value, node.output[0] if last else None)
        return True
    return False


def _bound(new: Replacement, operator: str, x: str, bound: str, output: str | None) -> str:
    """``Max`` or ``Min`` of two values; `x` stays where one of them is NaN."""
    beyond = new.add("Greater" if operator == "Max" else "Less", [bound, x])
    return new.add("Where", [beyond, bound, x], output)


def _replace_clip(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    low, high = _bounds(node, scope, new)
    x, output = node.input[0], node.output[0]
    zero_floor = low and not high and scope.dtype(x) in _FLOATS
    if zero_floor and _is_zero(low, scope, new):
        new.add("Relu", [x], output)
    elif not low and not high:
        new.add("Identity", [x], output)
    else:
        if low:
            x = _bound(new, "Max", x, low, None if high else output)
        if high:
            _bound(new, "Min", x, high, output)
    return True


def _bounds(node: onnx.NodeProto, scope: Scope, new: Replacement) -> tuple[str, str]:
    """Names of the lower and upper bound; empty where there is none."""
    if scope.opset >= _BOUNDS_ARE_INPUTS:
        names = [*node.input[1:], "", ""][:2]
    else:
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        names = [
            _typed(values[name], node.input[0], scope, new) if name in values else ""
            for name in ("min", "max")
        ]
    return (_useful(names[0], True, scope, new), _useful(names[1], False, scope, new))


def _useful(name: str, lower: bool, scope: Scope, new: Replacement) -> str:
    """The bound as a scalar constant where it is known; nothing where it bounds nothing."""
    value = _value(name, scope, new) if name else None
    if value is None:
        return name
    if value.size != 1 or _bounds_nothing(value, lower):
        return "" if value.size == 1 else name
    return new.constant(value.reshape(())) if value.ndim else name


def _typed(value: float, x: str, scope: Scope, new: Replacement) -> str:
    dtype = helper.tensor_dtype_to_np_dtype(scope.dtype(x) or TensorProto.FLOAT)
    return new.constant(value, dtype)


def _value(name: str, scope: Scope, new: Replacement) -> np.ndarray | None:
    for node in new.nodes:
        if name in node.output:
            return np.asarray(onnx.numpy_helper.to_array(node.attribute[0].t))
    return scope.constant(name)


def _bounds_nothing(value: np.ndarray, lower: bool) -> bool:
    number = value.reshape(-1)[0]
    if value.dtype.kind in "iu":
        limits = np.iinfo(value.dtype)
        return bool(number == (limits.min if lower else limits.max))
    number = float(number)
    return bool(np.isnan(number) or number == (-np.inf if lower else np.inf))


def _is_zero(name: str, scope: Scope, new: Replacement) -> bool:
    value = _value(name, scope, new)
    return value is not None and float(value.reshape(-1)[0]) == 0.0


def gather(mod: IRModule) -> IRModule:
    """Turn the comparisons that :func:`rewrite` made into minimum, maximum and clip."""
    mod = rewrite_calls(mod, {"relax.where": _to_binary})
    return rewrite_calls(mod, {"relax.minimum": _to_clip})


def _to_binary(call: Any, _: Any, scope: rewriting.Scope) -> Any:
    from tvm import relax

    operators = {"relax.greater": relax.op.maximum, "relax.less": relax.op.minimum}
    condition = scope.value(call.args[0])
    operator = operators.get(op_name(condition))
    if operator is None or not all(map(_same, condition.args, call.args[1:])):
        return None
    bound, x = condition.args
    return operator(x, bound)


def _same(first: Any, second: Any) -> bool:
    if first.same_as(second):
        return True
    one, other = array_of(first), array_of(second)
    return one is not None and other is not None and _identical(one, other)


def _identical(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())


def _to_clip(call: Any, _: Any, scope: rewriting.Scope) -> Any:
    from tvm import relax

    inner = scope.value(call.args[0])
    if op_name(inner) != "relax.maximum":
        return None
    bounds = [array_of(inner.args[1]), array_of(call.args[1])]
    if any(bound is None or bound.size != 1 for bound in bounds):
        return None
    low, high = (bound.item() for bound in bounds if bound is not None)
    x = inner.args[0]
    # A bound of higher rank than the value broadcasts it; an empty range means `high` in ONNX.
    fits = all(bound is not None and bound.ndim <= x.ty.ndim for bound in bounds)
    if not fits or not low <= high or (isinstance(high, int) and high > _LARGEST):
        return None
    return relax.op.clip(x, low, high)
