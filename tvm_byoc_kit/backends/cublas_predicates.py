"""What cuBLAS cannot run, as reasons.

Upstream's check functions refuse without a word, and take what its runtime
(``src/runtime/extra/contrib/cublas/cublas.cc``) then computes wrongly or aborts on; both are told
here. Stricter than upstream are `_result`, `_batch`, the length of a bias, and what
`cuda_predicates` says of itself.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.cuda_predicates import (
    batch_text,
    is_channel_vector,
    low_rank,
    other_transposition,
    reads,
    symbolic_reduction,
    unknown_shape,
)
from tvm_byoc_kit.backends.operands import dtype, equal, shape, static, text
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "refusal"]

_FP8 = "float8_e4m3fn"
# Results by the dtype of both operands. The runtime knows these types of result; any other it
# writes as float32, past the end of a buffer of narrower elements.
_RESULTS = {
    "float32": ("float32",),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
    "int8": ("int32", "float32"),
    _FP8: ("float16", "bfloat16", "float32"),
}
_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}


def _operands(call: Call) -> str | None:
    left, right = dtype(call.args[0]), dtype(call.args[1])
    if left == right and left in _RESULTS:
        return None
    return f"{left} x {right}; cuBLAS has two of {', '.join(_RESULTS)}"


def _result(call: Call) -> str | None:
    operand, result = dtype(call.args[0]), dtype(call)
    if result in _RESULTS[operand]:
        return None
    allowed = ", ".join(_RESULTS[operand])
    return f"{operand} to {result}; cuBLAS has {allowed}"


def _depth(call: Call) -> str | None:
    """Rows that begin where cuBLAS can read them."""
    multiple = {"int8": 4, _FP8: 16}.get(dtype(call.args[0]), 1)
    depth = static(shape(call.args[0])[-1])
    if depth is not None and depth % multiple:
        return (
            f"the reduction axis of {dtype(call.args[0])} is {depth}; expected a "
            f"multiple of {multiple}"
        )
    return None


def _columns(call: Call) -> str | None:
    """As for the depth, of the result; int8 rows begin there only if they are not transposed."""
    operand, columns = dtype(call.args[0]), shape(call)[-1]
    if operand not in ("int8", _FP8) or (operand == "int8" and _is_transposed(call)):
        return None
    multiple = 4 if operand == "int8" else 16 // _BYTES[dtype(call)]
    found = static(columns)
    if found is None or found % multiple:
        return (
            f"{operand} to {dtype(call)} with {text([columns])} columns; expected "
            f"a multiple of {multiple}"
        )
    return None


def _is_transposed(call: Call) -> bool:
    return getattr(getattr(call.args[1], "op", None), "name", "") == "relax.permute_dims"


def _batch(call: Call) -> str | None:
    """There is no batch of one matrix that serves for many.

    Where only the first operand has a batch, its matrices are one tall one. Upstream compares
    products of dimensions, so that 6x1 goes with 1x6.
    """
    left, right = shape(call.args[0])[:-2], shape(call.args[1])[:-2]
    pairs = zip_longest(reversed(left), reversed(right), fillvalue=1)
    if not right or all(equal(a, b) for a, b in pairs):
        return None
    return (
        f"batches {batch_text(left)} and {batch_text(right)}; cuBLAS has "
        "equal ones, or a second operand without any"
    )


def _transposition(call: Call) -> str | None:
    if dtype(call.args[0]) != _FP8 or _is_transposed(call):
        return None
    return f"operand 1 is not transposed; cuBLAS multiplies {_FP8} only so"


def _bias(call: Call) -> str | None:
    """Upstream's patterns name the bias second, and look only at its leading dimensions."""
    bias, columns = shape(call.args[1]), (shape(call) or (1,))[-1]
    if reads(call, "relax.matmul") and not is_channel_vector(bias, columns):
        return (
            f"operand 1 is {text(bias)}; cuBLAS adds one vector of {text([columns])} to every row"
        )
    return None


def _integer_bias(call: Call) -> str | None:
    if not reads(call, "relax.matmul"):
        return None
    operands = getattr(call.args[0], "args", ())  # of the product, in a match
    if dtype(call) == "int32" or (operands and dtype(operands[0]) == "int8"):
        return "cuBLAS adds nothing to a product of integers"
    return None


def _scale(call: Call) -> str | None:
    from tvm.ir import GenericConst

    for name, arg in zip(("scale", "zero point"), call.args[1:3], strict=True):
        if not isinstance(arg, GenericConst):
            return f"the {name} is known only when the model runs"
        if arg.ty.ndim != 0:
            return f"the {name} is {text(shape(arg))}; cuBLAS has one for all"
    scale = dtype(call.args[1])
    if scale not in ("float16", "float32"):
        return f"the scale is {scale}; expected float16 or float32"
    return None


def _zero_point(call: Call) -> str | None:
    value = call.args[2].value.numpy().item()
    if value != 0:
        return f"the zero point is {value}; cuBLAS has 0 only"
    return None


#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "relax.matmul": (
        unknown_shape,
        _operands,
        _result,
        low_rank,
        symbolic_reduction,
        _depth,
        _columns,
        _batch,
        _transposition,
    ),
    "relax.permute_dims": (unknown_shape, other_transposition),
    "relax.add": (unknown_shape, _integer_bias, _bias),
    "relax.dequantize": (unknown_shape, _scale, _zero_point),
}


def refusal(call: Call) -> str | None:
    """Why cuBLAS cannot run `call`, or None when it can."""
    return first_reason(PREDICATES.get(call.op.name, ()), call)
