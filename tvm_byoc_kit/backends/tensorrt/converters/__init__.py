"""The table of converters: which Relax operators become layers of TensorRT, and how.

Each module holds the converters of one kind of operator, and importing it enters them.
"""

from __future__ import annotations

import importlib

from tvm_byoc_kit.backends.tensorrt.converters.table import (
    BF16,
    CONVERTERS,
    NARROW,
    Converter,
    converter,
)

__all__ = ["BF16", "CONVERTERS", "NARROW", "Converter", "converter"]

_KINDS = ("activation", "convolution", "matmul", "normalization", "pooling")

for _kind in _KINDS:
    importlib.import_module(f"{__name__}.{_kind}")
