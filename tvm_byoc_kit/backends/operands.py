"""What predicates ask about a call: the tensors that it reads and writes, and their sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from tvm.relax import Call

__all__ = [
    "all_equal",
    "computed_tuple",
    "dtype",
    "equal",
    "named_tensors",
    "shape",
    "size",
    "static",
    "text",
]


def named_tensors(call: Call) -> list[tuple[str, Any]]:
    """The types of the tensors that `call` reads and writes, members of tuples one by one.

    Returns
    -------
    list of (str, relax.TensorType)
        ``operand 0`` and so on, then ``result``.
    """
    from tvm import relax
    from tvm.ir import TupleType

    named = [(f"operand {i}", arg.ty) for i, arg in enumerate(call.args)] + [("result", call.ty)]
    flat: list[tuple[str, Any]] = []
    for name, ty in named:
        members = ty.fields if isinstance(ty, TupleType) else [ty]
        flat.extend((name, member) for member in members if isinstance(member, relax.TensorType))
    return flat


def computed_tuple(call: Call) -> str | None:
    """A predicate: tuples are written where they are used, so that a match has their members."""
    from tvm import relax
    from tvm.ir import TupleType

    for i, arg in enumerate(call.args):
        if isinstance(arg.ty, TupleType) and not isinstance(arg, relax.Tuple):
            return f"operand {i} is a tuple computed elsewhere, such as a split's"
    return None


def dtype(expr: Any) -> str:
    """The dtype of a tensor; empty when it is not known."""
    return str(expr.ty.dtype or "")


def shape(expr: Any) -> tuple[Any, ...]:
    """The dimensions of a tensor whose shape is known, some of them symbolic perhaps."""
    return tuple(expr.ty.shape.values)


def static(dim: object) -> int | None:
    """The value of a dimension, None when it is symbolic."""
    value = dim if isinstance(dim, int) else getattr(dim, "value", None)
    return None if value is None else int(value)


def size(dims: Iterable[object]) -> int | None:
    """How many elements `dims` span, None when one of them is symbolic."""
    values = [static(dim) for dim in dims]
    return None if None in values else math.prod(values)  # type: ignore[arg-type]


def equal(a: object, b: object) -> bool:
    """Whether two dimensions are the same whatever their symbols stand for."""
    from tvm.sym import Analyzer

    if static(a) is not None or static(b) is not None:
        return static(a) == static(b)
    return bool(Analyzer().can_prove_equal(a, b))


def all_equal(a: Sequence[object], b: Sequence[object]) -> bool:
    """Whether two shapes are the same whatever their symbols stand for."""
    return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))


def text(dims: Iterable[object]) -> str:
    """A shape for messages, such as ``1x16x30x30``; ``scalar`` when it has no dimensions."""
    return "x".join(str(dimension(dim)) for dim in dims) or "scalar"
