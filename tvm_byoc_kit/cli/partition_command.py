"""``tvm-byoc partition``: coverage, its reasons, and what policies make of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvm_byoc_kit.cli.options import BackendName, Json, Model, Policy, Shapes, parse_policy
from tvm_byoc_kit.cli.output import read_model, show_facts, working, writing
from tvm_byoc_kit.cli.program import cli, fail
from tvm_byoc_kit.errors import InputError, OptionError
from tvm_byoc_kit.files import replacing
from tvm_byoc_kit.terminal import make_console

if TYPE_CHECKING:
    from rich.console import Console

    from tvm_byoc_kit.coverage import Coverage
    from tvm_byoc_kit.partitioning import Partition


@cli.command()
def partition(
    model: Model,
    backend: BackendName = "example_npu",
    shape: Shapes = None,
    policy: Policy = None,
    script: Annotated[bool, typer.Option(help="Print the partitioned module too.")] = False,
    explain: Annotated[
        bool, typer.Option(help="Print what each pass did to the model beforehand.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write the report as one HTML page with the graph.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="An earlier `--json`: print what changed; exit code 1 if coverage fell."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option(help="Compare policies and recommend one, and nothing else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What the backend would take over, and why not the rest; nothing is compiled.

    Example: `tvm-byoc partition model.onnx --backend tensorrt --shape input:1,3,224,224 --explain`
    """
    import tvm_byoc_kit as byoc

    console = make_console()
    if dry_run:
        _refuse_with_dry_run(script=script, explain=explain, html=html, baseline=baseline)
        _dry_run(console, model, backend, shape, policy, as_json)
        return
    earlier = _read_baseline(baseline)
    with working(console, model, "partitioning"):
        rules = parse_policy(policy)
        parts = byoc.partition(read_model(model, shape), backend, policy=rules)
        coverage = parts.coverage
        note = _write_page(html, parts)
    changes = None if earlier is None else byoc.diff(earlier, coverage)
    report = parts.model.report
    facts = coverage.to_dict() | {
        "model": str(model),
        "backend": parts.backend.name,
        "policy": rules and rules.to_dict(),
        "prepare": report and report.to_dict(),
        "html": html and str(html),
    }
    text = parts.mod.script() if script else None
    if text is not None:
        facts["script"] = text
    if changes is not None:
        facts["changes"] = changes.to_dict()
    shown = (text, report if explain else None, coverage, changes, note)
    show_facts(console, as_json, facts, *shown)
    if changes is not None and changes.fell:
        fail(f"coverage fell below that of {baseline}: {'; '.join(changes.losses)}")


def _refuse_with_dry_run(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise OptionError(f"--dry-run compares policies and nothing else: leave out --{name}")


def _dry_run(
    console: Console,
    model: Path,
    backend: str,
    shape: list[str] | None,
    policy: list[str] | None,
    as_json: bool,
) -> None:
    import tvm_byoc_kit as byoc

    with working(console, model, "partitioning"):
        rules = parse_policy(policy)
        result = byoc.dry_run(read_model(model, shape), backend, policy=rules)
    from tvm_byoc_kit import trial

    show_facts(console, as_json, result.to_dict(), trial.render(result), result.reason)


def _read_baseline(path: Path | None) -> Coverage | None:
    from tvm_byoc_kit.coverage import Coverage

    if path is None:
        return None
    try:
        return Coverage.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, InputError) as error:
        raise InputError(f"--baseline {path}: {error}") from error


def _write_page(path: Path | None, parts: Partition) -> str | None:
    """Write the page; gives the line that says so."""
    if path is None:
        return None
    schedule, missing = _planned(parts)
    page = parts.coverage.to_html(schedule=schedule)
    with writing("--html", path), replacing(path) as unfinished:
        unfinished.write_text(page, encoding="utf-8")
    return f"wrote {path}{missing}"


def _planned(parts: Partition) -> tuple[tuple[Any, ...], str]:
    """The example NPU's schedule, and what is to be said when there is none."""
    if parts.backend.name != "example_npu" or not parts.coverage.regions:
        return (), ""
    status = parts.backend.check("codegen")
    if not status:
        return (), f", without the schedule: {status.detail}; {status.remedy}"
    from tvm_byoc_kit.backends.example_npu_schedule import planned_schedules

    planned = planned_schedules(parts.mod)
    if not planned:
        return (), ", without the schedule: the shapes are open, --shape gives them"
    return planned, ""
