"""What `Executable.profile` gives: the parts of a run, as a table, JSON and a trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from tvm_byoc_kit.coverage_text import patterns
from tvm_byoc_kit.terminal import as_text
from tvm_byoc_kit.trace_events import lanes, span, write_trace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from rich.table import Table

__all__ = ["PartKind", "ProfiledPart", "RunProfile", "TimedCall", "as_table"]

PartKind = Literal["region", "host", "memory", "checks", "arrays", "between"]


@dataclass(frozen=True)
class TimedCall:
    """A call in a run.

    Parameters
    ----------
    name, kind : str
        As of `ProfiledPart`; what the virtual machine does has the name of its function.
    start, seconds : float
        From the start of the run on.
    """

    name: str
    kind: PartKind
    start: float
    seconds: float


@dataclass(frozen=True)
class ProfiledPart:
    """A part of a run.

    Parameters
    ----------
    name : str
        A region's symbol, with ``#2`` and so on from its second call in a run on; a host function;
        or what the virtual machine does.
    kind : str
        ``region``; ``host``: a function that TVM compiled, or a library's; ``memory``: allocation
        and copies; ``checks``: of shapes; ``arrays``: NumPy arrays in and out, before the first
        call and after the last; ``between``: between calls, most of it the measuring itself.
    calls : int
        In a run.
    seconds : float
        In a run, functions that it calls left out.
    share : float
        Of `RunProfile.measured_seconds`.
    composites : tuple of str
        Of a region: its patterns, in the order of their calls.
    cycles : int or None
        Of a region of the example NPU: estimated for the device, which has nothing to do with the
        time that its simulator takes.
    """

    name: str
    kind: PartKind
    calls: int
    seconds: float
    share: float
    composites: tuple[str, ...] = ()
    cycles: int | None = None


@dataclass(frozen=True)
class RunProfile:
    """Where the time of a run goes. ``str()`` gives a table as text.

    Parameters
    ----------
    backend : str
    plan : str
        Which builds of the artifact ran, where it has several.
    repeats : int
        Runs of each kind.
    seconds : float
        A run without measuring inside it.
    measured_seconds : float
        A run with it: what the parts are shares of. The difference is what measuring costs. Times
        are means over the faster half of the runs.
    parts : tuple of ProfiledPart
        In the order of the run.
    calls : tuple of TimedCall
        Of one of the runs, by their starts: what the trace shows.
    calls_seconds : float
        That run.
    """

    backend: str
    plan: str
    repeats: int
    seconds: float
    measured_seconds: float
    parts: tuple[ProfiledPart, ...]
    calls: tuple[TimedCall, ...]
    calls_seconds: float

    @property
    def regions(self) -> tuple[ProfiledPart, ...]:
        """The parts that are calls of regions, in the order of the run."""
        return tuple(part for part in self.parts if part.kind == "region")

    def share(self, kind: PartKind) -> float:
        """Share of all parts of a kind together."""
        return sum(part.share for part in self.parts if part.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "backend": self.backend,
            "plan": self.plan,
            "repeats": self.repeats,
            "seconds": self.seconds,
            "measured_seconds": self.measured_seconds,
            "parts": [asdict(part) for part in self.parts],
        }

    def chrome_trace(self) -> dict[str, Any]:
        """One of the runs in the Trace Event Format: a lane for the host, one for the backend."""
        events = list(lanes("a run, measured", ("host", self.backend), first="host"))
        whole = {"plan": self.plan or "one build"}
        events.append(span("run", "run", 0, 0.0, 1e6 * self.calls_seconds, args=whole))
        events.extend(self._events())
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def _events(self) -> Iterator[dict[str, Any]]:
        regions = {part.name: part for part in self.regions}
        for call in self.calls:
            lane = 1 if call.kind == "region" else 0
            part = regions.get(call.name)
            args = {"composites": list(part.composites), "cycles": part.cycles} if part else {}
            start, duration = 1e6 * call.start, 1e6 * call.seconds
            yield span(call.name, call.kind, lane, start, duration, args=args)

    def write_chrome_trace(self, path: str | os.PathLike[str]) -> Path:
        """Write `chrome_trace` to a file, which https://ui.perfetto.dev opens; give the file."""
        return write_trace(path, self.chrome_trace())

    @property
    def headline(self) -> str:
        """What a run takes, and which builds it runs."""
        plain, measured = (f"{1e6 * s:,.1f} µs" for s in (self.seconds, self.measured_seconds))
        line = f"{self.backend}: a run takes {plain}, while measured {measured}"
        return f"{line}\n{self.plan}" if self.plan else line

    def __str__(self) -> str:
        return f"{self.headline}\n{as_text(as_table(self))}"


_MOST_ROWS = 30


def as_table(profile: RunProfile) -> Table:
    """Parts by their share, the largest first; the least of many together."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, show_edge=False)
    cycles = any(part.cycles is not None for part in profile.parts)
    for name in ("share", "µs", "calls", *(["cycles"] if cycles else [])):
        made.add_column(name, justify="right")
    made.add_column("part")
    for row in _rows(profile):
        made.add_row(*(row if cycles else (*row[:3], row[4])))
    return made


def _rows(profile: RunProfile) -> Iterator[tuple[str, str, str, str, str]]:
    labels = dict(zip(profile.regions, _region_labels(profile), strict=True))
    parts = sorted(profile.parts, key=lambda part: -part.seconds)
    for part in parts[:_MOST_ROWS]:
        cycles = "" if part.cycles is None else f"{part.cycles:,}"
        yield (*_cells(part.share, part.seconds, part.calls), cycles, labels.get(part, part.name))
    rest = parts[_MOST_ROWS:]
    if rest:
        sums = (sum(getattr(p, field) for p in rest) for field in ("share", "seconds", "calls"))
        yield (*_cells(*sums), "", f"{len(rest)} more parts")


def _cells(share: float, seconds: float, calls: int) -> tuple[str, str, str]:
    return f"{100 * share:.1f} %", f"{1e6 * seconds:,.1f}", str(calls or "")


def _region_labels(profile: RunProfile) -> Iterator[str]:
    for number, part in enumerate(profile.regions, 1):
        # Of several builds the name says which one it is a region of.
        label = part.name if profile.plan else f"region {number}"
        yield f"{label}: {patterns(part.composites, profile.backend)}"
