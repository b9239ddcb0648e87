"""Several modules as one, in which equal constants are one object."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import is_relax_function, is_tensor_constant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm import IRModule

__all__ = ["Merger"]


class Merger:
    """Takes modules in, one after the other.

    A codegen names constants by object, and TVM stores what has one name once: weights of several
    builds of a model are in the artifact once because they are one object here.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, Any] = {}
        self._names: set[str] = set()
        self._constants: dict[bytes, Any] = {}

    def add(self, mod: IRModule, suffix: str) -> dict[str, str]:
        """The new names of the functions of `mod`: their own with `suffix`, where that is free."""
        from tvm import relax
        from tvm.ir import GlobalVar

        names: dict[Any, Any] = {}
        for var, function in mod.functions_items():
            names[var] = GlobalVar(self._free(var.name_hint + suffix))
            relax.expr._update_type(names[var], function.ty)  # noqa: SLF001 - has no public name
        for var, function in mod.functions_items():
            self._functions[names[var]] = self._taken_in(function, names, names[var].name_hint)
        return {old.name_hint: new.name_hint for old, new in names.items()}

    def module(self) -> IRModule:
        """All that was added."""
        import tvm

        return tvm.IRModule(self._functions)

    def _free(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._names:
            name, number = f"{wanted}_{number}", number + 1
        self._names.add(name)
        return name

    def _taken_in(self, function: Any, names: Mapping[Any, Any], name: str) -> Any:
        if is_relax_function(function):
            function = self._rewriter(names).visit_expr(function)
        if function.attrs and "global_symbol" in function.attrs:
            return function.with_attr("global_symbol", name)
        return function

    def _rewriter(self, names: Mapping[Any, Any]) -> Any:
        from tvm.relax.expr_functor import PyExprMutator, mutator

        shared = self._shared

        @mutator
        class Rewriter(PyExprMutator):  # type: ignore[misc]
            def visit_global_var_(self, op: Any) -> Any:
                return names.get(op, op)

            def visit_generic_const_(self, op: Any) -> Any:
                return shared(op)

        return Rewriter()

    def _shared(self, expr: Any) -> Any:
        """`expr` itself, or the first constant that has the same bits."""
        if not is_tensor_constant(expr):
            return expr
        array = expr.value.numpy()
        digest = hashlib.sha256(f"{expr.value.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
        return self._constants.setdefault(digest.digest(), expr)
