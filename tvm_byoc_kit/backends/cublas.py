"""NVIDIA cuBLAS: upstream's patterns."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.upstream import upstream_patterns

_MODULE = "tvm.relax.backend.cuda.cublas"

BACKEND = Backend(
    name="cublas",
    summary="NVIDIA cuBLAS matmul",
    patterns=upstream_patterns(_MODULE, "cublas."),
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cublas",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
