"""NVIDIA cuDNN: upstream's patterns."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.upstream import upstream_patterns

_MODULE = "tvm.relax.backend.cuda.cudnn"

BACKEND = Backend(
    name="cudnn",
    summary="NVIDIA cuDNN convolution and attention",
    patterns=upstream_patterns(_MODULE, "cudnn."),
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cudnn",),
        "device": ("device:cuda",),
    },
    target="cuda",
)
