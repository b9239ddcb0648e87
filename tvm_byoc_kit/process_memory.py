"""How much memory a piece of work takes from the system, and how much of it stays taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["MemoryUse", "measure_memory"]

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc_pid_clear_refs(5)
_KIB = 1024


class MemoryUse:
    """Of a block under `measure_memory`, in bytes of resident memory over what was there before.

    Parameters
    ----------
    held : int
        At the end of the block.
    peak : int, optional
        The most during the block; None where the system does not let a process ask for it.
    """

    def __init__(self) -> None:
        self.held = 0
        self.peak: int | None = None


@contextmanager
def measure_memory() -> Iterator[MemoryUse]:
    """Fill in the memory that the block takes, once it has ended; on Linux only."""
    use = MemoryUse()
    before = _resident("VmRSS")
    known = _reset_peak()
    yield use
    use.held = _resident("VmRSS") - before
    use.peak = max(_resident("VmHWM") - before, 0) if known else None


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:  # a kernel without it, or a container that forbids it
        return False
    return True


def _resident(field: str) -> int:
    match = re.search(rf"^{field}:\s+(\d+) kB", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    return int(match.group(1)) * _KIB if match else 0
