"""Whether the rows of a model along a dimension are independent of each other.

Where each output row depends only on the same row of the inputs, inputs may be padded along the
dimension, or split, and the results be cut or joined. This is proved on the Relax function, op by
op: for each value it is followed on which axis the rows are. What the kit does not know is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.op_axes import Axes, axes_of
from tvm_byoc_kit.op_names import tag_of
from tvm_byoc_kit.rewriting import op_name
from tvm_byoc_kit.signature import dimension

if TYPE_CHECKING:
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["why_dependent"]


def why_dependent(model: ImportedModel, symbol: str) -> str | None:
    """Why rows along the dimension `symbol` of the inputs depend on each other.

    Parameters
    ----------
    model : ImportedModel
        Not partitioned; imported or prepared.
    symbol : str
        Name of a symbolic dimension of the inputs.

    Returns
    -------
    str or None
        None: it is proved that every row of an output depends on that row of the inputs alone.
        Otherwise the first op that mixes rows, or that the kit does not know, with its axis.

    Raises
    ------
    OptionError
        When no input has such a dimension.
    """
    from tvm import relax

    function = model.mod[model.entry]
    symbols = relax.analysis.defined_symbolic_vars(function)
    named = [var for var in symbols if var.name == symbol]
    if not named:
        known = ", ".join(sorted(var.name for var in symbols)) or "none"
        raise OptionError(f"'{symbol}' is no symbolic dimension of the inputs; there are: {known}")
    return _Analysis(_Sizes(named[0], symbols)).reason(function, [s.name for s in model.outputs])


@dataclass(frozen=True)
class _Free:
    """The same for all rows, and for any number of them."""


@dataclass(frozen=True)
class _Rows:
    """Along `axis` are `outer` repetitions of all rows, in which each row has `block` entries."""

    axis: int
    block: Any
    outer: Any


@dataclass(frozen=True)
class _Mixed:
    """No row for itself."""

    reason: str


_State = Union[_Free, _Rows, _Mixed, "tuple[_State, ...]"]
_FREE = _Free()


class _Sizes:
    """Arithmetic of dimensions, of which `rows` is the one that is looked at."""

    def __init__(self, rows: Any, symbols: Iterable[Any]) -> None:
        from tvm.ir import Range
        from tvm.sym import Analyzer

        self.rows = rows
        self.name = str(rows.name)
        self._analyzer = Analyzer()
        for var in symbols:
            self._analyzer.bind(var, Range(_int(1), _int(_LARGEST)))

    def is_equal(self, one: Any, other: Any) -> bool:
        return bool(self._analyzer.can_prove_equal(one, other))

    def quotient(self, one: Any, other: Any) -> Any:
        """`one` by `other`; None unless it is proved that nothing remains."""
        from tvm import tirx

        result = self._analyzer.simplify(tirx.floordiv(one, other))
        return result if self.is_equal(result * other, one) else None

    def depends(self, expr: Any) -> bool:
        """Whether an expression of numbers changes with the number of rows."""
        from tvm import relax

        found = False

        def look(part: Any) -> None:
            nonlocal found
            found = found or self.rows.same_as(part)

        relax.analysis.post_order_visit(self._analyzer.simplify(expr), look)
        return found

    def row_axes(self, shape: Sequence[Any]) -> list[int]:
        return [axis for axis, size in enumerate(shape) if self.depends(size)]


_LARGEST = 2**40  # of a dimension: so that its products are known not to overflow


def _int(value: int) -> Any:
    from tvm import tirx

    return tirx.IntImm("int64", value)


def _product(sizes: Iterable[Any]) -> Any:
    result = _int(1)
    for size in sizes:
        result = result * size
    return result


class _Analysis:
    """Follows the rows through one function."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = sizes
        self._states: dict[Any, _State] = {}
        self._where = ""  # the call that is looked at, as messages name it

    def reason(self, function: Any, names: Sequence[str]) -> str | None:
        """Of the first output that has no row for itself."""
        for param in function.params:
            self._states[param] = self._initial(param)
        self._bind(function.body)
        state = self._of(function.body.body)
        outputs = list(_leaves(state, function.body.body.ty))
        for index, (leaf, ty) in enumerate(outputs):
            name = names[index] if len(names) == len(outputs) else str(index)
            why = self._of_output(leaf, ty, name)
            if why:
                return why
        return None

    def _initial(self, param: Any) -> _State:
        state = self._laid_out(param.ty)
        if isinstance(state, _Mixed):
            return _Mixed(f"input `{param.name}`: {state.reason}")
        return state

    def _of_output(self, state: _State, ty: Any, name: str) -> str | None:
        if isinstance(state, _Mixed):
            return state.reason
        if isinstance(state, _Rows) and not self._sizes.is_equal(state.outer, _int(1)):
            return (
                f"output `{name}`, {_text(ty)}, holds the rows of `{self._sizes.name}` inside of "
                f"another dimension on axis {state.axis}"
            )
        return None

    # --- Bindings -------------------------------------------------------------------------------

    def _bind(self, body: Any) -> None:
        from tvm import relax

        for block in body.blocks:
            for binding in block.bindings:
                self._where = _described(binding)
                state = self._of(binding.value)
                if isinstance(binding, relax.MatchCast):
                    state = self._checked(state, binding.ty)
                self._states[binding.var] = state

    def _of(self, expr: Any) -> _State:
        from tvm import relax
        from tvm.ir import GenericConst, PrimType

        if isinstance(expr, relax.Var) and expr in self._states:
            return self._states[expr]
        if isinstance(expr, GenericConst):
            return _FREE
        if isinstance(expr, relax.Tuple):
            return tuple(map(self._of, expr.fields))
        if isinstance(expr, relax.TupleGetItem):
            state = self._of(expr.tuple_value)
            return state[expr.index] if isinstance(state, tuple) else state
        if isinstance(expr, (relax.Call, relax.ShapeExpr)):
            return self._of_call(expr) if isinstance(expr, relax.Call) else self._of_size(expr)
        if isinstance(expr.ty, PrimType):
            return self._of_size(expr)
        if isinstance(expr, (relax.If, relax.Function, relax.Var)):
            return self._unknown(type(expr).__name__)
        return _FREE  # names of functions, strings and types among the operands

    def _of_size(self, expr: Any) -> _State:
        """Of a shape or a number."""
        numbers = getattr(expr, "values", [expr])
        return self._by_size() if any(map(self._sizes.depends, numbers)) else _FREE

    # --- Calls ----------------------------------------------------------------------------------

    def _of_call(self, call: Any) -> _State:
        own = _OWN.get(op_name(call))
        if own is not None:
            return self._checked(own(self, call), call.ty)
        operands, others = self._operands(call.args)
        for state, _ in operands:
            if isinstance(state, _Mixed):
                return state
        name = op_name(call)
        is_shaped = name in _SHAPED  # by a shape among the operands, which changes no values
        if any(isinstance(o, _Mixed) and not is_shaped for o in others):
            return self._by_size()
        return self._checked(self._through(call, operands), call.ty)

    def _operands(self, args: Iterable[Any]) -> tuple[list[tuple[_State, Any]], list[_State]]:
        """The tensors among `args`, members of tuples included, with types; what the rest is."""
        from tvm import relax

        tensors, others = [], []
        for arg in args:
            for state, ty in _leaves(self._of(arg), arg.ty):
                if isinstance(ty, relax.TensorType):
                    tensors.append((state, ty))
                else:
                    others.append(state)
        return tensors, others

    def _through(self, call: Any, operands: list[tuple[_State, Any]]) -> _State:
        """The rows of the operands, taken through an op by `op_axes`."""
        holders = [i for i, (state, _) in enumerate(operands) if isinstance(state, _Rows)]
        if not holders:
            return self._without_rows(call)
        if any(ty.ndim < 0 for _, ty in operands):
            return self._unknown("an operand of unknown rank")
        axes = axes_of(call, [ty.ndim for _, ty in operands])
        if axes is None:
            return self._unknown(_called(call))
        targets = []
        for i in holders:
            state, ty = operands[i]
            place = axes.places[i][state.axis]
            if place is None:
                return self._mixing(state, ty)
            targets.append(_Rows(place, state.block, state.outer))
        for other in targets[1:]:
            if not self._agree(targets[0], other):
                (first, one), (second, two) = operands[holders[0]], operands[holders[1]]
                return _Mixed(
                    f"{self._where} combines rows on axis {first.axis} of {_text(one)} with those "
                    f"on axis {second.axis} of {_text(two)}"
                )
        return self._beside(axes, operands, targets[0]) or self._results(axes, call, targets[0])

    def _agree(self, one: _Rows, other: _Rows) -> bool:
        equal = self._sizes.is_equal
        return (
            one.axis == other.axis
            and equal(one.block, other.block)
            and equal(one.outer, other.outer)
        )

    def _beside(
        self, axes: Axes, operands: list[tuple[_State, Any]], target: _Rows
    ) -> _State | None:
        """Refuses an operand that has no rows, but entries that the op would take for them."""
        for (state, ty), places in zip(operands, axes.places, strict=True):
            if state != _FREE or target.axis not in places:
                continue
            size = ty.shape[places.index(target.axis)] if ty.shape is not None else None
            if size is None or not axes.broadcasts or not self._sizes.is_equal(size, _int(1)):
                return _Mixed(
                    f"{self._where} reads {_text(ty)}, which has no rows of "
                    f"`{self._sizes.name}`, by the row's number"
                )
        return None

    def _results(self, axes: Axes, call: Any, target: _Rows) -> _State:
        from tvm.ir import TupleType

        if not isinstance(call.ty, TupleType):
            return target
        number = len(call.ty.fields)
        with_rows = number if axes.results is None else axes.results
        return (target,) * with_rows + (_FREE,) * (number - with_rows)

    # --- Ops that say themselves what becomes of rows ---------------------------------------------

    def _reshape(self, call: Any) -> _State:
        """Entries keep their order: the rows are where as many entries are before and after."""
        data = call.args[0]
        state, old, new = self._of(data), _shape(data.ty), _shape(call.ty)
        if not isinstance(state, _Rows):
            return state
        if old is None or new is None:
            return self._unknown("a shape that is computed at run time")
        before = _product([*old[: state.axis], state.outer])
        after = _product([state.block, *old[state.axis + 1 :]])
        for axis in self._sizes.row_axes(new):
            outer = self._sizes.quotient(before, _product(new[:axis]))
            block = self._sizes.quotient(after, _product(new[axis + 1 :]))
            if outer is not None and block is not None:
                return _Rows(axis, block, outer)
        return _Mixed(
            f"{self._where} makes {_text(call.ty)} of {_text(data.ty)}, which puts entries of "
            f"several rows of `{self._sizes.name}` together"
        )

    def _strided_slice(self, call: Any) -> _State:
        from tvm import relax

        data, axes, begins, _ends, *steps = call.args
        state, old, new = self._of(data), _shape(data.ty), _shape(call.ty)
        parts = [axes, begins, *steps]
        if isinstance(state, (_Mixed, tuple)):
            return state
        if old is None or new is None or not all(isinstance(part, relax.Tuple) for part in parts):
            return self._unknown("a slice whose bounds are computed at run time")
        for index, number in enumerate(axes.fields):
            axis = int(number) % len(old)
            begin = begins.fields[index]
            step = steps[0].fields[index] if steps else _int(1)
            whole = (
                self._sizes.is_equal(old[axis], new[axis])
                and self._sizes.is_equal(begin, _int(0))
                and self._sizes.is_equal(step, _int(1))
            )
            if whole:
                continue
            if isinstance(state, _Rows) and axis == state.axis:
                return self._mixing(state, data.ty)
            if any(self._sizes.depends(part.fields[index]) for part in call.args[1:]):
                return self._by_size()
        return state

    def _fill(self, call: Any) -> _State:
        """All entries are equal, whatever the shape is."""
        for arg in call.args:
            state = self._of(arg)
            if isinstance(state, _Mixed) and not _is_shape(arg):
                return state
        return self._laid_out(call.ty)

    def _filled_like(self, call: Any) -> _State:
        """Only the shape of the first operand counts."""
        for arg in call.args[1:]:
            state = self._of(arg)
            if state != _FREE:
                return state
        return self._laid_out(call.ty)

    def _shape_of(self, call: Any) -> _State:
        shape = _shape(call.args[0].ty)
        if shape is None or self._sizes.row_axes(shape):
            return self._by_size()
        return _FREE

    # --- Results --------------------------------------------------------------------------------

    def _without_rows(self, call: Any) -> _State:
        """Of what is computed from values without rows."""
        return self._laid_out(call.ty) if op_name(call) in _SHAPED else _FREE

    def _laid_out(self, ty: Any) -> _State:
        """Of a tensor whose only axis with the dimension holds the rows in their order."""
        shape = _shape(ty)
        if shape is None:
            return self._unknown("a shape that is computed at run time")
        axes = self._sizes.row_axes(shape)
        if not axes:
            return _FREE
        block = self._sizes.quotient(shape[axes[0]], self._sizes.rows)
        if len(axes) > 1 or block is None or self._sizes.depends(block):
            return _Mixed(f"{_text(ty)} has no axis of rows of `{self._sizes.name}` alone")
        return _Rows(axes[0], block, _int(1))

    def _checked(self, state: _State, ty: Any) -> _State:
        """`state`, after a look at whether the shape bears it out."""
        from tvm.ir import TupleType

        if isinstance(ty, TupleType):
            members = state if isinstance(state, tuple) else (state,) * len(ty.fields)
            return tuple(map(self._checked, members, ty.fields))
        if isinstance(state, (_Mixed, tuple)):
            return state
        shape = _shape(ty)
        if shape is None:
            return _FREE if state == _FREE else self._unknown("a shape computed at run time")
        expected = [state.axis] if isinstance(state, _Rows) else []
        fits = self._sizes.row_axes(shape) == expected and (
            not isinstance(state, _Rows)
            or self._sizes.is_equal(shape[state.axis], state.outer * self._sizes.rows * state.block)
        )
        if fits:
            return state
        return _Mixed(
            f"{self._where} gives {_text(ty)}, which has no axis of rows of "
            f"`{self._sizes.name}` alone"
        )

    # --- Refusals -------------------------------------------------------------------------------

    def _mixing(self, state: _Rows, ty: Any) -> _Mixed:
        return _Mixed(
            f"{self._where} combines entries along axis {state.axis} of {_text(ty)}, where the "
            f"rows of `{self._sizes.name}` are"
        )

    def _unknown(self, what: str) -> _Mixed:
        return _Mixed(f"{self._where}: the kit does not know whether {what} keeps rows apart")

    def _by_size(self) -> _Mixed:
        return _Mixed(f"{self._where} computes with the size of `{self._sizes.name}`")


_RESHAPES = ("reshape", "flatten", "expand_dims", "squeeze", "nn.batch_flatten", "memory.view")
_FILLS = ("zeros", "ones", "full")

_OWN = {
    **{f"relax.{name}": _Analysis._reshape for name in _RESHAPES},
    **{f"relax.{name}": _Analysis._fill for name in _FILLS},
    **{f"relax.{name}_like": _Analysis._filled_like for name in _FILLS},
    "relax.shape_of": _Analysis._shape_of,
    "relax.size": _Analysis._shape_of,
    "relax.strided_slice": _Analysis._strided_slice,
}
_SHAPED = frozenset({"relax.broadcast_to"})


def _leaves(state: _State, ty: Any) -> Iterable[tuple[_State, Any]]:
    from tvm.ir import TupleType

    if not isinstance(ty, TupleType):
        yield state, ty
        return
    members = state if isinstance(state, tuple) else (state,) * len(ty.fields)
    for member, field in zip(members, ty.fields, strict=True):
        yield from _leaves(member, field)


def _shape(ty: Any) -> list[Any] | None:
    """The sizes of a tensor's or a shape's type, where they are known."""
    from tvm import relax

    if isinstance(ty, relax.ShapeType):
        return None if ty.values is None else list(ty.values)
    shape = getattr(ty, "shape", None)
    values = getattr(shape, "values", None)
    return None if values is None else list(values)


def _is_shape(expr: Any) -> bool:
    from tvm import relax

    return isinstance(expr.ty, relax.ShapeType)


def _text(ty: Any) -> str:
    shape = _shape(ty)
    sizes = "..." if shape is None else ", ".join(str(dimension(size)) for size in shape)
    return f"{getattr(ty, 'dtype', ty)}[{sizes}]"


def _called(call: Any) -> str:
    """What `call` calls: the op, and the function where that is one."""
    names = [op_name(call), *(getattr(e, "name_hint", "") for e in (call.op, *call.args[:1]))]
    return " of ".join(name for name in names if name)


def _described(binding: Any) -> str:
    name = op_name(binding.value)
    tag = tag_of(binding.value) if name else None
    return f"{name or type(binding.value).__name__} (`{tag.name if tag else binding.var.name}`)"
