"""Probes: what this machine has, what it lacks, and the exact command that adds it.

A probe is cheap, imports neither torch nor onnx, never raises and never crashes the process. Those
about a backend's functions import TVM, for only TVM knows which are registered.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tvm_byoc_kit import bare_runtime, cuda_driver, cuda_toolkit, native, remedies, toolchain
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.status import Status

__all__ = ["Status", "probe", "probe_names"]

_TVM_RANGE = "0.27."
_INSTALL_TVM = f'pip install "apache-tvm=={_TVM_RANGE}*"'
_CMAKE_MINIMUM = (3, 20)


def probe(name: str) -> Status:
    """Tell whether one thing is here, and if not, why and which command adds it.

    Parameters
    ----------
    name : str
        One of `probe_names`, where ``<...>`` stands for a name of your choice:
        ``"codegen:tensorrt"`` asks for the global function ``relax.ext.tensorrt``.

    Raises
    ------
    OptionError
        There is no such probe.
    """
    if name in _PROBES:
        return _PROBES[name](name)
    prefix, separator, subject = name.partition(":")
    if separator and subject and prefix in _PREFIXES:
        return _PREFIXES[prefix][1](name, subject)
    raise OptionError(f"unknown probe '{name}'; known are: {', '.join(probe_names())}")


def probe_names() -> tuple[str, ...]:
    """Names that `probe` knows, with ``<...>`` where a part of the name is free."""
    return (*_PROBES, *(f"{prefix}:<{what}>" for prefix, (what, _) in _PREFIXES.items()))


def _found(name: str, detail: str) -> Status:
    return Status(name, ok=True, detail=detail)


def _missing(name: str, reason: str, remedy: str) -> Status:
    return Status(name, ok=False, detail=reason, remedy=remedy)


# --- Python packages ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Package:
    """A Python package: what is imported, what pip calls it, and what installs it."""

    module: str
    distributions: tuple[str, ...]
    remedy: Callable[[], str]


def _extra(name: str) -> Callable[[], str]:
    return functools.partial(remedies.kit_extra, name)


_PACKAGES: Mapping[str, _Package] = {
    "torch": _Package("torch", ("torch",), _extra("torch")),
    "onnx": _Package("onnx", ("onnx",), _extra("onnx")),
    "onnxsim": _Package("onnxsim", ("onnxsim",), _extra("onnx")),
    "onnxruntime": _Package(
        "onnxruntime", ("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino"), _extra("onnx")
    ),
    "openvino": _Package("openvino", ("openvino",), _extra("openvino")),
    "tensorrt": _Package(
        "tensorrt",
        ("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11"),
        _extra("tensorrt"),
    ),
    "tensorrt-rtx": _Package(
        "tensorrt_rtx",
        ("tensorrt_rtx_cu13", "tensorrt_rtx_cu12", "tensorrt_rtx"),
        _extra("tensorrt-rtx"),
    ),
    "pillow": _Package("PIL", ("pillow",), _extra("plot")),
    # What TVM compiles CUDA source with, unless TVM_CUDA_COMPILE_MODE=nvcc.
    "cuda-bindings": _Package(
        "cuda.bindings", ("cuda-bindings",), lambda: 'pip install "cuda-bindings[all]"'
    ),
}


def _probe_package(name: str) -> Status:
    package = _PACKAGES[name]
    if not _importable(package.module):
        reason = f"the Python package '{package.module}' is not installed"
        return _missing(name, reason, package.remedy())
    return _found(name, _version(*package.distributions) or "unknown version")


def _probe_any_package(name: str, module: str) -> Status:
    """A package that the kit knows nothing of, by the name that is imported."""
    if not _importable(module):
        reason = f"the Python package '{module}' is not installed"
        return _missing(name, reason, f"pip install {module}")
    return _found(name, _version(module) or "unknown version")


def _probe_tensorrt_builder(name: str) -> Status:
    """What builds TensorRT engines, and what for."""
    packages = [(package, probe(package)) for package in ("tensorrt", "tensorrt-rtx")]
    for package, status in packages:
        if status:
            builds = _BUILDS[package, bool(probe("cuda-driver"))]
            return _found(name, f"{package} {status.detail}, {builds}")
    reason = "; ".join(status.detail for _, status in packages)
    return _missing(name, reason, packages[-1][1].remedy)


# By package, and whether there is a driver.
_BUILDS = {
    ("tensorrt", True): "builds for the GPU of this machine",
    ("tensorrt", False): "builds nothing here, without a GPU; build_at='first_run' works",
    ("tensorrt-rtx", True): "builds for this GPU and others",
    ("tensorrt-rtx", False): "builds for other machines' GPUs",
}


def _importable(module: str) -> bool:
    """Whether ``import module`` would find a package, found out without importing it."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, OSError):  # of the package that it is in, as it is imported
        return False
    except ValueError:  # it is imported already, by hand and without a spec
        return True
    # A folder of that name in the working directory is a namespace package, without an origin.
    return spec is not None and spec.origin is not None


def _version(*distributions: str) -> str | None:
    """Version of the first of these distributions that is installed."""
    for distribution in map(_distribution, distributions):
        if distribution is not None:
            return distribution.version
    return None


def _distribution(name: str) -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None


# --- TVM ------------------------------------------------------------------------------------------

_TVM_LIBRARIES = ("compiler", "runtime", "runtime_extra", "runtime_cuda")


def _probe_tvm(name: str) -> Status:
    root = _tvm_root()
    if root is None:
        return _missing(name, "the Python package 'tvm' is not installed", _INSTALL_TVM)
    version = _version("apache-tvm") or _tvm_file_version(root) or "unknown version"
    if not version.startswith(_TVM_RANGE):
        reason = f"the kit needs TVM {_TVM_RANGE}*, and {version} is installed"
        return _missing(name, reason, _INSTALL_TVM)
    libraries = [lib for lib in _TVM_LIBRARIES if (root / "lib" / f"libtvm_{lib}.so").is_file()]
    return _found(name, f"{version} ({', '.join(libraries) or 'its libraries are elsewhere'})")


def _tvm_root() -> Path | None:
    if not _importable("tvm"):
        return None
    spec = importlib.util.find_spec("tvm")
    return Path(spec.origin).parent if spec and spec.origin else None


def _tvm_file_version(root: Path) -> str | None:
    """Version of a TVM that runs from its source tree, without being installed."""
    try:
        text = (root / "_version.py").read_text(encoding="utf-8")
    except OSError:
        return None
    match = re.search(r"version = '([^']+)'", text)
    return match.group(1) if match else None


def _probe_tvm_ffi(name: str) -> Status:
    if not _importable("tvm_ffi"):
        return _missing(name, "the Python package 'tvm_ffi' is not installed", _INSTALL_TVM)
    return _found(name, _version("apache-tvm-ffi") or "unknown version")


def _probe_tvm_import(name: str) -> Status:
    tvm = _import_tvm(name)
    if isinstance(tvm, Status):
        return tvm
    return _found(name, "runtime only" if _runtime_only(tvm) else "compiler and runtime")


def _import_tvm(name: str) -> ModuleType | Status:
    """Return TVM, or why the probe of this name cannot have it."""
    installed = _probe_tvm(name)
    if not installed:
        return installed
    try:
        return importlib.import_module("tvm")
    except Exception as error:  # noqa: BLE001 - a broken installation can fail in any way
        reason = f"import tvm fails: {' '.join(str(error).split())}"
        return _missing(name, reason, f"{_INSTALL_TVM} --force-reinstall")


def _runtime_only(tvm: ModuleType) -> bool:
    return bool(getattr(tvm, "_RUNTIME_ONLY", False))


def _function(name: str) -> Any:
    """Return a global function of tvm-ffi, or None."""
    return importlib.import_module("tvm_ffi").get_global_func(name, allow_missing=True)


# --- backends: codegen, runtime, target, device ---------------------------------------------------


@dataclass(frozen=True)
class _SourceBuild:
    """How TVM's own build brings what the wheel lacks: CMake options and what they need."""

    options: tuple[str, ...]
    needs: str

    @property
    def remedy(self) -> str:
        return remedies.tvm_from_source(self.options, self.needs)


_TENSORRT_RUNTIME = _SourceBuild(
    ("USE_CUDA=ON", "USE_TENSORRT_CODEGEN=ON", "USE_TENSORRT_RUNTIME=ON"), "CUDA and TensorRT 10"
)
# By global function.
_SOURCE_BUILDS: Mapping[str, _SourceBuild] = {
    "relax.ext.cublas": _SourceBuild(("USE_CUDA=ON", "USE_CUBLAS=ON"), "CUDA"),
    "relax.ext.cudnn": _SourceBuild(("USE_CUDA=ON", "USE_CUDNN=ON"), "CUDA and cuDNN"),
    "relax.ext.cutlass": _SourceBuild(("USE_CUDA=ON", "USE_CUTLASS=ON"), "CUDA"),
    "relax.ext.dnnl": _SourceBuild(("USE_DNNL=ON",), "oneDNN"),
    "relax.ext.tensorrt": _SourceBuild(("USE_TENSORRT_CODEGEN=ON",), ""),
    "runtime.tensorrt_runtime_create": _TENSORRT_RUNTIME,
    "ffi.Module.load_from_bytes.tensorrt": _TENSORRT_RUNTIME,
    "device_api.metal": _SourceBuild(("USE_METAL=ON",), "macOS"),
    "device_api.opencl": _SourceBuild(("USE_OPENCL=ON",), "OpenCL"),
    "device_api.rocm": _SourceBuild(("USE_ROCM=ON",), "ROCm"),
    "device_api.vulkan": _SourceBuild(("USE_VULKAN=ON",), "Vulkan's SDK"),
}
# A TVM built with TensorRT's codegen alone registers these too; this function tells.
_ENABLED_BY: Mapping[str, str] = {
    "runtime.tensorrt_runtime_create": "relax.is_tensorrt_runtime_enabled",
    "ffi.Module.load_from_bytes.tensorrt": "relax.is_tensorrt_runtime_enabled",
}


def _probe_codegen(name: str, backend: str) -> Status:
    return _probe_function(name, f"relax.ext.{backend}")


def _probe_runtime(name: str, function: str) -> Status:
    status = _probe_function(name, function)
    enabled = _function(_ENABLED_BY[function]) if status and function in _ENABLED_BY else None
    if enabled is None or enabled():
        return status
    reason = "this TVM was built with the codegen alone"
    return _missing(name, reason, _SOURCE_BUILDS[function].remedy)


def _probe_target(name: str, kind: str) -> Status:
    return _probe_function(name, f"target.build.{kind}")


def _probe_function(name: str, function: str) -> Status:
    """Ask for a global function; the kit's own ones are loaded on the way."""
    bare = bare_runtime.is_bare() and _function(function) is not None
    tvm = None if bare else _import_tvm(name)
    if isinstance(tvm, Status):
        return tvm
    if tvm is None or _function(function) is not None:
        return _found(name, "")
    plugin = next((p for p in native.PLUGINS.values() if function in p.functions), None)
    if plugin is not None:
        return dataclasses.replace(_probe_plugin(f"plugin:{plugin.name}"), name=name)
    if function in _SOURCE_BUILDS and not _runtime_only(tvm):
        reason = f"this TVM was built without {function}"
        return _missing(name, reason, _SOURCE_BUILDS[function].remedy)
    reason = f"the global function {function} is not registered"
    if _runtime_only(tvm) and function.startswith(("relax.", "target.")):
        return _missing(name, f"{reason} in TVM's runtime-only mode", "unset TVM_USE_RUNTIME_LIB")
    return _missing(name, reason, "install the package whose plugin registers it")


def _probe_plugin(name: str) -> Status:
    plugin = native.PLUGINS[name.partition(":")[2]]
    if not native.autoload_disabled():
        return native.load(plugin)
    present = native.inspect(plugin)
    if not present or native.is_loaded(plugin.name):
        return present
    reason = f"{native.AUTOLOAD_VARIABLE}=0 keeps the plugin from being loaded"
    call = f"tvm_byoc_kit.native.load({plugin.name!r})"
    return _missing(name, reason, f"unset {native.AUTOLOAD_VARIABLE}, or call {call}")


def _probe_device_cpu(name: str) -> Status:
    return _found(name, "")


def _probe_device_example_npu(name: str) -> Status:
    plugin = _probe_plugin("plugin:example_npu")
    if not plugin or native.is_loaded("example_npu"):
        return dataclasses.replace(plugin, name=name)
    reason = "this TVM's own example NPU logs what an NPU would do, and computes nothing"
    options = "-DUSE_EXAMPLE_NPU_CODEGEN=OFF -DUSE_EXAMPLE_NPU_RUNTIME=OFF"
    return _missing(name, reason, f"build TVM with {options}: the kit's, which computes, is loaded")


def _probe_device_cuda(name: str) -> Status:
    driver = _probe_cuda_driver(name)
    if not driver:
        return driver
    tvm = _import_tvm(name)
    if isinstance(tvm, Status):
        return tvm
    if _function("device_api.cuda") is None:
        return _missing(name, *_why_no_cuda_runtime(tvm))
    device = tvm.cuda(0)
    if not device.exist:
        return _missing(name, "TVM finds no CUDA device 0", "check CUDA_VISIBLE_DEVICES")
    return _found(name, f"{device.device_name}, sm_{device.compute_version.replace('.', '')}")


def _why_no_cuda_runtime(tvm: ModuleType) -> tuple[str, str]:
    """Reason and remedy for TVM's CUDA runtime library, which TVM itself leaves out silently."""
    if native.autoload_disabled():
        variable = native.AUTOLOAD_VARIABLE
        return f"{variable}=0 keeps TVM from loading its CUDA runtime library", f"unset {variable}"
    if _runtime_only(tvm):
        reason = "TVM's runtime-only mode does not load its CUDA runtime library"
        return reason, "unset TVM_USE_RUNTIME_LIB"
    try:
        ctypes.CDLL(str(Path(str(tvm.__file__)).parent / "lib" / "libtvm_runtime_cuda.so"))
    except OSError as error:
        remedy = _cudart_remedy() if "libcudart" in str(error) else _driver_remedy()
        return f"TVM's CUDA runtime library cannot be loaded: {error}", remedy
    return "this TVM was built without CUDA", _INSTALL_TVM


def _cudart_remedy() -> str:
    variable = f'LD_LIBRARY_PATH="{toolchain.pip_cuda() / "lib"}:$LD_LIBRARY_PATH"'
    return f'pip install "cuda-toolkit[cudart]==13.*" && export {variable}'


# --- CUDA -----------------------------------------------------------------------------------------


def _probe_cuda_driver(name: str) -> Status:
    answer = cuda_driver.ask()
    if isinstance(answer, str):
        return _missing(name, answer, _driver_remedy())
    return _found(name, f"CUDA {answer.cuda}, {answer.gpus} GPU(s)")


def _driver_remedy() -> str:
    if not cuda_driver.has_gpu():
        return "use a machine with an NVIDIA GPU (in a container: docker run --gpus all ...)"
    if shutil.which("ubuntu-drivers"):
        return "ubuntu-drivers install"
    return "install the driver from https://www.nvidia.com/drivers"


def _probe_cuda_toolkit(name: str) -> Status:
    toolkit = cuda_toolkit.find_toolkit()
    if isinstance(toolkit, str):
        return _missing(name, toolkit, remedies.kit_extra("cuda"))
    return _found(name, f"{toolkit}{toolchain.folders_without_nvcc()}")


def _probe_cutlass_headers(name: str) -> Status:
    root = _tvm_root()
    if root is None:
        return _missing(name, "the Python package 'tvm' is not installed", _INSTALL_TVM)
    # Where tvm.contrib.cutlass looks: in the wheel, then in a source tree.
    for base in (root, root.parent, root.parent.parent):
        header = base / "3rdparty" / "cutlass" / "include" / "cutlass" / "version.h"
        if header.is_file():
            return _found(name, f"{_cutlass_version(header)} ({header.parent.parent})")
    return _missing(name, f"{root} has no 3rdparty/cutlass", f"{_INSTALL_TVM} --force-reinstall")


def _cutlass_version(header: Path) -> str:
    text = header.read_text(encoding="utf-8", errors="replace")
    parts = re.findall(r"#define CUTLASS_(?:MAJOR|MINOR|PATCH)\s+(\d+)", text)
    return ".".join(parts) or "unknown version"


# --- build tools ----------------------------------------------------------------------------------


def _probe_compiler(name: str) -> Status:
    path = toolchain.find_cxx()
    if path is None and (chosen := os.environ.get("CXX")):
        return _missing(name, f"$CXX is '{chosen}', which is not found", "unset CXX")
    if path is None:
        reason = f"none of {', '.join(toolchain.CXX_NAMES)} is on PATH"
        return _missing(name, reason, remedies.cxx_compiler())
    version = toolchain.tool_version(path)
    if version is None:
        remedy = "unset CXX" if os.environ.get("CXX") else remedies.cxx_compiler()
        return _missing(name, f"{path} does not run", remedy)
    return _found(name, f"{path} {version}".strip())


def _probe_cmake(name: str) -> Status:
    path = toolchain.find_tool("cmake")
    version = toolchain.tool_version(path) if path else None
    needed = ".".join(map(str, _CMAKE_MINIMUM))
    remedy = f'pip install "cmake>={needed}"'
    if path is None or version is None:
        return _missing(name, "cmake is not found", remedy)
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < _CMAKE_MINIMUM:
        return _missing(name, f"{path} is {version}, older than {needed}", remedy)
    return _found(name, f"{version} ({path})")


_PROBES: Mapping[str, Callable[[str], Status]] = {
    "tvm": _probe_tvm,
    "tvm_ffi": _probe_tvm_ffi,
    "tvm-import": _probe_tvm_import,
    "compiler": _probe_compiler,
    "cmake": _probe_cmake,
    **{f"plugin:{plugin}": _probe_plugin for plugin in native.PLUGINS},
    **dict.fromkeys(_PACKAGES, _probe_package),
    "tensorrt-builder": _probe_tensorrt_builder,
    "cuda-driver": _probe_cuda_driver,
    "cuda-toolkit": _probe_cuda_toolkit,
    "cutlass-headers": _probe_cutlass_headers,
    "device:cpu": _probe_device_cpu,
    "device:cuda": _probe_device_cuda,
    "device:example_npu": _probe_device_example_npu,
}
# Prefix: what stands after the colon, and the probe that gets it.
_PREFIXES: Mapping[str, tuple[str, Callable[[str, str], Status]]] = {
    "package": ("module", _probe_any_package),
    "codegen": ("backend", _probe_codegen),
    "runtime": ("global function", _probe_runtime),
    "target": ("kind", _probe_target),
}
