"""What a partition offloads: every op, the region that took it, or the reason why none did."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "REASON_KINDS",
    "Coverage",
    "CoveredOp",
    "Reason",
    "ReasonKind",
    "Region",
]

ReasonKind = Literal["no_pattern", "refused", "no_match", "outside_dataflow", "policy"]
REASON_KINDS: tuple[ReasonKind, ...] = get_args(ReasonKind)


@dataclass(frozen=True)
class Reason:
    """Why an op stayed on the host.

    Parameters
    ----------
    kind : str
        ``no_pattern``: no pattern of the backend names the op. ``refused``: one does, and a
        predicate refused this call. ``no_match``: patterns name the op, but only together with
        others that are not there, or a check of the pattern's own failed. ``outside_dataflow``:
        it stands outside a dataflow block, where nothing is offloaded. ``policy``: the backend
        could take it, the policy did not.
    text : str
        One line that names what was found and what was expected.
    """

    kind: ReasonKind
    text: str


@dataclass(frozen=True)
class CoveredOp:
    """One occurrence of an operator.

    Parameters
    ----------
    name : str
        The variable that holds its result in the module that was partitioned; unique in its
        function.
    op : str
        Such as ``relax.nn.conv2d``.
    shape, dtype : str
        Of the result, such as ``1x16x30x30`` and ``float32``; empty for a tuple.
    region : str or None
        Name of the region; None on the host.
    composite : str or None
        The pattern that matched it.
    reason : Reason or None
        Why it is on the host; None in a region.
    function : str
        The function in which it stands, before partitioning.
    macs : int or None
        Multiply-accumulates; None when a symbolic dimension decides.
    parameters : int
        Elements of its constant operands.
    bytes : int or None
        Of its result; None when a symbolic dimension decides.
    inputs : tuple of int
        Positions in `Coverage.ops` of the ops whose results it reads.
    """

    name: str
    op: str
    shape: str
    dtype: str
    region: str | None = None
    composite: str | None = None
    reason: Reason | None = None
    function: str = "main"
    macs: int | None = 0
    parameters: int = 0
    bytes: int | None = None
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Region:
    """One call site of a partitioned function; identical functions are shared by calls.

    Parameters
    ----------
    name : str
        The function's, with ``#2`` and so on from its second call on.
    function, backend : str
    composites : tuple of str
        Patterns, in the order of their calls.
    ops : int
    macs : int or None
    bytes_in, bytes_out : int or None
        That cross its boundary at each call, constants left out; None when a symbolic dimension
        decides.
    constants, constant_bytes : int
        Number and size of the constants that it holds or is given.
    """

    name: str
    function: str
    backend: str
    composites: tuple[str, ...]
    ops: int
    macs: int | None = 0
    bytes_in: int | None = None
    bytes_out: int | None = None
    constants: int = 0
    constant_bytes: int = 0


@dataclass(frozen=True)
class Coverage:
    """Ops and regions in the order of execution.

    Parameters
    ----------
    ops : tuple of CoveredOp
    regions : tuple of Region
    backend : str
    model : str
        Where the model came from; empty for a module.
    """

    ops: tuple[CoveredOp, ...]
    regions: tuple[Region, ...]
    backend: str = ""
    model: str = ""

    @property
    def offloaded(self) -> int:
        """Number of ops in regions."""
        return sum(op.region is not None for op in self.ops)

    @property
    def total(self) -> int:
        """Number of ops."""
        return len(self.ops)

    @property
    def host_ops(self) -> dict[str, int]:
        """Ops that stayed on the host, with how often."""
        return dict(Counter(op.op for op in self.ops if op.region is None).most_common())

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "ops_total": self.total,
            "ops_offloaded": self.offloaded,
            "host_ops": self.host_ops,
            "regions": [
                vars(region) | {"composites": list(region.composites)} for region in self.regions
            ],
            "ops": [asdict(op) for op in self.ops],
        }

    def __str__(self) -> str:
        lines = [f"{self.offloaded} of {self.total} ops offloaded in {len(self.regions)} region(s)"]
        for number, region in enumerate(self.regions, 1):
            parts = _tally(Counter(region.composites).most_common())
            lines.append(f"  region {number} ({region.backend}, {region.ops} ops): {parts}")
        if self.host_ops:
            lines.append(f"  on the host: {_tally(self.host_ops.items())}")
        return "\n".join(lines)


def _tally(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(name if n == 1 else f"{n} x {name}" for name, n in counts)
