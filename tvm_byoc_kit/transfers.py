"""What each step of a plan takes from the inputs of a call, and where its results go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.signature import TensorSpec, evaluate

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.dispatch import Plan, Step
    from tvm_byoc_kit.variants import OpenDimension

__all__ = ["Give", "Take", "Transfer", "transfers"]

_Slices = tuple[slice, ...]


@dataclass(frozen=True)
class Take:
    """How a step's input is made of an input of the call.

    Parameters
    ----------
    source : tuple of slice or None
        The part of the call's array; None: all.
    target : tuple of slice or None
        The part of the step's array that it fills; None: all.
    padding : tuple of (int, int, float or None)
        Axis, the size from which on to pad, and what with; None: the last row.
    """

    source: _Slices | None
    target: _Slices | None
    padding: tuple[tuple[int, int, float | None], ...]

    def fill(self, memory: np.ndarray, array: np.ndarray) -> None:
        """Write into `memory` what the step takes from `array`."""
        part = array if self.source is None else array[self.source]
        if self.target is None:
            memory[...] = part
            return
        memory[self.target] = part
        for axis, size, value in self.padding:
            pad(memory, axis, size, value)


def pad(memory: np.ndarray, axis: int, size: int, value: float | None) -> None:
    """Fill `memory` from `size` on along `axis`, with its last row there or with `value`."""
    last = memory[_along(axis, size - 1, size)]
    memory[_along(axis, size, None)] = last if value is None else value


def _along(axis: int, start: int, stop: int | None) -> _Slices:
    """All of the other axes."""
    return (slice(None),) * axis + (slice(start, stop),)


@dataclass(frozen=True)
class Give:
    """What of a step's output belongs to the output of the call.

    Parameters
    ----------
    part : tuple of slice or None
        Without what came of padding; None: all.
    axis : int or None
        Along which it is one of several steps' parts; None: the first step's is the call's.
    start, total : int
        Where it begins there, and the size of the call's output.
    """

    part: _Slices | None
    axis: int | None
    start: int
    total: int

    def collect(self, results: dict[str, np.ndarray], name: str, array: np.ndarray) -> None:
        """Copy a step's output `array`, which the next step may overwrite, into `results`."""
        part = array if self.part is None else array[self.part]
        if self.axis is None:
            if name not in results:
                results[name] = part.copy()
            return
        if name not in results:
            results[name] = self._room(part)
        stop = self.start + part.shape[self.axis]
        results[name][_along(self.axis, self.start, stop)] = part

    def _room(self, part: np.ndarray) -> np.ndarray:
        """An array for the parts of all steps, shaped like this one."""
        import numpy as np

        shape = list(part.shape)
        shape[self.axis or 0] = self.total
        return np.empty(shape, part.dtype)


@dataclass(frozen=True)
class Transfer:
    """One step: the function to call, its inputs and its outputs.

    Parameters
    ----------
    entry : str
    inputs : tuple of TensorSpec
        Of fixed shapes.
    takes : tuple of Take
    gives : tuple of Give
    """

    entry: str
    inputs: tuple[TensorSpec, ...]
    takes: tuple[Take, ...]
    gives: tuple[Give, ...]


def transfers(
    plan: Plan,
    dimensions: Mapping[str, OpenDimension],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    sizes: Mapping[str, int],
) -> tuple[Transfer, ...]:
    """What the steps of `plan` take and give, in a call with all symbols at `sizes`."""
    return tuple(
        _Transfers(plan, step, dimensions, sizes).transfer(inputs, outputs) for step in plan.steps
    )


class _Transfers:
    """The shapes that one step has to do with."""

    def __init__(
        self,
        plan: Plan,
        step: Step,
        dimensions: Mapping[str, OpenDimension],
        sizes: Mapping[str, int],
    ) -> None:
        self._step, self._dimensions = step, dimensions
        self._splits = len(plan.steps) > 1
        self._call = sizes
        self._run = {**sizes, **step.sizes}
        self._before = self._true = self._nothing = sizes
        if plan.batch:
            self._before = {**sizes, plan.batch: step.start}
            self._true = {**sizes, plan.batch: step.stop - step.start}
            self._nothing = {**sizes, plan.batch: 0}

    def transfer(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Transfer:
        return Transfer(
            self._step.entry,
            tuple(
                TensorSpec(i.name, tuple(_size(dim, self._run) for dim in i.shape), i.dtype)
                for i in inputs
            ),
            tuple(map(self._take, inputs)),
            tuple(map(self._give, outputs)),
        )

    def _take(self, spec: TensorSpec) -> Take:
        source, target, padding = [], [], []
        for axis, dim in enumerate(spec.shape):
            run, size = _size(dim, self._run), _size(dim, self._true)
            start = self._start(dim)
            source.append(slice(start, start + size))
            target.append(slice(0, size))
            if size != run:
                padding.append((axis, size, self._value(spec, dim)))
        whole = all(evaluate(dim, self._call) == evaluate(dim, self._true) for dim in spec.shape)
        return Take(
            None if whole else tuple(source), tuple(target) if padding else None, tuple(padding)
        )

    def _value(self, spec: TensorSpec, dim: int | str) -> float | None:
        """What the input is padded with along an axis of size `dim`."""
        for name, dimension in self._dimensions.items():
            if spec.name in dimension.fill and self._depends(dim, name):
                return dimension.fill[spec.name]
        return None

    def _depends(self, dim: int | str, name: str) -> bool:
        return evaluate(dim, {**self._run, name: 0}) != evaluate(dim, self._run)

    def _start(self, dim: int | str) -> int:
        """Where the step's rows begin along an axis of size `dim`."""
        before, none = evaluate(dim, self._before), evaluate(dim, self._nothing)
        return 0 if before is None or none is None else before - none

    def _give(self, spec: TensorSpec) -> Give:
        part = tuple(slice(0, evaluate(dim, self._true)) for dim in spec.shape)
        whole = all(evaluate(dim, self._run) == evaluate(dim, self._true) for dim in spec.shape)
        axis = next((a for a, dim in enumerate(spec.shape) if self._is_shared_out(dim)), None)
        dim = 0 if axis is None else spec.shape[axis]
        total = evaluate(dim, self._call) or 0
        return Give(None if whole else part, axis, self._start(dim), total)

    def _is_shared_out(self, dim: int | str) -> bool:
        return self._splits and evaluate(dim, self._nothing) != evaluate(dim, self._call)


def _size(dim: int | str, sizes: Mapping[str, int]) -> int:
    """Of an input's dimension, which must be known before a call."""
    size = evaluate(dim, sizes)
    if size is None:
        raise ModelError(
            f"an input of the model has the size {dim}, which cannot be told from its open "
            "dimensions; compile it without batch= and sizes="
        )
    return size
