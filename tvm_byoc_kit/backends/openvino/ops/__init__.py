"""The operator table: which Relax operators OpenVINO takes over, and how."""

from __future__ import annotations

from tvm_byoc_kit.backends.openvino.ops import (
    activation,
    convolution,
    creation,
    elementwise,
    image,
    indexing,
    linear,
    logic,
    normalization,
    pooling,
    quantization,
    reduction,
    shape,
)
from tvm_byoc_kit.backends.openvino.ops.table import Entry, Table

__all__ = ["TABLE", "Entry", "Table"]

_KINDS = (
    convolution, linear, elementwise, activation, logic, reduction,
    shape, indexing, creation, normalization, pooling, quantization, image,
)  # fmt: skip

TABLE: Table = {name: entry for kind in _KINDS for name, entry in kind.TABLE.items()}
