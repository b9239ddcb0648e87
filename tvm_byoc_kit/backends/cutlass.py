"""NVIDIA CUTLASS: upstream's patterns."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.upstream import upstream_patterns

_MODULE = "tvm.relax.backend.cuda.cutlass"

BACKEND = Backend(
    name="cutlass",
    summary="NVIDIA CUTLASS kernels",
    patterns=upstream_patterns(_MODULE, "cutlass."),
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
