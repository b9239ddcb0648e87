"""Files and directories that are whole or not there."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["replacing", "replacing_directory"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` when the block ends without an error.

    Parameters
    ----------
    path : pathlib.Path
        A link stays a link: where it leads, the file is replaced. What is no file, such as a
        device or a pipe, is written itself.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    target = path.resolve()
    # Beside the target, so that the rename stays on one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".byoc-") as work:
        unfinished = Path(work, "unfinished")
        yield unfinished
        unfinished.replace(target)


@contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A directory to fill, which takes the place of `path` when the block ends without an error.

    Parameters
    ----------
    path : pathlib.Path
        Where it leads, if it is a link. A directory that is there is removed with all it holds.
    """
    target = path.resolve()
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".byoc-") as work:
        unfinished = Path(work, "unfinished")
        unfinished.mkdir()
        yield unfinished
        if target.exists():
            target.rename(Path(work, "before"))
        unfinished.rename(target)
