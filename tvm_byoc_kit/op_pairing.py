"""Pairing the ops of a partitioned module with those of the module that it was made of.

A tag (see `op_names`) says which op a call was, but TVM shares one function between regions and
composites of the same structure, and then all of its calls have the tags of the first. So two ops
are paired when they compute the same from the same. The tag decides where there are several such,
or none: what a symbolic dimension is called changes on the way.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tvm_byoc_kit.op_names import OpTag, tag_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from tvm_byoc_kit.occurrences import Occurrence, Value

__all__ = ["pair"]


def pair(ops: Sequence[Occurrence], originals: Sequence[Occurrence]) -> dict[int, int]:
    """For each of `ops` (by position) the position of its original.

    Parameters
    ----------
    ops, originals : sequence of Occurrence
        Each in the order of execution; `originals` tagged.

    Returns
    -------
    dict of int to int
        Without what has no partner: an op that something other than the patterns made.
    """
    numbers: dict[Hashable, int] = {}  # of what ops compute: equal for equal results
    number_of: list[int] = []
    waiting: dict[int, dict[int, None]] = defaultdict(dict)
    by_tag: dict[OpTag, int] = {}
    for position, op in enumerate(originals):
        number = numbers.setdefault(_meaning(op, number_of.__getitem__), len(numbers))
        number_of.append(number)
        waiting[number][position] = None
        by_tag[_tag(op)] = position

    partner: dict[int, int] = {}

    def number_of_partner(position: int) -> int:
        return number_of[partner[position]] if position in partner else -1 - position

    for position, op in enumerate(ops):
        tagged = by_tag.get(_tag(op), -1)
        same = waiting[numbers.get(_meaning(op, number_of_partner), -1)]
        if same:
            found = tagged if tagged in same else next(iter(same))
        elif tagged >= 0 and tagged in waiting[number_of[tagged]]:
            found = tagged
        else:
            continue
        partner[position] = found
        del waiting[number_of[found]][found]
    return partner


def _tag(op: Occurrence) -> OpTag:
    return tag_of(op.call) or OpTag(op.function, op.name)


def _meaning(op: Occurrence, number: Callable[[int], int]) -> Hashable:
    """What `op` computes: equal for two ops only if their results are."""
    from tvm_ffi import structural_hash

    attrs = structural_hash(op.call.attrs) if op.call.attrs is not None else 0
    operands = tuple(_renumbered(operand, number) for operand in op.operands)
    return (op.function, str(op.call.op.name), attrs, operands)


def _renumbered(value: Value, number: Callable[[int], int]) -> Value:
    kind = value[0]
    if kind == "op":
        return ("op", number(value[1]))
    if kind == "item":
        return ("item", _renumbered(value[1], number), value[2])
    if kind in ("tuple", "any"):
        return (kind, tuple(_renumbered(inner, number) for inner in value[1]))
    return value
