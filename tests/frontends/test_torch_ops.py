"""The sweep: small PyTorch functions and modules, through TVM against PyTorch.

The inputs have zeros, ties, both signs and sizes that do not divide evenly, since that is where
converters go wrong. To be quick, cases of a topic are imported and built together, a dozen at a
time; where that fails, each is done alone, so that the failing one is the one that is named.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - what everybody calls it
from torch.utils._pytree import tree_leaves

import tvm_byoc_kit as byoc
from tvm_byoc_kit.comparison import TOLERANCES
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.torch.arrays import to_array

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True)
class Case:
    """One function or module with the inputs it is traced with and run on."""

    make: Callable[[], Callable[..., Any]]
    inputs: tuple[torch.Tensor, ...] = field(repr=False)


class Wrapped(nn.Module):
    """A function as a module, which is what torch.export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Multiples of 1/4 from -3 to 3, so with zeros and ties, in a fixed irregular order."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    values = (torch.arange(count) * 7919 + 3) % 25 - 12
    return (values.to(torch.float64) / 4).reshape(shape).to(dtype)


def distinct(*shape: int) -> torch.Tensor:
    """Floats that all differ: sorting and argmax have one answer."""
    count = int(torch.tensor(shape).prod())
    generator = torch.Generator().manual_seed(5)
    return (torch.randperm(count, generator=generator).float() - count / 2).reshape(shape) / 3


def integers(
    *shape: int, low: int = -5, high: int = 6, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(low, high, shape, generator=generator, dtype=dtype)


def booleans(*shape: int) -> torch.Tensor:
    return integers(*shape, low=0, high=2).bool()


X = floats(2, 3, 5)
IMAGE = floats(1, 4, 7, 9)
SIGNAL = floats(1, 4, 11)
VOLUME = floats(1, 2, 5, 6, 7)


def function(f: Callable[..., Any], *inputs: torch.Tensor) -> Case:
    return Case(lambda: Wrapped(f), inputs)


def module(make: Callable[[], nn.Module], *inputs: torch.Tensor) -> Case:
    return Case(make, inputs)


def _unary() -> dict[str, Case]:
    names = [
        "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf",
        "erfc", "exp", "exp2", "expm1", "floor", "frac", "isfinite", "isinf", "isnan", "log",
        "log10", "log1p", "log2", "logical_not", "neg", "reciprocal", "round", "rsqrt", "sigmoid",
        "sign", "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
        "nan_to_num", "deg2rad", "logit", "positive",
    ]  # fmt: skip
    # Beyond the domain of some: NaN and infinities have to agree as well.
    values = torch.cat([floats(25), torch.tensor([100.0, -100.0, float("inf"), -float("inf")])])
    cases = {name: function(getattr(torch, name), values) for name in names}
    for name in ("acos", "asin", "atanh", "tan"):
        cases[name] = function(getattr(torch, name), values / 4)
    for name in ("sin", "cos", "sinh", "cosh", "sinc", "exp2"):
        cases[name] = function(getattr(torch, name), floats(25))
    for name in ("log", "sqrt", "exp", "neg", "abs", "sign", "sigmoid", "square", "logical_not"):
        cases[f"{name} of int64"] = function(getattr(torch, name), integers(9))
    cases["bitwise_not"] = function(torch.bitwise_not, integers(9, dtype=torch.int32))
    cases["bitwise_not of bool"] = function(torch.bitwise_not, booleans(9))
    cases["round of halves"] = function(torch.round, torch.arange(-9, 10) / 2)
    cases["round to decimals"] = function(lambda x: torch.round(x, decimals=1), floats(25) / 3)
    cases["expm1 near zero"] = function(torch.expm1, floats(25) * 1e-6)
    cases["log1p near zero"] = function(torch.log1p, floats(25) * 1e-6)
    return cases


def _activations() -> dict[str, Case]:
    wide = floats(5, 5) * 10
    modules: dict[str, Callable[[], nn.Module]] = {
        "celu": lambda: nn.CELU(alpha=0.7),
        "elu": lambda: nn.ELU(alpha=1.3),
        "gelu": nn.GELU,
        "gelu tanh": lambda: nn.GELU(approximate="tanh"),
        "glu": lambda: nn.GLU(dim=-1),
        "hardshrink": lambda: nn.Hardshrink(0.6),
        "hardsigmoid": nn.Hardsigmoid,
        "hardswish": nn.Hardswish,
        "hardtanh": lambda: nn.Hardtanh(-0.4, 1.2),
        "leaky_relu": lambda: nn.LeakyReLU(0.2),
        "logsigmoid": nn.LogSigmoid,
        "mish": nn.Mish,
        "prelu": lambda: nn.PReLU(3),
        "relu6": nn.ReLU6,
        "selu": nn.SELU,
        "silu": nn.SiLU,
        "softplus": lambda: nn.Softplus(beta=2, threshold=3),
        "softshrink": lambda: nn.Softshrink(0.6),
        "softsign": nn.Softsign,
        "tanhshrink": nn.Tanhshrink,
        "threshold": lambda: nn.Threshold(0.5, -2.0),
    }
    inputs = {"glu": floats(3, 6), "prelu": X}
    cases = {name: module(make, inputs.get(name, wide)) for name, make in modules.items()}
    cases["softmax"] = function(lambda x: F.softmax(x, 1), X)
    cases["softmax to a dtype"] = function(lambda x: F.softmax(x, -1, torch.float64), X)
    cases["log_softmax"] = function(lambda x: F.log_softmax(x, -2), X)
    cases["softmin"] = function(lambda x: F.softmin(x, 0), X)
    cases["relu of int32"] = function(F.relu, integers(9, dtype=torch.int32))
    cases["clamp"] = function(lambda x: x.clamp(-1, 0.5), X)
    cases["clamp of int64"] = function(lambda x: x.clamp(-2, 3), integers(9))
    cases["clamp of int64 by float"] = function(lambda x: x.clamp(-1.5, 2.5), integers(9))
    cases["clamp by tensors"] = function(
        lambda x, y: torch.clamp(x, min=-y.abs(), max=y.abs()), X, floats(5)
    )
    cases["clamp by min alone"] = function(lambda x: x.clamp(min=0.5), X)
    cases["clamp_max"] = function(lambda x: torch.clamp_max(x, 0.5), X)
    return cases


def _pools() -> dict[str, Case]:
    modules: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
        "max_pool1d": (lambda: nn.MaxPool1d(3, 2, padding=1), SIGNAL),
        "max_pool2d": (lambda: nn.MaxPool2d((3, 2), (2, 3), padding=(1, 0)), IMAGE),
        "max_pool2d ceil": (lambda: nn.MaxPool2d(3, 2, ceil_mode=True), IMAGE),
        "max_pool2d ceil padded": (lambda: nn.MaxPool2d(2, 3, 1, ceil_mode=True), IMAGE),
        "max_pool2d dilated": (lambda: nn.MaxPool2d(3, 1, dilation=2), IMAGE),
        "max_pool2d unbatched": (lambda: nn.MaxPool2d(2), IMAGE[0]),
        "max_pool3d": (lambda: nn.MaxPool3d(2, ceil_mode=True), VOLUME),
        "avg_pool1d": (lambda: nn.AvgPool1d(3, 2, padding=1), SIGNAL),
        "avg_pool1d ceil": (lambda: nn.AvgPool1d(4, 3, 1, ceil_mode=True), SIGNAL),
        "avg_pool2d": (lambda: nn.AvgPool2d(3, 2, padding=1), IMAGE),
        "avg_pool2d without pads": (
            lambda: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False),
            IMAGE,
        ),
        "avg_pool2d ceil": (lambda: nn.AvgPool2d(2, 2, ceil_mode=True), IMAGE),
        "avg_pool2d ceil padded": (lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True), IMAGE[:, :, :6]),
        "avg_pool2d ceil without pads": (
            lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False),
            IMAGE,
        ),
        "avg_pool2d by a divisor": (lambda: nn.AvgPool2d(2, divisor_override=3), IMAGE),
        "avg_pool3d": (lambda: nn.AvgPool3d(2, padding=1), VOLUME),
        "lp_pool2d": (lambda: nn.LPPool2d(2, 2), IMAGE.abs()),
        "adaptive_avg_pool1d": (lambda: nn.AdaptiveAvgPool1d(4), SIGNAL),
        "adaptive_avg_pool2d": (lambda: nn.AdaptiveAvgPool2d((3, 4)), IMAGE),
        "adaptive_avg_pool2d to one": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
        "adaptive_avg_pool2d keeping one": (lambda: nn.AdaptiveAvgPool2d((None, 3)), IMAGE),
        "adaptive_avg_pool3d": (lambda: nn.AdaptiveAvgPool3d((2, 3, 4)), VOLUME),
        "adaptive_max_pool1d": (lambda: nn.AdaptiveMaxPool1d(4), SIGNAL),
        "adaptive_max_pool2d": (lambda: nn.AdaptiveMaxPool2d((3, 4)), IMAGE),
        "max_pool2d indices": (
            lambda: nn.MaxPool2d(2, return_indices=True),
            distinct(1, 2, 6, 6),
        ),
    }
    return {name: module(make, x) for name, (make, x) in modules.items()}


def _convolutions() -> dict[str, Case]:
    modules: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
        "conv1d": (lambda: nn.Conv1d(4, 6, 3, padding=2, dilation=2), SIGNAL),
        "conv1d unbatched": (lambda: nn.Conv1d(4, 6, 3), SIGNAL[0]),
        "conv1d same": (lambda: nn.Conv1d(4, 6, 4, padding="same"), SIGNAL),
        "conv1d circular": (
            lambda: nn.Conv1d(4, 6, 3, padding=2, padding_mode="circular"),
            SIGNAL,
        ),
        "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0)), IMAGE),
        "conv2d no bias": (lambda: nn.Conv2d(4, 6, 3, bias=False), IMAGE),
        "conv2d grouped": (lambda: nn.Conv2d(4, 6, 3, groups=2), IMAGE),
        "conv2d depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4, padding=1), IMAGE),
        "conv2d dilated": (lambda: nn.Conv2d(4, 6, 3, dilation=(2, 3)), IMAGE),
        "conv2d same": (lambda: nn.Conv2d(4, 6, (4, 3), padding="same"), IMAGE),
        "conv2d reflect": (lambda: nn.Conv2d(4, 6, 3, padding=2, padding_mode="reflect"), IMAGE),
        "conv2d replicate": (
            lambda: nn.Conv2d(4, 6, 3, padding=2, padding_mode="replicate"),
            IMAGE,
        ),
        "conv3d": (lambda: nn.Conv3d(2, 4, 2, stride=2, padding=1), VOLUME),
        "conv_transpose1d": (
            lambda: nn.ConvTranspose1d(4, 6, 4, stride=3, padding=1, output_padding=2),
            SIGNAL,
        ),
        "conv_transpose1d dilated": (lambda: nn.ConvTranspose1d(4, 6, 3, dilation=2), SIGNAL),
        "conv_transpose1d grouped": (lambda: nn.ConvTranspose1d(4, 6, 3, groups=2), SIGNAL),
        "conv_transpose2d": (
            lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
            IMAGE,
        ),
        "conv_transpose2d grouped": (
            lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2),
            IMAGE,
        ),
        "conv_transpose2d dilated": (lambda: nn.ConvTranspose2d(4, 6, 3, dilation=2), IMAGE),
        "conv_transpose2d depthwise": (lambda: nn.ConvTranspose2d(4, 4, 3, groups=4), IMAGE),
        "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 4, 3, stride=2), VOLUME),
        "linear": (lambda: nn.Linear(5, 4), X),
        "linear no bias": (lambda: nn.Linear(5, 4, bias=False), floats(5)),
        "bilinear": (lambda: Two(nn.Bilinear(5, 5, 3)), floats(2, 5)),
        "unfold": (lambda: nn.Unfold(3, padding=1, stride=2), IMAGE),
        "fold": (lambda: nn.Fold((4, 5), 2), floats(1, 8, 12)),
        "pixel_shuffle": (lambda: nn.PixelShuffle(2), IMAGE),
        "pixel_unshuffle": (lambda: nn.PixelUnshuffle(2), floats(1, 2, 4, 6)),
        "channel_shuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    }
    return {name: module(make, x) for name, (make, x) in modules.items()}


class Two(nn.Module):
    """A module of two inputs, given the same one twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x + 1)


def _trained(norm: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """`norm` with weights and statistics that are not the initial ones and zeros."""
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.add_(floats(*parameter.shape) / 4)
        norm.train()
        norm(floats(*shape) + 0.5)
    return norm.eval()


def _norms() -> dict[str, Case]:
    modules: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
        "batch_norm1d": (lambda: _trained(nn.BatchNorm1d(4), (3, 4, 11)), SIGNAL),
        "batch_norm1d of rank 2": (lambda: _trained(nn.BatchNorm1d(4), (9, 4)), floats(3, 4)),
        "batch_norm2d": (lambda: _trained(nn.BatchNorm2d(4, eps=1e-3), (2, 4, 3, 3)), IMAGE),
        "batch_norm2d not affine": (lambda: nn.BatchNorm2d(4, affine=False), IMAGE),
        "batch_norm2d of the batch": (
            lambda: nn.BatchNorm2d(4, track_running_stats=False),
            floats(3, 4, 5, 5),
        ),
        "batch_norm3d": (lambda: _trained(nn.BatchNorm3d(2), (2, 2, 3, 3, 3)), VOLUME),
        "instance_norm1d": (lambda: nn.InstanceNorm1d(4, affine=True), SIGNAL),
        "instance_norm2d": (lambda: nn.InstanceNorm2d(4), floats(2, 4, 7, 9)),
        "instance_norm2d tracked": (
            lambda: _trained(nn.InstanceNorm2d(4, track_running_stats=True), (2, 4, 3, 3)),
            IMAGE,
        ),
        "group_norm": (lambda: _trained(nn.GroupNorm(2, 4, eps=1e-3), (2, 4, 3, 3)), IMAGE),
        "group_norm not affine": (lambda: nn.GroupNorm(2, 4, affine=False), SIGNAL),
        "layer_norm": (lambda: _trained(nn.LayerNorm(5, eps=1e-3), (2, 5)), X),
        "layer_norm of two axes": (lambda: _trained(nn.LayerNorm((3, 5)), (2, 3, 5)), X),
        "layer_norm not affine": (lambda: nn.LayerNorm(5, elementwise_affine=False), X),
        "layer_norm no bias": (lambda: _trained(nn.LayerNorm(5, bias=False), (2, 5)), X),
        "rms_norm": (lambda: _trained(nn.RMSNorm(5, eps=1e-3), (2, 5)), X),
        "local_response_norm": (lambda: nn.LocalResponseNorm(3, alpha=0.1), IMAGE),
    }
    cases = {name: module(make, x) for name, (make, x) in modules.items()}
    cases["normalize"] = function(lambda x: F.normalize(x, dim=1), X)
    cases["cosine_similarity"] = function(
        lambda x, y: F.cosine_similarity(x, y, dim=-1), X, X.flip(-1)
    )
    return cases


def _attention() -> dict[str, Case]:
    q, k, v = floats(2, 3, 5, 4), floats(2, 3, 6, 4) / 2, floats(2, 3, 6, 4) + 1
    attend = F.scaled_dot_product_attention
    mask = torch.ones(5, 6, dtype=torch.bool).tril(1)
    layer = lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)  # noqa: E731
    return {
        "attention": function(attend, q, k, v),
        "attention causal": function(
            lambda q, k, v: attend(q, k[:, :, :5], v[:, :, :5], is_causal=True), q, k, v
        ),
        "attention causal, uneven": function(
            lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v
        ),
        "attention bool mask": function(attend, q, k, v, mask),
        "attention float mask": function(attend, q, k, v, floats(2, 1, 5, 6)),
        "attention scaled": function(lambda q, k, v: attend(q, k, v, scale=0.3), q, k, v),
        "attention of rank 3": function(lambda q, k, v: attend(q[0], k[0], v[0]), q, k, v),
        "attention grouped": function(
            lambda q, k, v: attend(q, k[:, :1], v[:, :1], enable_gqa=True), q, k, v
        ),
        "multi-head attention": module(lambda: SelfAttention(8, 2), floats(2, 5, 8)),
        "multi-head attention, weights": module(
            lambda: SelfAttention(8, 2, weights=True), floats(2, 5, 8)
        ),
        "transformer layer": module(layer, floats(2, 5, 8)),
        "transformer layer in training mode": module(lambda: layer().train(), floats(2, 5, 8)),
    }


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself."""

    def __init__(self, size: int, heads: int, *, weights: bool = False) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.weights = weights

    def forward(self, x: torch.Tensor) -> Any:
        out, weights = self.attention(x, x, x, need_weights=self.weights)
        return (out, weights) if self.weights else out


def _resizing() -> dict[str, Case]:
    def resize(**how: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda x: F.interpolate(x, **how)

    ways: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {
        "nearest": (IMAGE, {"scale_factor": 2}),
        "nearest uneven": (IMAGE, {"size": (10, 13)}),
        "nearest down": (IMAGE, {"size": (4, 5)}),
        "nearest-exact": (IMAGE, {"size": (10, 13), "mode": "nearest-exact"}),
        "bilinear": (IMAGE, {"scale_factor": 2, "mode": "bilinear"}),
        "bilinear uneven": (IMAGE, {"size": (10, 4), "mode": "bilinear"}),
        "bilinear corners": (
            IMAGE,
            {"size": (10, 13), "mode": "bilinear", "align_corners": True},
        ),
        "bilinear by a fraction": (IMAGE, {"scale_factor": 1.7, "mode": "bilinear"}),
        "bilinear antialias": (IMAGE, {"size": (3, 4), "mode": "bilinear", "antialias": True}),
        "bicubic": (IMAGE, {"scale_factor": 2, "mode": "bicubic"}),
        "bicubic corners": (IMAGE, {"size": (9, 5), "mode": "bicubic", "align_corners": True}),
        "area": (IMAGE, {"size": (3, 4), "mode": "area"}),
        "nearest 1d": (SIGNAL, {"size": 17}),
        "linear 1d": (SIGNAL, {"size": 17, "mode": "linear"}),
        "nearest 3d": (VOLUME, {"scale_factor": 2}),
        "trilinear": (VOLUME, {"size": (4, 7, 9), "mode": "trilinear"}),
    }
    cases = {f"interpolate {name}": function(resize(**how), x) for name, (x, how) in ways.items()}
    pads = {
        "constant": {"pad": (1, 2, 0, 3), "value": 1.5},
        "negative": {"pad": (-1, 2, 1, -2)},
        "reflect": {"pad": (2, 1, 1, 2), "mode": "reflect"},
        "replicate": {"pad": (2, 1, 1, 2), "mode": "replicate"},
        "circular": {"pad": (2, 1, 1, 2), "mode": "circular"},
    }
    for name, pad in pads.items():
        cases[f"pad {name}"] = function(lambda x, pad=pad: F.pad(x, **pad), IMAGE)
    grid = floats(1, 3, 4, 2) / 2
    for mode in ("bilinear", "nearest", "bicubic"):
        for padding in ("zeros", "border", "reflection"):
            if (mode, padding) == ("bicubic", "reflection"):
                continue  # right, but LLVM takes five seconds for it
            cases[f"grid_sample {mode} {padding}"] = function(
                lambda x, g, m=mode, p=padding: F.grid_sample(x, g, m, p, align_corners=False),
                IMAGE,
                grid * 1.01,
            )
    cases["grid_sample corners"] = function(
        lambda x, g: F.grid_sample(x, g, align_corners=True), IMAGE, grid
    )
    for corners in (False, True):
        cases[f"affine_grid {'corners' if corners else 'centres'}"] = function(
            lambda t, c=corners: F.affine_grid(t, [1, 1, 3, 4], align_corners=c), floats(1, 2, 3)
        )
    return cases


def _reductions() -> dict[str, Case]:
    y = floats(3, 4, 5) + 0.25
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "sum": torch.sum,
        "sum of an axis": lambda x: x.sum(-2),
        "sum of axes": lambda x: x.sum((0, -1), keepdim=True),
        "sum to a dtype": lambda x: x.sum(1, dtype=torch.float64),
        "mean": torch.mean,
        "mean of axes": lambda x: x.mean((1, 2), keepdim=True),
        "mean to a dtype": lambda x: x.mean(1, dtype=torch.float64),
        "var": torch.var,
        "var biased": lambda x: x.var(1, unbiased=False),
        "var of axes": lambda x: x.var((0, 2), keepdim=True),
        "var by a correction": lambda x: torch.var(x, 2, correction=2),
        "std": lambda x: x.std(1),
        "std biased": lambda x: x.std((1, 2), unbiased=False, keepdim=True),
        "var_mean": lambda x: torch.var_mean(x, 1),
        "std_mean": lambda x: torch.std_mean(x, 1, keepdim=True),
        "prod": lambda x: x.prod(),
        "prod of an axis": lambda x: x.prod(1, keepdim=True),
        "amax": lambda x: x.amax((0, 1)),
        "amin": lambda x: x.amin(-1, keepdim=True),
        "max": torch.max,
        "min": torch.min,
        "norm": torch.norm,
        "norm of order 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
        "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3, dim=(0, 1), keepdim=True),
        "norm of order inf": lambda x: torch.linalg.vector_norm(x, float("inf"), dim=1),
        "norm of order 0": lambda x: torch.linalg.vector_norm(x - 0.25, 0, dim=1),
        "norm frobenius": torch.linalg.matrix_norm,
        "logsumexp": lambda x: torch.logsumexp(x, (0, 2)),
        "all": lambda x: (x > -2).all(1),
        "all of all": lambda x: (x > -5).all(),
        "any": lambda x: (x > 2).any(1, keepdim=True),
        "any of floats": lambda x: (x - 0.25).any(1),
        "any of all": lambda x: (x > 2).any(),
        "count_nonzero": lambda x: torch.count_nonzero(x - 0.25, 1),
        "nansum": lambda x: torch.where(x > 2, float("nan"), x).nansum(1),
        "cumsum": lambda x: x.cumsum(1),
        "cumsum to a dtype": lambda x: x.cumsum(-1, dtype=torch.float64),
        "cumprod": lambda x: x.cumprod(1),
        "diff": lambda x: torch.diff(x, dim=1),
        "aminmax": lambda x: tuple(torch.aminmax(x, dim=1)),
    }
    cases = {name: function(f, y) for name, f in calls.items()}
    whole = integers(3, 4)
    small = integers(3, 4, low=0, high=100, dtype=torch.int8)
    cases["sum of int32"] = function(lambda x: x.sum(1), whole.int())
    cases["sum of int8"] = function(torch.sum, small)
    cases["sum of bool"] = function(lambda x: x.sum(0), booleans(3, 4))
    cases["mean of bool as float"] = function(lambda x: x.float().mean(), booleans(3, 4))
    cases["prod of int32"] = function(lambda x: x.prod(1), whole.int())
    cases["prod of bool"] = function(lambda x: x.prod(1), booleans(3, 4))
    cases["cumsum of int32"] = function(lambda x: x.cumsum(1), whole.int())
    cases["cumsum of bool"] = function(lambda x: x.cumsum(1), booleans(3, 4))
    cases["max of int64"] = function(lambda x: x.max(), whole)
    cases["max near the least int"] = function(
        lambda x: x.max(), torch.tensor([-(2**62) - 1, -(2**62) - 3])
    )
    cases["max of a row masked by -inf"] = function(
        lambda x, m: x.masked_fill(m, float("-inf")).amax(1),
        floats(3, 4),
        torch.tensor([[True] * 4, [True, False] * 2, [False] * 4]),
    )
    cases["min of a row of a constant inf"] = function(
        lambda x: (x + torch.tensor([[float("inf")], [0.0], [1.0]])).amin(1), floats(3, 4)
    )
    cases["max of -inf"] = function(lambda x: x.amax(0), torch.full((3, 2), -float("inf")))
    cases["sum of one value"] = function(torch.sum, torch.tensor(2.5))
    return cases


def _searching() -> dict[str, Case]:
    x, tied = distinct(3, 4, 5), integers(4, 6, low=0, high=3).float()
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "argmax": torch.argmax,
        "argmax of an axis": lambda x: x.argmax(1),
        "argmin": lambda x: x.argmin(-1, keepdim=True),
        "max of an axis": lambda x: tuple(x.max(1)),
        "max of an axis, kept": lambda x: tuple(x.max(-1, keepdim=True)),
        "min of an axis": lambda x: tuple(x.min(0)),
        "sort": lambda x: tuple(x.sort(1)),
        "sort descending": lambda x: tuple(x.sort(-1, descending=True)),
        "argsort": lambda x: x.argsort(0),
        "topk": lambda x: tuple(x.topk(3)),
        "topk smallest": lambda x: tuple(x.topk(2, 1, largest=False)),
        "median of an axis": lambda x: tuple(x.median(1)),
        "median": torch.median,
        "kthvalue": lambda x: tuple(x.kthvalue(2, 1)),
        "cummax": lambda x: tuple(x.cummax(1)),
        "cummin": lambda x: tuple(x.cummin(1)),
    }
    cases = {name: function(f, x) for name, f in calls.items()}
    cases["argmax of ties"] = function(lambda x: x.argmax(1), tied)
    cases["argmin of ties"] = function(lambda x: x.argmin(1), tied)
    cases["max of ties"] = function(lambda x: tuple(x.max(1)), tied)
    cases["sort of ties, stable"] = function(
        lambda x: tuple(torch.sort(x, dim=1, stable=True)), tied
    )
    cases["sort of ties, stable descending"] = function(
        lambda x: tuple(torch.sort(x, dim=1, stable=True, descending=True)), tied
    )
    cases["sort of int64"] = function(lambda x: x.sort(-1)[0], integers(3, 6))
    bounds = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    cases["bucketize"] = function(lambda x: torch.bucketize(x, bounds), X)
    cases["bucketize right"] = function(lambda x: torch.bucketize(x, bounds, right=True), X)
    cases["searchsorted"] = function(lambda x: torch.searchsorted(bounds, x), X)
    cases["isin"] = function(lambda x: torch.isin(x, torch.tensor([1, 3, -2])), integers(9))
    return cases


def _indexing() -> dict[str, Case]:
    x = floats(4, 5, 6)
    index = torch.tensor([[0, -1, 2], [3, -4, 1]])
    rows, columns = torch.tensor([0, -1, 2]), torch.tensor([-2, 1, 4])
    upright = torch.tensor([[0, 2, 1, 3, 4], [1, 1, 4, 2, 0]])
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "last": lambda x: x[:, -1],
        "last but one of the last axes": lambda x: x[..., -2, :],
        "two negatives": lambda x: x[-1, :, -3],
        "list with a negative": lambda x: x[[0, -1]],
        "list on an inner axis": lambda x: x[:, [0, -1, -2]],
        "list on the last axis": lambda x: x[..., [-1, 0]],
        "two lists": lambda x: x[[0, -1], [-2, 1]],
        "two lists apart": lambda x: x[[0, -1], :, [-2, 1]],
        "two lists on inner axes": lambda x: x[:, [0, -1], [-2, 1]],
        "lists that broadcast": lambda x: x[[[0], [-1]], [[-2, 1, 3]]],
        "lists that broadcast, apart": lambda x: x[[[0], [-1]], :, [[-2, 1, 3]]],
        "narrow": lambda x: x.narrow(1, 1, 3),
        "narrow from a negative": lambda x: x.narrow(1, -3, 2),
        "slice": lambda x: x[1:3, :, ::2],
        "slice from a negative": lambda x: x[:, -3:-1],
        "slice beyond the end": lambda x: x[:, 2:99],
        "slice before the start": lambda x: x[:, -99:2],
        "slice of nothing but one": lambda x: x[:, 2:3],
        "index_select": lambda x: torch.index_select(x, 1, torch.tensor([0, 3, 3])),
        "select": lambda x: torch.select(x, 2, -2),
        "roll": lambda x: torch.roll(x, (2, -1), (0, -1)),
        "roll flat": lambda x: torch.roll(x, -7),
        "flip": lambda x: x.flip((0, -1)),
        "rot90": lambda x: torch.rot90(x, -1, (1, 2)),
        "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 10, 1, -1),
        "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 10, 1, -3, -1),
        "slice_scatter by steps": lambda x: torch.slice_scatter(x, x[:, :2] * 10, 1, 1, 5, 2),
        "diagonal_scatter": lambda x: torch.diagonal_scatter(x, x[0, :5, :4].T * 9, 0, 0, 1),
        "assign a slice": lambda x: assign(x, (slice(None), slice(-2, None)), 7.0),
        "assign an element": lambda x: assign(x, (slice(None), -1), 7.0),
        "assign by a list": lambda x: assign(x, ([0, -1],), 7.0),
        "assign by a mask": lambda x: assign(x, (x > 1,), 7.0),
        "unbind": lambda x: x.unbind(1)[-1],
        "chunk": lambda x: x.chunk(3, 1),
        "split": lambda x: x.split(2, -1),
        "split by sizes": lambda x: x.split([1, 3, 1], 1),
        "tensor_split": lambda x: x.tensor_split(3, 1),
        "diagonal": lambda x: x.diagonal(1, 0, 2),
        "diag": lambda x: torch.diag(x[0, 0]),
        "diag_embed": lambda x: torch.diag_embed(x[0]),
        "tril": lambda x: x.tril(-1),
        "triu": lambda x: x.triu(1),
        "unfold of a tensor": lambda x: x.unfold(1, 3, 2),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "repeat": lambda x: x.repeat(2, 1, 1, 3),
        "tile": lambda x: x.tile((2, 1)),
        "expand": lambda x: x[:, :1].expand(-1, 3, -1),
        "movedim": lambda x: x.movedim(0, -1),
        "squeeze": lambda x: x[:, :1].squeeze(1),
        "squeeze of no one": lambda x: x.squeeze(1),
        "squeeze all": lambda x: x[:1, :1].squeeze(),
        "flatten": lambda x: x.flatten(1),
        "unflatten": lambda x: x.unflatten(2, (2, -1)),
        "as_strided": lambda x: torch.as_strided(x, (3, 4), (5, 1), 2),
        "view of a transpose": lambda x: x.transpose(0, 2).reshape(6, -1),
        "stack": lambda x: torch.stack([x, x + 1], -1),
        "cat": lambda x: torch.cat([x, x[:, :2]], 1),
        "meshgrid": lambda x: torch.meshgrid(x[0, 0], x[0, :, 0], indexing="xy"),
        "one_hot": lambda x: F.one_hot(x[0].abs().long(), 5),
        "block_diag": lambda x: torch.block_diag(x[0], x[1]),
        "cartesian_prod": lambda x: torch.cartesian_prod(x[0, 0], x[0, :, 0]),
    }
    cases = {name: function(f, x) for name, f in calls.items()}
    cases["runtime index"] = function(lambda x, i: x[i], x, index)
    cases["runtime index on an inner axis"] = function(lambda x, i: x[:, i], x, index)
    cases["runtime int32 index"] = function(lambda x, i: x[i], x, index.int())
    cases["runtime indices"] = function(lambda x, i, j: x[i, j], x, rows, columns)
    cases["runtime indices apart"] = function(lambda x, i, j: x[i, :, j], x, rows, columns)
    cases["runtime indices on inner axes"] = function(lambda x, i, j: x[:, i, j], x, rows, columns)
    cases["runtime scalar index"] = function(lambda x, i: x[i], x, torch.tensor(-2))
    cases["index_select by a runtime index"] = function(
        lambda x, i: torch.index_select(x, 1, i), x, upright[0]
    )
    cases["gather"] = function(lambda x, i: torch.gather(x[0, :2], 1, i), x, upright)
    cases["take"] = function(torch.take, x, index)
    cases["take_along_dim"] = function(
        lambda x, i: torch.take_along_dim(x[0, :2], i, 1), x, upright
    )
    cases["take_along_dim negative"] = function(
        lambda x, i: torch.take_along_dim(x[0, :2], i, 1), x, index
    )
    cases["embedding"] = module(lambda: nn.Embedding(7, 3), integers(2, 4, low=0, high=7))
    cases["embedding with padding"] = module(
        lambda: nn.Embedding(7, 3, padding_idx=-1), integers(2, 4, low=0, high=7)
    )
    cases["embedding of one index"] = module(lambda: nn.Embedding(7, 3), torch.tensor(4))
    cases["embedding_bag"] = module(
        lambda: nn.EmbeddingBag(7, 3, mode="mean"), integers(2, 4, low=0, high=7)
    )
    cases["index_put"] = function(
        lambda x, i, j, v: x.index_put((i, j), v), x, rows, columns, floats(3, 6) * 9
    )
    cases["index_put accumulated"] = function(
        lambda x, i, v: x.index_put((i,), v, accumulate=True),
        x,
        torch.tensor([1, -3, 1]),
        floats(3, 5, 6),
    )
    cases["index_put on an inner axis"] = function(
        lambda x, i: assign(x, (slice(None), i), 9.0), x, rows
    )
    cases["index_add"] = function(
        lambda x, i, v: x.index_add(1, i, v, alpha=2), x, torch.tensor([0, 3, 0]), floats(4, 3, 6)
    )
    cases["index_copy"] = function(
        lambda x, i, v: x.index_copy(1, i, v), x, torch.tensor([0, 3]), floats(4, 2, 6) * 9
    )
    cases["index_fill"] = function(lambda x, i: x.index_fill(1, i, 9.0), x, torch.tensor([0, 3]))
    cases["scatter"] = function(
        lambda x, i, v: x[0].scatter(1, i, v), x, upright[:, :3], floats(2, 3) * 9
    )
    cases["scatter of a value"] = function(lambda x, i: x[0].scatter(0, i[:, :3], 9.0), x, upright)
    cases["scatter_add"] = function(
        lambda x, i, v: x[0].scatter_add(1, i, v), x, upright, floats(2, 5)
    )
    for reduce in ("sum", "prod", "amax", "mean"):
        cases[f"scatter_reduce {reduce}"] = function(
            lambda x, i, v, r=reduce: x[0].scatter_reduce(1, i, v, r), x, upright, floats(2, 5) + 4
        )
    cases["index by a mask of bools, where"] = function(
        lambda x, m: torch.where(m[..., None], x, -x), x, booleans(4, 5)
    )
    cases["masked_fill"] = function(lambda x, m: x.masked_fill(m, -1e9), x, booleans(5, 6))
    cases["masked_fill by a tensor"] = function(
        lambda x, m, v: x.masked_fill(m, v), x, booleans(5, 6), torch.tensor(3.0)
    )
    cases["masked_fill of int64 with -inf"] = function(
        lambda x, m: x.float().masked_fill(m, float("-inf")), integers(5, 6), booleans(5, 6)
    )
    cases["masked_scatter"] = function(
        lambda x, m: x.masked_scatter(m, torch.arange(120.0)), x, booleans(5, 6)
    )
    return cases


def assign(x: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    y = x.clone()
    y[index] = value
    return y


def _arithmetic() -> dict[str, Case]:
    x, y = floats(4, 5), floats(5) + 0.125
    i, j = integers(4, 5), integers(4, 5, low=1, high=4)
    binary = [
        "add", "sub", "mul", "div", "atan2", "pow", "maximum", "minimum", "fmod", "remainder",
        "floor_divide", "eq", "ne", "lt", "le", "gt", "ge", "logaddexp", "logaddexp2", "copysign",
        "hypot", "xlogy", "heaviside", "fmax", "fmin",
    ]  # fmt: skip
    cases = {
        name: function(getattr(torch, name), x.abs() if name in ("pow", "xlogy") else x, y)
        for name in binary
    }
    for name in ("fmod", "remainder", "floor_divide", "div", "eq", "maximum", "true_divide"):
        cases[f"{name} of int64"] = function(getattr(torch, name), i, j)
        cases[f"{name} of a negative divisor"] = function(getattr(torch, name), i, -j)
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or"):
        cases[f"{name} of int64"] = function(getattr(torch, name), i, j)
        cases[f"{name} of bool"] = function(getattr(torch, name), booleans(4, 5), booleans(5))
    cases["logical_xor"] = function(torch.logical_xor, i, booleans(4, 5))
    cases["shift left"] = function(lambda i, j: i << j, i, j)
    cases["shift right"] = function(lambda i, j: i >> j, i, j)
    mixed: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
        "int + float": lambda i, x: i + x,
        "int * bool": lambda i, x: i * (x > 0),
        "bool + bool": lambda i, x: (i > 0) + (x > 0),
        "float - bool": lambda i, x: x - (i > 0).float(),
        "int32 + int64": lambda i, _: i.int() + i,
        "int8 + int32": lambda i, _: i.to(torch.int8) * i.int(),
        "uint8 + int8": lambda i, _: i.abs().to(torch.uint8) + i.to(torch.int8),
        "float32 + float64": lambda _, x: x + x.double(),
        "int + scalar float": lambda i, _: i + 1.5,
        "int * scalar float": lambda i, _: 0.5 * i,
        "int / scalar int": lambda i, _: i / 2,
        "int // scalar int": lambda i, _: i // 2,
        "int % scalar int": lambda i, _: i % 3,
        "int ** scalar int": lambda i, _: i**2,
        "int ** scalar float": lambda i, _: i.abs() ** 0.5,
        "scalar ** int": lambda i, _: 2 ** i.abs(),
        "scalar ** float": lambda _, x: 2**x,
        "scalar - int": lambda i, _: 1 - i,
        "scalar float - int": lambda i, _: 1.5 - i,
        "scalar / float": lambda _, x: 1 / (x + 5),
        "scalar / int": lambda i, _: 1.0 / (i.abs() + 1),
        "bool * scalar": lambda _, x: (x > 0) * 2,
        "bool * scalar float": lambda _, x: (x > 0) * 2.5,
        "int < scalar float": lambda i, _: i < 1.5,
        "int == scalar float": lambda i, _: i == 1.0,
        "int < float": lambda i, x: i < x,
        "float // scalar": lambda _, x: x // 0.75,
        "float % scalar": lambda _, x: x % -0.75,
        "float ** 3": lambda _, x: x**3,
        "float ** -1": lambda _, x: (x + 5) ** -1,
        "negative ** integral float": lambda _, x: x**2.0,
        "where int, float": lambda i, x: torch.where(x > 0, i, x),
        "where scalar": lambda i, x: torch.where(x > 0, 1.5, i),
        "where scalars": lambda _, x: torch.where(x > 0, 1, 0),
        "cat of int and float": lambda i, x: torch.cat([i, x]),
        "stack of int and float": lambda i, x: torch.stack([i.float(), x]),
        "div trunc": lambda i, x: torch.div(x, i.abs() + 1, rounding_mode="trunc"),
        "div floor": lambda i, x: torch.div(x, i.abs() + 1, rounding_mode="floor"),
        "div trunc of int": lambda i, _: torch.div(i, 2, rounding_mode="trunc"),
        "div floor of int": lambda i, _: torch.div(i, 2, rounding_mode="floor"),
        "add with alpha": lambda i, x: torch.add(x, i, alpha=2),
        "sub with alpha": lambda i, x: torch.sub(x, i, alpha=0.5),
        "rsub": lambda i, x: torch.rsub(x, i, alpha=3),
        "addcmul": lambda _, x: torch.addcmul(x, x, x, value=0.5),
        "addcdiv": lambda _, x: torch.addcdiv(x, x, x.abs() + 1, value=0.5),
        "lerp": lambda _, x: torch.lerp(x, -x, 0.25),
        "float to int": lambda _, x: x.int(),
        "float to bool": lambda _, x: x.bool(),
        "float to uint8": lambda _, x: x.abs().to(torch.uint8),
        "bool to float": lambda i, _: (i > 0).double(),
        "int64 to int8": lambda i, _: (i * 100).to(torch.int8),
        "type_as": lambda i, x: i.type_as(x),
        "isclose": lambda i, x: torch.isclose(x, i.float()),
        "in-place": lambda i, x: x.clone().mul_(2).add_(i).relu_(),
        "0-d promotion": lambda i, _: i + torch.tensor(1.5, dtype=torch.float64),
        "0-d of the same kind": lambda _, x: x + torch.tensor(1.5, dtype=torch.float64),
    }
    cases |= {name: function(f, i, x) for name, f in mixed.items()}
    return cases


def _algebra() -> dict[str, Case]:
    a, b = floats(2, 3, 4), floats(2, 4, 5)
    calls: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
        "matmul": torch.matmul,
        "matmul of rank 3 and 2": lambda a, b: a @ b[0],
        "matmul of rank 2 and 3": lambda a, b: a[0] @ b,
        "matmul of vectors": lambda a, b: a[0, 0] @ b[0, :, 0],
        "matmul with a vector": lambda a, b: a @ b[0, :, 0],
        "matmul of float64": lambda a, b: (a.double() / 3) @ (b.double() / 7),
        "matmul of int64": lambda a, b: a.long() @ b.long(),
        "bmm": torch.bmm,
        "mm": lambda a, b: torch.mm(a[0], b[0]),
        "mv": lambda a, b: torch.mv(a[0], b[0, :, 0]),
        "outer": lambda a, b: torch.outer(a[0, 0], b[0, :, 0]),
        "addmm": lambda a, b: torch.addmm(b[0, :3], a[0], b[0], beta=0.5, alpha=2),
        "addmm of beta 0": lambda a, b: torch.addmm(b[0, :3], a[0], b[0], beta=0),
        "baddbmm": lambda a, b: torch.baddbmm(b[:, :3], a, b, beta=0.5, alpha=2),
        "addmv": lambda a, b: torch.addmv(a[0, :, 0], a[0], b[0, :, 0], alpha=2),
        "addbmm": lambda a, b: torch.addbmm(b[0, :3], a, b),
        "einsum of a product": lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        "einsum with an ellipsis": lambda a, b: torch.einsum("...ij,...jk->...ki", a, b),
        "einsum of a trace": lambda a, _: torch.einsum("bii->b", a[:, :, :3]),
        "einsum of a sum": lambda a, _: torch.einsum("bij->j", a),
        "einsum of an outer product": lambda a, b: torch.einsum("i,j->ij", a[0, 0], b[0, 0]),
        "einsum of three": lambda a, b: torch.einsum("bij,bjk,k->bi", a, b, b[0, 0]),
        "tensordot": lambda a, b: torch.tensordot(a, b, ([0, 2], [0, 1])),
        "kron": lambda a, b: torch.kron(a[0], b[0]),
        "cross": lambda a, _: torch.linalg.cross(a[0, :, :3], a[1, :, :3]),
        "trace": lambda a, _: torch.trace(a[0]),
        "cdist": lambda a, b: torch.cdist(a, b.transpose(1, 2)),
        "matrix_power": lambda a, _: torch.linalg.matrix_power(a[0, :, :3], 3),
        "chain_matmul": lambda a, b: torch.linalg.multi_dot([a[0], b[0], b[0].T]),
        "vander": lambda a, _: torch.vander(a[0, 0]),
    }
    return {name: function(f, a, b) for name, f in calls.items()}


def _creation() -> dict[str, Case]:
    x = floats(3, 4)
    calls: dict[str, Callable[[torch.Tensor], Any]] = {
        "arange": lambda x: torch.arange(1, 12, 3) + x[:, :1],
        "arange of floats": lambda x: torch.arange(0.5, 2, 0.5) + x[:, :3],
        "linspace": lambda x: torch.linspace(-1, 2, 4) * x,
        "linspace of one": lambda x: torch.linspace(-1, 2, 1) * x,
        "eye": lambda x: torch.eye(3, 4) * x,
        "full": lambda x: torch.full((3, 4), 2.5) * x,
        "full_like": lambda x: torch.full_like(x, 3, dtype=torch.int32) + x,
        "ones_like of a dtype": lambda x: torch.ones_like(x, dtype=torch.int64),
        "zeros_like of a dtype": lambda x: torch.zeros_like(x, dtype=torch.bool),
        "new_ones": lambda x: x.new_ones((2, 2)),
        "new_zeros of a dtype": lambda x: x.new_zeros((2, 2), dtype=torch.int32),
        "new_full": lambda x: x.new_full((2, 2), 7),
        "zeros": lambda x: torch.zeros(3, 4, dtype=torch.int64) + x.long(),
        "tensor constant": lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
        "scalar constant": lambda x: x + torch.tensor(2),
        "tril_indices": lambda x: torch.tril_indices(3, 3) + x[:2, :1].long(),
        "hamming_window": lambda x: torch.hamming_window(4) * x,
        "hann_window": lambda x: torch.hann_window(4) * x,
        "constant output": lambda x: (x, torch.ones(2)),
        "the input itself": lambda x: (x, x + 1, x),
        "the same output twice": lambda x: (x + 1,) * 2,
    }
    return {name: function(f, x) for name, f in calls.items()}


def _recurrent() -> dict[str, Case]:
    x = floats(5, 2, 4)
    batch_first = {"batch_first": True}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        "lstm": (nn.LSTM, {}),
        "lstm batch first": (nn.LSTM, batch_first),
        "lstm two layers, both ways": (nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        "lstm no bias": (nn.LSTM, {"bias": False}),
        "lstm projected": (nn.LSTM, {"proj_size": 2}),
        "gru": (nn.GRU, batch_first),
        "gru two layers, both ways": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
        "gru no bias": (nn.GRU, {"bias": False}),
        "rnn tanh": (nn.RNN, {}),
        "rnn relu, both ways": (nn.RNN, {"nonlinearity": "relu", "bidirectional": True}),
    }
    cases = {
        name: module(lambda kind=kind, how=how: kind(4, 3, **how), x)
        for name, (kind, how) in ways.items()
    }
    cases["lstm with a state"] = module(lambda: WithState(nn.LSTM(4, 3)), x, floats(1, 2, 3))
    cases["lstm unbatched"] = module(lambda: nn.LSTM(4, 3), x[:, 0])
    cases["lstm cell"] = module(lambda: nn.LSTMCell(4, 3), x[0])
    cases["gru cell"] = module(lambda: nn.GRUCell(4, 3), x[0])
    return cases


class WithState(nn.Module):
    """An LSTM whose initial state is an input."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        return self.inner(x, (h, h * 2))


def _losses() -> dict[str, Case]:
    scores, labels = floats(4, 5), integers(4, low=0, high=5)
    other = floats(4, 5).flip(0).sigmoid()
    return {
        "cross_entropy": function(F.cross_entropy, scores, labels),
        "cross_entropy smoothed": function(
            lambda s, t: F.cross_entropy(s, t, label_smoothing=0.1, reduction="sum"),
            scores,
            labels,
        ),
        "nll_loss": function(
            lambda s, t: F.nll_loss(F.log_softmax(s, 1), t, reduction="none"), scores, labels
        ),
        "mse_loss": function(F.mse_loss, scores, other),
        "l1_loss": function(F.l1_loss, scores, other),
        "smooth_l1_loss": function(F.smooth_l1_loss, scores, other),
        "huber_loss": function(F.huber_loss, scores, other),
        "kl_div": function(lambda s, t: F.kl_div(s, t, reduction="batchmean"), scores, other),
        "binary_cross_entropy": function(
            lambda s, t: F.binary_cross_entropy(s.sigmoid(), t), scores, other
        ),
        "binary_cross_entropy of logits": function(
            F.binary_cross_entropy_with_logits, scores, other
        ),
    }


TOPICS: dict[str, dict[str, Case]] = {
    "unary": _unary(),
    "activation": _activations(),
    "pool": _pools(),
    "convolution": _convolutions(),
    "norm": _norms(),
    "attention": _attention(),
    "resize": _resizing(),
    "reduction": _reductions(),
    "search": _searching(),
    "indexing": _indexing(),
    "arithmetic": _arithmetic(),
    "algebra": _algebra(),
    "creation": _creation(),
    "recurrent": _recurrent(),
    "loss": _losses(),
}
CASES = {
    f"{topic}: {name}": case for topic, cases in TOPICS.items() for name, case in cases.items()
}

# What is refused, with a part of the message.
REFUSED = {
    "pool: max_pool2d indices": "TVM computes it in float32, PyTorch in int64",
    "resize: interpolate bilinear antialias": r"_upsample_bilinear2d_aa\.default has no converter",
    "search: cummax": r"aten\.cummax\.default has no converter",
    "search: cummin": r"aten\.cummin\.default has no converter",
    "indexing: diagonal_scatter": r"aten\.diagonal_scatter\.default has no converter",
    "indexing: runtime scalar index": "a tensor's value is read into Python",
    "indexing: embedding_bag": r"aten\._embedding_bag\.default has no converter",
    "indexing: scatter_reduce mean": "reduce='mean' with include_self=True",
}
# Infinities that come in at run time; those of constants, as of masks, are taken into account.
DEVIATIONS = {"reduction: max of -inf": "TVM's max starts from the least finite number"}
INPUTS = 10  # of one bundle; with more, the guards of torch 2.13 confuse the shapes of `*inputs`


class Bundle(torch.nn.Module):
    """Several cases as one module: its arguments are theirs, its result a tuple of theirs."""

    def __init__(self, cases: list[Case]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.parts = torch.nn.ModuleList([case.make() for case in cases])
        self.counts = [len(case.inputs) for case in cases]

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        rest = iter(inputs)
        return tuple(
            part(*islice(rest, count)) for part, count in zip(self.parts, self.counts, strict=True)
        )


def chunks() -> Iterator[tuple[str, ...]]:
    for topic, cases in TOPICS.items():
        names = [f"{topic}: {name}" for name in cases]
        chunk: list[str] = []
        for name in names:
            if name in REFUSED:
                yield (name,)
                continue
            if sum(len(CASES[other].inputs) for other in [*chunk, name]) > INPUTS:
                yield tuple(chunk)
                chunk = []
            chunk.append(name)
        yield tuple(chunk)


CHUNK_OF = {name: chunk for chunk in chunks() for name in chunk}


@functools.cache
def outcomes(chunk: tuple[str, ...]) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """For each case what TVM gives, and what PyTorch does."""
    bundle = Bundle([CASES[name] for name in chunk])
    inputs = [x for name in chunk for x in CASES[name].inputs]
    exe = byoc.compile(byoc.load_model(bundle, inputs), "llvm")
    results = iter(
        exe.run({s.name: to_array(x) for s, x in zip(exe.inputs, inputs, strict=True)}).values()
    )
    bundle.eval()
    with torch.no_grad():
        expected = [[to_array(y) for y in tree_leaves(part)] for part in bundle(*inputs)]
    return {
        name: (list(islice(results, len(leaves))), leaves)
        for name, leaves in zip(chunk, expected, strict=True)
    }


def outcome(name: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    try:
        return outcomes(CHUNK_OF[name])[name]
    except ModelError:
        return outcomes((name,))[name]


@pytest.mark.parametrize("name", [name for name in CASES if name not in REFUSED])
def test_an_op_agrees_with_pytorch(name: str, request: pytest.FixtureRequest) -> None:
    if name in DEVIATIONS:
        request.applymarker(pytest.mark.xfail(reason=DEVIATIONS[name], strict=True))
    got, expected = outcome(name)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype
        tolerance = TOLERANCES.get(str(theirs.dtype))
        if tolerance is None:
            np.testing.assert_array_equal(mine, theirs)
        else:
            np.testing.assert_allclose(mine, theirs, tolerance.rtol, tolerance.atol * 2)


@pytest.mark.parametrize("name", REFUSED)
def test_an_op_that_cannot_be_imported_is_refused_by_name(name: str) -> None:
    with pytest.raises(ModelError, match=REFUSED[name]):
        outcomes((name,))
