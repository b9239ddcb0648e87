"""Whether the rows of a model along a dimension are independent of each other.

Where each output row depends only on the same row of the inputs, inputs may be padded along the
dimension, or split, and the results be cut or joined. This is proved on the Relax function, op by
op: for each value it is followed on which axis the rows are. What the kit does not know is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.op_names import tag_of
from tvm_byoc_kit.rewriting import op_name
from tvm_byoc_kit.row_rules import state_of_call
from tvm_byoc_kit.row_scope import (
    FREE,
    Mixed,
    Rows,
    RowScope,
    State,
    leaves,
    number,
    sizes_of,
    symbols_of,
    text_of,
)

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
        Otherwise the op that mixes rows, or that the kit does not know, with its axis.

    Raises
    ------
    OptionError
        When no input has such a dimension.
    """
    function = model.mod[model.entry]
    scope = _scope(function, symbol)
    for param in function.params:
        scope.where = f"input `{param.name}`"
        scope.states[param] = scope.in_order(param.ty)
    _follow(function.body, scope)
    result = function.body.body
    for (state, ty), spec in zip(
        leaves(scope.state(result), result.ty), model.outputs, strict=True
    ):
        reason = _refused(state, ty, spec.name, scope)
        if reason:
            return reason
    return None


def _scope(function: Any, symbol: str) -> RowScope:
    sizes = [size for param in function.params for size in sizes_of(param.ty) or ()]
    symbols = list(dict.fromkeys(var for size in sizes for var in symbols_of(size)))
    for var in symbols:
        if var.name == symbol:
            return RowScope(var, symbols)
    known = ", ".join(sorted(var.name for var in symbols)) or "none"
    raise OptionError(f"'{symbol}' is no symbolic dimension of the inputs; there are: {known}")


def _follow(body: Any, scope: RowScope) -> None:
    """Finds the state of every variable that `body` binds."""
    from tvm import relax

    for block in body.blocks:
        for binding in block.bindings:
            value = binding.value
            scope.where = _described(binding)
            is_call = isinstance(value, relax.Call)
            state = state_of_call(value, scope) if is_call else scope.state(value)
            if isinstance(binding, relax.MatchCast):
                if state != FREE:
                    scope.name_sizes(binding.ty)
                state = scope.checked(state, binding.ty)
            scope.states[binding.var] = state


def _described(binding: Any) -> str:
    name = op_name(binding.value)
    tag = tag_of(binding.value) if name else None
    return f"{name or type(binding.value).__name__} (`{tag.name if tag else binding.var.name}`)"


def _refused(state: State, ty: Any, name: str, scope: RowScope) -> str | None:
    if isinstance(state, Mixed):
        return state.reason
    if isinstance(state, Rows) and not scope.is_equal(state.outer, number(1)):
        return (
            f"output `{name}`, {text_of(ty)}, repeats the rows on axis {state.axis} instead of "
            "holding each of them together"
        )
    return None
