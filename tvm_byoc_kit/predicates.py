"""Predicates: whether a backend can run an op that one of its patterns names, and if not, why.

A predicate is a small function that gets a call of an operator and gives None, or the reason why
the backend cannot run it; `first_reason` puts the operator before that. Composed into the check
functions of the backend's patterns, they keep on the host what the backend would refuse later, and
tell the coverage report why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import Expr
    from tvm.relax import Call, Var
    from tvm.relax.transform import FusionPattern, PatternCheckContext

    Predicate = Callable[[Call], str | None]
    Exclusion = Callable[[Var, Call], bool]

__all__ = ["first_reason", "guarded", "nested"]


def first_reason(predicates: Iterable[Predicate], call: Call) -> str | None:
    """The first reason that `predicates` give against `call`, after its operator, or None."""
    reasons = (reason for check in predicates if (reason := check(call)) is not None)
    return next((f"{call.op.name}: {reason}" for reason in reasons), None)


def nested(call: Call, bindings: Mapping[Var, Expr], depth: int = 6) -> Call:
    """`call` with the calls of `bindings` in place of the variables that they are bound to.

    So a predicate sees what computes an operand: a transposition before a product, a product
    before a bias.

    Parameters
    ----------
    call : relax.Call
    bindings : mapping of relax.Var to Expr
        Of a match, or of a whole function.
    depth : int
        How many calls up to look; the default is more than upstream's patterns have in a row
        between a product and what is added to it.
    """
    from tvm import relax

    def operand(arg: Expr) -> Expr:
        bound = bindings.get(arg) if depth and isinstance(arg, relax.Var) else None
        return nested(bound, bindings, depth - 1) if isinstance(bound, relax.Call) else arg

    operands = [operand(arg) for arg in call.args]
    if all(new.same_as(old) for new, old in zip(operands, call.args, strict=True)):
        return call
    return relax.Call(call.op, operands, call.attrs, call.ty_args, call.span, call.ty)


def guarded(
    patterns: Iterable[FusionPattern],
    refusal: Predicate | None,
    excluded: Exclusion | None = None,
) -> list[FusionPattern]:
    """`patterns` that match only what is neither refused nor excluded.

    Parameters
    ----------
    patterns : iterable of FusionPattern
        Each keeps its own check, which is asked last.
    refusal : callable, optional
        Asked about every call that a pattern matched; operands that the same match computes are
        calls, not variables.
    excluded : callable, optional
        Asked about every call and the variable that it is bound to.
    """
    if refusal is None and excluded is None:
        return list(patterns)
    return [_guard(pattern, refusal, excluded) for pattern in patterns]


def _guard(
    pattern: FusionPattern, refusal: Predicate | None, excluded: Exclusion | None
) -> FusionPattern:
    from tvm import relax
    from tvm.relax.transform import FusionPattern

    def check(context: PatternCheckContext) -> bool:
        bindings = dict(context.matched_bindings.items())
        for var, call in bindings.items():
            if not isinstance(call, relax.Call):
                continue
            if excluded is not None and excluded(var, call):
                return False
            if refusal is not None and refusal(nested(call, bindings)) is not None:
                return False
        return pattern.check is None or bool(pattern.check(context))

    return FusionPattern(
        pattern.name, pattern.pattern, pattern.annotation_patterns, check, pattern.attrs_getter
    )
