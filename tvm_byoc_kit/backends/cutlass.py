"""NVIDIA CUTLASS: upstream's patterns and partitioner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax.transform import FusionPattern


def _patterns() -> list[FusionPattern]:
    import tvm.relax.backend.cuda.cutlass  # noqa: F401 - registers the patterns
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    return list(get_patterns_with_prefix("cutlass."))


def _partition(mod: IRModule) -> IRModule:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    return partition_for_cutlass(mod)


BACKEND = Backend(
    name="cutlass",
    summary="NVIDIA CUTLASS kernels",
    patterns=_patterns,
    partitioner=_partition,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cutlass", "cuda-toolkit"),
        "device": ("device:cuda",),
    },
    target="cuda",
    layout={"relax.nn.conv2d": ("NHWC", "OHWI")},
)
