"""The mutator behind `rewriting`: a class of TVM's needs TVM when it is defined."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tvm import relax
from tvm.ir import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_byoc_kit.rewriting import bindings_of, op_name, read_variables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm import IRModule

    from tvm_byoc_kit.rewriting import Rule

__all__ = ["CallRewriter"]


@mutator
class CallRewriter(PyExprMutator):  # type: ignore[misc]
    """Applies rules to the calls of one function; a `rewriting.Scope` for them."""

    def __init__(
        self, mod: IRModule, function: Any, rules: Mapping[str, Rule], notes: Counter[str]
    ) -> None:
        super().__init__(mod)
        self.mod = mod
        self.notes = notes
        self._rules = rules
        bindings = list(bindings_of(function))
        self._values = {binding.var: binding.value for binding in bindings}
        self._reads: Counter[Any] | None = None
        self._function = function

    def value(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var):
            behind = self.builder_.lookup_binding(expr)
            if behind is None:
                return expr
            expr = behind
        return expr

    def original(self, expr: Any) -> Any:
        while isinstance(expr, relax.Var) and expr in self._values:
            expr = self._values[expr]
        return expr

    def emit(self, expr: Any) -> Any:
        return self.builder_.emit(expr)

    def normalized(self, expr: Any) -> Any:
        return self.builder_.normalize(expr)

    def is_used_once(self, expr: Any) -> bool:
        if self._reads is None:
            self._reads = read_variables(self._function)
        return self._reads[expr] == 1

    def visit_var_(self, op: Any) -> Any:
        return self._inlined(super().visit_var_(op))

    def visit_dataflow_var_(self, op: Any) -> Any:
        return self._inlined(super().visit_dataflow_var_(op))

    def _inlined(self, expr: Any) -> Any:
        value = self.value(expr)
        return value if isinstance(value, (GenericConst, relax.ShapeExpr)) else expr

    def visit_call_(self, call: Any) -> Any:
        rule = self._rules.get(op_name(call))
        rewritten = self.visit_expr_post_order(call)
        if rule is None:
            return rewritten
        rewritten = self.builder_.normalize(rewritten)
        if not isinstance(rewritten, relax.Call):
            return rewritten
        replacement = rule(rewritten, call, self)
        return rewritten if replacement is None else replacement
