"""Engines that were built, in a folder, under a name that is all of what went into them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.graph_bytes import digest
from tvm_byoc_kit.backends.tensorrt.payload import FORMAT, read_header, unpack
from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.file_cache import FileCache, cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.profiles import Ranges
    from tvm_byoc_kit.backends.tensorrt.vendor import Vendor
    from tvm_byoc_kit.graph import Graph

__all__ = [
    "KEY_OPTIONS",
    "OTHER_OPTIONS",
    "EngineCache",
    "Entry",
    "as_table",
    "default_directory",
    "make_key",
]

DIRECTORY_VARIABLE = "TVM_BYOC_ENGINE_CACHE"

#: Options that an engine depends on: part of its name.
KEY_OPTIONS = (
    "precision",
    "tf32",
    "workspace_bytes",
    "hardware_compatibility",
    "version_compatible",
    "optimization_level",
    "strip_weights",
    "refit",
)
#: The others: profiles, capabilities and vendor are in the name as what they come to.
OTHER_OPTIONS = (
    "profiles",
    "compute_capabilities",
    "vendor",
    "timing_cache",
    "engine_cache",
    "engine_cache_bytes",
    "build_at",
    "progress",
)


def default_directory() -> Path:
    """``$TVM_BYOC_ENGINE_CACHE``, or ``tvm_byoc_kit/engines`` in the user's cache."""
    return cache_directory(DIRECTORY_VARIABLE, "engines")


def make_key(
    graph: Graph,
    vendor: Vendor,
    options: TensorRTOptions,
    capabilities: Sequence[int],
    profiles: Sequence[Ranges],
    *,
    gpu: str = "",
) -> str:
    """The name of an engine: a digest of the region with its weights, and of how it is built.

    Parameters
    ----------
    graph : Graph
    vendor : Vendor
    options : TensorRTOptions
        Of which `KEY_OPTIONS` count.
    capabilities : sequence of int
    profiles : sequence of Ranges
    gpu : str
        The model of the GPU that TensorRT builds for.
    """
    parts = {
        "format": FORMAT,
        "graph": digest(graph),
        "vendor": [vendor.name, vendor.release],
        "options": {name: getattr(options, name) for name in KEY_OPTIONS},
        "capabilities": list(capabilities),
        "profiles": list(profiles),
        "gpu": gpu,
        "sources": _sources(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@functools.cache
def _sources() -> str:
    """Digest of the backend itself: another kit may make another network of a region."""
    here = Path(__file__).parent
    found = hashlib.sha256()
    for path in sorted(here.rglob("*.py")):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Entry:
    """An engine in the folder.

    Parameters
    ----------
    key : str
    bytes : int
    used : float
        Seconds since 1970 when it was last used.
    vendor : str
        With its release; ``unreadable`` for what is no engine.
    capabilities : tuple of int
    region : str
        That it was first built for.
    """

    key: str
    bytes: int
    used: float
    vendor: str
    capabilities: tuple[int, ...]
    region: str


class EngineCache(FileCache):
    """A folder of engines.

    Parameters
    ----------
    directory : Path
    limit : int
        As in `FileCache`.
    """

    suffix = ".byoc-engine"  # not .engine, as other tools call theirs: a folder may be shared
    what = "engine"

    def __init__(self, directory: str | os.PathLike[str], limit: int = 4 << 30) -> None:
        super().__init__(directory, limit)

    def check(self, key: str, data: bytes) -> None:
        """That the header names the key."""
        if unpack(data)[0].key != key:
            raise ArtifactError("it is another engine, under a name that is not its own")

    def entries(self) -> tuple[Entry, ...]:
        """What is there, last used first."""
        found = [entry for path in self.files() if (entry := _entry(path)) is not None]
        return tuple(sorted(found, key=lambda entry: (-entry.used, entry.key)))


def as_table(directory: Path, entries: Sequence[Entry]) -> Table:
    """The entries for a terminal, with their number and size."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, title_justify="left")
    for heading in ("key", "region", "vendor", "capabilities", "MB", "last used"):
        table.add_column(heading, justify="right" if heading == "MB" else "left")
    for entry in entries:
        cells = (
            entry.key[:12],
            entry.region,
            entry.vendor,
            ", ".join(map(str, entry.capabilities)),
            f"{entry.bytes / 1e6:.1f}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used)),
        )
        table.add_row(*(Text(cell, overflow="fold") for cell in cells))
    total = sum(entry.bytes for entry in entries) / 1e6
    table.title = Text(f"{len(entries)} engine(s), {total:.1f} MB in {directory}")
    return table


def _entry(path: Path) -> Entry | None:
    """What a file is; None when it is gone."""
    try:
        stat = path.stat()
        header: Any = read_header(path)
        vendor = f"{header.vendor} {header.release}"
        capabilities, region = header.capabilities, header.region
    except FileNotFoundError:
        return None
    except (OSError, ArtifactError):
        vendor, capabilities, region = "unreadable", (), ""
    return Entry(path.stem, stat.st_size, stat.st_mtime, vendor, capabilities, region)
