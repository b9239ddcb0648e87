#!/usr/bin/env python3
"""CPU time of the example NPU's simulator against TVM's own host build of the same model.

The model is ResNet-18 with random weights at batch 1 (224 x 224 unless --size says otherwise). Both
builds run in one process, one thread each, by turns; the medians of the process CPU time of a call
and their ratio are printed, and how far the two results are apart.

Example: python scripts/bench_simulator.py --repeat 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

# Before TVM starts its threads: a spinning pool would count as CPU time.
os.environ["TVM_NUM_THREADS"] = "1"
os.environ["TVM_THREAD_POOL_SPIN_COUNT"] = "0"

import numpy as np
import torch
from torch import nn

import tvm_byoc_kit as byoc

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels and stride of two blocks each


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block of He et al., figure 2, with the last ReLU after the addition."""
        return self.relu(self.body(x) + self.shortcut(x))


def resnet18() -> nn.Module:
    """ResNet-18 (He et al., 2015) with random weights, ready for inference."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    inputs = 64
    for outputs, stride in STAGES:
        layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers).eval()


def cpu_seconds(call: Callable[[], Any]) -> float:
    """CPU time of the process, all threads, during one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Build both, run them by turns, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5, help="timed calls of each build")
    parser.add_argument("--size", type=int, default=224, help="height and width of the image")
    arguments = parser.parse_args()

    image = torch.rand(1, 3, arguments.size, arguments.size)
    model = byoc.load_model(resnet18(), (image,))
    partition = byoc.partition(model, "example_npu")
    builds = {
        "example NPU simulator": byoc.build(partition),
        "TVM llvm": byoc.compile(model, "llvm"),
    }
    regions = sum("Codegen" in (f.attrs or {}) for f in partition.mod.functions.values())
    print(f"ResNet-18, float32[1, 3, {arguments.size}, {arguments.size}], {regions} NPU regions")

    results = {name: exe(image.numpy()) for name, exe in builds.items()}  # also warms up
    times: dict[str, list[float]] = {name: [] for name in builds}
    for _ in range(arguments.repeat):
        for name, exe in builds.items():
            times[name].append(cpu_seconds(lambda exe=exe: exe(image.numpy())))

    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    for name, median in medians.items():
        print(f"{name:>22}: {median:8.4f} s process CPU (median of {arguments.repeat})")
    npu, host = medians.values()
    print(f"{'ratio':>22}: {npu / host:8.4f} (the simulator must not exceed 1.0)")
    first, second = results.values()
    print(f"{'largest difference':>22}: {np.abs(first - second).max():.2e}")


if __name__ == "__main__":
    main()
