"""Policy: what stays on the host although the backend could take it."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ModelError, OptionError, did_you_mean
from tvm_byoc_kit.op_cost import MAC_OPS
from tvm_byoc_kit.op_names import OpTag

if TYPE_CHECKING:
    from tvm import IRModule

    from tvm_byoc_kit.coverage import Coverage, CoveredOp, Region

    Offload = Callable[[frozenset[OpTag]], tuple[IRModule, Coverage]]

__all__ = ["PartitionPolicy", "Settled", "as_policy", "require_no_host_ops", "settle"]


@dataclass(frozen=True)
class PartitionPolicy:
    """What a partition leaves on the host although the backend could take it.

    Each region costs a boundary: tensors are handed over, and the host fuses nothing across it. So
    more regions are not always better; `byoc.dry_run` shows what each threshold gives.

    Parameters
    ----------
    min_region_ops : int
        Regions of fewer ops go back to the host.
    require_mac : bool
        Regions without an op that multiplies and accumulates (convolution, matmul, attention) go
        back to the host.
    exclude_ops : tuple of str
        Operators that are not offloaded: ``relax.nn.relu``, short ``nn.relu`` or ``relu``, or a
        glob such as ``nn.*pool2d``. One string may list several, with commas.
    exclude_names : tuple of str
        Ops that are not offloaded, by their names in the coverage report, or globs.
    include_only : tuple of str
        Operators that may be offloaded, written as in `exclude_ops`; empty: all of them.
    max_regions : int, optional
        The regions with the most multiply-accumulates are kept, of equals those with most ops.
    strict : bool
        An op on the host is a `ModelError` that lists them all.

    Raises
    ------
    OptionError
        For a value that is not allowed, and an operator that TVM does not have.
    """

    min_region_ops: int = 1
    require_mac: bool = False
    exclude_ops: tuple[str, ...] = ()
    exclude_names: tuple[str, ...] = ()
    include_only: tuple[str, ...] = ()
    max_regions: int | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        _check_count("min_region_ops", self.min_region_ops, least=1)
        if self.max_regions is not None:
            _check_count("max_regions", self.max_regions, least=0)
        for name in ("require_mac", "strict"):
            if not isinstance(getattr(self, name), bool):
                raise OptionError(f"policy {name}={getattr(self, name)!r}: expected true or false")
        for name in ("exclude_ops", "exclude_names", "include_only"):
            values = _as_names(name, getattr(self, name))
            if name != "exclude_names":
                values = tuple(_full_name(name, value) for value in values)
            object.__setattr__(self, name, values)

    def __str__(self) -> str:
        return (
            ", ".join(f"{name}={_text(value)}" for name, value in self._set().items()) or "default"
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields, as ``--json`` shows them and `as_policy` takes them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    def refused_ops(self, ops: Iterable[CoveredOp]) -> dict[OpTag, str]:
        """Those of `ops` that the policy keeps on the host by operator or name, and why.

        Raises
        ------
        OptionError
            When a name of `exclude_names` is none of theirs.
        """
        ops = tuple(ops)
        self._check_names({op.name for op in ops})
        found = ((OpTag(op.function, op.name), self._why_not(op)) for op in ops)
        return {tag: why for tag, why in found if why is not None}

    def refused_regions(self, coverage: Coverage) -> dict[str, str]:
        """Names of the regions that the policy gives back to the host, and why."""
        has_mac = {op.region for op in coverage.ops if op.op in MAC_OPS}
        refused = {}
        for region in coverage.regions:
            if region.ops < self.min_region_ops:
                refused[region.name] = (
                    f"its region has {region.ops} op(s), min_region_ops is {self.min_region_ops}"
                )
            elif self.require_mac and region.name not in has_mac:
                refused[region.name] = "its region multiplies and accumulates nothing (require_mac)"
        if refused or self.max_regions is None:
            return refused
        ranked = sorted(coverage.regions, key=_worth, reverse=True)
        text = f"its region is not among those with most MACs, max_regions is {self.max_regions}"
        return {region.name: text for region in ranked[self.max_regions :]}

    def _set(self) -> dict[str, Any]:
        """The fields that are not as by default."""
        values = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def _why_not(self, op: CoveredOp) -> str | None:
        for pattern in self.exclude_names:
            if fnmatchcase(op.name, pattern):
                return f"exclude_names has '{pattern}'"
        for pattern in self.exclude_ops:
            if fnmatchcase(op.op, pattern):
                return f"exclude_ops has '{pattern}'"
        if self.include_only and not any(fnmatchcase(op.op, p) for p in self.include_only):
            return f"include_only has {', '.join(self.include_only)}"
        return None

    def _check_names(self, names: Collection[str]) -> None:
        for pattern in self.exclude_names:
            if not any(fnmatchcase(name, pattern) for name in names):
                close = difflib.get_close_matches(pattern, names, n=3)
                hint = f"close to it: {', '.join(close)}" if close else "coverage.ops has the names"
                raise OptionError(f"policy exclude_names has '{pattern}', which is no op; {hint}")


def as_policy(policy: PartitionPolicy | Mapping[str, Any] | None) -> PartitionPolicy | None:
    """`policy`, made from a mapping if it is one.

    Raises
    ------
    OptionError
        For a field that a policy does not have.
    """
    if policy is None or isinstance(policy, PartitionPolicy):
        return policy
    if not isinstance(policy, Mapping):
        raise OptionError(
            f"policy must be a PartitionPolicy or a dict, not {type(policy).__name__}"
        )
    known = [field.name for field in fields(PartitionPolicy)]
    for key in policy:
        if key not in known:
            raise OptionError(
                f"a policy has no '{key}'{did_you_mean(key, known)}; it has: {', '.join(known)}"
            )
    return PartitionPolicy(**policy)


@dataclass(frozen=True)
class Settled:
    """What a policy makes of a partition.

    Parameters
    ----------
    mod : tvm.IRModule
    coverage : Coverage
        Without reasons.
    refused : mapping of OpTag to str
        The ops that the backend takes and the policy does not, with the reason.
    """

    mod: IRModule
    coverage: Coverage
    refused: Mapping[OpTag, str]


def settle(policy: PartitionPolicy | None, offload: Offload) -> Settled:
    """Partition under `policy`: exclude what it refuses, and partition again until nothing changes.

    Ops of a refused region are excluded at match time, so that the host part is as if they had
    never matched.

    Parameters
    ----------
    policy : PartitionPolicy, optional
    offload : callable
        Gets the ops to exclude; gives the partitioned module and its coverage.
    """
    mod, coverage = offload(frozenset())
    if policy is None:
        return Settled(mod, coverage, {})
    taken = _taken(coverage)
    excluded = policy.refused_ops(coverage.ops)
    if excluded.keys() & taken:
        mod, coverage = offload(frozenset(excluded))
    while new := _ops_of_refused(policy, coverage, excluded):
        excluded |= new
        mod, coverage = offload(frozenset(excluded))
    lost = taken - _taken(coverage)
    together = "the backend takes it only together with ops that the policy keeps on the host"
    return Settled(mod, coverage, {tag: excluded.get(tag, together) for tag in lost})


def require_no_host_ops(coverage: Coverage) -> None:
    """Raise `ModelError`, which lists them with their reasons, when ops are on the host."""
    if coverage.offloaded == coverage.total:
        return
    groups: dict[tuple[str, str], list[str]] = {}
    for op in coverage.ops:
        if op.region is None:
            groups.setdefault((op.op, op.reason.text if op.reason else ""), []).append(op.name)
    ranked = sorted(groups.items(), key=lambda item: -len(item[1]))
    lines = [_group(op, text, names) for (op, text), names in ranked[:_MOST_GROUPS]]
    if len(ranked) > len(lines):
        lines.append(f"{sum(len(names) for _, names in ranked[_MOST_GROUPS:])} more ops")
    raise ModelError(
        f"policy strict: {coverage.total - coverage.offloaded} of {coverage.total} ops stay on the "
        f"host: {'; '.join(lines)}"
    )


_MOST_GROUPS = 8
_MOST_NAMES = 3


def _group(op: str, text: str, names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    count = "" if len(names) == 1 else f"{len(names)} x "
    return f"{count}{op} `{shown}` ({text})"


def _taken(coverage: Coverage) -> set[OpTag]:
    return {OpTag(op.function, op.name) for op in coverage.ops if op.region is not None}


def _ops_of_refused(
    policy: PartitionPolicy, coverage: Coverage, known: Collection[OpTag]
) -> dict[OpTag, str]:
    """The ops of refused regions that are not excluded yet, and why.

    Nothing is left to do for a region that stays although its ops are excluded: the module had it
    before it was partitioned.
    """
    refused = policy.refused_regions(coverage)
    ops = ((OpTag(op.function, op.name), op.region) for op in coverage.ops)
    return {tag: refused[region] for tag, region in ops if region in refused and tag not in known}


def _worth(region: Region) -> tuple[float, int]:
    """What a region is kept for; MACs that a symbolic dimension decides count as many."""
    return (math.inf if region.macs is None else region.macs, region.ops)


# --- The fields ---------------------------------------------------------------------------------


def _check_count(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise OptionError(f"policy {name}={value!r}: expected an integer >= {least}")


def _as_names(field: str, value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, Iterable) or isinstance(items, Mapping):
        raise OptionError(f"policy {field}={value!r}: expected a name or a list of names")
    names = tuple(item.strip() if isinstance(item, str) else item for item in items)
    for name in names:
        if not isinstance(name, str) or not name:
            raise OptionError(f"policy {field} has {name!r}: expected a name")
    return names


_PREFIXES = ("", "relax.", "relax.nn.")


@functools.cache
def _operators() -> tuple[str, ...]:
    from tvm import relax  # noqa: F401 - registers them
    from tvm.ir import Op

    return tuple(sorted(str(n) for n in Op.list_op_names() if str(n).startswith("relax.")))


def _full_name(field: str, name: str) -> str:
    """The operator's full name; of a glob, the first spelling that some operator fits."""
    for prefix in _PREFIXES:
        if any(fnmatchcase(operator, prefix + name) for operator in _operators()):
            return prefix + name
    short = {operator.rpartition(".")[2].lower(): operator for operator in _operators()}
    last = name.rpartition(".")[2].lower()
    close = [short[item] for item in difflib.get_close_matches(last, short, n=1)]
    hint = f"did you mean '{close[0]}'?" if close else "operators are named as in relax.nn.conv2d"
    raise OptionError(f"policy {field} has '{name}', which is no operator of TVM; {hint}")


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
