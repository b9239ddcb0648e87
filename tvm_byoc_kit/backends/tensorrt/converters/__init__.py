"""The table of converters: which Relax operators become layers of TensorRT, and how.

Each module of this folder holds the converters of one kind of operator; importing it enters them.
"""

from __future__ import annotations

import importlib
import pkgutil

from tvm_byoc_kit.backends.tensorrt.converters.table import (
    BF16,
    CONVERTERS,
    NARROW,
    Converter,
    converter,
)

__all__ = ["BF16", "CONVERTERS", "NARROW", "Converter", "converter"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
