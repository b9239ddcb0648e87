"""The kit's compiled plugins: found, checked against the running tvm-ffi, loaded at most once.

A plugin is a shared library whose static initializers register global functions with tvm-ffi. Two
mistakes cannot be caught once the library is loaded, so both are checked before: a library built
for another tvm-ffi (its C++ ABI has no check of its own) corrupts memory, and a global function
registered twice aborts the process.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.metadata
import json
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_byoc_kit import bare_runtime, pass_options, remedies
from tvm_byoc_kit.errors import OptionError, PluginError
from tvm_byoc_kit.status import Status

__all__ = [
    "AUTOLOAD_VARIABLE",
    "LIB_DIR",
    "PLUGINS",
    "BuildInfo",
    "Plugin",
    "autoload",
    "autoload_disabled",
    "cmake_dir",
    "inspect",
    "is_loaded",
    "is_runtime_only",
    "load",
    "read_build_info",
    "sparing_torch",
    "without_torch",
]

_PACKAGE = Path(__file__).resolve().parent


def _find_lib_dir() -> Path:
    """Where the plugins are: beside this file, or in the installed package.

    Python started in the root of a checkout imports the checkout, which has no plugins of its own.
    """
    beside = _PACKAGE / "lib"
    if beside.is_dir():
        return beside
    try:
        package = importlib.metadata.distribution("tvm-byoc-kit")
    except importlib.metadata.PackageNotFoundError:
        return beside
    installed = Path(str(package.locate_file("tvm_byoc_kit/lib")))
    return installed if installed.is_dir() else beside


LIB_DIR = _find_lib_dir()
AUTOLOAD_VARIABLE = "TVM_DEVICE_BACKEND_AUTOLOAD"


@dataclass(frozen=True)
class Plugin:
    """A compiled plugin: where its library is and which global functions it registers.

    Parameters
    ----------
    name : str
        The library is ``<directory>/libbyoc_<name>.so``.
    functions : tuple[str, ...]
        Every global function that its static initializers register.
    directory : Path
        Holds the library and the ``build_info.json`` that was written when it was built.
    rebuild : str
        Command that builds it again; by default the one for the kit's own.
    """

    name: str
    functions: tuple[str, ...]
    directory: Path = LIB_DIR
    rebuild: str = ""

    @property
    def library(self) -> Path:
        """Path of the shared library."""
        return self.directory / f"libbyoc_{self.name}.so"


PLUGINS: Mapping[str, Plugin] = {
    plugin.name: plugin
    for plugin in (
        Plugin(
            "core",
            (
                "byoc.pass_option.add",
                "byoc.payload.create",
                "byoc.payload.viewed",
                "ffi.Module.load_from_bytes.byoc_payload",
            ),
        ),
        Plugin(
            "example_npu",
            (
                "relax.ext.example_npu",
                "runtime.ExampleNPUJSONRuntimeCreate",
                "ffi.Module.load_from_bytes.example_npu_json",
            ),
        ),
    )
}

_TENSORRT = "tvm_byoc_kit.backends.tensorrt.registered"
# Global functions in Python that come with a plugin, where TVM has none of that name: the function
# and where it lives. The core calls the first; TVM's own Python code and tests look for the others.
_IN_PYTHON: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "core": (
        ("byoc.payload.provide", "tvm_byoc_kit.python_codegen", "provide_runtime"),
        ("relax.ext.tensorrt", _TENSORRT, "compile_regions"),
        ("relax.is_tensorrt_runtime_enabled", _TENSORRT, "is_runtime_enabled"),
        ("relax.get_tensorrt_version", _TENSORRT, "get_version"),
        ("relax.ext.cutlass", "tvm_byoc_kit.backends.cutlass.codegen", "compile_regions"),
    ),
}

# Options of TVM's PassContext that come with a plugin: the key, and what checks a value.
_PASS_OPTIONS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "core": (
        (
            "relax.ext.tensorrt.options",
            "tvm_byoc_kit.backends.tensorrt.compat",
            "checked_pass_option",
        ),
    ),
}

# What came of the libraries opened so far. ctypes never closes one, which is what is wanted:
# registered functions point into its code.
_LOADED: dict[Plugin, Status] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class BuildInfo:
    """What the plugins of a directory were built with (``build_info.json``)."""

    kit: str
    tvm_ffi: str
    compiler: str
    plugins: tuple[str, ...]


def read_build_info(directory: Path = LIB_DIR) -> BuildInfo:
    """Read the ``build_info.json`` beside the plugins of a directory.

    Raises
    ------
    PluginError
        The file is not there, or is not what the build writes.
    """
    path = directory / "build_info.json"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        kit, tvm_ffi, compiler = (str(fields[key]) for key in ("kit", "tvm_ffi", "compiler"))
        return BuildInfo(kit, tvm_ffi, compiler, tuple(map(str, fields["plugins"])))
    except FileNotFoundError:
        raise PluginError(f"{path} does not exist, so what was built is unknown") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PluginError(f"{path} is damaged ({type(error).__name__}: {error})") from error


def inspect(plugin: str | Plugin) -> Status:
    """Check a plugin's files against the installed tvm-ffi; imports and loads nothing."""
    spec = _find(plugin)
    try:
        installed = importlib.metadata.version("apache-tvm-ffi")
    except importlib.metadata.PackageNotFoundError:
        return _status(spec, "apache-tvm-ffi is not installed", 'pip install "apache-tvm==0.27.*"')
    return _check_files(spec, installed)


def load(plugin: str | Plugin) -> Status:
    """Load a plugin into this process, unless its functions are already there.

    Safe to call again and from several threads. A library that is missing, that was built for
    another tvm-ffi or that the system cannot load gives a false status with reason and remedy.

    Parameters
    ----------
    plugin : str or Plugin
        A name in `PLUGINS`, or the description of another plugin.

    Raises
    ------
    OptionError
        There is no plugin of that name.
    """
    spec = _find(plugin)
    # TVM comes first, for a TVM built with this backend must find its names free. It is imported
    # outside the lock: its import calls `autoload`, maybe in a thread that holds the import lock.
    try:
        if not bare_runtime.is_bare():
            importlib.import_module("tvm")
        tvm_ffi = importlib.import_module("tvm_ffi")
    except Exception as error:  # noqa: BLE001 - a broken installation can fail in any way
        remedy = 'pip install --force-reinstall "apache-tvm==0.27.*"'
        return _status(spec, f"TVM cannot be imported: {_one_line(error)}", remedy)
    with _LOCK:
        if spec not in _LOADED:
            return _load_once(spec, tvm_ffi)
        _add_pass_options(spec)  # if it was loaded before TVM's compiler
        return _LOADED[spec]


def is_loaded(plugin: str | Plugin) -> bool:
    """Whether `load` has loaded the plugin into this process."""
    return bool(_LOADED.get(_find(plugin)))


def autoload() -> None:
    """Load every plugin that was built; ``import tvm`` calls this (entry point ``tvm.backends``).

    A plugin that cannot be loaded gives one warning with the remedy. A kit without compiled
    plugins, installed where there was no compiler, says nothing: ``tvm-byoc doctor`` does.
    """
    if not LIB_DIR.is_dir():
        return
    failures = [status for status in map(load, PLUGINS) if not status]
    if failures:
        lines = "; ".join(str(status) for status in failures)
        warnings.warn(f"tvm_byoc_kit: {lines}", RuntimeWarning, stacklevel=2)


def autoload_disabled() -> bool:
    """Whether the user told TVM to load no plugin by itself."""
    return os.environ.get(AUTOLOAD_VARIABLE, "1") == "0"


def cmake_dir() -> Path:
    """Directory to give as ``-DTvmByocKit_DIR=`` to build a plugin in another project.

    Raises
    ------
    PluginError
        The kit's CMake files are not where an installation or a checkout has them.
    """
    candidates = (_PACKAGE / "cmake", _PACKAGE.parent / "cmake")
    for candidate in candidates:
        if (candidate / "TvmByocKitConfig.cmake").is_file():
            return candidate
    places = ", ".join(map(str, candidates))
    raise PluginError(
        f"TvmByocKitConfig.cmake is in none of: {places}. Install the kit with its compiled half: "
        f"{remedies.kit_rebuild()}"
    )


@contextmanager
def without_torch() -> Iterator[None]:
    """Keep ``import tvm_ffi`` and ``import tvm`` inside the block from importing torch.

    Both import torch wherever it is installed, which costs seconds that a script without torch need
    not pay. Does nothing once TVM or torch is imported. torch can be imported after the block.
    """
    modules: dict[str, Any] = sys.modules
    if "torch" in modules or "tvm" in modules:
        yield
        return
    modules["torch"] = None
    try:
        yield
    finally:
        if modules.get("torch", "imported") is None:
            del modules["torch"]


def sparing_torch() -> AbstractContextManager[None]:
    """`without_torch`, unless another thread may be importing torch just now."""
    return without_torch() if threading.active_count() == 1 else nullcontext()


def is_runtime_only() -> bool:
    """Whether this process has TVM's runtime alone, or will once TVM is imported."""
    if "tvm" in sys.modules:
        return bool(getattr(sys.modules["tvm"], "_RUNTIME_ONLY", False))
    return os.environ.get("TVM_USE_RUNTIME_LIB") == "1"


def _find(plugin: str | Plugin) -> Plugin:
    if isinstance(plugin, Plugin):
        return plugin
    if plugin not in PLUGINS:
        raise OptionError(f"no plugin '{plugin}'; the kit has: {', '.join(sorted(PLUGINS))}")
    return PLUGINS[plugin]


def _load_once(spec: Plugin, tvm_ffi: Any) -> Status:
    """Load a library that is not loaded yet, after every check that can be made before."""
    present = _registered(spec, tvm_ffi)
    if present:
        return _check_provided(spec, present)
    checked = _check_files(spec, tvm_ffi.__version__)
    if not checked:
        return checked
    try:
        ctypes.CDLL(str(spec.library), mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        reason = f"the system cannot load {spec.library}: {_one_line(error)}"
        return _status(spec, reason, _rebuild(spec))
    _register_in_python(spec, tvm_ffi)
    missing = [name for name in spec.functions if name not in _registered(spec, tvm_ffi)]
    reason = f"{spec.library} was loaded but does not register {', '.join(missing)}"
    _LOADED[spec] = _status(spec, reason, _rebuild(spec)) if missing else checked
    return _LOADED[spec]


def _register_in_python(spec: Plugin, tvm_ffi: Any) -> None:
    """Let a plugin find its Python half, which is imported when it is first called."""
    for function, module, name in _IN_PYTHON.get(spec.name, ()):
        if tvm_ffi.get_global_func(function, allow_missing=True) is None:
            tvm_ffi.register_global_func(function, functools.partial(_call, module, name))
    _add_pass_options(spec)


def _add_pass_options(spec: Plugin) -> None:
    for key, module, name in _PASS_OPTIONS.get(spec.name, ()):
        pass_options.add_pass_option(key, functools.partial(_call, module, name))


def _call(module: str, name: str, *arguments: Any) -> Any:
    return getattr(importlib.import_module(module), name)(*arguments)


def _registered(spec: Plugin, tvm_ffi: Any) -> set[str]:
    """Global functions of a plugin that this process already has."""
    return {n for n in spec.functions if tvm_ffi.get_global_func(n, allow_missing=True) is not None}


def _check_provided(spec: Plugin, present: set[str]) -> Status:
    """Judge functions that someone else registered; the library must then stay unloaded."""
    missing = [name for name in spec.functions if name not in present]
    if is_runtime_only():
        # A TVM built with this backend has its codegen in the compiler library, not loaded here.
        missing = [name for name in missing if not name.startswith("relax.ext.")]
    if not missing:
        return Status(f"plugin:{spec.name}", ok=True, detail="built into this TVM, nothing loaded")
    reason = (
        f"this TVM has {', '.join(sorted(present))} itself but not {', '.join(missing)}; "
        "loading the plugin would register a function twice, which aborts the process"
    )
    return _status(spec, reason, 'pip install --force-reinstall --no-deps "apache-tvm==0.27.*"')


def _check_files(spec: Plugin, ffi_version: str) -> Status:
    """Check that the library is there and was built for one exact tvm-ffi."""
    if not spec.library.is_file():
        return _status(spec, f"{spec.library} was not built", _rebuild(spec))
    try:
        info = read_build_info(spec.directory)
    except PluginError as error:
        return _status(spec, str(error), _rebuild(spec))
    if spec.name not in info.plugins:
        reason = f"{spec.library} is older than its build_info.json, which does not list it"
        return _status(spec, reason, _rebuild(spec))
    if info.tvm_ffi != ffi_version:
        reason = (
            f"{spec.library.name} was built for apache-tvm-ffi {info.tvm_ffi}, "
            f"but {ffi_version} is installed, and their ABIs may differ"
        )
        return _status(spec, reason, _rebuild(spec, against_installed_ffi=True))
    detail = f"{info.kit}, built for apache-tvm-ffi {info.tvm_ffi} with {info.compiler}"
    return Status(f"plugin:{spec.name}", ok=True, detail=detail)


def _rebuild(spec: Plugin, *, against_installed_ffi: bool = False) -> str:
    return spec.rebuild or remedies.kit_rebuild(against_installed_ffi=against_installed_ffi)


def _status(spec: Plugin, reason: str, remedy: str) -> Status:
    return Status(f"plugin:{spec.name}", ok=False, detail=reason, remedy=remedy)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
