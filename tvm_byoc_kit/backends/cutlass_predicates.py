"""What CUTLASS cannot run, as reasons.

Upstream's check functions refuse without a word, and take what its generator of kernels
(``tvm/contrib/cutlass``) then fails on or computes wrongly; both are told here. Stricter than
upstream are: `_conv_dtypes` and `_matmul_dtypes` in the dtype of the result and in integer
convolutions, which ``gen_conv2d.py`` has no alignment for; `_static_shape` of weights and results;
`_groups` other than depthwise, which are in no problem size; `_result_layout`; `_norm_dtype`,
`_norm_size`, `_rms_norm_size` and `_epsilon`; what is added (`_bias`, `_residual`); attention
altogether; and what `cuda_predicates` says of itself.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.cuda_predicates import (
    batch_text,
    is_channel_vector,
    low_rank,
    other_transposition,
    refused_dtypes,
    symbolic_reduction,
    unknown_shape,
    unsized_workspace,
)
from tvm_byoc_kit.backends.operands import all_equal, dtype, shape, size, static, text
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "missing_attention_headers", "refusal"]

_FLOATS = {
    ("float16", "float16"): ("float16", "float32"),
    ("float32", "float32"): ("float32",),
}
_BYTES = {(a, b): ("int32",) for a in ("int8", "uint8") for b in ("int8", "uint8")}
_EPSILON = 1e-5  # that cutlass/util/device_layernorm.h has in its kernels
_HEADERS = ("kernel_forward.h", "flash.h")
_PRODUCTS = ("relax.nn.conv2d", "relax.matmul")
_AFTER_PRODUCTS = (
    "relax.add",
    "relax.multiply",
    "relax.astype",
    "relax.nn.relu",
    "relax.nn.gelu",
    "relax.nn.silu",
)
_FUNCTIONS = ("rms_norm", "decode")


def _conv_dtypes(call: Call) -> str | None:
    return refused_dtypes(call, _FLOATS)


def _matmul_dtypes(call: Call) -> str | None:
    return refused_dtypes(call, _FLOATS | _BYTES)


def _layout(call: Call) -> str | None:
    found = (call.attrs.data_layout, call.attrs.kernel_layout)
    if found != ("NHWC", "OHWI"):
        return f"{call.op.name}: layouts are {found[0]} with {found[1]}; expected NHWC with OHWI"
    return None


def _result_layout(call: Call) -> str | None:
    if call.attrs.out_layout not in ("", "NHWC"):
        return f"{call.op.name}: the result's layout is {call.attrs.out_layout}; expected NHWC"
    return None


def _static_shape(call: Call) -> str | None:
    for name, expr in (("data", call.args[0]), ("weight", call.args[1]), ("result", call)):
        if size(shape(expr)) is None:
            return f"{call.op.name}: the {name} is {text(shape(expr))}; expected fixed sizes"
    return None


def _groups(call: Call) -> str | None:
    if call.attrs.groups != 1:
        return f"{call.op.name}: {call.attrs.groups} groups; CUTLASS's kernels here have one"
    return None


def _single_channel(call: Call) -> str | None:
    """What upstream cannot tell from a depthwise convolution."""
    if static(shape(call.args[0])[3]) == static(shape(call.args[1])[0]) == 1:
        return f"{call.op.name}: one channel to one, which upstream holds for depthwise"
    return None


def _batch(call: Call) -> str | None:
    """A batch of matrices lies at one stride."""
    from tvm.contrib.cutlass.build import is_shape_valid_for_cutlass_matmul

    left, right = shape(call.args[0]), shape(call.args[1])
    if is_shape_valid_for_cutlass_matmul(left, right):
        return None
    return (
        f"{call.op.name}: batches {batch_text(left[:-2])} and {batch_text(right[:-2])}; CUTLASS "
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


def _is_batched(matmul: Any) -> bool:
    """Whether a matmul runs as a batch; one with packed weights does not."""
    if _is_packed(matmul):
        return False
    return any(size(shape(arg)[:-2]) != 1 for arg in matmul.args)


def _is_packed(matmul: Any) -> bool:
    return _name(matmul) == "relax.matmul" and _name(matmul.args[1]) == "relax.call_tir"


def _bias(call: Call) -> str | None:
    """Upstream's patterns look at no bias.

    A kernel steps along it by nothing (a vector) or, where there is no batch, by whole rows (a
    matrix added to a product of matrices). A convolution only knows the first.
    """
    root = _product(call.args[0])
    if root is None:
        return None
    bias, result = shape(call.args[1]), shape(call)
    if is_channel_vector(bias, result[-1]):
        return None
    whole = _name(root) == "relax.matmul" and not _is_batched(root)
    if whole and all_equal(bias, result):
        return None
    return (
        f"{call.op.name}: operand 1 is {text(bias)} for a result of {text(result)}; expected a "
        f"vector of {text(result[-1:])}" + (" or the result's shape" if whole else "")
    )


def _product(expr: Any) -> Any | None:
    """The product that `expr` is, or is the cast of."""
    if _name(expr) == "relax.astype":
        return _product(expr.args[0])
    return expr if _name(expr) in _PRODUCTS else None


def _residual(call: Call) -> str | None:
    """What is combined with a product and its bias must have the product's shape.

    Upstream lets vectors pass too, which the kernel of a matmul reads as a matrix, and that of a
    convolution only with all four dimensions. Nor does it see that the kernel of a convolution
    compares with the size of its data, not of its result; or that a matrix for a bias, which is
    one operand, leaves no room for a second.
    """
    if _product(call.args[0]) is not None:
        return None  # a bias
    a, b = shape(call.args[0]), shape(call.args[1])
    root = _root(call)
    if root is None:  # seen outside a match: what some product might go with
        fits = any(all_equal(x, shape(call)) and _goes_with(y, x) for x, y in ((a, b), (b, a)))
    else:
        residual = b if _root(call.args[0]) is not None else a
        if _name(root) == "relax.matmul":
            fits = all_equal(residual, shape(root)) and not _has_matrix_bias(call)
        else:
            fits = _fits_convolution(residual, root)
    return None if fits else _misfit(call, a, b)


def _goes_with(dims: tuple[object, ...], result: tuple[object, ...]) -> bool:
    return all_equal(dims, result) or (bool(result) and is_channel_vector(dims, result[-1]))


def _fits_convolution(residual: tuple[object, ...], conv: Any) -> bool:
    data, result = shape(conv.args[0]), shape(conv)
    if len(residual) == len(result) and is_channel_vector(residual, result[-1]):
        return True
    return all_equal(residual, result) and all_equal(data[:3], result[:3])


def _has_matrix_bias(call: Any) -> bool:
    for arg in call.args:
        if _name(arg) == "relax.add":
            return not is_channel_vector(shape(arg.args[1]), shape(arg)[-1])
        if getattr(arg, "args", ()) and _has_matrix_bias(arg):
            return True
    return False


def _misfit(call: Call, a: tuple[object, ...], b: tuple[object, ...]) -> str:
    return (
        f"{call.op.name}: operands are {text(a)} and {text(b)}; CUTLASS combines a product, its "
        "vector of biases and one tensor of the product's shape"
    )


def _norm_parameters(call: Call) -> str | None:
    for attr in ("center", "scale"):
        if not getattr(call.attrs, attr):
            return f"{call.op.name}: {attr} is off; CUTLASS's kernel always does it"
    return None


def _norm_axis(call: Call) -> str | None:
    rank = len(shape(call))
    axes = [int(axis) % rank for axis in call.attrs.axes]
    if axes != [rank - 1]:
        return f"{call.op.name}: over axes {axes} of {rank}; CUTLASS has the last axis only"
    return None


def _norm_dtype(call: Call) -> str | None:
    if dtype(call) not in ("float16", "float32"):
        return f"{call.op.name}: the dtype is {dtype(call)}; expected float16 or float32"
    return None


def _norm_size(call: Call) -> str | None:
    dims = shape(call)
    if not dims[:-1] or static(dims[-1]) is None:
        return f"{call.op.name}: the data are {text(dims)}; expected rows of a fixed size"
    return None


def _epsilon(call: Call) -> str | None:
    epsilon = float(call.attrs.epsilon)
    if epsilon != _EPSILON:
        return f"{call.op.name}: epsilon is {epsilon:g}; CUTLASS's kernel has {_EPSILON}"
    return None


def _callee(call: Call) -> str:
    return str(getattr(call.args[0], "name_hint", call.args[0]))


def _function(call: Call) -> str | None:
    name = _callee(call)
    if not any(known in name for known in _FUNCTIONS):
        return f"{call.op.name}: of `{name}`; CUTLASS knows those named {' or '.join(_FUNCTIONS)}"
    return None


def _rms_norm_size(call: Call) -> str | None:
    return _norm_size(call) if "rms_norm" in _callee(call) else None


def _no_attention_headers(call: Call) -> str | None:
    missing = missing_attention_headers()
    if missing:
        return f"{call.op.name}: this TVM comes without CUTLASS's {' and '.join(missing)}"
    return None


@functools.cache
def missing_attention_headers() -> tuple[str, ...]:
    """The headers that attention is built from and that are not where upstream looks for them."""
    from pathlib import Path

    from tvm.contrib.cutlass.build import _get_cutlass_path

    try:
        root = Path(_get_cutlass_path())
    except AssertionError:  # upstream's way to say that there is none
        return _HEADERS
    places = (
        root / "examples/41_fused_multi_head_attention",
        root.parent / "libflash_attn/include",
    )
    found = zip(_HEADERS, places, strict=True)
    return tuple(header for header, place in found if not (place / header).is_file())


_SUM: tuple[Predicate, ...] = (unknown_shape, _bias, _residual)
_ATTENTION: tuple[Predicate, ...] = (_no_attention_headers, unsized_workspace)

#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "relax.nn.conv2d": (
        unknown_shape,
        _conv_dtypes,
        _layout,
        _result_layout,
        _static_shape,
        _groups,
        _single_channel,
    ),
    "relax.matmul": (
        unknown_shape,
        _matmul_dtypes,
        low_rank,
        symbolic_reduction,
        _batch,
    ),
    "relax.permute_dims": (unknown_shape, other_transposition),
    "relax.add": _SUM,
    "relax.multiply": (unknown_shape, _residual),
    "relax.nn.layer_norm": (
        unknown_shape,
        _norm_parameters,
        _norm_axis,
        _norm_dtype,
        _norm_size,
        _epsilon,
    ),
    "relax.call_tir": (_function, unknown_shape, _norm_dtype, _rms_norm_size),
    "relax.nn.attention": _ATTENTION,
    "relax.nn.attention_bias": _ATTENTION,
    "relax.nn.attention_var_len": _ATTENTION,
}


def refusal(call: Call) -> str | None:
    """Why CUTLASS cannot run `call`, or None when it can."""
    return first_reason(PREDICATES.get(call.op.name, ()), call)
