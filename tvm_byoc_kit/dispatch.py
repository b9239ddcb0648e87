"""Which builds of an artifact run a call, and which part of it: the plan.

The rule. Rows of the dimension that may be split, the batch, are shared out among one or several
calls. A build of a fixed size takes that many rows, or fewer with padding where that is allowed;
one that leaves the dimension open takes any number in its range. Along other dimensions nothing is
split: a build takes its own size, or a smaller one with padding.

With costs of every build, the cheapest calls win (`CostTable` tells those of sizes not measured).
Without, the least padding wins; then the fewest calls, where one of the open build counts as the
calls that the largest fixed build would need; then the fewest rows for the open build.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TYPE_CHECKING

from tvm_byoc_kit.cost_table import CostTable
from tvm_byoc_kit.errors import InputError, OptionError

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.signature import TensorSpec
    from tvm_byoc_kit.variants import OpenDimension, Variant, Variants

__all__ = ["Dispatcher", "Plan", "Step"]

_CACHED = 256  # plans, and with them what callers ask for most
_MOST_ROWS = 1024  # that are planned; more are run at the best rate until so many are left
_MOST_CALLS = 1 << 17  # of one plan
_BASE = 1 << 14  # of the weights without costs: what is planned has fewer rows


@dataclass(frozen=True)
class Step:
    """One call of one build.

    Parameters
    ----------
    entry : str
    sizes : mapping of dimension to int
        What the build runs at, padding included.
    start, stop : int
        The rows of the batch; without a batch, 0 and 0.
    padded : int
        How many rows of padding follow them.
    """

    entry: str
    sizes: Mapping[str, int]
    start: int
    stop: int
    padded: int


@dataclass(frozen=True)
class Plan:
    """How a call is run.

    Parameters
    ----------
    sizes : mapping of dimension to int
        Of the call.
    steps : tuple of Step
        In the order of the rows, each row once.
    batch : str or None
        The dimension whose rows the steps share out.
    seconds : float or None
        What it should take by the measured costs.
    """

    sizes: Mapping[str, int]
    steps: tuple[Step, ...]
    batch: str | None = None
    seconds: float | None = None

    def __str__(self) -> str:
        number = len(self.steps)
        calls = ", ".join(map(self._describe, self.steps))
        cost = "" if self.seconds is None else f" ({self.seconds * 1e6:.0f} us)"
        return f"{number} call{'s' if number > 1 else ''}: {calls}{cost}"

    def _describe(self, step: Step) -> str:
        text = step.entry
        if step.stop > step.start:
            last = step.stop - 1
            text += f" rows {step.start}-{last}" if last > step.start else f" row {last}"
        if step.padded:
            text += f" and {step.padded} of padding"
        for name, size in self.sizes.items():
            if name != self.batch and step.sizes[name] != size:
                text += f", {name} {size} padded to {step.sizes[name]}"
        return text


@dataclass(frozen=True)
class _Choice:
    """A call of one build, and what it weighs against others."""

    weight: float
    entry: str
    sizes: Mapping[str, int]


class Dispatcher:
    """Makes the plans for an artifact with several builds; safe for threads.

    Parameters
    ----------
    variants : Variants
    inputs : sequence of TensorSpec
        Of the artifact.
    """

    def __init__(self, variants: Variants, inputs: Sequence[TensorSpec]) -> None:
        self._builds = variants.builds
        self._dimensions = variants.dimensions
        self._places = {
            dim: f"axis {axis} of input '{spec.name}'"
            for spec in reversed(inputs)
            for axis, dim in enumerate(spec.shape)
        }
        self._leading = {
            spec.shape[0] for spec in inputs if spec.shape
        } & variants.dimensions.keys()
        self._batch = next((name for name, is_ in variants.dimensions.items() if is_.split), None)
        table = CostTable(variants.costs)
        self._costs = table if table.covers(build.entry for build in self._builds) else None
        self._largest = max((b.sizes.get(self._batch or "", 0) for b in self._builds), default=0)
        self._cached = lru_cache(_CACHED)(self._make)

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """The plan for a call with the open dimensions at `sizes`; ``batch`` is that on axis 0.

        Raises
        ------
        OptionError
            For a dimension that there is not, or one without a size that is a whole number.
        InputError
            For a size that no build takes, or a batch of more calls than a plan may have.
        """
        for name, size in sizes.items():
            if not isinstance(size, Integral) or isinstance(size, bool):
                raise OptionError(f"the size of '{name}' is {size!r}; expected a whole number")
        named = {self._named(name): int(size) for name, size in sizes.items()}
        missing = [name for name in self._dimensions if name not in named]
        if missing:
            raise OptionError(f"expected also a size of {', '.join(missing)}")
        return self._cached(tuple(named[name] for name in self._dimensions))

    def _named(self, name: str) -> str:
        if name in self._dimensions:
            return name
        if name == "batch" and len(self._leading) == 1:
            return str(next(iter(self._leading)))
        raise OptionError(
            f"unknown dimension '{name}'; open are: {', '.join(self._dimensions) or 'none'}"
        )

    def _make(self, values: tuple[int, ...]) -> Plan:
        sizes = dict(zip(self._dimensions, values, strict=True))
        for name, size in sizes.items():
            self._check_range(name, size)
        batch = self._batch
        covering = (
            self._covering(sizes, batch) if batch and sizes[batch] else [(0, self._single(sizes))]
        )
        steps, start = [], 0
        for taken, choice in covering:
            if choice is None:
                raise self._refusal(sizes)
            padded = choice.sizes[batch] - taken if batch else 0
            steps.append(Step(choice.entry, choice.sizes, start, start + taken, padded))
            start += taken
        seconds = sum(choice.weight for _, choice in covering if choice) if self._costs else None
        return Plan(sizes, tuple(steps), batch, seconds)

    def _check_range(self, name: str, size: int) -> None:
        dimension = self._dimensions[name]
        low, high = _lowest(dimension), dimension.largest
        if size < low or (high is not None and size > high and not dimension.split):
            raise InputError(
                f"{self._places[name]} ('{name}') has size {size}, and this artifact takes "
                f"{dimension.smallest} to {high or 'any size'}; give it such a size, or compile "
                "the model for more"
            )

    def _covering(self, sizes: Mapping[str, int], batch: str) -> list[tuple[int, _Choice | None]]:
        """The cheapest calls for all rows of the batch, and how many each takes."""
        import numpy as np

        rows = sizes[batch]
        most = min(rows, max(_MOST_ROWS, 2 * self._largest))
        singles = [self._single({**sizes, batch: taken}) for taken in range(1, most + 1)]
        weights = np.array([choice.weight if choice else np.inf for choice in singles])
        cheapest = int(np.argmin(weights / np.arange(1, most + 1))) + 1
        repeats = -(-(rows - most) // cheapest)
        if repeats > _MOST_CALLS:
            raise InputError(
                f"{batch}={rows} would take {repeats} calls and more, and a plan may have "
                f"{_MOST_CALLS}; give it {_MOST_CALLS * cheapest} rows at a time, or compile the "
                "model for a larger batch"
            )
        rows -= repeats * cheapest
        taken = [cheapest] * repeats + _cheapest_sum(weights, rows)
        return [(number, singles[number - 1]) for number in sorted(taken, reverse=True)]

    def _single(self, sizes: Mapping[str, int]) -> _Choice | None:
        """The best call of one build for all of `sizes`."""
        choices = (self._choice(build, sizes) for build in self._builds)
        return min(filter(None, choices), key=lambda choice: choice.weight, default=None)

    def _choice(self, build: Variant, sizes: Mapping[str, int]) -> _Choice | None:
        run = {name: self._fit(name, size, build.sizes.get(name)) for name, size in sizes.items()}
        fitted = {name: size for name, size in run.items() if size is not None}
        if len(fitted) < len(run):
            return None
        if self._costs:
            return _Choice(self._costs.seconds(build.entry, fitted), build.entry, fitted)
        padding = math.prod(fitted.values()) - math.prod(sizes.values())
        taken = 0 if self._batch is None or self._batch in build.sizes else sizes[self._batch]
        calls = max(1, -(-taken // self._largest)) if self._largest else 1
        return _Choice((padding * _BASE + calls) * _BASE + taken, build.entry, fitted)

    def _fit(self, name: str, size: int, fixed: int | None) -> int | None:
        """What a build that has the dimension `fixed`, or open, runs `size` at."""
        dimension = self._dimensions[name]
        if fixed is None:
            high = dimension.largest
            return size if _lowest(dimension) <= size and (high is None or size <= high) else None
        return fixed if size == fixed or (dimension.pad and 0 < size < fixed) else None

    def _refusal(self, sizes: Mapping[str, int]) -> InputError:
        builds = "; ".join(_text(build.sizes) or "any size" for build in self._builds)
        places = ", ".join(f"'{name}' is {self._places[name]}" for name in sizes)
        padded = [name for name, dimension in self._dimensions.items() if dimension.pad]
        return InputError(
            f"no build of this artifact takes {_text(sizes)} ({places}); there are builds for: "
            f"{builds}; padded may be: {', '.join(padded) or 'none'}. Give it such a size, or "
            'compile the model with Buckets(..., fallback="symbolic")'
        )


def _lowest(dimension: OpenDimension) -> int:
    """A size of 0 is for the build that has the dimension open to try, unless a bound is given."""
    return dimension.smallest if dimension.smallest > 1 else 0


def _text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _cheapest_sum(weights: np.ndarray, total: int) -> list[int]:
    """Numbers with the sum `total`, of which each n weighs `weights[n - 1]`; the least weight.

    Infinite where there is no such sum: then one of the numbers weighs that.
    """
    import numpy as np

    best, last = np.zeros(total + 1), [0] * (total + 1)
    for number in range(1, total + 1):
        sums = weights[number - 1 :: -1] + best[:number]
        rest = int(np.argmin(sums))
        best[number], last[number] = sums[rest], number - rest
    numbers = []
    while total:
        numbers.append(last[total])
        total -= last[total]
    return numbers
