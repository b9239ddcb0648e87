"""NVIDIA TensorRT: upstream's pattern table."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.upstream import upstream_patterns

_MODULE = "tvm.relax.backend.contrib.tensorrt"

BACKEND = Backend(
    name="tensorrt",
    summary="NVIDIA TensorRT engines",
    patterns=upstream_patterns(_MODULE, "tensorrt."),
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
