"""NVIDIA TensorRT and TensorRT-RTX: engines from pip packages, on the stock wheel.

Upstream's pattern table, extended by what TensorRT's network API has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.patterns import tensorrt_patterns
from tvm_byoc_kit.backends.tensorrt.predicates import refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm_byoc_kit.graph import Graph
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["BACKEND", "TensorRTOptions"]


# What needs TVM, or the vendor's package, is imported when it is first used.


def _ambient() -> Mapping[str, Any]:
    """Options in TVM's PassContext, and in the environment."""
    from tvm_byoc_kit.backends.tensorrt import compat

    return compat.given_around()


def _complete(options: dict[str, Any], model: ImportedModel) -> dict[str, Any]:
    from tvm_byoc_kit.backends.tensorrt.completion import complete_options

    return complete_options(options, model)


def _codegen(graph: Graph, options: Mapping[str, Any]) -> bytes:
    from tvm_byoc_kit.backends.tensorrt.codegen import codegen

    return codegen(graph, options)


def _runtime(payload: bytes, constants: Sequence[Any] = ()) -> Any:
    from tvm_byoc_kit.backends.tensorrt.executor import runtime

    return runtime(payload, constants)


def _admit(payload: bytes) -> None:
    from tvm_byoc_kit.backends.tensorrt.executor import admit

    admit(payload)


BACKEND = Backend(
    name="tensorrt",
    summary="NVIDIA TensorRT engines, for GPUs; built with TensorRT-RTX where there is none",
    patterns=tensorrt_patterns,
    refusal=refusal,
    bind_constants=True,
    signed_bytes=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("tensorrt-builder",),
        "runtime": ("cuda-driver",),
        "device": ("device:cuda",),
    },
    options=TensorRTOptions,
    ambient=_ambient,
    complete=_complete,
    codegen=_codegen,
    runtime=_runtime,
    admit=_admit,
    gpu_memory=True,
    profiles=True,
    package="tvm_byoc_kit[tensorrt]",
)
