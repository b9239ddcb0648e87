"""What a partition offloads: every op, the region that took it, or the reason why none did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from tvm_byoc_kit.op_cost import total

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.example_npu_schedule import Schedule

__all__ = [
    "REASON_KINDS",
    "Coverage",
    "CoveredOp",
    "Reason",
    "ReasonKind",
    "Region",
    "Totals",
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
        Multiply-accumulates, as `op_cost.macs` counts them; None when a symbolic dimension decides.
    parameters : int
        Elements of its constant operands. A constant that several ops read counts for each.
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
        None when a symbolic dimension decides.
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
class Totals:
    """Sums over ops.

    Parameters
    ----------
    ops : int
    macs : int or None
        None when it is not known of one of them.
    parameters : int
    bytes : int or None
        Of their results; None when it is not known of one of them.
    """

    ops: int
    macs: int | None
    parameters: int
    bytes: int | None


@dataclass(frozen=True)
class Coverage:
    """Ops in the order of the module that was partitioned, and regions in the order of execution.

    Parameters
    ----------
    ops : tuple of CoveredOp
    regions : tuple of Region
    backend : str
    model : str
        Where the model came from; empty for a module.
    tvm : str
        Version of TVM.
    """

    ops: tuple[CoveredOp, ...]
    regions: tuple[Region, ...]
    backend: str = ""
    model: str = ""
    tvm: str = ""

    @property
    def offloaded(self) -> int:
        """Number of ops in regions."""
        return self.offloaded_totals.ops

    @property
    def total(self) -> int:
        """Number of ops."""
        return len(self.ops)

    @property
    def totals(self) -> Totals:
        """Of all ops."""
        return _totals(self.ops)

    @property
    def offloaded_totals(self) -> Totals:
        """Of the ops in regions."""
        return _totals(op for op in self.ops if op.region is not None)

    @property
    def macs_share(self) -> float | None:
        """Part of the MACs in regions; None when it is not known, or when there are none."""
        everything, offloaded = self.totals.macs, self.offloaded_totals.macs
        return offloaded / everything if everything and offloaded is not None else None

    @property
    def boundary_bytes(self) -> int | None:
        """Bytes that go into and out of all regions in one run; None when not known of one."""
        return total(
            size for region in self.regions for size in (region.bytes_in, region.bytes_out)
        )

    @property
    def host_ops(self) -> dict[str, int]:
        """Ops that stayed on the host, with how often; the most frequent first."""
        return dict(Counter(op.op for op in self.ops if op.region is None).most_common())

    @property
    def host_reasons(self) -> dict[tuple[str, Reason | None], int]:
        """The same, told apart by reason."""
        found = Counter((op.op, op.reason) for op in self.ops if op.region is None)
        return dict(found.most_common())

    def to_dict(self) -> dict[str, Any]:
        """For JSON; ``data/coverage.schema.json`` describes it."""
        from tvm_byoc_kit import coverage_json

        return coverage_json.to_dict(self)

    def to_json(self) -> str:
        """The report as JSON text, which `from_json` reads back."""
        from tvm_byoc_kit import coverage_json

        return coverage_json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Coverage:
        """Read what `to_json`, or ``tvm-byoc partition --json``, wrote.

        Raises
        ------
        InputError
            When `text` is something else, or of a later version.
        """
        from tvm_byoc_kit import coverage_json

        return coverage_json.loads(text)

    def to_html(self, schedule: Iterable[Schedule] = ()) -> str:
        """A page that needs no network: totals, the ops as a table, and their graph.

        Parameters
        ----------
        schedule : iterable of Schedule
            What the example NPU recorded, drawn as a timeline.
        """
        from tvm_byoc_kit import coverage_page

        return coverage_page.render(self, tuple(schedule))

    def __str__(self) -> str:
        from tvm_byoc_kit import coverage_text

        return coverage_text.render(self)


def _totals(ops: Iterable[CoveredOp]) -> Totals:
    chosen = tuple(ops)
    return Totals(
        ops=len(chosen),
        macs=total(op.macs for op in chosen),
        parameters=sum(op.parameters for op in chosen),
        bytes=total(op.bytes for op in chosen),
    )
