"""Reading the coverage off a partitioned module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_byoc_kit import op_cost
from tvm_byoc_kit.coverage import Coverage, CoveredOp, Region
from tvm_byoc_kit.occurrences import Occurrence, RegionCall, Walk, constants_of, producers_of
from tvm_byoc_kit.op_names import OpTag, UniqueNames, tag_of, tag_ops
from tvm_byoc_kit.op_pairing import pair
from tvm_byoc_kit.rewriting import op_name
from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tvm import IRModule
    from tvm.relax import Call

    from tvm_byoc_kit.coverage import Reason

__all__ = ["HostOp", "read_coverage"]


@dataclass(frozen=True)
class HostOp:
    """An op that stayed on the host, as whoever explains it gets it.

    Parameters
    ----------
    function, name : str
        As in `CoveredOp`.
    call : relax.Call
        As it was before partitioning, where that is known.
    in_dataflow : bool
        Whether it stands in a dataflow block.
    """

    function: str
    name: str
    call: Call
    in_dataflow: bool


def read_coverage(
    mod: IRModule,
    *,
    original: IRModule | None = None,
    backend: str = "",
    model: str = "",
    explain: Callable[[HostOp], Reason] | None = None,
) -> Coverage:
    """Read the coverage off a partitioned module.

    Parameters
    ----------
    mod : tvm.IRModule
    original : tvm.IRModule, optional
        The module before it was partitioned. Its ops give the names and the order; without it
        they come from the tags of `tag_ops`, or where there are none, from `mod` itself.
    backend, model : str
        What to write into the report.
    explain : callable, optional
        Gives the reason for an op on the host.
    """
    import tvm

    walk = Walk(mod)
    if original is None and not any(tag_of(op.call) for op in walk.ops):
        walk = Walk(tag_ops(mod))
    reading = _Reading(walk, Walk(tag_ops(original)) if original is not None else None)
    ops = tuple(reading.ops(explain))
    regions = tuple(
        _region(walk, call, [ops[reading.places[at]] for at in range(call.first, call.last)])
        for call in walk.regions
    )
    return Coverage(ops, regions, backend, model, tvm.__version__)


class _Reading:
    """The ops of a partitioned module, each beside its original where there is one.

    Region and pattern are those of the partitioned module; all else is said of the original, so
    that it is the same whatever the passes did: composites lose shapes and share functions.
    """

    def __init__(self, walk: Walk, original: Walk | None) -> None:
        self._walk = walk
        self._original = original
        self._partner = pair(walk, original) if original is not None else {}
        order = self._order()
        self.places = {position: place for place, position in enumerate(order)}
        """Where in the report each op of the walk stands."""
        self._original_places = {
            position: self.places[at] for at, position in self._partner.items()
        }
        self._positions = order

    def ops(self, explain: Callable[[HostOp], Reason] | None) -> Iterator[CoveredOp]:
        unique: dict[str, UniqueNames] = {}
        for position in self._positions:
            op, (walk, origin) = self._walk.ops[position], self._origin(position)
            tag = tag_of(origin.call) or OpTag(op.function, origin.name)
            name = unique.setdefault(op.function, UniqueNames())(tag.name)
            reason = None
            if op.region is None and explain is not None:
                reason = explain(HostOp(op.function, name, origin.call, origin.in_dataflow))
            inputs = self._inputs(position)
            yield _covered_op(walk, origin, op, name=name, reason=reason, inputs=inputs)

    def _origin(self, position: int) -> tuple[Walk, Occurrence]:
        """The original of an op, or itself, and the walk that it is of."""
        if self._original is not None and position in self._partner:
            return self._original, self._original.ops[self._partner[position]]
        return self._walk, self._walk.ops[position]

    def _inputs(self, position: int) -> tuple[int, ...]:
        walk, origin = self._origin(position)
        producers = producers_of(origin.operands)
        places = self.places if walk is self._walk else self._original_places
        if not all(producer in places for producer in producers):
            producers, places = producers_of(self._walk.ops[position].operands), self.places
        return tuple(sorted(places[producer] for producer in producers))

    def _order(self) -> list[int]:
        """Positions in the order of the partners; an op that has none follows the one before it."""
        if self._original is None:
            return list(range(len(self._walk.ops)))
        latest: dict[str, int] = {}
        for position, op in enumerate(self._original.ops):
            latest.setdefault(op.function, position - 1)
        keys = []
        for position, op in enumerate(self._walk.ops):
            latest[op.function] = self._partner.get(position, latest.get(op.function, -1))
            keys.append((latest[op.function], position))
        return [position for _, position in sorted(keys)]


def _covered_op(
    walk: Walk,
    origin: Occurrence,
    op: Occurrence,
    *,
    name: str,
    reason: Reason | None,
    inputs: tuple[int, ...],
) -> CoveredOp:
    call = origin.call
    shape = getattr(call.ty, "shape", None)
    constants = [walk.constants[address] for address in constants_of(origin.operands)]
    return CoveredOp(
        name=name,
        op=op_name(call),
        shape="x".join(str(dimension(dim)) for dim in shape) if shape is not None else "",
        dtype=str(getattr(call.ty, "dtype", None) or ""),
        region=op.region,
        composite=op.composite,
        reason=reason,
        function=op.function,
        macs=op_cost.macs(call),
        parameters=sum(op_cost.elements(constant.ty) or 0 for constant in constants),
        bytes=op_cost.size_in_bytes(call.ty),
        inputs=inputs,
    )


def _region(walk: Walk, call: RegionCall, ops: list[CoveredOp]) -> Region:
    crossing = [
        op_cost.size_in_bytes(arg.ty)
        for arg, operand in zip(call.call.args, call.operands, strict=True)
        if operand[0] != "const"
    ]
    constants = dict.fromkeys((*call.inner_constants, *constants_of(call.operands)))
    sizes = [op_cost.size_in_bytes(walk.constants[address].ty) for address in constants]
    return Region(
        name=call.name,
        function=call.function,
        backend=str(call.callee.attrs["Codegen"]),
        composites=call.composites,
        ops=len(ops),
        macs=op_cost.total(op.macs for op in ops),
        bytes_in=op_cost.total(crossing),
        bytes_out=op_cost.size_in_bytes(call.call.ty),
        constants=len(constants),
        constant_bytes=sum(size or 0 for size in sizes),
    )
