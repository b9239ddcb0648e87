"""Builds for GPUs, in a child process: TVM's schedules for them crash on some models.

The child (`device_compile`) compiles the model, its kernels to machine code where a CUDA toolkit
is, and links the library; this process keeps the file. After a crash another child does without
what TVM writes for tensor cores.
"""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm_byoc_kit import device_compile
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.build_progress import showing
from tvm_byoc_kit.child_process import ChildFailed, run_in_child
from tvm_byoc_kit.cuda_toolkit import find_toolkit
from tvm_byoc_kit.device_library import DeviceLibrary
from tvm_byoc_kit.errors import BackendUnavailable, ModelError

if TYPE_CHECKING:
    from tvm import IRModule

    from tvm_byoc_kit.build_progress import Display
    from tvm_byoc_kit.cuda_targets import CudaTarget

__all__ = ["build_for_gpu"]

SECONDS = 3600.0  # that one step of a build may take


@dataclass(frozen=True)
class _Build:
    """What is built, for messages, and what the child is told."""

    what: str
    display: Display
    job: device_compile.Job


def build_for_gpu(mod: IRModule, cuda: CudaTarget, what: str) -> DeviceLibrary:
    """Compile and link a module for GPUs; the codegen of its regions has run before.

    Parameters
    ----------
    mod : tvm.IRModule
    cuda : CudaTarget
    what : str
        The model, for messages.

    Warns
    -----
    UserWarning
        When the kernels stay source, or do without tensor cores.

    Raises
    ------
    BackendUnavailable
        When there is no C++ compiler, which links.
    ModelError
        When TVM or nvcc cannot compile it.
    """
    compiler = probe("compiler")
    if not compiler:
        raise BackendUnavailable("cuda", "codegen", compiler.detail, compiler.remedy)
    toolkit, why = device_compile.usable_toolkit(find_toolkit(), cuda.architectures)
    library = DeviceLibrary()
    job = device_compile.Job(mod, cuda, toolkit, library.path)
    with showing(what, wanted=True) as display:
        notes = _attempts(_Build(what, display, job))
    library.notes = (*([f"{why}: {_SOURCE_FORM}"] if why else []), *notes)
    missing = set(cuda.architectures) - set(library.code.machine_code)
    if toolkit and library.code and missing:
        raise ModelError(f"{what}: {toolkit} made no code for {', '.join(sorted(missing))}")
    for note in library.notes:
        warnings.warn(f"{what}: {note}", stacklevel=5)  # who calls `build`
    return library


_SOURCE_FORM = (
    "the kernels are kept as CUDA source, which is compiled when the artifact is loaded, so that "
    "machine needs nvcc or NVRTC"
)


def _attempts(build: _Build) -> list[str]:
    """Build with tensor cores, or else without; what is to be said of it."""
    first = _attempt(build)
    if first is None:
        return []
    second = _attempt(replace(build, job=replace(build.job, tensor_cores=False)))
    if second is None:
        note = f"built without TVM's schedules for tensor cores, which failed: {first}"
        return [f"{note}; its matrix products take longer so"]
    advice = _FOR_NVCC if second.startswith("nvcc: ") else _FOR_TVM
    raise ModelError(
        f"TVM cannot compile {build.what} for {', '.join(build.job.cuda.architectures)}: {second}. "
        f"{advice}"
    )


_FOR_TVM = (
    "Keep that operator out of this build (policy exclude_ops), or give it to a backend that has it"
)
_FOR_NVCC = "Another CUDA toolkit is named with CUDA_PATH, another host compiler with CXX"


def _attempt(build: _Build) -> str | None:
    """Let a child do the job; gives where and why it failed, or None."""
    at = "the beginning"

    def listen(phase: str, done: int, steps: int, name: str) -> None:
        nonlocal at
        at = name
        build.display(phase, done, steps)

    work = functools.partial(device_compile.compile_module, build.job)
    try:
        run_in_child(work, listen, limit=SECONDS)
    except ChildFailed as failure:
        return f"{at}: {failure}"
    return None
