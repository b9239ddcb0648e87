"""Build: run the backend's codegen and compile what stays on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.artifact import Manifest, versions
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.cuda_targets import find_cuda_target, known_names, runs_on
from tvm_byoc_kit.cuda_toolkit import base_of
from tvm_byoc_kit.device_build import build_for_gpu
from tvm_byoc_kit.device_library import DeviceLibrary
from tvm_byoc_kit.errors import ByocError, ModelError, OptionError, reason
from tvm_byoc_kit.model import as_model
from tvm_byoc_kit.partitioning import Partition, partition
from tvm_byoc_kit.python_codegen import take_raised
from tvm_byoc_kit.rewriting import bindings_of, host_functions, op_name, read_variables
from tvm_byoc_kit.runtime import Executable
from tvm_byoc_kit.wide_functions import legalize_unfused_joins

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm import IRModule
    from tvm.target import Target

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.cuda_targets import CudaTarget
    from tvm_byoc_kit.policy import PartitionPolicy

__all__ = ["build", "compile"]


def build(
    partition: Partition | Any,
    target: str | Target | Sequence[str] | None = None,
    options: Any = None,
) -> Executable:
    """Compile a partitioned model.

    Parameters
    ----------
    partition : Partition, tvm.IRModule, or anything that `load_model` takes alone
        A plain IRModule may hold regions already; their backend is read off the module.
    target : str, tvm.target.Target or sequence of str, optional
        Of the host part; None: the backend's own default. For GPUs by their names, or by several:
        ``"a100"``, ``["a100", "h100"]`` (see `cuda_targets.find_cuda_target`).
    options : mapping or the backend's options dataclass, optional
        Given to the backend's codegen.

    Raises
    ------
    BackendUnavailable
        When the codegen, or the compiler for `target`, is not on this machine.
    OptionError
        For options that the backend does not have, a GPU that is not known, or a `target` whose
        memory the backend cannot read.
    ModelError
        When TVM cannot compile the model.
    """
    parts = partition if isinstance(partition, Partition) else _as_partition(partition)
    backend = parts.backend
    others = region_backends(parts.mod) - {backend.name}
    if others:
        raise ModelError(
            f"the module has regions of {', '.join(sorted(others))} already and cannot be built "
            f"for '{backend.name}'; start from the module before it was partitioned"
        )
    codegen_options = backend.make_options(options)
    backend.require("codegen")
    cuda = find_cuda_target(target or backend.target)
    codegen_options = _with_architectures(backend, codegen_options, cuda)
    if backend.complete is not None and region_backends(parts.mod):
        codegen_options = backend.complete(codegen_options, parts.model)
    host = cuda.target if cuda else _as_target(target or backend.target)
    _check_memory(parts, host)
    module = _compile(parts, host, codegen_options, cuda)
    manifest = Manifest(
        inputs=parts.model.inputs,
        outputs=parts.model.outputs,
        entry=parts.model.entry,
        backend=backend.name,
        target=str(host),
        options=codegen_options,
        loaders=backend.loaders if region_backends(parts.mod) else (),
        package=backend.package,
        versions=versions(),
        device_code=module.to_dict() if isinstance(module, DeviceLibrary) else {},
    )
    return Executable(module, manifest, parts.model)


def compile(  # noqa: A001 - the verb that torch and tvm use too
    model: Any,
    backend: str | Backend,
    *,
    policy: PartitionPolicy | Mapping[str, Any] | None = None,
    target: str | Target | Sequence[str] | None = None,
    options: Any = None,
    bind_constants: bool | None = None,
    annotate_codegen: bool | None = None,
    prepare: bool | None = None,
) -> Executable:
    """`prepare` (a plain IRModule too), `partition`, then `build`; parameters as there."""
    parts = partition(
        as_model(model),
        backend,
        policy=policy,
        bind_constants=bind_constants,
        annotate_codegen=annotate_codegen,
        prepare=prepare,
    )
    return build(parts, target, options)


def _as_partition(module: Any) -> Partition:
    """A plain module as a Partition, with the backend of the regions that it already has."""
    model = as_model(module)
    names = region_backends(model.mod)
    if len(names) > 1:
        raise ModelError(
            f"the module has regions of several backends: {', '.join(sorted(names))}; "
            "partition and build it for one"
        )
    return Partition(model.mod, get_backend(names.pop() if names else "llvm"), model)


def region_backends(mod: IRModule) -> set[str]:
    """Names of the backends that `mod` has regions of."""
    return {
        str(function.attrs["Codegen"])
        for function in mod.functions.values()
        if function.attrs and "Codegen" in function.attrs
    }


def _check_memory(parts: Partition, target: Target) -> None:
    """Refuse a host part on a GPU for regions that take tensors in CPU memory."""
    reads_cpu = parts.backend.target == "llvm" and not parts.backend.gpu_memory
    if region_backends(parts.mod) and reads_cpu and "gpu" in target.keys:
        raise OptionError(
            f"target '{target.kind.name}' keeps tensors in GPU memory, backend "
            f"'{parts.backend.name}' reads CPU memory; build it with target='llvm'"
        )


def _with_architectures(
    backend: Backend, options: dict[str, Any], cuda: CudaTarget | None
) -> dict[str, Any]:
    """The options of a backend that compiles for GPUs itself, with what it is to compile for."""
    takes_them = "architectures" in getattr(backend.options, "__dataclass_fields__", ())
    if cuda is None or not takes_them:
        return options
    bases = dict.fromkeys(map(base_of, cuda.architectures))
    if chosen := options.get("architectures"):
        left_out = [arch for arch in bases if not runs_on(chosen, arch.removeprefix("sm_"))]
        if left_out:
            raise OptionError(
                f"{backend.name} option architectures={tuple(chosen)!r}: its kernels would not run "
                f"on {', '.join(left_out)}, which the target names; leave the option out"
            )
        return options
    return backend.make_options({**options, "architectures": tuple(bases)})


def _as_target(target: Any) -> Target:
    from tvm.target import Target

    try:
        return Target(target)
    except Exception as error:  # the parser raises many types
        raise ModelError(
            f"unknown target {target!r}: {reason(error)}; GPUs have these names: {known_names()}"
        ) from error


def _compile(
    partitioned: Partition, target: Target, options: dict[str, Any], cuda: CudaTarget | None
) -> Any:
    from tvm import relax

    mod = partitioned.mod
    where = partitioned.model.origin or "the module"
    take_raised()
    try:
        if region_backends(mod):
            run_codegen = relax.transform.RunCodegen(
                target_options={partitioned.backend.name: options} if options else None
            )
            with target:  # which a codegen may ask for
                mod = run_codegen(mod)
            mod = _without_unread_constants(mod)
        return build_for_gpu(mod, cuda, where) if cuda else _build_host(mod, target)
    except ByocError:
        raise
    except Exception as error:  # TVM raises InternalError, ValueError, TypeError …
        raised = take_raised()
        if raised is not None and not isinstance(raised, ModelError):
            raise raised from None
        raise ModelError(
            f"TVM cannot build {where} for backend '{partitioned.backend.name}', target "
            f"'{target.kind.name}': {reason(error)}"
        ) from error


def _without_unread_constants(mod: IRModule) -> IRModule:
    """Drop the constants that no region's module asks for, which TVM would store all the same."""
    constants = mod.get_attr("const_name_to_constant")
    if not constants:
        return mod
    read = {
        str(name)
        for module in mod.get_attr("external_mods")
        if module.implements_function("get_const_vars")
        for name in module.get_function("get_const_vars")()
    }
    kept = {name: value for name, value in constants.items() if str(name) in read}
    return mod.with_attr("const_name_to_constant", kept)


def _build_host(mod: IRModule, target: Target) -> Any:
    """Compile the host part, fused where that is safe and TVM can do it.

    ``relax.build`` fuses for GPUs only. On CPUs it takes a generic pipeline, since the one of the
    target drops ``call_pure_packed`` calls whose results nobody reads, and some rely on their side
    effects (the comment there); calls of regions are read, and so stay. What the target's pipeline
    cannot compile, the generic one may. Constants are left as they are: `prepare` has folded them,
    and ``FoldConstant`` knows no limit and ends the process on an integer division by zero.
    """
    import tvm
    from tvm import relax

    if not _has_unread_packed_call(mod):
        try:
            with tvm.transform.PassContext(opt_level=3, disabled_pass=["FoldConstant"]):
                return relax.build(
                    legalize_unfused_joins(mod, target),
                    target,
                    relax_pipeline=relax.get_default_pipeline(target),
                )
        except Exception:  # noqa: BLE001, S110 - the build below works, or says why not
            pass
    with tvm.transform.PassContext(opt_level=3):
        return relax.build(mod, target)


_PACKED_CALLS = frozenset({"relax.call_pure_packed", "relax.call_dps_packed"})


def _has_unread_packed_call(mod: IRModule) -> bool:
    """Whether a call of an external function has a result that nobody reads."""
    for _, function in host_functions(mod):
        bindings = list(bindings_of(function))
        calls = [binding.var for binding in bindings if op_name(binding.value) in _PACKED_CALLS]
        if calls and not set(calls) <= read_variables(function).keys():
            return True
    return False
