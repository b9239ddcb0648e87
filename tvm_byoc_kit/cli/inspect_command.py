"""``tvm-byoc inspect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console


@cli.command()
def inspect(
    artifact: Annotated[Path, typer.Argument(help="An artifact that `compile` wrote.")],
    as_json: Json = False,
) -> None:
    """What an artifact is, and whether it would load here; nothing of it is run.

    Example: `tvm-byoc inspect model.so --json`
    """
    from tvm_byoc_kit.inspection import inspect_artifact

    found = inspect_artifact(artifact)
    show_facts(make_console(), as_json, found.to_dict(), found)
