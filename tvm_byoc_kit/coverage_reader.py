"""Reading the coverage off a partitioned module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import op_cost
from tvm_byoc_kit.coverage import Coverage, CoveredOp, Region
from tvm_byoc_kit.occurrences import Occurrence, Walk, constants_of, producers_of
from tvm_byoc_kit.op_names import OpTag, UniqueNames, tag_of, tag_ops
from tvm_byoc_kit.op_pairing import pair
from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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
    source = Walk(tag_ops(original)) if original is not None else None
    partner = pair(walk, source) if source is not None else {}
    origins = [
        source.ops[partner[position]] if source is not None and position in partner else op
        for position, op in enumerate(walk.ops)
    ]
    order = _order(walk.ops, partner)
    places = {position: place for place, position in enumerate(order)}
    names = _names([origins[position] for position in order])
    ops = tuple(
        _covered_op(walk, walk.ops[position], name, places)
        for position, name in zip(order, names, strict=True)
    )
    if explain is not None:
        ops = tuple(
            _explained(op, origins[position], explain)
            for op, position in zip(ops, order, strict=True)
        )
    by_position = {position: ops[place] for position, place in places.items()}
    regions = tuple(
        _region(walk, call, [by_position[at] for at in range(call.first, call.last)])
        for call in walk.regions
    )
    return Coverage(ops, regions, backend, model, tvm.__version__)


def _order(ops: list[Occurrence], partner: dict[int, int]) -> list[int]:
    """Positions in `ops` in the order of their partners; those without one stay where they were."""
    keys: dict[int, tuple[int, int]] = {}
    latest: dict[str, int] = {}
    for position, op in enumerate(ops):
        latest[op.function] = partner.get(position, latest.get(op.function, -1))
        keys[position] = (latest[op.function], position)
    if not partner:
        return list(range(len(ops)))
    return sorted(keys, key=keys.__getitem__)


def _names(origins: Iterable[Occurrence]) -> list[str]:
    """A name for each, unique in its function."""
    unique: dict[str, UniqueNames] = {}
    names = []
    for op in origins:
        tag = tag_of(op.call) or OpTag(op.function, op.name)
        names.append(unique.setdefault(op.function, UniqueNames())(tag.name))
    return names


def _explained(op: CoveredOp, origin: Occurrence, explain: Callable[[HostOp], Reason]) -> CoveredOp:
    if op.region is not None:
        return op
    reason = explain(HostOp(op.function, op.name, origin.call, origin.in_dataflow))
    return replace(op, reason=reason)


def _covered_op(walk: Walk, op: Occurrence, name: str, places: dict[int, int]) -> CoveredOp:
    shape = getattr(op.call.ty, "shape", None)
    constants = [walk.constants[address] for address in constants_of(op.operands)]
    return CoveredOp(
        name=name,
        op=str(op.call.op.name),
        shape="x".join(str(dimension(dim)) for dim in shape) if shape is not None else "",
        dtype=str(getattr(op.call.ty, "dtype", None) or ""),
        region=op.region,
        composite=op.composite,
        function=op.function,
        macs=op_cost.macs(op.call),
        parameters=sum(op_cost.elements(constant.ty) or 0 for constant in constants),
        bytes=op_cost.size_in_bytes(op.call.ty),
        inputs=tuple(sorted(places[position] for position in producers_of(op.operands))),
    )


def _region(walk: Walk, call: Any, ops: list[CoveredOp]) -> Region:
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
