"""Patterns as a table: chains of op names, or what TVM's pattern language says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from tvm.ir import Expr
    from tvm.relax import Call, Var
    from tvm.relax.dpl import DFPattern
    from tvm.relax.transform import FusionPattern, PatternCheckContext

__all__ = ["Pattern", "PatternTable", "make_patterns", "refused_matches"]


@dataclass(frozen=True)
class Pattern:
    """What a composite function is made of.

    Parameters
    ----------
    name : str
        Of the composite. The backend's name and a dot are put before it, unless they are there.
    ops : sequence of str, or callable
        A chain of op names: each op but the first takes the one before it as its first operand, or
        as either of them where their order does not matter (``relax.add``). A callable gives a
        ``DFPattern`` of TVM's; it is called when TVM is needed.
    refusal : callable, optional
        Gets the calls that matched, in the order of execution; gives the reason why the backend
        cannot run them, or None.
    """

    name: str
    ops: Sequence[str] | DFPattern | Callable[[], DFPattern]
    refusal: Callable[[tuple[Call, ...]], str | None] | None = None


PatternTable: TypeAlias = "Sequence[Pattern | tuple[Any, ...]]"


def make_patterns(backend: str, table: PatternTable) -> list[FusionPattern]:
    """TVM's form of a table of patterns.

    Raises
    ------
    OptionError
        For an entry that is no pattern, or a chain that names no operator of TVM.
    """
    return [_make_pattern(backend, _as_pattern(backend, entry)) for entry in table]


def refused_matches(
    backend: str, table: PatternTable, bindings: Mapping[Var, Expr]
) -> dict[Call, str]:
    """Calls that a pattern of `table` fits, with the reason why its predicate refuses them."""
    from tvm import relax

    found: dict[Call, str] = {}
    variables = {value: var for var, value in bindings.items() if isinstance(value, relax.Call)}
    for pattern in (_as_pattern(backend, entry) for entry in table):
        if pattern.refusal is None:
            continue
        fusion = _make_pattern(backend, pattern)
        for call in variables:
            parts = fusion.pattern.extract_matched_expr(call, bindings)
            calls = [part for part in (parts or {}).values() if part in variables]
            matched = _in_order({variables[part]: part for part in calls})
            text = pattern.refusal(matched) if matched else None
            if text is not None:
                found = dict.fromkeys(matched, f"{fusion.name}: {text}") | found
    return found


def _as_pattern(backend: str, entry: Any) -> Pattern:
    if isinstance(entry, Pattern):
        return entry
    try:
        return Pattern(*entry)
    except TypeError:
        raise OptionError(
            f"backend '{backend}': pattern {entry!r} is neither a Pattern nor the tuple of one: "
            'expected (name, ops[, refusal]), such as ("relu", ["relax.nn.relu"])'
        ) from None


def _make_pattern(backend: str, pattern: Pattern) -> FusionPattern:
    from tvm.relax.transform import FusionPattern

    prefix = f"{backend}."
    name = prefix + pattern.name.removeprefix(prefix)
    dataflow: Any = pattern.ops
    if isinstance(dataflow, Sequence):
        dataflow = _chain(name, [dataflow] if isinstance(dataflow, str) else dataflow)
    elif not hasattr(dataflow, "used_by"):  # a DFPattern can be called too, and makes another
        dataflow = dataflow()
    return FusionPattern(name, dataflow, {}, _make_check(name, pattern))


def _chain(name: str, ops: Sequence[str]) -> DFPattern:
    from tvm.relax.dpl import is_op, wildcard

    _check_names(name, ops)
    first, *others = ops
    result: DFPattern = (
        is_op(first)(wildcard(), wildcard())
        if first in _WITH_OPERANDS
        else is_op(first)(varg_default_wildcard=True)
    )
    for op in others:
        if op in _COMMUTATIVE:
            other = wildcard()
            result = is_op(op)(result, other) | is_op(op)(other, result)
        else:
            result = is_op(op)(result, varg_default_wildcard=True)
    return result


_COMMUTATIVE = frozenset({"relax.add", "relax.multiply", "relax.maximum", "relax.minimum"})
# Of these TVM's matcher reads the operands' patterns, and raises an IndexError when there are none.
_WITH_OPERANDS = frozenset({"relax.multiply", "relax.divide"})


def _check_names(name: str, ops: Sequence[str]) -> None:
    import tvm.relax  # noqa: F401 - registers its operators
    from tvm.ir import Op

    if not ops:
        raise OptionError(f"pattern '{name}' names no operator")
    known = set(map(str, Op.list_op_names()))
    for op in ops:
        if op not in known:
            raise OptionError(
                f"pattern '{name}' names {op!r}, which is no operator of TVM"
                f"{did_you_mean(op, known)}"
            )


def _make_check(name: str, pattern: Pattern) -> Callable[[PatternCheckContext], bool] | None:
    refusal = pattern.refusal
    if refusal is None:
        return None

    def check(context: PatternCheckContext) -> bool:
        reason = refusal(_in_order(context.matched_bindings))
        if reason is not None and not (reason and isinstance(reason, str)):
            raise OptionError(
                f"the predicate of pattern '{name}' gave {reason!r}; it must give None for what "
                "the backend can run, or the reason why it cannot"
            )
        return reason is None

    return check


def _in_order(bindings: Mapping[Var, Any]) -> tuple[Call, ...]:
    """The calls among matched bindings, each after those whose results it takes."""
    from tvm import relax

    found: dict[Var, Any] = {}

    def visit(var: Var) -> None:
        if var in bindings and var not in found:
            for operand in relax.analysis.free_vars(bindings[var]):
                visit(operand)
            found[var] = bindings[var]

    for var in bindings:
        visit(var)
    return tuple(value for value in found.values() if isinstance(value, relax.Call))
