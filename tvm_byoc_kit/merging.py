"""Several modules as one, in which equal constants are one object."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.region_names import rename_functions
from tvm_byoc_kit.rewriting import is_relax_function, is_tensor_constant

if TYPE_CHECKING:
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
        names = {var: self._free(var.name_hint + suffix) for var in mod.get_global_vars()}
        for var, function in rename_functions(mod, names).functions.items():
            self._functions[var] = self._with_shared_constants(function)
        return {var.name_hint: name for var, name in names.items()}

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

    def _with_shared_constants(self, function: Any) -> Any:
        from tvm.relax.expr_functor import PyExprMutator, mutator

        if not is_relax_function(function):
            return function
        shared = self._shared

        @mutator
        class Sharing(PyExprMutator):  # type: ignore[misc]
            def visit_generic_const_(self, op: Any) -> Any:
                return shared(op)

        return Sharing().visit_expr(function)

    def _shared(self, expr: Any) -> Any:
        """`expr` itself, or the first constant that has the same bits."""
        if not is_tensor_constant(expr):
            return expr
        array = expr.value.numpy()
        digest = hashlib.sha256(f"{expr.value.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
        return self._constants.setdefault(digest.digest(), expr)
