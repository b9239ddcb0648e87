"""TVM's runtime without the rest of TVM, which is all that running an artifact takes.

``import tvm`` loads the compiler too, fifty times the size, and hundreds of modules. It may follow:
to the system's loader the runtime is then loaded already, by the name that the compiler asks for.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

__all__ = ["complete_bare", "is_bare", "load_bare", "wheel_libraries"]

# The second has what a few operators call, such as sorting; each loaded as ``import tvm`` does.
_LIBRARIES = (
    ("libtvm_runtime.so", ctypes.RTLD_GLOBAL),
    ("libtvm_runtime_extra.so", ctypes.RTLD_LOCAL),
)
_LOADED: list[ctypes.CDLL] = []


def load_bare() -> bool:
    """Load TVM's runtime without importing TVM, where nothing speaks against it.

    Returns
    -------
    bool
        False: import TVM instead, for that has begun, or it is not the wheel of TVM's project. A
        TVM of one's own may have backends in its compiler library, which could not be loaded any
        more after a plugin has registered functions of the same names.
    """
    folder = None if "tvm" in sys.modules else wheel_libraries()
    if folder is None:
        return False
    if not _LOADED:
        import tvm_ffi  # noqa: F401 - they need its library

        try:
            _LOADED[:] = [ctypes.CDLL(str(folder / name), mode) for name, mode in _LIBRARIES]
        except OSError:  # `import tvm` says what is wrong
            return False
    return True


def is_bare() -> bool:
    """Whether this process has TVM's runtime by `load_bare`, and not yet TVM."""
    return bool(_LOADED) and "tvm" not in sys.modules


def complete_bare() -> bool:
    """Import TVM where `load_bare` has loaded its runtime; waits for a thread that does so too.

    Returns
    -------
    bool
        False: all of TVM was there from the start.
    """
    if _LOADED:
        import tvm  # noqa: F401 - registers what it has in Python, and plugins of other packages
    return bool(_LOADED)


def wheel_libraries() -> Path | None:
    """Where the libraries of TVM are, if ``import tvm`` finds the project's own wheel."""
    spec = importlib.util.find_spec("tvm")
    try:
        wheel = distribution("apache-tvm")
    except PackageNotFoundError:
        return None
    root = Path(str(wheel.locate_file("tvm")))
    # What is built on a machine, for itself, is tagged `linux_x86_64`.
    if "-manylinux" not in (wheel.read_text("WHEEL") or "") or os.environ.get("TVM_LIBRARY_PATH"):
        return None
    if spec is None or spec.origin is None or Path(spec.origin).parent != root:
        return None
    return root / "lib"
