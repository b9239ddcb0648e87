"""Files and directories that are whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UNFINISHED", "new_folder", "replacing", "replacing_directory"]

#: How the names of folders with what is unfinished begin.
UNFINISHED = ".byoc-"


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
    target = _led_to(path)
    # Beside the target, so that the rename stays on one file system.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=UNFINISHED) as work:
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
    target = _led_to(path)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=UNFINISHED) as work:
        unfinished = Path(work, "unfinished")
        unfinished.mkdir()
        yield unfinished
        if target.exists():
            target.rename(Path(work, "before"))
        unfinished.rename(target)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, whose content is in `path` when the block ends without an error.

    An empty folder that is there stays the same one, since it may be where a shell is.

    Raises
    ------
    OptionError
        When `path` is there and not an empty directory, or cannot be written.
    """
    try:
        target = _led_to(path)
        _check_new(path, target)
        if target.exists():
            with tempfile.TemporaryDirectory(dir=target, prefix=UNFINISHED) as work:
                yield Path(work)
                for item in list(Path(work).iterdir()):
                    item.replace(target / item.name)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing_directory(target) as unfinished:
                yield unfinished
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error}") from error


def _check_new(path: Path, target: Path) -> None:
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "is not empty" if target.is_dir() else "is no folder"
        raise OptionError(f"{path} {what}; give a folder that is empty or not there")


def _led_to(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # links in a loop, before Python 3.13
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path)) from error
