"""Ranges over many runs, and thresholds, against plain computations over all values at once."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_byoc_kit.value_ranges import (
    BINS,
    LEVELS,
    RangeCollector,
    entropy,
    minmax,
    percentile,
)

Array = np.ndarray


def collected(*arrays: Array) -> RangeCollector:
    seen = RangeCollector()
    for array in arrays:
        seen.add(array)
    return seen


@pytest.fixture
def growing() -> list[Array]:
    """Each with a larger range than the one before, the last with one outlier far away."""
    rng = np.random.default_rng(0)
    arrays = [(rng.standard_normal(5000) * scale).astype("float32") for scale in (0.01, 1, 0.5, 3)]
    arrays[-1][17] = -90
    return arrays


def test_extremes_and_counts_are_those_of_all_values(growing: list[Array]) -> None:
    seen, values = collected(*growing), np.concatenate(growing)
    assert (seen.low, seen.high) == (values.min(), values.max())
    assert seen.count == values.size == seen.counts.sum()
    assert minmax(seen) == np.float32(90)


def test_the_histogram_is_that_of_all_values_at_once(growing: list[Array]) -> None:
    """Bins that were merged hold what they would have held from the start."""
    seen = collected(*growing)
    expected, _ = np.histogram(np.abs(np.concatenate(growing)), BINS, (0, seen.top))
    # A value on the edge of two bins may count to either; the edges are doubles, it is not.
    assert np.abs(np.cumsum(seen.counts) - np.cumsum(expected)).max() <= 1
    assert seen.top / 2 < minmax(seen) <= seen.top


def test_memory_does_not_grow_with_the_data() -> None:
    seen = RangeCollector()
    for scale in range(1, 50):
        seen.add(np.full(1000, float(scale) ** 5, "float32"))
    assert seen.counts.shape == (BINS,)
    assert sum(value.nbytes for value in vars(seen).values() if isinstance(value, Array)) < 20_000


@pytest.mark.parametrize("percent", [50.0, 99.0, 99.9, 100.0])
def test_the_percentile_is_numpys_to_one_bin(growing: list[Array], percent: float) -> None:
    seen = collected(*growing, np.zeros(700, "float32"))
    values = np.abs(np.concatenate([*growing, np.zeros(700, "float32")]))
    expected = np.percentile(values, percent, method="inverted_cdf")
    assert 0 <= percentile(seen, percent) - expected <= seen.width
    assert percentile(seen, 100.0) == minmax(seen)


def paper(counts: Array) -> int:
    """The published pseudocode, bin by bin, with one element at least in the last one."""
    best, least = len(counts), np.inf
    for kept in range(LEVELS, len(counts) + 1):
        reference = [float(count) for count in counts[:kept]]
        reference[-1] += float(sum(counts[kept:]))
        candidate = [0.0] * kept
        for level in range(LEVELS):
            bins = range(level * kept // LEVELS, (level + 1) * kept // LEVELS)
            filled = [i for i in bins if counts[i]]
            for i in filled:
                candidate[i] = sum(counts[j] for j in bins) / len(filled)
        candidate[-1] = max(candidate[-1], 1.0)
        p, q = np.array(reference) / sum(reference), np.array(candidate) / sum(candidate)
        divergence = sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a)
        if divergence <= least + 1e-9:
            best, least = kept, min(least, divergence)
    return best


@pytest.mark.parametrize(
    ("seed", "outlier"), [(1, 20.0), (2, 8.0), (3, 4.0)], ids=["far", "near", "none"]
)
def test_the_entropy_threshold_is_the_papers(seed: int, outlier: float) -> None:
    values = np.random.default_rng(seed).laplace(0, 0.3, 40_000).astype("float32")
    values = np.clip(values, -4, 4)
    values[0] = outlier
    seen = RangeCollector()
    seen.top = 8.0 * outlier  # an eighth of the bins is enough for a loop in Python
    seen.add(values)
    expected = min((paper(seen.counts[: BINS // 8]) + 0.5) * seen.width, minmax(seen))
    assert entropy(seen) == pytest.approx(expected, abs=seen.width / 100)


def test_entropy_clips_one_outlier_and_not_a_uniform_range() -> None:
    rng = np.random.default_rng(4)
    normal = rng.standard_normal(100_000).astype("float32")
    outlier = collected(np.append(normal, np.float32(100)))
    assert entropy(outlier) < 10
    uniform = collected(rng.uniform(-1, 1, 100_000).astype("float32"))
    assert entropy(uniform) > 0.95


def test_entropy_keeps_values_that_are_few_and_far_apart() -> None:
    """As pixels of four bits: with any one of them gone, most others would be lost."""
    pixels = np.repeat(np.arange(17) / 16, 100).astype("float32")
    assert entropy(collected(pixels)) == 1.0


@pytest.mark.parametrize("threshold", [minmax, entropy, lambda seen: percentile(seen, 99.9)])
def test_a_tensor_that_is_always_zero_has_the_range_zero(threshold: object) -> None:
    seen = collected(np.zeros(8, "float32"), np.zeros(0, "float32"))
    assert threshold(seen) == 0.0  # type: ignore[operator]
    assert (seen.count, seen.zeros) == (8, 8)


@pytest.mark.parametrize("largest", [1e-45, 1e-40, 1e-35])
def test_magnitudes_next_to_nothing_are_counted(largest: float) -> None:
    seen = collected(np.array([0, largest / 2, -largest], "float32"))
    assert seen.counts.sum() + seen.zeros == 3
    assert minmax(seen) == np.float32(largest)


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "infinite")])
def test_what_is_no_number_is_refused_and_not_counted(value: float, name: str) -> None:
    seen = collected(np.ones(3, "float32"))
    with pytest.raises(ValueError, match=name):
        seen.add(np.array([1.0, value], "float32"))
    assert seen.count == 3


def test_half_precision_is_counted_as_it_is() -> None:
    seen = collected(np.array([65504, -1, 0], "float16"))
    assert (seen.low, seen.high, seen.zeros) == (-1, 65504, 1)
