"""The compiled half: a library that registers its functions with TVM when it is loaded."""

import importlib.metadata
import warnings
from pathlib import Path

from tvm_byoc_kit import native

FUNCTIONS = (
    "relax.ext.my_backend",
    "ffi.Module.load_from_bytes.my_backend",
)
BUILD = "pip install --no-build-isolation --force-reinstall --no-deps my_backend"


def load():
    """Load it, unless TVM has these functions or it was built for another tvm-ffi."""
    package = importlib.metadata.distribution("my_backend")
    folder = Path(str(package.locate_file("my_backend/lib")))
    plugin = native.Plugin("my_backend", FUNCTIONS, folder, BUILD)
    status = native.load(plugin)
    if not status:
        warnings.warn(str(status), RuntimeWarning, stacklevel=2)
