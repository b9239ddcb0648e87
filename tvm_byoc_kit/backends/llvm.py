"""TVM's own CPU code generation: nothing is partitioned."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend

BACKEND = Backend(
    name="llvm",
    summary="TVM's own CPU code, no offload",
    requires={"partition": ("tvm",)},
)
