"""Every error a user of the kit can meet; each message says what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "ArtifactError",
    "BackendUnavailable",
    "ByocError",
    "InputError",
    "ModelError",
    "OptionError",
    "PluginError",
    "did_you_mean",
    "reason",
]


class ByocError(Exception):
    """Base of all errors raised by the kit for something the user can put right."""


class BackendUnavailable(ByocError):
    """A step needs a part of a backend that this machine does not have.

    Parameters
    ----------
    backend : str
        Name of the backend, as in ``byoc.partition(model, backend)``.
    step : str
        The step that cannot be done: ``codegen``, ``runtime`` or ``device``.
    reason : str
        What is missing.
    remedy : str
        The command or action that adds it.
    """

    def __init__(self, backend: str, step: str, reason: str, remedy: str) -> None:
        self.backend = backend
        self.step = step
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"backend '{backend}' has no {step} here: {reason}. To add it: {remedy}")


class ModelError(ByocError):
    """A model that cannot be imported, or a module that cannot be partitioned or built."""


class InputError(ByocError):
    """An input given to a built model has the wrong name, count, shape or dtype."""


class OptionError(ByocError):
    """An option that is unknown, or whose value is not allowed."""


class ArtifactError(ByocError):
    """An artifact that is missing, damaged, or made for something that is not here."""


class PluginError(ByocError):
    """A compiled plugin that cannot be loaded, for instance one built against another tvm-ffi."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The one of `known` that is most like `name`, as a question in brackets; or nothing."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean '{close[0]}'?)" if close else ""


def reason(error: BaseException) -> str:
    """What `error` says, in one line: TVM puts the message after a C++ traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
