"""What each build of an Executable takes at its sizes, on this machine."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm_byoc_kit.dispatch import Plan, Step
from tvm_byoc_kit.input_checks import symbol_sizes
from tvm_byoc_kit.sample_inputs import random_inputs
from tvm_byoc_kit.variants import Cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm_byoc_kit.variant_calls import Lane, VariantCalls
    from tvm_byoc_kit.variants import OpenDimension, Variant, Variants

__all__ = ["measured_costs"]

_ROUNDS = 15  # of which the median is taken, where there is time for so many


def measured_costs(calls: VariantCalls, lane: Lane, seconds: float) -> tuple[Cost, ...]:
    """Median seconds of each build, called in turn until `seconds` have passed.

    A build that leaves dimensions open is run at the sizes that others have fixed, and at one
    beyond. The first call of each is not counted. Small sizes come first; what there is no time
    left for is, of a build of fixed sizes, taken to cost in proportion to the one before.
    """
    end = time.perf_counter() + seconds
    points = [
        _Point(build, sizes, math.prod(sizes.values()))
        for build in calls.variants.builds
        for sizes in _sizes(calls, build)
    ]
    runs = []
    for point in sorted(points, key=lambda point: point.elements):
        seen = {other.fixed for other in points if other.times}
        if time.perf_counter() < end or point.fixed not in seen:
            run = _runner(calls, lane, point.build, point.sizes)
            run()
            point.times.append(_timed(run))
            runs.append((run, point.times))
    for _ in range(_ROUNDS - 1):
        if time.perf_counter() > end:
            break
        for run, times in runs:
            times.append(_timed(run))
    return tuple(_costs(points))


@dataclass(frozen=True)
class _Point:
    """A build at some sizes, and what its calls took."""

    build: Variant
    sizes: dict[str, int]
    elements: int
    times: list[float] = field(default_factory=list)

    @property
    def fixed(self) -> bool:
        return bool(self.build.sizes)


def _costs(points: list[_Point]) -> Iterator[Cost]:
    known = [point for point in points if point.fixed and point.times]
    for point in points:
        if point.times:
            yield Cost(point.build.entry, point.sizes, statistics.median(point.times))
        elif point.fixed:
            last = max(known, key=lambda other: other.elements)
            seconds = statistics.median(last.times) * point.elements / last.elements
            yield Cost(point.build.entry, point.sizes, seconds)


def _timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _sizes(calls: VariantCalls, build: Variant) -> Iterator[dict[str, int]]:
    choices = [
        (build.sizes[name],) if name in build.sizes else _open_sizes(calls.variants, name, item)
        for name, item in calls.variants.dimensions.items()
    ]
    for sizes in itertools.product(*choices):
        yield dict(zip(calls.variants.dimensions, sizes, strict=True))


def _open_sizes(variants: Variants, name: str, dimension: OpenDimension) -> list[int]:
    """Those that other builds have fixed, and along the batch one beyond; else the bounds."""
    sizes = {build.sizes[name] for build in variants.builds if name in build.sizes}
    if not sizes:
        sizes = {dimension.smallest, dimension.largest or dimension.smallest}
    elif dimension.split:  # more rows are more of the same; a longer sequence may have no meaning
        sizes.add(min(2 * max(sizes), dimension.largest or 2 * max(sizes)))
    return sorted(sizes)


def _runner(
    calls: VariantCalls, lane: Lane, build: Variant, sizes: dict[str, int]
) -> Callable[[], object]:
    """Runs `build` at `sizes`, with all that a call of it has to do."""
    arrays = list(random_inputs(calls.inputs, sizes=sizes).values())
    plan = Plan(sizes, (Step(build.entry, sizes, 0, 0, 0),))
    symbols = symbol_sizes(calls.inputs, [array.shape for array in arrays])
    steps = calls.steps_of(plan, symbols)
    return lambda: lane.run(steps, arrays)
