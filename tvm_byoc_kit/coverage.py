"""What a partition offloads: every op, and the region that took it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm import IRModule

__all__ = ["Coverage", "CoveredOp", "Region", "read_coverage"]


@dataclass(frozen=True)
class CoveredOp:
    """One occurrence of an operator.

    Parameters
    ----------
    name : str
        The variable that holds its result.
    op : str
        Such as ``relax.nn.conv2d``.
    shape, dtype : str
        Of the result, such as ``1x16x30x30`` and ``float32``; empty for a tuple.
    region : str or None
        Name of the region; None on the host.
    composite : str or None
        The pattern that matched it.
    """

    name: str
    op: str
    shape: str
    dtype: str
    region: str | None = None
    composite: str | None = None


@dataclass(frozen=True)
class Region:
    """One call site of a partitioned function; identical functions are shared by calls."""

    name: str
    function: str
    backend: str
    composites: tuple[str, ...]
    ops: int


@dataclass(frozen=True)
class Coverage:
    """Ops and regions in the order of execution."""

    ops: tuple[CoveredOp, ...]
    regions: tuple[Region, ...]

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
            "ops": [vars(op) for op in self.ops],
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


# Calls that compile to no work of their own.
_BOOKKEEPING = frozenset({"relax.shape_of", "relax.memory.view", "relax.assert_op"})


class _Reader:
    """Walks host functions and, at each call of a region, the region's composites."""

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._calls: Counter[str] = Counter()
        self.ops: list[CoveredOp] = []
        self.regions: list[Region] = []

    def read(self) -> Coverage:
        for function in self._mod.functions.values():
            if _is_relax(function) and not (
                _attr(function, "Codegen") or _attr(function, "Composite")
            ):
                self._visit(function.body, None, None)
        return Coverage(tuple(self.ops), tuple(self.regions))

    def _visit(self, expr: Any, region: str | None, composite: str | None) -> None:
        from tvm import relax

        if isinstance(expr, relax.SeqExpr):
            composites: dict[Any, Any] = {}
            for block in expr.blocks:
                for binding in block.bindings:
                    value = binding.value
                    if isinstance(value, relax.Function):
                        composites[binding.var] = value
                    elif isinstance(value, relax.If):
                        self._visit(value.true_branch, region, composite)
                        self._visit(value.false_branch, region, composite)
                    elif isinstance(value, relax.Call):
                        self._visit_call(binding.var.name, value, composites, region, composite)

    def _visit_call(
        self,
        name: str,
        call: Any,
        composites: dict[Any, Any],
        region: str | None,
        inside: str | None,
    ) -> None:
        from tvm.ir import GlobalVar, Op

        if isinstance(call.op, Op):
            if call.op.name not in _BOOKKEEPING:
                self.ops.append(_covered(name, call, region, inside))
        elif isinstance(call.op, GlobalVar):
            callee = self._mod.functions.get(call.op)
            if callee is not None and _attr(callee, "Codegen"):
                self._enter(call.op.name_hint, callee)
            elif callee is not None and _attr(callee, "Composite"):
                self._visit(callee.body, region, _attr(callee, "Composite"))
        elif call.op in composites:
            body = composites[call.op]
            self._visit(body.body, region, _attr(body, "Composite"))

    def _enter(self, function: str, callee: Any) -> None:
        self._calls[function] += 1
        times = self._calls[function]
        name = function if times == 1 else f"{function}#{times}"
        before = len(self.ops)
        self._visit(callee.body, name, None)
        inside = self.ops[before:]
        composites = tuple(_attr(body, "Composite") or "" for body in _composite_calls(callee))
        self.regions.append(
            Region(name, function, _attr(callee, "Codegen") or "", composites, len(inside))
        )


def _composite_calls(region: Any) -> list[Any]:
    from tvm import relax

    local: dict[Any, Any] = {}
    calls = []
    for block in region.body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, relax.Function):
                local[binding.var] = binding.value
            elif isinstance(binding.value, relax.Call) and binding.value.op in local:
                calls.append(local[binding.value.op])
    return calls


def _covered(name: str, call: Any, region: str | None, composite: str | None) -> CoveredOp:
    shape = getattr(call.ty, "shape", None)
    dtype = getattr(call.ty, "dtype", None)
    dims = "x".join(str(dimension(dim)) for dim in shape) if shape is not None else ""
    return CoveredOp(name, call.op.name, dims, str(dtype or ""), region, composite)


def _is_relax(function: Any) -> bool:
    from tvm import relax

    return isinstance(function, relax.Function)


def _attr(function: Any, key: str) -> str | None:
    attrs = function.attrs
    return str(attrs[key]) if attrs is not None and key in attrs else None


def read_coverage(mod: IRModule) -> Coverage:
    """Read the coverage off a partitioned module."""
    return _Reader(mod).read()
