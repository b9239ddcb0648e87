"""Build: run the backend's codegen and compile what stays on the host."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.artifact import Manifest, versions
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.cuda_targets import find_cuda_target, runs_on
from tvm_byoc_kit.cuda_toolkit import base_of
from tvm_byoc_kit.device_build import build_for_gpu
from tvm_byoc_kit.device_library import DeviceLibrary
from tvm_byoc_kit.errors import ByocError, ModelError, OptionError, reason
from tvm_byoc_kit.machine import cpu_features
from tvm_byoc_kit.masked_padding import try_masking
from tvm_byoc_kit.model import as_model, load_model
from tvm_byoc_kit.open_dimensions import named_sizes, shapes_for
from tvm_byoc_kit.other_targets import make_target
from tvm_byoc_kit.partitioning import Partition, partition
from tvm_byoc_kit.python_codegen import take_raised
from tvm_byoc_kit.region_names import region_composites
from tvm_byoc_kit.rewriting import bindings_of, host_functions, op_name, read_variables
from tvm_byoc_kit.runtime import Executable
from tvm_byoc_kit.specialization import specialize
from tvm_byoc_kit.wide_functions import legalize_unfused_joins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tvm import IRModule
    from tvm.target import Target
    from tvm.transform import Pass

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.buckets import Buckets, Profile, Sizes
    from tvm_byoc_kit.cuda_targets import CudaTarget
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.policy import PartitionPolicy
    from tvm_byoc_kit.specialization import Specialization

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
        For options that the backend does not have, a `target` that is not known or that this TVM
        was built without, or one whose memory the backend cannot read.
    ModelError
        When TVM cannot compile the model.
    """
    parts = partition if isinstance(partition, Partition) else _as_partition(partition)
    return Executable(*_compiled(parts, target, options), parts.model)


def _compiled(parts: Partition, target: str | Target | None, options: Any) -> tuple[Any, Manifest]:
    backend = parts.backend
    others = region_backends(parts.mod) - {backend.name}
    if others:
        raise ModelError(
            f"the module has regions of {', '.join(sorted(others))} already and cannot be built "
            f"for '{backend.name}'; start from the module before it was partitioned"
        )
    codegen_options = backend.make_options(options)
    backend.require("codegen")
    chosen = backend.target if target is None else target
    cuda = find_cuda_target(chosen)
    codegen_options = _with_architectures(backend, codegen_options, cuda)
    if backend.complete is not None and region_backends(parts.mod):
        codegen_options = backend.complete(codegen_options, parts.model)
    host = cuda.target if cuda else make_target(chosen)
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
        regions=region_composites(parts.mod),
        cpu=cpu_features(host),
        device_code=module.to_dict() if isinstance(module, DeviceLibrary) else {},
    )
    return module, manifest


def compile(  # noqa: A001 - the verb that torch and tvm use too
    model: Any,
    backend: str | Backend,
    *,
    batch: Buckets | Profile | None = None,
    sizes: Sizes | None = None,
    policy: PartitionPolicy | Mapping[str, Any] | None = None,
    target: str | Target | Sequence[str] | None = None,
    options: Any = None,
    bind_constants: bool | None = None,
    annotate_codegen: bool | None = None,
    prepare: bool | None = None,
) -> Executable:
    """`prepare` (a plain IRModule too), `partition`, then `build`; parameters as there, and two.

    Parameters
    ----------
    batch : Buckets or Profile, optional
        What to be fast at along axis 0 of the inputs.
    sizes : mapping of name to Buckets or Profile, optional
        The same for any open dimension, by its name.

    Raises
    ------
    ModelError
        Also when the inputs have no such open dimension, or cannot be padded along it.
    OptionError
        Also for sizes that the model does not take, or of more combinations than one artifact
        shall hold.
    """
    chosen = get_backend(backend)
    imported = load_model(model, shapes=shapes_for(model, batch, sizes))

    def partitioned(part: ImportedModel) -> Partition:
        return partition(
            part,
            chosen,
            policy=policy,
            bind_constants=bind_constants,
            annotate_codegen=annotate_codegen,
            prepare=prepare,
        )

    named = named_sizes(imported, batch, sizes)
    return compile_sizes(imported, chosen, named, partitioned, target=target, options=options)[0]


def compile_sizes(
    model: ImportedModel,
    backend: Backend,
    sizes: Sizes,
    partition: Callable[[ImportedModel], Partition],
    *,
    target: str | Target | None = None,
    options: Any = None,
) -> tuple[Executable, Partition]:
    """What `compile` does with a function that prepares and partitions.

    Returns
    -------
    Executable
    Partition
        Of the build that leaves all sizes open, or else of the one for the smallest.
    """
    if not sizes:
        parts = partition(model)
        return build(parts, target, options), parts
    special = specialize(model, backend, sizes, partition)
    if special.profiles:
        options = _with_profiles(options, special.profiles)
    merged, variants = special.partition, special.variants
    module, manifest = _compiled(merged, target, options)
    _try_masks(special, module, manifest)
    manifest = replace(manifest, entry=variants.builds[0].entry, variants=variants)
    exe = Executable(module, manifest, merged.model)
    if len(variants.builds) > 1:
        _measure(exe, backend)
    return exe, special.parts[0]


_MEASURING = 10.0  # seconds at most, more or less; a small model is done in a fraction of one


def _measure(exe: Executable, backend: Backend) -> None:
    """Measure what the builds cost, which decides between them, where that can be done."""
    if not backend.check("device"):
        return
    try:
        exe.measure(_MEASURING)
    except ByocError as error:
        warnings.warn(
            f"what the builds cost could not be measured, so the least padding wins: {error}; "
            "Executable.measure tries it again",
            stacklevel=4,
        )


def _try_masks(special: Specialization, module: Any, manifest: Manifest) -> None:
    """Try the inputs that are said to mask what is padded: on the backend if it is here."""
    fills = {name: item.fill for name, item in special.variants.dimensions.items() if item.fill}
    if not fills:
        return
    runs_here = bool(special.partition.backend.check("device"))

    @functools.cache
    def build_of(entry: str | None) -> Executable:
        if entry is None:
            return compile(special.model, "llvm")
        return Executable(module, replace(manifest, entry=entry))

    def run(fixed: Mapping[str, int], inputs: Mapping[str, Any]) -> dict[str, Any]:
        builds = (build.entry for build in special.variants.builds if build.sizes == fixed)
        return build_of(next(builds, None) if runs_here else None).run(inputs)

    for name, fill in fills.items():
        try_masking(special.model, special.sizes, name, fill, run)


def _with_profiles(options: Any, profiles: Any) -> dict[str, Any]:
    given = dict(options if isinstance(options, Mapping) else vars(options)) if options else {}
    if given.get("profiles"):
        raise OptionError(
            "batch= and sizes= give the ranges of sizes, and the option profiles does so too; "
            "leave one of them out"
        )
    return {**given, "profiles": profiles}


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
    """Refuse a host part on a GPU for regions that take tensors in CPU memory, and vice versa."""
    if parts.backend.target == "cuda" and "gpu" not in target.keys:
        raise OptionError(
            f"target '{target.kind.name}' is no GPU, and backend '{parts.backend.name}' makes code "
            "for GPUs; name some, such as target='a100', or take backend='llvm'"
        )
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
        left_out = [arch for arch in bases if not runs_on(chosen, int(arch.removeprefix("sm_")))]
        if left_out:
            raise OptionError(
                f"{backend.name} option architectures={tuple(chosen)!r}: its kernels would not run "
                f"on {', '.join(left_out)}, which the target names; leave the option out"
            )
        return options
    return backend.make_options({**options, "architectures": tuple(bases)})


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
                    relax_pipeline=_restricting(relax.get_default_pipeline(target)),
                )
        except Exception:  # noqa: BLE001, S110 - the build below works, or says why not
            pass
    with tvm.transform.PassContext(opt_level=3):
        return relax.build(mod, target)


def _restricting(pipeline: Pass) -> Pass:
    """`pipeline`, and the word that a function of one array has no others to overlap with.

    Unless a function of several, such as a user's own, does not say that of them.

    Whether LLVM may assume that arrays do not overlap, TVM takes for all functions of a module from
    the one whose name sorts last (apache-tvm 0.27: ``is_restricted_`` in
    ``src/target/llvm/codegen_llvm.cc``). Where sizes are open that is ``shape_func``, which
    computes them and does not say; a convnet took a fifth more time for it.
    """
    import tvm
    from tvm import tirx

    def mark(mod: IRModule, _context: Any) -> IRModule:
        silent = [
            (var, function)
            for var, function in mod.functions_items()
            if isinstance(function, tirx.PrimFunc)
            and not (function.attrs and function.attrs.get("tirx.noalias"))
        ]
        if all(len(function.params) == 1 for _, function in silent):
            for var, function in silent:
                mod.update_func(var, function.with_attr("tirx.noalias", True))
        return mod

    marking = tvm.transform.module_pass(mark, opt_level=0, name="byoc_restricting")
    return tvm.transform.Sequential([pipeline, marking])


_PACKED_CALLS = frozenset({"relax.call_pure_packed", "relax.call_dps_packed"})


def _has_unread_packed_call(mod: IRModule) -> bool:
    """Whether a call of an external function has a result that nobody reads."""
    for _, function in host_functions(mod):
        bindings = list(bindings_of(function))
        calls = [binding.var for binding in bindings if op_name(binding.value) in _PACKED_CALLS]
        if calls and not set(calls) <= read_variables(function).keys():
            return True
    return False
