"""Options of the backend ``cutlass``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from tvm_byoc_kit.backends.cutlass.kernels import SHARED_BYTES
from tvm_byoc_kit.errors import OptionError

__all__ = ["CutlassOptions"]

_FLOAT32 = ("tf32", "3xtf32")
_NUMBERS = {"measure": 0, "jobs": 1, "cache_bytes": 0}  # the least of each


@dataclass(frozen=True)
class CutlassOptions:
    """Options of the backend ``cutlass``; none of them decides what is offloaded.

    Parameters
    ----------
    architectures : sequence of str
        Of the machine code, such as ``("sm_80", "sm_90")``; one artifact then runs on both. Empty:
        that of the target.
    float32 : {"tf32", "3xtf32"}
        What products of float32 are computed in. Tensor cores keep 10 bits of the fraction
        (TF32); ``"3xtf32"`` makes three products of each, which come to nearly float32.
    measure : int
        How many of the best-ranked kernels are run on the GPU of this machine, of which the
        fastest is taken. 0: none, the ranking decides, which needs no GPU.
    jobs : int
        Files of kernels that are compiled at once.
    cache : str, optional
        Folder of compiled kernels, which any number of processes may use at once; empty: none.
        None: ``$TVM_BYOC_KERNEL_CACHE``, or ``tvm_byoc_kit/kernels`` in the user's cache.
    cache_bytes : int
        That the folder may hold; what was not used for longest is removed.
    progress : bool
        Show a bar while kernels are compiled, on a terminal.
    """

    architectures: Any = ()
    float32: str = "tf32"
    measure: int = 0
    jobs: int = 2
    cache: str | None = None
    cache_bytes: int = 1 << 30
    progress: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "architectures", _architectures(self.architectures))
        if self.float32 not in _FLOAT32:
            raise _error("float32", self.float32, f"one of {', '.join(_FLOAT32)}")
        for name, least in _NUMBERS.items():
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise _error(name, value, f"a number, {least} or more")
        if self.cache is not None and not isinstance(self.cache, (str, PathLike)):
            raise _error("cache", self.cache, "a folder, '' for none, or None")
        object.__setattr__(self, "cache", None if self.cache is None else fspath(self.cache))
        if not isinstance(self.progress, bool):
            raise _error("progress", self.progress, "True or False")


def _architectures(given: object) -> tuple[str, ...]:
    known = [f"sm_{number}" for number in SHARED_BYTES]
    values = (given,) if isinstance(given, str) else given
    if not isinstance(values, Sequence) or not set(values) <= set(known):
        raise _error("architectures", given, f"some of {', '.join(known)}")
    return tuple(arch for arch in known if arch in values)


def _error(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"cutlass option {name}={value!r}: expected {expected}")
