"""Why an op stayed on the host: one reason for each, asked for in one order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tvm_byoc_kit.coverage import Reason
from tvm_byoc_kit.op_names import OpTag
from tvm_byoc_kit.pattern_ops import alternatives
from tvm_byoc_kit.rewriting import op_name

if TYPE_CHECKING:
    from tvm.relax import Call
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.coverage import ReasonKind
    from tvm_byoc_kit.coverage_reader import HostOp

__all__ = ["explainer"]

_SHOWN = 2  # patterns that a reason names: a table may have dozens that begin with a convolution


def explainer(
    backend: Backend,
    refused_by_policy: Mapping[OpTag, str] | None = None,
    left_alone: Mapping[Call, str] | None = None,
) -> Callable[[HostOp], Reason]:
    """What gives the reason of each op that stayed on the host.

    The questions, in their order: did the policy refuse what the backend takes; does the op stand
    where TVM looks for no pattern; does no pattern name it; does a predicate refuse it; and last,
    what else the patterns need that name it.

    Parameters
    ----------
    backend : Backend
    refused_by_policy : mapping of OpTag to str, optional
        Ops that the backend takes and the policy does not, with the reason.
    left_alone : mapping of relax.Call to str, optional
        Calls inside functions in which TVM looks for no pattern, with what these are.
    """
    table = _Table(backend)
    refused = refused_by_policy or {}
    elsewhere = left_alone or {}

    def explain(op: HostOp) -> Reason:
        answers: tuple[tuple[ReasonKind, Callable[[], str | None]], ...] = (
            ("policy", lambda: refused.get(OpTag(op.function, op.name))),
            ("outside_dataflow", lambda: _place(op, elsewhere)),
            ("no_pattern", lambda: table.unnamed(op.call)),
            ("refused", lambda: backend.refusal(op.call) if backend.refusal else None),
        )
        for kind, answer in answers:
            text = answer()
            if text is not None:
                return Reason(kind, text)
        return Reason("no_match", table.unmatched(op.call))

    return explain


def _place(op: HostOp, left_alone: Mapping[Call, str]) -> str | None:
    """Why nothing is offloaded from where `op` stands."""
    if op.call in left_alone:
        return f"it stands in {left_alone[op.call]}, from which TVM offloads nothing"
    if op.in_dataflow:
        return None
    return (
        "it stands outside a dataflow block, where TVM offloads nothing; byoc.prepare makes blocks"
    )


class _Table:
    """The patterns of a backend, by the operators that they name."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @functools.cached_property
    def _by_op(self) -> dict[str, list[tuple[FusionPattern, frozenset[str]]]]:
        """Patterns with what else each needs at the least; of equals, highest priority first."""
        found: dict[str, list[tuple[FusionPattern, frozenset[str]]]] = {}
        for pattern in self._backend.patterns() if self._backend.patterns else []:
            choices = sorted(alternatives(pattern.pattern), key=lambda names: (len(names), *names))
            for name in set[str]().union(*choices):
                least = next(names for names in choices if name in names)
                found.setdefault(name, []).append((pattern, least - {name}))
        for patterns in found.values():
            patterns.sort(key=lambda item: len(item[1]))
        return found

    def unnamed(self, call: Call) -> str | None:
        name = op_name(call)
        if self._backend.patterns is None:
            return f"backend {self._backend.name} has no patterns: it offloads nothing"
        if name in self._by_op:
            return None
        callee = _callee(call)
        if callee is None:
            return f"no pattern of {self._backend.name} names {name}"
        return (
            f"no pattern of {self._backend.name} names {name or 'calls'} of `{callee}`: patterns "
            "match Relax operators, not functions that are compiled or packed already"
        )

    def unmatched(self, call: Call) -> str:
        patterns = self._by_op[op_name(call)]
        shown: list[tuple[FusionPattern, frozenset[str]]] = []
        for pattern, others in patterns:  # the least demanding first
            if not any(less <= others for _, less in shown):
                shown.append((pattern, others))
        texts = [_missing(pattern, others, call) for pattern, others in shown[:_SHOWN]]
        more = len(patterns) - len(texts)
        if more:
            texts.append(f"{more} more pattern{'s name' if more > 1 else ' names'} it")
        return "; ".join(texts)


def _missing(pattern: FusionPattern, others: frozenset[str], call: Call) -> str:
    """What kept `pattern` from matching a call of an operator that it names."""
    if others:
        return f"{pattern.name} needs {', '.join(sorted(others))} too"
    if not pattern.pattern.match(call):
        return f"{pattern.name} does not fit its operands"
    if pattern.check is not None:
        return f"{pattern.name} fits, but its own check refused"
    return f"{pattern.name} fits, but TVM did not take it"


def _callee(call: Call) -> str | None:
    """The function that a call runs by name, such as the first argument of ``call_tir``."""
    for expr in (call.op, *call.args[:1]):
        name = getattr(expr, "name_hint", None) or getattr(expr, "global_symbol", None)
        if name:
            return str(name)
    return None
