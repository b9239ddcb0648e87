"""Products, attention, normalizations and quantization, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - what everybody calls it
from tvm import relax
from tvm.relax import op

pytestmark = pytest.mark.byoc("openvino")

RNG = np.random.default_rng(15)
X = RNG.normal(size=(2, 3, 5)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 6, 4, 5)).astype(np.float32)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


PRODUCTS = [
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((5, 1, 3, 4), (2, 4, 6)),
    ((2, 1, 4), (4,)),
]


@pytest.mark.parametrize("shapes", PRODUCTS)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_matmul_broadcasts(check: Any, shapes: tuple[tuple[int, ...], ...], dtype: str) -> None:
    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x.float(), y.float()).to(x.dtype)

    check(op.matmul, reference, *(floats(*shape, dtype=dtype) for shape in shapes))


def test_matmul_of_symbolic_sizes(check: Any) -> None:
    shapes = [("n", "m", 5), ("n", 5, 4)]
    check(op.matmul, torch.matmul, X, floats(2, 5, 4), shapes=shapes)


def test_matmul_of_integers_is_refused(check: Any) -> None:
    reason = check.refusal(op.matmul, ((3, 4), "int32"), ((4, 5), "int32"))
    assert "multiplies matrices of integers as float32" in reason


def test_matmul_to_another_dtype_is_refused(check: Any) -> None:
    inputs = ((3, 4), "float16"), ((4, 5), "float16")
    reason = check.refusal(lambda x, y: op.matmul(x, y, out_dtype="float32"), *inputs)
    assert "float16 and float32" in reason


def test_outer(check: Any) -> None:
    check(op.outer, torch.outer, floats(3), floats(4))


EQUATIONS = {
    "ij,jk->ik": ((3, 4), (4, 5)),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bhid,bhjd->bhij": ((2, 2, 3, 4), (2, 2, 5, 4)),
    "i,j->ij": ((3,), (4,)),
    "ij->ji": ((3, 4),),
    "ij->i": ((3, 4),),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "ij,ij->": ((3, 4), (3, 4)),
    "bi, bi -> b": ((3, 4), (3, 4)),
    "ij,jk": ((3, 4), (4, 5)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(check: Any, equation: str) -> None:
    check(
        lambda *x: op.einsum(list(x), equation),
        lambda *x: torch.einsum(equation, *x),
        *(floats(*shape) for shape in EQUATIONS[equation]),
    )


def heads_first(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2)


ATTENTION: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "scaled": ({"scale": 0.3}, {"scale": 0.3}),
    "causal": ({"causal_mask": "TopLeft"}, {"is_causal": True}),
}


@pytest.mark.parametrize("name", ATTENTION)
@pytest.mark.parametrize("symbolic", [False, True])
def test_attention(check: Any, name: str, symbolic: bool) -> None:
    ours, theirs = ATTENTION[name]
    check(
        lambda q, k, v: op.nn.attention(q, k, v, **ours),
        lambda q, k, v: heads_first(
            F.scaled_dot_product_attention(*map(heads_first, (q, k, v)), **theirs)
        ),
        *(floats(2, length, 3, 4) for length in (5, 6, 6)),
        shapes=[("n", length, 3, 4) for length in "mkk"] if symbolic else None,
    )


def test_attention_with_a_bias(check: Any) -> None:
    check(
        op.nn.attention,
        lambda q, k, v, bias: heads_first(
            F.scaled_dot_product_attention(*map(heads_first, (q, k, v)), bias)
        ),
        *(floats(2, length, 3, 4) for length in (5, 6, 6)),
        floats(2, 3, 5, 6),
    )


def test_attention_masked_from_the_end_is_taken_for_equal_lengths_only(check: Any) -> None:
    def make(q: Any, k: Any, v: Any) -> Any:
        return op.nn.attention(q, k, v, causal_mask="BottomRight")

    def reference(*x: torch.Tensor) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(*map(heads_first, x), is_causal=True)
        return heads_first(attended)

    check(make, reference, *(floats(2, 5, 3, 4) for _ in range(3)))
    inputs = [((2, length, 3, 4), "float32") for length in (5, 6, 6)]
    assert "bottom right" in check.refusal(make, *inputs)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_layer_norm(check: Any, dtype: str) -> None:
    for count in (1, 2):
        shape = X.shape[-count:]

        def reference(*x: torch.Tensor, shape: Any = shape) -> torch.Tensor:
            data, gamma, beta = (part.float() for part in x)
            return F.layer_norm(data, shape, gamma, beta).to(x[0].dtype)

        check(
            lambda x, g, b, n=count: op.nn.layer_norm(x, g, b, list(range(-n, 0))),
            reference,
            X.astype(dtype),
            floats(*shape, dtype=dtype),
            floats(*shape, dtype=dtype),
        )


def test_layer_norm_without_scale_or_center(check: Any) -> None:
    check(
        lambda x, g, b: op.nn.layer_norm(x, g, b, [-1], center=False),
        lambda x, g, _: F.layer_norm(x, (5,), g),
        X,
        floats(5),
        floats(5),
    )


def test_layer_norm_of_other_axes_is_refused(check: Any) -> None:
    inputs = ((2, 3, 5), "float32"), ((3,), "float32"), ((3,), "float32")
    reason = check.refusal(lambda x, g, b: op.nn.layer_norm(x, g, b, [1]), *inputs)
    assert "takes the last ones" in reason


def test_rms_norm(check: Any) -> None:
    check(
        lambda x, w: op.nn.rms_norm(x, w, [-1], 1e-5),
        lambda x, w: F.rms_norm(x, (5,), w, 1e-5),
        X,
        floats(5),
    )


def test_instance_norm(check: Any) -> None:
    check(
        lambda x, g, b: op.nn.instance_norm(x, g, b, 1, [2, 3]),
        lambda x, g, b: F.instance_norm(x, None, None, g, b),
        IMAGE,
        floats(6),
        floats(6),
    )


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_group_norm(check: Any, groups: int) -> None:
    for shape in ((2, 6, 7), (2, 6, 4, 5)):
        axes = list(range(2, len(shape)))
        check(
            lambda x, g, b, a=axes: op.nn.group_norm(x, g, b, groups, 1, a),
            lambda x, g, b: F.group_norm(x, groups, g, b),
            floats(*shape),
            floats(6),
            floats(6),
        )


def test_batch_norm_gives_its_statistics_too(check: Any) -> None:
    check(
        lambda x, *rest: op.nn.batch_norm(x, *rest, 1, 1e-4, training=False),
        lambda x, g, b, m, v: (F.batch_norm(x, m, v, g, b, eps=1e-4), m, v),
        IMAGE,
        *(floats(6) for _ in range(3)),
        np.abs(floats(6)),
    )


def test_batch_norm_in_training_mode_is_refused(check: Any) -> None:
    inputs = ((2, 6, 4, 5), "float32"), *[((6,), "float32")] * 4
    reason = check.refusal(lambda x, *rest: op.nn.batch_norm(x, *rest, 1, training=True), *inputs)
    assert "in training mode" in reason


QUANTIZED = ["int8", "uint8"]


@pytest.mark.parametrize("dtype", QUANTIZED)
@pytest.mark.parametrize("axis", [None, 1, -1])
def test_quantization(check: Any, dtype: str, axis: int | None) -> None:
    info = np.iinfo(dtype)
    count = 1 if axis is None else X.shape[axis]
    scales = np.linspace(0.02, 0.3, count, dtype=np.float32)
    zeros = np.linspace(info.min / 3, info.max / 3, count).astype(dtype)
    scale, zero = (scales[0], zeros[0]) if axis is None else (scales, zeros)
    shape = [1, 1, 1]
    if axis is not None:
        shape[axis] = count
    s, z = scales.reshape(shape), zeros.reshape(shape).astype(np.float32)

    def steps(x: torch.Tensor) -> torch.Tensor:
        found = np.clip(np.round(x.numpy() / s) + z, info.min, info.max)
        return torch.from_numpy(found.astype(dtype))

    def quantized(x: Any) -> Any:
        return op.quantize(x, relax.const(scale), relax.const(zero, dtype), axis or -1, dtype)

    def restored(x: Any) -> Any:
        return op.dequantize(x, relax.const(scale), relax.const(zero, dtype), axis or -1, "float32")

    check(quantized, steps, X * 5)
    check(
        restored,
        lambda x: torch.from_numpy((x.numpy().astype(np.float32) - z) * s),
        steps(torch.from_numpy(X * 5)).numpy(),
    )
