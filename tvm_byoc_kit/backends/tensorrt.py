"""NVIDIA TensorRT: upstream's pattern table and partitioner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax.transform import FusionPattern


def _patterns() -> list[FusionPattern]:
    import tvm.relax.backend.contrib.tensorrt  # noqa: F401 - registers the patterns
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    return list(get_patterns_with_prefix("tensorrt."))


def _partition(mod: IRModule) -> IRModule:
    from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt

    return partition_for_tensorrt(mod)


BACKEND = Backend(
    name="tensorrt",
    summary="NVIDIA TensorRT engines",
    patterns=_patterns,
    partitioner=_partition,
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
