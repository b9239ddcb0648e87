"""What becomes of rows in one call: by `op_axes`, or by a rule of its own for ops that reshape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tvm_byoc_kit.op_axes import Axes, axes_of
from tvm_byoc_kit.rewriting import array_of, op_name
from tvm_byoc_kit.row_scope import (
    FREE,
    Mixed,
    Rows,
    RowScope,
    Sizes,
    State,
    leaves,
    number,
    sizes_of,
    text_of,
)

__all__ = ["state_of_call"]

#: A tensor operand, or a member of a tuple of them, with its type.
Operand = tuple[State, Any]


def state_of_call(call: Any, scope: RowScope) -> State:
    """Where the rows are in the result of `call`, whose operands' states are in `scope`."""
    rule = _RULES.get(op_name(call), _by_axes)
    return scope.checked(rule(call, scope), call.ty)


def _by_axes(call: Any, scope: RowScope) -> State:
    """Through an op that `op_axes` describes, or that sees no rows."""
    operands, others = _operands(call.args, scope)
    for state, _ in operands:
        if isinstance(state, Mixed):
            return state
    if any(isinstance(other, Mixed) for other in others):
        return scope.counting()
    holders = [index for index, (state, _) in enumerate(operands) if isinstance(state, Rows)]
    return _carried(call, operands, holders, scope) if holders else FREE


def _operands(args: Iterable[Any], scope: RowScope) -> tuple[list[Operand], list[State]]:
    """The tensors among `args`, and what the shapes, numbers and names are."""
    from tvm import relax

    found = [leaf for arg in args for leaf in leaves(scope.state(arg), arg.ty)]
    tensors = [(state, ty) for state, ty in found if isinstance(ty, relax.TensorType)]
    others = [state for state, ty in found if not isinstance(ty, relax.TensorType)]
    return tensors, others


def _carried(
    call: Any, operands: Sequence[Operand], holders: Sequence[int], scope: RowScope
) -> State:
    """The rows of the operands at the places `holders`."""
    ranks = [ty.ndim for _, ty in operands]
    axes = axes_of(call, ranks) if min(ranks) >= 0 else None
    if axes is None:
        return scope.unknown(_called(call))
    targets: list[Rows] = []
    for index in holders:
        state, ty = operands[index]
        assert isinstance(state, Rows)  # noqa: S101 - that is what `holders` are
        place = axes.places[index][state.axis]
        if place is None:
            return scope.mixing(state, ty)
        targets.append(state.at(place))
    for index, target in zip(holders, targets, strict=True):
        if not _agree(targets[0], target, scope):
            return _crossing(operands[holders[0]], operands[index], scope)
    return _beside(operands, axes, targets[0], scope) or _results(call, axes, targets[0])


def _called(call: Any) -> str:
    """What `call` calls: the op, and the function where it is given one."""
    names = [op_name(call), *(getattr(e, "name_hint", "") for e in (call.op, *call.args[:1]))]
    return " of ".join(name for name in names if name) or "a call"


def _agree(one: Rows, other: Rows, scope: RowScope) -> bool:
    return (
        one.axis == other.axis
        and scope.is_equal(one.block, other.block)
        and scope.is_equal(one.outer, other.outer)
    )


def _crossing(one: Operand, other: Operand, scope: RowScope) -> Mixed:
    (first, first_type), (second, second_type) = one, other
    assert isinstance(first, Rows) and isinstance(second, Rows)  # noqa: S101, PT018
    return Mixed(
        f"{scope.where} combines rows on axis {first.axis} of {text_of(first_type)} with those on "
        f"axis {second.axis} of {text_of(second_type)}"
    )


def _beside(operands: Sequence[Operand], axes: Axes, target: Rows, scope: RowScope) -> Mixed | None:
    """Refuses an operand without rows whose entries the op would match with rows of others."""
    for (state, ty), places in zip(operands, axes.places, strict=True):
        if state != FREE or target.axis not in places:
            continue
        sizes = sizes_of(ty)
        if sizes is None or not axes.broadcasts:
            return scope.numbering(ty)
        if not scope.is_equal(sizes[places.index(target.axis)], number(1)):
            return scope.numbering(ty)
    return None


def _results(call: Any, axes: Axes, target: Rows) -> State:
    from tvm.ir import TupleType

    if not isinstance(call.ty, TupleType):
        return target
    count = len(call.ty.fields)
    with_rows = count if axes.results is None else axes.results
    return (target,) * with_rows + (FREE,) * (count - with_rows)


# --- Rules of their own -------------------------------------------------------------------------


def _reshape(call: Any, scope: RowScope) -> State:
    """Entries keep their order: rows are where as many entries are before and after them."""
    data = call.args[0]
    state, old, new = scope.state(data), sizes_of(data.ty), sizes_of(call.ty)
    if not isinstance(state, Rows):
        return state
    if old is None or new is None:
        return scope.unknown("a shape that is computed at run time")
    before = _product([*old[: state.axis], state.outer])
    after = _product([state.block, *old[state.axis + 1 :]])
    for axis in scope.row_axes(new):
        outer = scope.quotient(before, _product(new[:axis]))
        block = scope.quotient(after, _product(new[axis + 1 :]))
        if outer is not None and block is not None:
            return Rows(axis, block, outer)
    return Mixed(
        f"{scope.where} makes {text_of(call.ty)} of {text_of(data.ty)}, which puts entries of "
        "several rows together"
    )


def _product(sizes: Iterable[Any]) -> Any:
    result = number(1)
    for size in sizes:
        result = result * size
    return result


def _strided_slice(call: Any, scope: RowScope) -> State:
    """An axis of which all is taken is as it was."""
    from tvm import relax

    data, *parts = call.args
    state, old, new = scope.state(data), sizes_of(data.ty), sizes_of(call.ty)
    if old is None or new is None or not all(isinstance(part, relax.Tuple) for part in parts):
        return scope.unknown("a slice whose bounds are computed at run time")
    if isinstance(state, Sizes):
        return scope.vector(state.values[slice(*(int(part.fields[0]) for part in parts[1:]))])
    if isinstance(state, (Mixed, tuple)):
        return state
    for axis, *bounds in zip(*(part.fields for part in parts), strict=True):
        place = int(axis) % len(old)
        if scope.is_equal(old[place], new[place]) and _is_whole(bounds, scope):
            continue
        if isinstance(state, Rows) and place == state.axis:
            return scope.mixing(state, data.ty)
        if any(map(scope.depends, bounds)):
            return scope.counting()
    return state


def _is_whole(bounds: Sequence[Any], scope: RowScope) -> bool:
    begin, _end, *step = bounds
    return scope.is_equal(begin, number(0)) and all(scope.is_equal(s, number(1)) for s in step)


def _concat(call: Any, scope: RowScope) -> State:
    """All rows, and all rows again: further repetitions of them."""
    operands, _ = _operands(call.args, scope)
    (first, ty), axis = operands[0], call.attrs.axis
    if not isinstance(first, Rows) or axis is None or first.axis != int(axis) % ty.ndim:
        return _by_axes(call, scope)
    if not all(isinstance(state, Rows) and _agree(first, state, scope) for state, _ in operands):
        return _by_axes(call, scope)
    return Rows(first.axis, first.block, first.outer * number(len(operands)))


def _take(call: Any, scope: RowScope) -> State:
    """Of a shape, only the sizes that are taken count."""
    data, indices = call.args
    state, array = scope.state(data), array_of(indices)
    if isinstance(state, Sizes) and array is not None:
        return scope.vector(state.values[index] for index in array.ravel().tolist())
    return _by_axes(call, scope)


def _fill(call: Any, scope: RowScope) -> State:
    """All entries are equal, whatever the shape; it may be given by the first operand's."""
    for state, _ in _operands(call.args[1:], scope)[0]:
        if state != FREE:
            return state
    return scope.in_order(call.ty)


def _broadcast(call: Any, scope: RowScope) -> State:
    """What is the same for all rows may be repeated for each of them."""
    data = call.args[0]
    state = scope.state(data)
    if isinstance(state, Rows):
        return state.at(state.axis + call.ty.ndim - data.ty.ndim)
    return scope.in_order(call.ty) if state == FREE else state


def _shape_to_tensor(call: Any, scope: RowScope) -> State:
    sizes = sizes_of(call.args[0].ty)
    return scope.counting() if sizes is None else scope.vector(sizes)


def _shape_of(call: Any, scope: RowScope) -> State:
    sizes = sizes_of(call.args[0].ty)
    return scope.counting() if sizes is None or scope.row_axes(sizes) else FREE


_Rule = Callable[[Any, RowScope], State]
_TABLE: tuple[tuple[_Rule, str], ...] = (
    (_reshape, "expand_dims flatten memory.view nn.batch_flatten reshape squeeze"),
    (_fill, "full full_like ones ones_like zeros zeros_like"),
    (_broadcast, "broadcast_to"),
    (_strided_slice, "strided_slice"),
    (_concat, "concat"),
    (_take, "take"),
    (_shape_of, "shape_of size"),
    (_shape_to_tensor, "shape_to_tensor"),
)
_RULES = {f"relax.{name}": rule for rule, names in _TABLE for name in names.split()}
