"""The global functions of TensorRT that TVM's own Python code and users' scripts look for.

`tvm_byoc_kit.native` registers them when TVM is imported, unless TVM was built with its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.backends.tensorrt.compat import require_quantized
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor
from tvm_byoc_kit.errors import BackendUnavailable
from tvm_byoc_kit.python_codegen import compile_regions as compile_for
from tvm_byoc_kit.python_codegen import plain, provide

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["compile_regions", "get_version", "is_runtime_enabled"]


def compile_regions(
    functions: Sequence[Any], options: Mapping[str, Any] | None, constant_names: Mapping[Any, str]
) -> list[Any]:
    """``relax.ext.tensorrt``: what RunCodegen calls."""
    backend = get_backend("tensorrt")
    provide(backend, runtime=False)
    chosen = backend.make_options(plain(options or {}))
    require_quantized(chosen["precision"], functions)
    return compile_for("tensorrt", functions, chosen, constant_names)


def is_runtime_enabled() -> bool:
    """``relax.is_tensorrt_runtime_enabled``: whether regions can run on this machine."""
    return bool(get_backend("tensorrt").check("device"))


def get_version() -> list[int]:
    """``relax.get_tensorrt_version``: major, minor, patch; empty without the vendor's package."""
    try:
        return list(find_vendor().version)
    except BackendUnavailable:
        return []
