"""NVIDIA cuBLAS: upstream's patterns and partitioner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax.transform import FusionPattern


def _patterns() -> list[FusionPattern]:
    import tvm.relax.backend.cuda.cublas  # noqa: F401 - registers the patterns
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    return list(get_patterns_with_prefix("cublas."))


def _partition(mod: IRModule) -> IRModule:
    from tvm.relax.backend.cuda.cublas import partition_for_cublas

    return partition_for_cublas(mod)


BACKEND = Backend(
    name="cublas",
    summary="NVIDIA cuBLAS matmul",
    patterns=_patterns,
    partitioner=_partition,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cublas",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
