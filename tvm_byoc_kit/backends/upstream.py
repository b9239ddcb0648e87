"""Pattern tables and passes that TVM itself has, imported at first use."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.relax.transform import FusionPattern

__all__ = ["allocate_workspace", "upstream_patterns"]


def upstream_patterns(module: str, prefix: str) -> Callable[[], list[FusionPattern]]:
    """Gives the patterns under `prefix` that importing `module` registers."""
    return functools.partial(_patterns, module, prefix)


def _patterns(module: str, prefix: str) -> list[FusionPattern]:
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    importlib.import_module(module)
    return list(get_patterns_with_prefix(prefix))


def allocate_workspace(mod: IRModule, annotate: Callable[[IRModule], IRModule]) -> IRModule:
    """Give each attention kernel a workspace, as upstream's partition functions do.

    Parameters
    ----------
    mod : tvm.IRModule
        Partitioned, each match a region of its own.
    annotate : callable
        Upstream's pass that finds out the sizes. It takes any function whose symbol has the
        backend's name in it for a region, so that it is left out where nothing needs it.
    """
    from tvm.ir import IRModule
    from tvm.relax.transform import AllocateWorkspace

    if not any(_holds_attention(function) for function in mod.functions.values()):
        return mod
    # The pass replaces functions in the module that it is given.
    copy = IRModule(dict(mod.functions_items()), attrs=mod.attrs, global_infos=mod.global_infos)
    return AllocateWorkspace()(annotate(copy))


def _holds_attention(function: object) -> bool:
    from tvm import relax

    found: list[bool] = []

    def look(expr: object) -> None:
        if isinstance(expr, relax.Function) and expr.attrs and "Composite" in expr.attrs:
            found.append("attention" in expr.attrs["Composite"])

    if isinstance(function, relax.Function):
        relax.analysis.post_order_visit(function, look)
    return any(found)
