"""What the example NPU decided: engines, memory tiers, tiles, estimated cycles, as a trace too.

>>> from tvm_byoc_kit.backends import example_npu_schedule as npu
>>> regions = npu.schedules(executable)
>>> rich.print(npu.summary(regions))
>>> npu.write_chrome_trace("trace.json", regions)  # opens in https://ui.perfetto.dev

The numbers come from a cost model, described in docs/example_npu_cost_model.md; no hardware is
involved.
"""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import PluginError
from tvm_byoc_kit.terminal import as_text
from tvm_byoc_kit.trace_events import counter, lanes, span, write_trace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from rich.table import Table
    from tvm import IRModule

__all__ = [
    "ENGINES",
    "TIERS",
    "MemoryTier",
    "Operand",
    "Schedule",
    "ScheduledOp",
    "Tiling",
    "chrome_trace",
    "planned_schedules",
    "schedules",
    "summary",
    "summary_text",
    "write_chrome_trace",
]

ENGINES = ("matrix", "vector", "conv", "pooling", "activation")
TIERS = ("L0", "L1", "L2", "L3")

_KIND = "example_npu_json"
_VERSION = 1  # of the JSON, see csrc/example_npu/schedule.h


@dataclass(frozen=True)
class Operand:
    """A tensor that an op reads or writes.

    Parameters
    ----------
    role : str
        ``input``, ``weight`` or ``output``.
    name : str
        The parameter's or constant's name; ``<composite>#<node>.<output>`` of another op's result.
    shape : tuple of int
        Actual dimensions.
    dtype : str
        For instance ``float32``.
    bytes : int
        Size.
    preferred_tier, tier : str
        Where the tensor would best live, and where it does: one of `TIERS`.
    spilled : bool
        Whether it had to go further out than preferred.
    moved_bytes : int
        Bytes read from or written to its tier, re-reads by several tiles included.
    transfers : int
        In how many pieces.
    """

    role: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    preferred_tier: str
    tier: str
    spilled: bool
    moved_bytes: int
    transfers: int


@dataclass(frozen=True)
class Tiling:
    """How an op is cut into pieces whose operands fit a memory tier together.

    Parameters
    ----------
    dims : tuple of str
        Names of the loops: batch, group, row, column, channel, reduce of a convolution; batch, m,
        n, k of a matmul; d0, d1, … (dimensions of the largest operand) of the others.
    extents, tile : tuple of int
        Length of each loop, and of a tile's part of it.
    tiles : int
        Number of tiles.
    tile_bytes : int
        Of all operands of the largest tile.
    tier : str
        The tier that holds a tile: L1, or L2 or L3 when even the smallest tile is too large.
    """

    dims: tuple[str, ...]
    extents: tuple[int, ...]
    tile: tuple[int, ...]
    tiles: int
    tile_bytes: int
    tier: str


@dataclass(frozen=True)
class ScheduledOp:
    """One composite call of a region.

    Parameters
    ----------
    node : int
        Its node in the region's graph.
    name : str
        The composite, for instance ``example_npu.conv2d_relu_fused``.
    ops : tuple of str
        Relax ops in it.
    engine : str
        One of `ENGINES`.
    fused : bool
        Whether more than one of its ops computes.
    macs, element_ops : int
        Multiply-accumulates, and operations on single elements.
    operands : tuple of Operand
        Inputs and weights, then outputs.
    tiling : Tiling
        How it is cut.
    moved_bytes, transfers : tuple of int
        Bytes and number of tiles through the ports of L0, L1, L2 and L3.
    compute_cycles, memory_cycles, cycles : int
        Cycles of either, and the greater of the two.
    bound : str
        ``compute`` or ``memory``: what `cycles` comes from.
    start_cycle : int
        When it starts, counted from the region's start.
    """

    node: int
    name: str
    ops: tuple[str, ...]
    engine: str
    fused: bool
    macs: int
    element_ops: int
    operands: tuple[Operand, ...]
    tiling: Tiling
    moved_bytes: tuple[int, ...]
    transfers: tuple[int, ...]
    compute_cycles: int
    memory_cycles: int
    cycles: int
    bound: str
    start_cycle: int

    @property
    def end_cycle(self) -> int:
        """When it has finished, counted from the region's start."""
        return self.start_cycle + self.cycles


@dataclass(frozen=True)
class MemoryTier:
    """A memory of the modelled NPU and its use by a region.

    Parameters
    ----------
    name : str
        One of `TIERS`.
    capacity_bytes : int
        Size; -1 for the DRAM, which the model does not limit.
    bytes_per_cycle : float
        Bandwidth.
    access_cycles : int
        Cycles for each transfer of a tile.
    peak_bytes : int
        Most bytes of intermediate tensors that live in it at one time.
    moved_bytes : int
        Bytes through its port.
    """

    name: str
    capacity_bytes: int
    bytes_per_cycle: float
    access_cycles: int
    peak_bytes: int
    moved_bytes: int


@dataclass(frozen=True)
class Schedule:
    """All decisions for one region. ``str()`` gives the summary table as text.

    Parameters
    ----------
    symbol : str
        The region's global symbol.
    mode, power_mode : str
        Options that it was made with.
    frequency_mhz : float
        Cycles per microsecond in that power mode.
    macs : int
        Multiply-accumulates of all ops.
    cycles : int
        From the start of the first op to the end of the last.
    microseconds : float
        The same as estimated time.
    tiers : tuple of MemoryTier
        L0 to L3.
    ops : tuple of ScheduledOp
        In program order.
    """

    symbol: str
    mode: str
    power_mode: str
    frequency_mhz: float
    macs: int
    cycles: int
    microseconds: float
    tiers: tuple[MemoryTier, ...]
    ops: tuple[ScheduledOp, ...]

    @classmethod
    def from_json(cls, text: str, symbol: str = "") -> Schedule:
        """Read what the plugin's ``get_schedule`` gives.

        Parameters
        ----------
        text : str
            JSON as documented in ``csrc/example_npu/schedule.h``.
        symbol : str
            The region's name.

        Raises
        ------
        PluginError
            When the plugin and the Python half do not speak of the same thing.
        """
        try:
            data = json.loads(text)
            version = data.pop("version")
            if version == _VERSION:
                tiers = tuple(MemoryTier(**tier) for tier in data.pop("tiers"))
                ops = tuple(_op_from_json(op) for op in data.pop("ops"))
                return cls(symbol=symbol, tiers=tiers, ops=ops, **data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise PluginError(
                f"the schedule of region '{symbol}' is not as expected ({error}); "
                "reinstall tvm-byoc-kit, so that its plugin and its Python half match"
            ) from error
        raise PluginError(
            f"the schedule of region '{symbol}' has version {version}, expected {_VERSION}; "
            "reinstall tvm-byoc-kit, so that its plugin and its Python half match"
        )

    def __str__(self) -> str:
        return summary_text(self)


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}


def _op_from_json(data: Mapping[str, Any]) -> ScheduledOp:
    op = _tuples(data)
    op["operands"] = tuple(Operand(**_tuples(operand)) for operand in op["operands"])
    op["tiling"] = Tiling(**_tuples(op["tiling"]))
    return ScheduledOp(**op)


def schedules(executable: Any) -> tuple[Schedule, ...]:
    """Schedules of all example NPU regions of a built model.

    Parameters
    ----------
    executable : Executable, tvm.runtime.Executable or tvm.runtime.Module
        The built model, or one region's module.

    Returns
    -------
    tuple of Schedule
        In the order of the modules' import tree; empty when nothing was offloaded. A region with
        symbolic dimensions is scheduled for the shapes of its last call; where the model has
        several builds, for batches of different sizes, it is left out until there was one.

    Raises
    ------
    ValueError
        For a region with symbolic dimensions that has not been called.
    """
    manifest = getattr(executable, "manifest", None)
    several = manifest is not None and bool(manifest.variants)
    found = []
    for module in _npu_modules(_module_of(executable), set()):
        with suppress(ValueError) if several else nullcontext():
            found.append(
                Schedule.from_json(
                    str(module.get_function("get_schedule")()),
                    str(module.get_function("get_symbol")()),
                )
            )
    return tuple(found)


def planned_schedules(mod: IRModule) -> tuple[Schedule, ...]:
    """Schedules of the example NPU regions of a partitioned module, before it is built.

    Parameters
    ----------
    mod : tvm.IRModule
        Such as `Partition.mod`. The plugin has to be there: ``backend.require("codegen")``.

    Returns
    -------
    tuple of Schedule
        Regions with symbolic dimensions have none before they are called, and are left out.
    """
    from tvm import relax

    found: list[Schedule] = []
    compiled = relax.transform.RunCodegen()(mod)
    for module in (compiled.attrs or {}).get("external_mods", ()):
        with suppress(ValueError):  # symbolic
            found.extend(schedules(module))
    return tuple(found)


def _module_of(executable: Any) -> Any:
    """Return the runtime module inside the kit's or TVM's executable, or the module itself."""
    while not hasattr(type(executable), "imports"):
        for name in ("module", "mod"):
            if hasattr(executable, name):
                executable = getattr(executable, name)
                break
        else:
            raise TypeError(
                f"expected a built model or a runtime module, got {type(executable).__name__}"
            )
    return executable


def _npu_modules(module: Any, seen: set[Any]) -> Iterator[Any]:
    if module in seen:
        return
    seen.add(module)
    if module.kind == _KIND:
        yield module
    for child in module.imports:
        yield from _npu_modules(child, seen)


# Summary ------------------------------------------------------------------------------------------


def summary(regions: Schedule | Iterable[Schedule]) -> Table:
    """Tabulate the ops of regions with totals, narrow enough for a terminal of 80 columns.

    Parameters
    ----------
    regions : Schedule or iterable of Schedule
        As from `schedules`.

    Returns
    -------
    rich.table.Table
        One row for each op: engine, MACs, bytes (K = 1024) through each tier but registers, tiles,
        estimated cycles, what bounds them, estimated microseconds; one row of totals for each
        region, and one for all where there are several. A region's cycles are those of its
        timeline, less than the sum where engines work at the same time. The rest, such as spills
        and tile sizes, is in the dataclasses and in the trace.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    regions = _as_tuple(regions)
    modes = sorted({f"{region.power_mode}, {region.frequency_mhz:g} MHz" for region in regions})
    title = f"example NPU, estimated ({'; '.join(modes)})" if modes else "example NPU: no region"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, padding=0)
    ops = [op for region in regions for op in region.ops]
    tiers = [tier for tier in range(1, len(TIERS)) if any(op.moved_bytes[tier] for op in ops)]
    names = [TIERS[tier] for tier in tiers]
    for name in ("op", "engine", "MACs", *names, "tiles", "cycles", "bound", "µs"):
        table.add_column(name, justify="left" if name in _TEXT_COLUMNS else "right")
    for number, region in enumerate(regions, 1):
        for op in region.ops:
            table.add_row(*_op_cells(op, region, tiers))
        table.add_row(*_total_cells(f"region {number}", (region,), tiers), style="bold")
    if len(regions) > 1:
        table.add_row(*_total_cells("all regions", regions, tiers), style="bold")
    return table


_TEXT_COLUMNS = ("op", "engine", "bound")


def _op_cells(op: ScheduledOp, region: Schedule, tiers: list[int]) -> list[str]:
    return [
        op.name.removeprefix("example_npu."),
        op.engine,
        f"{op.macs:,}",
        *(_size(op.moved_bytes[tier]) for tier in tiers),
        f"{op.tiling.tiles:,}",
        f"{op.cycles:,}",
        op.bound,
        f"{op.cycles / region.frequency_mhz:,.2f}",
    ]


def _total_cells(name: str, regions: tuple[Schedule, ...], tiers: list[int]) -> list[str]:
    ops = [op for region in regions for op in region.ops]
    return [
        name,
        "",
        f"{sum(op.macs for op in ops):,}",
        *(_size(sum(op.moved_bytes[tier] for op in ops)) for tier in tiers),
        f"{sum(op.tiling.tiles for op in ops):,}",
        f"{sum(region.cycles for region in regions):,}",
        "",
        f"{sum(region.microseconds for region in regions):,.2f}",
    ]


def _size(count: float) -> str:
    """Bytes in three digits: ``896``, ``18.1K``, ``2.5M``."""
    for unit in ("", "K", "M"):
        if count < 1000:  # noqa: PLR2004  (three digits)
            return f"{count:.3g}{unit}"
        count /= 1024
    return f"{count:.3g}G"


def summary_text(regions: Schedule | Iterable[Schedule], width: int = 100) -> str:
    """Give `summary` as plain text of at most `width` columns."""
    return as_text(summary(regions), width)


def _as_tuple(regions: Schedule | Iterable[Schedule]) -> tuple[Schedule, ...]:
    return (regions,) if isinstance(regions, Schedule) else tuple(regions)


# Trace --------------------------------------------------------------------------------------------

_REGION_LANE = len(ENGINES)  # a lane above the engines'


def chrome_trace(regions: Schedule | Iterable[Schedule]) -> dict[str, Any]:
    """Lay regions out in time, in the Trace Event Format of Chrome and Perfetto.

    Parameters
    ----------
    regions : Schedule or iterable of Schedule
        As from `schedules`.

    Returns
    -------
    dict
        To be written as JSON: one lane for each engine and one for the regions, which follow one
        another; what is known of an op in its ``args``; one counter for each tier's traffic in
        GB/s. Times are microseconds.
    """
    regions = _as_tuple(regions)
    names = (*(f"{engine} engine" for engine in ENGINES), "region")
    events = list(lanes("example NPU (estimated)", names, first="region"))
    offset = 0.0
    for region in regions:
        events.append(
            span(
                region.symbol,
                "region",
                _REGION_LANE,
                offset,
                region.microseconds,
                args=_region_args(region),
            )
        )
        for op in region.ops:
            start = offset + op.start_cycle / region.frequency_mhz
            duration = op.cycles / region.frequency_mhz
            events.append(
                span(
                    op.name, op.engine, ENGINES.index(op.engine), start, duration, args=_op_args(op)
                )
            )
        events.extend(_counters(region, offset))
        offset += region.microseconds
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def write_chrome_trace(
    path: str | os.PathLike[str], regions: Schedule | Iterable[Schedule]
) -> Path:
    """Write `chrome_trace` to a file, which is complete or not there.

    Parameters
    ----------
    path : str or os.PathLike
        Where to; ``https://ui.perfetto.dev`` and ``chrome://tracing`` open it.
    regions : Schedule or iterable of Schedule
        As from `schedules`.

    Returns
    -------
    pathlib.Path
        The file.
    """
    return write_trace(path, chrome_trace(regions))


def _region_args(region: Schedule) -> dict[str, Any]:
    return {
        "power_mode": region.power_mode,
        "frequency_mhz": region.frequency_mhz,
        "macs": region.macs,
        "cycles": region.cycles,
        **{f"{tier.name} peak bytes": tier.peak_bytes for tier in region.tiers},
    }


def _op_args(op: ScheduledOp) -> dict[str, Any]:
    tiling = op.tiling
    return {
        "ops": ", ".join(op.ops),
        "fused": op.fused,
        "macs": op.macs,
        "element_ops": op.element_ops,
        "bound": op.bound,
        "compute_cycles": op.compute_cycles,
        "memory_cycles": op.memory_cycles,
        "tiles": f"{tiling.tiles} of {tiling.tile_bytes} bytes in {tiling.tier}",
        "tile": ", ".join(
            f"{dim} {tile}/{extent}"
            for dim, tile, extent in zip(tiling.dims, tiling.tile, tiling.extents, strict=True)
        ),
        **{f"{tier} bytes": moved for tier, moved in zip(TIERS, op.moved_bytes, strict=True)},
        "operands": [_operand_line(operand) for operand in op.operands],
    }


def _operand_line(operand: Operand) -> str:
    shape = ", ".join(map(str, operand.shape))
    spilled = f", spilled from {operand.preferred_tier}" if operand.spilled else ""
    return (
        f"{operand.role} {operand.name} ({shape}) {operand.dtype}: "
        f"{operand.bytes} bytes in {operand.tier}{spilled}"
    )


def _counters(region: Schedule, offset: float) -> Iterator[dict[str, Any]]:
    """Yield each tier's traffic, a step where an op starts or ends; ops in parallel add up."""
    for index, tier in enumerate(TIERS):
        changes: dict[int, float] = {}
        for op in region.ops:
            # bytes per cycle * MHz = MB/s
            rate = op.moved_bytes[index] / op.cycles * region.frequency_mhz / 1000
            changes[op.start_cycle] = changes.get(op.start_cycle, 0.0) + rate
            changes[op.end_cycle] = changes.get(op.end_cycle, 0.0) - rate
        total = 0.0
        for cycle in sorted(changes):
            total += changes[cycle]
            yield counter(
                f"{tier} traffic",
                offset + cycle / region.frequency_mhz,
                {"GB/s": max(round(total, 6), 0.0)},
            )
