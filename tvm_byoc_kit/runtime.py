"""A built model: named inputs in, named outputs out."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.artifact import Manifest, open_library, read_manifest, write_artifact
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.cuda_targets import runs_on
from tvm_byoc_kit.device_library import DeviceLibrary
from tvm_byoc_kit.errors import (
    ArtifactError,
    BackendUnavailable,
    InputError,
    ModelError,
    OptionError,
    reason,
)
from tvm_byoc_kit.native import without_torch
from tvm_byoc_kit.signature import evaluate
from tvm_byoc_kit.staging import Staging, aligned_copy, is_shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["Executable", "checked_inputs", "load"]


@dataclass(frozen=True)
class _Thread:
    """What a thread that runs an Executable has for itself."""

    vm: Any
    call: Any
    staging: Staging | None


class Executable:
    """A built model, fresh from `build` or loaded from an artifact.

    Thread-safe: each thread that calls it gets a virtual machine of its own over the shared code
    and weights.

    Parameters
    ----------
    module : tvm.relax.VMExecutable or tvm.runtime.Module
    manifest : Manifest
    model : ImportedModel, optional
        What it was built from; `verify` takes its reference from there.
    """

    def __init__(self, module: Any, manifest: Manifest, model: ImportedModel | None = None) -> None:
        self._built = module
        self._threads = threading.local()
        self._on_gpu = _is_cuda(manifest.target)
        self.manifest = manifest
        self.model = model

    @property
    def module(self) -> Any:
        """The underlying ``tvm.runtime.Module``."""
        return getattr(self._built, "mod", self._built)

    @property
    def _runnable(self) -> Any:
        """What a virtual machine is made from: an executable is compiled, a library is loaded."""
        return self.module if isinstance(self._built, DeviceLibrary) else self._built

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
        """The ``tvm.relax.VirtualMachine`` of the calling thread.

        Raises
        ------
        BackendUnavailable
            When the code, or a region, is for a GPU and there is none.
        ModelError
            When TVM cannot start the model, for instance with a weight that has no elements.
        """
        return self._this_thread().vm

    def _this_thread(self) -> _Thread:
        thread: _Thread | None = getattr(self._threads, "own", None)
        if thread is None:
            thread = self._threads.own = self._start()
        return thread

    def _start(self) -> _Thread:
        from tvm.runtime.vm import VirtualMachine

        self._check_device()
        device = _device(self.manifest.target)
        try:
            vm = VirtualMachine(self._runnable, device)
        except Exception as error:  # whatever TVM and the regions' runtimes raise
            raise ModelError(f"TVM cannot start the model: {reason(error)}") from error
        staging = None
        if not self._on_gpu and Staging.fits(self.inputs):
            staging = Staging(self.inputs)
        return _Thread(vm, vm[self.manifest.entry], staging)

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
        tensors = thread.staging.fill(inputs) if thread.staging and type(inputs) is dict else None
        if tensors is None:
            tensors = [self._on_device(array) for array in checked_inputs(self.inputs, inputs)]
        try:
            flat = _flatten(thread.call(*tensors))
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

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the artifact, a shared library with its manifest, in one step.

        Raises
        ------
        ArtifactError
            When it cannot be written or linked, or was itself loaded from an artifact.
        """
        if not isinstance(self._built, DeviceLibrary) and self._built is self.module:
            raise ArtifactError(
                "an Executable that was loaded from an artifact cannot be linked again; copy the "
                "artifact's file"
            )
        write_artifact(path, self.manifest, self._built.export_library)

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
        for name in ("device:cuda",) if self._on_gpu else _devices(self.manifest):
            status = probe(name)
            if not status:
                raise BackendUnavailable(
                    self.manifest.backend, "device", status.detail, status.remedy
                )
        if self._on_gpu:
            _check_architecture(self.manifest)

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
    _import_tvm()
    return Executable(open_library(path, manifest), manifest)


def _import_tvm() -> None:
    """Without torch, which takes longer than all else, and which running a model does not need."""
    alone = threading.active_count() == 1  # else another thread may be importing torch just now
    with without_torch() if alone else nullcontext():
        import tvm  # noqa: F401 - the first import decides whether torch comes along


def checked_inputs(specs: Sequence[TensorSpec], inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """`inputs` as arrays in the order of `specs`, which they fit.

    Raises
    ------
    InputError
        When a name, shape or dtype does not fit.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs are a {type(inputs).__name__}; expected a dict from name to array: "
            f"{'; '.join(map(str, specs))}"
        )
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in inputs]
    unknown = [str(name) for name in inputs if name not in names]
    if missing or unknown:
        parts = [f"missing: {', '.join(missing)}"] if missing else []
        parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
        raise InputError(f"inputs do not fit ({'; '.join(parts)}); expected {', '.join(names)}")
    arrays = [_as_numpy(spec, inputs[spec.name]) for spec in specs]
    _check_arrays(specs, arrays)
    return arrays


def _is_cuda(target: str) -> bool:
    return "cuda" in target.split('"kind"', 1)[-1].split(",", maxsplit=1)[0]


def _check_architecture(manifest: Manifest) -> None:
    """That the machine code is for this GPU, which the driver would refuse at the first kernel."""
    import tvm

    held = manifest.device_code.get("machine_code", ())
    device = tvm.cuda(0)
    if held and not runs_on(held, device.compute_version):
        raise BackendUnavailable(
            manifest.backend,
            "device",
            f"the code is for {', '.join(held)}, and this GPU ({device.device_name}) is of compute "
            f"capability {device.compute_version}",
            f"build with target='sm_{device.compute_version.replace('.', '')}'",
        )


def _devices(manifest: Manifest) -> tuple[str, ...]:
    """Probes of the devices that the regions of an artifact run on."""
    from tvm_byoc_kit.backend import get_backend

    try:
        return get_backend(manifest.backend).requires.get("device", ()) if manifest.loaders else ()
    except OptionError:  # a backend that is not installed, only its runtime
        return ()


def _device(target: str) -> Any:
    import tvm

    return tvm.cuda(0) if _is_cuda(target) else tvm.cpu()


def _flatten(result: Any) -> list[Any]:
    if hasattr(result, "numpy"):
        return [result]
    return [leaf for member in result for leaf in _flatten(member)]


def _check_arrays(specs: Sequence[TensorSpec], arrays: Sequence[np.ndarray]) -> None:
    symbols: dict[str, tuple[int, str]] = {}  # size, and the input that it comes from
    for spec, array in zip(specs, arrays, strict=True):
        _check_kind(spec, array)
        for dim, size in zip(spec.shape, array.shape, strict=True):
            if isinstance(dim, str) and dim.isidentifier():
                symbols.setdefault(dim, (size, spec.name))
    sizes = {name: size for name, (size, _) in symbols.items()}
    for spec, array in zip(specs, arrays, strict=True):
        for axis, (dim, found) in enumerate(zip(spec.shape, array.shape, strict=True)):
            size = evaluate(dim, sizes)
            if size is None or found == size:
                continue
            origin = f", as '{dim}' is in input '{symbols[dim][1]}'" if dim in symbols else ""
            raise InputError(
                f"input '{spec.name}' has shape {array.shape}, expected {spec}: axis {axis} must "
                f"be {size}{origin}"
            )


def _check_kind(spec: TensorSpec, array: np.ndarray) -> None:
    if str(array.dtype) != spec.dtype:
        raise InputError(
            f"input '{spec.name}' is {array.dtype}, expected {spec.dtype}; convert it with "
            f'x.astype("{spec.dtype}")'
        )
    if len(array.shape) != len(spec.shape):
        raise InputError(
            f"input '{spec.name}' has shape {array.shape}, expected rank {len(spec.shape)}: {spec}"
        )


def _from_dlpack(spec: TensorSpec, value: Any) -> np.ndarray:
    """`value` as an array; NumPy itself reads no bfloat16, TVM does so through ml_dtypes."""
    import numpy as np

    if spec.dtype != "bfloat16":
        return np.from_dlpack(value)
    import tvm

    array: np.ndarray = tvm.runtime.from_dlpack(value).numpy()
    return array


def _as_numpy(spec: TensorSpec, value: Any) -> np.ndarray:
    import numpy as np

    if isinstance(value, (np.ndarray, np.generic)):
        return np.ascontiguousarray(value).reshape(np.shape(value))
    if not hasattr(value, "__dlpack__"):
        raise InputError(
            f"input '{spec.name}' is a {type(value).__name__}; expected a NumPy array or a DLPack "
            "tensor in CPU memory"
        )
    if hasattr(value, "resolve_neg"):
        value = value.resolve_neg()  # torch negates some views lazily, and exports them unnegated
    try:
        return np.ascontiguousarray(_from_dlpack(spec, value)).reshape(tuple(value.shape))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"input '{spec.name}' cannot be read through DLPack: {error}; give it as a NumPy array "
            "(for torch: x.detach().cpu().numpy())"
        ) from error
