"""Explicit quantization: what TensorRT takes of quantize and dequantize ops, and where.

TensorRT computes an operator in 8 bits when every operand is the result of a DequantizeLayer. It
has signed bytes around 0, and one scale for each channel of weights only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.operands import shape, text

if TYPE_CHECKING:
    from tvm.relax import Call
    from tvm.relax.transform import FusionPattern

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "is_stored_weights", "quantization_patterns"]

_CONVOLUTIONS = tuple(f"nn.conv{dims}d{kind}" for dims in (1, 2, 3) for kind in ("", "_transpose"))


def quantization_patterns(prefix: str) -> list[FusionPattern]:
    """Quantize and dequantize, and convolutions together with the weights that they read.

    A convolution's weights have to be known: so these are one match with what makes floats of them.
    """
    from tvm.relax.dpl import is_const, is_op, wildcard
    from tvm.relax.transform import FusionPattern

    def step(name: str, data: Any) -> Any:
        return is_op(f"relax.{name}")(data, wildcard(), wildcard())

    together = [
        FusionPattern(
            f"{prefix}{name}_of_bytes",
            is_op(f"relax.{name}")(wildcard(), step("dequantize", is_const())),
        )
        for name in _CONVOLUTIONS
    ]
    alone = [
        FusionPattern(prefix + name, step(name, wildcard())) for name in ("quantize", "dequantize")
    ]
    return together + alone


def is_stored_weights(operand: Any) -> bool:
    """Whether an operand is a constant, dequantized in the same match."""
    from tvm.ir import GenericConst
    from tvm.relax import Call

    return (
        isinstance(operand, Call)
        and getattr(operand.op, "name", "") == "relax.dequantize"
        and isinstance(operand.args[0], GenericConst)
    )


def _computed_parameters(call: Call) -> str | None:
    from tvm_byoc_kit.rewriting import array_of

    for position, what in ((1, "scale"), (2, "zero point")):
        if array_of(call.args[position]) is None:
            return f"the {what} is computed or an input; TensorRT has constants"
    return None


def _zero_point(call: Call) -> str | None:
    from tvm_byoc_kit.rewriting import array_of

    zero_point = array_of(call.args[2])
    if zero_point is not None and zero_point.any():
        found = zero_point.reshape(-1)[0] if zero_point.size == 1 else "one for each channel"
        return (
            f"the zero point is {found}; TensorRT has 0. byoc.prepare writes pairs "
            "of quantize and dequantize otherwise"
        )
    return None


def _scales(call: Call) -> str | None:
    """Several scales, of what are no weights; or one that is no scale."""
    from tvm.ir import GenericConst

    from tvm_byoc_kit.rewriting import array_of

    scale = array_of(call.args[1])
    if scale is None:
        return None
    if not (scale > 0).all():
        return f"a scale is {scale.min()}; TensorRT has those above 0"
    if scale.size > 1 and not isinstance(call.args[0], GenericConst):
        return (
            f"{scale.size} scales for {text(shape(call.args[0]))}; TensorRT has "
            "one, and one for each channel of constant weights"
        )
    return None


_EITHER: Sequence[Predicate] = (_computed_parameters, _zero_point, _scales)

#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, Sequence[Predicate]] = {
    "relax.quantize": _EITHER,
    "relax.dequantize": _EITHER,
}
