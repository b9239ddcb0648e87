"""The bytes that the codegen makes and the executor reads.

========  =================================================================================
bytes     content
========  =================================================================================
8         ``TENSORRT``
8         length of the header, little endian
n         the header, JSON: the fields of :class:`Header`
…         zeros up to a multiple of 64, counted from the start
…         the engine's plan, or nothing: ``plan_bytes``
…         the region as `graph_bytes` writes it, or nothing: ``graph_bytes``
========  =================================================================================

A plan says nothing about itself that could be read without the vendor's library, which ends the
process over some that are damaged, so all that can be checked is in the header.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ArtifactError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tvm_byoc_kit.backends.tensorrt.profiles import Ranges

__all__ = ["FORMAT", "Header", "Port", "check_plan", "pack", "read_header", "unpack"]

FORMAT = 1
_MAGIC = b"TENSORRT"
_FIXED = struct.Struct("<8sQ")
_ALIGNMENT = 64


@dataclass(frozen=True)
class Port:
    """An input or output of the engine.

    Parameters
    ----------
    name : str
        In the engine.
    argument : int
        Its place among the arguments of the region's call.
    dtype : str
    shape : tuple of int or str
        A string is an expression over `Header.symbols`.
    """

    name: str
    argument: int
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class Header:
    """What is known of a plan without the vendor's library.

    Parameters
    ----------
    region : str
    vendor : str
        ``tensorrt`` or ``tensorrt_rtx``; of a region that is built where it runs, the one that is
        wanted, or empty.
    release : str
        The vendor's version, which has to be the same where the plan runs.
    capabilities : tuple of int
        Compute capabilities of the GPUs that the plan is for, 89 for 8.9.
    and_later : bool
        Whether it runs on every later one, too.
    version_compatible : bool
        Whether a later release of the same major version may run the plan.
    inputs, outputs : tuple of Port
    symbols : mapping of str to (int, int)
        As `Graph.symbols`.
    profiles : tuple of Ranges
        Sizes of the symbols, for each optimization profile.
    arguments : int
        How many the region's call has.
    options : mapping
        All of `TensorRTOptions`.
    key : str
        Name of the engine in the cache; empty for what is in none.
    plan_bytes, graph_bytes : int
    sha256 : str
        Of both, and of all that is in the header.
    format : int
    """

    region: str
    vendor: str = ""
    release: str = ""
    capabilities: tuple[int, ...] = ()
    and_later: bool = False
    version_compatible: bool = False
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    symbols: dict[str, tuple[int, int]] = field(default_factory=dict)
    profiles: tuple[Ranges, ...] = ()
    arguments: int = 0
    options: dict[str, Any] = field(default_factory=dict)
    key: str = ""
    plan_bytes: int = 0
    graph_bytes: int = 0
    sha256: str = ""
    format: int = FORMAT


def pack(header: Header, plan: bytes | memoryview = b"", graph: bytes = b"") -> bytes:
    """The payload, with sizes and checksum filled in."""
    sized = replace(header, plan_bytes=len(plan), graph_bytes=len(graph))
    text = _as_json(replace(sized, sha256=_checksum(sized, plan, graph)))
    padding = bytes(-(_FIXED.size + len(text)) % _ALIGNMENT)
    return b"".join((_FIXED.pack(_MAGIC, len(text)), text, padding, plan, graph))


def unpack(payload: bytes | memoryview) -> tuple[Header, memoryview, memoryview]:
    """Header, plan and graph; the latter two are the payload's own memory.

    Raises
    ------
    ArtifactError
        For bytes that `pack` did not make, or that were changed since.
    """
    view = memoryview(payload)
    fixed, rest = view[: _FIXED.size], view[_FIXED.size :]
    header, start = _read_start(bytes(fixed), lambda length: bytes(rest[:length]), len(view))
    plan, graph = view[start : start + header.plan_bytes], view[start + header.plan_bytes :]
    if _checksum(header, plan, graph) != header.sha256:
        raise _damaged("its checksum does not match")
    return header, plan, graph


def read_header(path: Path) -> Header:
    """The header of a payload in a file, whose plan is not read.

    Raises
    ------
    ArtifactError
        For a file that does not start like a payload, or has another size than it says.
    OSError
        When it cannot be read.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return _read_start(file.read(_FIXED.size), file.read, size)[0]


def _read_start(fixed: bytes, read: Callable[[int], bytes], size: int) -> tuple[Header, int]:
    """The header, and where the plan begins, out of a payload of that size."""
    magic, length = _FIXED.unpack(fixed) if len(fixed) == _FIXED.size else (b"", 0)
    end = _FIXED.size + length
    if magic != _MAGIC or size < end:
        raise _damaged("it does not start like one")
    header = _header(read(length))
    start = end + -end % _ALIGNMENT
    if size != start + header.plan_bytes + header.graph_bytes:
        raise _damaged("it is cut off")
    return header, start


def check_plan(header: Header, vendor: str, release: str, capability: int) -> None:
    """See that a plan is for this vendor, release and GPU, before the vendor's library sees it.

    Parameters
    ----------
    header : Header
    vendor, release : str
        What is installed.
    capability : int
        Of the GPU.

    Raises
    ------
    ArtifactError
        Saying what the plan was built for, and what is here.
    """
    here = f"{vendor} {release} on a GPU of compute capability {_dotted(capability)}"
    if header.vendor != vendor or not _runs_on_release(header, release):
        raise ArtifactError(
            f"region `{header.region}` holds an engine of {header.vendor} {header.release}, which "
            f"no other release runs; here is {here}. Install that release, or build the model again"
        )
    later = header.and_later and capability >= min(header.capabilities)
    if capability not in header.capabilities and not later:
        built = ", ".join(map(_dotted, header.capabilities))
        raise ArtifactError(
            f"region `{header.region}` holds an engine for compute capability {built}"
            f"{' and later' if header.and_later else ''}; here is {here}. Build it again with "
            f"options={{'compute_capabilities': [{capability}]}} (--sm {capability}), or with "
            "build_at='first_run' for any GPU"
        )


def _runs_on_release(header: Header, release: str) -> bool:
    if header.release == release:
        return True
    built, here = _numbers(header.release), _numbers(release)
    return header.version_compatible and built[:1] == here[:1] and built <= here


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split(".") if part.isdecimal())


def _dotted(capability: int) -> str:
    return f"{capability // 10}.{capability % 10}"


def _header(text: bytes) -> Header:
    try:
        found = json.loads(text)
        number = found["format"]
        if number != FORMAT:
            raise ArtifactError(
                f"a region of the TensorRT backend has format {number}, this kit reads {FORMAT}; "
                "build the model again, or install the kit that it was built with"
            )
        return Header(
            **{
                **{item.name: found[item.name] for item in fields(Header)},
                "capabilities": tuple(found["capabilities"]),
                "inputs": tuple(map(_port, found["inputs"])),
                "outputs": tuple(map(_port, found["outputs"])),
                "symbols": {name: (at[0], at[1]) for name, at in found["symbols"].items()},
                "profiles": tuple(map(_ranges, found["profiles"])),
            }
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise _damaged(f"its header is unreadable: {error}") from error


def _port(found: dict[str, Any]) -> Port:
    return Port(found["name"], found["argument"], found["dtype"], tuple(found["shape"]))


def _ranges(found: dict[str, list[int]]) -> Ranges:
    return {name: (sizes[0], sizes[1], sizes[2]) for name, sizes in found.items()}


def _checksum(header: Header, plan: bytes | memoryview, graph: bytes | memoryview) -> str:
    """Of a whole payload: an engine is what the options in its header say as well."""
    found = hashlib.sha256(_as_json(replace(header, sha256="")))
    found.update(plan)
    found.update(graph)
    return found.hexdigest()


def _as_json(header: Header) -> bytes:
    return json.dumps(asdict(header)).encode()


def _damaged(why: str) -> ArtifactError:
    return ArtifactError(
        f"a region of the TensorRT backend is damaged: {why}; build the model again"
    )
