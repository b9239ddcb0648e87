"""Faults to plant in the converters: each one that somebody could have made.

A mutation changes what a converter is told, calls or sets, by monkeypatching. The cases of its
pattern have to notice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt

from tvm_byoc_kit.backends.tensorrt.converters import CONVERTERS
from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Parameters
    ----------
    pattern : str
        Whose cases have to notice.
    plant : callable
        Gets a MonkeyPatch.
    """

    pattern: str
    plant: Callable[[Patch], None]


def _wrapped(patch: Patch, op: str, wrap: Callable[..., Any]) -> None:
    """Put ``wrap(convert, net, op, *operands)`` in the place of an operator's converter."""
    name = f"relax.{op}"
    original = CONVERTERS[name]

    def convert(*arguments: Any) -> Any:
        return wrap(original.convert, *arguments)

    patch.setitem(CONVERTERS, name, dataclasses.replace(original, convert=convert))


def attribute(op: str, key: str, change: Callable[[Any], Any], pattern: str = "") -> Mutation:
    """An attribute that is misread."""

    def wrap(convert: Any, net: Any, call: Any, *operands: Any) -> Any:
        attrs = {**call.attrs, key: change(call.attrs[key])}
        return convert(net, dataclasses.replace(call, attrs=attrs), *operands)

    return Mutation(pattern or op, lambda patch: _wrapped(patch, op, wrap))


def operands(op: str, change: Callable[..., Any], pattern: str = "") -> Mutation:
    """Operands that are taken for one another, or misread."""

    def wrap(convert: Any, net: Any, call: Any, *given: Any) -> Any:
        return convert(net, call, *change(*given))

    return Mutation(pattern or op, lambda patch: _wrapped(patch, op, wrap))


def results(op: str, change: Callable[[Any], Any]) -> Mutation:
    """What a converter gives, otherwise."""

    def wrap(convert: Any, *arguments: Any) -> Any:
        return change(convert(*arguments))

    return Mutation(op, lambda patch: _wrapped(patch, op, wrap))


def instead(op: str, other: Callable[..., Any], pattern: str = "") -> Mutation:
    """Something else that is computed: ``other(net, op, *operands)``."""
    return Mutation(pattern or op, lambda patch: _wrapped(patch, op, lambda _, *a: other(*a)))


def forgotten(pattern: str, cls: str, name: str) -> Mutation:
    """An attribute of the vendor's layer that is never set."""
    own = getattr(trt, cls)

    def plant(patch: Patch) -> None:
        reading = getattr(own, name).fget
        patch.setattr(own, name, property(reading, lambda _self, _value: None))

    return Mutation(pattern, plant)


def misset(pattern: str, cls: str, name: str, change: Callable[[Any], Any]) -> Mutation:
    """An attribute of the vendor's layer that is set to something else."""
    own = getattr(trt, cls)

    def plant(patch: Patch) -> None:
        kept = getattr(own, name)
        patch.setattr(
            own, name, property(kept.fget, lambda self, value: kept.fset(self, change(value)))
        )

    return Mutation(pattern, plant)


def helper(pattern: str, name: str, change: Callable[..., Any]) -> Mutation:
    """A helper of the builder that is called otherwise: ``change(original, net, *arguments)``."""

    def plant(patch: Patch) -> None:
        original = getattr(NetworkBuilder, name)

        def method(net: Any, *given: Any, **named: Any) -> Any:
            return change(original, net, *given, **named)

        patch.setattr(NetworkBuilder, name, method)

    return Mutation(pattern, plant)


def layer(pattern: str, kind: str, other: str) -> Mutation:
    """An elementwise layer, unary one or reduction of another kind."""

    def renamed(original: Any, net: Any, name: str, *given: Any, **named: Any) -> Any:
        return original(net, other if name == kind else name, *given, **named)

    def plant(patch: Patch) -> None:
        for name in ("elementwise", "unary", "activation", "reduce"):
            helper(pattern, name, renamed).plant(patch)

    return Mutation(pattern, plant)


def _swapped(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Beginning for end."""
    half = len(numbers) // 2
    return (*numbers[half:], *numbers[:half])


def _interleaved(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """As if both sides of an axis stood together, as PyTorch and ``nn.pad`` have them."""
    return (*numbers[::2], *numbers[1::2])


def _backwards(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(reversed(numbers))


def _inverse(order: Any) -> tuple[int, ...]:
    return tuple(int(place) for place in np.argsort(list(order)))


def _negated(value: Any) -> bool:
    return not value


def _of_two(original: Any, net: Any, kind: str, a: Any, b: Any) -> Any:
    return original(net, kind, b, a)


def _rounded_cast(original: Any, net: Any, x: Any, dtype: Any) -> Any:
    narrows = dtype in (trt.int32, trt.int64) and not isinstance(x, np.ndarray)
    return original(net, net.unary("ROUND", x) if narrows and net.is_float(x) else x, dtype)


def _moved_mask(original: Any, net: Any, x: Any, axes: Any) -> int:
    return int(original(net, x, [(axis + 1) % len(x.shape) for axis in axes]))


def _other_way(original: Any, net: Any, x: Any, order: Any) -> Any:
    return original(net, x, _inverse(order))


def _log_of_softmax(net: Any, call: Any, x: Any) -> Any:
    made = net.network.add_softmax(x)
    made.axes = net.axes(x, [call.attrs["axis"]])
    return net.unary("LOG", net.check(made))


def _half_away(net: Any, _call: Any, x: Any) -> Any:
    half = net.elementwise("PROD", net.unary("SIGN", x), net.scalar(0.5, x))
    beyond = net.unary("FLOOR", net.unary("ABS", net.elementwise("SUM", x, half)))
    return net.elementwise("PROD", net.unary("SIGN", x), beyond)


def _tile_for_repeat(net: Any, call: Any, x: Any) -> Any:
    """Elements 0 1 2 0 1 2 for 0 0 1 1 2 2."""
    if call.attrs["axis"] is None:
        x = net.reshape(x, [-1])
    axis = (call.attrs["axis"] or 0) % len(x.shape)
    index = np.tile(np.arange(x.shape[axis]), call.attrs["repeats"])
    made = net.network.add_gather_v2(x, net.tensor(index), trt.GatherMode.DEFAULT)
    made.axis = axis
    return net.check(made)


def _rows_for_columns(original: Any, net: Any, x: Any, order: Any) -> Any:
    *rest, height, i, width, j = order
    return original(net, x, (*rest, height, j, width, i))


def _opposite(kind: str) -> Callable[..., Any]:
    """``not b < a`` for ``a <= b``: true of NaN."""
    return lambda net, _call, a, b: net.unary("NOT", net.elementwise(kind, a, b))


#: By what is wrong.
MUTATIONS: dict[str, Mutation] = {
    # Convolutions
    "padding at the other end": attribute("nn.conv2d", "padding", _swapped),
    "padding as PyTorch orders it": attribute("nn.conv2d", "padding", _interleaved),
    "padding of the other axis": misset(
        "nn.conv2d", "IConvolutionLayer", "pre_padding", _backwards
    ),
    "end padding forgotten": forgotten("nn.conv2d", "IConvolutionLayer", "post_padding"),
    "stride of the other axis": attribute("nn.conv2d", "strides", _backwards),
    "dilation forgotten": forgotten("nn.conv2d", "IConvolutionLayer", "dilation_nd"),
    "dilation of the other axis": attribute("nn.conv2d", "dilation", _backwards),
    "groups forgotten": forgotten("nn.conv2d", "IConvolutionLayer", "num_groups"),
    "kernel turned": operands("nn.conv2d", lambda x, w: (x, w[..., ::-1].copy())),
    "kernel's outputs reversed": operands("nn.conv2d", lambda x, w: (x, w[::-1].copy())),
    "padding of a line at the other end": attribute("nn.conv1d", "padding", _swapped),
    "dilation of a line forgotten": forgotten("nn.conv1d", "IConvolutionLayer", "dilation_nd"),
    "volume's padding reversed": misset(
        "nn.conv3d", "IConvolutionLayer", "post_padding", _backwards
    ),
    "output padding at the beginning": attribute("nn.conv2d_transpose", "padding", _swapped),
    "output padding forgotten": attribute(
        "nn.conv2d_transpose", "output_padding", lambda more: (0,) * len(more)
    ),
    "transposed kernel turned": operands(
        "nn.conv2d_transpose", lambda x, w: (x, w[:, :, ::-1].copy())
    ),
    "transposed kernel's groups reversed": operands(
        "nn.conv2d_transpose", lambda x, w: (x, np.roll(w, 2, 0))
    ),
    # Pools and resizing
    "pool's padding at the other end": attribute("nn.max_pool2d", "padding", _swapped),
    "pool's stride of the other axis": attribute("nn.max_pool2d", "strides", _backwards),
    "ceil_mode forgotten": attribute("nn.max_pool2d", "ceil_mode", _negated),
    "count_include_pad inverted": attribute("nn.avg_pool2d", "count_include_pad", _negated),
    "count_include_pad forgotten": forgotten(
        "nn.avg_pool3d", "IPoolingLayer", "average_count_excludes_padding"
    ),
    "average for maximum": instead("nn.max_pool1d", CONVERTERS["relax.nn.avg_pool1d"].convert),
    "cubic coefficient": forgotten("image.resize2d", "IResizeLayer", "cubic_coeff"),
    "exclude_outside": forgotten("image.resize2d", "IResizeLayer", "exclude_outside"),
    "rounding of nearest": forgotten("image.resize2d", "IResizeLayer", "nearest_rounding"),
    "coordinates": forgotten("image.resize2d", "IResizeLayer", "coordinate_transformation"),
    "method of resizing": forgotten("image.resize2d", "IResizeLayer", "resize_mode"),
    "single pixel": forgotten("image.resize2d", "IResizeLayer", "selector_for_single_pixel"),
    # Norms, reductions, products
    "epsilon of layer_norm": forgotten("nn.layer_norm", "INormalizationLayer", "epsilon"),
    "scale for bias": operands("nn.layer_norm", lambda x, g, b: (x, b, g)),
    "epsilon of batch_norm": attribute("nn.batch_norm", "epsilon", lambda _: 1e-5),
    "mean for variance": operands("nn.batch_norm", lambda x, g, b, m, v: (x, g, b, v, m)),
    "axis of batch_norm": attribute("nn.batch_norm", "axis", lambda _: 1),
    "scale that is off": attribute("nn.batch_norm", "scale", _negated),
    "epsilon of group_norm": attribute("nn.group_norm", "epsilon", lambda _: 1e-5),
    "number of groups": attribute("nn.group_norm", "num_groups", lambda _: 1),
    "epsilon of instance_norm": attribute("nn.instance_norm", "epsilon", lambda _: 1e-5),
    "epsilon of rms_norm": attribute("nn.rms_norm", "epsilon", lambda _: 1e-5),
    "axis of softmax": attribute("nn.softmax", "axis", lambda _: -1),
    "axis of softmax forgotten": forgotten("nn.softmax", "ISoftMaxLayer", "axes"),
    "logarithm of a softmax": instead("nn.log_softmax", _log_of_softmax),
    "axes of a sum": helper("sum", "axes", _moved_mask),
    "keepdims inverted": attribute("mean", "keepdims", _negated),
    "sum for mean": layer("mean", "AVG", "SUM"),
    "variance for deviation": layer("std", "SQRT", "ABS"),
    "exclusive forgotten": attribute("cumsum", "exclusive", lambda _: False),
    "axis of a running sum": attribute("cumsum", "axis", lambda _: 0),
    "product with a transposed constant": operands(
        "matmul",
        lambda a, b: (a, b.reshape(b.shape[::-1]).T.copy() if isinstance(b, np.ndarray) else b),
        "nn.batch_matmul",
    ),
    "scale of attention": attribute("nn.attention", "scale", lambda _: None),
    "keys for values": operands("nn.attention", lambda q, k, v: (q, v, k)),
    "bias forgotten": operands("nn.attention_bias", lambda q, k, v, _: (q, k, v)),
    # Element by element
    "slope forgotten": attribute("nn.leakyrelu", "alpha", lambda _: 0.01),
    "axis of a slope": attribute("nn.prelu", "axis", lambda _: 1),
    "beta of softplus": attribute("nn.softplus", "beta", lambda _: 1.0),
    "threshold of softplus": attribute("nn.softplus", "threshold", lambda _: 20.0),
    "alpha of selu": misset("nn.selu", "IActivationLayer", "alpha", lambda _: 1.0),
    "the other gelu": layer("nn.gelu", "GELU_ERF", "GELU_TANH"),
    "sigmoid alone": layer("nn.silu", "PROD", "MIN"),
    "bounds of clip": operands("clip", lambda x, low, high: (x, high, low)),
    "upper bound of clip": operands("clip", lambda x, low, _: (x, low, 3e38)),
    "difference the other way": helper("subtract", "elementwise", _of_two),
    "quotient the other way": helper("divide", "elementwise", _of_two),
    "power the other way": helper("power", "elementwise", _of_two),
    "floor for ceil": layer("ceil", "CEIL", "FLOOR"),
    "halves away from zero": instead("round", _half_away),
    "root alone": layer("rsqrt", "RECIP", "ABS"),
    "less for greater": layer("greater", "GREATER", "LESS"),
    "greater without equal": layer("greater_equal", "EQUAL", "GREATER"),
    "less or equal of NaN": instead("less_equal", _opposite("GREATER")),
    "equal for unequal": instead(
        "not_equal", lambda net, _call, a, b: net.elementwise("EQUAL", a, b)
    ),
    "or for exclusive or": layer("logical_xor", "XOR", "OR"),
    "infinity is finite": layer("isfinite", "ISINF", "ISNAN"),
    "the other choice": operands("where", lambda c, a, b: (c, b, a)),
    "rounding in a cast": helper("astype", "cast", _rounded_cast),
    # Moves
    "inverse permutation": helper("transpose", "transpose", _other_way),
    "inverse layout": helper("layout_transform", "transpose", _other_way),
    "no permutation": attribute(
        "permute_dims", "axes", lambda axes: axes and axes[::-1], "transpose"
    ),
    "axis of a new dimension": attribute(
        "expand_dims", "axis", lambda axes: [axis + (axis > 1) for axis in axes]
    ),
    "start of a slice": operands(
        "strided_slice",
        lambda x, axes, begin, end, *step: (
            x,
            axes,
            [n - 1 for n in begin],
            [n - 1 for n in end],
            *step,
        ),
    ),
    "direction of a slice": operands(
        "strided_slice", lambda x, axes, begin, end, *_: (x, axes, begin, end)
    ),
    "parts in another order": results("split", lambda parts: parts[::-1]),
    "joined in another order": operands("concat", lambda parts: (parts[::-1],), "concatenate"),
    "axis of a join": forgotten("concatenate", "IConcatenationLayer", "axis"),
    "axis of a stack": attribute("stack", "axis", lambda _: 0),
    "axis of a gather": forgotten("take", "IGatherLayer", "axis"),
    "axis of gathered elements": attribute("gather_elements", "axis", lambda _: 0),
    "batches of positions": forgotten("gather_nd", "IGatherLayer", "num_elementwise_dims"),
    "value of a padding": attribute("nn.pad", "pad_value", lambda _: 0.0),
    "sides of a padding": attribute(
        "nn.pad", "pad_width", lambda n: tuple(np.reshape(n, (-1, 2))[:, ::-1].flatten().tolist())
    ),
    "mode of a padding": attribute(
        "nn.pad", "pad_mode", lambda mode: {"reflect": "replicate"}.get(mode, mode)
    ),
    "mode of a tile": misset("tile", "ISliceLayer", "mode", lambda _: trt.SampleMode.CLAMP),
    "axis of a flip": attribute("flip", "axis", lambda _: 1),
    "tile for repeat": instead("repeat", _tile_for_repeat),
    "rows for columns of pixels": helper("nn.pixel_shuffle", "transpose", _rows_for_columns),
    # Quantization
    "scale of a byte": operands(
        "dequantize", lambda x, s, z: (x, s[::-1].copy() if s.ndim else np.asarray(s * 2), z)
    ),
    "axis of scales": forgotten("dequantize", "IDequantizeLayer", "axis"),
}
