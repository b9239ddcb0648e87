"""The operators that a pattern is made of."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from tvm.relax.dpl import DFPattern
    from tvm.relax.transform import FusionPattern

__all__ = ["Alternatives", "alternatives", "possible"]

Alternatives: TypeAlias = frozenset[frozenset[str]]


def possible(patterns: Iterable[FusionPattern], ops: Collection[str]) -> list[FusionPattern]:
    """Those of `patterns` that a module with these operators can match.

    FuseOpsByPattern tries each pattern at each call, and most models have a small part of the
    operators that a backend has patterns for.
    """
    known = frozenset(ops)
    return [
        pattern
        for pattern in patterns
        if any(names <= known for names in alternatives(pattern.pattern))
    ]


# Where the patterns inside a pattern are; those not named here have none, or forbid what they have.
_PARTS = {
    "AndPattern": ("left", "right"),
    "AttrPattern": ("pattern",),
    "CallPattern": ("op", "args"),
    "DataTypePattern": ("pattern",),
    "FunctionPattern": ("params", "body"),
    "OrPattern": ("left", "right"),
    "ShapePattern": ("pattern",),
    "TupleGetItemPattern": ("tuple",),
    "TuplePattern": ("fields",),
    "TypePattern": ("pattern",),
    "UnorderedTuplePattern": ("fields",),
}


def alternatives(pattern: DFPattern) -> Alternatives:
    """The sets of operators that make up a match: one set, or several where there is a choice.

    Parameters
    ----------
    pattern : tvm.relax.dpl.DFPattern

    Examples
    --------
    >>> both = is_op("relax.exp")(is_op("relax.add")(a, b) | is_op("relax.multiply")(a, b))
    >>> alternatives(both) == {frozenset({"relax.exp", "relax.add"}),
    ...                        frozenset({"relax.exp", "relax.multiply"})}
    True
    """
    return _alternatives(pattern, {})


def _alternatives(pattern: DFPattern, known: dict[DFPattern, Alternatives]) -> Alternatives:
    if pattern not in known:  # patterns share parts
        kind = type(pattern).__name__
        parts = [_alternatives(part, known) for part in _parts(pattern, _PARTS.get(kind, ()))]
        if kind == "ExprPattern":
            name = getattr(pattern.expr, "name", None)
            known[pattern] = frozenset({frozenset({str(name)} if name else ())})
        elif kind == "OrPattern":
            known[pattern] = frozenset().union(*parts)
        else:
            known[pattern] = _joined(parts)
    return known[pattern]


def _parts(pattern: DFPattern, fields: tuple[str, ...]) -> list[DFPattern]:
    parts: list[Any] = []
    for field in fields:
        value = getattr(pattern, field)
        parts += [value] if hasattr(value, "match") else list(value or ())
    return parts


def _joined(parts: list[Alternatives]) -> Alternatives:
    none: Alternatives = frozenset({frozenset()})
    return functools.reduce(
        lambda one, other: frozenset(first | second for first, second in product(one, other)),
        parts,
        none,
    )
