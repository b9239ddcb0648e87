"""What is known of a function's values while rows are followed through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from tvm_byoc_kit.signature import dimension

__all__ = [
    "FREE",
    "Free",
    "Mixed",
    "RowScope",
    "Rows",
    "Sizes",
    "State",
    "leaves",
    "number",
    "sizes_of",
    "symbols_of",
    "text_of",
]


@dataclass(frozen=True)
class Free:
    """The same for all rows, and for any number of them."""


@dataclass(frozen=True)
class Rows:
    """Along `axis` are `outer` repetitions of all rows, in which each row has `block` entries."""

    axis: int
    block: Any
    outer: Any

    def at(self, axis: int) -> Rows:
        """The same on another axis."""
        return replace(self, axis=axis)


@dataclass(frozen=True)
class Mixed:
    """Rows are not kept apart, or it is not known that they are."""

    reason: str


@dataclass(frozen=True)
class Sizes(Mixed):
    """A vector of sizes, one of which at least changes with the number of rows."""

    values: tuple[Any, ...]


State = Union[Free, Rows, Mixed, "tuple[State, ...]"]
FREE = Free()

_LARGEST = 2**40  # of a dimension: so that its products are known not to overflow


class RowScope:
    """The values of a function, and arithmetic of its dimensions.

    Parameters
    ----------
    rows : tvm.tirx.Var
        The dimension whose rows are followed.
    symbols : sequence of tvm.tirx.Var
        All dimensions of the inputs.
    """

    def __init__(self, rows: Any, symbols: Iterable[Any]) -> None:
        from tvm.ir import Range
        from tvm.sym import Analyzer

        self.states: dict[Any, State] = {}
        self.where = ""
        """The binding that is looked at, as messages name it."""
        self._rows = rows
        self._known = list(symbols)
        self._varying = [symbol for symbol in self._known if symbol.name == rows.name]
        self._analyzer = Analyzer()
        for symbol in self._known:
            self._analyzer.bind(symbol, Range(number(1), number(_LARGEST)))

    # --- Dimensions -----------------------------------------------------------------------------

    def is_equal(self, one: Any, other: Any) -> bool:
        """Whether it is proved, for all sizes."""
        return bool(self._analyzer.can_prove_equal(one, other))

    def quotient(self, one: Any, other: Any) -> Any:
        """`one` by `other`; None unless it is proved that nothing remains."""
        from tvm import tirx

        result = self._analyzer.simplify(tirx.floordiv(one, other))
        return result if self.is_equal(result * other, one) else None

    def depends(self, expr: Any) -> bool:
        """Whether a number changes with the number of rows."""
        symbols = symbols_of(self._analyzer.simplify(expr))
        return any(symbol.same_as(other) for symbol in symbols for other in self._varying)

    def name_sizes(self, ty: Any) -> None:
        """Takes the symbols that `ty` gives to sizes of a value with rows for such that vary."""
        sizes = [size for _, leaf in leaves(FREE, ty) for size in sizes_of(leaf) or ()]
        new = [
            s for size in sizes for s in symbols_of(size) if not any(map(s.same_as, self._known))
        ]
        self._varying += new

    def row_axes(self, sizes: Sequence[Any]) -> list[int]:
        """The axes whose size changes with the number of rows."""
        return [axis for axis, size in enumerate(sizes) if self.depends(size)]

    # --- Values ---------------------------------------------------------------------------------

    def state(self, expr: Any) -> State:
        """Of an operand: a variable, a constant, a tuple of such, a shape or a number."""
        from tvm import relax
        from tvm.ir import PrimType

        if isinstance(expr, relax.Var) and expr in self.states:
            return self.states[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(map(self.state, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            state = self.state(expr.tuple_value)
            return state[expr.index] if isinstance(state, tuple) else state
        if isinstance(expr, relax.ShapeExpr) or isinstance(expr.ty, PrimType):
            numbers = getattr(expr, "values", [expr])
            return self.counting() if any(map(self.depends, numbers)) else FREE
        if isinstance(expr, (relax.If, relax.Function, relax.Var, relax.Call)):
            return self.unknown(type(expr).__name__)
        return FREE  # constants; names of functions, strings and types among the operands

    def in_order(self, ty: Any) -> State:
        """Of a tensor whose only axis with the dimension holds the rows in their order."""
        sizes = sizes_of(ty)
        if sizes is None:
            return self.unknown("a shape that is computed at run time")
        axes = self.row_axes(sizes)
        if not axes:
            return FREE
        block = self.quotient(sizes[axes[0]], self._rows)
        if len(axes) > 1 or block is None or self.depends(block):
            return self._without_axis(ty)
        return Rows(axes[0], block, number(1))

    def checked(self, state: State, ty: Any) -> State:
        """`state`, after a look at whether the shape bears it out."""
        from tvm.ir import TupleType

        if isinstance(ty, TupleType):
            members = state if isinstance(state, tuple) else (state,) * len(ty.fields)
            return tuple(map(self.checked, members, ty.fields))
        if isinstance(state, (Mixed, tuple)):
            return state
        sizes = sizes_of(ty)
        if sizes is None:
            return self.unknown("a shape that is computed at run time") if state != FREE else FREE
        expected = [state.axis] if isinstance(state, Rows) else []
        if self.row_axes(sizes) != expected:
            return self._without_axis(ty)
        if isinstance(state, Rows):
            size = state.outer * self._rows * state.block
            return state if self.is_equal(sizes[state.axis], size) else self._without_axis(ty)
        return FREE

    # --- Refusals -------------------------------------------------------------------------------

    def mixing(self, state: Rows, ty: Any) -> Mixed:
        """For an op that combines or moves entries along the rows of an operand."""
        return Mixed(
            f"{self.where} combines or moves entries along axis {state.axis} of {text_of(ty)}, "
            f"where the rows of `{self._rows.name}` are"
        )

    def unknown(self, what: str) -> Mixed:
        """For what the kit has no rule for."""
        return Mixed(f"{self.where}: the kit does not know whether {what} keeps rows apart")

    def counting(self) -> Mixed:
        """For an op whose values change with the number of rows."""
        return Mixed(f"{self.where} computes with the size of `{self._rows.name}`")

    def vector(self, sizes: Iterable[Any]) -> State:
        """Of a tensor that holds `sizes`."""
        values = tuple(sizes)
        return Sizes(self.counting().reason, values) if self.row_axes(values) else FREE

    def numbering(self, ty: Any) -> Mixed:
        """For an op that takes entries of what has no rows by the row's number."""
        return Mixed(
            f"{self.where} reads {text_of(ty)}, which has no rows of `{self._rows.name}`, by the "
            "row's number"
        )

    def _without_axis(self, ty: Any) -> Mixed:
        return Mixed(
            f"{self.where} has shape {text_of(ty)}, in which the rows of `{self._rows.name}` "
            "are not on an axis of their own"
        )


def symbols_of(expr: Any) -> list[Any]:
    """The symbols that a number is computed from."""
    from tvm import relax

    found: list[Any] = []
    relax.analysis.post_order_visit(expr, found.append)
    return [part for part in found if isinstance(part, relax.Var)]


def number(value: int) -> Any:
    """A size that is known."""
    from tvm import tirx

    return tirx.IntImm("int64", value)


def leaves(state: State, ty: Any) -> Iterator[tuple[State, Any]]:
    """The members of a tuple, of tuples in it too, with their types; a tensor is its own leaf."""
    from tvm.ir import TupleType

    if not isinstance(ty, TupleType):
        yield state, ty
        return
    members = state if isinstance(state, tuple) else (state,) * len(ty.fields)
    for member, field in zip(members, ty.fields, strict=True):
        yield from leaves(member, field)


def sizes_of(ty: Any) -> list[Any] | None:
    """The sizes of a tensor's or a shape's type; None where they are not known."""
    values = getattr(getattr(ty, "shape", ty), "values", None)
    return None if values is None else list(values)


def text_of(ty: Any) -> str:
    """A tensor's type for messages, such as ``float32[n, 3]``."""
    sizes = sizes_of(ty)
    shape = "..." if sizes is None else ", ".join(str(dimension(size)) for size in sizes)
    return f"{getattr(ty, 'dtype', ty)}[{shape}]"
