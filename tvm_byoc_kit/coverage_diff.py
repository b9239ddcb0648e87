"""What changed between two coverage reports: of two TVM versions, policies or backends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tvm_byoc_kit import coverage_text
from tvm_byoc_kit.coverage import Coverage, CoveredOp
from tvm_byoc_kit.errors import InputError
from tvm_byoc_kit.op_cost import MAC_OPS
from tvm_byoc_kit.terminal import aligned

__all__ = ["CoverageDiff", "diff"]

_MOST_OPS = 20


@dataclass(frozen=True)
class CoverageDiff:
    """Two reports, and the ops that changed sides. True when anything changed that is counted here.

    Parameters
    ----------
    before, after : Coverage
    to_host : tuple of CoveredOp
        Ops of `after` that are on the host, and were in a region.
    to_region : tuple of CoveredOp
        Ops of `after` that are in a region, and were on the host.
    gone : tuple of CoveredOp
        Ops of `before` that `after` does not have.
    new : tuple of CoveredOp
        Ops of `after` that `before` does not have.
    """

    before: Coverage
    after: Coverage
    to_host: tuple[CoveredOp, ...]
    to_region: tuple[CoveredOp, ...]
    gone: tuple[CoveredOp, ...]
    new: tuple[CoveredOp, ...]

    def __bool__(self) -> bool:
        moved = self.to_host or self.to_region or self.gone or self.new
        return bool(moved) or _figures(self.before) != _figures(self.after)

    @property
    def fell(self) -> bool:
        """Whether `after` offloads less, or as much at a higher price; `losses` says how."""
        return bool(self.losses)

    @property
    def losses(self) -> tuple[str, ...]:
        """In which respect coverage fell, one line each.

        A smaller part of the ops is offloaded (not fewer ops: preparation may leave fewer in all).
        A smaller part of the MACs is, or where these are not known, of the ops that have any. More
        bytes cross the regions' boundaries (where these are not known: there are more regions)
        although no larger part of the ops or of the MACs is offloaded.
        """
        ops, macs = (_order(*shares) for shares in (self._op_shares(), self._mac_shares()))
        found = []
        if ops < 0:
            found.append(f"fewer ops offloaded: {_arrow(*map(_ops, self._both()))}")
        if macs < 0:
            found.append(f"fewer MACs offloaded: {_arrow(*map(_macs, self._both()))}")
        if ops <= 0 and macs <= 0:
            found += self._dearer()
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``: figures as pairs, before and after."""
        before, after = (_figures(coverage) for coverage in self._both())
        return {
            "fell": self.fell,
            "losses": list(self.losses),
            **{name: [before[name], after[name]] for name in before},
            **{name: [asdict(op) for op in getattr(self, name)] for name in _LISTS},
        }

    def __str__(self) -> str:
        lines = [self._headline()]
        for name, show in _ROWS.items():
            before, after = map(show, self._both())
            if before != after:
                lines.append(f"  {name:<16} {_arrow(before, after)}")
        for name, title in _LISTS.items():
            lines += _listed(title, getattr(self, name))
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.fell:
            return f"coverage fell: {'; '.join(self.losses)}"
        return "coverage changed, and did not fall" if self else "coverage is the same"

    def _both(self) -> tuple[Coverage, Coverage]:
        return self.before, self.after

    def _op_shares(self) -> list[tuple[int, int]]:
        return [(coverage.offloaded, coverage.total) for coverage in self._both()]

    def _mac_shares(self) -> list[tuple[int, int]]:
        both = [(c.offloaded_totals.macs, c.totals.macs) for c in self._both()]
        known = [(part, whole) for part, whole in both if part is not None and whole is not None]
        return known if len(known) == len(both) else [_mac_ops(c) for c in self._both()]

    def _dearer(self) -> list[str]:
        before, after = (coverage.boundary_bytes for coverage in self._both())
        if before is None or after is None:
            before, after = (len(coverage.regions) for coverage in self._both())
            return [f"more regions: {_arrow(before, after)}"] if after > before else []
        text = _arrow(coverage_text.size(before), coverage_text.size(after))
        return [f"more bytes cross boundaries: {text}"] if after > before else []


def diff(before: Coverage, after: Coverage) -> CoverageDiff:
    """Compare two coverage reports.

    An op of one is the same as one of the other when function, name and operator agree; of those
    that are left over, when operator, shape and dtype do.

    Parameters
    ----------
    before, after : Coverage
        ``parts.coverage``, or what `Coverage.from_json` reads.

    Raises
    ------
    InputError
        For what is no `Coverage`.

    Examples
    --------
    >>> earlier = byoc.Coverage.from_json(pathlib.Path("coverage.json").read_text())
    >>> assert not byoc.diff(earlier, parts.coverage).fell
    """
    for name, value in (("before", before), ("after", after)):
        if not isinstance(value, Coverage):
            raise InputError(
                f"{name} must be a Coverage, not {type(value).__name__}; "
                "a Partition has it as `.coverage`, Coverage.from_json reads a file's text"
            )
    pairs, gone, new = _match(before.ops, after.ops, lambda op: (op.function, op.name, op.op))
    more, gone, new = _match(gone, new, lambda op: (op.op, op.shape, op.dtype, op.region is None))
    rest, gone, new = _match(gone, new, lambda op: (op.op, op.shape, op.dtype))
    pairs += more + rest
    moved = [later for op, later in pairs if (op.region is None) != (later.region is None)]
    place = {id(op): number for number, op in enumerate(after.ops)}
    moved.sort(key=lambda op: place[id(op)])
    return CoverageDiff(
        before,
        after,
        to_host=tuple(op for op in moved if op.region is None),
        to_region=tuple(op for op in moved if op.region is not None),
        gone=tuple(gone),
        new=tuple(new),
    )


Pairs = list[tuple[CoveredOp, CoveredOp]]


def _match(
    before: Iterable[CoveredOp], after: Iterable[CoveredOp], key: Callable[[CoveredOp], Hashable]
) -> tuple[Pairs, list[CoveredOp], list[CoveredOp]]:
    """Pairs of equal key, in their order, and what is left of both."""
    waiting: dict[Hashable, list[CoveredOp]] = defaultdict(list)
    for op in before:
        waiting[key(op)].append(op)
    for ops in waiting.values():
        ops.reverse()
    pairs, new = [], []
    for op in after:
        candidates = waiting[key(op)]
        if candidates:
            pairs.append((candidates.pop(), op))
        else:
            new.append(op)
    left = {id(op) for ops in waiting.values() for op in ops}
    return pairs, [op for op in before if id(op) in left], new


def _order(before: tuple[int, int], after: tuple[int, int]) -> int:
    """Whether the second share is larger (above 0), or smaller (below 0), without rounding."""
    (part, whole), (later_part, later_whole) = before, after
    return later_part * (whole or 1) - part * (later_whole or 1)


def _mac_ops(coverage: Coverage) -> tuple[int, int]:
    ops = [op for op in coverage.ops if op.op in MAC_OPS]
    return sum(op.region is not None for op in ops), len(ops)


def _figures(coverage: Coverage) -> dict[str, Any]:
    return {
        "backend": coverage.backend,
        "tvm": coverage.tvm,
        "ops_total": coverage.total,
        "ops_offloaded": coverage.offloaded,
        "region_count": len(coverage.regions),
        "macs": coverage.totals.macs,
        "macs_offloaded": coverage.offloaded_totals.macs,
        "boundary_bytes": coverage.boundary_bytes,
    }


def _ops(coverage: Coverage) -> str:
    return f"{coverage.offloaded} of {coverage.total}"


def _macs(coverage: Coverage) -> str:
    share, everything = coverage.macs_share, coverage.totals.macs
    if share is None or everything is None:
        return "{} of {} ops with MACs".format(*_mac_ops(coverage))
    return f"{coverage_text.percent(share)} of {coverage_text.amount(everything, 'MACs')}"


def _boundary(coverage: Coverage) -> str:
    crossing = coverage.boundary_bytes
    return "unknown" if crossing is None else coverage_text.size(crossing)


_ROWS: dict[str, Callable[[Coverage], str]] = {
    "model": lambda coverage: coverage.model,
    "backend": lambda coverage: coverage.backend,
    "TVM": lambda coverage: coverage.tvm,
    "ops offloaded": _ops,
    "MACs offloaded": _macs,
    "regions": lambda coverage: str(len(coverage.regions)),
    "boundary bytes": _boundary,
}

_LISTS = {
    "to_host": "to the host",
    "to_region": "into a region",
    "gone": "gone",
    "new": "new",
}


def _arrow(before: object, after: object) -> str:
    return f"{before} -> {after}"


def _listed(title: str, ops: tuple[CoveredOp, ...]) -> list[str]:
    if not ops:
        return []
    rows = aligned([_row(op) for op in ops[:_MOST_OPS]])
    lines = [f"  {title} ({len(ops)}):", *(f"    {row}" for row in rows)]
    if len(ops) > _MOST_OPS:
        lines.append(f"    and {len(ops) - _MOST_OPS} more")
    return lines


def _row(op: CoveredOp) -> tuple[str, str, str, str]:
    name = op.name if op.function == "main" else f"{op.function}.{op.name}"
    why = coverage_text.reason(op.reason)
    return name, op.op.removeprefix("relax."), op.shape, why
