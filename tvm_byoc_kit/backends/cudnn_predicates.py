"""What cuDNN cannot run, as reasons.

Upstream's check functions refuse without a word, and take what its runtime
(``src/runtime/extra/contrib/cudnn``) then computes wrongly or aborts on; both are told here.
Stricter than upstream are `_result`, `symbolic_convolution`, `_padding`, `_result_layout`, `_bias`
and the workspace of attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.cuda_predicates import (
    reads,
    symbolic_convolution,
    unknown_shape,
    unsized_workspace,
)
from tvm_byoc_kit.backends.operands import dtype, equal, shape, static, text
from tvm_byoc_kit.predicates import first_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES", "refusal"]

_DTYPES = ("float16", "float32")
_LAYOUTS = (("NHWC", "OHWI"), ("NCHW", "OIHW"))


def _operands(call: Call) -> str | None:
    data, weight = dtype(call.args[0]), dtype(call.args[1])
    if data == weight and data in _DTYPES:
        return None
    return f"{data} x {weight}; cuDNN has two of {' or '.join(_DTYPES)}"


def _result(call: Call) -> str | None:
    """The runtime describes result and operands to cuDNN with one dtype."""
    if dtype(call) != dtype(call.args[0]):
        return f"{dtype(call.args[0])} to {dtype(call)}; expected one dtype"
    return None


def _layout(call: Call) -> str | None:
    found = (call.attrs.data_layout, call.attrs.kernel_layout)
    if found in _LAYOUTS:
        return None
    allowed = " or ".join(" with ".join(pair) for pair in _LAYOUTS)
    return f"layouts are {found[0]} with {found[1]}; expected {allowed}"


def _result_layout(call: Call) -> str | None:
    """The runtime reads the data in the layout of the result."""
    if call.attrs.out_layout not in ("", call.attrs.data_layout):
        return f"from {call.attrs.data_layout} to {call.attrs.out_layout}; expected one layout"
    return None


def _padding(call: Call) -> str | None:
    """The runtime hands on the first two numbers of four."""
    padding = [int(value) for value in call.attrs.padding]
    if padding[: len(padding) // 2] != padding[len(padding) // 2 :]:
        return f"padding is {padding}; cuDNN pads both ends alike"
    return None


def _bias(call: Call) -> str | None:
    """Upstream takes any second operand for a bias, a whole feature map too."""
    if not reads(call, "relax.nn.conv2d"):
        return None
    product = call.args[0]
    bias, result = shape(call.args[1]), shape(call)
    wide = [at for at, dim in enumerate(bias, len(result) - len(bias)) if static(dim) != 1]
    axes = _channel_axes(product, len(result))
    if len(wide) == 1 and wide[0] in axes and equal(bias[wide[0] - len(result)], result[wide[0]]):
        return None
    if not wide and any(static(result[axis]) == 1 for axis in axes):
        return None
    return (
        f"operand 1 is {text(bias)} for a result of {text(result)}; cuDNN adds one "
        "value per channel"
    )


def _channel_axes(product: object, rank: int) -> tuple[int, ...]:
    """Where the channels of a convolution are; where they may be, if it is not seen."""
    attrs = getattr(product, "attrs", None)
    layout = getattr(attrs, "out_layout", None) or getattr(attrs, "data_layout", None)
    axes = (1, rank - 1) if layout is None else (layout.index("C"),)
    return tuple(axis for axis in axes if 0 <= axis < rank)


def _mask(call: Call) -> str | None:
    """The runtime builds a graph without a mask."""
    for attr in ("causal_mask", "window_size"):
        value = getattr(call.attrs, attr)
        if value is not None:
            return f"{attr} is {value}; cuDNN's attention here has none"
    return None


def _half(call: Call) -> str | None:
    if dtype(call.args[0]) != "float16":
        return f"operands are {dtype(call.args[0])}; cuDNN's attention has float16"
    return None


#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, tuple[Predicate, ...]] = {
    "relax.nn.conv2d": (
        unknown_shape,
        _operands,
        _result,
        _layout,
        _result_layout,
        symbolic_convolution,  # an algorithm is chosen at load, before there is a tensor
        _padding,
    ),
    "relax.add": (unknown_shape, _bias),
    "relax.nn.attention": (_half, _mask, unsized_workspace),
}


def refusal(call: Call) -> str | None:
    """Why cuDNN cannot run `call`, or None when it can."""
    return first_reason(PREDICATES.get(call.op.name, ()), call)
