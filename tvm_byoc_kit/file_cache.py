"""Files that took long to make, in a folder, under a name that is all of what went into them.

Any number of processes may use one folder at once: a file is written under another name and moved
into place, and one that is gone when it is to be read, or to be removed, is a miss, or no matter.
What cannot be read, or is not what its name says, is a miss with a warning, and what is made next
is written over it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
from pathlib import Path
from typing import ClassVar

from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.files import UNFINISHED, replacing

__all__ = ["FileCache", "cache_directory", "user_cache"]

_ABANDONED_SECONDS = 3600.0


def cache_directory(variable: str, name: str) -> Path:
    """The folder that an environment variable names, or one called `name` in the user's cache."""
    chosen = os.environ.get(variable)
    return Path(chosen) if chosen else user_cache() / name


def user_cache() -> Path:
    """The kit's folder in the user's cache: in ``$XDG_CACHE_HOME``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tvm_byoc_kit")


class FileCache:
    """A folder of files of one kind, which a subclass names and checks.

    Parameters
    ----------
    directory : Path
        Made at the first `put`.
    limit : int
        Bytes that it may hold; `put` removes what was not used for longest.
    """

    suffix: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, directory: str | os.PathLike[str], limit: int) -> None:
        self.directory = Path(directory)
        self.limit = limit

    def check(self, key: str, data: bytes) -> None:
        """Raise an `ArtifactError` unless `data` is what was put under `key`."""
        raise NotImplementedError

    def get(self, key: str) -> bytes | None:
        """What was put under `key`, or None; it counts as used now.

        Warns
        -----
        RuntimeWarning
            When there is something that cannot be read, or was put under another key.
        """
        path = self._path(key)
        try:
            data = path.read_bytes()
            self.check(key, data)
        except (FileNotFoundError, NotADirectoryError):  # `put` says that there is no folder
            return None
        except (OSError, ArtifactError) as error:
            warnings.warn(
                f"tvm_byoc_kit: the cached {self.what} {path} cannot be used ({error}); it is "
                "built again",
                RuntimeWarning,
                stacklevel=2,
            )
            return None
        with contextlib.suppress(OSError):  # removed meanwhile, or another user's
            os.utime(path)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Keep `data`, which `check` would take, under `key`.

        Warns
        -----
        RuntimeWarning
            When it cannot be written: a build goes on without.
        """
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with replacing(self._path(key)) as unfinished:
                unfinished.write_bytes(data)
            self._shrink()
        except OSError as error:
            warnings.warn(
                f"tvm_byoc_kit: the {self.what} cannot be kept in {self.directory} ({error})",
                RuntimeWarning,
                stacklevel=2,
            )

    def files(self) -> list[Path]:
        """All files of the kind."""
        return list(self.directory.glob(f"*{self.suffix}"))

    def clear(self) -> int:
        """Remove all files, and what interrupted processes left; gives the number of files."""
        removed = sum(_remove(path) for path in self.files())
        for path in self.directory.glob(f"{UNFINISHED}*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                    shutil.rmtree(path)
        return removed

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{self.suffix}"

    def _shrink(self) -> None:
        """Remove what was not used for longest, until the rest fits; the newest always stays."""
        stats = []
        for path in self.files():
            with contextlib.suppress(OSError):
                stat = path.stat()
                stats.append((stat.st_mtime_ns, stat.st_size, path))
        total = sum(size for _, size, _ in stats)
        for _, size, path in sorted(stats)[:-1]:
            if total <= self.limit:
                break
            total -= size
            _remove(path)


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
