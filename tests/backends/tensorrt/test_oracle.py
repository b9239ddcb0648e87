"""The interpreter of networks: networks made by hand, against PyTorch's functions.

Each case builds a network by the vendor's API alone and says what PyTorch makes of the same inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from .oracle import KINDS, OracleError, attributes, interpret, read_weights, to_numpy, to_torch

trt = pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

Build = Callable[..., Any]
Reference = Callable[..., Any]


def random(*shape: int, low: float = -2, high: float = 2, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


X = random(2, 4, 5, 6)
Y = random(2, 4, 5, 6, seed=1)
INTS = np.random.default_rng(2).integers(-9, 9, (2, 3, 4)).astype(np.int32)
BOOLS = INTS > 0


class Network:
    """A network under construction, with constants in one call."""

    def __init__(self, builder: Any) -> None:
        self.raw = builder.create_network(0)
        self._kept: list[np.ndarray] = []  # the API reads them when asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)

    def const(self, values: Any, dtype: Any = np.float32) -> Any:
        array = np.array(values, dtype)
        self._kept.append(array)
        return self.raw.add_constant(array.shape, trt.Weights(array)).get_output(0)

    def inputs(self, arrays: Sequence[np.ndarray], dims: Sequence[Any]) -> dict[str, np.ndarray]:
        types = {"bfloat16": trt.bfloat16, "float16": trt.float16, "bool": trt.bool}
        for i, (array, shape) in enumerate(zip(arrays, dims, strict=True)):
            dtype = types.get(array.dtype.name) or getattr(trt, array.dtype.name)
            self.raw.add_input(f"x{i}", dtype, shape)
        return {f"x{i}": array for i, array in enumerate(arrays)}


@pytest.fixture(scope="module")
def builder() -> Any:
    return trt.Builder(trt.Logger(trt.Logger.ERROR))


def run(
    builder: Any, build: Build, *arrays: np.ndarray, dims: Sequence[Any] | None = None
) -> list[np.ndarray]:
    """The outputs of the layer, or of the tensors, that `build` makes of a network's inputs."""
    net = Network(builder)
    feeds = net.inputs(arrays, dims or [array.shape for array in arrays])
    made = build(net, *[net.get_input(i) for i in range(net.num_inputs)])
    if isinstance(made, trt.ILayer):
        made = [made.get_output(i) for i in range(made.num_outputs)]
    tensors = made if isinstance(made, (list, tuple)) else [made]
    for tensor in tensors:
        net.mark_output(tensor)
    found = interpret(trt, net.raw, feeds)
    return [found[tensor.name] for tensor in tensors]


def agree(found: np.ndarray, expected: Tensor, within: float = 2e-6) -> None:
    other = to_numpy(expected)
    assert (found.shape, found.dtype) == (other.shape, other.dtype)
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, other)
        return
    found, other = found.astype(np.float32), other.astype(np.float32)
    np.testing.assert_allclose(found, other, within, within * 8)


def assigned(made: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(made, name, value)
    return made


def activation(kind: str, alpha: float | None = None, beta: float | None = None) -> Build:
    def build(net: Network, x: Any) -> Any:
        made = net.add_activation(x, getattr(trt.ActivationType, kind))
        values = {"alpha": alpha, "beta": beta}
        return assigned(made, **{k: v for k, v in values.items() if v is not None})

    return build


ACTIVATIONS: dict[str, tuple[Build, Reference]] = {
    "RELU": (activation("RELU"), torch.relu),
    "SIGMOID": (activation("SIGMOID"), torch.sigmoid),
    "TANH": (activation("TANH"), torch.tanh),
    "LEAKY_RELU": (activation("LEAKY_RELU", 0.2), lambda x: functional.leaky_relu(x, 0.2)),
    "ELU": (activation("ELU", 0.7), lambda x: functional.elu(x, 0.7)),
    "SELU": (activation("SELU", 1.6732632423543772, 1.0507009873554805), functional.selu),
    "SOFTSIGN": (activation("SOFTSIGN"), functional.softsign),
    "SOFTPLUS": (activation("SOFTPLUS", 1 / 3, 3), lambda x: functional.softplus(x, 3, 100)),
    "CLIP": (activation("CLIP", -0.5, 1.25), lambda x: x.clamp(-0.5, 1.25)),
    "HARD_SIGMOID": (activation("HARD_SIGMOID", 1 / 6, 0.5), functional.hardsigmoid),
    "SCALED_TANH": (activation("SCALED_TANH", 1.5, 0.3), lambda x: 1.5 * torch.tanh(0.3 * x)),
    "THRESHOLDED_RELU": (
        activation("THRESHOLDED_RELU", 0.5),
        lambda x: functional.threshold(x, 0.5, 0),
    ),
    "GELU_ERF": (activation("GELU_ERF"), lambda x: x * torch.special.ndtr(x)),
    "GELU_TANH": (activation("GELU_TANH"), lambda x: functional.gelu(x, approximate="tanh")),
}


def test_every_activation_has_a_case() -> None:
    assert set(ACTIVATIONS) == set(trt.ActivationType.__members__)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(builder: Any, name: str) -> None:
    build, reference = ACTIVATIONS[name]
    agree(run(builder, build, X)[0], reference(torch.tensor(X)), 1e-6)


UNARY = {"RECIP": torch.reciprocal, "NOT": torch.logical_not}


@pytest.mark.parametrize("name", trt.UnaryOperation.__members__)
def test_unary_operations(builder: Any, name: str) -> None:
    x = {"ACOSH": X + 3.5, "LOG": X + 3, "SQRT": X + 3, "NOT": X > 0}.get(name, X)
    x = np.clip(x, -0.9, 0.9) if name in ("ASIN", "ACOS", "ATANH") else x
    if name in ("ISINF", "ISNAN"):
        x = np.where(x > 1, np.inf, np.where(x < -1, np.nan, x)).astype(np.float32)

    def build(net: Network, tensor: Any) -> Any:
        return net.add_unary(tensor, getattr(trt.UnaryOperation, name))

    reference = UNARY.get(name) or getattr(torch, name.lower())
    agree(run(builder, build, x)[0], reference(torch.tensor(x)))


BINARY: dict[str, Reference] = {
    "SUM": lambda a, b: a + b,
    "PROD": lambda a, b: a * b,
    "MAX": lambda a, b: torch.where(a > b, a, b),
    "MIN": lambda a, b: torch.where(a > b, b, a),
    "SUB": lambda a, b: a - b,
    "DIV": lambda a, b: a / b,
    "POW": lambda a, b: torch.exp(torch.log(a) * b),
    "FLOOR_DIV": lambda a, b: torch.floor(a / b),
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
    "EQUAL": lambda a, b: ~((a > b) | (b > a)),
    "GREATER": lambda a, b: b < a,
    "LESS": lambda a, b: b > a,
}


@pytest.mark.parametrize("name", trt.ElementWiseOperation.__members__)
def test_binary_operations_broadcast(builder: Any, name: str) -> None:
    a, b = random(2, 1, 5, low=0.1), random(1, 3, 5, low=0.1, seed=4)
    if name in ("AND", "OR", "XOR"):
        a, b = a > 1, b > 1
    if name == "EQUAL":
        b[..., 0] = a[0, 0, 0]

    def build(net: Network, x: Any, y: Any) -> Any:
        return net.add_elementwise(x, y, getattr(trt.ElementWiseOperation, name))

    agree(run(builder, build, a, b)[0], BINARY[name](torch.tensor(a), torch.tensor(b)), 1e-5)


def test_integer_division_is_towards_zero(builder: Any) -> None:
    def build(net: Network, x: Any) -> Any:
        three = net.const([[[3]]], np.int32)
        return net.add_elementwise(x, three, trt.ElementWiseOperation.DIV)

    expected = (torch.tensor(INTS) / 3).trunc().int()
    agree(run(builder, build, INTS)[0], expected)


W = random(6, 2, 3, 2, seed=5)
W3 = random(6, 4, 1, 3, 2, seed=6)
BIAS = random(6, seed=7)
VOLUME = random(2, 4, 3, 7, 6, seed=8)
DW = random(4, 3, 3, 2, seed=9)


def convolution(net: Network, x: Any) -> Any:
    made = net.add_convolution_nd(x, 6, (3, 2), W, BIAS)
    return assigned(
        made,
        stride_nd=(2, 1),
        pre_padding=(1, 0),
        post_padding=(2, 1),
        dilation_nd=(1, 2),
        num_groups=2,
    )


def convolution_of_inputs(net: Network, x: Any, kernel: Any) -> Any:
    made = net.add_convolution_nd(x, 6, (1, 3, 2), trt.Weights(), trt.Weights())
    made.set_input(1, kernel)
    return assigned(made, pre_padding=(0, 2, 1), post_padding=(1, 0, 0))


def deconvolution(net: Network, x: Any) -> Any:
    made = net.add_deconvolution_nd(x, 6, (3, 2), DW, trt.Weights())
    return assigned(made, stride_nd=(2, 3), pre_padding=(1, 0), post_padding=(0, 1), num_groups=2)


def pool(kind: str, **values: Any) -> Build:
    def build(net: Network, x: Any) -> Any:
        return assigned(net.add_pooling_nd(x, getattr(trt.PoolingType, kind), (3, 2)), **values)

    return build


def pad(x: Tensor, *widths: int, value: float = 0) -> Tensor:
    return functional.pad(x, widths, value=value)


def reduction(kind: str, axes: Sequence[int], keep: bool) -> Build:
    mask = sum(1 << axis for axis in axes)
    return lambda net, x: net.add_reduce(x, getattr(trt.ReduceOperation, kind), mask, keep)


def softmax(net: Network, x: Any) -> Any:
    return assigned(net.add_softmax(x), axes=1 << 2)


def normalization(axes: int, shape: tuple[int, ...], groups: int = 1) -> Build:
    gain, bias = random(*shape, seed=11), random(*shape, seed=12)

    def build(net: Network, x: Any) -> Any:
        made = net.add_normalization_v2(x, net.const(gain), net.const(bias), axes)
        made.num_groups = groups
        return assigned(made, epsilon=0.1)

    return build


def layer_norm(x: Tensor) -> Tensor:
    gain, bias = (torch.tensor(random(1, 1, 5, 6, seed=seed))[0, 0] for seed in (11, 12))
    return functional.layer_norm(x, (5, 6), gain, bias, 0.1)


def group_norm(x: Tensor) -> Tensor:
    gain, bias = (torch.tensor(random(1, 4, 1, 1, seed=seed)).reshape(4) for seed in (11, 12))
    return functional.group_norm(x, 2, gain, bias, 0.1)


def product(first: str, second: str) -> Build:
    modes = trt.MatrixOperation
    return lambda net, a, b: net.add_matrix_multiply(
        a, getattr(modes, first), b, getattr(modes, second)
    )


def quantized(net: Network, x: Any) -> Any:
    return assigned(net.add_quantize(x, net.const([0.01, 0.02, 0.03, 0.5]), trt.int8), axis=1)


def dequantized(net: Network, x: Any) -> Any:
    eighths = net.add_quantize(x, net.const(0.125), trt.int8).get_output(0)
    return net.add_dequantize(eighths, net.const(0.125), trt.float32)


SCALE = torch.tensor([0.01, 0.02, 0.03, 0.5]).reshape(1, 4, 1, 1)

COMPUTING: dict[str, tuple[Build, Reference, list[np.ndarray]]] = {
    "convolution": (
        convolution,
        lambda x: functional.conv2d(
            pad(x, 0, 1, 1, 2), torch.tensor(W), torch.tensor(BIAS), (2, 1), 0, (1, 2), 2
        ),
        [X],
    ),
    "convolution of an input's weights": (
        convolution_of_inputs,
        lambda x, w: functional.conv3d(pad(x, 1, 0, 2, 0, 0, 1), w),
        [VOLUME, W3],
    ),
    "deconvolution": (
        deconvolution,
        lambda x: functional.conv_transpose2d(x, torch.tensor(DW), None, (2, 3), 0, 0, 2)[
            :, :, 1:, :-1
        ],
        [X],
    ),
    "maximum": (
        pool("MAX", stride_nd=(1, 2), pre_padding=(2, 0), post_padding=(0, 1)),
        lambda x: functional.max_pool2d(pad(x, 0, 1, 2, 0, value=-99), (3, 2), (1, 2)),
        [X],
    ),
    "maximum, rounded up": (
        pool("MAX", stride_nd=(2, 3), padding_mode=trt.PaddingMode.EXPLICIT_ROUND_UP),
        lambda x: functional.max_pool2d(x, (3, 2), (2, 3), ceil_mode=True),
        [random(1, 2, 6, 7)],
    ),
    "average": (
        pool("AVERAGE", stride_nd=(2, 1), padding_nd=(1, 1)),
        lambda x: functional.avg_pool2d(x, (3, 2), (2, 1), 1, count_include_pad=False),
        [X],
    ),
    "average with padding": (
        pool("AVERAGE", padding_nd=(1, 1), average_count_excludes_padding=False),
        lambda x: functional.avg_pool2d(x, (3, 2), 1, 1),
        [X],
    ),
    "average, rounded up": (
        pool("AVERAGE", stride_nd=(2, 3), padding_mode=trt.PaddingMode.EXPLICIT_ROUND_UP),
        lambda x: functional.avg_pool2d(x, (3, 2), (2, 3), 0, True, False),
        [random(1, 2, 6, 7)],
    ),
    "sum": (reduction("SUM", (1, 3), False), lambda x: x.sum((1, 3)), [X]),
    "sum of integers": (reduction("SUM", (0,), True), lambda x: x.sum(0, True).int(), [INTS]),
    "mean": (reduction("AVG", (0, 2), True), lambda x: x.mean((0, 2), True), [X]),
    "greatest": (reduction("MAX", (2,), False), lambda x: x.max(2).values, [X]),
    "least": (reduction("MIN", (3,), True), lambda x: x.min(3, True).values, [X]),
    "product": (reduction("PROD", (1, 2), False), lambda x: x.prod(2).prod(1), [X]),
    "softmax": (softmax, lambda x: torch.softmax(x, 2), [X]),
    "layer norm": (normalization(0b1100, (1, 1, 5, 6)), layer_norm, [X]),
    "group norm": (normalization(0b1100, (1, 4, 1, 1), 2), group_norm, [X]),
    "matrices": (product("NONE", "NONE"), torch.matmul, [X, random(2, 1, 6, 3)]),
    "transposed": (
        product("TRANSPOSE", "TRANSPOSE"),
        lambda a, b: torch.einsum("bcki,bcjk->bcij", a, b),
        [X, random(1, 4, 3, 5)],
    ),
    "matrix and vector": (
        product("NONE", "VECTOR"),
        lambda a, b: (a * b[..., None, :]).sum(-1),
        [X, random(2, 4, 6)],
    ),
    "vector and matrix": (
        product("VECTOR", "NONE"),
        lambda a, b: (a[..., None] * b).sum(-2),
        [random(2, 4, 5), X],
    ),
    "vectors": (product("VECTOR", "VECTOR"), torch.dot, [X[0, 0, 0], Y[0, 0, 0]]),
    "einsum": (
        lambda net, a, b: net.add_einsum([a, b], "abcd,abed->abce"),
        lambda a, b: a @ b.mT,
        [X, Y],
    ),
    "quantize": (
        quantized,
        lambda x: (x / SCALE).round().clamp(-128, 127).to(torch.int8),
        [X],
    ),
    "quantize and back": (
        dequantized,
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.125, 0, -128, 127),
        [X],
    ),
    "cumulative sum": (
        lambda net, x: net.add_cumulative(
            x, net.const(1, np.int32), trt.CumulativeOperation.SUM, False, True
        ),
        lambda x: x.flip(1).cumsum(1).flip(1),
        [X],
    ),
    "exclusive cumulative sum": (
        lambda net, x: net.add_cumulative(
            x, net.const(2, np.int32), trt.CumulativeOperation.SUM, True, False
        ),
        lambda x: x.cumsum(2) - x,
        [X],
    ),
    "PReLU": (
        lambda net, x: net.add_parametric_relu(x, net.const(BIAS[:4].reshape(1, 4, 1, 1))),
        lambda x: functional.prelu(x, torch.tensor(BIAS[:4])),
        [X],
    ),
    "select": (
        lambda net, c, x: net.add_select(c, x, net.const([[[1], [2], [3]]], np.int32)),
        lambda c, x: x.where(c, torch.tensor([[[1], [2], [3]]], dtype=torch.int32)),
        [BOOLS[:, :, :1], INTS],
    ),
    "scale": (
        lambda net, x: net.add_scale_nd(
            x, trt.ScaleMode.CHANNEL, BIAS[:4], BIAS[2:], np.full(4, 2, np.float32), 1
        ),
        lambda x: (
            x * torch.tensor(BIAS[2:]).reshape(4, 1, 1) + torch.tensor(BIAS[:4]).reshape(4, 1, 1)
        ).square(),
        [X],
    ),
    "scale of one number": (
        lambda net, x: net.add_scale(
            x, trt.ScaleMode.UNIFORM, trt.Weights(), np.array([2.5], np.float32), trt.Weights()
        ),
        lambda x: 2.5 * x,
        [X],
    ),
    "cast": (lambda net, x: net.add_cast(x, trt.int32), lambda x: x.int(), [X]),
    "cast to bool": (lambda net, x: net.add_cast(x, trt.bool), lambda x: x != 0, [INTS]),
    "identity": (lambda net, x: net.add_identity(x), lambda x: x, [X]),
}


@pytest.mark.parametrize("name", COMPUTING)
def test_layers_that_compute(builder: Any, name: str) -> None:
    build, reference, arrays = COMPUTING[name]
    expected = reference(*[torch.tensor(array) for array in arrays])
    agree(run(builder, build, *arrays)[0], expected)


def shuffle(**values: Any) -> Build:
    return lambda net, x: assigned(net.add_shuffle(x), **values)


def slicing(
    start: Sequence[int], size: Sequence[int], stride: Sequence[int], mode: str, fill: Any = None
) -> Build:
    def build(net: Network, x: Any) -> Any:
        made = net.add_slice(x, start, size, stride)
        made.mode = getattr(trt.SampleMode, mode)
        if fill is not None:
            made.set_input(4, net.const(fill))
        return made

    return build


def sliced_at_run_time(net: Network, x: Any) -> Any:
    made = net.add_slice(x, (0, 0), (1, 1), (1, 1))
    for i, values in ((1, (1, 4)), (2, (2, 2)), (3, (1, -2)), (5, (1, 2))):
        made.set_input(i, net.const(values, np.int64))
    return made


def reshaped_at_run_time(net: Network, x: Any) -> Any:
    made = net.add_shuffle(x)
    made.set_input(1, net.const((-1, 6), np.int64))
    return made


def gather(mode: str, index: Any, axis: int = 0, batches: int = 0) -> Build:
    def build(net: Network, x: Any) -> Any:
        made = net.add_gather_v2(x, net.const(index, np.int32), getattr(trt.GatherMode, mode))
        return assigned(made, axis=axis, num_elementwise_dims=batches)

    return build


def linspace(net: Network, x: Any) -> Any:
    made = net.add_fill((1,), trt.FillOperation.LINSPACE, trt.int64)
    size = net.add_slice(net.add_shape(x).get_output(0), (2,), (1,), (1,)).get_output(0)
    made.set_input(0, size)
    made.set_input(1, net.const(3, np.int64))
    made.set_input(2, net.const([2], np.int64))
    return made


def resize(mode: str, transform: str, size: tuple[int, ...], **values: Any) -> Build:
    def build(net: Network, x: Any) -> Any:
        return assigned(
            net.add_resize(x),
            resize_mode=getattr(trt.InterpolationMode, mode),
            coordinate_transformation=getattr(trt.ResizeCoordinateTransformation, transform),
            shape=size,
            **values,
        )

    return build


def interpolate(mode: str, align: bool | None = None) -> Reference:
    return lambda x: functional.interpolate(x, (9, 4), mode=mode, align_corners=align)


INDEX = [[1, 0, 1], [1, 1, 0]]
POINTS = [[[0, 3], [1, 0]], [[1, 2], [0, 0]]]

MOVING: dict[str, tuple[Build, Reference]] = {
    "transpose": (shuffle(first_transpose=(2, 0, 3, 1)), lambda x: x.permute(2, 0, 3, 1)),
    "transpose, reshape, transpose": (
        shuffle(first_transpose=(1, 2, 3, 0), reshape_dims=(0, -1, 4), second_transpose=(1, 0, 2)),
        lambda x: x.permute(1, 2, 3, 0).reshape(4, 15, 4).transpose(0, 1),
    ),
    "reshape by a tensor": (reshaped_at_run_time, lambda x: x.reshape(-1, 6)),
    "squeeze": (
        lambda net, x: net.add_squeeze(
            net.add_unsqueeze(x, net.const([0, 3], np.int32)).get_output(0),
            net.const([0], np.int32),
        ),
        lambda x: x.unsqueeze(2),
    ),
    "slice": (
        slicing((0, 3, 1, 0), (2, 3, 2, 6), (1, -1, 2, 1), "STRICT_BOUNDS"),
        lambda x: x[:, 1:].flip(1)[:, :, 1:4:2],
    ),
    "slice by tensors": (sliced_at_run_time, lambda x: x[:, 1:3, [4, 2]]),
    "slice with a fill": (
        slicing((0, 0, -2, -1), (2, 4, 8, 9), (1, 1, 1, 1), "FILL", 7.5),
        lambda x: pad(x, 1, 2, 2, 1, value=7.5),
    ),
    "slice with zeros": (
        slicing((0, 0, 0, 0), (2, 4, 5, 8), (1, 1, 1, 1), "FILL"),
        lambda x: pad(x, 0, 2),
    ),
    "slice, clamped": (
        slicing((0, 0, -2, -1), (2, 4, 8, 9), (1, 1, 1, 1), "CLAMP"),
        lambda x: functional.pad(x, (1, 2, 2, 1), "replicate"),
    ),
    "slice, reflected": (
        slicing((0, 0, -2, -4), (2, 4, 9, 12), (1, 1, 1, 1), "REFLECT"),
        lambda x: functional.pad(x, (4, 2, 2, 2), "reflect"),
    ),
    "slice, wrapped": (
        slicing((0, 0, -2, -4), (2, 4, 9, 12), (1, 1, 1, 1), "WRAP"),
        lambda x: functional.pad(x, (4, 2, 2, 2), "circular"),
    ),
    "slice that stays": (
        slicing((0, 2, 0, 0), (2, 3, 5, 6), (1, 0, 1, 1), "STRICT_BOUNDS"),
        lambda x: x[:, 2:3].expand(2, 3, 5, 6),
    ),
    "concatenation": (
        lambda net, x: assigned(net.add_concatenation([x, net.const(Y[:, :1])]), axis=1),
        lambda x: torch.cat([x, torch.tensor(Y[:, :1])], 1),
    ),
    "gather": (gather("DEFAULT", INDEX, 2), lambda x: x[:, :, torch.tensor(INDEX)]),
    "gather in batches": (
        gather("DEFAULT", INDEX, 2, 1),
        lambda x: torch.stack([x[0][:, INDEX[0]], x[1][:, INDEX[1]]]),
    ),
    "gather outside": (
        gather("DEFAULT", [0, 5, -1], 2),
        lambda x: pad(x[:, :, :1], 0, 0, 0, 2),
    ),
    "elements": (
        gather("ELEMENT", np.tile([[[[2]], [[0]], [[4]], [[1]]]], (2, 1, 1, 6)), 2),
        lambda x: x[:, torch.arange(4), [2, 0, 4, 1]].unsqueeze(2),
    ),
    "positions": (gather("ND", POINTS), lambda x: x[[[0, 1], [1, 0]], [[3, 0], [2, 0]]]),
    "positions in batches": (
        gather("ND", POINTS, 0, 1),
        lambda x: torch.stack([x[0][[0, 1], [3, 0]], x[1][[1, 0], [2, 0]]]),
    ),
    "shape": (lambda net, x: net.add_shape(x), lambda x: torch.tensor(x.shape)),
    "linspace": (linspace, lambda _: torch.tensor([3, 5, 7, 9, 11])),
    "padding": (
        lambda net, x: net.add_padding_nd(x, (1, 0), (0, 2)),
        lambda x: pad(x, 0, 2, 1, 0),
    ),
    "one hot": (
        lambda net, _: net.add_one_hot(
            net.const(INDEX, np.int32), net.const([-1, 4]), net.const(3, np.int32), 1
        ),
        lambda _: functional.one_hot(torch.tensor(INDEX), 3).movedim(-1, 1) * 5.0 - 1,
    ),
    "non zero": (
        lambda net, x: net.add_cast(
            net.add_non_zero(net.add_cast(x, trt.bool).get_output(0)).get_output(0), trt.int64
        ),
        lambda x: torch.stack(torch.where(x != 0)),
    ),
    "nearest": (
        resize("NEAREST", "ASYMMETRIC", (2, 4, 9, 4), nearest_rounding=trt.ResizeRoundMode.FLOOR),
        interpolate("nearest"),
    ),
    "nearest, half pixels": (
        resize(
            "NEAREST", "HALF_PIXEL", (2, 4, 9, 4), nearest_rounding=trt.ResizeRoundMode.HALF_DOWN
        ),
        interpolate("nearest-exact"),
    ),
    "linear": (resize("LINEAR", "HALF_PIXEL", (2, 4, 9, 4)), interpolate("bilinear", False)),
    "linear, corners": (
        resize("LINEAR", "ALIGN_CORNERS", (2, 4, 9, 4)),
        interpolate("bilinear", True),
    ),
    "cubic": (resize("CUBIC", "HALF_PIXEL", (2, 4, 9, 4)), interpolate("bicubic", False)),
    "cubic, corners": (
        resize("CUBIC", "ALIGN_CORNERS", (2, 4, 9, 4), cubic_coeff=-0.75),
        interpolate("bicubic", True),
    ),
}


@pytest.mark.parametrize("name", MOVING)
def test_layers_that_move(builder: Any, name: str) -> None:
    build, reference = MOVING[name]
    agree(run(builder, build, X)[0], reference(torch.tensor(X)), 1e-5)


def test_resize_by_scales(builder: Any) -> None:
    def build(net: Network, x: Any) -> Any:
        return assigned(
            net.add_resize(x),
            scales=[1, 1, 2, 0.5],
            resize_mode=trt.InterpolationMode.LINEAR,
            coordinate_transformation=trt.ResizeCoordinateTransformation.HALF_PIXEL,
        )

    expected = functional.interpolate(torch.tensor(X), scale_factor=(2, 0.5), mode="bilinear")
    agree(run(builder, build, X)[0], expected)


def test_resize_against_pillow_s_coefficient(builder: Any) -> None:
    """PyTorch has it, and what it excludes, where it is antialiased."""
    build = resize("CUBIC", "HALF_PIXEL", (2, 4, 10, 12), cubic_coeff=-0.5, exclude_outside=True)
    x = torch.tensor(X)
    expected = functional.interpolate(x, (10, 12), mode="bicubic", antialias=True)
    agree(run(builder, build, X)[0], expected, 1e-5)


def test_the_greatest_and_where_they_are(builder: Any) -> None:
    def build(net: Network, x: Any) -> Any:
        return net.add_topk(x, trt.TopKOperation.MIN, 2, 1 << 3)

    values, indices = run(builder, build, X)
    expected = torch.tensor(X).topk(2, 3, largest=False)
    agree(values, expected.values)
    agree(indices, expected.indices.int())


def test_a_dynamic_size(builder: Any) -> None:
    def build(net: Network, x: Any) -> Any:
        rows = assigned(net.add_shuffle(x), reshape_dims=(0, -1)).get_output(0)
        return assigned(net.add_softmax(rows), axes=1 << 1)

    for batch in (1, 3):
        x = random(batch, 4, 5)
        found = run(builder, build, x, dims=[(-1, 4, 5)])[0]
        agree(found, torch.softmax(torch.tensor(x).flatten(1), 1))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_rounded_where_a_layer_ends(builder: Any, dtype: Any) -> None:
    x = X.astype(dtype)

    def build(net: Network, x: Any) -> Any:
        squares = net.add_elementwise(x, x, trt.ElementWiseOperation.PROD).get_output(0)
        return net.add_elementwise(squares, x, trt.ElementWiseOperation.SUM)

    (found,) = run(builder, build, x)
    one = to_torch(x)
    agree(found, one * one + one, 0)


def test_constants_of_bfloat16_are_read(builder: Any) -> None:
    array = random(7).astype(ml_dtypes.bfloat16)
    net = builder.create_network(0)
    net.add_constant((7,), trt.Weights(trt.bfloat16, array.ctypes.data, array.size))
    raw = net.get_layer(0)
    raw.__class__ = trt.IConstantLayer
    np.testing.assert_array_equal(to_numpy(read_weights(raw.weights)), array)


@pytest.mark.parametrize("kind", KINDS)
def test_no_attribute_goes_unread(kind: str) -> None:
    assert attributes(trt, getattr(trt, KINDS[kind].cls)) == KINDS[kind].reads
    assert kind in trt.LayerType.__members__


def test_layers_in_any_order(builder: Any) -> None:
    def build(net: Network, x: Any) -> Any:
        first = net.add_activation(x, trt.ActivationType.RELU)
        late = net.add_activation(x, trt.ActivationType.TANH)
        first.set_input(0, late.get_output(0))
        return first

    agree(run(builder, build, X)[0], torch.tanh(torch.tensor(X)).relu())


REFUSED: dict[str, tuple[Build, str]] = {
    "a layer type": (
        lambda net, x: net.add_lrn(x, 3, 0.1, 0.7, 1),
        "no function for the layer type LRN",
    ),
    "random numbers": (
        lambda net, _: net.add_fill((3,), trt.FillOperation.RANDOM_UNIFORM, trt.float32),
        "operation is RANDOM_UNIFORM",
    ),
    "same padding": (
        pool("MAX", padding_mode=trt.PaddingMode.SAME_UPPER),
        "padding_mode is SAME_UPPER",
    ),
    "an average beyond the padding": (
        pool(
            "AVERAGE",
            stride_nd=(3, 3),
            average_count_excludes_padding=False,
            padding_mode=trt.PaddingMode.EXPLICIT_ROUND_UP,
        ),
        "beyond the padding",
    ),
    "a mixture of pools": (pool("MAX_AVERAGE_BLEND"), "MAX_AVERAGE_BLEND"),
    "a slice outside": (
        slicing((0, 0, 0, 0), (2, 5, 5, 6), (1, 1, 1, 1), "STRICT_BOUNDS"),
        "along an axis of 4",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_implemented_is_refused(builder: Any, name: str) -> None:
    build, reason = REFUSED[name]
    with pytest.raises(OracleError, match=reason):
        run(builder, build, X)


def test_an_unknown_attribute_is_refused(builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trt.IActivationLayer, "gamma", 1, raising=False)
    with pytest.raises(OracleError, match=r"attributes that nobody reads: \['gamma'\]"):
        run(builder, activation("RELU"), X)


def test_inputs_are_checked(builder: Any) -> None:
    with pytest.raises(OracleError, match=r"TensorRT says torch.float32\[2, 4\], found"):
        run(builder, activation("RELU"), X, dims=[(2, 4)])
    net = Network(builder)
    net.inputs([X], [X.shape])
    with pytest.raises(OracleError, match=r"inputs are \['x0'\], given \['y'\]"):
        interpret(trt, net.raw, {"y": X})
    with pytest.raises(OracleError, match=r"found torch.float16"):
        interpret(trt, net.raw, {"x0": X.astype(np.float16)})


def test_integers_do_not_become_floats_by_the_way(builder: Any) -> None:
    """The mean of integers is one that PyTorch refuses, and TensorRT computes somehow."""
    with pytest.raises((OracleError, RuntimeError)):
        run(builder, reduction("AVG", (0,), True), INTS)


def test_pi_is_not_reached_by_rounding() -> None:
    array = np.array([math.pi, -math.inf], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(to_numpy(to_torch(array)), array)
