"""A built model: named inputs in, named outputs out."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_byoc_kit.artifact import Manifest, read_manifest, write_artifact
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.bare_runtime import complete_bare
from tvm_byoc_kit.errors import (
    ArtifactError,
    BackendUnavailable,
    InputError,
    ModelError,
    reason,
)
from tvm_byoc_kit.input_checks import checked_inputs
from tvm_byoc_kit.loading import device_probes, open_library
from tvm_byoc_kit.machine import is_cuda, why_not_on_gpu
from tvm_byoc_kit.native import sparing_torch
from tvm_byoc_kit.staging import Staging, aligned_copy, flatten_outputs, is_shared
from tvm_byoc_kit.variant_calls import Lane, VariantCalls

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.dispatch import Plan
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.run_profile import RunProfile
    from tvm_byoc_kit.signature import TensorSpec
    from tvm_byoc_kit.variants import Cost

__all__ = ["STARTED", "Executable", "load"]

STARTED: set[str] = set()  # the backends of the Executables that have run in this process


@dataclass(frozen=True)
class _Thread:
    """What a thread that runs an Executable has for itself."""

    vm: Any
    call: Any
    staging: Staging | None
    lane: Lane


class Executable:
    """A built model, fresh from `build` or loaded from an artifact.

    Thread-safe: each thread that calls it gets a virtual machine of its own over the shared code
    and weights.

    Parameters
    ----------
    module : tvm.relax.VMExecutable, DeviceLibrary or tvm_ffi.Module
        The last of an artifact that was loaded.
    manifest : Manifest
    model : ImportedModel, optional
        What it was built from; `verify` takes its reference from there.
    """

    def __init__(self, module: Any, manifest: Manifest, model: ImportedModel | None = None) -> None:
        self._built = module
        self._threads = threading.local()
        self._on_gpu = is_cuda(manifest.target)
        self._variants = VariantCalls(manifest)
        # Of one build with all sizes fixed there is nothing to find out about a call.
        self._is_open = bool(self._variants.variants.dimensions)
        self.manifest = manifest
        self.model = model

    @property
    def module(self) -> Any:
        """The underlying ``tvm.runtime.Module``; before TVM is imported, a ``tvm_ffi.Module``."""
        module = getattr(self._built, "mod", self._built)
        if "tvm" in sys.modules and self._is_loaded:
            import tvm

            # What was wrapped before TVM was imported has not got TVM's class, which adds methods.
            module.__class__ = tvm.runtime.Module
        return module

    @property
    def _is_loaded(self) -> bool:
        """Whether it is from an artifact."""
        import tvm_ffi

        return isinstance(self._built, tvm_ffi.Module)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes of the inputs, in calling order."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Names, shapes and dtypes of the outputs."""
        return self.manifest.outputs

    @property
    def vm(self) -> Any:
        """The ``tvm.relax.VirtualMachine`` of the calling thread; imports TVM.

        Raises
        ------
        BackendUnavailable
            When the code, or a region, is for a GPU and there is none.
        ModelError
            When TVM cannot start the model, for instance with a weight that has no elements.
        """
        with sparing_torch():
            from tvm.runtime.vm import VirtualMachine

        if not isinstance(self._this_thread().vm, VirtualMachine):
            self._threads.own = self._start(self._whole_machine)
        return self._this_thread().vm

    def _this_thread(self) -> _Thread:
        thread: _Thread | None = getattr(self._threads, "own", None)
        if thread is None:
            bare = self._is_loaded and not self._on_gpu
            thread = self._start(self._bare_machine if bare else self._whole_machine)
            self._threads.own = thread
        return thread

    def _start(self, make_machine: Callable[[], Any]) -> _Thread:
        self._check_device()
        STARTED.add(self.manifest.backend)
        try:
            vm = make_machine()
            call = vm[self.manifest.entry]
        except Exception as error:  # whatever TVM and the regions' runtimes raise
            raise ModelError(f"TVM cannot start the model: {reason(error)}") from error
        staging = None
        if not self._on_gpu and Staging.fits(self.inputs):
            staging = Staging(self.inputs)
        device = _device(self.manifest.target) if self._on_gpu else None
        return _Thread(vm, call, staging, Lane(vm, device, self.outputs))

    def _whole_machine(self) -> Any:
        from tvm.runtime import Executable as Compiled
        from tvm.runtime.vm import VirtualMachine

        source = self._built if isinstance(self._built, Compiled) else self.module
        return VirtualMachine(source, _device(self.manifest.target))

    def _bare_machine(self) -> Any:
        """A virtual machine on the CPU without TVM's Python class for it."""
        try:
            return _start_on_cpu(self._built)
        except Exception:  # it calls what TVM has in Python, such as relax.run.unique
            with sparing_torch():
                if not complete_bare():
                    raise
            return _start_on_cpu(self._built)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Run once.

        Parameters
        ----------
        inputs : mapping of name to array
            NumPy arrays, or anything that speaks DLPack from CPU memory; shapes and dtypes as in
            :attr:`inputs`.

        Returns
        -------
        dict of str to numpy.ndarray

        Raises
        ------
        InputError
            When a name, shape or dtype does not fit.
        BackendUnavailable
            When the code is for a GPU and there is none.
        ModelError
            When the model itself fails, for instance a reshape that does not fit.
        """
        thread = self._this_thread()
        if self._is_open:
            return self._variants.run(thread.lane, inputs)
        tensors = thread.staging.fill(inputs) if thread.staging and type(inputs) is dict else None
        if tensors is None:
            tensors = [self._on_device(array) for array in checked_inputs(self.inputs, inputs)]
        try:
            flat = flatten_outputs(thread.call(*tensors))
        except Exception as error:  # whatever TVM and the regions' runtimes raise
            raise ModelError(f"the model failed while it ran: {reason(error)}") from error
        return {
            spec.name: self._as_array(spec, value)
            for spec, value in zip(self.manifest.outputs, flat, strict=True)
        }

    def __call__(self, *inputs: Any) -> Any:
        """Run on inputs in calling order; one output is given as an array, several as a tuple."""
        if len(inputs) != len(self.inputs):
            raise InputError(
                f"expected {len(self.inputs)} input(s) ({'; '.join(map(str, self.inputs))}), "
                f"got {len(inputs)}"
            )
        results = self.run({spec.name: x for spec, x in zip(self.inputs, inputs, strict=True)})
        values = tuple(results.values())
        return values[0] if len(values) == 1 else values

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Which builds a call with the open dimensions at `sizes` runs, on which rows.

        Parameters
        ----------
        sizes : mapping of name to int
            By the names in :attr:`inputs`; ``batch`` is the dimension on axis 0.

        Raises
        ------
        OptionError
            For a dimension that there is not, or one without a size.
        InputError
            For sizes that cannot be run.
        """
        return self._variants.plan(sizes)

    def measure(self, seconds: float = 1.0) -> tuple[Cost, ...]:
        """Measure here what each build takes, and choose by that from now on.

        An artifact that is exported afterwards holds the costs.

        Parameters
        ----------
        seconds : float
            To spend, about: then the sizes that are left are estimated.

        Returns
        -------
        tuple of Cost
            Empty for an Executable of one build, which has no choice.

        Raises
        ------
        BackendUnavailable
            When it cannot run here.
        """
        from tvm_byoc_kit.measuring import measured_costs

        if not self.manifest.variants:
            return ()
        costs = measured_costs(self._variants, self._this_thread().lane, seconds)
        variants = replace(self.manifest.variants, costs=costs)
        self.manifest = replace(self.manifest, variants=variants)
        self._variants = VariantCalls(self.manifest)
        return costs

    def profile(self, inputs: Mapping[str, Any] | None = None, *, repeats: int = 10) -> RunProfile:
        """Where the time of a run goes: into each region, each host function, and the rest.

        Parameters
        ----------
        inputs : mapping of name to array, optional
            As of `run`; random ones when left out.
        repeats : int
            How many runs to take the times from.

        Raises
        ------
        OptionError
            For fewer than one repeat.
        InputError, BackendUnavailable, ModelError
            As of `run`.
        """
        from tvm_byoc_kit.profiling import profile_runs

        return profile_runs(self, inputs, repeats)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, a shared library with its manifest, in one step.

        Raises
        ------
        ArtifactError
            When it cannot be written or linked, or was itself loaded from an artifact.
        """
        if self._is_loaded:
            raise ArtifactError(
                "an Executable that was loaded from an artifact cannot be linked again; copy the "
                "artifact's file"
            )
        from tvm_byoc_kit.rewriting import bytes_of_constants

        weights = bytes_of_constants(self.model.mod) if self.model else 0
        write_artifact(path, self.manifest, self._built.export_library, weights=weights)

    def _on_device(self, array: np.ndarray) -> Any:
        if is_shared(array.dtype.name) and not self._on_gpu:
            return aligned_copy(array)
        import tvm

        return tvm.runtime.tensor(array, _device(self.manifest.target))

    def _as_array(self, spec: TensorSpec, value: Any) -> np.ndarray:
        """A copy, for the tensor may be one of the weights."""
        import numpy as np

        if self._on_gpu or not is_shared(spec.dtype):
            array: np.ndarray = value.numpy()
            return array
        return np.array(np.from_dlpack(value))

    def _check_device(self) -> None:
        for name in device_probes(self.manifest):
            status = probe(name)
            if not status:
                raise BackendUnavailable(
                    self.manifest.backend, "device", status.detail, status.remedy
                )
        other = why_not_on_gpu(self.manifest.device_code)
        if other is not None:
            raise BackendUnavailable(
                self.manifest.backend, "device", f"it {other}", "build it for this GPU"
            )

    def __reduce__(self) -> NoReturn:
        raise ArtifactError(
            "an Executable cannot be pickled; export it, and `byoc.load` the artifact in the "
            "process that is to run it"
        )

    def __repr__(self) -> str:
        ins, outs = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"<Executable for {self.manifest.backend}: ({ins}) -> ({outs})>"


def load(path: str | os.PathLike[str]) -> Executable:
    """Load an artifact that `Executable.export` wrote.

    Loading runs native code from the file: load only what you trust.

    Raises
    ------
    ArtifactError
        When the file is missing, damaged, or made for another machine or TVM.
    BackendUnavailable
        When the backend's runtime is not here; the message tells how to add it.
    """
    manifest = read_manifest(path)
    return Executable(open_library(path, manifest), manifest)


def _start_on_cpu(library: Any) -> Any:
    machine = library["vm_load_executable"]()
    machine["vm_initialization"](_CPU, 0, _POOLED_ALLOCATOR)
    return machine


_CPU = 1  # as DLPack numbers kinds of devices
_POOLED_ALLOCATOR = 2  # as tvm.runtime.vm.VirtualMachine numbers them


def _device(target: str) -> Any:
    import tvm

    return tvm.cuda(0) if is_cuda(target) else tvm.cpu()
