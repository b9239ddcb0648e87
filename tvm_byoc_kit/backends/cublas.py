"""NVIDIA cuBLAS: upstream's patterns and partitioner."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.upstream import upstream_partitioner, upstream_patterns

_MODULE = "tvm.relax.backend.cuda.cublas"

BACKEND = Backend(
    name="cublas",
    summary="NVIDIA cuBLAS matmul",
    patterns=upstream_patterns(_MODULE, "cublas."),
    partitioner=upstream_partitioner(_MODULE, "partition_for_cublas"),
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cublas",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
