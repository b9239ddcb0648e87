"""Whole models: one region with every operator, and the numbers of PyTorch and ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.openvino.conversion import codegen
from tvm_byoc_kit.graph import read_graph

pytestmark = pytest.mark.byoc("openvino", step="runtime")


class Residual(nn.Module):
    """Two convolutions and a shortcut, which is a convolution where the size changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        shortcut = nn.Conv2d(inputs, outputs, 1, stride)
        self.shortcut = nn.Identity() if inputs == outputs else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class Inverted(nn.Module):
    """A MobileNetV2 block."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        hidden = channels * 6
        self.body = nn.Sequential(
            nn.Conv2d(channels, hidden, 1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, hidden, 3, 1, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(),
            nn.Conv2d(hidden, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class Encoder(nn.Module):
    """Embedded tokens through a transformer encoder with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        mask = torch.where(tokens == 0, -1e4, 0.0)[:, None, :].expand(-1, tokens.shape[1], -1)
        return self.layers(x, mask=mask.repeat_interleave(4, 0))


class Bert(nn.Module):
    """Embedded tokens through one layer of attention as BERT writes it: the mask is added."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 64)
        self.projections = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.feed = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens)
        mask = torch.where(tokens == 0, -1e4, 0.0)[:, None, None, :]
        query, key, value = (self.heads(project(x)) for project in self.projections[:3])
        scores = torch.softmax(query @ key.transpose(2, 3) / 4 + mask, -1)
        read = (scores @ value).transpose(1, 2).reshape(x.shape)
        x = self.norms[0](x + self.projections[3](read))
        return self.norms[1](x + self.feed(x))

    @staticmethod
    def heads(x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        return x.reshape(batch, length, 4, 16).transpose(1, 2)


def head(channels: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, 10)]


def residual_network() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, Residual(8, 8, 1), Residual(8, 16, 2), *head(16))


def inverted_residuals() -> nn.Module:
    stem = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()]
    return nn.Sequential(*stem, Inverted(8), Inverted(8), *head(8))


def recurrent() -> nn.Module:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.GRU(6, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cells(x)[0][:, -1]

    return Last()


IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0]])
MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "residual network": (residual_network, IMAGES),
    "inverted residuals": (inverted_residuals, IMAGES),
    "encoder": (Encoder, TOKENS),
    "BERT": (Bert, TOKENS),
    "recurrent": (recurrent, torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(2))),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The model with statistics that are not the initial ones."""
    torch.manual_seed(3)
    make, inputs = MODELS[name]
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model, inputs


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_one_region_and_agrees_with_pytorch(name: str) -> None:
    model, inputs = made(name)
    parts = byoc.partition(byoc.load_model(model, (inputs,)), "openvino")
    assert len(parts.coverage.regions) == 1
    assert not parts.coverage.host_ops
    found = np.asarray(byoc.build(parts)(inputs.numpy()))
    expected = model(inputs).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


TO_AND_FRO = (2, 1, 32, 3, 1, 17, 2)


@pytest.mark.parametrize("name", ["residual network", "BERT"])
def test_a_batch_of_any_size(name: str) -> None:
    model, inputs = made(name)
    batch = torch.export.Dim("batch", min=1, max=64)
    exe = build_open(model, inputs, {0: batch})
    for size in TO_AND_FRO:
        agree(exe, model, torch.cat([inputs] * 16)[:size])


def test_tokens_of_any_number() -> None:
    model, inputs = made("BERT")
    dims = {
        0: torch.export.Dim("batch", min=1, max=64),
        1: torch.export.Dim("tokens", min=2, max=64),
    }
    exe = build_open(model, inputs, dims)
    for batch, tokens in ((2, 6), (1, 2), (5, 33), (1, 6), (2, 2)):
        agree(exe, model, torch.arange(batch * tokens).reshape(batch, tokens) * 7 % 100)


def build_open(model: nn.Module, inputs: torch.Tensor, dims: dict[int, Any]) -> byoc.Executable:
    parts = byoc.partition(byoc.load_model(model, (inputs,), dynamic_shapes=(dims,)), "openvino")
    assert len(parts.coverage.regions) == 1
    assert not parts.coverage.host_ops
    return byoc.build(parts)


def agree(exe: byoc.Executable, model: nn.Module, x: torch.Tensor) -> None:
    expected = model(x).detach().numpy()
    np.testing.assert_allclose(np.asarray(exe(x.numpy())), expected, rtol=1e-3, atol=1e-5)


def test_the_bytes_of_a_calibrated_model_stand_beside_the_payload() -> None:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv2d(3, 128, 3, 2), nn.ReLU(), nn.Conv2d(128, 256, 3, 2)).eval()
    calibrated = byoc.calibrate(byoc.load_model(model, (IMAGES,)), [IMAGES.numpy()])
    parts = byoc.partition(calibrated, "openvino")
    (region,) = (f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs)
    beside = codegen(read_graph(region), {}).constants
    assert [value.dtype for value in beside if value.shape == (256, 128, 3, 3)] == ["int8"]
    expected = model(IMAGES).detach().numpy()
    within = 0.05 * np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(byoc.build(parts)(IMAGES.numpy())), expected, atol=within)


def test_the_digits_agree_with_onnx_runtime() -> None:
    data = files("tvm_byoc_kit") / "data"
    path, held_out = str(data / "digits.onnx"), np.load(str(data / "digits_test.npz"))
    imported = byoc.load_model(path)
    (spec,) = imported.inputs
    parts = byoc.partition(imported, "openvino")
    assert len(parts.coverage.regions) == 1
    assert not parts.coverage.host_ops
    shape = [size if isinstance(size, int) else 1 for size in spec.shape]
    images = held_out[held_out.files[0]].astype(np.float32)
    image = np.resize(images, shape)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {spec.name: image})
    found = np.asarray(byoc.build(parts)(image))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_cast_of_onnx_from_floats_to_int32_is_one_region() -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)
    ends = [("x", TensorProto.FLOAT), ("y", TensorProto.INT32)]
    x, y = (helper.make_tensor_value_info(name, dtype, [5]) for name, dtype in ends)
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(
        helper.make_graph([node], "cast", [x], [y]), opset_imports=opset, ir_version=9
    )
    onnx.checker.check_model(proto)
    parts = byoc.partition(byoc.load_model(proto), "openvino")
    assert len(parts.coverage.regions) == 1
    assert not parts.coverage.host_ops
    array = np.array([1.5, -2.7, -1e9, 2e9, 0], "float32")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    np.testing.assert_array_equal(byoc.build(parts)(array), session.run(None, {"x": array})[0])
