"""What each build of an Executable takes at its sizes, on this machine."""

from __future__ import annotations

import itertools
import statistics
import time
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
    beyond. The first call of each is not counted.
    """
    end = time.perf_counter() + seconds
    points = [(build, sizes) for build in calls.variants.builds for sizes in _sizes(calls, build)]
    runs = [_runner(calls, lane, build, sizes) for build, sizes in points]
    for run in runs:
        run()
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for run, taken in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return tuple(
        Cost(build.entry, sizes, statistics.median(taken))
        for (build, sizes), taken in zip(points, times, strict=True)
    )


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
