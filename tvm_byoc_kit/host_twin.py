"""The host's own code for a partitioned module, and what crosses the borders of its regions.

The twin is the module as it was partitioned, with each region compiled by TVM for the host, as a
function of its own at each place where it is called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.building import build
from tvm_byoc_kit.rewriting import host_functions, is_relax_function

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from tvm import IRModule

    from tvm_byoc_kit.occurrences import RegionCall
    from tvm_byoc_kit.partitioning import Partition

__all__ = ["RUN", "SKIP", "Crossing", "HostTwin", "as_host_code", "copies_of", "leaves_of"]

RUN, SKIP = 0, 1  # what an instrument of TVM's virtual machine tells it to do with the call


@dataclass(frozen=True)
class Crossing:
    """One execution of a region.

    Parameters
    ----------
    site : int
        Position of its call in ``Walk.regions``.
    inputs : tuple
        Arrays, and ``tvm_ffi.Shape`` for shape parameters; tuples flattened.
    outputs : tuple of numpy.ndarray
    """

    site: int
    inputs: tuple[Any, ...]
    outputs: tuple[np.ndarray, ...]


class HostTwin:
    """The twin of a partitioned module.

    Parameters
    ----------
    parts : Partition
    regions : sequence of RegionCall
        Of the walk over it.
    """

    def __init__(self, parts: Partition, regions: Sequence[RegionCall]) -> None:
        self._sites = {f"{region.function}__call{at}": at for at, region in enumerate(regions)}
        twin = as_host_code(_separated(parts.mod, list(self._sites)))
        self._exe = build(replace(parts, mod=twin, backend=get_backend("llvm")))

    def run(self, inputs: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], list[Crossing]]:
        """The outputs, and every execution of a region in its order."""
        crossings: list[Crossing] = []
        started: list[tuple[Any, ...]] = []

        def watch(_function: Any, symbol: str, before: bool, result: Any, *arguments: Any) -> int:
            site = self._sites.get(symbol)
            if site is not None and before:
                started.append(copies_of(arguments))
            elif site is not None:
                crossings.append(Crossing(site, started.pop(), copies_of([result])))
            return RUN

        self._exe.vm.set_instrument(watch)
        return self._exe.run(inputs), crossings


def copies_of(values: Any) -> tuple[Any, ...]:
    """What `leaves_of` gives, tensors as arrays of their own."""
    return tuple(
        value.numpy().copy() if hasattr(value, "numpy") else value for value in leaves_of(values)
    )


def leaves_of(values: Any) -> list[Any]:
    """What the virtual machine was given or gives, with tuples flattened."""
    from tvm_ffi import Array, Shape

    flat: list[Any] = []
    for value in values:
        is_tuple = isinstance(value, (Array, list, tuple)) and not isinstance(value, Shape)
        flat += leaves_of(value) if is_tuple else [value]
    return flat


def as_host_code(mod: IRModule) -> IRModule:
    """`mod` with nothing left in it that is for a backend; its composites are functions."""
    from tvm import IRModule, relax

    functions = {
        var: _plain(function) if is_relax_function(function) else function
        for var, function in mod.functions_items()
    }
    return relax.transform.LambdaLift()(IRModule(functions, attrs=mod.attrs))


def _plain(function: Any) -> Any:
    """`function` without a backend's marks; its shape parameters are read off their types.

    TVM's host code wants shapes in place.
    """
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class Plain(PyExprMutator):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.shapes: dict[Any, Any] = {}

        def visit_function_(self, op: Any) -> Any:
            for param in op.params:
                if isinstance(param.ty, relax.ShapeType) and param.ty.values is not None:
                    self.shapes[param] = relax.ShapeExpr(param.ty.values)
            visited = super().visit_function_(op)
            for mark in ("Composite", "Codegen"):
                if visited.attrs and mark in visited.attrs:
                    visited = visited.without_attr(mark)
            return visited

        def visit_var_(self, op: Any) -> Any:
            return self.shapes[op] if op in self.shapes else super().visit_var_(op)

    return Plain().visit_expr(function)


def _separated(mod: IRModule, names: list[str]) -> IRModule:
    """`mod` with a copy of the region for each call of one, called as `names` say."""
    from tvm import IRModule
    from tvm.ir import GlobalVar
    from tvm.relax import Call
    from tvm.relax.expr import _update_type
    from tvm.relax.expr_functor import PyExprMutator, mutator
    from tvm.relax.utils import copy_with_new_vars

    remaining = iter(names)
    copies: dict[Any, Any] = {}

    @mutator
    class Separator(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, op: Any) -> Any:
            if not _is_region(mod, op.op):
                return super().visit_call_(op)
            region = mod[op.op]
            var = GlobalVar(next(remaining))
            _update_type(var, region.ty)
            # With a symbol of its own, or TVM would drop parameters that are not read.
            copies[var] = copy_with_new_vars(region).with_attr("global_symbol", var.name_hint)
            args = [self.visit_expr(arg) for arg in op.args]
            return Call(var, args, op.attrs, op.ty_args, op.span, op.ty)

    functions = {var: f for var, f in mod.functions_items() if not _is_region(mod, var)}
    for var, function in host_functions(mod):
        functions[var] = Separator().visit_expr(function)
    return IRModule({**functions, **copies}, attrs=mod.attrs, global_infos=mod.global_infos)


def _is_region(mod: IRModule, callee: Any) -> bool:
    from tvm.ir import GlobalVar

    function = mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
    return bool(function is not None and function.attrs and "Codegen" in function.attrs)
