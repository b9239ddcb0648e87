"""The vendor's Python package: TensorRT 10 or 11, or TensorRT-RTX, which has almost the same API."""

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
    """What the vendor said while a ``with vendor.messages()`` block ran."""

    def __init__(self) -> None:
        self._messages: list[tuple[str, str]] = []

    def add(self, severity: str, text: str) -> None:
        """Take a message; `severity` is ``INTERNAL_ERROR``, ``ERROR``, ``WARNING`` …."""
        self._messages.append((severity, text))

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Severity and text of each, in the order of arrival."""
        return tuple(self._messages)

    @property
    def errors(self) -> str:
        """What the vendor complained of, each complaint once, on one line; empty when nothing."""
        return self._joined("ERROR")

    @property
    def warnings(self) -> str:
        """The warnings, as `errors` gives the errors."""
        return self._joined("WARNING")

    def _joined(self, severity: str) -> str:
        texts = [" ".join(text.split()) for name, text in self._messages if severity in name]
        told = [text for text in texts if not _is_expected(text)]
        return "; ".join(dict.fromkeys(told))


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


def _deliver(severity: str, text: str) -> None:
    own = _COLLECTING.get(threading.get_ident())
    logs = own[-1:] if own else [log for logs in list(_COLLECTING.values()) for log in logs]
    for log in logs:
        log.add(severity, text)


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
    reasons = []
    for name in VENDORS if preferred is None else (preferred,):
        try:
            return _vendor(name)
        except Exception as error:  # noqa: BLE001 - importing loads libraries: it may raise anything
            reasons.append(f"{name}: {reason(error)}")
    extra = VENDORS[preferred or "tensorrt"]
    remedy = remedies.kit_extra(extra)
    if preferred is None:
        remedy += f", or without a GPU {remedies.kit_extra(VENDORS['tensorrt_rtx'])}"
    raise BackendUnavailable("tensorrt", "codegen", "; ".join(reasons), remedy)


@functools.cache
def _vendor(name: str) -> Vendor:
    module = importlib.import_module(name)
    release = str(module.__version__)
    numbers = [int(number) for number in re.findall(r"\d+", release)[:3]]
    major, minor, patch = (numbers + [0, 0, 0])[:3]
    if major not in _VERSIONS[name]:
        wanted = " or ".join(map(str, _VERSIONS[name]))
        raise ImportError(f"version {release} is installed, the kit works with {wanted}")
    return Vendor(name, module, (major, minor, patch), release, _make_logger(module))


def _make_logger(module: Any) -> Any:
    class Logger(module.ILogger):  # type: ignore[misc] - known when it runs
        """Hands on what the vendor says; nothing is printed."""

        def __init__(self) -> None:
            module.ILogger.__init__(self)  # pybind11 wants it called by name

        def log(self, severity: Any, message: str) -> None:
            if int(severity) <= int(module.ILogger.WARNING):
                _deliver(severity.name, message)

    return Logger()
