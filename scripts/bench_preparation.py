"""What `prepare` and the fused host build are worth, on models with random weights.

    python scripts/bench_preparation.py

First table: regions and offloaded ops of a backend's partition, of the module as TVM's importer
gives it and prepared, with the CPU seconds of `prepare` and of the chain of TVM's own passes that
comes closest. Second table: the host build by TVM's generic pipeline and by the target's own, which
fuses.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

# Before TVM starts its threads: a spinning pool would count as CPU time.
os.environ["TVM_NUM_THREADS"] = "1"
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "0"

import numpy as np
import onnx
import torch
import tvm
from bench_simulator import cpu_seconds, resnet18
from torch import nn
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx
from tvm.relax.frontend.torch import from_exported_program

import tvm_byoc_kit as byoc

IMAGE = (1, 3, 224, 224)
# Expansion, channels, repeats and stride of each stage: Sandler et al., 2018, table 2.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """Expand (unless by 1), depthwise, project; a shortcut where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.shortcut = stride == 1 and inputs == outputs
        expand = normalized(nn.Conv2d(inputs, hidden, 1, bias=False)) if expansion > 1 else []
        self.body = nn.Sequential(
            *expand,
            *normalized(nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False)),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block of the paper's figure 3."""
        return x + self.body(x) if self.shortcut else self.body(x)


def normalized(convolution: nn.Conv2d) -> list[nn.Module]:
    """A convolution with its batch normalization and its ReLU6."""
    return [convolution, nn.BatchNorm2d(convolution.out_channels), nn.ReLU6()]


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 with random weights, ready for inference."""
    layers: list[nn.Module] = normalized(nn.Conv2d(3, 32, 3, 2, 1, bias=False))
    inputs = 32
    for expansion, outputs, repeats, stride in STAGES:
        for number in range(repeats):
            block = InvertedResidual(inputs, outputs, 1 if number else stride, expansion)
            layers.append(block)
            inputs = outputs
    layers += normalized(nn.Conv2d(inputs, 1280, 1, bias=False))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000)]
    return nn.Sequential(*layers).eval()


def encoder() -> nn.Module:
    """Four layers of a transformer encoder, BERT-like."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4).eval()


def convnet() -> nn.Module:
    """Two convolutions for 32x32 images."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32)):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 8 * 8, 10)).eval()


class Elementwise(nn.Module):
    """What is left between regions: short chains on small tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Six times five elementwise ops."""
        for _ in range(6):
            x = torch.tanh(x * 1.5 + 0.1) * torch.sigmoid(x)
        return x


def from_torch(module: nn.Module, shape: tuple[int, ...]) -> tvm.IRModule:
    """As TVM's importer gives it."""
    exported = torch.export.export(module, (torch.randn(shape),))
    return from_exported_program(exported, unwrap_unit_return_tuple=True)


def through_onnx(module: nn.Module, shape: tuple[int, ...]) -> tvm.IRModule:
    """The same by way of ONNX, its batch normalizations kept."""
    file = io.BytesIO()
    torch.onnx.export(
        module,
        (torch.randn(shape),),
        file,
        dynamo=False,  # the other exporter needs one more package
        do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
    )
    return from_onnx(onnx.load_from_string(file.getvalue()), keep_params_in_input=False)


MODELS: dict[str, Callable[[], tvm.IRModule]] = {
    "ResNet-18": lambda: from_torch(resnet18(), IMAGE),
    "ResNet-18 (ONNX)": lambda: through_onnx(resnet18(), IMAGE),
    "MobileNetV2": lambda: from_torch(mobilenet_v2(), IMAGE),
    "encoder": lambda: from_torch(encoder(), (1, 64, 256)),
}

HOSTS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "convnet": (convnet, (1, 3, 32, 32), 200),
    "ResNet-18, 64x64": (resnet18, (1, 3, 64, 64), 5),
    "elementwise, 64": (Elementwise, (1, 64), 500),
    "elementwise, 256k": (Elementwise, (1, 64, 64, 64), 30),
}


TVMS_CHAIN = tvm.transform.Sequential(
    [
        relax.transform.CanonicalizeBindings(),
        relax.transform.FoldBatchnormToConv2D(),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.FoldConstant(),
        relax.transform.DeadCodeElimination(),
    ]
)


def compare_regions(backend: str) -> None:
    """Print the first table."""
    print(f"{'model':<18} {backend + ' regions':>20} {'ops offloaded':>24} {'prepare':>9}  TVM's")
    for name, make in MODELS.items():
        mod = make()
        start = time.process_time()
        model = byoc.prepare(mod, backend)
        seconds = time.process_time() - start
        chain = cpu_seconds(lambda mod=mod: TVMS_CHAIN(mod))
        raw = byoc.partition(mod, backend).coverage
        ready = byoc.partition(model, backend).coverage
        regions = f"{len(raw.regions)} -> {len(ready.regions)}"
        ops = f"{raw.offloaded}/{raw.total} -> {ready.offloaded}/{ready.total}"
        print(f"{name:<18} {regions:>20} {ops:>24} {seconds:>7.3f} s  {chain:.2f} s")


def compare_host_builds() -> None:
    """Print the second table."""
    target = tvm.target.Target("llvm")
    print(f"\n{'host build':<18} {'generic':>12} {'fused':>12} {'ratio':>7}  largest difference")
    for name, (make, shape, repeats) in HOSTS.items():
        model = byoc.prepare(from_torch(make(), shape))
        x = torch.rand(shape).numpy()
        argument = tvm.runtime.tensor(x)
        fused = byoc.compile(model, "llvm").vm["main"]
        with tvm.transform.PassContext(opt_level=3):
            generic = relax.VirtualMachine(relax.build(model.mod, target), tvm.cpu())["main"]
        medians = by_turns([generic, fused], argument, repeats)
        difference = np.abs(generic(argument).numpy() - fused(argument).numpy()).max()
        before, after = (1000 * seconds for seconds in medians)
        print(
            f"{name:<18} {before:>9.4f} ms {after:>9.4f} ms {after / before:>7.2f}  "
            f"{difference:.1e}"
        )


def by_turns(calls: list[Any], argument: Any, repeats: int) -> list[float]:
    """Median CPU seconds of each call."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call(argument)
    for _ in range(repeats):
        for call, seconds in zip(calls, times, strict=True):
            seconds.append(cpu_seconds(lambda call=call: call(argument)))
    return [statistics.median(seconds) for seconds in times]


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="tensorrt", help="whose regions are counted")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of the exporters
    torch.manual_seed(0)
    compare_regions(arguments.backend)
    compare_host_builds()


if __name__ == "__main__":
    main()
