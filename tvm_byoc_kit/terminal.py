"""What the command line shows: progress on a terminal, and TVM's own log only when it matters."""

from __future__ import annotations

import io
import os
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit.errors import ByocError

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from rich.console import Console
    from rich.status import Status
    from rich.table import Table

__all__ = [
    "aligned",
    "as_text",
    "has_spinner",
    "make_console",
    "progress",
    "quiet_native_log",
    "say",
]

_WIDTH_OF_FILES = 160
_PACKAGE = Path(__file__).parent


def make_console() -> Console:
    """Standard output; when it is no terminal, plain and wide enough for the tables."""
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a locale may lack the rules of a table, or µ
    if sys.stdout.isatty():
        return Console(highlight=False)
    width = None if os.environ.get("COLUMNS") else _WIDTH_OF_FILES
    return Console(highlight=False, soft_wrap=True, width=width)


def as_text(table: Table, width: int = 100) -> str:
    """A table as plain text of at most `width` columns."""
    from rich.console import Console

    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())


def aligned(rows: Sequence[Sequence[str]], right: Container[int] = ()) -> list[str]:
    """Rows as lines with their columns one below the other; those of numbers `right`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if number in right else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


# The spinner of the command that runs, outermost first.
_SPINNERS: list[Status] = []


@contextmanager
def progress(console: Console, text: str) -> Iterator[None]:
    """A spinner with `text` while the block runs; nothing when standard output is no terminal."""
    if not console.is_terminal:
        yield
        return
    with console.status(text) as spinner:
        _SPINNERS.append(spinner)
        try:
            yield
        finally:
            _SPINNERS.remove(spinner)


def has_spinner() -> bool:
    """Whether a spinner is shown, beside which nothing else may draw."""
    return bool(_SPINNERS)


def say(text: str) -> None:
    """Put `text` beside the spinner, if one is shown."""
    for spinner in _SPINNERS[-1:]:
        spinner.update(text)


@contextmanager
def quiet_native_log() -> Iterator[None]:
    """Hold back what TVM writes to standard error; show it if the block fails unexpectedly.

    TVM's native code logs harmless details (``Warning: Scope Saving:``) there, past Python's
    ``sys.stderr``, and its importers warn of more. Warnings of the kit are shown, one line each.
    The redirection is of the whole process, so this is for the command line, not for libraries.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    caught: list[warnings.WarningMessage] = []
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            with warnings.catch_warnings(record=True) as caught:
                yield
        except ByocError:
            raise  # its message says what the log would
        except BaseException:
            sys.stderr.flush()
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
            for warning in caught:
                if Path(warning.filename).is_relative_to(_PACKAGE):
                    print(f"tvm-byoc: warning: {warning.message}", file=sys.stderr)  # noqa: T201
