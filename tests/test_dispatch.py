"""Plans: every row once and in order, and nothing cheaper or with less padding is possible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_byoc_kit as byoc
from tvm_byoc_kit.dispatch import Dispatcher, Plan
from tvm_byoc_kit.errors import InputError, OptionError
from tvm_byoc_kit.variants import Cost, OpenDimension, Variant, Variants

INPUTS = (byoc.TensorSpec("x", ("n", 4), "float32"),)
BATCH = OpenDimension(pad=True, split=True)


def variants(
    *buckets: int,
    fallback: bool = False,
    costs: Mapping[int | str, float | Mapping[int, float]] | None = None,
    dimension: OpenDimension = BATCH,
) -> Variants:
    """Builds b1, b4, … and `open`; `costs` by bucket, and for `open` by size."""
    builds = [Variant("open")] if fallback else []
    builds += [Variant(f"b{size}", {"n": size}) for size in buckets]
    table = []
    for key, cost in (costs or {}).items():
        if isinstance(cost, Mapping):
            table += [Cost("open", {"n": size}, seconds) for size, seconds in cost.items()]
        else:
            table.append(Cost(f"b{key}", {"n": int(key)}, cost))
    return Variants(tuple(builds), {"n": dimension}, tuple(table))


def plan(size: int, *buckets: int, **kwargs: Any) -> Plan:
    return Dispatcher(variants(*buckets, **kwargs), INPUTS).plan({"n": size})


def calls(found: Plan) -> list[tuple[str, int, int, int]]:
    return [(step.entry, step.start, step.stop, step.padded) for step in found.steps]


def assert_covers(found: Plan, rows: int) -> None:
    """Each row is run once, in order, by a build that has the room."""
    ends = [0, *(step.stop for step in found.steps)]
    assert [step.start for step in found.steps] == ends[:-1]
    assert ends[-1] == rows
    for step in found.steps:
        assert step.stop > step.start
        assert step.padded == step.sizes["n"] - (step.stop - step.start) >= 0
        assert step.entry in ("open", f"b{step.sizes['n']}")
        assert step.padded == 0 or step.entry != "open"


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum, largest first."""

    def parts(rest: int, most: int) -> Iterator[tuple[int, ...]]:
        if rest == 0:
            yield ()
        for first in range(min(rest, most), 0, -1):
            for others in parts(rest - first, first):
                yield (first, *others)

    return parts(total, total)


def cheapest(total: int, prices: Sequence[float]) -> float:
    """The least of all sums of `prices[rows]` over all ways to write `total`."""
    return min(sum(prices[part] for part in parts) for parts in compositions(total))


def interpolated(points: Mapping[int, float], size: int) -> float:
    """As the documentation says it: linear, constant before, the last slope beyond."""
    xs = sorted(points)
    if size <= xs[0]:
        return points[xs[0]]
    for left, right in itertools.pairwise(xs):
        if left <= size <= right:
            share = (size - left) / (right - left)
            return points[left] * (1 - share) + points[right] * share
    left, right = (xs[-2], xs[-1]) if len(xs) > 1 else (0, xs[-1])
    slope = (points[right] - points.get(left, 0.0)) / (right - left)
    return points[right] + max(0.0, slope) * (size - right)


SIZES = st.sets(st.integers(1, 12), min_size=1, max_size=4)
SECONDS = st.floats(1e-6, 1e-2)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_with_costs_no_covering_is_cheaper(data: st.DataObject) -> None:
    buckets = data.draw(SIZES)
    rows = data.draw(st.integers(1, 14))
    costs: dict[Any, Any] = {size: data.draw(SECONDS) for size in buckets}
    prices = [math.inf] + [
        min((costs[size] for size in buckets if size >= taken), default=math.inf)
        for taken in range(1, rows + 1)
    ]
    fallback = data.draw(st.booleans())
    if fallback:
        costs["open"] = {size: data.draw(SECONDS) for size in data.draw(SIZES)}
        for taken in range(1, rows + 1):
            prices[taken] = min(prices[taken], interpolated(costs["open"], taken))
    found = plan(rows, *buckets, fallback=fallback, costs=costs)
    assert_covers(found, rows)
    assert found.seconds == pytest.approx(cheapest(rows, prices))


@settings(max_examples=150, deadline=None)
@given(buckets=SIZES, rows=st.integers(1, 40), fallback=st.booleans(), pad=st.booleans())
def test_without_costs_no_covering_has_less_padding(
    buckets: set[int], rows: int, fallback: bool, pad: bool
) -> None:
    reachable = {0}
    for total in range(1, rows + max(buckets) + 1):
        if any(total - size in reachable for size in buckets):
            reachable.add(total)
    least = 0 if fallback else min(total - rows for total in reachable if total >= rows)
    dimension = OpenDimension(pad=pad, split=True)
    if least and not pad:
        with pytest.raises(InputError, match=f"takes n={rows}"):
            plan(rows, *buckets, fallback=fallback, dimension=dimension)
        return
    found = plan(rows, *buckets, fallback=fallback, dimension=dimension)
    assert_covers(found, rows)
    assert sum(step.padded for step in found.steps) == least


@settings(max_examples=50, deadline=None)
@given(buckets=SIZES, rows=st.integers(1, 12), costs=st.booleans())
def test_where_nothing_may_be_split_one_build_takes_all(
    buckets: set[int], rows: int, costs: bool
) -> None:
    table = dict.fromkeys(buckets, 1e-3) if costs else {}
    dimension = OpenDimension(pad=True)
    fitting = [size for size in buckets if size >= rows]
    if not fitting:
        with pytest.raises(InputError):
            plan(rows, *buckets, costs=table, dimension=dimension)
        return
    (step,) = plan(rows, *buckets, costs=table, dimension=dimension).steps
    assert step.sizes["n"] in fitting
    assert costs or step.sizes["n"] == min(fitting)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (1, [("b1", 0, 1, 0)]),
        (5, [("open", 0, 5, 0)]),
        (8, [("b8", 0, 8, 0)]),
        (16, [("b8", 0, 8, 0), ("b8", 8, 16, 0)]),
        (21, [("b8", 0, 8, 0), ("b8", 8, 16, 0), ("open", 16, 21, 0)]),
    ],
)
def test_without_costs_the_open_build_takes_what_no_bucket_fits(
    rows: int, expected: list[tuple[str, int, int, int]]
) -> None:
    assert calls(plan(rows, 1, 4, 8, fallback=True)) == expected


def test_costs_decide_between_padding_several_builds_and_the_open_one() -> None:
    buckets = {1: 1.0, 4: 2.0, 8: 2.5}
    slow = {1: 9.0, 8: 72.0}
    assert calls(plan(5, 1, 4, 8, fallback=True, costs={**buckets, "open": slow})) == [
        ("b8", 0, 5, 3)
    ]
    quick = {1: 0.5, 8: 2.0}
    assert calls(plan(6, 1, 4, 8, fallback=True, costs={**buckets, "open": quick})) == [
        ("open", 0, 6, 0)
    ]
    dear = {**buckets, 8: 30.0}
    assert calls(plan(5, 1, 4, 8, costs=dear)) == [("b4", 0, 4, 0), ("b1", 4, 5, 0)]


def test_costs_of_some_builds_only_do_not_decide() -> None:
    assert plan(4, 1, 4, costs={1: 1e-9}) == plan(4, 1, 4)


def test_many_rows_are_planned_at_the_best_rate() -> None:
    found = plan(100_000, 1, 16, 64, costs={1: 1.0, 16: 4.0, 64: 32.0})
    assert_covers(found, 100_000)
    assert found.seconds == pytest.approx(100_000 / 16 * 4.0)


@pytest.mark.parametrize("rows", [1025, 1311, 2047, 3000])
@pytest.mark.parametrize(
    "costs", [{1: 1.0, 7: 3.1, 16: 7.3}, {5: 2.0, 12: 4.81, 13: 5.2}, {3: 1.0, 8: 1.1}]
)
def test_beyond_the_rows_that_are_planned_the_cost_is_still_the_least(
    rows: int, costs: dict[int, float]
) -> None:
    least = [0.0]
    for total in range(1, rows + 1):
        least.append(min(cost + least[max(0, total - size)] for size, cost in costs.items()))
    found = plan(rows, *costs, costs=costs)
    assert_covers(found, rows)
    assert found.seconds == pytest.approx(least[rows], rel=1e-12)


@pytest.mark.parametrize("rows", [10**9, 10**30, np.int64(2**40)])
def test_a_plan_of_endless_calls_is_refused_with_what_is_not(rows: Any) -> None:
    with pytest.raises(InputError, match=f"n={rows} would take .* give it 2097152 rows at a time"):
        plan(rows, 1, 4, 16)


def test_what_is_told_to_be_planned_is() -> None:
    assert len(plan(2097152, 1, 4, 16).steps) == 2097152 // 16


def test_a_large_bucket_is_used_whole() -> None:
    assert calls(plan(3000, 1, 3000)) == [("b3000", 0, 3000, 0)]
    assert [step.sizes["n"] for step in plan(7000, 500, 3000).steps] == [3000, 3000, 500, 500]


# Sizes that are refused


def test_no_row_is_refused_unless_a_build_leaves_the_dimension_open() -> None:
    with pytest.raises(InputError, match=r"takes n=0 .*input 'x'\); .* for: n=1; n=4"):
        plan(0, 1, 4)
    assert calls(plan(0, 1, 4, fallback=True)) == [("open", 0, 0, 0)]


def test_sizes_out_of_range_are_refused_unless_splitting_brings_them_inside() -> None:
    whole = OpenDimension(pad=True, smallest=2, largest=8)
    with pytest.raises(InputError, match=r"axis 0 of input 'x' \('n'\) has size 9, .* 2 to 8"):
        plan(9, 4, fallback=True, dimension=whole)
    with pytest.raises(InputError, match="has size 1, "):
        plan(1, 4, fallback=True, dimension=whole)
    split = OpenDimension(split=True, smallest=2, largest=8)
    found = plan(20, fallback=True, dimension=split)
    assert_covers(found, 20)
    assert all(2 <= step.stop - step.start <= 8 for step in found.steps)
    assert len(found.steps) == 3
    with pytest.raises(InputError, match="takes n=9"):
        plan(9, fallback=True, dimension=OpenDimension(split=True, smallest=5, largest=8))


def test_unknown_and_missing_dimensions_are_refused() -> None:
    dispatcher = Dispatcher(variants(1, 4), INPUTS)
    with pytest.raises(OptionError, match="unknown dimension 'm'; open are: n"):
        dispatcher.plan({"m": 4})
    with pytest.raises(OptionError, match="a size of n"):
        dispatcher.plan({})


@pytest.mark.parametrize("size", [np.int64(5), np.uint8(5)])
def test_a_size_may_be_of_numpy(size: Any) -> None:
    assert plan(size, 1, 4) == plan(5, 1, 4)


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(InputError, match="has size -1, and this artifact takes 1 to any size"):
        plan(-1, 1, 4)


@pytest.mark.parametrize("size", ["3", 3.0, None, True])
def test_a_size_is_a_whole_number(size: Any) -> None:
    with pytest.raises(OptionError, match=f"the size of 'n' is {size!r}; expected a whole number"):
        plan(size, 4)


def test_batch_is_the_dimension_on_axis_0() -> None:
    assert Dispatcher(variants(1, 4), INPUTS).plan({"batch": 5}) == plan(5, 1, 4)
    inner = (byoc.TensorSpec("x", (4, "n"), "float32"),)
    with pytest.raises(OptionError, match="unknown dimension 'batch'"):
        Dispatcher(variants(1, 4), inner).plan({"batch": 5})


# Several dimensions

TEXT = (byoc.TensorSpec("ids", ("n", "seq"), "int64"),)


def grid(**kwargs: Any) -> Dispatcher:
    builds = [Variant(f"b{n}_s{seq}", {"n": n, "seq": seq}) for n in (1, 4) for seq in (16, 32, 64)]
    dimensions = {"n": BATCH, "seq": OpenDimension(pad=True, **kwargs)}
    return Dispatcher(Variants((Variant("open"), *builds), dimensions), TEXT)


def test_the_batch_is_split_and_the_sequence_padded_to_the_nearest() -> None:
    builds = tuple(
        Variant(f"b{n}_s{seq}", {"n": n, "seq": seq}) for n in (1, 4) for seq in (16, 32, 64)
    )
    dimensions = {"n": BATCH, "seq": OpenDimension(pad=True)}
    found = Dispatcher(Variants(builds, dimensions), TEXT).plan({"batch": 9, "seq": 20})
    assert calls(found) == [("b4_s32", 0, 4, 0), ("b4_s32", 4, 8, 0), ("b1_s32", 8, 9, 0)]
    assert {step.sizes["seq"] for step in found.steps} == {32}


def test_a_size_beyond_all_buckets_is_for_the_open_build() -> None:
    (step,) = grid().plan({"n": 4, "seq": 65}).steps
    assert (step.entry, step.sizes) == ("open", {"n": 4, "seq": 65})
    with pytest.raises(InputError, match=r"axis 1 of input 'ids' \('seq'\) has size 65"):
        grid(largest=64).plan({"n": 4, "seq": 65})


@settings(max_examples=100, deadline=None)
@given(rows=st.integers(1, 12), seq=st.integers(1, 64))
def test_with_costs_the_cheapest_combination_wins(rows: int, seq: int) -> None:
    price = {(n, s): n**0.7 * s**1.3 for n in (1, 4) for s in (16, 64)}
    builds = tuple(Variant(f"b{n}_s{s}", {"n": n, "seq": s}) for n, s in price)
    costs = tuple(Cost(f"b{n}_s{s}", {"n": n, "seq": s}, value) for (n, s), value in price.items())
    dimensions = {"n": BATCH, "seq": OpenDimension(pad=True)}
    found = Dispatcher(Variants(builds, dimensions, costs), TEXT).plan({"n": rows, "seq": seq})
    best = [math.inf] + [
        min(value for (n, s), value in price.items() if n >= taken and s >= seq)
        if taken <= 4
        else math.inf
        for taken in range(1, rows + 1)
    ]
    assert found.seconds == pytest.approx(cheapest(rows, best))


# What a plan looks like


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (1, "1 call: b1 row 0"),
        (4, "1 call: b4 rows 0-3"),
        (5, "2 calls: b4 rows 0-3, b1 row 4"),
    ],
)
def test_a_plan_reads(rows: int, text: str) -> None:
    assert str(plan(rows, 1, 4)) == text


def test_a_plan_tells_of_padding_and_of_costs() -> None:
    assert str(plan(3, 4, costs={4: 12e-6})) == "1 call: b4 rows 0-2 and 1 of padding (12 us)"
    builds = (Variant("s32", {"seq": 32}),)
    dimensions = {"n": OpenDimension(), "seq": OpenDimension(pad=True)}
    found = Dispatcher(Variants(builds, dimensions), TEXT).plan({"n": 2, "seq": 20})
    assert str(found) == "1 call: s32, seq 20 padded to 32"
