"""Plugins that are built on demand, against a vendor's library as it is installed here.

An executor in C++ calls the vendor's C++ API, so it fits one version of it, and the kit's wheel
cannot carry it. Its sources are in the wheel; ``tvm-byoc build-plugin`` compiles them. The result
takes the place of the backend's executor in Python, and is used from then on.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_byoc_kit import native, remedies, toolchain
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import OptionError, PluginError
from tvm_byoc_kit.file_cache import user_cache
from tvm_byoc_kit.files import replacing
from tvm_byoc_kit.status import Status

__all__ = [
    "BUILDABLE",
    "EXECUTORS_VARIABLE",
    "Buildable",
    "build_plugin",
    "find_runtime",
    "inspect",
    "load",
]

EXECUTORS_VARIABLE = "TVM_BYOC_EXECUTORS"  # "python": leave those in C++ alone
_SOURCES = Path(__file__).resolve().parent / "csrc"
_INFO = "build_info.json"


@dataclass(frozen=True)
class Buildable:
    """A plugin that is built on demand.

    Parameters
    ----------
    name : str
        Also of the folder of its sources, and of the backend whose executors it makes.
    function : str
        The global function that it registers, which makes executors as ``byoc.runtime.<name>``
        does.
    package : str
        The vendor's Python package, with headers and libraries in it.
    cmake : str
        Folder of that package with its CMake configuration.
    cmake_variable : str
        That tells CMake of it.
    libraries : str
        Folder of that package with its libraries.
    """

    name: str
    function: str
    package: str
    cmake: str
    cmake_variable: str
    libraries: str

    @property
    def sources(self) -> Path:
        """Folder of its C++ files and its CMakeLists.txt."""
        return _SOURCES / self.name

    @property
    def remedy(self) -> str:
        """The command that builds it."""
        return f"tvm-byoc build-plugin {self.name}"

    def installed_in(self, directory: Path) -> native.Plugin:
        """What `native` loads, when it is there."""
        return native.Plugin(self.name, (self.function,), directory)

    def built_with(self) -> dict[str, str]:
        """What it must have been built from to be used now, as its build information tells it."""
        digest = hashlib.sha256()
        for path in sorted(self.sources.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return {self.package: remedies.version_of(self.package), "sources": digest.hexdigest()}


BUILDABLE: Mapping[str, Buildable] = {
    plugin.name: plugin
    for plugin in (
        Buildable(
            name="openvino",
            function="byoc.openvino.make_executor",
            package="openvino",
            cmake="cmake",
            cmake_variable="OpenVINO_DIR",
            libraries="libs",
        ),
    )
}


def build_plugin(name: str) -> Path:
    """Build a plugin against what is installed, for this environment; gives the library.

    It goes into the kit's own folder, where that can be written to, and else into the user's cache
    (``$XDG_CACHE_HOME``, or ``~/.cache``). A plugin that is there is replaced; a process that has
    loaded it is not disturbed.

    Raises
    ------
    OptionError
        There is no such plugin.
    PluginError
        Something that the build needs is missing, or the compiler fails; the message ends in what
        it said.
    """
    plugin = _find(name)
    for needed in (plugin.package, "tvm_ffi", "cmake", "compiler"):
        status = probe(needed)
        if not status:
            raise PluginError(
                f"the plugin '{name}' cannot be built: {status.detail}. To add it: {status.remedy}"
            )
    target = _writable_place(plugin)
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        installed = Path(work, "installed")
        _run_cmake(plugin, target, Path(work, "build"), installed)
        _record(plugin, installed)
        return _put(installed, target, plugin.installed_in(target))


def inspect(name: str) -> Status:
    """Whether the plugin is built, and fits what is installed; loads nothing."""
    return _choose(_find(name))[1]


def load(name: str) -> Status:
    """Load a plugin that has been built, if it fits what is here.

    Warns
    -----
    RuntimeWarning
        When it was built from or for something else than is here now, with the remedy.

    Raises
    ------
    OptionError
        There is no such plugin.
    """
    plugin = _find(name)
    if os.environ.get(EXECUTORS_VARIABLE, "") == "python":
        reason = f"{EXECUTORS_VARIABLE}=python keeps it from being loaded"
        return _status(name, reason, f"unset {EXECUTORS_VARIABLE}")
    spec, status = _choose(plugin)
    if spec is None:
        return status
    if status:
        loaded = native.load(spec)
        status = status if loaded else _status(name, loaded.detail, plugin.remedy)
    if not status:
        warnings.warn(
            f"tvm_byoc_kit: {status}; the executor in Python is used instead",
            RuntimeWarning,
            stacklevel=2,
        )
    return status


def find_runtime(name: str) -> Any:
    """The global function of a plugin that makes executors, or None where it is not to be used.

    Parameters
    ----------
    name : str
        Of the plugin; empty for none.
    """
    if not name or not load(name):
        return None
    import tvm_ffi

    return tvm_ffi.get_global_func(BUILDABLE[name].function)


def _find(name: str) -> Buildable:
    if name not in BUILDABLE:
        raise OptionError(f"no plugin '{name}' is built on demand; there is {', '.join(BUILDABLE)}")
    return BUILDABLE[name]


# --- where plugins are ----------------------------------------------------------------------------


def _places(plugin: Buildable) -> tuple[Path, Path]:
    """In the kit's own folder, which goes with the environment; in the user's cache."""
    # Environments share the cache, and each has its own versions.
    environment = hashlib.sha256(str(native.LIB_DIR).encode()).hexdigest()[:16]
    return native.LIB_DIR / "built" / plugin.name, user_cache() / environment / plugin.name


def _writable_place(plugin: Buildable) -> Path:
    places = _places(plugin)
    for place in places:
        if _is_writable(place):
            return place
    raise PluginError(
        f"the plugin '{plugin.name}' can be written neither to {places[0]} nor to {places[1]}; set "
        "XDG_CACHE_HOME to a folder that you may write to"
    )


def _is_writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


def _choose(plugin: Buildable) -> tuple[native.Plugin | None, Status]:
    """The plugin that `load` would load and its state; None when none was built."""
    status = _status(plugin.name, "it was not built", plugin.remedy)
    chosen: native.Plugin | None = None
    for place in _places(plugin):
        spec = plugin.installed_in(place)
        if spec.library.is_file():
            status = _check(plugin, spec)
            chosen = spec
            if status:
                break
    return chosen, status


def _check(plugin: Buildable, spec: native.Plugin) -> Status:
    status = native.inspect(spec)
    if not status:
        return _status(plugin.name, status.detail, plugin.remedy)
    recorded = json.loads((spec.directory / _INFO).read_text(encoding="utf-8"))
    for key, value in plugin.built_with().items():
        if recorded.get(key) != value:
            was = f"{key} {recorded.get(key)}, and {value} is installed"
            what = "other sources than the kit has" if key == "sources" else was
            return _status(plugin.name, f"{spec.library} was built from {what}", plugin.remedy)
    detail = f"{status.detail}, {plugin.package} {recorded[plugin.package]} ({spec.library})"
    return Status(f"executor:{plugin.name}", ok=True, detail=detail)


def _status(name: str, reason: str, remedy: str) -> Status:
    return Status(f"executor:{name}", ok=False, detail=reason, remedy=remedy)


# --- the build ------------------------------------------------------------------------------------


def _run_cmake(plugin: Buildable, target: Path, build: Path, installed: Path) -> None:
    cmake, ninja = map(toolchain.find_tool, ("cmake", "ninja"))
    if ninja is None and toolchain.find_tool("make") is None:
        raise PluginError(
            f"the plugin '{plugin.name}' cannot be built: neither ninja nor make is found. To add "
            "it: pip install ninja"
        )
    package = _package_folder(plugin.package)
    rpath = [
        _library_path(folder, target)
        for folder in (_package_folder("tvm_ffi") / "lib", package / plugin.libraries)
    ]
    definitions = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_INSTALL_PREFIX": str(installed),
        "Python_EXECUTABLE": sys.executable,
        "TvmByocKit_DIR": str(native.cmake_dir()),
        plugin.cmake_variable: str(package / plugin.cmake),
        "BYOC_RPATH": ";".join(rpath),
        "BYOC_KIT_VERSION": remedies.version_of(remedies.KIT),
    }
    options = [f"-D{name}={value}" for name, value in definitions.items()]
    if ninja is not None:
        options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
    for arguments in (
        ["-S", str(plugin.sources), "-B", str(build), *options],
        ["--build", str(build)],
        ["--install", str(build)],
    ):
        _run([str(cmake), *arguments], plugin)


def _run(command: list[str], plugin: Buildable) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise PluginError(
            f"the plugin '{plugin.name}' cannot be built: {' '.join(command[:2])} ... fails: "
            f"{done.stdout[-_SHOWN_CHARACTERS:].strip()}"
        )


_SHOWN_CHARACTERS = 2000


def _package_folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise PluginError(f"the Python package '{package}' is not installed")
    return Path(spec.origin).resolve().parent


def _library_path(folder: Path, target: Path) -> str:
    """What the dynamic loader searches: relative where plugin and library move together."""
    environment = folder.parent.parent  # site-packages
    if target.is_relative_to(environment):
        return f"$ORIGIN/{os.path.relpath(folder, target)}"
    return str(folder)


def _record(plugin: Buildable, installed: Path) -> None:
    """Add what the plugin fits to its build information, to be compared when it is loaded."""
    path = installed / _INFO
    facts = json.loads(path.read_text(encoding="utf-8")) | plugin.built_with()
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def _put(installed: Path, target: Path, spec: native.Plugin) -> Path:
    """Move the files into place, each at once: a process may be loading what was there."""
    for name in (spec.library.name, _INFO):
        with replacing(target / name) as unfinished:
            shutil.copyfile(installed / name, unfinished)
    return spec.library
