"""The regions of a partitioned module, with the patterns in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import bindings_of

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["region_composites"]


def region_composites(mod: IRModule) -> dict[str, tuple[str, ...]]:
    """Patterns of the composite functions that each region calls, in order, by its symbol."""
    return {
        str(function.attrs["global_symbol"]): _called(function)
        for function in mod.functions.values()
        if function.attrs and "Codegen" in function.attrs
    }


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
