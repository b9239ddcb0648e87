"""The range of a tensor over many runs, and where to clip it for 8 bits.

A `RangeCollector` keeps the extremes and a histogram of magnitudes, of one size however much it is
shown. The three thresholds: the largest magnitude; a percentile of the magnitudes; and the
threshold that loses the least information, by S. Migacz, "8-bit Inference with TensorRT", GTC 2017
(https://on-demand.gputechconf.com/gtc/2017/presentation/s7310-8-bit-inference-with-tensorrt.pdf).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["BINS", "LEVELS", "THRESHOLDS", "RangeCollector", "entropy", "minmax", "percentile"]

Array = np.ndarray[Any, np.dtype[Any]]

#: Bins of a histogram, as in the paper.
BINS = 2048
#: Magnitudes that a signed byte has.
LEVELS = 128

# Below it the bins are too narrow for float32.
_LEAST_TOP = BINS * float(np.finfo(np.float32).tiny)


class RangeCollector:
    """Extremes and histogram of a tensor's magnitudes.

    The bins are equal, from zero to `top`. A magnitude beyond doubles `top`: then two neighbouring
    bins become one, so that every count stays exact and at least half of the bins are below the
    largest magnitude seen.

    Attributes
    ----------
    low, high : float
        Extremes; of nothing yet, infinities of the other sign.
    count, zeros : int
        Elements seen, and those that are exactly zero, which no bin counts.
    counts : numpy.ndarray
        ``int64[BINS]``.
    top : float
        Where the last bin ends; 0 until something but zero was seen.
    """

    def __init__(self) -> None:
        self.low, self.high = np.inf, -np.inf
        self.count = self.zeros = 0
        self.counts = np.zeros(BINS, np.int64)
        self.top = 0.0

    @property
    def largest(self) -> float:
        """The largest magnitude seen; 0 for nothing."""
        return max(-self.low, self.high, 0.0)

    @property
    def width(self) -> float:
        """Width of a bin."""
        return self.top / BINS

    def add(self, values: Array) -> None:
        """Take the elements of a tensor of floating point.

        Raises
        ------
        ValueError
            When one is NaN or infinite; nothing is taken then.
        """
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())  # NaN goes through both
        if not np.isfinite([low, high]).all():
            raise ValueError("NaN" if np.isnan(low) or np.isnan(high) else "infinite")
        self.low, self.high = min(self.low, low), max(self.high, high)
        zeros = values.size - int(np.count_nonzero(values))
        self.count += values.size
        self.zeros += zeros
        if zeros < values.size:
            self._count(np.abs(values.astype(np.float32, copy=False)).reshape(-1), zeros)

    def _count(self, magnitudes: Array, zeros: int) -> None:
        self._reach(float(magnitudes.max()))
        self.counts += np.histogram(magnitudes, BINS, (0.0, self.top))[0]
        self.counts[0] -= zeros

    def _reach(self, magnitude: float) -> None:
        if not self.top:
            self.top = max(magnitude, _LEAST_TOP)
        while self.top < magnitude:
            self.counts[: BINS // 2] = self.counts.reshape(-1, 2).sum(1)
            self.counts[BINS // 2 :] = 0
            self.top *= 2


def minmax(seen: RangeCollector) -> float:
    """The largest magnitude: nothing is clipped."""
    return seen.largest


def percentile(seen: RangeCollector, percent: float) -> float:
    """The magnitude that `percent` of all elements, zeros too, do not exceed.

    To one bin of the histogram, upwards: at most 1/1024 of the largest magnitude too much.
    """
    below = seen.zeros + np.cumsum(seen.counts)
    last = int(np.searchsorted(below, seen.count * percent / 100.0))
    return min((last + 1) * seen.width, seen.largest)


def entropy(seen: RangeCollector) -> float:
    """The threshold at which 128 levels tell the least less than the histogram does.

    For each number of bins: the distribution that is clipped there, all beyond counted into the
    last bin, is compared with what is left when the bins are merged into `LEVELS` levels and spread
    again over those that were not empty. The least Kullback-Leibler divergence wins, and of equal
    ones the widest range.

    Where the paper leaves it open: exact zeros, of which a ReLU makes many, are an event of their
    own and not part of the first bin, for every scale represents them exactly; and the last bin,
    where clipped elements end, has at least one element, without which the divergence would be
    infinite wherever there is a gap in front of an outlier.
    """
    used = min(BINS, math.ceil(seen.largest / seen.width)) if seen.width else 0
    if used <= LEVELS:
        return seen.largest
    counts = seen.counts[:used].astype(np.float64)
    bins = np.arange(LEVELS, used + 1)
    divergences = np.array([_divergence(counts, seen.zeros, int(number)) for number in bins])
    best = int(bins[divergences <= divergences.min() + _ROUNDING][-1])
    return float(min((best + 0.5) * seen.width, seen.largest))


_ROUNDING = 1e-9  # of divergences, which are sums of some thousand logarithms


def _divergence(counts: Array, zeros: int, bins: int) -> float:
    """Of `counts` and `zeros`, clipped to so many bins, from their form in `LEVELS` levels."""
    inside = counts[:bins]
    clipped = inside.copy()
    clipped[-1] += counts[bins:].sum()
    starts = np.arange(LEVELS) * bins // LEVELS
    filled = inside > 0
    sums, present = (np.add.reduceat(x, starts, dtype=np.float64) for x in (inside, filled))
    means = np.repeat(sums / np.maximum(present, 1), np.diff(starts, append=bins))
    spread = np.where(filled, means, 0.0)
    spread[-1] = max(spread[-1], 1.0)
    p, q = (np.append(counts, zeros) for counts in (clipped, spread))
    p, q = p[p > 0] / p.sum(), q[p > 0] / q.sum()
    return float(np.sum(p * np.log(p / q)))


#: By method; the second argument is the percentile.
THRESHOLDS: dict[str, Callable[[RangeCollector, float], float]] = {
    "minmax": lambda seen, _percent: minmax(seen),
    "entropy": lambda seen, _percent: entropy(seen),
    "percentile": percentile,
}
