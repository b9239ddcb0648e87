"""Loading the library of an artifact, after all that could make it fail has been checked."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import machine
from tvm_byoc_kit.artifact import Manifest, sha256, version_of
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.bare_runtime import complete_bare, load_bare
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable, OptionError, reason
from tvm_byoc_kit.native import sparing_torch
from tvm_byoc_kit.payload import PAYLOAD_KIND, missing_remedy
from tvm_byoc_kit.staging import is_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CHECKS", "Check", "check_file", "device_probes", "open_library"]

Check = Callable[[Path, Manifest], None]


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
    for check in CHECKS:
        check(path, manifest)
    _load_runtime(manifest)
    _check_loaders(manifest)
    import tvm_ffi

    # Through a link of a new name: the system's loader gives back what it has loaded under the same
    # name before, even when the file there is another by now. TVM's own load_module would resolve
    # the link.
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        link = Path(work) / "artifact.so"
        try:
            link.symlink_to(path.absolute())
            module = tvm_ffi.load_module(str(link), keep_module_alive=_outlives_its_users(manifest))
        except Exception as error:  # the loader raises what the modules inside raise
            raise ArtifactError(f"cannot load {path}: {reason(error)}; export it again") from error
    if PAYLOAD_KIND in manifest.loaders:
        _admit(module, manifest.backend)
    return module


def _outlives_its_users(manifest: Manifest) -> bool:
    """Whether the library stays, since what it made may be freed after its modules.

    An error that is raised in C++ is freed by code of the library that raised it, here of regions
    that are compiled into it. On a GPU, where nothing was run, it stays as TVM has it.
    """
    return bool(manifest.device_code) or bool(manifest.regions and not manifest.loaders)


def _load_runtime(manifest: Manifest) -> None:
    """TVM's runtime, or all of TVM where the artifact takes that.

    Without torch, which takes longer than all else, and which running a model does not need.
    """
    with sparing_torch():
        if _takes_all_of_tvm(manifest) or not load_bare():
            import tvm  # noqa: F401 - the first import decides whether torch comes along


def _takes_all_of_tvm(manifest: Manifest) -> bool:
    """For a GPU, or for tensors of which TVM itself makes arrays."""
    values = (*manifest.inputs, *manifest.outputs)
    on_gpu = "device:cuda" in device_probes(manifest)
    return on_gpu or not all(is_shared(spec.dtype) for spec in values)


def device_probes(manifest: Manifest) -> tuple[str, ...]:
    """Probes of the devices that an artifact runs on besides the CPU."""
    from tvm_byoc_kit.backend import get_backend

    if machine.is_cuda(manifest.target):
        return ("device:cuda",)
    try:
        return get_backend(manifest.backend).requires.get("device", ()) if manifest.loaders else ()
    except OptionError:  # a backend that is not installed, only its runtime
        return ()


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


def check_file(path: Path, manifest: Manifest) -> None:
    """Refuse a library that is not, byte for byte, what was exported."""
    size = manifest.library.get("size")
    if type(size) is not int or sha256(path, size) != manifest.library.get("sha256"):
        raise ArtifactError(f"{path} is damaged: its checksum does not match; export it again")


def _check_machine(path: Path, manifest: Manifest) -> None:
    if manifest.machine != platform.machine():
        raise ArtifactError(
            f"{path} holds code for {manifest.machine}, this machine is {platform.machine()}; "
            "export it for this machine"
        )


def _check_library(path: Path, _manifest: Manifest) -> None:
    if _kind_of_elf(path) != _kind_of_elf(_PYTHON):
        raise ArtifactError(
            f"{path} holds no library for this machine, whatever its manifest says; export it again"
        )


_PYTHON = Path("/proc/self/exe")


def _kind_of_elf(path: Path) -> bytes:
    """Magic, class and byte order, and processor, of the header of a library or program."""
    with path.open("rb") as file:
        header = file.read(20)
    return header[:6] + header[18:]


def _check_cpu(path: Path, manifest: Manifest) -> None:
    missing = machine.missing_cpu_features(manifest.cpu)
    if missing:
        raise ArtifactError(
            f"{path} needs a processor with {', '.join(missing)}, which this one has not; build it "
            'for all processors with target="llvm", or for this one with its own mcpu'
        )


def _check_gpu(path: Path, manifest: Manifest) -> None:
    if not machine.is_cuda(manifest.target):
        return
    driver = probe("cuda-driver")
    if not driver:
        raise BackendUnavailable(manifest.backend, "device", driver.detail, driver.remedy)
    other = machine.why_not_on_gpu(manifest.device_code)
    if other is not None:
        raise ArtifactError(f"{path} {other}; build it for this GPU, on this machine")


def _check_versions(path: Path, manifest: Manifest) -> None:
    built, here = manifest.versions.get("tvm", "unknown"), version_of("tvm")
    if "unknown" not in (built, here) and _minor(built) != _minor(here):
        raise ArtifactError(
            f"{path} was built with apache-tvm {built}, here is {here}; "
            f'pip install "apache-tvm=={built}", or export it again'
        )


# What can be known without TVM, and without running anything of the file; each raises a ByocError.
CHECKS: tuple[Check, ...] = (
    check_file,
    _check_machine,
    _check_cpu,
    _check_gpu,
    _check_versions,
    _check_library,
)


def _check_loaders(manifest: Manifest) -> None:
    if machine.is_cuda(manifest.target):
        cuda = probe("device:cuda")
        if not cuda:
            raise BackendUnavailable(manifest.backend, "device", cuda.detail, cuda.remedy)
    if not manifest.loaders:
        return
    from tvm_byoc_kit.backend import get_backend

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

    if tvm_ffi.get_global_func(name, allow_missing=True) is not None:
        return True
    with sparing_torch():
        complete_bare()  # which loads the plugins of other packages
    return tvm_ffi.get_global_func(name, allow_missing=True) is not None


def _minor(text: str) -> tuple[str, ...]:
    return tuple(text.split(".")[:2])
