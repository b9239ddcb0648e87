"""How much of whole models TensorRT takes, from PyTorch and from ONNX."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from torch import nn

import tvm_byoc_kit as byoc

SCRIPTS = Path(__file__).parents[2] / "scripts"
IMAGE = (1, 3, 224, 224)
TOKENS = (1, 16, 64)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Any]:
    """Gives a module of scripts/ by its name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        for name in ("TVM_NUM_THREADS", "TVM_THREAD_POOL_SPIN_COUNT"):  # which some of them set
            patch.setenv(name, "1")
        before = set(sys.modules)
        yield importlib.import_module
        for name in set(sys.modules) - before:
            if (SCRIPTS / f"{name}.py").exists():
                del sys.modules[name]


def from_torch(module: nn.Module, shape: tuple[int, ...], batch: bool = False) -> Any:
    """Imported by the kit; with `batch` the first dimension is symbolic."""
    dims = ({0: torch.export.Dim("batch", min=1, max=64)},) if batch else None
    example = torch.randn(2 if batch else shape[0], *shape[1:])
    return byoc.load_model(torch.export.export(module, (example,), dynamic_shapes=dims))


def from_onnx(module: nn.Module, shape: tuple[int, ...], batch: bool = False) -> Any:
    """Through a file of ONNX."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            module,
            (torch.randn(shape),),
            file,
            dynamo=False,  # the other exporter needs one more package
            input_names=["x"],
            dynamic_axes={"x": {0: "batch"}} if batch else None,
        )
    shapes = {"x": ("batch", *shape[1:])} if batch else None
    return byoc.load_model(onnx.load_from_string(file.getvalue()), shapes=shapes)


IMPORTS = {"PyTorch": from_torch, "ONNX": from_onnx}
each_import = pytest.mark.parametrize("load", IMPORTS.values(), ids=IMPORTS)


def assert_whole(model: Any) -> byoc.Coverage:
    """Everything in one region."""
    coverage = byoc.partition(model, "tensorrt").coverage
    assert [f"{entry.op}: {entry.reason}" for entry in coverage.ops if entry.region is None] == []
    assert len(coverage.regions) == 1
    return coverage


@each_import
def test_resnet18_is_one_region(scripts: Any, load: Callable[..., Any]) -> None:
    resnet = scripts("bench_simulator").resnet18()
    coverage = assert_whole(load(resnet, IMAGE))
    convolutions = sum(isinstance(part, nn.Conv2d) for part in resnet.modules())
    assert sum(entry.op == "relax.nn.conv2d" for entry in coverage.ops) == convolutions


@each_import
def test_mobilenet_v2_is_one_region(scripts: Any, load: Callable[..., Any]) -> None:
    assert_whole(load(scripts("bench_preparation").mobilenet_v2(), IMAGE))


def encoder(activation: str = "gelu", norm_first: bool = False) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        64, 4, 128, batch_first=True, activation=activation, norm_first=norm_first
    )
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()


@each_import
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_bert_like_encoder_is_one_region(load: Callable[..., Any], norm_first: bool) -> None:
    coverage = assert_whole(load(encoder(norm_first=norm_first), TOKENS))
    kinds = {entry.op for entry in coverage.ops}
    assert {"relax.matmul", "relax.nn.softmax", "relax.nn.layer_norm"} <= kinds


class Attention(nn.Module):
    """Attention as PyTorch's own function has it."""

    def __init__(self, mask: str = "") -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of ``float[batch, tokens, features]`` with itself, in four heads."""
        batch, length, width = x.shape
        heads = x.reshape(batch, length, 4, width // 4).transpose(1, 2)
        mask = None
        if self.mask == "added":
            mask = torch.triu(torch.full((length, length), -1e9), 1)
        elif self.mask == "computed":
            mask = x[:, None, None, :, 0] > 0
        found = nn.functional.scaled_dot_product_attention(
            heads, heads, heads, attn_mask=mask, is_causal=self.mask == "causal"
        )
        return found.transpose(1, 2).reshape(batch, length, width)


@each_import
@pytest.mark.parametrize("mask", ["", "added", "computed", "causal"])
def test_attention_does_not_shatter(load: Callable[..., Any], mask: str) -> None:
    assert_whole(load(Attention(mask), TOKENS))


class RootMeanSquare(nn.Module):
    """RMSNorm as models of transformers write it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Along the last axis."""
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


CHANNELS: dict[str, Callable[[], nn.Module]] = {
    "hard-swish": nn.Hardswish,
    "hard-sigmoid": nn.Hardsigmoid,
    "SiLU": nn.SiLU,
    "GELU": nn.GELU,
    "GELU by tanh": lambda: nn.GELU(approximate="tanh"),
    "Mish": nn.Mish,
    "ELU": nn.ELU,
    "SELU": nn.SELU,
    "softplus": nn.Softplus,
    "leaky ReLU": nn.LeakyReLU,
    "PReLU": lambda: nn.PReLU(8),
    "ReLU6": nn.ReLU6,
    "log-softmax": lambda: nn.LogSoftmax(1),
    "batch norm": lambda: nn.BatchNorm2d(8),
    "group norm": lambda: nn.GroupNorm(2, 8),
    "instance norm": lambda: nn.InstanceNorm2d(8, affine=True),
    "layer norm": lambda: nn.LayerNorm([8, 6, 6]),
    "RMS norm": RootMeanSquare,
    "padding": lambda: nn.ZeroPad2d((1, 2, 0, 1)),
    "reflection": lambda: nn.ReflectionPad2d(2),
    "replication": lambda: nn.ReplicationPad2d(1),
    "pixel shuffle": lambda: nn.PixelShuffle(2),
    "upsampling": lambda: nn.Upsample(scale_factor=2, mode="nearest"),
    "bilinear upsampling": lambda: nn.Upsample(scale_factor=2, mode="bilinear"),
    "adaptive pool": lambda: nn.AdaptiveAvgPool2d(3),
    "transposed convolution": lambda: nn.ConvTranspose2d(8, 4, 3, 2, 1, 1),
}


@each_import
@pytest.mark.parametrize("name", CHANNELS)
def test_layers_between_convolutions_keep_them_together(
    load: Callable[..., Any], name: str
) -> None:
    torch.manual_seed(0)
    layer = CHANNELS[name]()
    channels = layer(torch.zeros(1, 8, 6, 6)).shape[1]
    around = nn.Conv2d(3, 8, 1), nn.Sigmoid(), layer, nn.Sigmoid(), nn.Conv2d(channels, 4, 1)
    assert_whole(load(nn.Sequential(*around).eval(), (1, 3, 6, 6)))


@each_import
@pytest.mark.parametrize("name", ["ResNet-18", "MobileNetV2", "encoder"])
def test_a_dynamic_batch_keeps_one_region(
    scripts: Any, load: Callable[..., Any], name: str
) -> None:
    models = {
        "ResNet-18": (scripts("bench_simulator").resnet18, (1, 3, 64, 64)),
        "MobileNetV2": (scripts("bench_preparation").mobilenet_v2, (1, 3, 64, 64)),
        "encoder": (encoder, TOKENS),
    }
    make, shape = models[name]
    model = load(make(), shape, batch=True)
    assert not isinstance(model.inputs[0].shape[0], int)
    assert_whole(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["paraphrase-MiniLM-L3", "MiniLM-L6 int8"])
def test_transformers_of_wheels_are_one_region(scripts: Any, name: str) -> None:
    script = scripts("real_models")
    entry = next(entry for entry in script.MODELS if entry.name == name)
    try:
        path = script.model_file(entry, script.default_cache())
    except OSError as error:
        pytest.skip(f"no network, or the wheel is gone: {error}")
    shapes = {name: shape for name, (_, shape) in entry.inputs.items()}
    assert_whole(byoc.load_model(path, shapes=shapes))
