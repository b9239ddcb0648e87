"""NVIDIA cuDNN: upstream's patterns and workspaces, with reasons for what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.cudnn_predicates import refusal
from tvm_byoc_kit.backends.upstream import allocate_workspace, upstream_patterns
from tvm_byoc_kit.fusing import fuse

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax.transform import FusionPattern

_MODULE = "tvm.relax.backend.cuda.cudnn"


def partitioner(mod: IRModule, patterns: list[FusionPattern]) -> IRModule:
    """What upstream's `partition_for_cudnn` does, with `patterns`."""
    from tvm.relax.backend.cuda.cudnn import annotate_workspace

    return allocate_workspace(fuse(mod, patterns, bind_constants=False), annotate_workspace)


BACKEND = Backend(
    name="cudnn",
    summary="NVIDIA cuDNN convolution and attention",
    patterns=upstream_patterns(_MODULE, "cudnn."),
    refusal=refusal,
    partitioner=partitioner,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cudnn",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
