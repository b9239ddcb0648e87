"""``tvm-byoc doctor``."""

from __future__ import annotations

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import import_tvm_without_torch, show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console, progress, quiet_native_log


@cli.command()
def doctor(as_json: Json = False) -> None:
    """What is here, what is missing, and the command that adds it. Exit code 0: the core works.

    Example: `tvm-byoc doctor --json`
    """
    from tvm_byoc_kit import doctor as report_module

    console = make_console()
    with progress(console, "looking around"), quiet_native_log():
        import_tvm_without_torch()
        report = report_module.doctor()
    show_facts(console, as_json, report.to_dict(), lambda: report_module.render(report, console))
    raise typer.Exit(0 if report.ok else 1)
