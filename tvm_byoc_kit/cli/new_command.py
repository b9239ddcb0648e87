"""``tvm-byoc new``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvm_byoc_kit.cli.options import Json
from tvm_byoc_kit.cli.output import show_facts
from tvm_byoc_kit.cli.program import cli
from tvm_byoc_kit.terminal import make_console

if TYPE_CHECKING:
    from tvm_byoc_kit.scaffold import Kind


# The build of C++ reads the kit's headers, which pip's isolated environment has not.
_INSTALL: dict[Kind, tuple[str, ...]] = {
    "python": ('pip install -e ".[test]"',),
    "cpp": (
        "pip install scikit-build-core cmake ninja",
        'pip install --no-build-isolation -e ".[test]"',
    ),
}


@cli.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the backend and of its Python package.")],
    python: Annotated[
        bool, typer.Option("--python/--cpp", help="What codegen and runtime are written in.")
    ] = True,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where the project goes: an empty or new folder, else ./NAME."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a project that is a backend of your own: installable, tested, computing.

    Example: `tvm-byoc new acme_npu --cpp`
    """
    from tvm_byoc_kit.scaffold import new_backend

    kind: Kind = "python" if python else "cpp"
    folder = Path(name) if directory is None else directory
    files = new_backend(name, kind, directory=folder)
    console = make_console()

    def show() -> None:
        lines = [*(str(folder / path) for path in files), "next:", *(f"    {n}" for n in steps)]
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)

    steps = [f"cd {shlex.quote(str(folder))}", *_INSTALL[kind], "pytest"]
    facts = {"name": name, "kind": kind, "directory": str(folder), "files": files, "next": steps}
    show_facts(console, as_json, facts, show)
