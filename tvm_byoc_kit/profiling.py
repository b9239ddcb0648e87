"""Where the time of a run goes: into each region, each host function, allocation, the rest.

TVM's virtual machine tells when each call that it makes begins and ends; nothing is compiled in.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.input_checks import checked_inputs, symbol_sizes
from tvm_byoc_kit.machine import is_cuda
from tvm_byoc_kit.run_profile import PartKind, ProfiledPart, RunProfile, TimedCall
from tvm_byoc_kit.sample_inputs import random_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tvm_byoc_kit.manifest import Manifest
    from tvm_byoc_kit.runtime import Executable

__all__ = ["profile_runs"]

# Parts that are no function of the model's.
_NAMES: dict[PartKind, str] = {
    "memory": "allocation and copies",
    "checks": "shapes and checks",
    "arrays": "arrays in and out",
    "between": "between calls",
}
_BUILTIN = "vm.builtin."
_MEMORY = frozenset({"alloc_storage", "alloc_tensor", "copy", "reshape", "to_device"})


@dataclass(frozen=True)
class _Call:
    """A call that the virtual machine made; nanoseconds, `own` without the calls inside it."""

    name: str
    kind: PartKind
    start: int
    duration: int
    own: int


@dataclass(frozen=True)
class _Run:
    start: int
    end: int
    calls: tuple[_Call, ...]  # by their ends

    @property
    def duration(self) -> int:
        return self.end - self.start


def profile_runs(
    exe: Executable, inputs: Mapping[str, Any] | None = None, repeats: int = 10
) -> RunProfile:
    """Run `exe` `repeats` times as it is, and as often with every call inside it timed.

    Parameters
    ----------
    exe : Executable
    inputs : mapping of name to array, optional
        As of `Executable.run`; random ones when left out.
    repeats : int

    Raises
    ------
    OptionError
        For fewer than one repeat.
    InputError, BackendUnavailable, ModelError
        As of `Executable.run`.
    """
    if repeats < 1:
        raise OptionError(f"repeats is {repeats}; expected at least 1")
    sizes = exe.manifest.variants.example_sizes()
    given = random_inputs(exe.inputs, sizes=sizes) if inputs is None else dict(inputs)
    recorder = _Recorder(exe.manifest)

    def run() -> _Run:
        recorder.calls.clear()
        start = time.perf_counter_ns()
        exe.run(given)
        return _Run(start, time.perf_counter_ns(), tuple(recorder.calls))

    plain, measured = [], []
    for _ in range(repeats + 1):
        plain.append(run())
        exe.vm.set_instrument(recorder)
        try:
            measured.append(run())
        finally:
            exe.vm.set_instrument(None)
    return _profile(exe, given, _faster_half(plain[1:]), _faster_half(measured[1:]), repeats)


class _Recorder:
    """What the virtual machine calls before and after each of its calls."""

    def __init__(self, manifest: Manifest) -> None:
        self.calls: list[_Call] = []
        self._regions = manifest.regions
        self._open: list[tuple[int, int]] = []  # start, and the time of calls inside
        self._wait = _waiting(manifest)

    def __call__(
        self, _function: Any, name: str, before: bool, _result: Any, *_arguments: Any
    ) -> int:
        if before:
            self._open.append((time.perf_counter_ns(), 0))
            return 0
        if self._wait is not None:
            self._wait()
        now = time.perf_counter_ns()
        start, inside = self._open.pop()
        if self._open:
            outer, others = self._open[-1]
            self._open[-1] = outer, others + now - start
        own = now - start - inside
        self.calls.append(_Call(str(name), self._kind(name), start, now - start, own))
        return 0

    def _kind(self, name: str) -> PartKind:
        if name in self._regions:
            return "region"
        if not name.startswith(_BUILTIN):
            return "host"
        return "memory" if name.removeprefix(_BUILTIN) in _MEMORY else "checks"


def _waiting(manifest: Manifest) -> Callable[[], None] | None:
    """What waits for a GPU: a call is over before its kernels are."""
    if not is_cuda(manifest.target):
        return None
    import tvm

    wait: Callable[[], None] = tvm.cuda(0).sync
    return wait


def _faster_half(runs: list[_Run]) -> list[_Run]:
    """The runs that nothing else held up, the slowest of them last."""
    return sorted(runs, key=lambda run: run.duration)[: (len(runs) + 1) // 2]


def _profile(
    exe: Executable, inputs: dict[str, Any], plain: list[_Run], measured: list[_Run], repeats: int
) -> RunProfile:
    total = statistics.fmean(run.duration for run in measured)
    tables = [_own_times(run) for run in measured]
    cycles = _cycles(exe)
    parts = []
    for (kind, name), (_, calls) in tables[0].items():
        own = statistics.fmean(found.get((kind, name), (0, 0))[0] for found in tables)
        symbol = name.partition("#")[0] if kind == "region" else ""
        parts.append(
            ProfiledPart(
                name=name,
                kind=kind,
                calls=calls,
                seconds=own / 1e9,
                share=own / total,
                composites=exe.manifest.regions.get(symbol, ()),
                cycles=cycles.get(symbol),
            )
        )
    return RunProfile(
        backend=exe.manifest.backend,
        plan=_plan(exe, inputs),
        repeats=repeats,
        seconds=statistics.fmean(run.duration for run in plain) / 1e9,
        measured_seconds=total / 1e9,
        parts=tuple(parts),
        calls=tuple(_timed_calls(measured[-1])),
        calls_seconds=measured[-1].duration / 1e9,
    )


def _timed_calls(run: _Run) -> Iterator[TimedCall]:
    for call, name in _named(run):
        yield TimedCall(name, call.kind, (call.start - run.start) / 1e9, call.duration / 1e9)


def _own_times(run: _Run) -> dict[tuple[PartKind, str], tuple[int, int]]:
    """Nanoseconds and calls of each part, which together are the run."""
    times: Counter[tuple[PartKind, str]] = Counter()
    number: Counter[tuple[PartKind, str]] = Counter()
    for call, name in _named(run):
        key = (call.kind, _NAMES.get(call.kind, name))
        times[key] += call.own
        number[key] += 1
    inside = times.total()
    first = min((call.start for call in run.calls), default=run.end)
    last = max((call.start + call.duration for call in run.calls), default=run.end)
    outside = (first - run.start) + (run.end - last)
    times["arrays", _NAMES["arrays"]] = outside
    times["between", _NAMES["between"]] = run.duration - outside - inside
    return {key: (times[key], number[key]) for key in times}


def _named(run: _Run) -> Iterator[tuple[_Call, str]]:
    """Calls in the order of their starts; those of regions numbered as coverage reports do."""
    seen: Counter[str] = Counter()
    for call in sorted(run.calls, key=lambda call: call.start):
        seen[call.name] += 1
        again = call.kind == "region" and seen[call.name] > 1
        yield call, f"{call.name}#{seen[call.name]}" if again else call.name


def _cycles(exe: Executable) -> dict[str, int]:
    """What the example NPU's regions would take, by symbol."""
    if exe.manifest.backend != "example_npu":
        return {}
    from tvm_byoc_kit.backends.example_npu_schedule import schedules

    return {schedule.symbol: schedule.cycles for schedule in schedules(exe)}


def _plan(exe: Executable, inputs: dict[str, Any]) -> str:
    variants = exe.manifest.variants
    if not variants:
        return ""
    arrays = checked_inputs(exe.inputs, inputs)
    sizes = symbol_sizes(exe.inputs, [array.shape for array in arrays])
    return str(exe.plan({name: sizes[name] for name in variants.dimensions}))
