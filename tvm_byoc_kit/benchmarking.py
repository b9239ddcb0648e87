"""Bench: a model on a backend against other runtimes, measured by turns in one process."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.comparison import compare_output, plain
from tvm_byoc_kit.contenders import Contender, Job, Maker, find_maker, kit_maker
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.input_checks import checked_inputs
from tvm_byoc_kit.model import load_model
from tvm_byoc_kit.process_memory import MemoryUse, measure_memory
from tvm_byoc_kit.sample_inputs import random_inputs
from tvm_byoc_kit.terminal import aligned
from tvm_byoc_kit.turns import Samples, Timer, Turn, take_turns, timed

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.comparison import OutputCheck
    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["BenchReport", "BenchSide", "Spread", "bench"]


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of a quantity over the rounds."""

    median: float
    lower: float
    upper: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Of at least one sample."""
        if len(samples) == 1:
            return cls(samples[0], samples[0], samples[0])
        lower, median, upper = statistics.quantiles(samples, n=4, method="inclusive")
        return cls(median, lower, upper)


@dataclass(frozen=True)
class BenchSide:
    """What was measured of one side.

    Parameters
    ----------
    name, version : str
        ``byoc:<backend>`` is the kit's build, with TVM's version.
    wall_ms, cpu_ms : Spread
        Of one call: elapsed time, and the CPU time of all threads of the process.
    wall_ratio, cpu_ratio : Spread
        The backend's time over this side's, round by round: below 1 the backend is faster.
    rounds, calls : int
        Samples, and calls in each.
    setup_s, setup_cpu_s : float
        From the model to something that can be called; for what starts from the imported model,
        its import included.
    first_call_s : float
    held_bytes : int
        What the process kept more after setup and first call.
    peak_bytes : int, optional
        The most that it held meanwhile, over what it held before; None where the system cannot
        tell.
    max_abs : float
        Largest difference from the reference's outputs.
    agrees : bool
        Whether every output is within the tolerance of `verify`.
    """

    name: str
    version: str
    wall_ms: Spread
    cpu_ms: Spread
    wall_ratio: Spread
    cpu_ratio: Spread
    rounds: int
    calls: int
    setup_s: float
    setup_cpu_s: float
    first_call_s: float
    held_bytes: int
    peak_bytes: int | None
    max_abs: float
    agrees: bool


@dataclass(frozen=True)
class BenchReport:
    """Truthy when all sides computed the same.

    Parameters
    ----------
    model : str
    backend : str
    inputs : tuple of str
        Name, dtype and actual shape of each.
    threads : int
        Of every side.
    machine : str
    reference : str
        The side whose outputs the others' are compared with.
    regions, ops_offloaded, ops_total : int
        What the backend took over.
    sides : tuple of BenchSide
        The backend's first.
    """

    model: str
    backend: str
    inputs: tuple[str, ...]
    threads: int
    machine: str
    reference: str
    regions: int
    ops_offloaded: int
    ops_total: int
    sides: tuple[BenchSide, ...]

    def __bool__(self) -> bool:
        return all(side.agrees for side in self.sides)

    def side(self, name: str) -> BenchSide:
        """The side called `name`.

        Raises
        ------
        OptionError
            When it was not measured.
        """
        for side in self.sides:
            if side.name == name:
                return side
        raise OptionError(
            f"'{name}' was not measured; there are {', '.join(side.name for side in self.sides)}"
        )

    def __str__(self) -> str:
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        head = (
            f"{self.model} ({'; '.join(self.inputs)}) on {threads} of {self.machine}\n"
            f"{self.sides[0].name}: {self.ops_offloaded} of {self.ops_total} ops in "
            f"{self.regions} region(s)"
        )
        rows = [_HEADINGS, *(_cells(side, self) for side in self.sides)]
        table = aligned(rows, right=range(1, len(_HEADINGS)))
        foot = (
            f"Times are of one call: median [quartiles]. Ratios are {self.sides[0].name}'s time "
            f"over the line's: below 1 it is faster. Differences are from {self.reference}."
        )
        return "\n".join([head, "", *table, "", foot])

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, which has no infinity: an infinite difference is None."""
        return {"ok": bool(self), **plain(self)}

    def write_plot(self, path: str | os.PathLike[str]) -> None:
        """Write the times as a picture; see `bench_plot.write_plot`."""
        from tvm_byoc_kit.bench_plot import write_plot

        write_plot(self, Path(path))


_HEADINGS = (
    *("side", "CPU ms", "", "CPU ratio", "wall ms", "", "wall ratio", "setup s", "memory MB"),
    "largest difference",
)
_MEGA = 1e6


def _cells(side: BenchSide, report: BenchReport) -> tuple[str, ...]:
    """The line of one side; there is no speed of wrong numbers."""
    times = [
        *(
            f"{side.cpu_ms.median:.3f}",
            _quartiles(side.cpu_ms),
            _ratio(side.cpu_ratio, side, report),
        ),
        *(f"{side.wall_ms.median:.3f}", _quartiles(side.wall_ms)),
        _ratio(side.wall_ratio, side, report),
    ]
    if not side.agrees:
        times = ["WRONG", *[""] * (len(times) - 1)]
    memory = side.held_bytes if side.peak_bytes is None else side.peak_bytes
    return (
        side.name,
        *times,
        f"{side.setup_s:.2f}",
        f"{memory / _MEGA:.0f}",
        f"{side.max_abs:.1e}",
    )


def _quartiles(spread: Spread) -> str:
    return f"[{spread.lower:.3f} {spread.upper:.3f}]"


def _ratio(spread: Spread, side: BenchSide, report: BenchReport) -> str:
    return "" if side is report.sides[0] else f"{spread.median:.3f}"


def bench(
    model: Any,
    backend: str | Backend,
    example_inputs: Any = None,
    *,
    against: Sequence[str] = ("onnxruntime",),
    threads: int = 1,
    rounds: int = 20,
    options: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    seed: int = 0,
) -> BenchReport:
    """Measure `model` on `backend` against other runtimes.

    All sides run in this process by turns, in an order that changes from round to round, so that
    what slows the machine down slows each of them. Every side gets the same arrays and as many
    threads, none of which spins while it waits. A turn is one call that is not timed and as many
    that are as take 50 ms, whose mean is a sample.

    Parameters
    ----------
    model : anything that `load_model` takes
        What else is to run it must know its format: ``onnxruntime`` and ``openvino`` take ONNX
        models, ``torch`` takes PyTorch's.
    backend : str or Backend
    example_inputs : sequence of torch.Tensor, optional
        For an ``nn.Module``.
    against : sequence of str
        ``onnxruntime``, ``openvino`` (its own API, without TVM), ``tvm`` (what ``tvm.compile``
        gives for a CPU), ``torch``, or ``byoc:<backend>`` for another backend of the kit.
    threads : int
        Of each side.
    rounds : int
        A side that takes longer than 0.5 s a call gets 3 at most.
    options : mapping, optional
        Of the backend's codegen; its option ``threads``, where it has one, is `threads`.
    inputs : mapping of name to array, optional
        By default random ones.
    shapes : mapping of input name to shape, optional
        For ONNX: as `load_model` takes them.
    seed : int
        Of the random inputs, and of the order.

    Notes
    -----
    TVM reads its environment when its threads start: in a process in which TVM has computed in
    parallel before, its threads may spin, unless ``TVM_THREAD_POOL_SPIN_COUNT=0`` was set.

    Raises
    ------
    BackendUnavailable
        When a side is not on this machine.
    ModelError
        When a side cannot take the model.
    OptionError
        For a side that does not exist, or a number below 1.
    """
    _check_positive(threads=threads, rounds=rounds)
    chosen = get_backend(backend)
    own = kit_maker(chosen, options)
    makers = [own, *(find_maker(name) for name in dict.fromkeys(against) if name != own.name)]
    for maker in makers:
        maker.check()
    with _tvm_threads(threads):
        for module in dict.fromkeys(module for maker in makers for module in maker.modules):
            importlib.import_module(module)
        with timed() as importing:
            imported = load_model(model, example_inputs, shapes=shapes)
        arrays = _arrays(imported.inputs, inputs, seed)
        job = Job(model, imported, arrays, threads)
        entrants = [_set_up(maker, job, importing) for maker in makers]
        reference = _reference(entrants)
        checks = {
            entrant.maker.name: _compare(imported.outputs, entrant, reference)
            for entrant in entrants
        }
        turns = {entrant.maker.name: entrant.turn for entrant in entrants}
        samples = take_turns(turns, rounds, random.Random(seed))  # noqa: S311 - no secret
    return BenchReport(
        model=imported.origin or type(model).__name__,
        backend=chosen.name,
        inputs=tuple(f"{name}: {a.dtype}{list(a.shape)}" for name, a in arrays.items()),
        threads=threads,
        machine=_machine(),
        reference=reference.maker.name,
        **entrants[0].contender.facts,
        sides=tuple(
            _side(entrant, samples, entrants[0], checks[entrant.maker.name]) for entrant in entrants
        ),
    )


def _check_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if type(value) is not int or value < 1:
            raise OptionError(f"{name}={value!r}: expected an integer from 1 on")


@contextlib.contextmanager
def _tvm_threads(threads: int) -> Iterator[None]:
    """Give TVM's pool, which starts in this block, its size, and let it sleep while it waits."""
    wanted = {"TVM_NUM_THREADS": str(threads), "TVM_THREAD_POOL_SPIN_COUNT": "0"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _arrays(
    specs: tuple[TensorSpec, ...], given: Mapping[str, Any] | None, seed: int
) -> dict[str, np.ndarray]:
    """The inputs, in calling order."""
    values = random_inputs(specs, seed) if given is None else given
    return {
        spec.name: array for spec, array in zip(specs, checked_inputs(specs, values), strict=True)
    }


@dataclass(frozen=True)
class _Entrant:
    """A side that is set up, and what that took."""

    maker: Maker
    contender: Contender
    outputs: list[np.ndarray]
    setup: Timer
    first_call: Timer
    memory: MemoryUse
    turn: Turn


def _set_up(maker: Maker, job: Job, importing: Timer) -> _Entrant:
    with measure_memory() as memory:
        with timed() as setup:
            contender = maker(job)
        with timed() as first_call:
            result = contender.call()
    outputs, expected = contender.arrays(result), job.imported.outputs
    if len(outputs) != len(expected):
        names = ", ".join(spec.name for spec in expected)
        raise ModelError(
            f"{maker.name} gives {len(outputs)} output(s), the imported model {len(expected)} "
            f"({names}); they cannot be compared"
        )
    if maker.imports:
        setup.wall += importing.wall
        setup.cpu += importing.cpu
    turn = Turn.of(contender.call)
    return _Entrant(maker, contender, outputs, setup, first_call, memory, turn)


def _reference(entrants: Sequence[_Entrant]) -> _Entrant:
    """The first side that TVM has no part in, else the first after the backend."""
    others = [entrant for entrant in entrants if not entrant.maker.imports]
    return (others or entrants[1:] or entrants)[0]


def _compare(
    specs: tuple[TensorSpec, ...], entrant: _Entrant, reference: _Entrant
) -> list[OutputCheck]:
    return [
        compare_output(spec.name, got, expected)
        for spec, got, expected in zip(specs, entrant.outputs, reference.outputs, strict=True)
    ]


_MILLI = 1e3


def _side(
    entrant: _Entrant, samples: Samples, first: _Entrant, checks: list[OutputCheck]
) -> BenchSide:
    own, base = samples[entrant.maker.name], samples[first.maker.name]
    shared = own.keys() & base.keys()
    return BenchSide(
        name=entrant.maker.name,
        version=entrant.maker.version,
        wall_ms=Spread.of([timer.wall * _MILLI for timer in own.values()]),
        cpu_ms=Spread.of([timer.cpu * _MILLI for timer in own.values()]),
        wall_ratio=Spread.of([base[number].wall / own[number].wall for number in shared]),
        cpu_ratio=Spread.of([base[number].cpu / own[number].cpu for number in shared]),
        rounds=len(own),
        calls=entrant.turn.calls,
        setup_s=entrant.setup.wall,
        setup_cpu_s=entrant.setup.cpu,
        first_call_s=entrant.first_call.wall,
        held_bytes=entrant.memory.held,
        peak_bytes=entrant.memory.peak,
        max_abs=max((check.max_abs for check in checks), default=0.0),
        agrees=all(check.ok for check in checks),
    )


def _machine() -> str:
    """Cores that this process may use, of which processor."""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} core{'s' if cores > 1 else ''} ({_processor()})"


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()
