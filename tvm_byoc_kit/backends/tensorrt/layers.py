"""What TensorRT cannot run of the ops that compute: convolutions, pools, norms, reductions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.operands import equal, shape, static, text
from tvm_byoc_kit.backends.tensorrt.quantization import is_stored_weights

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES"]


def _ints(values: Any) -> list[int]:
    return [int(value) for value in values or ()]


def _layouts(**expected: str) -> Predicate:
    """A predicate for the layouts that an op's attributes name: of the same axes, in any order."""

    def predicate(call: Call) -> str | None:
        for attribute, layout in expected.items():
            found = getattr(call.attrs, attribute)
            if found and sorted(found) != sorted(layout):
                return f"{attribute} is {found}; TensorRT has the axes {layout}"
        return None

    return predicate


def _channels_first(call: Call) -> str | None:
    if call.attrs.layout != "NCHW":
        return f"layout is {call.attrs.layout}; TensorRT has NCHW"
    return None


def _spatial(expr: Any, layout: str) -> list[Any]:
    """Depth, height and width."""
    return [shape(expr)[layout.index(axis)] for axis in sorted(set(layout) - set("NC"))]


def _constant(position: int, what: str) -> Predicate:
    """A predicate for an operand that goes into the engine."""

    def predicate(call: Call) -> str | None:
        from tvm.ir import GenericConst

        operand = call.args[position]
        if isinstance(operand, GenericConst) or is_stored_weights(operand):
            return None
        return (
            f"the {what} are computed or an input; TensorRT has constants. "
            "Bind the parameters (byoc.load_model does)"
        )

    return predicate


# --- Convolutions -------------------------------------------------------------------------------


def _dynamic_channels(call: Call) -> str | None:
    channels = shape(call.args[0])[str(call.attrs.data_layout).index("C")]
    if static(channels) is None:
        return f"there are {text([channels])} channels; TensorRT has a fixed number"
    return None


def _dilated(call: Call) -> str | None:
    dilation = _ints(call.attrs.dilation)
    if any(step != 1 for step in dilation):
        return f"dilation is {dilation}; TensorRT has 1"
    return None


def _output_padding(call: Call) -> str | None:
    """Padding of the output is less padding at the end, of which there may be too little."""
    extra, padding = _ints(call.attrs.output_padding), _ints(call.attrs.padding)
    end = padding[len(padding) // 2 :]
    if any(more > most for more, most in zip(extra, end, strict=True)):
        return (
            f"output_padding is {extra}, beyond the end padding {end}; "
            "TensorRT takes it out of the end padding"
        )
    return None


# --- Pools --------------------------------------------------------------------------------------


def _wide_padding(call: Call) -> str | None:
    padding, window = _ints(call.attrs.padding), _ints(call.attrs.pool_size)
    if any(pad >= size for pad, size in zip(padding, window * 2, strict=True)):
        return (
            f"padding is {padding}, the window {window}; "
            "TensorRT has padding smaller than the window"
        )
    return None


def _dynamic_ceil_mode(call: Call) -> str | None:
    """A last window that begins in the end padding counts for TensorRT, and not for Relax."""
    attrs, sizes = call.attrs, _spatial(call.args[0], str(call.attrs.layout))
    if not attrs.ceil_mode or all(static(size) is not None for size in sizes):
        return None
    end, strides = _ints(attrs.padding)[len(sizes) :], _ints(attrs.strides)
    window = _ints(attrs.pool_size)
    if any(pad + step > size for pad, step, size in zip(end, strides, window, strict=True)):
        return (
            f"ceil_mode over {text(sizes)}, in steps of {strides} with end padding "
            f"{end}; TensorRT rounds otherwise, which takes fixed sizes to make up for, or a "
            "window as large as both"
        )
    return None


def _counts_padding_of_a_symbol(call: Call) -> str | None:
    """What counts in a last window that is not filled depends on the size."""
    attrs, sizes = call.attrs, _spatial(call.args[0], str(call.attrs.layout))
    counts = attrs.ceil_mode and attrs.count_include_pad and any(_ints(attrs.padding))
    if counts and any(static(size) is None for size in sizes):
        return (
            f"ceil_mode with count_include_pad over {text(sizes)}; TensorRT counts "
            "the elements beyond the padding too, which takes fixed sizes to make up for"
        )
    return None


def _windows_of_a_symbol(call: Call) -> str | None:
    attrs = call.attrs
    source = _spatial(call.args[0], str(attrs.layout))
    target = _spatial(call, str(attrs.out_layout or attrs.layout))
    if any(
        static(count) != 1 and static(size) is None and not equal(size, count)
        for size, count in zip(source, target, strict=True)
    ):
        return f"{text(source)} to {text(target)}; TensorRT divides a fixed size into windows"
    return None


# --- Reductions and norms -----------------------------------------------------------------------


def _no_axis(call: Call) -> str | None:
    axes = call.attrs.axis
    if (axes is not None and not len(axes)) or not shape(call.args[0]):
        return "over no axis; TensorRT has one or more"
    return None


def _axes_out_of_order(call: Call) -> str | None:
    rank = len(shape(call.args[0]))
    axes = [axis % rank for axis in _ints(call.attrs.axes)]
    if axes != sorted(axes):
        return f"over the axes {axes}; TensorRT has them in order"
    return None


def _without_scale_or_center(call: Call) -> str | None:
    """TVM's own kernels apply both whatever these attributes say."""
    for attribute in ("scale", "center"):
        if not getattr(call.attrs, attribute):
            return f"{attribute} is False; TensorRT has both scale and bias"
    return None


def _training(call: Call) -> str | None:
    if call.attrs.training:
        return "in training mode; TensorRT has the moving statistics"
    return None


def _groups_of_a_symbol(call: Call) -> str | None:
    channels = shape(call.args[0])[int(call.attrs.channel_axis)]
    if static(channels) is None:
        return f"there are {text([channels])} channels; TensorRT has a fixed number"
    return None


# --- Attention ----------------------------------------------------------------------------------


def _windowed_attention(call: Call) -> str | None:
    if call.attrs.window_size is not None:
        return f"window_size is {call.attrs.window_size}; expected none, or the mask as a bias"
    return None


def _causal_attention(call: Call) -> str | None:
    """The mask is a constant, and every query has to see a key."""
    mask = call.attrs.causal_mask
    if mask is None:
        return None
    queries, keys = (static(shape(arg)[1]) for arg in call.args[:2])
    if queries is None or keys is None:
        lengths = text([shape(arg)[1] for arg in call.args[:2]])
        return f"causal_mask is {mask} over {lengths}; expected fixed lengths"
    if mask == "BottomRight" and queries > keys:
        return (
            f"causal_mask is {mask}, where {queries} queries see {keys} keys; "
            "expected as many or more"
        )
    return None


def _scale_of_a_symbol(call: Call) -> str | None:
    features = shape(call.args[0])[3]
    if call.attrs.scale is None and static(features) is None:
        return f"a scale for {text([features])} features; expected a fixed number"
    return None


# --- Resizing -----------------------------------------------------------------------------------

_RESIZE: Mapping[str, tuple[str, ...]] = {
    "method": ("nearest_neighbor", "linear", "cubic"),
    "coordinate_transformation_mode": (
        "asymmetric",
        "align_corners",
        "half_pixel",
        "pytorch_half_pixel",
    ),
}
_ROUNDINGS = ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor")


def _resize_mode(call: Call) -> str | None:
    choices = dict(_RESIZE)
    if call.attrs.method == "nearest_neighbor":
        choices["rounding_method"] = _ROUNDINGS
    for attribute, allowed in choices.items():
        found = getattr(call.attrs, attribute)
        if found not in allowed:
            return f"{attribute} is {found}; TensorRT has {', '.join(allowed)}"
    return None


def _resize_size(call: Call) -> str | None:
    from tvm import relax

    if not isinstance(call.args[1], relax.ShapeExpr):
        return "the size is computed; expected fixed numbers"
    if any(static(size) is None for size in shape(call)[2:]):
        return f"to {text(shape(call)[2:])}; expected a fixed size"
    return None


# --- Numbers ------------------------------------------------------------------------------------


def _clip_bounds(call: Call) -> str | None:
    if any(not hasattr(bound, "value") for bound in call.args[1:]):
        return "a bound is computed; TensorRT has fixed numbers"
    values = [float(bound.value) for bound in call.args[1:]]
    dtype = str(call.args[0].ty.dtype)
    if dtype.startswith("int") and not all(value.is_integer() for value in values):
        return f"{dtype} between {values[0]} and {values[1]}; expected whole bounds"
    return None


_RESULT = {"1d": "NCW", "2d": "NCHW", "3d": "NCDHW"}
_KERNEL = {"1d": "OIW", "2d": "OIHW", "3d": "OIDHW"}
_TRANSPOSED = {"1d": "IOW", "2d": "IOHW", "3d": "IODHW"}


def _convolution(dims: str, kernels: Mapping[str, str], *more: Predicate) -> Sequence[Predicate]:
    data, kernel = _RESULT[dims], kernels[dims]
    return (
        _layouts(data_layout=data, kernel_layout=kernel, out_layout=data),
        _constant(1, "weights"),
        _dynamic_channels,
        *more,
    )


def _pool(dims: str, *more: Predicate) -> Sequence[Predicate]:
    layouts = _layouts(layout=_RESULT[dims], out_layout=_RESULT[dims])
    return (layouts, _dilated, _wide_padding, _dynamic_ceil_mode, *more)


def _adaptive(dims: str) -> Sequence[Predicate]:
    return (_layouts(layout=_RESULT[dims], out_layout=_RESULT[dims]), _windows_of_a_symbol)


_DIMS = ("1d", "2d", "3d")
_REDUCTIONS = ("sum", "prod", "max", "min", "mean", "variance", "std")

#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, Sequence[Predicate]] = {
    **{f"relax.nn.conv{dims}": _convolution(dims, _KERNEL) for dims in _DIMS},
    **{
        f"relax.nn.conv{dims}_transpose": _convolution(dims, _TRANSPOSED, _dilated, _output_padding)
        for dims in _DIMS
    },
    **{f"relax.nn.max_pool{dims}": _pool(dims) for dims in _DIMS},
    **{f"relax.nn.avg_pool{dims}": _pool(dims, _counts_padding_of_a_symbol) for dims in _DIMS},
    **{f"relax.nn.adaptive_avg_pool{dims}": _adaptive(dims) for dims in _DIMS},
    **{f"relax.{name}": (_no_axis,) for name in _REDUCTIONS},
    "relax.nn.layer_norm": (_axes_out_of_order, _without_scale_or_center),
    "relax.nn.rms_norm": (_axes_out_of_order,),
    "relax.nn.batch_norm": (_training,),
    "relax.nn.group_norm": (_groups_of_a_symbol, _without_scale_or_center),
    "relax.nn.instance_norm": (_without_scale_or_center,),
    "relax.nn.attention": (_windowed_attention, _causal_attention, _scale_of_a_symbol),
    "relax.nn.attention_bias": (_windowed_attention, _causal_attention, _scale_of_a_symbol),
    "relax.image.resize2d": (_channels_first, _resize_size, _resize_mode),
    "relax.clip": (_clip_bounds,),
}
