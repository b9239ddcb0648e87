"""Files that other processes see whole or not at all."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

__all__ = ["TEMPORARY", "write_whole"]

#: How the names of unfinished files begin.
TEMPORARY = ".unfinished-"


def write_whole(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file under another name, and move it to `path` at once.

    Raises
    ------
    OSError
        When it cannot be written; nothing is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=TEMPORARY, delete=False) as file:
        unfinished = Path(file.name)
        try:
            for piece in pieces:
                file.write(piece)
            file.close()
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
