"""Partition: which ops go to the backend."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend, get_backend
from tvm_byoc_kit.coverage import Coverage
from tvm_byoc_kit.coverage_reader import read_coverage
from tvm_byoc_kit.model import ImportedModel, as_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tvm import IRModule
    from tvm.relax.transform import FusionPattern

__all__ = ["Partition", "partition"]


@dataclass(frozen=True)
class Partition:
    """A partitioned model.

    Parameters
    ----------
    mod : tvm.IRModule
        Regions are the functions with the attribute ``Codegen``.
    backend : Backend
    model : ImportedModel
        What was partitioned.
    """

    mod: IRModule
    backend: Backend
    model: ImportedModel

    @functools.cached_property
    def coverage(self) -> Coverage:
        """Every op, and the region that took it."""
        return read_coverage(self.mod)


def partition(
    model: Any,
    backend: str | Backend,
    *,
    bind_constants: bool | None = None,
    annotate_codegen: bool | None = None,
    prepare: bool | None = None,
) -> Partition:
    """Offload to `backend` what its patterns match.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
    backend : str or Backend
    bind_constants : bool, optional
        True: weights become part of the region; False: they stay arguments that the host gives.
        None: the backend's own default.
    annotate_codegen : bool, optional
        True: every match is a region of its own; False: neighbouring matches are merged.
        None: the backend's own default.
    prepare : bool, optional
        Whether to run `byoc.prepare` for `backend` first. None: yes, unless that has been done,
        or `model` is a plain IRModule, which is taken as it is.

    Returns
    -------
    Partition
        Its ``model`` is the prepared one; ``model.report`` says what was done to it.

    Warns
    -----
    UserWarning
        For functions that upstream's merging cannot handle (with ``If``, ``MatchCast``, or calls
        of other functions): there every match stays a region of its own.
    """
    chosen = get_backend(backend)
    chosen.require("partition")
    imported = _as_prepared(model, chosen, prepare)
    if chosen.patterns is None:
        return Partition(imported.mod, chosen, imported)
    patterns = chosen.guarded_patterns()
    partitioner: Callable[[IRModule], IRModule] | None = None
    own = chosen.partitioner
    if own is not None and bind_constants is None and annotate_codegen is None:
        partitioner = lambda mod: own(mod, patterns)  # noqa: E731 - it has no such choices
    bind = chosen.bind_constants if bind_constants is None else bind_constants
    annotate = chosen.annotate_codegen if annotate_codegen is None else annotate_codegen
    if annotate:
        whole = partitioner or functools.partial(_fuse, patterns=patterns, bind_constants=bind)
        return Partition(whole(imported.mod), chosen, imported)
    mod = _merge_by_function(
        imported.mod,
        merge=partitioner
        or functools.partial(_fuse_and_merge, patterns=patterns, bind_constants=bind),
        fuse=lambda module, name: _fuse(module, patterns, bind, [name]),
    )
    return Partition(mod, chosen, imported)


def _as_prepared(model: Any, backend: Backend, wanted: bool | None) -> ImportedModel:
    from tvm.ir import IRModule

    from tvm_byoc_kit.preparation import prepare

    imported = as_model(model)
    done = imported.report is not None and imported.report.backend == backend.name
    if wanted is None:
        wanted = not done and not isinstance(model, IRModule)
    return prepare(imported, backend) if wanted else imported


def _fuse(
    mod: IRModule,
    patterns: list[FusionPattern],
    bind_constants: bool,
    functions: list[str] | None = None,
) -> IRModule:
    """Every match a region of its own; upstream's pass takes any module."""
    from tvm.relax.transform import FuseOpsByPattern

    return FuseOpsByPattern(
        patterns, bind_constants, annotate_codegen=True, entry_functions=functions
    )(mod)


def _fuse_and_merge(mod: IRModule, patterns: list[FusionPattern], bind_constants: bool) -> IRModule:
    """Neighbouring matches one region; upstream's pass takes one plain function called ``main``."""
    from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions

    return MergeCompositeFunctions()(FuseOpsByPattern(patterns, bind_constants)(mod))


def _merge_by_function(
    mod: IRModule, merge: Callable[[IRModule], IRModule], fuse: Callable[[IRModule, str], IRModule]
) -> IRModule:
    """Merge neighbours, one function at a time.

    ``MergeCompositeFunctions`` takes a module with one Relax function, called ``main`` and free of
    ``If`` and ``MatchCast``; so each function is merged in a module of its own, and one that does
    not qualify keeps its matches unmerged.
    """
    result = mod
    for var, function in mod.functions_items():
        if not _is_host_function(function):
            continue
        obstacle = _obstacle(function)
        if obstacle is None:
            result = _put_back(result, merge(_isolated(mod, function)), var.name_hint)
            continue
        warnings.warn(
            f"function `{var.name_hint}` {obstacle}, which MergeCompositeFunctions cannot handle: "
            "each match there is a region of its own",
            stacklevel=3,
        )
        result = fuse(result, var.name_hint)
    return result


def _is_host_function(function: Any) -> bool:
    from tvm import relax

    attrs = function.attrs.keys() if function.attrs else ()
    return isinstance(function, relax.Function) and not {"Codegen", "Composite"} & set(attrs)


def _obstacle(function: Any) -> str | None:
    """What in `function` MergeCompositeFunctions fails on, as the end of a sentence."""
    from tvm import relax
    from tvm.ir import GlobalVar

    found: list[str] = []

    def look(expr: Any) -> None:
        if isinstance(expr, relax.If):
            found.append("has an `If`")
        elif isinstance(expr, relax.Call) and isinstance(expr.op, GlobalVar):
            found.append(f"calls the function `{expr.op.name_hint}`")
        elif isinstance(expr, relax.SeqExpr):
            bindings = [binding for block in expr.blocks for binding in block.bindings]
            if any(isinstance(binding, relax.MatchCast) for binding in bindings):
                found.append("has a `MatchCast`")

    relax.analysis.post_order_visit(function, look)
    return found[0] if found else None


def _isolated(mod: IRModule, function: Any) -> IRModule:
    """A module with `function` as ``main``, and everything that is no Relax function."""
    import tvm
    from tvm import relax

    others = {
        var: other for var, other in mod.functions_items() if not isinstance(other, relax.Function)
    }
    renamed = function.with_attr("global_symbol", "main")
    return tvm.IRModule({tvm.ir.GlobalVar("main"): renamed, **others}, attrs=mod.attrs)


def _put_back(result: IRModule, alone: IRModule, name: str) -> IRModule:
    """`result` with `name` replaced by the ``main`` of `alone`, and its regions added."""
    from tvm import relax

    builder = relax.BlockBuilder(result)  # gives each function a name that is still free
    regions = {}
    for var in alone.get_global_vars():
        if var.name_hint != "main" and isinstance(alone[var], relax.Function):
            region = alone[var].without_attr("global_symbol")
            regions[var] = builder.add_func(region, var.name_hint)
            symbol = regions[var].name_hint
            builder.update_func(regions[var], region.with_attr("global_symbol", symbol))
    target = result.get_global_var(name)
    merged = _with_symbol_of(_rename_callees(alone["main"], regions), result[target])
    builder.update_func(target, merged)
    return builder.get()


def _with_symbol_of(function: Any, original: Any) -> Any:
    if original.attrs and "global_symbol" in original.attrs:
        return function.with_attr("global_symbol", original.attrs["global_symbol"])
    return function.without_attr("global_symbol")


def _rename_callees(function: Any, names: Mapping[Any, Any]) -> Any:
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Renamer(PyExprMutator):  # type: ignore[misc]
        def visit_global_var_(self, op: Any) -> Any:
            return names.get(op, op)

    return Renamer().visit_expr(function)
