"""Which code for GPUs a file holds, read back from the file itself; nothing in it is executed."""

from __future__ import annotations

import mmap
import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tvm_byoc_kit.errors import ArtifactError

__all__ = ["DeviceCode", "device_code"]


@dataclass(frozen=True)
class DeviceCode:
    """Code for NVIDIA's GPUs; false when there is none.

    Parameters
    ----------
    machine_code : tuple of str
        Architectures whose machine code is there.
    ptx : tuple of str
        Architectures for which there is PTX, which the driver compiles when it loads it.
    source : bool
        Whether there is CUDA source, which TVM compiles when it loads it.
    """

    machine_code: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    source: bool = False

    def __bool__(self) -> bool:
        return bool(self.machine_code or self.ptx or self.source)

    def __str__(self) -> str:
        parts = [f"machine code for {', '.join(self.machine_code)}"] if self.machine_code else []
        parts += [f"PTX for {', '.join(self.ptx)}"] if self.ptx else []
        parts += ["CUDA source"] if self.source else []
        return ", ".join(parts) or "no code for GPUs"


# A fat binary: this header, then for each member a header of its own and the code. NVIDIA describes
# it nowhere; the meaning of the fields was found by comparing what nvcc 13 makes for known options.
_MAGIC = b"\x50\xed\x55\xba"
_HEADER = struct.Struct("<4sHHQ")  # magic, version, bytes of this header, bytes of all members
_MEMBER = struct.Struct("<HHIQIIHHIIIQ")  # 48 bytes
_PTX, _MACHINE_CODE = 1, 2
_SUFFIXES = {0x100000: "a", 0x200000: "f"}  # bits of a member's flags
# So begins every kernel that TVM writes. TensorRT-RTX keeps source of its own in engines, where no
# name ends so.
_SOURCE = re.compile(
    rb'extern "C" __global__ void (?:__launch_bounds__\(\w+\) )?\w+_kernel(?:_\d+)?\('
)


def device_code(path: str | os.PathLike[str]) -> DeviceCode:
    """The code for GPUs in a file, such as an artifact, a library or an object file.

    Raises
    ------
    ArtifactError
        When there is no such file.
    """
    file = Path(path)
    if not file.is_file():
        raise ArtifactError(f"no such file: {file}")
    if not file.stat().st_size:
        return DeviceCode()
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = {member for start in _starts(data) for member in _members(data, start)}
        return DeviceCode(
            machine_code=_named(found, _MACHINE_CODE),
            ptx=_named(found, _PTX),
            source=_SOURCE.search(data) is not None,
        )


def _named(found: set[tuple[int, int, str]], kind: int) -> tuple[str, ...]:
    return tuple(f"sm_{arch}{suffix}" for one, arch, suffix in sorted(found) if one == kind)


def _starts(data: mmap.mmap) -> Iterator[int]:
    start = data.find(_MAGIC)
    while start >= 0:
        yield start
        start = data.find(_MAGIC, start + 1)


def _members(data: mmap.mmap, start: int) -> Iterator[tuple[int, int, str]]:
    """Kind, architecture and its suffix of what a fat binary holds; nothing if it is none."""
    if start + _HEADER.size > len(data):
        return
    _, version, header, size = _HEADER.unpack_from(data, start)
    at, end = start + header, start + header + size
    if version != 1 or header != _HEADER.size or end > len(data):
        return
    while at + _MEMBER.size <= end:
        kind, _, own, payload, *_, arch, _, _, flags = _MEMBER.unpack_from(data, at)
        if own < _MEMBER.size:
            return
        yield kind, arch, "".join(text for bit, text in _SUFFIXES.items() if flags & bit)
        at += own + payload
