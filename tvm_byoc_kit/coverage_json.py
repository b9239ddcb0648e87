"""A coverage report as JSON, and back; ``data/coverage.schema.json`` describes the form."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_byoc_kit.coverage import REASON_KINDS, Coverage, CoveredOp, Reason, Region
from tvm_byoc_kit.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VERSION", "dumps", "loads", "to_dict"]

VERSION = 1
"""Goes up when a reader of the form before would misread it; new keys alone do not count."""

_WIDTH = 60  # of a value in a message, in characters


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
    return _checked(_Object(facts, "").coverage())


class _Object:
    """One JSON object, read with checks; `place` is where it stands, for messages."""

    def __init__(self, facts: Any, place: str) -> None:
        self._place = place
        if not isinstance(facts, dict):
            self._fail("", facts, "an object")
        self._facts: Mapping[str, Any] = facts

    def coverage(self) -> Coverage:
        return Coverage(
            ops=tuple(item.op() for item in self._objects("ops")),
            regions=tuple(item.region() for item in self._objects("regions")),
            backend=self._text("backend"),
            model=self._text("model"),
            tvm=self._text("tvm"),
        )

    def op(self) -> CoveredOp:
        reason = self._facts.get("reason")
        return CoveredOp(
            name=self._text("name"),
            op=self._text("op"),
            shape=self._text("shape"),
            dtype=self._text("dtype"),
            region=self._text_or_null("region"),
            composite=self._text_or_null("composite"),
            reason=None if reason is None else _Object(reason, self._at("reason")).reason(),
            function=self._text("function"),
            macs=self._count_or_null("macs"),
            parameters=self._count("parameters"),
            bytes=self._count_or_null("bytes"),
            inputs=tuple(self._list("inputs", int, "a number")),
        )

    def reason(self) -> Reason:
        kind = self._get("kind")
        if kind not in REASON_KINDS:
            self._fail("kind", kind, f"one of {', '.join(REASON_KINDS)}")
        return Reason(kind, self._text("text"))

    def region(self) -> Region:
        return Region(
            name=self._text("name"),
            function=self._text("function"),
            backend=self._text("backend"),
            composites=tuple(self._list("composites", str, "text")),
            ops=self._count("ops"),
            macs=self._count_or_null("macs"),
            bytes_in=self._count_or_null("bytes_in"),
            bytes_out=self._count_or_null("bytes_out"),
            constants=self._count("constants"),
            constant_bytes=self._count("constant_bytes"),
        )

    def _get(self, key: str) -> Any:
        if key not in self._facts:
            raise InputError(f"coverage report: {self._at(key)} is missing")
        return self._facts[key]

    def _text(self, key: str) -> str:
        value = self._get(key)
        return value if isinstance(value, str) else self._fail(key, value, "text")

    def _text_or_null(self, key: str) -> str | None:
        return None if self._get(key) is None else self._text(key)

    def _count(self, key: str) -> int:
        value = self._get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            self._fail(key, value, "a number, 0 or more")
        return int(value)

    def _count_or_null(self, key: str) -> int | None:
        return None if self._get(key) is None else self._count(key)

    def _list(self, key: str, kind: type, expected: str) -> list[Any]:
        values = self._get(key)
        if not isinstance(values, list):
            self._fail(key, values, "a list")
        for number, value in enumerate(values):
            if not isinstance(value, kind) or isinstance(value, bool):
                self._fail(f"{key}[{number}]", value, expected)
        return list(values)

    def _objects(self, key: str) -> list[_Object]:
        values = self._list(key, object, "an object")
        return [_Object(value, f"{self._at(key)}[{n}]") for n, value in enumerate(values)]

    def _at(self, key: str) -> str:
        return f"{self._place}.{key}" if self._place and key else self._place or key

    def _fail(self, key: str, value: Any, expected: str) -> NoReturn:
        shown = json.dumps(value)
        shown = shown if len(shown) <= _WIDTH else f"{shown[: _WIDTH - 3]}..."
        raise InputError(f"coverage report: {self._at(key)} is {shown}, expected {expected}")


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
