"""Keeps functions that read many arrays, such as wide joins, out of TVM's fusion on CPUs.

A join is one nested condition over its inputs. TVM fuses a tree of joins into one function over
all the leaves, whose compile time grows faster than their number: an LSTM unrolled over 500 steps
took minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.target import Target

__all__ = ["legalize_unfused_joins"]

_MANY_ARRAYS = 8
# TVM's OpPatternKind::kOpaque, which its annotation leaves as it finds it.
_OPAQUE = 8


def legalize_unfused_joins(mod: IRModule, target: Target) -> IRModule:
    """Legalize for a CPU target and mark the wide functions; `mod` itself for other targets."""
    from tvm import relax, tirx

    if target.kind.name != "llvm":
        return mod
    with target:
        mod = relax.transform.LegalizeOps()(mod)
    for var, function in list(mod.functions_items()):
        if isinstance(function, tirx.PrimFunc) and len(function.params) > _MANY_ARRAYS:
            mod.update_func(var, function.with_attr("op_pattern", _OPAQUE))
    return mod
