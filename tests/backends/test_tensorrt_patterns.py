"""TensorRT's table: upstream's where upstream has one, and the kit's additions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from tvm import relax
from tvm.ir import Op
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt import BACKEND
from tvm_byoc_kit.backends.tensorrt.patterns import EXTENSIONS, tensorrt_patterns
from tvm_byoc_kit.backends.tensorrt.quantization import quantization_patterns
from tvm_byoc_kit.region_names import name_regions

op = relax.op
nn = op.nn


def const(*shape: int) -> Any:
    return relax.const(np.random.default_rng(0).standard_normal(shape, "float32"))


def convnet(x: Any) -> Any:
    y = nn.relu(op.add(nn.conv2d(x, const(8, 3, 3, 3), padding=1), const(8, 1, 1)))
    y = op.add(y, nn.conv2d(nn.max_pool2d(y, 3, padding=1), const(8, 8, 1, 1)))
    return nn.softmax(op.matmul(op.reshape(op.mean(y, [2, 3]), (2, 8)), const(8, 4)))


def transformer(x: Any) -> Any:
    y = nn.layer_norm(op.reshape(x, (2, 3, 256)), const(256), const(256), [-1])
    scores = op.matmul(y, op.permute_dims(y, [0, 2, 1]))
    attended = op.matmul(nn.softmax(op.divide(scores, relax.const(16.0, "float32"))), y)
    return op.concat([nn.silu(op.add(y, attended)), op.tanh(y)], 2)


def pieces(x: Any) -> Any:
    parts = op.split(x, 3, 1)
    first, last = relax.TupleGetItem(parts, 0), relax.TupleGetItem(parts, 2)
    return op.clip(op.multiply(op.exp(first), op.strided_slice(last, [2], [0], [16])), 0, 6)


def around_the_host(x: Any) -> Any:
    """One region on each side of an op that neither table has."""
    return op.sum(op.sqrt(op.sort(op.abs(x), 3)), [1])


MODELS: dict[str, Callable[[Any], Any]] = {
    "convnet": convnet,
    "transformer": transformer,
    "pieces": pieces,
    "around the host": around_the_host,
}


@pytest.mark.parametrize("name", MODELS)
def test_upstreams_ops_are_partitioned_as_upstream_does(make_module: Any, name: str) -> None:
    mod = make_module({"x": ((2, 3, 16, 16), "float32")}, MODELS[name])
    ours = byoc.partition(mod, "tensorrt").mod
    assert tvm_ffi.structural_equal(ours, name_regions(partition_for_tensorrt(mod), mod))
    assert len(byoc.partition(mod, "tensorrt").coverage.regions) == 1 + (name == "around the host")


def test_upstreams_own_table_is_not_changed() -> None:
    before = [pattern.name for pattern in get_patterns_with_prefix("tensorrt")]
    ours = [pattern.name for pattern in tensorrt_patterns()]
    assert [pattern.name for pattern in get_patterns_with_prefix("tensorrt")] == before
    quantized = [pattern.name for pattern in quantization_patterns("tensorrt.")]
    assert ours == [*quantized, *before, *(f"tensorrt.{name}" for name in EXTENSIONS)]


def test_a_name_that_upstream_has_stays_upstreams(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a later release has a pattern of its own for one of the additions."""
    upstream = get_patterns_with_prefix("tensorrt.")
    theirs = relax.transform.FusionPattern("tensorrt.nn.gelu", upstream[0].pattern)
    monkeypatch.setattr(
        "tvm.relax.backend.pattern_registry.get_patterns_with_prefix",
        lambda _prefix: [theirs, *upstream],
    )
    named = [pattern for pattern in tensorrt_patterns() if pattern.name == "tensorrt.nn.gelu"]
    assert len(named) == 1
    assert named[0].same_as(theirs)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_the_additions_are_ops_of_relax_with_that_many_operands(name: str) -> None:
    assert Op.get(f"relax.{name}").num_inputs == EXTENSIONS[name]


# Per addition a call that is taken, on float32[2, 4, 8, 8] data.
CHAIN: dict[str, Callable[[Any], Any]] = {
    "unary": lambda x: op.rsqrt(op.square(op.round(op.sign(nn.selu(nn.softplus(x)))))),
    "trigonometry": lambda x: op.acosh(op.cosh(op.sinh(op.atanh(op.tan(op.asin(op.acos(x))))))),
    "activations": lambda x: nn.leakyrelu(nn.gelu(nn.gelu_tanh(nn.prelu(x, const(4), 1)))),
    "norms": lambda x: nn.rms_norm(
        nn.instance_norm(
            nn.group_norm(nn.log_softmax(x), const(4), const(4), 2, 1, [2, 3]),
            const(4),
            const(4),
            1,
            [2, 3],
        ),
        const(8),
        [-1],
    ),
    "batch_norm": lambda x: nn.relu(
        relax.TupleGetItem(nn.batch_norm(nn.relu(x), *[const(4)] * 4, axis=1, training=False), 0)
    ),
    "split": lambda x: nn.relu(relax.TupleGetItem(op.split(nn.relu(x), 2, 1), 1)),
    "logic": lambda x: op.where(
        op.logical_and(op.logical_not(op.isnan(x)), op.less_equal(x, op.negative(x))),
        x,
        op.astype(op.not_equal(x, const(1)), "float32"),
    ),
    "moves": lambda x: op.flip(
        op.repeat(
            op.tile(nn.pad(nn.pixel_shuffle(x, 2), (0, 0, 0, 0, 1, 1, 0, 2)), (1, 2, 1, 1)), 2, 3
        ),
        2,
    ),
    "gathers": lambda x: op.take(
        op.stack([x, op.cumsum(x, 1)], 1), relax.const(np.array([3, 1]), "int64"), 3
    ),
    "attention": lambda x: nn.attention(x, x, nn.gelu(x)),
    "one dimension": lambda x: nn.conv1d_transpose(
        nn.avg_pool1d(nn.max_pool1d(op.reshape(x, (2, 4, 64)), 2, 2), 2, 2), const(4, 4, 3)
    ),
    "statistics": lambda x: op.divide(
        op.subtract(x, op.mean(x, [1], keepdims=True)), op.std(x, [1], keepdims=True)
    ),
    "broadcast": lambda x: op.add(op.broadcast_to(op.max(x, [2], keepdims=True), (2, 4, 8, 8)), x),
}


@pytest.mark.parametrize("name", CHAIN)
def test_neighbours_of_the_additions_are_one_region(make_module: Any, name: str) -> None:
    mod = make_module({"x": ((2, 4, 8, 8), "float32")}, CHAIN[name])
    coverage = byoc.partition(mod, BACKEND).coverage
    assert [entry.op for entry in coverage.ops if entry.region is None] == []
    assert len(coverage.regions) == 1
