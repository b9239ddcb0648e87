"""What the command line shows: progress on a terminal, and TVM's own log only when it matters."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from rich.console import Console

__all__ = ["make_console", "progress", "quiet_native_log"]


def make_console() -> Console:
    """Standard output; without colours and control characters when it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=not sys.stdout.isatty())


def progress(console: Console, text: str) -> AbstractContextManager[object]:
    """A spinner with `text` while the block runs; nothing when standard output is no terminal."""
    return console.status(text) if console.is_terminal else nullcontext()


@contextmanager
def quiet_native_log() -> Iterator[None]:
    """Hold back what native code writes to standard error; show it if the block fails.

    TVM logs harmless details (``Warning: Scope Saving:``) there, past Python's ``sys.stderr``. The
    redirection is of the whole process, so this is for the command line, not for libraries.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except BaseException:
            sys.stderr.flush()
            held.seek(0)
            os.write(saved, held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(saved, 2)
            os.close(saved)
