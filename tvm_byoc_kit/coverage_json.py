"""A coverage report as JSON, and back; ``data/coverage.schema.json`` describes the form."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, NoReturn, TypeVar

from tvm_byoc_kit.coverage import REASON_KINDS, Coverage, CoveredOp, Reason, Region
from tvm_byoc_kit.errors import InputError

__all__ = ["VERSION", "dumps", "loads", "to_dict"]

VERSION = 1
"""Goes up when a reader of the form before would misread it; new keys alone do not count."""

_WIDTH = 60  # of a value in a message, in characters

_T = TypeVar("_T", Coverage, CoveredOp, Reason, Region)
_Reader = Callable[[Any, str], Any]  # of a value, and the place that it stands at, for messages


def dumps(coverage: Coverage) -> str:
    """`coverage` as JSON text."""
    return json.dumps(to_dict(coverage), indent=2)


def to_dict(coverage: Coverage) -> dict[str, Any]:
    """`coverage` as what JSON has: dicts, lists, strings and numbers."""
    return {
        "coverage_version": VERSION,
        "model": coverage.model,
        "backend": coverage.backend,
        "tvm": coverage.tvm,
        "ops_total": coverage.total,
        "ops_offloaded": coverage.offloaded,
        "host_ops": coverage.host_ops,
        "totals": asdict(coverage.totals),
        "offloaded_totals": asdict(coverage.offloaded_totals),
        "boundary_bytes": coverage.boundary_bytes,
        "regions": [
            vars(region) | {"composites": list(region.composites)} for region in coverage.regions
        ],
        "ops": [_op_to_dict(op) for op in coverage.ops],
    }


def _op_to_dict(op: CoveredOp) -> dict[str, Any]:
    reason = None if op.reason is None else dict(vars(op.reason))
    return vars(op) | {"reason": reason, "inputs": list(op.inputs)}


def loads(text: str) -> Coverage:
    """What `dumps` wrote.

    Raises
    ------
    InputError
        Names the place in `text`, what stands there and what should.
    """
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"not JSON ({error}); expected what `tvm-byoc partition --json` writes"
        ) from error
    if not isinstance(facts, dict) or "coverage_version" not in facts:
        raise InputError(
            "no coverage report: `coverage_version` is missing; expected what "
            "`tvm-byoc partition --json` writes"
        )
    if facts["coverage_version"] != VERSION:
        raise InputError(
            f"the coverage report is of version {facts['coverage_version']!r}, this tvm_byoc_kit "
            f"reads {VERSION}; write it again, or use the tvm_byoc_kit that wrote it"
        )
    return _checked(_read(Coverage, facts))


def _read(kind: type[_T], facts: Any, place: str = "") -> _T:
    """The dataclass `kind` that `facts` hold; `place` is where they stand, for messages."""
    if not isinstance(facts, dict):
        _fail(facts, place, "an object")
    values = {}
    for name, item in kind.__dataclass_fields__.items():
        where = f"{place}.{name}" if place else name
        if name not in facts:
            raise InputError(f"coverage report: {where} is missing")
        values[name] = _READERS[item.type](facts[name], where)
    return kind(**values)


def _text(value: Any, place: str) -> str:
    return value if isinstance(value, str) else _fail(value, place, "text")


def _count(value: Any, place: str) -> int:
    return (
        value if type(value) is int and value >= 0 else _fail(value, place, "a number, 0 or more")
    )


def _kind(value: Any, place: str) -> Any:
    return (
        value if value in REASON_KINDS else _fail(value, place, f"one of {', '.join(REASON_KINDS)}")
    )


def _or_none(read: _Reader) -> _Reader:
    return lambda value, place: None if value is None else read(value, place)


def _all(read: _Reader) -> _Reader:
    def read_all(values: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(values, list):
            _fail(values, place, "a list")
        return tuple(read(value, f"{place}[{n}]") for n, value in enumerate(values))

    return read_all


def _fail(value: Any, place: str, expected: str) -> NoReturn:
    shown = json.dumps(value)
    shown = shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."
    raise InputError(f"coverage report: {place} is {shown}, expected {expected}")


# By the annotation of a field.
_READERS: dict[Any, _Reader] = {
    "str": _text,
    "str | None": _or_none(_text),
    "int": _count,
    "int | None": _or_none(_count),
    "tuple[int, ...]": _all(_count),
    "tuple[str, ...]": _all(_text),
    "ReasonKind": _kind,
    "Reason | None": _or_none(partial(_read, Reason)),
    "tuple[CoveredOp, ...]": _all(partial(_read, CoveredOp)),
    "tuple[Region, ...]": _all(partial(_read, Region)),
}


def _checked(coverage: Coverage) -> Coverage:
    """`coverage`, whose parts must name each other rightly."""
    regions = {region.name for region in coverage.regions}
    for number, op in enumerate(coverage.ops):
        if op.region is not None and op.region not in regions:
            raise InputError(f"coverage report: ops[{number}] is in no region '{op.region}'")
        wrong = [position for position in op.inputs if not 0 <= position < len(coverage.ops)]
        if wrong:
            raise InputError(f"coverage report: ops[{number}] reads op {wrong[0]}, which is none")
    return coverage
