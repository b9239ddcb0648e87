"""The sides of a benchmark: the kit's build of a model, and what else can run that model."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.building import build
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError, reason
from tvm_byoc_kit.model import kind_of
from tvm_byoc_kit.partitioning import partition
from tvm_byoc_kit.runtime import STARTED

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["KIT", "OTHERS", "Contender", "Job", "Maker", "find_maker", "kit_maker"]

# What the kit builds is called so, with the backend's name: OpenVINO's own API is "openvino".
KIT = "byoc:"


@dataclass(frozen=True)
class Job:
    """What every side is to run.

    Parameters
    ----------
    model : Any
        As it was given to `bench`.
    imported : ImportedModel
        The same, imported.
    arrays : mapping of name to array
        The inputs, in the model's calling order.
    threads : int
    """

    model: Any
    imported: ImportedModel
    arrays: Mapping[str, np.ndarray]
    threads: int


@dataclass(frozen=True)
class Contender:
    """One side, ready to run.

    Parameters
    ----------
    call : callable
        One inference, from inputs that are there to the result in whatever form the side gives.
    arrays : callable
        That result as arrays that stay as they are, in the order of the model's outputs.
    facts : mapping
        What is particular to this side.
    """

    call: Callable[[], Any]
    arrays: Callable[[Any], list[np.ndarray]]
    facts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Maker:
    """What gets a side ready.

    Parameters
    ----------
    name : str
        Of the side.
    check : callable
        Raises BackendUnavailable when the side is not on this machine.
    modules : tuple of str
        Imported beforehand, so that their import is not counted as time or memory of the model.
    package : str
        That gives the side's version.
    make : callable
        From the job to the contender.
    imports : bool
        Whether it starts from the imported model; else it reads the model itself.
    """

    name: str
    check: Callable[[], None]
    modules: tuple[str, ...]
    package: str
    make: Callable[[Job], Contender]
    imports: bool = False

    @property
    def version(self) -> str:
        """Version of the package behind the side."""
        return importlib.metadata.version(self.package)

    def __call__(self, job: Job) -> Contender:
        """Get the side ready.

        Raises
        ------
        ModelError
            When the side cannot take the model.
        """
        try:
            return self.make(job)
        except (BackendUnavailable, ModelError, OptionError):
            raise
        except Exception as error:  # each library raises its own
            raise ModelError(f"{self.name} cannot take the model: {reason(error)}") from error


def find_maker(name: str) -> Maker:
    """The side called `name`: one of `OTHERS`, or ``byoc:<backend>``.

    Raises
    ------
    OptionError
        When there is none of that name.
    """
    if name.startswith(KIT):
        return kit_maker(get_backend(name.removeprefix(KIT)))
    if name not in OTHERS:
        raise OptionError(
            f"cannot compare with '{name}'; expected {', '.join(OTHERS)}, or {KIT}<backend> for "
            "another backend of the kit"
        )
    return OTHERS[name]


def kit_maker(backend: Backend, options: Mapping[str, Any] | None = None) -> Maker:
    """The kit's build for `backend`, with the codegen's `options`."""
    return Maker(
        name=f"{KIT}{backend.name}",
        check=lambda: backend.require("device"),
        modules=("tvm",),
        package="apache-tvm",
        make=functools.partial(_make_kit, backend=backend, options=dict(options or {})),
        imports=True,
    )


def _make_kit(job: Job, backend: Backend, options: dict[str, Any]) -> Contender:
    if "threads" in getattr(backend.options, "__dataclass_fields__", ()):
        options = {"threads": job.threads, **options}
    parts = partition(job.imported, backend)
    exe = build(parts, options=options or None)
    coverage = parts.coverage
    return Contender(
        call=functools.partial(exe.run, job.arrays),
        arrays=lambda result: list(result.values()),
        facts={
            "regions": len(coverage.regions),
            "ops_offloaded": coverage.offloaded,
            "ops_total": coverage.total,
        },
    )


def _make_tvm(job: Job) -> Contender:
    import tvm
    from tvm.runtime.vm import VirtualMachine

    module = job.imported.unprepared or job.imported.mod
    entry = VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())[job.imported.entry]
    tensors = [tvm.runtime.tensor(array) for array in job.arrays.values()]
    return Contender(
        call=functools.partial(entry, *tensors),
        arrays=lambda result: [tensor.numpy() for tensor in _leaves(result, tvm.runtime.Tensor)],
    )


def _make_onnxruntime(job: Job) -> Contender:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    for kind in ("intra", "inter"):
        options.add_session_config_entry(f"session.{kind}_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        _onnx_source(job, "onnxruntime"), options, providers=["CPUExecutionProvider"]
    )
    feed = {value.name: job.arrays[value.name] for value in session.get_inputs()}
    return Contender(
        call=functools.partial(session.run, None, feed),
        arrays=lambda result: [np.asarray(value) for value in result],
    )


def _make_openvino(job: Job) -> Contender:
    import numpy as np
    import openvino

    core = openvino.Core()
    model = core.read_model(_onnx_source(job, "openvino"))
    model.reshape(
        {
            spec.name: [dim if isinstance(dim, int) else -1 for dim in spec.shape]
            for spec in job.imported.inputs
        }
    )
    config = {
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    STARTED.add("openvino")
    request = core.compile_model(model, "CPU", config).create_infer_request()
    call = functools.partial(request.infer, dict(job.arrays), share_inputs=True, share_outputs=True)
    return Contender(
        call=call,
        # Copies: the request gives views of its own memory, which its next call overwrites.
        arrays=lambda result: [np.array(value) for value in result.values()],
    )


def _make_torch(job: Job) -> Contender:
    import torch

    module = _torch_module(job)
    torch.set_num_threads(job.threads)
    tensors = [torch.from_numpy(array.copy()) for array in job.arrays.values()]
    # The mode is per thread and entered at each call: the other sides shall not run in it.
    call = torch.inference_mode()(functools.partial(module, *tensors))
    return Contender(
        call=call,
        arrays=lambda result: [value.numpy().copy() for value in _leaves(result, torch.Tensor)],
    )


def _torch_module(job: Job) -> Any:
    if job.imported.source != "torch" or kind_of(job.model) != "torch":
        raise ModelError(
            f"torch runs PyTorch models, and this one is {job.imported.source}; give the module or "
            "its .pt2 file, or leave torch out"
        )
    import torch

    program = job.model
    if isinstance(program, (str, os.PathLike)):
        program = torch.export.load(os.fspath(program))
    return program.module() if isinstance(program, torch.export.ExportedProgram) else program


def _onnx_source(job: Job, side: str) -> Any:
    """The file's path, or the model as bytes."""
    if kind_of(job.model) != "onnx":
        raise ModelError(
            f"{side} is compared on ONNX models, and this one is {job.imported.source}; export it "
            "(for PyTorch: torch.onnx.export) and give the file"
        )
    if isinstance(job.model, (str, os.PathLike)):
        return os.fspath(job.model)
    return job.model.SerializeToString()


def _leaves(result: Any, kind: type) -> list[Any]:
    if isinstance(result, kind):
        return [result]
    members: Sequence[Any] = list(result.values() if isinstance(result, Mapping) else result)
    return [leaf for member in members for leaf in _leaves(member, kind)]


def _other(
    name: str, package: str, make: Callable[[Job], Contender], *, imports: bool = False
) -> Maker:
    return Maker(
        name, lambda: probe(name).require(name, "runtime"), (name,), package, make, imports
    )


# By the name that `--against` takes.
OTHERS: Mapping[str, Maker] = {
    maker.name: maker
    for maker in (
        _other("onnxruntime", "onnxruntime", _make_onnxruntime),
        _other("openvino", "openvino", _make_openvino),
        _other("tvm", "apache-tvm", _make_tvm, imports=True),
        _other("torch", "torch", _make_torch),
    )
}
