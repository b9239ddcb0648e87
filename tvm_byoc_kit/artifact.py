"""Artifacts: one shared library that carries its manifest.

The manifest is a small ZIP archive appended to the library. The dynamic loader ignores what
follows the ELF image, so the file stays a plain shared library; ``unzip -p model.so manifest.json``
shows the manifest, and reading it never runs the code beside it.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import native
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.files import replacing
from tvm_byoc_kit.manifest import FORMAT, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Manifest", "read_manifest", "sha256", "version_of", "versions", "write_artifact"]

_READABLE = (1, FORMAT)
_MEMBER = "manifest.json"
_PACKAGES = {"tvm_byoc_kit": "tvm-byoc-kit", "tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


def versions() -> dict[str, str]:
    """Versions of what takes part in a build; a package run from a source tree is ``unknown``.

    A plugin is listed with what it was built with, once it is loaded.
    """
    found = {name: version_of(name) for name in _PACKAGES}
    for name, plugin in native.PLUGINS.items():
        if native.is_loaded(plugin) and plugin.library.exists():
            built = native.read_build_info(plugin.directory)
            found[f"plugin:{name}"] = f"{built.kit} (tvm-ffi {built.tvm_ffi}, {built.compiler})"
    return found


def version_of(name: str) -> str:
    """The version of `tvm_byoc_kit`, `tvm` or `tvm_ffi`; ``unknown`` when it is not installed."""
    try:
        return version(_PACKAGES[name])
    except PackageNotFoundError:
        return "unknown"


def write_artifact(
    path: str | os.PathLike[str],
    manifest: Manifest,
    export: Callable[[str], Any],
    *,
    weights: int = 0,
) -> None:
    """Write an artifact in one step: readers see the old file or the new one, never half of it.

    Parameters
    ----------
    path : str or os.PathLike
    manifest : Manifest
    export : callable
        Writes the library to the path that it is given.
    weights : int
        Bytes that the library will have at least, more or less.

    Raises
    ------
    ArtifactError
        When the directory does not exist, has no room, or the library cannot be written.
    """
    path = Path(path).absolute()
    compiler = probe("compiler")
    if not compiler:
        raise ArtifactError(f"cannot link {path}: {compiler.detail}; {compiler.remedy}")
    try:
        _check_place(path)
        for folder in (tempfile.gettempdir(), path.parent):
            _check_room(folder, weights + _LEAST_ROOM)
        with replacing(path) as unfinished:
            _link(export, unfinished, path)
            library = {"size": unfinished.stat().st_size, "sha256": sha256(unfinished)}
            _append_manifest(unfinished, manifest.to_dict() | {"library": library})
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error


def _check_place(path: Path) -> None:
    if not path.parent.is_dir():
        raise ArtifactError(f"cannot write {path}: {path.parent} is no directory; make it first")
    if path.exists() and not path.is_file():
        raise ArtifactError(f"cannot write {path}: it is no file; name one, such as model.so")


_LEAST_ROOM = 1 << 18


def _check_room(folder: str | Path, needed: int) -> None:
    """LLVM ends the process, with nothing said, when it cannot write its objects."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"{folder} has room for {free} bytes, and {needed} are needed; TMPDIR names a folder "
            "for temporary files",
        )


def _link(export: Callable[[str], Any], unfinished: Path, path: Path) -> None:
    try:
        export(str(unfinished))
    except Exception as error:  # TVM reports a failed link as RuntimeError with its output
        raise ArtifactError(f"cannot link {path}: {error}") from error


def _append_manifest(library: Path, manifest: dict[str, Any]) -> None:
    # Not ZipFile's mode "a": that would write over an archive that the library ends with.
    with library.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MEMBER, json.dumps(manifest, indent=1))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of the artifact at `path`; nothing in the artifact is executed.

    Raises
    ------
    ArtifactError
        When the file is missing, unreadable, truncated, not an artifact, or of a later format.
    """
    path = Path(path)
    try:
        data = json.loads(_manifest_text(path))
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # zipfile raises many types on damaged archives
        raise ArtifactError(
            f"{path} has no manifest: it is truncated, stripped, or was not written by "
            f"Executable.export ({error}); export it again"
        ) from error
    if not isinstance(data, dict) or data.get("format") not in _READABLE:
        found = data.get("format") if isinstance(data, dict) else None
        raise ArtifactError(
            f"{path} has a manifest of format {found}, this kit reads formats "
            f"{' and '.join(map(str, _READABLE))}; "
            "install the kit it was exported with, or export it again"
        )
    try:
        return Manifest.from_dict(data)
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{path} has a damaged manifest: {error!r}; export it again") from error


def _manifest_text(path: Path) -> bytes:
    """The one member of the archive that the file ends with; its checksum has been checked."""
    if not path.is_file():
        there = f"{path} is no file, and so no artifact"
        raise ArtifactError(there if path.exists() else f"no such artifact: {path}")
    with zipfile.ZipFile(path) as archive:
        (member,) = archive.infolist()
        if member.file_size > _LARGEST_MANIFEST:
            raise ValueError(f"a manifest of {member.file_size} bytes")
        text = archive.read(member)
    with path.open("rb") as file:
        file.seek(-_END_OF_ARCHIVE, os.SEEK_END)
        if member.filename != _MEMBER or file.read(4) != b"PK\x05\x06":
            raise ValueError("something else stands at its end")
    return text


_END_OF_ARCHIVE = 22  # bytes that end a ZIP archive without a comment, from the mark that they have
_LARGEST_MANIFEST = 1 << 24


def sha256(path: Path, size: int | None = None) -> str:
    """SHA-256 of the first `size` bytes, or of the whole file."""
    digest = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
