"""The program itself: what every command shares, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tvm_byoc_kit.errors import ByocError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["app", "cli", "fail"]

cli = typer.Typer(
    name="tvm-byoc",
    help="Bring your own codegen to the stock Apache TVM wheel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def app() -> None:
    """Entry point: an error of the kit is one line on stderr and exit code 1, no traceback."""
    interrupts = _note_interrupts()
    _open_streams()
    try:
        cli()
    except ByocError as error:
        fail(str(error))
    except (ImportError, OSError) as error:
        if isinstance(error, ImportError) or error.errno is None:  # as of a library to be loaded
            fail(f"a package is missing or damaged: {error}; `tvm-byoc doctor` tells what is here")
        if error.filename is None:  # the terminal, pipe or file that the output goes to
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is buffered has nowhere to go
            fail(f"cannot write the output, or a temporary file: {error.strerror}")
        fail(f"cannot use {str(error.filename)!r}: {error.strerror}")
    except Exception:
        # TVM hands an interrupt of a function that it called on as an error of its own.
        if interrupts:
            sys.exit(_INTERRUPTED)
        raise


def _open_streams() -> None:
    """Standard streams that were closed lead nowhere, instead of into the next file opened."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 - the lowest free one
        pass
    os.close(number)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


_INTERRUPTED = 130  # as shells have it: 128 and the signal's number


def _note_interrupts() -> list[int]:
    """A list that has every Ctrl-C from now on; what one does stays as it is."""
    interrupts: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, note)
    return interrupts


def fail(message: str) -> NoReturn:
    """End with `message` as one line on stderr."""
    line = " ".join(message.split("\n"))  # a list of unsupported operators has several
    print(f"tvm-byoc: {line}", file=sys.stderr)  # noqa: T201 - the command line's own output
    sys.exit(1)


def _version(wanted: bool) -> None:
    if wanted:
        from tvm_byoc_kit.artifact import versions

        typer.echo(", ".join(f"{name} {number}" for name, number in versions().items()))
        raise typer.Exit


@cli.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Versions.")
    ] = False,
) -> None:
    """Bring your own codegen to the stock Apache TVM wheel."""
