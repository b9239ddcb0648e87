"""The vendor's Python package: TensorRT 10 or 11, or TensorRT-RTX, of almost the same API."""

from __future__ import annotations

import functools
import importlib
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import remedies
from tvm_byoc_kit.errors import BackendUnavailable, OptionError, reason

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VENDORS", "Log", "Vendor", "find_vendor"]

#: The modules in the order in which they are looked for, each with the kit's extra that adds it.
VENDORS = {"tensorrt": "tensorrt", "tensorrt_rtx": "tensorrt-rtx"}
_VERSIONS = {"tensorrt": (10, 11), "tensorrt_rtx": (1,)}


class Log:
    """The errors that the vendor reported while a ``with vendor.messages()`` block ran."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Take an error."""
        if not _is_expected(text):
            self._lines[" ".join(text.split())] = None

    @property
    def errors(self) -> str:
        """All on one line, each once; empty when there are none."""
        return "; ".join(self._lines)


def _is_expected(text: str) -> bool:
    """Whether it is what every builder says on a machine without a GPU."""
    return "catchCudaError" in text or "Unable to determine GPU memory usage" in text


@dataclass(frozen=True)
class Vendor:
    """One of the packages, imported.

    Parameters
    ----------
    name : {"tensorrt", "tensorrt_rtx"}
    module : module
    version : tuple of int
        Major, minor, patch.
    release : str
        The whole version; a plan fits exactly one.
    logger : module.ILogger
        The only one of the process: the vendor ignores any other while one of its objects lives.
    """

    name: str
    module: Any = field(repr=False, compare=False)
    version: tuple[int, int, int]
    release: str
    logger: Any = field(repr=False, compare=False)

    @property
    def is_rtx(self) -> bool:
        """Whether it is TensorRT-RTX, which builds without a GPU."""
        return self.name == "tensorrt_rtx"

    @contextmanager
    def messages(self) -> Iterator[Log]:
        """Collect what the vendor says in the block.

        What is said in a thread that collects goes to its own, innermost log; what the vendor's own
        threads say goes to all.
        """
        log = Log()
        own = _COLLECTING.setdefault(threading.get_ident(), [])
        own.append(log)
        try:
            yield log
        finally:
            own.remove(log)
            if not own:
                _COLLECTING.pop(threading.get_ident(), None)

    def __str__(self) -> str:
        return f"{self.name} {self.release}"


# The logs of the threads that collect, innermost last.
_COLLECTING: dict[int, list[Log]] = {}


def _deliver(text: str) -> None:
    own = _COLLECTING.get(threading.get_ident())
    logs = own[-1:] if own else [log for logs in list(_COLLECTING.values()) for log in logs]
    for log in logs:
        log.add(text)


def find_vendor(preferred: str | None = None) -> Vendor:
    """The vendor's package, the same object at every call.

    Parameters
    ----------
    preferred : str, optional
        A key of `VENDORS`, and no other will do. None: the first that can be imported.

    Raises
    ------
    OptionError
        When `preferred` is no such name.
    BackendUnavailable
        When it is not installed, cannot be imported, or is of an unknown major version.
    """
    if preferred is not None and preferred not in VENDORS:
        raise OptionError(f"vendor={preferred!r}: expected one of {', '.join(VENDORS)}, or None")
    names = tuple(VENDORS) if preferred is None else (preferred,)
    found = [_vendor(name) for name in names]
    for vendor in found:
        if isinstance(vendor, Vendor):
            return vendor
    remedy = remedies.kit_extra(VENDORS[names[0]])
    if preferred is None:
        remedy += f", or without a GPU {remedies.kit_extra(VENDORS['tensorrt_rtx'])}"
    reasons = "; ".join(f"{name}: {why}" for name, why in zip(names, found, strict=True))
    raise BackendUnavailable("tensorrt", "codegen", reasons, remedy)


@functools.cache
def _vendor(name: str) -> Vendor | str:
    """The package, or the reason why it cannot be used."""
    try:
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - importing loads libraries: it may raise anything
        return reason(error)
    release = str(module.__version__)
    numbers = [int(number) for number in re.findall(r"\d+", release)[:3]]
    major, minor, patch = (*numbers, 0, 0, 0)[:3]
    if major not in _VERSIONS[name]:
        wanted = " or ".join(map(str, _VERSIONS[name]))
        return f"version {release} is installed, the kit works with {wanted}"
    return Vendor(name, module, (major, minor, patch), release, _make_logger(module))


def _make_logger(module: Any) -> Any:
    class Logger(module.ILogger):  # type: ignore[misc]
        """Hands on what the vendor says; nothing is printed."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)  # pybind11 wants it called by name

        def log(self, severity: Any, message: str) -> None:
            if int(severity) <= int(module.ILogger.ERROR):
                _deliver(message)

    return Logger()
