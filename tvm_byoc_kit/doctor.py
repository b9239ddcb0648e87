"""The doctor: every probe that matters, in one report that says what to do next."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import native, plugin_build
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backend import STEPS, Backend, list_backends
from tvm_byoc_kit.status import Status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

__all__ = ["GROUPS", "Report", "Row", "doctor", "render"]

# The core is what every use of the kit needs. A plugin or a compiler is not in it: without them the
# kit still partitions and reports.
_PROBES: Mapping[str, tuple[str, ...]] = {
    "core": ("tvm", "tvm_ffi", "tvm-import"),
    "plugins": tuple(f"plugin:{name}" for name in native.PLUGINS),
    "frontends": ("onnx", "onnxsim", "onnxruntime", "torch"),
    "toolchains": (
        "compiler",
        "cmake",
        "cuda-driver",
        "cuda-toolkit",
        "cuda-bindings",
        "cutlass-headers",
        "tensorrt",
        "tensorrt-rtx",
        "tensorrt-builder",
    ),
}
GROUPS = (*_PROBES, "backends")


@dataclass(frozen=True)
class Row:
    """One line of the report.

    Parameters
    ----------
    group : str
        One of `GROUPS`.
    what : str
        What was looked at: a probe, or a backend.
    step : str
        Step of the backend; empty in the other groups.
    ok : bool
        Whether it is there, or whether the backend can do the step.
    detail : str
        Version and place, or the reason why it is not there.
    remedy : str
        Command or action that adds it; empty when it is there.
    """

    group: str
    what: str
    step: str
    ok: bool
    detail: str
    remedy: str

    @property
    def state(self) -> str:
        """``"ok"`` or ``"missing"``."""
        return "ok" if self.ok else "missing"


@dataclass(frozen=True)
class Report:
    """What is here, what is missing, and the commands that add it."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether the core works: models can be partitioned and reported on."""
        return all(row.ok for row in self.group("core"))

    def __bool__(self) -> bool:
        return self.ok

    def group(self, name: str) -> tuple[Row, ...]:
        """Rows of one group, in the order of the report."""
        return tuple(row for row in self.rows if row.group == name)

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain data, for JSON."""
        rows = [{**asdict(row), "state": row.state} for row in self.rows]
        return {"ok": self.ok, "rows": rows}


def doctor() -> Report:
    """Look at everything the kit can use on this machine.

    Imports TVM, and through tvm-ffi torch where it is installed, unless TVM was imported before
    (see `tvm_byoc_kit.native.without_torch`).
    """
    python = Status("python", ok=True, detail=f"{platform.python_version()} ({platform.machine()})")
    return Report((_row("core", python), *_probe_rows(), *_executor_rows(), *_backend_rows()))


def render(report: Report, console: Console) -> None:
    """Print the report: what is here, a matrix of backends and steps, then what to do.

    Parameters
    ----------
    report : Report
        From `doctor`.
    console : rich.console.Console
        Where to print; piped, it prints the same without colours.
    """
    for group in _PROBES:
        console.print(_group_table(group, report.group(group)), "")
    console.print(_backends_table(report.group("backends")), "")
    for remedy, reasons in _advice(report):
        for reason in reasons:
            console.print(reason, markup=False, highlight=False)
        # On one line whatever the width, so that it can be copied.
        console.print(f"    {remedy}", style="cyan", markup=False, highlight=False, soft_wrap=True)
    console.print(f"\nThe core {'works' if report.ok else 'does not work'}.", highlight=False)


def _probe_rows() -> Iterator[Row]:
    for group, names in _PROBES.items():
        for name in names:
            yield _row(group, probe(name))


def _executor_rows() -> Iterator[Row]:
    """Executors in C++, of the backends whose library is here."""
    for name, plugin in plugin_build.BUILDABLE.items():
        if probe(plugin.package):
            yield _row("plugins", plugin_build.inspect(name))


def _backend_rows() -> Iterator[Row]:
    for backend in list_backends():
        for step in STEPS:
            yield _backend_row(backend, step, backend.check(step))


def _row(group: str, status: Status) -> Row:
    return Row(group, status.name, "", status.ok, status.detail, status.remedy)


def _backend_row(backend: Backend, step: str, status: Status) -> Row:
    detail = "" if status else status.detail
    return Row("backends", backend.name, step, status.ok, detail, status.remedy)


def _group_table(group: str, rows: tuple[Row, ...]) -> Table:
    from rich.text import Text

    table = _table(group, "state", "detail")
    for row in rows:
        detail = row.detail if row.ok else "see below"
        table.add_row(Text(row.what), _mark(row), Text(detail, overflow="fold"))
    return table


def _backends_table(rows: tuple[Row, ...]) -> Table:
    from rich.text import Text

    table = _table("backends", *STEPS)
    for backend in dict.fromkeys(row.what for row in rows):
        table.add_row(Text(backend), *(_mark(row) for row in rows if row.what == backend))
    return table


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    # All tables are in line with each other.
    table.add_column(title, min_width=max(map(len, chain(*_PROBES.values()))))
    for column in columns:
        table.add_column(column, min_width=len("partition"))
    return table


def _mark(row: Row) -> Text:
    from rich.text import Text

    return Text(row.state, style="green" if row.ok else "yellow")


def _advice(report: Report) -> Iterator[tuple[str, list[str]]]:
    """Give each remedy once, with the reasons for it and what each of them stands in the way of."""
    remedies: dict[str, dict[str, list[str]]] = {}
    for row in report.rows:
        if not row.ok:
            title = f"backend {row.what}" if row.step else row.what
            stopped = remedies.setdefault(row.remedy, {}).setdefault(row.detail, [])
            stopped.extend([title] if title not in stopped else [])
    for remedy, reasons in remedies.items():
        yield remedy, [f"{', '.join(titles)}: {reason}" for reason, titles in reasons.items()]
