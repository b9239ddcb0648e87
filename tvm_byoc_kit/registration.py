"""Registering a backend of one's own, known by name from then on."""

from __future__ import annotations

import sys

from tvm_byoc_kit.backend import REGISTERED, Backend, owner
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.python_codegen import provide

__all__ = ["register_backend"]


def register_backend(backend: Backend, *, replace: bool = False) -> Backend:
    """Make `backend` known by its name, in this process, to everything that takes a backend.

    A package that is installed registers its backends for every process instead, with an entry
    point of the group ``tvm_byoc_kit.backends``.

    Parameters
    ----------
    backend : Backend
    replace : bool
        Whether it may take the place of one that was registered so before, as in a notebook.

    Returns
    -------
    Backend
        `backend` itself.

    Raises
    ------
    OptionError
        When the name is taken, or TVM has a codegen of that name; the message names both owners.
    """
    if not isinstance(backend, Backend):
        raise OptionError(f"expected a Backend, found a {type(backend).__name__}")
    taken = owner(backend.name)
    if taken is not None and not (replace and backend.name in REGISTERED):
        new = getattr(backend.codegen or backend.runtime, "__module__", "?")
        advice = " or pass replace=True" if backend.name in REGISTERED else ""
        raise OptionError(
            f"backend '{backend.name}' of module '{new}' cannot be registered: the name belongs to "
            f"{taken}; choose another name{advice}"
        )
    if "tvm" in sys.modules:  # else when TVM is first needed
        provide(backend, runtime=False)
    REGISTERED[backend.name] = backend
    return backend
