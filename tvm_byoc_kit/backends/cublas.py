"""NVIDIA cuBLAS: upstream's patterns, with reasons for what they refuse."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.cublas_predicates import refusal
from tvm_byoc_kit.backends.upstream import upstream_patterns

_MODULE = "tvm.relax.backend.cuda.cublas"

# Upstream's `partition_for_cublas` does no more than partition() does.
BACKEND = Backend(
    name="cublas",
    summary="NVIDIA cuBLAS matmul",
    patterns=upstream_patterns(_MODULE, "cublas."),
    refusal=refusal,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cublas",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
