"""Artifacts: one shared library that carries its manifest.

The manifest is a small ZIP archive appended to the library. The dynamic loader ignores what
follows the ELF image, so the file stays a plain shared library; ``unzip -p model.so manifest.json``
shows the manifest, and reading it never runs the code beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import zipfile
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import native
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable, OptionError, reason
from tvm_byoc_kit.files import replacing
from tvm_byoc_kit.payload import PAYLOAD_KIND, missing_remedy
from tvm_byoc_kit.signature import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FORMAT", "Manifest", "open_library", "read_manifest", "versions", "write_artifact"]

FORMAT = 1
_MEMBER = "manifest.json"
_PACKAGES = {"tvm_byoc_kit": "tvm-byoc-kit", "tvm": "apache-tvm", "tvm_ffi": "apache-tvm-ffi"}


def versions() -> dict[str, str]:
    """Versions of what takes part in a build; a package run from a source tree is ``unknown``.

    A plugin is listed with what it was built with, once it is loaded.
    """
    found = {name: _version(package) for name, package in _PACKAGES.items()}
    for name, plugin in native.PLUGINS.items():
        if native.is_loaded(plugin) and plugin.library.exists():
            built = native.read_build_info(plugin.directory)
            found[f"plugin:{name}"] = f"{built.kit} (tvm-ffi {built.tvm_ffi}, {built.compiler})"
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself.

    Parameters
    ----------
    inputs, outputs : tuple of TensorSpec
    entry : str
        The function to run.
    backend, target : str
    options : dict
        Of the backend's codegen.
    loaders : tuple of str
        Kinds of the modules inside that need a loader at run time.
    package : str
        What ``pip install`` adds the backend with, if it says so.
    versions : dict
        Of the kit, TVM and tvm-ffi, at build time.
    machine : str
        Processor, as ``uname -m`` names it.
    device_code : dict
        Of code for NVIDIA's GPUs: the architectures of machine code and PTX, whether there is CUDA
        source, and notes of the build. Empty without a target of CUDA.
    library : dict
        Size in bytes and SHA-256 of the library before the manifest.
    format : int
        Of the manifest itself.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    entry: str
    backend: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    loaders: tuple[str, ...] = ()
    package: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = field(default_factory=platform.machine)
    device_code: dict[str, Any] = field(default_factory=dict)
    library: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """As written into the artifact."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Manifest:
        """The inverse of :meth:`to_dict`; unknown fields of a later kit are left out.

        Raises
        ------
        KeyError, TypeError
            For a field that is missing or of another type.
        """
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        for name, (kind, member) in _TYPES.items():
            value = data[name]
            members = value.values() if isinstance(value, dict) else value
            if not isinstance(value, kind) or not all(isinstance(m, member) for m in members):
                raise TypeError(f"field `{name}` is {value!r}")
        known["inputs"] = tuple(TensorSpec.from_dict(item) for item in data["inputs"])
        known["outputs"] = tuple(TensorSpec.from_dict(item) for item in data["outputs"])
        known["loaders"] = tuple(data["loaders"])
        return cls(**known)


# JSON types of the manifest's fields, and of what they hold.
_TYPES: dict[str, tuple[type, type]] = {
    "inputs": (list, dict),
    "outputs": (list, dict),
    "entry": (str, str),
    "backend": (str, str),
    "target": (str, str),
    "options": (dict, object),
    "loaders": (list, str),
    "versions": (dict, str),
    "machine": (str, str),
    "library": (dict, object),
}


def write_artifact(
    path: str | os.PathLike[str], manifest: Manifest, export: Callable[[str], Any]
) -> None:
    """Write an artifact in one step: readers see the old file or the new one, never half of it.

    Parameters
    ----------
    path : str or os.PathLike
    manifest : Manifest
    export : callable
        Writes the library to the path that it is given.

    Raises
    ------
    ArtifactError
        When the directory does not exist or the library cannot be written.
    """
    path = Path(path).absolute()
    if not path.parent.is_dir():
        raise ArtifactError(f"cannot write {path}: {path.parent} is no directory; make it first")
    if path.exists() and not path.is_file():
        raise ArtifactError(f"cannot write {path}: it is no file; name one, such as model.so")
    compiler = probe("compiler")
    if not compiler:
        raise ArtifactError(f"cannot link {path}: {compiler.detail}; {compiler.remedy}")
    try:
        with replacing(path) as unfinished:
            _link(export, unfinished, path)
            library = {"size": unfinished.stat().st_size, "sha256": _sha256(unfinished)}
            _append_manifest(unfinished, manifest.to_dict() | {"library": library})
    except OSError as error:
        raise ArtifactError(f"cannot write {path}: {error}") from error


def _link(export: Callable[[str], Any], unfinished: Path, path: Path) -> None:
    try:
        export(str(unfinished))
    except Exception as error:  # TVM reports a failed link as RuntimeError with its output
        raise ArtifactError(f"cannot link {path}: {error}") from error


def _append_manifest(library: Path, manifest: dict[str, Any]) -> None:
    # Not ZipFile's mode "a": that would write over an archive that the library ends with.
    with library.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_MEMBER, json.dumps(manifest, indent=1))


def read_manifest(path: str | os.PathLike[str]) -> Manifest:
    """The manifest of the artifact at `path`; nothing in the artifact is executed.

    Raises
    ------
    ArtifactError
        When the file is missing, truncated, not an artifact, or of a later format.
    """
    path = Path(path)
    if not path.is_file():
        raise ArtifactError(f"no such artifact: {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            data = json.loads(archive.read(_MEMBER))
    except Exception as error:  # zipfile raises many types on damaged archives
        raise ArtifactError(
            f"{path} has no manifest: it is truncated, stripped, or was not written by "
            f"Executable.export ({error}); export it again"
        ) from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else None
        raise ArtifactError(
            f"{path} has a manifest of format {found}, this kit reads format {FORMAT}; "
            "install the kit it was exported with, or export it again"
        )
    try:
        return Manifest.from_dict(data)
    except (KeyError, TypeError) as error:
        raise ArtifactError(f"{path} has a damaged manifest: {error!r}; export it again") from error


def open_library(path: str | os.PathLike[str], manifest: Manifest) -> Any:
    """Load the library of an artifact, after all that could make it crash has been checked.

    Loading an artifact runs native code: load only what you trust.

    Raises
    ------
    ArtifactError
        When the file is damaged or made for another processor, TVM or GPU.
    BackendUnavailable
        When a module inside has no loader here, or the machine has not what it runs on; the message
        tells what to install.
    """
    path = Path(path)
    _check_file(path, manifest)
    _check_versions(path, manifest)
    _check_loaders(manifest)
    _check_gpu(manifest)
    import tvm  # noqa: F401 - registers the loaders of its modules
    import tvm_ffi

    # Through a link of a new name: the system's loader gives back what it has loaded under the same
    # name before, even when the file there is another by now. TVM's own load_module would resolve
    # the link.
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        link = Path(work) / "artifact.so"
        try:
            link.symlink_to(path.absolute())
            module = tvm_ffi.load_module(str(link))
        except Exception as error:  # the loader raises what the modules inside raise
            raise ArtifactError(f"cannot load {path}: {reason(error)}; export it again") from error
    if PAYLOAD_KIND in manifest.loaders:
        _admit(module, manifest.backend)
    return module


def _admit(module: Any, name: str) -> None:
    """Ask the backend whether the regions can run here, where it wants to be asked."""
    from tvm_byoc_kit.backend import get_backend

    try:
        backend = get_backend(name)
    except OptionError:  # its runtime is there all the same, as was seen before
        return
    if backend.admit is not None:
        for region in _imports(module):
            if region.kind == PAYLOAD_KIND and region.get_function("get_backend")() == name:
                backend.admit(region.get_function("get_payload")())


def _imports(module: Any) -> Iterator[Any]:
    for imported in module.imports:
        yield imported
        yield from _imports(imported)


def _check_file(path: Path, manifest: Manifest) -> None:
    if manifest.machine != platform.machine():
        raise ArtifactError(
            f"{path} holds code for {manifest.machine}, this machine is {platform.machine()}; "
            "export it for this machine"
        )
    size = manifest.library.get("size")
    if not isinstance(size, int) or _sha256(path, size) != manifest.library.get("sha256"):
        raise ArtifactError(f"{path} is damaged: its checksum does not match; export it again")


def _check_versions(path: Path, manifest: Manifest) -> None:
    built, here = manifest.versions.get("tvm", "unknown"), versions()["tvm"]
    if "unknown" not in (built, here) and _minor(built) != _minor(here):
        raise ArtifactError(
            f"{path} was built with apache-tvm {built}, here is {here}; "
            f'pip install "apache-tvm=={built}", or export it again'
        )


def _check_loaders(manifest: Manifest) -> None:
    from tvm_byoc_kit.backend import get_backend

    if not manifest.loaders:
        return
    import tvm  # noqa: F401 - loads the plugins that say so in their packages' entry points

    unknown = ""
    try:
        get_backend(manifest.backend).require("runtime")
    except OptionError as error:  # not installed; yet what it needs may have been loaded by hand
        unknown = str(error)
    if PAYLOAD_KIND in manifest.loaders:
        _check_payload_runtime(manifest, unknown)
    for kind in manifest.loaders:
        if not _has_function(f"ffi.Module.load_from_bytes.{kind}"):
            raise BackendUnavailable(
                manifest.backend,
                "runtime",
                unknown or f"no loader for modules of kind '{kind}'",
                missing_remedy(manifest.package)
                if manifest.package
                else f"install the package that provides backend '{manifest.backend}', or load its "
                "plugin first",
            )


def _check_gpu(manifest: Manifest) -> None:
    """TVM loads its CUDA runtime, which loads the kernels, only beside a driver."""
    status = probe("device:cuda") if manifest.device_code else None
    if status is not None and not status:
        raise BackendUnavailable(manifest.backend, "device", status.detail, status.remedy)


def _check_payload_runtime(manifest: Manifest, unknown: str) -> None:
    """What a backend in Python needs here, also where no backend of that name is known."""
    core = probe("plugin:core")
    if not core:
        raise BackendUnavailable(manifest.backend, "runtime", core.detail, core.remedy)
    if unknown and not _has_function(f"byoc.runtime.{manifest.backend}"):
        remedy = missing_remedy(manifest.package)
        raise BackendUnavailable(manifest.backend, "runtime", unknown, remedy)


def _has_function(name: str) -> bool:
    import tvm_ffi

    return tvm_ffi.get_global_func(name, allow_missing=True) is not None


def _minor(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")[:2])


def _sha256(path: Path, size: int | None = None) -> str:
    """SHA-256 of the first `size` bytes, or of the whole file."""
    digest = hashlib.sha256()
    left = path.stat().st_size if size is None else size
    with path.open("rb") as file:
        while left > 0 and (chunk := file.read(min(left, 1 << 20))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()
