"""What a call of a build takes, from what was measured at some sizes."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm_byoc_kit.variants import Cost

__all__ = ["CostTable"]


class CostTable:
    """Seconds by build and sizes.

    Between two measured sizes it is linear in the product of the sizes, below the first constant,
    beyond the last it goes on with the last slope, or through zero where there is one size only.

    Parameters
    ----------
    costs : iterable of Cost
    """

    def __init__(self, costs: Iterable[Cost]) -> None:
        self._measured: dict[tuple[str, frozenset[tuple[str, int]]], float] = {}
        points: dict[str, dict[int, float]] = {}
        for cost in costs:
            self._measured[cost.entry, frozenset(cost.sizes.items())] = cost.seconds
            points.setdefault(cost.entry, {})[math.prod(cost.sizes.values())] = cost.seconds
        self._curves = {entry: sorted(values.items()) for entry, values in points.items()}

    def covers(self, entries: Iterable[str]) -> bool:
        """Whether all of them were measured."""
        return set(entries) <= self._curves.keys()

    def seconds(self, entry: str, sizes: Mapping[str, int]) -> float:
        """Of one call of `entry`, which was measured, at `sizes`."""
        measured = self._measured.get((entry, frozenset(sizes.items())))
        if measured is not None:
            return measured
        return _on(self._curves[entry], math.prod(sizes.values()))


def _on(curve: list[tuple[int, float]], x: int) -> float:
    (first, lowest), (last, highest) = curve[0], curve[-1]
    if x <= first:
        return lowest
    if x > last:
        before, seconds = curve[-2] if len(curve) > 1 else (0, 0.0)
        return highest + max(0.0, (highest - seconds) / (last - before)) * (x - last)
    (left, low), (right, high) = curve[(i := bisect.bisect_left(curve, (x,))) - 1], curve[i]
    return low + (high - low) * (x - left) / (right - left)
