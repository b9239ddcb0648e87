"""``tvm-byoc cache``: TensorRT's engines that are kept."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console

cache = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")
cli.add_typer(cache, name="cache")
CacheDirectory = Annotated[
    Path | None,
    typer.Option(
        "--directory",
        "-d",
        help="The folder; `$TVM_BYOC_ENGINE_CACHE`, or one in the user's cache, when left out.",
    ),
]


@cache.callback()
def list_cache(
    context: typer.Context, directory: CacheDirectory = None, as_json: Json = False
) -> None:
    """List the engines that TensorRT built and that are kept for next time, last used first.

    Example: `tvm-byoc cache --json`
    """
    if context.invoked_subcommand is not None:
        context.obj = directory
        return
    from tvm_byoc_kit.backends.tensorrt import engine_cache

    place = directory or engine_cache.default_directory()
    entries = engine_cache.EngineCache(place).entries()
    facts = {
        "directory": str(place),
        "bytes": sum(entry.bytes for entry in entries),
        "entries": [asdict(entry) for entry in entries],
    }
    console = make_console()
    show_facts(console, as_json, facts, engine_cache.as_table(place, entries))


@cache.command("clear")
def clear_cache(
    context: typer.Context, directory: CacheDirectory = None, as_json: Json = False
) -> None:
    """Remove all of them; what else is in the folder stays.

    Example: `tvm-byoc cache clear`
    """
    from tvm_byoc_kit.backends.tensorrt import engine_cache

    place = directory or context.obj or engine_cache.default_directory()
    removed = engine_cache.EngineCache(place).clear()
    facts = {"directory": str(place), "removed": removed}
    console = make_console()
    show_facts(console, as_json, facts, f"removed {removed} engine(s) from {place}")
