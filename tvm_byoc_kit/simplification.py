"""Calls that do nothing, or that a plainer one does as well.

Importers write down what the source model says: a broadcast to the shape that is there already, a
slice of everything, ``Max(a, b)`` as a stack and a reduction. Each keeps neighbouring matches of a
backend apart, or is an op that its patterns do not have. Every rule gives the same numbers.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.rewriting import (
    Scope,
    array_of,
    constant_of,
    op_name,
    permutation_of,
    rewrite_calls,
    same_shape,
    static_shape,
)

if TYPE_CHECKING:
    from collections import Counter

    from tvm import IRModule

    from tvm_byoc_kit.rewriting import Rule

__all__ = ["remove_dropout", "simplify", "sink_permutations"]


def remove_dropout(mod: IRModule, notes: Counter[str] | None = None) -> IRModule:
    """Replace each dropout by its input, and its mask by ones: what it is at inference."""
    return rewrite_calls(mod, {"relax.nn.dropout": _dropout}, notes)


def simplify(mod: IRModule, notes: Counter[str] | None = None) -> IRModule:
    """Apply every rule of this module once, from a function's inputs to its outputs."""
    return rewrite_calls(mod, _RULES, notes)


def sink_permutations(mod: IRModule, notes: Counter[str] | None = None) -> IRModule:
    """Move permutations from the operands of elementwise calls behind these calls.

    There they meet the opposite ones, which `simplify` takes out: ``ConvertLayout`` puts a pair of
    them around every op whose layout it does not know, such as ``clip``.
    """
    return rewrite_calls(mod, dict.fromkeys(_ELEMENTWISE, _sink), notes)


def _dropout(call: Any, _original: Any, _scope: Scope) -> Any:
    from tvm import relax

    return relax.Tuple([call.args[0], relax.op.ones_like(call.args[0])])


# --- Moves of data ------------------------------------------------------------------------------


def _is_same(call: Any) -> bool:
    source = call.args[0]
    return same_shape(call, source) and str(call.ty.dtype) == str(source.ty.dtype)


def _drop_if_same(call: Any, _original: Any, _scope: Scope) -> Any:
    return call.args[0] if _is_same(call) else None


def _astype(call: Any, _original: Any, scope: Scope) -> Any:
    """Nothing where the dtype is there already; int64 cast to int32 without wrapping it before."""
    from tvm import relax

    if _is_same(call):
        return call.args[0]
    source = _wrapped(call.args[0], scope) if str(call.ty.dtype) == "int32" else None
    return None if source is None else relax.op.astype(source, "int32")


def _wrapped(value: Any, scope: Scope) -> Any:
    """What `value` is, wrapped around into int32's range as a cast from int64 does by itself.

    ``Cast`` from floats arrives so: ``u = x % 2**32; where(u >= 2**31, u - 2**32, u)``.
    """
    chosen = scope.value(value)
    if op_name(chosen) != "relax.where":
        return None
    test, lower, rest = map(scope.value, chosen.args)
    if tuple(map(op_name, (test, lower, rest))) != _WRAPPING or str(rest.ty.dtype) != "int64":
        return None
    limits = [array_of(scope.value(call.args[1])) for call in (test, lower, rest)]
    expected = zip(limits, (2**31, 2**32, 2**32), strict=True)
    if not all(limit is not None and (limit == number).all() for limit, number in expected):
        return None
    same = all(call.args[0].same_as(chosen.args[2]) for call in (test, lower))
    return rest.args[0] if same and same_shape(rest, rest.args[0]) else None


_WRAPPING = ("relax.greater_equal", "relax.subtract", "relax.floor_mod")

_RESHAPES = frozenset({"relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"})


def _reshape(call: Any, _original: Any, scope: Scope) -> Any:
    """A chain of reshapes as the last of them, or as nothing."""
    from tvm import relax

    source, links = call.args[0], 0
    while op_name(behind := scope.value(source)) in _RESHAPES:
        source, links = behind.args[0], links + 1
    if same_shape(call, source):
        return source
    shape = static_shape(call)
    if not links or shape is None or static_shape(source) is None:
        return None
    return relax.op.reshape(source, shape)


def _permute(call: Any, _original: Any, scope: Scope) -> Any:
    """Two permutations as one; one that moves nothing as nothing."""
    from tvm import relax

    axes = permutation_of(call)
    source = call.args[0]
    inner = scope.value(source)
    if op_name(inner) == "relax.permute_dims":
        first = permutation_of(inner)
        axes, source = [first[axis] for axis in axes], inner.args[0]
    if axes == sorted(axes):
        return source
    return None if source is call.args[0] else relax.op.permute_dims(source, axes)


def _strided_slice(call: Any, _original: Any, _scope: Scope) -> Any:
    """A slice of everything: forward, in steps of one, with the size of its input."""
    steps = call.args[4].fields if len(call.args) > 4 else ()  # noqa: PLR2004 - the strides
    forward = all(getattr(step, "value", None) == 1 for step in steps)
    known = static_shape(call) is not None
    return call.args[0] if forward and known and _is_same(call) else None


def _join(call: Any, _original: Any, scope: Scope) -> Any:
    """A concatenation of one tensor."""
    parts = scope.value(call.args[0])
    return parts.fields[0] if len(getattr(parts, "fields", ())) == 1 else None


def _take(call: Any, _original: Any, scope: Scope) -> Any:
    """One constant index of one axis as a slice, which more backends have."""
    from tvm import relax

    index, source = array_of(scope.value(call.args[1])), call.args[0]
    shape = static_shape(source)
    if index is None or index.ndim or shape is None or call.attrs.axis is None:
        return None
    axis, at = int(call.attrs.axis) % len(shape), int(index)
    if not 0 <= at < shape[axis]:
        return None
    part = scope.emit(relax.op.strided_slice(source, [axis], [at], [at + 1], [1]))
    return relax.op.reshape(part, [size for dim, size in enumerate(shape) if dim != axis])


def _sink(call: Any, _original: Any, scope: Scope) -> Any:
    """``op(permute(x), ...)`` as ``permute(op(x, ...))``, the other operands permuted back."""
    from tvm import relax

    producers = [scope.value(argument) for argument in call.args]
    permuted = [producer for producer in producers if op_name(producer) == "relax.permute_dims"]
    orders = {tuple(permutation_of(producer)) for producer in permuted}
    if len(orders) != 1:
        return None
    (axes,) = map(list, orders)
    operands = []
    for argument, producer in zip(call.args, producers, strict=True):
        source = producer.args[0] if producer in permuted else _permuted_back(argument, axes, scope)
        if source is None:
            return None
        operands.append(source)
    moved = scope.emit(relax.Call(call.op, operands, call.attrs, call.ty_args))
    return relax.op.permute_dims(moved, axes)


def _permuted_back(argument: Any, axes: list[int], scope: Scope) -> Any:
    """An operand in the order before the permutation by `axes`; None when it would take a move."""
    from tvm import relax

    array = array_of(scope.value(argument))
    if array is None:
        return argument if not isinstance(argument.ty, relax.TensorType) else None
    if not array.ndim:
        return argument
    full = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return constant_of(np.ascontiguousarray(full.transpose(np.argsort(axes))))


# --- Arithmetic ---------------------------------------------------------------------------------

# Per op: operands that change nothing, by position. Adding zero is left out for -0.0 alone.
_NEUTRAL: dict[str, dict[int, float]] = {
    "relax.subtract": {1: 0.0},
    "relax.multiply": {0: 1.0, 1: 1.0},
    "relax.divide": {1: 1.0},
    "relax.maximum": {0: -np.inf},
    "relax.minimum": {0: np.inf},
}


def _binary(call: Any, _original: Any, scope: Scope) -> Any:
    """Without a neutral operand; without broadcasts that the op does itself; constants second."""
    for position, neutral in _NEUTRAL.get(op_name(call), {}).items():
        array = array_of(scope.value(call.args[position]))
        other = call.args[1 - position]
        if array is not None and array.size and (array == neutral).all() and _matches(call, other):
            return other
    plain = _unbroadcast(call, scope)
    swapped = _constant_second(call if plain is None else plain, scope)
    return plain if swapped is None else swapped


def _constant_second(call: Any, scope: Scope) -> Any:
    """``x + b`` for ``b + x``, as PyTorch writes ONNX's biases: patterns have them second."""
    from tvm import relax

    if op_name(call) not in ("relax.add", "relax.multiply"):
        return None
    first, second = (array_of(scope.value(operand)) for operand in call.args)
    if first is None or second is not None:
        return None
    return relax.Call(call.op, [call.args[1], call.args[0]], call.attrs, call.ty_args)


def _matches(call: Any, other: Any) -> bool:
    """Whether `other` has the type of the call's result."""
    from tvm import relax

    return isinstance(other.ty, relax.TensorType) and same_shape(call, other)


def _where(call: Any, _original: Any, scope: Scope) -> Any:
    if _guards_softmax(call, scope):
        return call.args[2]
    decided = _decided(call, scope)
    return _unbroadcast(call, scope) if decided is None else decided


def _decided(call: Any, scope: Scope) -> Any:
    """The branch that a constant condition takes everywhere, if it needs no broadcast."""
    condition = array_of(scope.value(call.args[0]))
    if condition is None or not condition.size or condition.any() != condition.all():
        return None
    branch = call.args[1] if condition.all() else call.args[2]
    return branch if _matches(call, branch) else None


# What PyTorch's attention asks of its scores: is there nothing but -inf in a row?
_NO_FINITE_SCORE = ("logical_not", "astype", "max", "astype", "logical_not", "equal")


def _guards_softmax(call: Any, scope: Scope) -> bool:
    """Whether ``where(row is all -inf, 0, softmax(scores))`` has scores without such a row.

    Scores are products of finite numbers, which a constant mask leaves finite in every row. (A
    product beyond 3e38, float32's largest number, would make the original give 0, not NaN.)
    """
    softmax, test = scope.value(call.args[2]), call.args[0]
    if op_name(softmax) != "relax.nn.softmax":
        return False
    for name in _NO_FINITE_SCORE:
        test = scope.value(test)
        if op_name(test) != f"relax.{name}" or (name == "max" and not _is_along_last_axis(test)):
            return False
        infinity, test = test.args[-1], test.args[0]
    infinite = array_of(scope.value(infinity))
    zero = _constant_or_filled(call.args[1], scope)
    return (
        zero is not None
        and not zero.any()
        and infinite is not None
        and bool((infinite == -np.inf).all())
        and test.same_as(softmax.args[0])
        and _has_finite_rows(scope.value(test), scope)
    )


def _is_along_last_axis(reduction: Any) -> bool:
    axes, rank = reduction.attrs.axis, int(reduction.args[0].ty.ndim)
    return axes is not None and [int(axis) % rank for axis in axes] == [rank - 1]


def _constant_or_filled(expr: Any, scope: Scope) -> np.ndarray | None:
    value = scope.value(expr)
    source = _broadcast_source(value)
    return array_of(value if source is None else source)


def _has_finite_rows(scores: Any, scope: Scope) -> bool:
    if op_name(scores) == "relax.add":
        for scored, mask in (scores.args, reversed(scores.args)):
            array = array_of(scope.value(mask))
            if array is not None and array.ndim and np.isfinite(array).any(axis=-1).all():
                return _is_product(scope.value(scored), scope)
    return _is_product(scores, scope)


def _is_product(expr: Any, scope: Scope) -> bool:
    """A matmul, perhaps scaled by a constant and in another shape."""
    while (name := op_name(expr)) in _RESHAPES | {"relax.multiply", "relax.divide"}:
        if name not in _RESHAPES:
            factor = array_of(scope.value(expr.args[1]))
            if factor is None or not np.isfinite(factor).all() or not factor.all():
                return False
        expr = scope.value(expr.args[0])
    return name == "relax.matmul"


def _unbroadcast(call: Any, scope: Scope) -> Any:
    """The call with each broadcast operand in its own shape, where the result keeps its shape."""
    from tvm import relax

    operands = list(call.args)
    changed = False
    for position, operand in enumerate(operands):
        source = _broadcast_source(scope.value(operand))
        if source is None:
            continue
        candidate = [*operands[:position], source, *operands[position + 1 :]]
        rewritten = scope.normalized(relax.Call(call.op, candidate, call.attrs, call.ty_args))
        if same_shape(rewritten, call):
            operands, changed = candidate, True
    return relax.Call(call.op, operands, call.attrs, call.ty_args) if changed else None


def _broadcast_source(expr: Any) -> Any:
    """What `expr` repeats: the operand of a broadcast, or the one value of a filled tensor."""
    from tvm import relax

    name = op_name(expr)
    if name == "relax.broadcast_to":
        return expr.args[0]
    if name in _FILLED:
        return relax.const(_FILLED[name], str(expr.ty.dtype))
    if name in ("relax.full", "relax.full_like"):
        value = array_of(expr.args[1])
        return None if value is None else constant_of(value.astype(str(expr.ty.dtype)))
    return None


_FILLED = {"relax.zeros": 0, "relax.zeros_like": 0, "relax.ones": 1, "relax.ones_like": 1}


def _reduce_stack(op: str) -> Rule:
    """A reduction over stacked tensors as `op` of them: how ONNX's Max and Min arrive."""

    def rule(call: Any, _original: Any, scope: Scope) -> Any:
        from tvm import relax

        stack = scope.value(call.args[0])
        axes = call.attrs.axis
        if op_name(stack) != "relax.stack" or axes is None or call.attrs.keepdims:
            return None
        rank = int(stack.ty.ndim)
        if [int(axis) % rank for axis in axes] != [int(stack.attrs.axis or 0) % rank]:
            return None
        parts = scope.value(stack.args[0]).fields
        combine = getattr(relax.op, op)
        return functools.reduce(lambda x, y: scope.emit(combine(x, y)), parts)

    return rule


_BINARY = (
    "add subtract multiply divide power floor_divide floor_mod mod maximum minimum equal not_equal "
    "less less_equal greater greater_equal logical_and logical_or logical_xor bitwise_and "
    "bitwise_or bitwise_xor"
)

_UNARY = (
    "abs astype ceil clip cos erf exp floor log negative round rsqrt sigmoid sign sin sqrt square "
    "tanh trunc nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.silu nn.softplus"
)
_ELEMENTWISE = tuple(f"relax.{name}" for name in f"{_BINARY} {_UNARY} where".split())

_RULES: dict[str, Rule] = {
    **dict.fromkeys(_RESHAPES, _reshape),
    **{f"relax.{name}": _binary for name in _BINARY.split()},
    "relax.where": _where,
    "relax.broadcast_to": _drop_if_same,
    "relax.astype": _astype,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _strided_slice,
    "relax.concat": _join,
    "relax.take": _take,
    "relax.max": _reduce_stack("maximum"),
    "relax.min": _reduce_stack("minimum"),
}
