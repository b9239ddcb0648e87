"""Constant folding: NumPy for what it computes bit for bit as TVM does, TVM for the rest.

TVM's own ``FoldConstant`` compiles LLVM code for every call that it folds, 10 to 30 ms of CPU each;
NumPy needs none. The ops in `_COMPUTE` are those whose result is one IEEE-754 operation per element
or a mere move of data, so that there is one right answer. Sums of floats, transcendental functions
and whatever else is left go through TVM's pass, one call at a time.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.op_cost import total
from tvm_byoc_kit.quantized_pairs import is_stored_weights
from tvm_byoc_kit.rewriting import (
    Scope,
    array_of,
    constant_of,
    known_sizes,
    op_name,
    permutation_of,
    rewrite_calls,
    static_sizes,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from tvm import IRModule

    Array = np.ndarray[Any, np.dtype[Any]]

__all__ = ["LIMIT_BYTES", "fold_constants"]

LIMIT_BYTES = 1 << 20
"""A result larger than this, and larger than the constants it is computed from, is not folded:
that would trade a cheap op (broadcasting a scalar, making zeros) for megabytes in the artifact."""


def fold_constants(
    mod: IRModule, notes: Counter[str] | None = None, *, keep_bytes: bool = False
) -> IRModule:
    """Compute every call whose operands are constants.

    Parameters
    ----------
    mod : tvm.IRModule
    notes : collections.Counter, optional
        Takes what was left alone, and why.
    keep_bytes : bool
        Whether weights that are stored as signed bytes around 0 stay so, and are dequantized where
        the model runs.

    Returns
    -------
    tvm.IRModule
        With the same numbers, bit for bit, as TVM's ``FoldConstant`` gives. Unlike there, calls
        are folded outside dataflow blocks and in branches of ``If`` too, and no constant grows
        beyond `LIMIT_BYTES`.
    """
    rules = dict.fromkeys(_foldable(), _fold) | dict.fromkeys(_SHAPES, _fold_shape)
    if keep_bytes:
        rules["relax.dequantize"] = _fold_other_bytes
    return rewrite_calls(mod, rules, notes)


def _fold_other_bytes(call: Any, _original: Any, scope: Scope) -> Any:
    return None if is_stored_weights(call) else _fold(call, _original, scope)


@functools.cache
def _foldable() -> tuple[str, ...]:
    """Pure operators that are computed by one kernel, from their arguments alone."""
    from tvm.ir import Op

    operators = (Op.get(name) for name in Op.list_op_names() if name.startswith("relax."))
    return tuple(
        str(op.name) for op in operators if op.get_attr("FLegalize") and op.get_attr("FPurity")
    )


def _fold(call: Any, _original: Any, scope: Scope) -> Any:
    arguments = [_evaluated(argument, scope) for argument in call.args]
    if any(argument is None for argument in arguments):
        return None
    size = _bytes_of(call.ty)
    if size is None:
        return None
    if size > max(LIMIT_BYTES, sum(map(_nbytes, arguments))):
        scope.notes[f"{op_name(call)} would grow to {size / 2**20:.1f} MiB"] += 1
        return None
    folded = None
    compute = _COMPUTE.get(op_name(call))
    if compute is not None and all(item is not _NUMPY_CANNOT for item in _flat(arguments)):
        with np.errstate(all="ignore"):  # infinities and NaNs are results like others
            result = compute(call, *arguments)
        if result is _LEAVE:
            scope.notes[f"{op_name(call)}: operands without a defined result"] += 1
            return None
        folded = _constant(call.ty, result)
    return _fold_with_tvm(call, scope) if folded is None else folded


class _Opaque:
    """A constant of a dtype that NumPy has not, such as bfloat16."""

    nbytes = 0


_NUMPY_CANNOT = _Opaque()


def _evaluated(argument: Any, scope: Scope) -> Any:
    """An array, a number, a shape as a tuple, or a list of these; None for what is not constant."""
    from tvm import relax
    from tvm.ir import GenericConst
    from tvm.tirx import FloatImm, IntImm

    argument = scope.value(argument)
    if isinstance(argument, GenericConst):
        array = array_of(argument)
        return _NUMPY_CANNOT if array is None else array
    if isinstance(argument, relax.Tuple):
        items = [_evaluated(field, scope) for field in argument.fields]
        return None if any(item is None for item in items) else items
    if isinstance(argument, relax.ShapeExpr):
        return known_sizes(argument.values)
    if isinstance(argument, (IntImm, FloatImm)):
        return np.asarray(argument.value, _dtype(argument.ty))
    return None


def _flat(arguments: list[Any]) -> list[Any]:
    return [
        part for item in arguments for part in (_flat(item) if isinstance(item, list) else [item])
    ]


def _nbytes(argument: Any) -> int:
    return sum(getattr(item, "nbytes", 0) for item in _flat([argument]))


def _bytes_of(ty: Any) -> int | None:
    """Size of a tensor, or of a tuple of tensors; None when it is not known."""
    from tvm.ir import TupleType

    if isinstance(ty, TupleType):
        return total(map(_bytes_of, ty.fields))
    shape = static_sizes(ty)
    if shape is None or getattr(ty, "dtype", None) is None:
        return None
    return math.prod(shape) * int(ty.dtype.dtype.itemsize)


def _dtype(ty: Any) -> str:
    return str(getattr(ty, "dtype", ty))


def _constant(ty: Any, result: Any) -> Any:
    """`result` as the expression of the type `ty`; None when it is not of that type."""
    from tvm import relax
    from tvm.ir import TupleType

    if result is None:
        return None
    if isinstance(ty, TupleType):
        fields = [_constant(*pair) for pair in zip(ty.fields, result, strict=True)]
        return None if any(field is None for field in fields) else relax.Tuple(fields)
    array = np.asarray(result)
    if array.shape != static_sizes(ty) or str(array.dtype) != _dtype(ty):
        return None
    return constant_of(np.ascontiguousarray(array).reshape(array.shape))


def _fold_with_tvm(call: Any, scope: Scope) -> Any:
    """Let TVM's pass compute `call`, in a module of its own; None when it does not."""
    from tvm import relax
    from tvm.ir import GenericConst

    arguments = [scope.value(argument) for argument in call.args]
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(call.op, arguments, call.attrs, call.ty_args))
        builder.emit_func_output(result)
    try:
        folded = relax.transform.FoldConstant()(builder.get())
    except Exception as error:  # noqa: BLE001 - a legalization of TVM's may raise anything
        scope.notes[f"{op_name(call)} cannot be computed: {type(error).__name__}"] += 1
        return None
    body = folded["main"].body
    if isinstance(body.body, GenericConst):
        return body.body
    values = [binding.value for block in body.blocks for binding in block.bindings]
    return values[-1] if values and isinstance(values[-1], (GenericConst, relax.Tuple)) else None


# --- Calls about shapes -----------------------------------------------------------------------


def _fold_shape(call: Any, _original: Any, scope: Scope) -> Any:
    return _SHAPES[op_name(call)](scope.value(call.args[0]))


def _shape_expr(tensor: Any) -> Any:
    """The shape of a tensor, whose symbols are in scope wherever the tensor is."""
    shape = getattr(tensor.ty, "shape", None)
    return shape if hasattr(shape, "values") else None


def _shape_to_tensor(shape: Any) -> Any:
    sizes = known_sizes(getattr(shape, "values", None))
    return None if sizes is None else constant_of(np.array(sizes, "int64"))


def _tensor_to_shape(tensor: Any) -> Any:
    from tvm import relax

    array = array_of(tensor)
    return None if array is None else relax.ShapeExpr([int(size) for size in array])


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "relax.shape_of": _shape_expr,
    "relax.shape_to_tensor": _shape_to_tensor,
    "relax.tensor_to_shape": _tensor_to_shape,
}


# --- Calls that NumPy computes; None: only TVM knows ------------------------------------------

_LEAVE = object()  # not to be computed at all


def _elementwise(function: Callable[..., Any], kinds: str = "biuf") -> Callable[..., Any]:
    """`function` of operands of one dtype, whose kind is among NumPy's `kinds`."""

    def compute(_call: Any, *operands: Array) -> Any:
        dtypes = {operand.dtype for operand in operands}
        return function(*operands) if len(dtypes) == 1 and dtypes.pop().kind in kinds else None

    return compute


def _division(function: Callable[[Array, Array], Any]) -> Callable[..., Any]:
    """`function` of a dividend and a divisor.

    TVM's code for integers traps, and the process ends, where the quotient is not defined: such a
    call is left to run time, where the model may never come to it.
    """

    def divide(x: Array, y: Array) -> Any:
        if x.dtype.kind == "f":
            return function(x, y)
        smallest = np.iinfo(x.dtype).min
        overflows = (x == smallest) & (y == -1) if smallest else np.False_
        return _LEAVE if not y.all() or overflows.any() else function(x, y)

    return _elementwise(divide, "iuf")


def _truncated(x: Array, y: Array) -> Any:
    return x / y if x.dtype.kind == "f" else (x - np.fmod(x, y)) // y


def _integers_only(function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    return lambda x, y: None if x.dtype.kind == "f" else function(x, y)


def _not_equal(x: Array, y: Array) -> Any:
    """In TVM's code a NaN is not unequal to anything."""
    return None if x.dtype.kind == "f" and (np.isnan(x).any() or np.isnan(y).any()) else x != y


def _astype(call: Any, x: Array) -> Any:
    """Conversions of floats to integers have one answer only within the integers' range."""
    target = np.dtype(_dtype(call.ty))
    if x.dtype.kind == "f" and target.kind in "iu":
        limits = np.iinfo(target)
        if not ((x >= limits.min) & (x <= limits.max) & (np.abs(x) < 2.0**31)).all():
            return None
    return x.astype(target)


def _reshape(call: Any, x: Array, *_shape: Any) -> Any:
    return x.reshape(static_sizes(call.ty))


def _broadcast_to(call: Any, x: Array, *_shape: Any) -> Any:
    return np.broadcast_to(x, static_sizes(call.ty) or ())


def _concat(call: Any, parts: list[Array]) -> Any:
    return np.concatenate(parts, None if call.attrs.axis is None else int(call.attrs.axis))


def _stack(call: Any, parts: list[Array]) -> Any:
    return np.stack(parts, int(call.attrs.axis or 0))


def _split(call: Any, x: Array) -> Any:
    axis = int(call.attrs.axis)
    sizes = [(static_sizes(field) or ())[axis] for field in call.ty.fields]
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _strided_slice(
    _call: Any, x: Array, axes: list[int], begin: list[int], end: list[int], *strides: list[int]
) -> Any:
    index = [slice(None)] * x.ndim
    steps = strides[0] if strides else [1] * len(axes)
    for axis, first, last, step in zip(axes, begin, end, steps, strict=True):
        if step < 0:  # -1 as an end means two things there
            return None
        index[int(axis)] = slice(int(first), int(last), int(step))
    return x[tuple(index)]


def _take(call: Any, x: Array, indices: Array) -> Any:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    size = x.size if axis is None else x.shape[axis]
    if ((indices < 0) | (indices >= size)).any():  # in the mode "fast": a read out of bounds
        return _LEAVE if call.attrs.mode == "fast" else None
    return np.take(x, indices, axis)


def _gather_elements(call: Any, x: Array, indices: Array) -> Any:
    axis = int(call.attrs.axis)
    if ((indices < 0) | (indices >= x.shape[axis])).any():
        return _LEAVE
    if any(i > n for d, (i, n) in enumerate(zip(indices.shape, x.shape, strict=True)) if d != axis):
        return None
    region = tuple(slice(None) if d == axis else slice(n) for d, n in enumerate(indices.shape))
    return np.take_along_axis(x[region], indices, axis)


def _repeat(call: Any, x: Array) -> Any:
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return np.repeat(x, int(call.attrs.repeats), axis)


def _full(value: int | None) -> Any:
    """Makes `value`, or the call's second argument, in the call's shape."""

    def compute(call: Any, *arguments: Any) -> Any:
        fill = value if value is not None else np.asarray(arguments[1]).astype(_dtype(call.ty))
        return np.full(static_sizes(call.ty), fill, _dtype(call.ty))

    return compute


def _arange(call: Any, start: Array, stop: Array, step: Array) -> Any:
    dtype = np.dtype(_dtype(call.ty))
    if dtype.kind != "i" or any(item.dtype.kind != "i" for item in (start, stop, step)):
        return None
    return np.arange(int(start), int(stop), int(step)).astype(dtype)


def _integers(function: Callable[..., Any]) -> Any:
    """A reduction of integers: no order of its steps gives another result."""

    def compute(call: Any, x: Array) -> Any:
        if x.dtype.kind not in "iu" or not x.size:
            return None
        axis = None if call.attrs.axis is None else _ints(call.attrs.axis)
        result = function(x, axis=axis, keepdims=bool(call.attrs.keepdims))
        return np.asarray(result).astype(x.dtype)

    return compute


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


_COMPUTE: dict[str, Callable[..., Any]] = {
    "relax.add": _elementwise(np.add, "iuf"),
    "relax.subtract": _elementwise(np.subtract, "iuf"),
    "relax.multiply": _elementwise(np.multiply, "iuf"),
    "relax.divide": _division(_truncated),
    "relax.floor_divide": _division(_integers_only(np.floor_divide)),
    "relax.floor_mod": _division(_integers_only(np.mod)),
    "relax.mod": _division(_integers_only(np.fmod)),
    # As TVM's code compares: NaN as the first operand gives the second one.
    "relax.maximum": _elementwise(lambda x, y: np.where(x > y, x, y), "iuf"),
    "relax.minimum": _elementwise(lambda x, y: np.where(x < y, x, y), "iuf"),
    "relax.negative": _elementwise(np.negative, "if"),
    "relax.abs": _elementwise(np.abs, "if"),
    "relax.square": _elementwise(lambda x: x * x, "iuf"),
    "relax.sqrt": _elementwise(np.sqrt, "f"),
    "relax.rsqrt": _elementwise(lambda x: np.asarray(1, x.dtype) / np.sqrt(x), "f"),
    "relax.floor": _elementwise(np.floor, "f"),
    "relax.ceil": _elementwise(np.ceil, "f"),
    "relax.trunc": _elementwise(np.trunc, "f"),
    "relax.equal": _elementwise(np.equal),
    "relax.not_equal": _elementwise(_not_equal),
    "relax.less": _elementwise(np.less),
    "relax.less_equal": _elementwise(np.less_equal),
    "relax.greater": _elementwise(np.greater),
    "relax.greater_equal": _elementwise(np.greater_equal),
    "relax.logical_and": _elementwise(np.logical_and, "b"),
    "relax.logical_or": _elementwise(np.logical_or, "b"),
    "relax.logical_xor": _elementwise(np.logical_xor, "b"),
    "relax.logical_not": _elementwise(np.logical_not, "b"),
    "relax.bitwise_and": _elementwise(np.bitwise_and, "biu"),
    "relax.bitwise_or": _elementwise(np.bitwise_or, "biu"),
    "relax.bitwise_xor": _elementwise(np.bitwise_xor, "biu"),
    "relax.where": lambda _call, condition, x, y: np.where(condition, x, y),
    "relax.astype": _astype,
    "relax.reshape": _reshape,
    "relax.flatten": _reshape,
    "relax.expand_dims": _reshape,
    "relax.squeeze": _reshape,
    "relax.permute_dims": lambda call, x: np.transpose(x, permutation_of(call)),
    "relax.broadcast_to": _broadcast_to,
    "relax.concat": _concat,
    "relax.stack": _stack,
    "relax.split": _split,
    "relax.strided_slice": _strided_slice,
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.tile": lambda call, x: np.tile(x, _ints(call.attrs.repeats)),
    "relax.repeat": _repeat,
    "relax.flip": lambda call, x: np.flip(x, int(call.attrs.axis)),
    "relax.tril": lambda _call, x, k: np.tril(x, int(k)),
    "relax.triu": lambda _call, x, k: np.triu(x, int(k)),
    "relax.zeros": _full(0),
    "relax.zeros_like": _full(0),
    "relax.ones": _full(1),
    "relax.ones_like": _full(1),
    "relax.full": _full(None),
    "relax.full_like": _full(None),
    "relax.arange": _arange,
    "relax.sum": _integers(np.sum),
    "relax.prod": _integers(np.prod),
    "relax.max": _integers(np.max),
    "relax.min": _integers(np.min),
}
