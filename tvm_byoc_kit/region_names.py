"""The regions of a partitioned module: what they are called, and the patterns in each."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import bindings_of, host_functions, is_relax_function

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tvm import IRModule

__all__ = ["name_regions", "region_composites", "rename_functions"]


def name_regions(mod: IRModule, before: IRModule) -> IRModule:
    """`mod` with the regions that `before` has not called ``<backend>_1`` and on, by first calls.

    TVM makes their names of all ops in them, of a thousand characters and more, and stores those
    with each constant. A name that is taken in either module is left out.
    """
    taken = {var.name_hint for part in (mod, before) for var in part.get_global_vars()}
    numbers = itertools.count(1)
    names: dict[Any, str] = {}
    for var in _called_functions(mod):
        function = mod.functions.get(var)
        if var in names or var in before.functions or function is None or not _is_region(function):
            continue
        choices = (f"{function.attrs['Codegen']}_{number}" for number in numbers)
        names[var] = next(name for name in choices if name not in taken)
    return rename_functions(mod, names)


def _called_functions(mod: IRModule) -> Iterator[Any]:
    """What the host functions of `mod` call by a global name, in the order of the calls."""
    from tvm import relax
    from tvm.ir import GlobalVar

    for _, function in host_functions(mod):
        for binding in bindings_of(function):
            if isinstance(binding.value, relax.Call) and isinstance(binding.value.op, GlobalVar):
                yield binding.value.op


def rename_functions(mod: IRModule, names: Mapping[Any, str]) -> IRModule:
    """`mod` with the functions in `names`, by their variables, called so, in that order."""
    from tvm import IRModule
    from tvm.ir import GlobalVar
    from tvm.relax.expr import _update_type
    from tvm.relax.expr_functor import PyExprMutator, mutator

    variables = {var: GlobalVar(name) for var, name in names.items()}

    @mutator
    class Renamer(PyExprMutator):  # type: ignore[misc]
        def visit_global_var_(self, op: Any) -> Any:
            return variables.get(op, op)

    functions = {var: function for var, function in mod.functions.items() if var not in names}
    for var, new in variables.items():
        function = mod[var]
        _update_type(new, function.ty)
        if function.attrs and "global_symbol" in function.attrs:
            function = function.with_attr("global_symbol", new.name_hint)
        functions[new] = function
    for var, function in functions.items():
        if is_relax_function(function) and not _is_region(function):
            functions[var] = Renamer().visit_expr(function)
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def region_composites(mod: IRModule) -> dict[str, tuple[str, ...]]:
    """Patterns of the composite functions that each region calls, in order, by its symbol."""
    return {
        str(function.attrs["global_symbol"]): _called(function)
        for function in mod.functions.values()
        if _is_region(function)
    }


def _is_region(function: Any) -> bool:
    return bool(function.attrs and "Codegen" in function.attrs)


def _called(region: Any) -> tuple[str, ...]:
    from tvm import relax

    local, names = {}, []
    for binding in bindings_of(region):
        value = binding.value
        if isinstance(value, relax.Function):
            local[binding.var] = str(value.attrs["Composite"])
        elif isinstance(value, relax.Call) and value.op in local:
            names.append(local[value.op])
    return tuple(names)
