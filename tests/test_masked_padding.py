"""Padding that inputs mask: tried when the model is built, and refused where results change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit import building
from tvm_byoc_kit.errors import ModelError

Make = Callable[..., Any]
Array = np.ndarray
RNG = np.random.default_rng(0)
npu = pytest.mark.byoc("example_npu", step="runtime")


def pooled(make_module: Make, used: bool = True) -> Any:
    """The mean of ``x[n, seq]`` over what the mask is 1 at, and ``x`` itself."""

    def body(x: Any, mask: Any) -> Any:
        chosen = op.multiply(x, mask) if used else x
        return op.divide(op.sum(chosen, 1), op.sum(mask, 1)), op.nn.relu(x)

    shape = (("n", "seq"), "float32")
    return make_module({"x": shape, "mask": shape}, body)


def masked(*sizes: int, **choices: Any) -> dict[str, byoc.Buckets]:
    return {"seq": byoc.Buckets(*sizes, pad={"mask": 0}, **choices)}


@pytest.mark.parametrize("backend", ["llvm", pytest.param("example_npu", marks=npu)])
@pytest.mark.parametrize("fallback", [None, "symbolic"])
def test_a_model_that_masks_is_padded_and_not_split(
    make_module: Make, backend: str, fallback: Any
) -> None:
    exe = byoc.compile(pooled(make_module), backend, sizes=masked(4, 8, fallback=fallback))
    dimension = exe.manifest.variants.dimensions["seq"]
    assert (dimension.pad, dimension.split, dict(dimension.fill)) == (True, False, {"mask": 0})
    for size in (1, 4, 6):
        x = RNG.standard_normal((3, size), dtype=np.float32)
        mean, rest = exe(x, np.ones_like(x))
        np.testing.assert_allclose(mean, x.mean(1), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(rest, np.maximum(x, 0))


@pytest.mark.parametrize("backend", ["llvm", pytest.param("example_npu", marks=npu)])
@pytest.mark.parametrize("fallback", [None, "symbolic"])
def test_a_model_that_does_not_mask_is_refused(
    make_module: Make, backend: str, fallback: Any
) -> None:
    wanted = r"output 'output_0' changes by [\d.e+]+ where 'seq' is padded from 5 to 8"
    with pytest.raises(ModelError, match=wanted):
        byoc.compile(pooled(make_module, used=False), backend, sizes=masked(8, fallback=fallback))


def test_a_mask_that_is_filled_with_another_number_is_refused(make_module: Make) -> None:
    sizes = {"seq": byoc.Buckets(8, pad={"mask": 1})}
    with pytest.raises(ModelError, match="output 'output_0' changes"):
        byoc.compile(pooled(make_module), "llvm", sizes=sizes)


def test_a_mask_of_added_infinities(make_module: Make) -> None:
    def body(x: Any, mask: Any) -> Any:
        return op.sum(op.multiply(op.nn.softmax(op.add(x, mask)), x), 1)

    shape = (("n", "seq"), "float32")
    mod = make_module({"x": shape, "mask": shape}, body)
    sizes = {"seq": byoc.Buckets(8, pad={"mask": -1e9})}
    exe = byoc.compile(mod, "llvm", batch=byoc.Buckets(1, 2), sizes=sizes)
    x = RNG.standard_normal((3, 5), dtype=np.float32)
    weights = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    result = exe(x, np.zeros_like(x))
    np.testing.assert_allclose(result, (weights * x).sum(1), rtol=1e-5, atol=1e-6)


def test_integers_are_masked_too(make_module: Make) -> None:
    def body(ids: Any, mask: Any) -> Any:
        return op.sum(op.multiply(ids, mask), 1)

    shape = (("n", "seq"), "int64")
    exe = byoc.compile(make_module({"ids": shape, "mask": shape}, body), "llvm", sizes=masked(8))
    ids = RNG.integers(0, 9, (2, 5))
    np.testing.assert_array_equal(exe(ids, np.ones_like(ids)), ids.sum(1))


@npu
@pytest.mark.parametrize("used", [True, False])
def test_where_the_backend_cannot_run_it_is_tried_on_the_host(
    make_module: Make, used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    npu = byoc.get_backend("example_npu")
    backend = replace(npu, requires={**npu.requires, "device": ("runtime:not_here",)})
    hosts = []
    real = building.compile

    def compile_seen(model: Any, name: Any, **choices: Any) -> Any:
        hosts.append(name)
        return real(model, name, **choices)

    monkeypatch.setattr(building, "compile", compile_seen)
    model = pooled(make_module, used)
    if used:
        real(model, backend, sizes=masked(8))
    else:
        with pytest.raises(ModelError, match="output 'output_0' changes"):
            real(model, backend, sizes=masked(8))
    assert hosts == ["llvm"]


def test_the_smallest_bucket_alone_has_nothing_to_try(make_module: Make) -> None:
    exe = byoc.compile(pooled(make_module, used=False), "llvm", sizes=masked(1))
    x = np.ones((2, 1), np.float32)
    np.testing.assert_array_equal(exe(x, x)[0], [1, 1])
