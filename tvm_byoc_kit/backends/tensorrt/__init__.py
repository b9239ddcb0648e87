"""NVIDIA TensorRT: upstream's pattern table, extended by what TensorRT's network API has."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.tensorrt.patterns import tensorrt_patterns
from tvm_byoc_kit.backends.tensorrt.predicates import refusal

__all__ = ["BACKEND"]

BACKEND = Backend(
    name="tensorrt",
    summary="NVIDIA TensorRT engines",
    patterns=tensorrt_patterns,
    refusal=refusal,
    bind_constants=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:tensorrt",),
        "runtime": ("runtime:runtime.tensorrt_runtime_create",),
        "device": ("device:cuda",),
    },
    target="cuda",
    loaders=("tensorrt",),
)
