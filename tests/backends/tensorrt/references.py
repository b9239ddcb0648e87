"""NumPy and ONNX Runtime where PyTorch has no such function."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from torch.nn import functional

Pairs = Sequence[tuple[int, int]]


def padded(x: torch.Tensor, pairs: Pairs, value: float = 0.0) -> torch.Tensor:
    """With elements before and behind the last axes."""
    return functional.pad(x, [n for pair in reversed(pairs) for n in pair], value=value)


def pairs_of(padding: Sequence[int]) -> list[tuple[int, int]]:
    """From Relax's order: all that is before, then all that is behind."""
    half = len(padding) // 2
    return list(zip(padding[:half], padding[half:], strict=True))


def convolution(
    x: torch.Tensor,
    kernel: torch.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """PyTorch's, with padding on each side."""
    conv = (functional.conv1d, functional.conv2d, functional.conv3d)[len(strides) - 1]
    x = padded(x, pairs_of(padding))
    return conv(x, kernel, None, tuple(strides), 0, tuple(dilation), groups)


def transposed(
    x: torch.Tensor,
    kernel: torch.Tensor,
    *,
    strides: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """Each element spreads the kernel; the padding is cut off, less of it at the end."""
    batch, channels, *sizes = x.shape
    _, maps, *window = kernel.shape
    full = [(n - 1) * step + width for n, step, width in zip(sizes, strides, window, strict=True)]
    grown = [n + more for n, more in zip(full, output_padding, strict=True)]
    y = torch.zeros(batch, maps * groups, *grown)
    each = channels // groups
    for at in itertools.product(*map(range, sizes)):
        spans = zip(at, strides, window, strict=True)
        place = tuple(slice(n * step, n * step + width) for n, step, width in spans)
        for group in range(groups):
            inputs = x[(slice(None), slice(group * each, (group + 1) * each), *at)]
            part = torch.einsum(
                "ni,io...->no...", inputs, kernel[group * each : (group + 1) * each]
            )
            y[(slice(None), slice(group * maps, (group + 1) * maps), *place)] += part
    for axis, (before, behind) in enumerate(pairs_of(padding), 2):
        y = y.narrow(axis, before, y.shape[axis] - before - behind)
    return y


def pool(
    x: torch.Tensor,
    kind: str,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> torch.Tensor:
    """Window by window; one that begins behind the data and its first padding is none."""
    sizes, pairs = x.shape[2:], pairs_of(padding)
    counts = []
    for size, width, step, (before, behind) in zip(sizes, window, strides, pairs, strict=True):
        room = size + before + behind - width
        count = (-(-room // step) if ceil_mode else room // step) + 1
        counts.append(count - (ceil_mode and (count - 1) * step >= size + before))
    y = torch.empty(*x.shape[:2], *counts)
    for at in itertools.product(*map(range, counts)):
        spans, number = [], 1
        for n, size, width, step, (before, behind) in zip(
            at, sizes, window, strides, pairs, strict=True
        ):
            begin = n * step - before
            spans.append(slice(max(begin, 0), min(begin + width, size)))
            number *= min(begin + width, size + behind) - begin
        part = x[(slice(None), slice(None), *spans)].flatten(2)
        if kind == "max":
            y[(slice(None), slice(None), *at)] = part.amax(2)
        else:
            divisor = number if count_include_pad else part.shape[2]
            y[(slice(None), slice(None), *at)] = part.sum(2) / divisor
    return y


def onnx_node(
    op_type: str, constants: Sequence[np.ndarray | None], **attributes: Any
) -> Callable[..., Any]:
    """A function that runs one node of ONNX on a tensor, with constants as further inputs."""

    def run(x: torch.Tensor) -> np.ndarray:
        names = ["x", *("" if c is None else f"c{n}" for n, c in enumerate(constants))]
        node = helper.make_node(op_type, names, ["y"], **attributes)
        graph = helper.make_graph(
            [node],
            "node",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [
                onnx.numpy_helper.from_array(c, f"c{n}")
                for n, c in enumerate(constants)
                if c is not None
            ],
        )
        opset = helper.make_opsetid("", 18)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=9)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return session.run(None, {"x": x.numpy()})[0]

    return run
