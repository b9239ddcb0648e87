"""What the child process of a build for GPUs does."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import cuda_toolkit, native, toolchain

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.target import Target
    from tvm.transform import Pass

    from tvm_byoc_kit.child_process import Report
    from tvm_byoc_kit.cuda_targets import CudaTarget
    from tvm_byoc_kit.cuda_toolkit import CudaToolkit

__all__ = ["Job", "compile_module", "usable_toolkit"]

_DRIVER = "libcuda.so.1"
_STUB = native.LIB_DIR / "stubs" / _DRIVER
_CUDART = "libcudart.so.13"  # of the CUDA version that TVM's wheel is built for
_NVCC_OPTIONS = ("-fatbin", "-O3", "-std=c++17", "-w", "--threads=0")  # as many as there are cores
_COMPILE = "tvm_callback_cuda_compile"  # the global function that TVM gives its CUDA source to


@dataclass(frozen=True)
class Job:
    """What is to be compiled, and how.

    Parameters
    ----------
    mod : tvm.IRModule
    cuda : CudaTarget
    toolkit : CudaToolkit, optional
        What compiles the kernels; None: they stay source.
    output : pathlib.Path
        The library to write.
    tensor_cores : bool
        Whether TVM may schedule matrix products for them.
    """

    mod: IRModule
    cuda: CudaTarget
    toolkit: CudaToolkit | None
    output: Path
    tensor_cores: bool = True


def usable_toolkit(
    toolkit: CudaToolkit | str, architectures: Sequence[str]
) -> tuple[CudaToolkit | None, str]:
    """The toolkit with which a child can compile kernels, or None and the reason.

    Raises
    ------
    ModelError
        When the toolkit does not know one of the architectures.
    """
    if isinstance(toolkit, str):
        return None, f"{toolkit} (`tvm-byoc doctor` tells what to do)"
    toolkit.code_options(architectures)
    if _find_cudart(toolkit) is None:
        return None, f"{toolkit} has no {_CUDART}, which TVM needs to take machine code"
    if _find_driver() is None:
        return (
            None,
            "there is neither a driver nor the kit's stub of it, which g++ builds at install",
        )
    return toolkit, ""


def compile_module(job: Job, report: Report) -> None:
    """Compile a module and link it; `report` is told phase, steps done, steps and what is done."""
    import tvm
    from tvm import relax

    if job.toolkit is None:
        os.environ["TVM_COMPILE_FORCE_FALLBACK"] = "1"
    else:
        _load_cuda_runtime(job.toolkit)
        _compile_kernels_with(job.toolkit, job.cuda.architectures, report)
    target = job.cuda.target
    with target, tvm.transform.PassContext(opt_level=3, disabled_pass=["FoldConstant"]):
        pipeline = _pipeline(target, report, tensor_cores=job.tensor_cores)
        executable = relax.build(job.mod, target, relax_pipeline=pipeline)
    report("linking", 0, 1, "linking")
    executable.export_library(str(job.output))
    report("linking", 1, 1, "linking")


def _load_cuda_runtime(toolkit: CudaToolkit) -> None:
    """Load what makes TVM keep machine code, with the stub where there is no driver."""
    import tvm
    import tvm_ffi

    if tvm_ffi.get_global_func("ffi.Module.create.cuda", allow_missing=True) is not None:
        return
    ctypes.CDLL(str(_find_cudart(toolkit)), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(_find_driver(), ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(Path(tvm.__file__).parent / "lib" / "libtvm_runtime_cuda.so"))


def _find_cudart(toolkit: CudaToolkit) -> Path | None:
    beside_pip = toolchain.pip_cuda() / "lib" / _CUDART
    return toolkit.find_library(_CUDART) or (beside_pip if beside_pip.is_file() else None)


def _find_driver() -> str | None:
    """The driver's library or, where there is none, the stub."""
    try:
        ctypes.CDLL(_DRIVER)
    except OSError:
        return str(_STUB) if _STUB.is_file() else None
    return _DRIVER


def _compile_kernels_with(
    toolkit: CudaToolkit, architectures: Sequence[str], report: Report
) -> None:
    import tvm_ffi

    def compile_source(code: str) -> bytes:
        report("nvcc", 0, 1, "nvcc")
        with tempfile.TemporaryDirectory(prefix="byoc-") as work:
            source, binary = Path(work, "kernels.cu"), Path(work, "kernels.fatbin")
            source.write_text(code, encoding="utf-8")
            options = [*_NVCC_OPTIONS, *toolkit.code_options(architectures)]
            toolkit.run([*options, str(source), "-o", str(binary)])
            report("nvcc", 1, 1, "nvcc")
            return binary.read_bytes()

    tvm_ffi.register_global_func(_COMPILE, compile_source, override=True)


def _pipeline(target: Any, report: Report, *, tensor_cores: bool) -> Pass:
    """TVM's own pipeline for CUDA, its functions scheduled one by one."""
    import tvm
    from tvm.relax.backend.cuda import pipeline

    *legalize, schedule = pipeline.legalize_passes(target)
    return tvm.transform.Sequential(
        [
            *pipeline.library_dispatch_passes(target),
            *legalize,
            _scheduling(schedule, report, tensor_cores=tensor_cores),
            *pipeline.dataflow_lower_passes(target),
            *pipeline.finalize_passes(target),
        ]
    )


def _scheduling(schedule: Pass, report: Report, *, tensor_cores: bool) -> Pass:
    """`schedule` for one function after the other, so that it is known which one it crashes on."""
    import tvm
    from tvm.tirx import PrimFunc

    def transform(mod: IRModule, _context: Any) -> IRModule:
        functions = [(v, f) for v, f in mod.functions_items() if isinstance(f, PrimFunc)]
        for done, (var, function) in enumerate(functions):
            report("scheduling", done, len(functions), f"function {var.name_hint}")
            with _scheduled_for(tensor_cores=tensor_cores):
                mod.update_func(var, schedule(tvm.IRModule({var: function}))[var])
        report("scheduling", len(functions), len(functions), "lowering")
        return mod

    return tvm.transform.module_pass(transform, opt_level=0)


def _scheduled_for(*, tensor_cores: bool) -> Target:
    """The target of the schedules: TVM leaves the tensor cores of one with a suffix alone."""
    from tvm.target import Target

    target = Target.current()
    if tensor_cores:
        return target
    attributes = json.loads(str(target))
    return Target({**attributes, "arch": f"{cuda_toolkit.base_of(attributes['arch'])}a"})
