"""Symbolic numbers as operands, which `MergeCompositeFunctions` takes for variables not bound yet.

``clip(x, 0, n)`` and ``strided_slice(x, [0], [0], [n])`` have a dimension among their operands. The
pass looks up what every variable there belongs to, and fails on one that the function's shapes
bind; an expression around it hides it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm import IRModule

__all__ = ["has_symbol_operands", "hide_symbols", "show_symbols"]


def has_symbol_operands(function: Any) -> bool:
    """Whether a call in `function` has a symbolic number among its operands, or in their tuples."""
    from tvm import relax

    found = False

    def look(expr: Any) -> None:
        nonlocal found
        if isinstance(expr, relax.Call):
            found = found or any(map(_is_symbol, _numbers(expr.args)))

    relax.analysis.post_order_visit(function, look)
    return found


def hide_symbols(mod: IRModule) -> IRModule:
    """`mod` with ``n * 1`` for each symbolic number ``n`` among the operands."""
    from tvm import tirx

    return _rewritten(
        mod, lambda n: tirx.Mul(n, tirx.IntImm(n.ty.dtype, 1)) if _is_symbol(n) else n
    )


def show_symbols(mod: IRModule) -> IRModule:
    """What `hide_symbols` has hidden put back."""
    from tvm import tirx

    def shown(number: Any) -> Any:
        hidden = (
            isinstance(number, tirx.Mul)
            and _is_symbol(number.a)
            and isinstance(number.b, tirx.IntImm)
            and number.b.value == 1
        )
        return number.a if hidden else number

    return _rewritten(mod, shown)


def _numbers(operands: Any) -> Iterator[Any]:
    from tvm import relax

    for operand in operands:
        if isinstance(operand, relax.Tuple):
            yield from _numbers(operand.fields)
        else:
            yield operand


def _is_symbol(expr: Any) -> bool:
    from tvm import relax
    from tvm.ir import PrimType

    return isinstance(expr, relax.Var) and isinstance(expr.ty, PrimType)


def _rewritten(mod: IRModule, number: Callable[[Any], Any]) -> IRModule:
    """`mod` with `number` of every operand that is neither a tensor nor a tuple."""
    from tvm import relax
    from tvm.ir import PrimType
    from tvm.relax.expr_functor import PyExprMutator, mutator

    def operand(expr: Any) -> Any:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([operand(field) for field in expr.fields], expr.span)
        return number(expr) if isinstance(getattr(expr, "ty", None), PrimType) else expr

    @mutator
    class Rewriter(PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: Any) -> Any:
            call = super().visit_call_(call)
            if not any(isinstance(getattr(e, "ty", None), PrimType) for e in _numbers(call.args)):
                return call
            operands = [operand(expr) for expr in call.args]
            return relax.Call(call.op, operands, call.attrs, call.ty_args, call.span)

    rewriter = Rewriter(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(var, rewriter.visit_expr(function))
    return rewriter.builder_.get()
