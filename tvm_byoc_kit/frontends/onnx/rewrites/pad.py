"""Pad as Relax's own pad.

TVM's importer calls a generated function for it, which no backend's pattern can name. What such a
function does is found by making it anew: for a guess of the padding, the same generator must give
the same function. A wrong guess leaves the call as it was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, scopes
from tvm_byoc_kit.rewriting import Scope, rewrite_calls

if TYPE_CHECKING:
    import onnx
    from tvm import IRModule

__all__ = ["rewrite", "to_relax"]

Generator = Callable[[Any, list[int], list[int], float], Any]

_MOST_GUESSES = 64
_FLOATS = ("float16", "float32", "float64")


def rewrite(model: onnx.ModelProto) -> int:
    """Count the Pads; :func:`to_relax` replaces them after import."""
    return sum(
        node.op_type == "Pad" and node.domain in MAIN_DOMAINS
        for scope in scopes(model)
        for node in scope.graph.node
    )


def to_relax(mod: IRModule) -> IRModule:
    """Turn calls of the functions that TVM generates for Pad into ``relax.nn.pad``."""
    return rewrite_calls(mod, {"relax.call_tir": _pad})


def _generators() -> dict[str, tuple[str, Generator]]:
    """By the generated function's name: the mode in Relax, and what generates it."""
    from tvm import topi

    return {
        "pad": ("constant", topi.nn.pad),
        "mirror_pad": (
            "reflect",
            lambda x, before, after, _value: topi.nn.mirror_pad(x, before, after, "REFLECT"),
        ),
        "replicate_pad": (
            "replicate",
            lambda x, before, after, _value: topi.nn.replicate_pad(x, before, after),
        ),
        "circular_pad": (
            "circular",
            lambda x, before, after, _value: topi.nn.circular_pad(x, before, after),
        ),
    }


def _pad(call: Any, _original: Any, scope: Scope) -> Any:
    from tvm import relax

    name = str(call.args[0].name_hint).rstrip("0123456789")
    operands = list(getattr(call.args[1], "fields", ()))
    known = _generators().get(name)
    if known is None or len(operands) != 1 or str(call.ty.dtype) not in _FLOATS:
        return None
    mode, generator = known
    x, function = operands[0], scope.mod[call.args[0]]
    totals = _totals(x, call)
    value = _value_of(function) if mode == "constant" else 0.0
    if totals is None:
        return None
    for before in itertools.islice(_guesses(totals), _MOST_GUESSES):
        after = [total - some for total, some in zip(totals, before, strict=True)]
        if _generates(generator, x, before, after, value, function):
            widths = [width for pair in zip(before, after, strict=True) for width in pair]
            return relax.op.nn.pad(x, widths, mode, value) if any(widths) else x
    return None


def _totals(x: Any, call: Any) -> list[int] | None:
    """By how much each axis grows; None when that depends on a symbol."""
    from tvm_ffi import structural_equal

    pairs = list(zip(x.ty.shape.values, call.ty.shape.values, strict=True))
    grown = [getattr(new - old, "value", None) for old, new in pairs]
    totals = [
        0 if structural_equal(old, new) else total
        for (old, new), total in zip(pairs, grown, strict=True)
    ]
    return None if None in totals else [int(total or 0) for total in totals]


def _guesses(totals: Sequence[int]) -> Iterator[list[int]]:
    """Paddings at the start of each axis: half of all first, then all or nothing, then the rest."""
    if any(total < 0 for total in totals):
        return iter(())
    choices = []
    for total in totals:
        likely = [total // 2, total - total // 2, total, 0, *range(total)]
        choices.append(list(dict.fromkeys(likely)))
    return (list(guess) for guess in itertools.product(*choices))


def _generates(  # noqa: PLR0917 - a generator's arguments
    generator: Generator,
    x: Any,
    before: list[int],
    after: list[int],
    value: float,
    function: Any,
) -> bool:
    from tvm import relax
    from tvm_ffi import structural_equal

    builder = relax.BlockBuilder()
    call = builder.call_te(generator, x, before, after, value)
    made = builder.get()[call.args[0]]
    return bool(structural_equal(_unnamed(made), _unnamed(function)))


def _unnamed(function: Any) -> Any:
    has_name = function.attrs and "global_symbol" in function.attrs
    return function.without_attr("global_symbol") if has_name else function


def _value_of(function: Any) -> float:
    """What a function of `topi.nn.pad` writes around its operand; 0 where it looks otherwise."""
    from tvm.tirx import FloatImm

    statement = function.body
    while hasattr(statement, "block") or hasattr(statement, "body"):
        statement = statement.block if hasattr(statement, "block") else statement.body
    # The statement writes what is inside the operand, or else the value, its last argument.
    arguments = list(getattr(getattr(statement, "value", None), "args", ()))
    return float(arguments[-1].value) if arguments and isinstance(arguments[-1], FloatImm) else 0.0
