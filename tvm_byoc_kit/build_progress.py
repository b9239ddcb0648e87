"""What a long build shows of itself: in the command line's spinner, or as a bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from tvm_byoc_kit import terminal

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = ["Display", "showing"]


class Display(Protocol):
    """What a build reports to."""

    def __call__(self, phase: str, done: int, steps: int) -> None:
        """So many `steps` of a phase are `done`; all of them when it is over."""


@contextmanager
def showing(what: str, *, wanted: bool) -> Iterator[Display]:
    """A display for the build of `what`: in the command line's spinner, as a bar, or nowhere.

    Parameters
    ----------
    what : str
        Such as the name of a region.
    wanted : bool
        Whether to show anything at all.
    """
    if wanted and terminal.has_spinner():
        yield lambda phase, done, steps: terminal.say(f"{what}: {phase} {done}/{steps}")
    elif wanted and sys.stderr.isatty():
        with _bars(what) as display:
            yield display
    else:
        yield lambda phase, done, steps: None  # noqa: ARG005


@contextmanager
def _bars(what: str) -> Iterator[Display]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def display(phase: str, done: int, steps: int) -> None:
            if phase not in tasks:
                tasks[phase] = progress.add_task(f"{what}: {phase}", total=max(steps, 1))
            progress.update(tasks[phase], completed=done or (0 if steps else 1))
            if done >= steps:
                progress.remove_task(tasks.pop(phase))

        yield display
