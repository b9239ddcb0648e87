"""NVIDIA CUTLASS: kernels for products and convolutions, compiled into the artifact."""

from __future__ import annotations

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.cutlass.options import CutlassOptions
from tvm_byoc_kit.backends.cutlass.patterns import make_patterns
from tvm_byoc_kit.backends.cutlass.predicates import refusal

BACKEND = Backend(
    name="cutlass",
    summary="NVIDIA CUTLASS kernels",
    patterns=make_patterns,
    refusal=refusal,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": (
            "plugin:core",
            "codegen:cutlass",
            "cutlass-headers",
            "cuda-toolkit",
            "compiler",
        ),
        "device": ("device:cuda",),
    },
    options=CutlassOptions,
    target="cuda",
    layout={"relax.nn.conv2d": ("NHWC", "OHWI")},
)
