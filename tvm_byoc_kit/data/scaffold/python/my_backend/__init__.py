"""my_backend: a backend for TVM, found through the entry point in pyproject.toml."""

import tvm_byoc_kit as byoc

from .codegen import codegen
from .options import Options
from .patterns import PATTERNS, refusal
from .runtime import runtime

BACKEND = byoc.Backend(
    name="my_backend",
    summary="my_backend, executed by NumPy",
    patterns=PATTERNS,
    refusal=refusal,
    bind_constants=True,  # weights are part of a region
    options=Options,
    codegen=codegen,
    runtime=runtime,
    package="my_backend",
)
