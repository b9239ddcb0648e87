"""What CUTLASS cannot run, as reasons.

They are of the kit's own codegen (`codegen`), whose kernels take more than upstream's: bfloat16,
residuals of strided convolutions and of any batch, biases that are matrices. Upstream's check
functions refuse without a word, and take what no generator has a kernel for: integers, groups,
symbolic weights and results, transpositions of other axes. What else upstream's table names, and
TVM's wheel has no headers for, is refused for that: attention, norms, products by packed weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.cuda_predicates import (
    batch_text,
    is_channel_vector,
    low_rank,
    other_transposition,
    refused_dtypes,
    symbolic_convolution,
    symbolic_reduction,
    unknown_shape,
)
from tvm_byoc_kit.backends.operands import all_equal, shape, static, text
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "refusal"]

_FLOATS = {
    ("float16", "float16"): ("float16", "float32"),
    ("bfloat16", "bfloat16"): ("bfloat16", "float32"),
    ("float32", "float32"): ("float32",),
}
_LARGEST_WINDOW = 32  # bits of the masks that a kernel keeps of its places
_PRODUCTS = ("relax.nn.conv2d", "relax.matmul")
_AFTER_PRODUCTS = (
    "relax.add",
    "relax.multiply",
    "relax.nn.relu",
    "relax.nn.gelu",
    "relax.nn.silu",
)
# What upstream includes for each operator, from repositories beside CUTLASS's headers.
_HEADERS = {
    "relax.nn.attention": "kernel_forward.h and flash.h",
    "relax.nn.attention_bias": "kernel_forward.h and flash.h",
    "relax.nn.attention_var_len": "kernel_forward.h and flash.h",
    "relax.nn.layer_norm": "cutlass/util/device_layernorm.h",
    "relax.call_tir": "cutlass/util/device_rmsnorm.h and cutlass_kernels/fpA_intB_gemm.h",
}


def _dtypes(call: Call) -> str | None:
    return refused_dtypes(call, _FLOATS)


def _layout(call: Call) -> str | None:
    found = (call.attrs.data_layout, call.attrs.kernel_layout)
    if found != ("NHWC", "OHWI"):
        return f"layouts are {found[0]} with {found[1]}; expected NHWC with OHWI"
    return None


def _result_layout(call: Call) -> str | None:
    if call.attrs.out_layout not in ("", "NHWC"):
        return f"the result's layout is {call.attrs.out_layout}; expected NHWC"
    return None


def _groups(call: Call) -> str | None:
    if call.attrs.groups != 1:
        return f"{call.attrs.groups} groups; CUTLASS's kernels here have one"
    return None


def _window(call: Call) -> str | None:
    window = shape(call.args[1])[1:3]
    if max(static(dim) or 0 for dim in window) > _LARGEST_WINDOW:
        return f"the window is {text(window)}; expected at most {_LARGEST_WINDOW}"
    return None


def _batch(call: Call) -> str | None:
    """A batch of matrices lies at one stride."""
    from tvm.contrib.cutlass.build import is_shape_valid_for_cutlass_matmul

    left, right = shape(call.args[0]), shape(call.args[1])
    if is_shape_valid_for_cutlass_matmul(left, right):
        return None
    return (
        f"batches {batch_text(left[:-2])} and {batch_text(right[:-2])}; CUTLASS "
        "has equal ones, or one operand without any"
    )


def _name(expr: Any) -> str:
    """The operator of a call; empty for what the match does not show the origin of."""
    return str(getattr(getattr(expr, "op", None), "name", ""))


def _root(expr: Any) -> Any | None:
    """The product that `expr` begins with, where the match shows it."""
    if _name(expr) in _PRODUCTS:
        return expr
    found = (_root(arg) for arg in expr.args) if _name(expr) in _AFTER_PRODUCTS else ()
    return next((root for root in found if root is not None), None)


def _bias(call: Call) -> str | None:
    """What is added to a product is a vector along its last axis, or has its shape."""
    if _name(call.args[0]) not in _PRODUCTS:
        return None
    bias, result = shape(call.args[1]), shape(call)
    if _fits(bias, result):
        return None
    return (
        f"operand 1 is {text(bias)} for a result of {text(result)}; expected a "
        f"vector of {text(result[-1:])} or the result's shape"
    )


def _residual(call: Call) -> str | None:
    """What is combined with a product and its bias is of either form too.

    A bias of the product's shape is the one such operand that a kernel has.
    """
    if _name(call.args[0]) in _PRODUCTS:
        return None  # a bias
    a, b = shape(call.args[0]), shape(call.args[1])
    root = _root(call)
    if root is None:  # seen outside a match: what some product might go with
        fits = any(all_equal(x, shape(call)) and _fits(y, x) for x, y in ((a, b), (b, a)))
    else:
        residual = b if _root(call.args[0]) is not None else a
        fits = _fits(residual, shape(root)) and not _has_whole_bias(call)
    return None if fits else _misfit(a, b)


def _fits(dims: tuple[object, ...], result: tuple[object, ...]) -> bool:
    return all_equal(dims, result) or (bool(result) and is_channel_vector(dims, result[-1]))


def _has_whole_bias(call: Any) -> bool:
    for arg in call.args:
        if _name(arg) == "relax.add":
            return not is_channel_vector(shape(arg.args[1]), shape(arg)[-1])
        if getattr(arg, "args", ()) and _has_whole_bias(arg):
            return True
    return False


def _misfit(a: tuple[object, ...], b: tuple[object, ...]) -> str:
    return (
        f"operands are {text(a)} and {text(b)}; CUTLASS combines a product, its "
        "vector of biases and one tensor of the product's shape, or a vector"
    )


def _no_header(call: Call) -> str | None:
    return f"TVM's wheel comes without {_HEADERS[call.op.name]} for CUTLASS"


#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "relax.nn.conv2d": (
        unknown_shape,
        _dtypes,
        _layout,
        _result_layout,
        symbolic_convolution,
        _groups,
        _window,
    ),
    "relax.matmul": (unknown_shape, _dtypes, low_rank, symbolic_reduction, _batch),
    "relax.permute_dims": (unknown_shape, other_transposition),
    "relax.add": (unknown_shape, _bias, _residual),
    "relax.multiply": (unknown_shape, _residual),
    **dict.fromkeys(_HEADERS, (_no_header,)),
}


def refusal(call: Call) -> str | None:
    """Why CUTLASS cannot run `call`, or None when it can."""
    return first_reason(PREDICATES.get(call.op.name, ()), call)
