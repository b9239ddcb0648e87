"""Files and folders that are whole or not there."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["new_folder", "replacing"]


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
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to fill, whose content is in `path` when the block ends without an error.

    An empty folder that is there stays the same one, since it may be where a shell is.

    Raises
    ------
    OptionError
        When `path` is there and not an empty folder, or cannot be written.
    """
    target = path.resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        what = "is not empty" if target.is_dir() else "is no folder"
        raise OptionError(f"{path} {what}; give a folder that is empty or not there")
    try:
        beside = target if target.exists() else target.parent
        beside.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=beside, prefix=".byoc-") as work:
            unfinished = Path(work, "unfinished")
            unfinished.mkdir()
            yield unfinished
            if beside is target:
                for item in list(unfinished.iterdir()):
                    item.replace(target / item.name)
            else:
                unfinished.replace(target)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error}") from error
