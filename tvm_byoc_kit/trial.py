"""Dry run: what each policy would give, before anything is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.coverage_text import percent, size
from tvm_byoc_kit.op_cost import MAC_OPS
from tvm_byoc_kit.partitioning import Offload, as_prepared
from tvm_byoc_kit.policy import PartitionPolicy, as_policy
from tvm_byoc_kit.terminal import aligned

if TYPE_CHECKING:
    from rich.table import Table

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.coverage import Coverage

__all__ = ["DryRun", "Trial", "dry_run", "render"]

THRESHOLDS = (1, 2, 3, 5, 10, 20, 50)
KEPT = 0.95
"""The share of the work that a recommended policy keeps on the backend, at the least."""


@dataclass(frozen=True)
class Trial:
    """What one policy gives.

    Parameters
    ----------
    policy : PartitionPolicy
    regions, ops, mac_ops : int
        Regions, ops in them, and those of these that multiply and accumulate.
    macs : int or None
        In regions; None when a symbolic dimension decides.
    boundary_bytes : int or None
        In and out of all regions at each run, constants left out; None when a symbolic dimension
        decides.
    """

    policy: PartitionPolicy
    regions: int
    ops: int
    mac_ops: int
    macs: int | None
    boundary_bytes: int | None


@dataclass(frozen=True)
class DryRun:
    """What several policies give, and the one to take.

    Parameters
    ----------
    backend, model : str
    ops : int
        Of the whole model.
    macs : int or None
        Of the whole model; None when a symbolic dimension decides.
    trials : tuple of Trial
        The first is the policy that was given, the others are stricter ones that leave regions,
        each with another result.
    recommended : PartitionPolicy
        Of the trials that keep 95 % of what the first offloads, the one with the fewest regions; of
        equals the one with the least boundary bytes, and then the first. What is to be kept is
        counted in MACs; in ops that multiply and accumulate where a symbolic dimension decides the
        MACs; in ops where there are none of these.
    reason : str
        One line: what the recommendation changes.
    """

    backend: str
    model: str
    ops: int
    macs: int | None
    trials: tuple[Trial, ...]
    recommended: PartitionPolicy
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        facts = asdict(self)
        for trial, item in zip(self.trials, facts["trials"], strict=True):
            item["policy"] = trial.policy.to_dict()
        return facts | {
            "trials": list(facts["trials"]),
            "recommended": self.recommended.to_dict(),
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The table: a row for each trial, the recommended one marked."""
        return [
            (
                "*" if trial.policy == self.recommended else "",
                str(trial.policy),
                str(trial.regions),
                f"{trial.ops} of {self.ops}",
                _share(trial.macs, self.macs),
                _size(trial.boundary_bytes),
            )
            for trial in self.trials
        ]

    def __str__(self) -> str:
        lines = aligned([COLUMNS, *self.rows()], right=range(_LEFT, len(COLUMNS)))
        return "\n".join([*lines, self.reason])


COLUMNS = ("", "policy", "regions", "ops", "MACs", "boundary")
_LEFT = 2  # columns of text, the others are numbers


def dry_run(
    model: Any,
    backend: str | Backend,
    *,
    policy: PartitionPolicy | Mapping[str, Any] | None = None,
    prepare: bool | None = None,
) -> DryRun:
    """Partition under several policies, and recommend one. Nothing is built.

    Tried are a least number of ops in a region (``min_region_ops``), each with and without
    ``require_mac``, on top of `policy`.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
    backend : str or Backend
    policy : PartitionPolicy or mapping, optional
        What holds for all of them. ``strict`` does not count here.
    prepare : bool, optional
        As for `partition`.

    Returns
    -------
    DryRun
        Its text is the table with the recommendation.
    """
    chosen = get_backend(backend)
    chosen.require("partition")
    base = replace(as_policy(policy) or PartitionPolicy(), strict=False)
    offload = Offload(as_prepared(model, chosen, prepare), chosen)
    offload.warn(stacklevel=3)
    first = offload.settled(base).coverage
    results = {_result(first): _trial(base, first)}
    for candidate in _stricter(base):
        coverage = offload.settled(candidate).coverage
        if coverage.regions:
            results.setdefault(_result(coverage), _trial(candidate, coverage))
    trials = tuple(results.values())
    best = _best(trials)
    return DryRun(
        backend=chosen.name,
        model=offload.model.origin,
        ops=first.total,
        macs=first.totals.macs,
        trials=trials,
        recommended=best.policy,
        reason=_why(best, trials),
    )


def render(result: DryRun) -> Table:
    """The trials as a table for the terminal."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if i < _LEFT else "right")
    for row in result.rows():
        table.add_row(*row, style="bold" if row[0] else None)
    return table


def _stricter(base: PartitionPolicy) -> Iterator[PartitionPolicy]:
    """From the mildest on."""
    for require_mac in (False, True):
        for least in THRESHOLDS:
            yield replace(
                base,
                min_region_ops=max(least, base.min_region_ops),
                require_mac=require_mac or base.require_mac,
            )


def _result(coverage: Coverage) -> tuple[str | None, ...]:
    """What two policies with the same outcome have in common."""
    return tuple(op.region for op in coverage.ops)


def _trial(policy: PartitionPolicy, coverage: Coverage) -> Trial:
    offloaded = [op for op in coverage.ops if op.region is not None]
    return Trial(
        policy=policy,
        regions=len(coverage.regions),
        ops=len(offloaded),
        mac_ops=sum(op.op in MAC_OPS for op in offloaded),
        macs=coverage.offloaded_totals.macs,
        boundary_bytes=coverage.boundary_bytes,
    )


def _best(trials: tuple[Trial, ...]) -> Trial:
    """The rule is in `DryRun.recommended`; `min` takes the first of equals."""
    least = KEPT * _work(trials[0], trials[0])
    kept = [trial for trial in trials if _work(trial, trials[0]) >= least]
    return min(kept, key=lambda trial: (trial.regions, trial.boundary_bytes or 0))


def _work(trial: Trial, first: Trial) -> int:
    """What is to be kept on the backend, in the unit that `first` allows."""
    if first.macs:
        return trial.macs or 0
    return trial.mac_ops if first.mac_ops else trial.ops


def _why(best: Trial, trials: tuple[Trial, ...]) -> str:
    first = trials[0]
    if not first.regions:
        return "nothing is offloaded, whatever the policy"
    unit = "MACs" if first.macs else "MAC ops" if first.mac_ops else "ops"
    if best is first:
        given = "the default" if first.policy == PartitionPolicy() else "the policy as it is"
        part = f"{percent(KEPT)} of the {unit}"
        return f"recommended: {given}; no stricter one keeps {part} in fewer regions"
    kept = _work(best, first) / _work(first, first)
    return (
        f"recommended: {best.policy}: {best.regions} region(s) instead of {first.regions}, "
        f"{percent(kept)} of the {unit}, {_size(best.boundary_bytes)} across boundaries instead of "
        f"{_size(first.boundary_bytes)}"
    )


def _share(part: int | None, whole: int | None) -> str:
    if part is None or whole is None:
        return "?"
    return percent(part / whole) if whole else "-"


def _size(count: int | None) -> str:
    return "?" if count is None else size(count)
