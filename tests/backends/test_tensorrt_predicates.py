"""What TensorRT refuses: each predicate by a module that isolates it, and one next to it.

A case is the parameters, the body, and a part of the reason. Without the backend's predicates every
refused call would be matched, so that nothing but the predicate keeps it on the host.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt import BACKEND

op = relax.op
nn = op.nn
Body = Callable[..., Any]
Params = dict[str, tuple[tuple[int | str, ...], str]]

UNGUARDED = dataclasses.replace(BACKEND, refusal=None)


def const(*shape: int, dtype: str = "float32") -> Any:
    values = np.random.default_rng(0).uniform(-2, 2, shape)
    return relax.const(values.astype(getattr(ml_dtypes, dtype, dtype)), dtype)


def ids(*values: Any) -> Any:
    return relax.const(np.array(values[0] if len(values) == 1 else values, "int64"), "int64")


def tensor(*dims: int | str, dtype: str = "float32") -> Params:
    return {"x": (dims, dtype)}


def two(*dims: tuple[int | str, ...], dtype: str = "float32") -> Params:
    return {name: (shape, dtype) for name, shape in zip("xyz", dims, strict=False)}


def calls(mod: tvm.IRModule) -> list[Any]:
    return [
        binding.value
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    ]


def offloaded(mod: tvm.IRModule, backend: byoc.Backend) -> tuple[str, ...]:
    """The composites of a partition in which no two matches are merged."""
    partitioned = byoc.partition(mod, backend, annotate_codegen=True).mod
    return tuple(
        str(function.attrs["Composite"])
        for region in partitioned.functions.values()
        if isinstance(region, relax.Function) and region.attrs and "Codegen" in region.attrs
        for block in region.body.blocks
        for binding in block.bindings
        if isinstance(function := binding.value, relax.Function)
    )


BATCH_NORM = {"axis": 1, "training": False}
IMAGE = tensor(1, 4, 8, 8)
DYNAMIC_IMAGE = tensor("n", 4, "h", "w")

# By name: parameters and body of a call that is refused, and a part of its reason.
REFUSED: dict[str, tuple[Params, Body, str]] = {
    # dtypes
    "float64": (tensor(2, 3, dtype="float64"), nn.relu, "operand 0 is float64; TensorRT has"),
    "int16": (tensor(2, 3, dtype="int16"), nn.relu, "operand 0 is int16"),
    "uint8": (tensor(2, 3, dtype="uint8"), nn.relu, "operand 0 is uint8"),
    "int8": (tensor(2, 3, dtype="int8"), lambda x: op.add(x, x), "operand 0 is int8"),
    "to uint8": (tensor(2, 3), lambda x: op.astype(x, "uint8"), "result is uint8"),
    "to float64": (tensor(2, 3), lambda x: op.astype(x, "float64"), "result is float64"),
    "sum of bool": (tensor(2, 3, dtype="bool"), lambda x: op.sum(x, 1), "operand 0 is bool"),
    "maximum of bool": (tensor(2, 3, dtype="bool"), lambda x: op.maximum(x, x), "is bool"),
    "less of bool": (tensor(2, 3, dtype="bool"), lambda x: op.less(x, x), "operand 0 is bool"),
    "integer divide": (tensor(2, 3, dtype="int32"), lambda x: op.divide(x, x), "is int32"),
    "integer power": (tensor(2, 3, dtype="int64"), lambda x: op.power(x, x), "is int64"),
    "integer mean": (tensor(2, 3, dtype="int32"), lambda x: op.mean(x, 1), "is int32"),
    "integer matmul": (tensor(3, 3, dtype="int32"), lambda x: op.matmul(x, x), "is int32"),
    "integer convolution": (
        tensor(1, 4, 8, 8, dtype="int8"),
        lambda x: nn.conv2d(x, const(4, 4, 3, 3, dtype="int8"), out_dtype="int32"),
        "operand 0 is int8",
    ),
    "integer pool": (
        tensor(1, 4, 8, 8, dtype="int32"),
        lambda x: nn.max_pool2d(x, 2),
        "operand 0 is int32",
    ),
    "integer bits": (
        tensor(2, 3, dtype="int32"),
        lambda x: op.bitwise_and(x, x),
        "is int32; TensorRT has bool",
    ),
    "indices of int16": (
        {"x": ((4, 3), "float32"), "i": ((2,), "int16")},
        lambda x, i: op.take(x, i, 0),
        "operand 1 is int16; TensorRT has int32, int64",
    ),
    "bfloat16 resize": (
        tensor(1, 4, 8, 8, dtype="bfloat16"),
        lambda x: op.image.resize2d(x, (4, 4)),
        "is bfloat16; TensorRT has float32, float16",
    ),
    "mixed operands": (
        {"x": ((2, 3), "float16"), "y": ((3, 2), "float32")},
        lambda x, y: op.matmul(x, y, out_dtype="float32"),
        "float16 and float32 together",
    ),
    "narrowing": (
        two((2, 3), (3, 2)),
        lambda x, y: op.matmul(x, y, out_dtype="float16"),
        "float16 and float32 together",
    ),
    # shapes
    "unknown shape": (two(("n",), ("m",)), op.add, "the shape of result is unknown"),
    "rank 9": (tensor(*[1] * 9), nn.relu, "operand 0 has 9 dimensions; TensorRT has up to 8"),
    "no elements": (tensor(2, 0), nn.relu, "operand 0 has no elements"),
    "an empty slice": (
        tensor(2, 3),
        lambda x: op.strided_slice(x, [1], [2], [2]),
        "result has no elements",
    ),
    "constants only": ({}, lambda: op.add(const(2), const(2)), "every operand is a constant"),
    "constants only, joined": (
        {},
        lambda: op.concat([const(2), const(3)], 0),
        "every operand is a constant",
    ),
    "two new symbols": (
        tensor("n", "m", 6),
        lambda x: op.reshape(x, (x.ty.shape[0] * 2, x.ty.shape[1] * 3)),
        "TensorRT finds one dimension that the operand has not",
    ),
    # convolutions
    "convolution of blocks": (
        tensor(1, 1, 8, 8, 4),
        lambda x: nn.conv2d(x, const(4, 4, 3, 3), data_layout="NCHW4c"),
        "data_layout is NCHW4c; TensorRT has the axes NCHW",
    ),
    "weights in blocks": (
        IMAGE,
        lambda x: nn.conv2d(x, const(1, 4, 3, 3, 4), kernel_layout="OIHW4o"),
        "kernel_layout is OIHW4o; TensorRT has the axes OIHW",
    ),
    "result in blocks": (
        IMAGE,
        lambda x: nn.conv2d(x, const(4, 4, 3, 3), out_layout="NCHW4c"),
        "out_layout is NCHW4c",
    ),
    "convolution of blocks in one dimension": (
        tensor(1, 1, 8, 4),
        lambda x: nn.conv1d(x, const(4, 4, 3), data_layout="NCW4c"),
        "data_layout is NCW4c; TensorRT has the axes NCW",
    ),
    "weights as an input": (
        two((1, 4, 8, 8), (4, 4, 3, 3)),
        nn.conv2d,
        "the weights are computed or an input",
    ),
    "computed weights": (
        two((1, 4, 8, 8), (4, 4, 3, 3)),
        lambda x, y: nn.conv2d(x, op.exp(y)),
        "the weights are computed or an input",
    ),
    "transposed weights as an input": (
        two((1, 4, 8, 8), (4, 4, 3, 3)),
        nn.conv2d_transpose,
        "the weights are computed or an input",
    ),
    "dilated transposed convolution": (
        IMAGE,
        lambda x: nn.conv2d_transpose(x, const(4, 4, 3, 3), dilation=2),
        r"dilation is \[2, 2\]; TensorRT has 1",
    ),
    "output padding": (
        IMAGE,
        lambda x: nn.conv2d_transpose(
            x, const(4, 4, 3, 3), strides=2, padding=(1, 1, 0, 1), output_padding=(1, 1)
        ),
        r"output_padding is \[1, 1\], beyond the end padding \[0, 1\]",
    ),
    # pools
    "pool of blocks": (
        tensor(1, 1, 8, 8, 4),
        lambda x: nn.max_pool2d(x, 2, layout="NCHW4c"),
        "layout is NCHW4c; TensorRT has the axes NCHW",
    ),
    "dilated pool": (IMAGE, lambda x: nn.max_pool2d(x, 2, dilation=2), r"dilation is \[2, 2\]"),
    "wide padding": (
        IMAGE,
        lambda x: nn.avg_pool2d(x, 2, padding=2),
        r"padding is \[2, 2, 2, 2\], the window \[2, 2\]",
    ),
    "ceil_mode and padding of a symbol": (
        DYNAMIC_IMAGE,
        lambda x: nn.avg_pool2d(x, 3, strides=2, padding=1, ceil_mode=True, count_include_pad=True),
        "ceil_mode with count_include_pad over hxw",
    ),
    "windows of a symbol": (
        DYNAMIC_IMAGE,
        lambda x: nn.adaptive_avg_pool2d(x, 2),
        "hxw to 2x2; TensorRT divides a fixed size into windows",
    ),
    "adaptive pool of blocks": (
        tensor(1, 1, 8, 8, 4),
        lambda x: nn.adaptive_avg_pool2d(x, 1, layout="NCHW4c"),
        "layout is NCHW4c",
    ),
    # reductions and norms
    "reduction over no axis": (tensor(2, 3), lambda x: op.sum(x, []), "over no axis"),
    "reduction of a scalar": (tensor(), op.max, "over no axis"),
    "layer_norm out of order": (
        tensor(2, 4, 4),
        lambda x: nn.layer_norm(x, const(4, 4), const(4, 4), [2, 1]),
        r"over the axes \[2, 1\]",
    ),
    "layer_norm without scale": (
        tensor(2, 4),
        lambda x: nn.layer_norm(x, const(4), const(4), [1], scale=False),
        "scale is False",
    ),
    "rms_norm out of order": (
        tensor(2, 4, 4),
        lambda x: nn.rms_norm(x, const(4, 4), [2, 1]),
        r"over the axes \[2, 1\]",
    ),
    "batch_norm in training": (
        IMAGE,
        lambda x: nn.batch_norm(x, *[const(4)] * 4, axis=1, training=True),
        "in training mode",
    ),
    "group_norm without center": (
        IMAGE,
        lambda x: nn.group_norm(x, const(4), const(4), 2, 1, [2, 3], center=False),
        "center is False",
    ),
    "instance_norm without scale": (
        IMAGE,
        lambda x: nn.instance_norm(x, const(4), const(4), 1, [2, 3], scale=False),
        "scale is False",
    ),
    "group_norm of symbolic channels": (
        {"x": ((1, 8, "n"), "float32"), "g": (("n",), "float32")},
        lambda x, g: nn.group_norm(x, g, g, 2, 2, [1]),
        "there are n channels; TensorRT has a fixed number",
    ),
    "causal attention of a symbol": (
        tensor(1, "n", 2, 8),
        lambda x: nn.attention(x, x, x, causal_mask="TopLeft"),
        "causal_mask is TopLeft over nxn; expected fixed lengths",
    ),
    "causal attention without keys": (
        two((1, 5, 2, 8), (1, 4, 2, 8)),
        lambda x, y: nn.attention(x, y, y, causal_mask="BottomRight"),
        "5 queries see 4 keys",
    ),
    "attention in a window": (
        tensor(1, 4, 2, 8),
        lambda x: nn.attention(x, x, x, causal_mask="TopLeft", window_size=2),
        "window_size is 2",
    ),
    "attention of symbolic features": (
        tensor(1, 4, 2, "f"),
        lambda x: nn.attention(x, x, x),
        "a scale for f features; expected a fixed number",
    ),
    # resizing
    "resize, layout": (
        IMAGE,
        lambda x: op.image.resize2d(x, (4, 4), layout="NHWC"),
        "layout is NHWC",
    ),
    "resize, mode": (
        IMAGE,
        lambda x: op.image.resize2d(x, (4, 4), coordinate_transformation_mode="tf_crop_and_resize"),
        "coordinate_transformation_mode is tf_crop_and_resize",
    ),
    "resize, rounding": (
        IMAGE,
        lambda x: op.image.resize2d(x, (4, 4), method="nearest_neighbor", rounding_method="round"),
        "rounding_method is round",
    ),
    "resize to a symbol": (
        {"x": ((1, 4, 8, 8), "float32"), "y": (("h",), "float32")},
        lambda x, y: op.image.resize2d(x, relax.ShapeExpr([y.ty.shape[0], 4])),
        "to hx4; expected a fixed size",
    ),
    # bounds and tuples
    "a number": (
        tensor(2, 4),
        lambda x: op.add(x, tvm.tirx.FloatImm("float32", 2.0)),
        "operand 1 is a number; TensorRT has tensors",
    ),
    "clip by a symbol": (
        tensor("n", 4),
        lambda x: op.clip(x, 0, x.ty.shape[0]),
        "a bound is computed",
    ),
    "clip of integers": (
        tensor(2, 4, dtype="int32"),
        lambda x: op.clip(x, 0, tvm.tirx.FloatImm("float32", 1.5)),
        r"int32 between 0.0 and 1.5",
    ),
    "slice by a symbol": (
        tensor("n", 4),
        lambda x: op.strided_slice(x, [1], [0], [x.ty.shape[0]], assume_inbound=True),
        "end is computed",
    ),
    "split of a symbol": (tensor("n", 4), lambda x: op.split(x, 2, 0), "axis 0 of nx4"),
    "split beyond the end": (tensor(2, 4), lambda x: op.split(x, [1, 5], 1), "result has no"),
    "a split's tuple joined": (
        tensor(2, 4),
        lambda x: op.concat(op.split(x, 2, 1), 0),
        "operand 0 is a tuple computed elsewhere",
    ),
    # moves
    "broadcast to a symbol": (
        two((1, 4), ("n", 4)),
        lambda x, y: op.broadcast_to(x, y.ty.shape),
        "1x4 to nx4; expected fixed sizes, or the operand's own",
    ),
    "repeat of a symbol": (
        tensor("n", 4),
        lambda x: op.repeat(x, 2, 0),
        "along nx4; TensorRT repeats a fixed size",
    ),
    "squeeze of a symbol": (
        tensor("n", 4, 1),
        lambda x: op.squeeze(x, [0, 2]),
        "nx1 of nx4x1; TensorRT takes out ones",
    ),
    "repeat of all with a symbol": (tensor(2, "n"), lambda x: op.repeat(x, 2), "along 2xn"),
    "pixel_shuffle of many dimensions": (
        tensor(1, 1, 1, 1, 4, 2, 2),
        lambda x: nn.pixel_shuffle(x, 2),
        "operand 0 has 7 dimensions; TensorRT has up to 6",
    ),
    "slice of a symbol backwards": (
        tensor("n", 4),
        lambda x: op.strided_slice(x, [0], [-1], [-100], [-1]),
        "axis 0 of nx4 backwards; expected a fixed size",
    ),
    "slice of a symbol before the first": (
        tensor("n", 4),
        lambda x: op.strided_slice(x, [0], [-3], [0]),
        "axis 0 of nx4 from -3 to 0 has no elements",
    ),
    "slice of a symbol that ends before": (
        tensor("n", 4),
        lambda x: op.strided_slice(x, [0], [-3], [-5]),
        "axis 0 of nx4 from -3 to -5 has no elements",
    ),
    "slice of a symbol assumed inside": (
        tensor("n", 4),
        lambda x: op.strided_slice(x, [0], [0], [2], assume_inbound=True),
        "axis 0 of nx4 with assume_inbound",
    ),
    "slice assumed inside": (
        tensor(2, 4),
        lambda x: op.strided_slice(x, [1], [0], [5], assume_inbound=True),
        "5 elements of axis 1 of 2x4; TensorRT has 4 there",
    ),
    "pad mode": (
        tensor(2, 4),
        lambda x: nn.pad(x, (0, 0, 1, 1), "edge"),
        "pad_mode is edge",
    ),
    "reflected too far": (
        tensor(2, 4),
        lambda x: nn.pad(x, (0, 0, 0, 4), "reflect"),
        "4 elements of reflect padding at an axis of 4",
    ),
    "circular too far": (
        tensor(2, 4),
        lambda x: nn.pad(x, (0, 0, 5, 0), "circular"),
        "5 elements of circular padding at an axis of 4",
    ),
    "layout of blocks": (
        tensor(2, 8),
        lambda x: op.layout_transform(x, lambda i, j: (i, j // 4, j % 4)),
        "TensorRT has permutations of axes",
    ),
    # gathers
    "indices beyond which is no number": (
        {"x": ((4, 3), "float32"), "i": ((2,), "int64")},
        lambda x, i: op.take(x, i, 0, mode="nan"),
        "mode is nan; expected fast, clip, wrap",
    ),
    "an index beyond the end": (
        tensor(4, 3),
        lambda x: op.take(x, ids(0, 4), 0),
        "indices from 0 to 4 at an axis of 4",
    ),
    "a negative index": (
        tensor("n", 3),
        lambda x: op.take(x, ids(-1, 0), 0),
        "indices from -1 to 0 at an axis of n",
    ),
    "a negative index of elements": (
        tensor(4, 3),
        lambda x: op.gather_elements(x, ids([[0, 1, -1]] * 4), 1),
        "indices from -1 to 1",
    ),
    "fewer rows of elements": (
        {"x": ((4, 3), "float32"), "i": ((2, 3), "int64")},
        lambda x, i: op.gather_elements(x, i, 1),
        "2x3 indices for 4x3 along axis 1",
    ),
    "a position beyond the end": (
        tensor(4, 3),
        lambda x: op.gather_nd(x, ids([[0, 3]])),
        "positions from 3 to 3 at an axis of 3",
    ),
    "positions in two batches": (
        {"x": ((2, 2, 3), "float32"), "i": ((2, 2, 1), "int64")},
        lambda x, i: op.gather_nd(x, i, 2),
        "batch_dims is 2; TensorRT has 0 and 1",
    ),
}

# By name: what is next to one of those, and taken.
ACCEPTED: dict[str, tuple[Params, Body]] = {
    **{
        f"relu of {dtype}": (tensor(2, 3, dtype=dtype), nn.relu)
        for dtype in ("float32", "float16", "bfloat16", "int32", "int64")
    },
    "from uint8": (tensor(2, 3, dtype="uint8"), lambda x: op.astype(x, "float32")),
    "bool to float": (tensor(2, 3, dtype="bool"), lambda x: op.astype(x, "float16")),
    "sum of integers": (tensor(2, 3, dtype="int32"), lambda x: op.sum(x, 1)),
    "equal of bool": (tensor(2, 3, dtype="bool"), lambda x: op.equal(x, x)),
    "bits of bool": (tensor(2, 3, dtype="bool"), lambda x: op.bitwise_and(x, x)),
    "float divide": (tensor(2, 3), lambda x: op.divide(x, x)),
    "widening": (
        two((2, 3), (3, 2), dtype="float16"),
        lambda x, y: op.matmul(x, y, out_dtype="float32"),
    ),
    "moved integers": (tensor(2, 3, dtype="int64"), lambda x: op.permute_dims(x, [1, 0])),
    "moved bool": (tensor(2, 3, dtype="bool"), lambda x: op.reshape(x, (6,))),
    "rank 8": (tensor(*[1] * 8), nn.relu),
    "a scalar": (tensor(), nn.relu),
    "one constant": (tensor(2), lambda x: op.add(const(2), x)),
    "one symbol that moves": (tensor("n", 3), lambda x: op.expand_dims(x, 0)),
    "two symbols that stay": (tensor("n", "m", 3), lambda x: op.expand_dims(x, 3)),
    "one symbol raised": (two((2, "n", 4), ("n", 4)), op.add),
    "one symbol stacked": (tensor("n", 4), lambda x: op.stack([x, x], 0)),
    "dynamic convolution": (DYNAMIC_IMAGE, lambda x: nn.conv2d(x, const(4, 4, 3, 3))),
    "grouped convolution": (IMAGE, lambda x: nn.conv2d(x, const(4, 1, 3, 3), groups=4)),
    "conv1d": (tensor("n", 4, 8), lambda x: nn.conv1d(x, const(4, 4, 3), padding=(1, 0))),
    "conv3d": (tensor(1, 2, 4, 4, 4), lambda x: nn.conv3d(x, const(4, 2, 3, 3, 3))),
    "transposed convolution": (
        IMAGE,
        lambda x: nn.conv2d_transpose(
            x, const(4, 4, 3, 3), strides=2, padding=1, output_padding=(1, 1)
        ),
    ),
    "conv1d_transpose": (tensor(1, 4, 8), lambda x: nn.conv1d_transpose(x, const(4, 4, 3))),
    "padding below the window": (IMAGE, lambda x: nn.max_pool2d(x, 3, padding=2)),
    "ceil_mode of fixed sizes": (
        tensor("n", 4, 8, 8),
        lambda x: nn.max_pool2d(x, 3, strides=2, ceil_mode=True),
    ),
    "dynamic pool": (DYNAMIC_IMAGE, lambda x: nn.avg_pool2d(x, 2, count_include_pad=True)),
    "even windows": (IMAGE, lambda x: nn.adaptive_avg_pool2d(x, (2, 4))),
    "global pool of symbols": (DYNAMIC_IMAGE, lambda x: nn.adaptive_avg_pool2d(x, 1)),
    "reduction over all": (tensor(2, 3), op.sum),
    "dynamic reduction": (tensor("n", 3), lambda x: op.mean(x, 0)),
    "variance": (tensor(2, 3), lambda x: op.variance(x, 1)),
    "softmax of rank 2": (tensor(1, 4), lambda x: nn.softmax(x, 1)),
    "layer_norm": (
        tensor("n", 4, 4),
        lambda x: nn.layer_norm(x, const(4, 4), const(4, 4), [1, 2]),
    ),
    "rms_norm": (tensor("n", 4), lambda x: nn.rms_norm(x, const(4), [-1])),
    "batch_norm": (
        DYNAMIC_IMAGE,
        lambda x: relax.TupleGetItem(nn.batch_norm(x, *[const(4)] * 4, **BATCH_NORM), 0),
    ),
    "group_norm": (
        tensor("n", 4, 8, 8),
        lambda x: nn.group_norm(x, const(4), const(4), 2, 1, [2, 3]),
    ),
    "instance_norm": (
        DYNAMIC_IMAGE,
        lambda x: nn.instance_norm(x, const(4), const(4), 1, [2, 3]),
    ),
    "prelu": (IMAGE, lambda x: nn.prelu(x, const(4), 1)),
    "attention": (tensor("n", "m", "h", 8), lambda x: nn.attention(x, x, x)),
    "bfloat16 transposed convolution": (
        tensor(1, 4, 8, 8, dtype="bfloat16"),
        lambda x: nn.conv2d_transpose(x, const(4, 4, 3, 3, dtype="bfloat16")),
    ),
    "channels last": (
        tensor("n", "h", 8, 4),
        lambda x: nn.conv2d(x, const(3, 3, 4, 4), data_layout="NHWC", kernel_layout="HWIO"),
    ),
    "another layout of the result": (
        IMAGE,
        lambda x: nn.conv2d(x, const(4, 4, 3, 3), out_layout="NHWC"),
    ),
    "pool of channels last": (
        tensor("n", "h", 8, 4),
        lambda x: nn.max_pool2d(x, 3, strides=2, ceil_mode=True, layout="NHWC"),
    ),
    "uneven windows": (tensor("n", 4, 8, 8), lambda x: nn.adaptive_avg_pool2d(x, (3, 5))),
    "everything of a symbol": (DYNAMIC_IMAGE, lambda x: nn.adaptive_avg_pool2d(x, 1)),
    "ceil_mode and padding": (
        IMAGE,
        lambda x: nn.avg_pool2d(x, 3, strides=2, padding=1, ceil_mode=True, count_include_pad=True),
    ),
    "causal attention": (
        two((1, 4, 2, 8), (1, 5, 2, 8)),
        lambda x, y: nn.attention(x, y, y, causal_mask="BottomRight"),
    ),
    "causal attention of more queries": (
        two((1, 5, 2, 8), (1, 4, 2, 8)),
        lambda x, y: nn.attention(x, y, y, causal_mask="TopLeft"),
    ),
    "attention with a bias": (
        {"x": ((1, 4, 2, 8), "float32"), "b": ((1, 2, 4, 4), "float32")},
        lambda x, b: nn.attention_bias(x, x, x, b),
    ),
    "ceil_mode of a symbol": (
        DYNAMIC_IMAGE,
        lambda x: nn.max_pool2d(x, 3, strides=2, padding=1, ceil_mode=True),
    ),
    "softmax of rank 1": (tensor(4), lambda x: nn.softmax(x, 0)),
    "layer_norm of rank 1": (
        tensor(4),
        lambda x: nn.layer_norm(x, const(4), const(4), [0]),
    ),
    "layer_norm over a symbol": (
        {"x": ((2, "n"), "float32"), "g": (("n",), "float32")},
        lambda x, g: nn.layer_norm(x, g, g, [1]),
    ),
    "batch_norm of a symbol": (
        {"x": ((1, "n", 4), "float32"), "g": (("n",), "float32")},
        lambda x, g: nn.batch_norm(x, g, g, g, g, **BATCH_NORM),
    ),
    "group_norm, channels last": (
        tensor("n", "h", "w", 4),
        lambda x: nn.group_norm(x, const(4), const(4), 2, 3, [1, 2]),
    ),
    "prelu of a symbol": (
        {"x": ((1, "n"), "float32"), "a": (("n",), "float32")},
        lambda x, a: nn.prelu(x, a, 1),
    ),
    "resize": (
        tensor("n", 4, 8, 8),
        lambda x: op.image.resize2d(x, (4, 4), method="nearest_neighbor", rounding_method="floor"),
    ),
    "clip": (tensor("n", 4), lambda x: op.clip(x, 0, 6)),
    "clip of integers": (tensor(2, 4, dtype="int32"), lambda x: op.clip(x, 0, 6)),
    "two symbols that move": (tensor("n", "m", 3), lambda x: op.expand_dims(x, 0)),
    "two symbols and what is left": (
        tensor("n", "m", 3),
        lambda x: op.reshape(x, (x.ty.shape[1], x.ty.shape[0] * 3)),
    ),
    "two symbols raised": (two((2, "n", "m"), ("n", "m")), op.add),
    "two symbols stacked": (tensor("n", "m"), lambda x: op.stack([x, x], 0)),
    "slice of a symbol": (tensor("n", 4), lambda x: op.strided_slice(x, [0], [1], [-1], [2])),
    "slice inside": (
        tensor(2, 4),
        lambda x: op.strided_slice(x, [1], [0], [4], assume_inbound=True),
    ),
    "slice beside a symbol": (tensor("n", 4), lambda x: op.strided_slice(x, [1], [0], [2])),
    "split": (tensor("n", 4), lambda x: relax.TupleGetItem(op.split(x, [1, 3], 1), 0)),
    "joined without an axis": (tensor(4), lambda x: op.concat([x, x], None)),
    "joined symbols": (tensor("n", 4), lambda x: op.concat([x, x], 0)),
    "broadcast": (tensor(1, 4), lambda x: op.broadcast_to(x, (3, 4))),
    "broadcast beside a symbol": (
        tensor("n", 1, "m"),
        lambda x: op.broadcast_to(x, (2, x.ty.shape[0], x.ty.shape[2], x.ty.shape[2])),
    ),
    "tile of a symbol": (tensor("n", 4), lambda x: op.tile(x, (2, 1))),
    "repeat without an axis": (tensor(2, 4), lambda x: op.repeat(x, 2)),
    "flip of a symbol": (tensor("n", 4), lambda x: op.flip(x, 0)),
    "pad of a symbol": (tensor("n", 4), lambda x: nn.pad(x, (1, 1, 0, 0))),
    "pixel_shuffle of symbols": (DYNAMIC_IMAGE, lambda x: nn.pixel_shuffle(x, 2)),
    "cumsum without an axis": (tensor("n", 4), op.cumsum),
    "cumsum of bool": (tensor(2, 4, dtype="bool"), lambda x: op.cumsum(x, 1, "int64")),
    "tile beside a symbol": (tensor("n", 4), lambda x: op.tile(x, (1, 2))),
    "repeat": (tensor("n", 4), lambda x: op.repeat(x, 2, 1)),
    "flip": (tensor("n", 4), lambda x: op.flip(x, 1)),
    "pad": (tensor("n", 4), lambda x: nn.pad(x, (0, 0, 1, 1))),
    "reflected": (tensor(2, 4), lambda x: nn.pad(x, (0, 0, 0, 3), "reflect")),
    "circular": (tensor(2, 4), lambda x: nn.pad(x, (0, 0, 4, 0), "circular")),
    "layout of axes": (
        tensor("n", 4, 8),
        lambda x: op.layout_transform(x, lambda i, j, k: (i, k, j)),
    ),
    "pixel_shuffle": (tensor("n", 4, 8, 8), lambda x: nn.pixel_shuffle(x, 2)),
    "cumsum": (tensor("n", 4, dtype="int64"), lambda x: op.cumsum(x, 1)),
    "take": (
        {"x": ((4, 3), "float32"), "i": (("n",), "int64")},
        lambda x, i: op.take(x, i, 0),
    ),
    "indices that are clipped": (
        {"x": ((4, 3), "float32"), "i": ((2,), "int64")},
        lambda x, i: op.take(x, i, 0, mode="clip"),
    ),
    "indices that are wrapped along a symbol": (
        {"x": (("n", 3), "float32"), "i": ((2,), "int64")},
        lambda x, i: op.take(x, i, 0, mode="wrap"),
    ),
    "an index from the end": (tensor("n", 3), lambda x: op.take(x, ids(-1), 0, mode="wrap")),
    "constant indices": (tensor(4, 3), lambda x: op.take(x, ids(0, 3), 0, mode="clip")),
    "gather_elements": (
        {"x": ((4, 3), "float32"), "i": ((4, 1), "int32")},
        lambda x, i: op.gather_elements(x, i, 1),
    ),
    "gather_nd": (
        {"x": ((4, 3), "float32"), "i": ((5, 2), "int64")},
        op.gather_nd,
    ),
    "constant positions": (tensor(4, 3), lambda x: op.gather_nd(x, ids([[0, 2]]))),
    "where": (
        {"c": ((2, 1), "bool"), "x": ((2, 3), "int64")},
        lambda c, x: op.where(c, x, ids(0)),
    ),
    "isnan": (tensor(2, 3), op.isnan),
    "isfinite": (tensor(2, 3), op.isfinite),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tensorrt_has_not_is_refused_with_the_reason(make_module: Any, name: str) -> None:
    params, body, reason = REFUSED[name]
    mod = make_module(params, body)
    call = calls(mod)[-1]
    assert BACKEND.refusal is not None
    refusal = BACKEND.refusal(call)
    assert refusal is not None
    assert refusal.startswith(f"{call.op.name}: ")
    assert re.search(reason, refusal), refusal
    kept = set(offloaded(mod, UNGUARDED)) - set(offloaded(mod, BACKEND))
    if call.op.name == "relax.image.resize2d":  # upstream's own check refuses these as well
        assert not kept
    else:
        assert len(kept) == 1


def test_windows_that_begin_in_the_padding_take_fixed_sizes(make_module: Any) -> None:
    def pool(x: Any) -> Any:
        return nn.max_pool2d(x, 2, strides=2, padding=(0, 0, 0, 1), ceil_mode=True)

    (call,) = calls(make_module(DYNAMIC_IMAGE, pool))  # TVM's own passes fail on its size
    assert BACKEND.refusal is not None
    assert BACKEND.refusal(call) == (
        "relax.nn.max_pool2d: ceil_mode over hxw, in steps of [2, 2] with end padding [0, 1]; "
        "TensorRT rounds otherwise, which takes fixed sizes to make up for, or a window as large "
        "as both"
    )


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_next_to_it_is_taken(make_module: Any, name: str) -> None:
    mod = make_module(*ACCEPTED[name])
    assert BACKEND.refusal is not None
    assert [BACKEND.refusal(call) for call in calls(mod)] == [None] * len(calls(mod))
    assert len(offloaded(mod, BACKEND)) == len(calls(mod)) == 1


@given(
    source=st.lists(st.sampled_from(["n", "m", 2, 3]), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    ones=st.lists(st.integers(0, 3), max_size=2),
    joined=st.lists(st.integers(0, 3), max_size=2),
)
@settings(max_examples=100, deadline=None)
def test_reshapes_are_taken_where_at_most_one_size_is_not_of_the_operand(
    make_module: Any, source: list[int | str], order: Any, ones: list[int], joined: list[int]
) -> None:
    target: list[list[int | str]] = [[size] for size in order.sample(source, len(source))]
    for position in joined:
        target[position : position + 2] = [list(itertools.chain(*target[position : position + 2]))]
    target = [factors for factors in target if factors]
    for position in ones:
        target.insert(position, [1])

    def body(x: Any) -> Any:
        symbols = {str(dim): dim for dim in x.ty.shape if isinstance(dim, tvm.tirx.Var)}
        sizes = [[symbols.get(str(size), size) for size in factors] for factors in target]
        return op.reshape(x, [functools.reduce(operator.mul, factors) for factors in sizes])

    new = [
        factors
        for factors in target
        if any(isinstance(size, str) for size in factors)
        and not (len(factors) == 1 and factors[0] in source)
    ]
    call = calls(make_module(tensor(*source), body))[-1]
    assert BACKEND.refusal is not None
    assert (BACKEND.refusal(call) is None) == (len(new) <= 1)
