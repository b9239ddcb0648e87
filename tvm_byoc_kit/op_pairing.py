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
from tvm_byoc_kit.rewriting import fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tvm_byoc_kit.occurrences import Occurrence, Value, Walk

__all__ = ["pair"]


def pair(partitioned: Walk, original: Walk) -> dict[int, int]:
    """For each op of `partitioned` (by position) the position of the op in `original`.

    Parameters
    ----------
    partitioned, original : Walk
        The second of a tagged module.

    Returns
    -------
    dict of int to int
        Without what has no partner: an op that something other than the patterns made.
    """
    ops, originals = partitioned.ops, original.ops
    numbers: dict[Hashable, int] = {}  # of what ops compute: equal for equal results
    number_of: list[int] = []
    waiting: dict[int, dict[int, None]] = defaultdict(dict)
    by_tag: dict[OpTag, int] = {}
    meaning = _Meaning(original, number_of.__getitem__)
    for position, op in enumerate(originals):
        number = numbers.setdefault(meaning(op), len(numbers))
        number_of.append(number)
        waiting[number][position] = None
        by_tag[_tag(op)] = position

    partner: dict[int, int] = {}

    def number_of_partner(position: int) -> int:
        return number_of[partner[position]] if position in partner else -1 - position

    meaning = _Meaning(partitioned, number_of_partner)
    for position, op in enumerate(ops):
        tagged = by_tag.get(_tag(op), -1)
        same = waiting[numbers.get(meaning(op), -1)]
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


class _Meaning:
    """What an op computes: equal for two ops of two modules if they compute the same."""

    def __init__(self, walk: Walk, number: Callable[[int], int]) -> None:
        self._constants = {at: fingerprint(constant) for at, constant in walk.constants.items()}
        self._number = number

    def __call__(self, op: Occurrence) -> Hashable:
        from tvm_ffi import structural_hash

        attrs = structural_hash(op.call.attrs) if op.call.attrs is not None else 0
        operands = tuple(map(self._renumbered, op.operands))
        return (op.function, str(op.call.op.name), attrs, operands)

    def _renumbered(self, value: Value) -> Value:
        kind = value[0]
        if kind == "op":
            return ("op", self._number(value[1]))
        if kind == "item":
            return ("item", self._renumbered(value[1]), value[2])
        if kind in ("tuple", "any"):
            return (kind, tuple(map(self._renumbered, value[1])))
        # TVM shares functions whose constants are equal: another object may stand for this one.
        return ("const", self._constants[value[1]]) if kind == "const" else value
