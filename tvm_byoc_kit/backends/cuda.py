"""TVM's own CUDA code generation: nothing is partitioned."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend

BACKEND = Backend(
    name="cuda",
    summary="TVM's own CUDA code, no offload",
    requires={
        "partition": ("tvm",),
        "codegen": ("target:cuda", "compiler"),
        "device": ("device:cuda",),
    },
    target="cuda",
)
