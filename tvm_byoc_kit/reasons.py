"""Why an op stayed on the host: one reason for each, asked for in one order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tvm_byoc_kit.coverage import Reason
from tvm_byoc_kit.op_names import OpTag, tag_of, tag_ops
from tvm_byoc_kit.pattern_ops import alternatives
from tvm_byoc_kit.pattern_table import refused_matches
from tvm_byoc_kit.predicates import nested
from tvm_byoc_kit.prepare_report import count_ops
from tvm_byoc_kit.rewriting import bindings_of, is_relax_function, op_name

if TYPE_CHECKING:
    from tvm import IRModule
    from tvm.ir import Expr
    from tvm.relax import Call, Var
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.coverage import ReasonKind
    from tvm_byoc_kit.coverage_reader import HostOp

__all__ = ["explainer"]

_SHOWN = 2  # patterns that a reason names: a table may have dozens that begin with a convolution


def explainer(
    backend: Backend,
    original: IRModule,
    refused_by_policy: Mapping[OpTag, str] | None = None,
) -> Callable[[HostOp], Reason]:
    """What gives the reason of each op that stayed on the host.

    The questions, in their order: did the policy refuse what the backend takes; does the op stand
    where TVM looks for no pattern; does no pattern name it; does a predicate refuse it; and last,
    what kept the patterns that name it from matching.

    Parameters
    ----------
    backend : Backend
    original : tvm.IRModule
        The module before it was partitioned.
    refused_by_policy : mapping of OpTag to str, optional
        Ops that the backend takes and the policy does not, with the reason.
    """
    scene = _Scene(backend, original)
    refused = refused_by_policy or {}

    def explain(op: HostOp) -> Reason:
        answers: tuple[tuple[ReasonKind, Callable[[], str | None]], ...] = (
            ("policy", lambda: refused.get(OpTag(op.function, op.name))),
            ("outside_dataflow", lambda: scene.misplaced(op)),
            ("no_pattern", lambda: scene.unnamed(op.call)),
            ("refused", lambda: scene.refusal(op.call) or scene.refused_match(op)),
        )
        for kind, answer in answers:
            text = answer()
            if text is not None:
                return Reason(kind, text)
        return Reason("no_match", scene.unmatched(op.call))

    return explain


class _Scene:
    """The patterns of a backend by the operators that they name, and the module they were tried on.

    Parameters
    ----------
    backend : Backend
    original : tvm.IRModule
    """

    def __init__(self, backend: Backend, original: IRModule) -> None:
        self._backend = backend
        self._original = original

    @functools.cached_property
    def _patterns(self) -> dict[str, list[tuple[FusionPattern, frozenset[str]]]]:
        """Patterns with what else each needs at the least; of equals, highest priority first."""
        found: dict[str, list[tuple[FusionPattern, frozenset[str]]]] = {}
        for pattern in self._backend.fusion_patterns():
            choices = sorted(alternatives(pattern.pattern), key=lambda names: (len(names), *names))
            for name in set[str]().union(*choices):
                least = next(names for names in choices if name in names)
                found.setdefault(name, []).append((pattern, least - {name}))
        for patterns in found.values():
            patterns.sort(key=lambda item: len(item[1]))
        return found

    @functools.cached_property
    def _producers(self) -> Mapping[Var, Expr]:
        return _producers(self._original)

    @functools.cached_property
    def _refused_matches(self) -> dict[OpTag, str]:
        """What the predicates of single patterns say, where the backend's table has such."""
        table = self._backend.patterns
        if table is None or callable(table):
            return {}
        found = refused_matches(self._backend.name, table, _producers(tag_ops(self._original)))
        return {tag: text for call, text in found.items() if (tag := tag_of(call)) is not None}

    @functools.cached_property
    def _left_alone(self) -> dict[Call, str]:
        """The calls inside functions in which TVM looks for no pattern, with what these are."""
        found: dict[Call, str] = {}
        for var, function in self._original.functions_items():
            marks = function.attrs.keys() if function.attrs else ()
            mark = next((mark for mark in ("Primitive", "Composite") if mark in marks), None)
            if mark is not None and is_relax_function(function):
                where = f"function `{var.name_hint}`, marked {mark}"
                calls = (binding.value for binding in bindings_of(function))
                found |= {call: where for call in calls if op_name(call)}
        return found

    @functools.cached_property
    def _ops(self) -> frozenset[str]:
        return frozenset(count_ops(self._original))

    def misplaced(self, op: HostOp) -> str | None:
        """Why nothing is offloaded from where `op` stands."""
        if op.call in self._left_alone:
            return f"it stands in {self._left_alone[op.call]}, from which TVM offloads nothing"
        if op.in_dataflow:
            return None
        return (
            "it stands outside a dataflow block, where TVM offloads nothing; byoc.prepare makes "
            "blocks"
        )

    def unnamed(self, call: Call) -> str | None:
        """That no pattern names the operator, if so."""
        name = op_name(call)
        if self._backend.patterns is None:
            return f"backend {self._backend.name} has no patterns: TVM writes all kernels"
        if name in self._patterns:
            return None
        callee = _callee(call)
        if callee is None:
            return f"no pattern of {self._backend.name} names {name}"
        return (
            f"no pattern of {self._backend.name} names {name or 'calls'} of `{callee}`: patterns "
            "match Relax operators, not functions that are compiled or packed already"
        )

    def refusal(self, call: Call) -> str | None:
        """What the predicates say, which may look at what computes an operand."""
        if self._backend.refusal is None:
            return None
        return self._backend.refusal(nested(call, self._producers))

    def refused_match(self, op: HostOp) -> str | None:
        """What the predicate of a single pattern says that fits the op and others."""
        return self._refused_matches.get(OpTag(op.function, op.name))

    def unmatched(self, call: Call) -> str:
        """What kept the patterns from matching."""
        patterns = self._patterns[op_name(call)]
        for pattern, others in patterns:
            if others <= self._ops and pattern.pattern.match(call, self._producers):
                return self._kept_out(pattern, call)
        shown: list[tuple[FusionPattern, frozenset[str]]] = []
        for pattern, others in patterns:  # the least demanding first
            if not any(less <= others or pattern.name == known.name for known, less in shown):
                shown.append((pattern, others))
        texts = [
            f"{pattern.name} needs {', '.join(sorted(others))} too"
            if others
            else f"{pattern.name} does not fit its operands"
            for pattern, others in shown[:_SHOWN]
        ]
        more = len(patterns) - len(texts)
        if more:
            texts.append(f"{more} more pattern{'s name' if more > 1 else ' names'} it")
        return "; ".join(texts)

    def _kept_out(self, pattern: FusionPattern, call: Call) -> str:
        """Why `call` is on the host although `pattern` fits, with `call` as its last op."""
        parts = pattern.pattern.extract_matched_expr(call, self._producers).values()
        for partner in parts:
            name = op_name(partner)
            text = None if not name or partner.same_as(call) else self.refusal(partner)
            if text is not None:
                return f"{pattern.name} takes it only with {name}, which is refused: {text}"
        cause = "its own check refused" if pattern.check is not None else "TVM did not take it"
        return f"{pattern.name} fits, but {cause}"


def _producers(mod: IRModule) -> Mapping[Var, Expr]:
    """What computes each variable; a map of TVM's, which is passed on without a copy."""
    from tvm_ffi import Map

    functions = (f for f in mod.functions.values() if is_relax_function(f))
    return Map({binding.var: binding.value for f in functions for binding in bindings_of(f)})


def _callee(call: Call) -> str | None:
    """The function that a call runs by name, such as the first argument of ``call_tir``."""
    for expr in (call.op, *call.args[:1]):
        name = getattr(expr, "name_hint", None) or getattr(expr, "global_symbol", None)
        if name:
            return str(name)
    return None
