#!/usr/bin/env python3
"""TensorRT and several batch sizes: one engine with profiles against an engine for each size.

Builds for compute capability 8.9 by TensorRT-RTX, on a machine without a GPU; runs nothing.

Example: python scripts/bench_tensorrt_profiles.py
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from bench_simulator import resnet18
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit import Buckets, Profile

SIZES = (1, 4, 8, 16)
OPTIONS = {"compute_capabilities": [89], "progress": False}


def encoder() -> nn.Module:
    """Six layers as BERT has them, half as wide."""
    layer = nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)


MODELS = {"ResNet-18": (resnet18, (3, 224, 224)), "encoder": (encoder, (64, 384))}


def different(model: nn.Module) -> nn.Module:
    """With weights that differ from layer to layer: equal ones would be stored once."""
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.02)
    return model.eval()


def built(models: Sequence[Any], **sizes: Any) -> tuple[int, float]:
    """Bytes of the artifacts, and seconds to compile them."""
    start, size = time.perf_counter(), 0
    for model in models:
        executable = byoc.compile(model, "tensorrt", options=OPTIONS, **sizes)
        with tempfile.TemporaryDirectory() as folder:
            executable.export(path := Path(folder, "model.so"))
            size += path.stat().st_size
    return size, time.perf_counter() - start


def main() -> None:
    """Print a table."""
    torch.manual_seed(0)
    print("| model | weights | build | artifacts | compile |\n|---|---|---|---|---|")
    for name, (make, shape) in MODELS.items():
        model = different(make())
        weights = sum(value.nbytes for value in model.parameters())
        dims = ({0: torch.export.Dim("batch", min=1, max=64)},)
        opened = [byoc.load_model(model, (torch.randn(2, *shape),), dynamic_shapes=dims)]
        fixed = [byoc.load_model(model, (torch.randn(size, *shape),)) for size in SIZES]
        for build, (size, seconds) in {
            "one profile, 1 to 16": built(opened, batch=Profile(1, 8, 16)),
            f"`Buckets{SIZES}`: four profiles": built(opened, batch=Buckets(*SIZES)),
            "four artifacts of one size each": built(fixed),
        }.items():
            print(
                f"| {name} | {weights / 1e6:.1f} MB | {build} | {size / 1e6:.1f} MB "
                f"| {seconds:.1f} s |"
            )


if __name__ == "__main__":
    main()
