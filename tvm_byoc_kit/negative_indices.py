"""Negative indices, which TVM's code for several ops reads and writes out of bounds.

PyTorch, ONNX and NumPy count a negative index from the end. Of Relax's ops, `strided_slice`,
`scatter_elements` and `index_put` do so too; `take` with mode ``fast``, `gather_elements`,
`gather_nd`, `index_tensor` and `scatter_nd` address memory before the tensor, and `one_hot` gives
zeros.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.rewriting import array_of, op_name, rewrite_calls, static_shape
from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np
    from tvm import IRModule

    from tvm_byoc_kit.rewriting import Scope

__all__ = ["normalize_negative_indices"]


def normalize_negative_indices(mod: IRModule) -> IRModule:
    """Make every op that indexes count negative indices from the end.

    Constant indices are replaced by what they mean. A `take` by indices known at run time gets mode
    ``wrap``, which also keeps invalid indices within the tensor; the other ops get
    ``where(i < 0, i + n, i)``. Indices that cannot be negative, such as those of `argsort`, stay.

    Parameters
    ----------
    mod : tvm.IRModule
        Not changed. The pass is idempotent.

    Raises
    ------
    ModelError
        For a constant index that is out of range.
    """
    problems: Counter[str] = Counter()  # an exception would lose its type on its way through TVM
    result = rewrite_calls(mod, _RULES, problems)
    if problems:
        raise ModelError("; ".join(problems))
    return result


def _take(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    data, indices = call.args
    mode, axis = str(call.attrs.mode), call.attrs.axis
    axis = None if axis is None else int(axis)
    if mode not in ("fast", "wrap"):
        return None
    shape = static_shape(data)
    if shape is not None and array_of(scope.value(indices)) is not None:
        size = prod(shape) if axis is None else shape[axis]
        fixed = _from_the_end(indices, [size], call, scope)
        unchanged = fixed is indices and mode == "fast"
        return None if unchanged else relax.op.take(data, fixed, axis, mode="fast")
    if mode == "wrap" or not _may_be_negative(indices, scope):
        return None
    return relax.op.take(data, indices, axis, mode="wrap")


def _gather_elements(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    data, indices = call.args
    axis = int(call.attrs.axis)
    fixed = _from_the_end(indices, [data.ty.shape[axis]], call, scope)
    return None if fixed is indices else relax.op.gather_elements(data, fixed, axis)


def _gather_nd(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    data, indices = call.args
    skipped = int(call.attrs.batch_dims)
    fixed = _from_the_end(indices, _addressed(data, indices, skipped), call, scope)
    return None if fixed is indices else relax.op.gather_nd(data, fixed, skipped)


def _scatter_nd(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    data, indices, updates = call.args
    fixed = _from_the_end(indices, _addressed(data, indices, 0), call, scope)
    if fixed is indices:
        return None
    return relax.op.scatter_nd(data, fixed, updates, call.attrs.reduction)


def _addressed(data: Any, indices: Any, skipped: int) -> list[Any]:
    """The sizes of the axes that a row of `indices` addresses."""
    return list(data.ty.shape)[skipped : skipped + int(indices.ty.shape[-1])]


def _index_tensor(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    data, indices = call.args
    members = scope.value(indices)
    if not isinstance(members, relax.Tuple):
        return None
    fixed = [
        _from_the_end(index, [size], call, scope)
        for index, size in zip(members.fields, data.ty.shape, strict=False)
    ]
    if all(new is old for new, old in zip(fixed, members.fields, strict=True)):
        return None
    return relax.op.index_tensor(data, fixed)


def _one_hot(call: Any, _: Any, scope: Scope) -> Any:
    from tvm import relax

    indices, on, off = call.args
    depth = int(call.attrs.depth)
    fixed = _from_the_end(indices, [depth], call, scope, checked=False)
    return None if fixed is indices else relax.op.one_hot(fixed, on, off, depth, call.attrs.axis)


_RULES = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.scatter_nd": _scatter_nd,
    "relax.index_tensor": _index_tensor,
    "relax.one_hot": _one_hot,
}


def _from_the_end(
    indices: Any, sizes: Sequence[Any], call: Any, scope: Scope, *, checked: bool = True
) -> Any:
    """`indices` without negative ones; the very same where there can be none.

    The last axis of `indices` goes over `sizes`, or there is one size for all.
    """
    known = [_static(size) for size in sizes]
    array = array_of(scope.value(indices))
    if array is not None and None not in known:
        if checked:
            _check_range(array, known, call, scope)
        return _folded(array, known) if _may_be_negative(indices, scope) else indices
    if not _may_be_negative(indices, scope):
        return indices
    from tvm import relax

    dtype = indices.ty.dtype.dtype
    if dtype in ("int8", "int16"):  # which may not hold the size
        indices = scope.emit(relax.op.astype(indices, "int32"))
        dtype = "int32"
    limits = _limits(sizes, known, dtype, scope)
    is_negative = scope.emit(relax.op.less(indices, relax.const(0, dtype)))
    shifted = scope.emit(relax.op.add(indices, limits))
    return scope.emit(relax.op.where(is_negative, shifted, indices))


def _static(size: Any) -> int | None:
    value = getattr(size, "value", size)
    return value if isinstance(value, int) else None


def _check_range(array: np.ndarray, sizes: list[Any], call: Any, scope: Scope) -> None:
    limits = _row(sizes)
    if ((array < -limits) | (array >= limits)).any():
        scope.notes[
            f"{op_name(call)} has the constant indices {array.ravel()[:8].tolist()}, which are out "
            f"of range for size {', '.join(map(str, sizes))}; data has shape "
            f"{[dimension(size) for size in call.args[0].ty.shape]}"
        ] += 1


def _folded(array: np.ndarray, sizes: list[Any]) -> Any:
    import numpy as np
    from tvm import relax

    return relax.const(np.where(array < 0, array + _row(sizes), array).astype("int64"), "int64")


def _row(sizes: list[Any]) -> np.ndarray:
    """One size for each column of the indices, or a scalar for all of them."""
    import numpy as np

    return np.array(sizes if len(sizes) > 1 else sizes[0], dtype="int64")


def _limits(sizes: Sequence[Any], known: list[Any], dtype: str, scope: Scope) -> Any:
    from tvm import relax

    if None not in known:
        return relax.const(_row(known).astype(dtype), dtype)
    limits = scope.emit(relax.op.shape_to_tensor(relax.ShapeExpr(list(sizes))))
    return limits if dtype == "int64" else scope.emit(relax.op.astype(limits, dtype))


def _may_be_negative(indices: Any, scope: Scope, depth: int = 8) -> bool:
    """Whether `indices` are signed and nothing shows that none is negative."""
    if str(indices.ty.dtype.dtype).startswith(("uint", "bool")):
        return False
    value = scope.value(indices)
    array = array_of(value)
    if array is not None:
        return bool((array < 0).any())
    name = op_name(value)
    if name in _NEVER_NEGATIVE:
        return False
    if name in _BOUNDED:
        return not _BOUNDED[name](value, scope)
    if name in _PASSING and depth:
        return _may_be_negative(value.args[0], scope, depth - 1)
    return True


_NEVER_NEGATIVE = frozenset(
    f"relax.{name}"
    for name in ("argsort", "bucketize", "nonzero", "shape_to_tensor")  # argmax of -inf gives -1
)
# Ops whose result consists of elements of their first argument.
_PASSING = frozenset(
    f"relax.{name}"
    for name in (
        "astype", "broadcast_to", "expand_dims", "flatten", "permute_dims", "repeat", "reshape",
        "squeeze", "strided_slice", "take", "tile", "gather_elements",
    )
)  # fmt: skip


def _starts_at_zero(value: Any, _: Scope) -> bool:
    start, _stop, step = (_static(getattr(arg, "value", arg)) for arg in value.args)
    return start is not None and start >= 0 and step is not None and step > 0


def _is_clipped(value: Any, _: Scope) -> bool:
    least = _static(getattr(value.args[1], "value", value.args[1]))
    return least is not None and least >= 0


def _is_normalized(value: Any, scope: Scope) -> bool:
    """Whether `value` is ``where(i < 0, i + n, i)``, as this pass and TVM's importers write it."""
    condition, shifted, kept = value.args
    compared = scope.value(condition)
    if op_name(compared) != "relax.less" or op_name(scope.value(shifted)) != "relax.add":
        return False
    zero = array_of(scope.value(compared.args[1]))
    return zero is not None and not zero.any() and compared.args[0].same_as(kept)


_BOUNDED: dict[str, Callable[[Any, Scope], bool]] = {
    "relax.arange": _starts_at_zero,
    "relax.clip": _is_clipped,
    "relax.where": _is_normalized,
}
