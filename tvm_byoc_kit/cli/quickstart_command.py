"""``tvm-byoc quickstart``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import import_tvm_without_torch, show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console


@cli.command()
def quickstart(
    output: Annotated[
        Path | None, typer.Option(help="Keep the artifact and the trace in this directory.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The four steps on the tutorial's module and on a trained model, with the numbers checked.

    Example: `tvm-byoc quickstart`
    """
    from tvm_byoc_kit import quickstart as steps

    console = make_console()
    import_tvm_without_torch()
    result = steps.quickstart(None if as_json else console, output=output)
    if as_json:
        show_facts(console, as_json, result.to_dict())
    raise typer.Exit(0 if result else 1)
