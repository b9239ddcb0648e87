"""``tvm-byoc cmake-dir`` and ``tvm-byoc build-plugin``."""

from __future__ import annotations

from typing import Annotated

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console, progress


@cli.command("cmake-dir")
def cmake_dir() -> None:
    """Print the directory for `find_package(TvmByocKit CONFIG)` of a plugin of your own.

    Example: `cmake -DTvmByocKit_DIR=$(tvm-byoc cmake-dir) ..`
    """
    from tvm_byoc_kit.native import cmake_dir as find

    typer.echo(str(find()))


@cli.command("build-plugin")
def build_plugin(
    name: Annotated[str, typer.Argument(help="The plugin: `openvino`.")],
    as_json: Json = False,
) -> None:
    """Build a backend's executor in C++ against its library as it is installed here.

    It is used from then on, by every process that starts; `TVM_BYOC_EXECUTORS=python` in the
    environment keeps to the one in Python.

    Example: `tvm-byoc build-plugin openvino`
    """
    from tvm_byoc_kit import plugin_build

    console = make_console()
    with progress(console, f"building {name}"):
        library = plugin_build.build_plugin(name)
    facts = {"plugin": name, "library": str(library), "detail": plugin_build.inspect(name).detail}
    show_facts(console, as_json, facts, f"built {library}")
