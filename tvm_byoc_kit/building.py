"""Build: run the backend's codegen and compile what stays on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.artifact import Manifest, versions
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.errors import ModelError, reason
from tvm_byoc_kit.partitioning import Partition, partition
from tvm_byoc_kit.runtime import Executable

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.target import Target

    from tvm_byoc_kit.backend import Backend

__all__ = ["build", "compile"]


def build(
    partitioned: Partition | Any,
    target: str | Target | None = None,
    options: Any = None,
) -> Executable:
    """Compile a partitioned model.

    Parameters
    ----------
    partitioned : Partition, tvm.IRModule, or anything that `load_model` takes alone
        A plain IRModule may hold regions already; their backend is read off the module.
    target : str or tvm.target.Target, optional
        Of the host part; None: the backend's own default.
    options : mapping or the backend's options dataclass, optional
        Given to the backend's codegen.

    Raises
    ------
    BackendUnavailable
        When the codegen, or the compiler for `target`, is not on this machine.
    OptionError
        For options that the backend does not have.
    ModelError
        When TVM cannot compile the model.
    """
    if not isinstance(partitioned, Partition):
        partitioned = _as_partition(partitioned)
    backend = partitioned.backend
    others = region_backends(partitioned.mod) - {backend.name}
    if others:
        raise ModelError(
            f"the module has regions of {', '.join(sorted(others))} already and cannot be built "
            f"for '{backend.name}'; start from the module before it was partitioned"
        )
    codegen_options = backend.make_options(options)
    backend.require("codegen")
    target = _as_target(target or backend.target)
    module = _compile(partitioned, target, codegen_options)
    manifest = Manifest(
        inputs=partitioned.model.inputs,
        outputs=partitioned.model.outputs,
        entry=partitioned.model.entry,
        backend=backend.name,
        target=str(target),
        options=codegen_options,
        loaders=backend.loaders if partitioned.coverage.regions else (),
        versions=versions(),
    )
    return Executable(module, manifest, partitioned.model)


def compile(  # noqa: A001 - the verb that torch and tvm use too
    model: Any,
    backend: str | Backend,
    *,
    target: str | Target | None = None,
    options: Any = None,
    bind_constants: bool | None = None,
    annotate_codegen: bool | None = None,
) -> Executable:
    """`partition`, then `build`; parameters as there."""
    parts = partition(
        model, backend, bind_constants=bind_constants, annotate_codegen=annotate_codegen
    )
    return build(parts, target, options)


def _as_partition(module: Any) -> Partition:
    """A plain module as a Partition, with the backend of the regions that it already has."""
    from tvm_byoc_kit.model import as_model

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


def _as_target(target: str | Target) -> Target:
    from tvm.target import Target

    try:
        return Target(target)
    except Exception as error:  # the parser raises many types
        raise ModelError(f"unknown target {target!r}: {reason(error)}") from error


def _compile(partitioned: Partition, target: Target, options: dict[str, Any]) -> Any:
    import tvm
    from tvm import relax

    mod = partitioned.mod
    try:
        if partitioned.coverage.regions:
            mod = relax.transform.RunCodegen(
                target_options={partitioned.backend.name: options} if options else None
            )(mod)
        with tvm.transform.PassContext(opt_level=3):
            return relax.build(mod, target)
    except Exception as error:  # TVM raises InternalError, ValueError, TypeError …
        where = partitioned.model.origin or "the module"
        raise ModelError(
            f"TVM cannot build {where} for backend '{partitioned.backend.name}', target "
            f"'{target}': {reason(error)}"
        ) from error
