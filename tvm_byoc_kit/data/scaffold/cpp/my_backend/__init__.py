"""my_backend: a backend for TVM, found through the entry points in pyproject.toml."""

import tvm_byoc_kit as byoc

from .options import Options
from .patterns import PATTERNS, refusal

BACKEND = byoc.Backend(
    name="my_backend",
    summary="my_backend, codegen and runtime in C++",
    patterns=PATTERNS,
    refusal=refusal,
    bind_constants=True,  # weights are part of a region
    options=Options,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:my_backend",),
    },
    loaders=("my_backend",),  # Region::kind() in src/runtime.cc
    package="my_backend",
)
