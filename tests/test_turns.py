"""Sides of a benchmark by turns."""

from __future__ import annotations

import random

from tvm_byoc_kit.turns import Turn, take_turns


def test_sides_take_turns_in_an_order_that_changes() -> None:
    calls: list[str] = []
    turns = {name: Turn(lambda name=name: calls.append(name), calls=2) for name in "abc"}
    take_turns(turns, 8, random.Random(0))  # noqa: S311
    rounds = ["".join(calls[start : start + 9 : 3]) for start in range(0, len(calls), 9)]
    assert len(rounds) == 8
    assert all(sorted(names) == ["a", "b", "c"] for names in rounds)
    assert len(set(rounds)) > 2
    # One call that is not timed, and the two that are.
    assert all(len(set(calls[start : start + 3])) == 1 for start in range(0, len(calls), 3))


def test_a_slow_side_gets_a_few_rounds_only() -> None:
    turns = {"quick": Turn(lambda: None), "slow": Turn(lambda: None, slow=True)}
    samples = take_turns(turns, 10, random.Random(0))  # noqa: S311
    assert [len(samples[name]) for name in ("quick", "slow")] == [10, 3]
