"""Calls that are padded, split, cut and joined give what the model gives for the true rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import transfers
from tvm_byoc_kit.errors import InputError, ModelError, OptionError
from tvm_byoc_kit.variants import OpenDimension, Variant, Variants

Array = np.ndarray
BATCH = OpenDimension(pad=True, split=True)
BACKENDS = [
    "llvm",
    pytest.param("example_npu", marks=pytest.mark.byoc("example_npu")),
    pytest.param("openvino", marks=pytest.mark.byoc("openvino")),
]


def rows(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def claim(exe: byoc.Executable, *builds: Variant, **dimensions: OpenDimension) -> byoc.Executable:
    """`exe`, whose one open build is said to be several; each runs at the sizes that it names."""
    manifest = replace(exe.manifest, variants=Variants(builds, dimensions))
    return byoc.Executable(exe._built, manifest, exe.model)


def buckets(exe: byoc.Executable, *sizes: int) -> byoc.Executable:
    """`exe` with the symbol ``n`` in buckets."""
    entry = exe.manifest.entry
    return claim(exe, *(Variant(entry, {"n": size}) for size in sizes), n=BATCH)


# What becomes of the rows


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 7, 8, 11, 30])
def test_every_row_is_there_whatever_the_plan(
    host_exe: byoc.Executable, two_outputs_numpy: Callable[..., Any], batch: int
) -> None:
    exe = buckets(host_exe, 2, 8)
    x, y = rows(batch, 4), rows(batch, 3, seed=1)
    got = exe.run({"y": y, "x": x})
    assert list(got) == ["output_0", "output_1"]
    for mine, theirs in zip(got.values(), two_outputs_numpy(x, y), strict=True):
        assert mine.flags.c_contiguous
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def shapes_exe(make_module: Any) -> byoc.Executable:
    """``x[n, h, 4]`` in four shapes; and what has no batch, and the input itself."""

    def body(x: Any) -> Any:
        n, h, _ = x.ty.shape
        flat = relax.op.reshape(x, (n * h, 4))
        halves = relax.op.reshape(x, (n * 2, h * 2))
        turned = relax.op.permute_dims(x, (1, 0, 2))
        constant = relax.op.add(relax.const(np.arange(3, dtype="float32")), relax.const(1.0))
        return x, flat, halves, turned, constant

    return byoc.compile(make_module({"x": (("n", "h", 4), "float32")}, body), "llvm")


@pytest.mark.parametrize("batch", [1, 3, 4, 7, 9])
def test_outputs_are_cut_and_joined_along_what_the_batch_became(
    shapes_exe: byoc.Executable, batch: int
) -> None:
    x = rows(batch, 5, 4)
    same, flat, halves, turned, constant = buckets(shapes_exe, 4)(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(flat, x.reshape(-1, 4))
    np.testing.assert_array_equal(halves, x.reshape(batch * 2, 10))
    np.testing.assert_array_equal(turned, x.transpose(1, 0, 2))
    np.testing.assert_array_equal(constant, np.arange(3, dtype="float32") + 1)


@pytest.mark.parametrize("batch", [4, 11])
def test_the_open_build_is_split_where_it_has_an_end(
    shapes_exe: byoc.Executable, batch: int
) -> None:
    exe = claim(shapes_exe, Variant("main"), n=OpenDimension(split=True, largest=4))
    x = rows(batch, 3, 4)
    for mine, theirs in zip(exe(x)[:2], (x, x.reshape(-1, 4)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_two_dimensions_are_padded_and_cut_at_once(shapes_exe: byoc.Executable) -> None:
    exe = claim(shapes_exe, Variant("main", {"n": 4, "h": 8}), n=BATCH, h=OpenDimension(pad=True))
    x = rows(6, 5, 4)
    same, *_, turned, _ = exe(x)
    np.testing.assert_array_equal(same, x)
    np.testing.assert_array_equal(turned, x.transpose(1, 0, 2))


def test_padding_repeats_the_last_row_or_is_what_was_declared(make_module: Any) -> None:
    def body(x: Any, mask: Any) -> Any:
        return relax.op.sum(x, axis=[1]), relax.op.sum(mask, axis=[1])

    params = {"x": (("n", "seq"), "float32"), "mask": (("n", "seq"), "float32")}
    exe = byoc.compile(make_module(params, body), "llvm")
    dimension = OpenDimension(pad=True, fill={"mask": 0.5})
    exe = claim(exe, Variant("main", {"seq": 8}), n=OpenDimension(), seq=dimension)
    x, mask = rows(2, 5), rows(2, 5, seed=1)
    sums = exe(x, mask)
    np.testing.assert_allclose(sums[0], x.sum(1) + 3 * x[:, -1], rtol=1e-5)
    np.testing.assert_allclose(sums[1], mask.sum(1) + 3 * 0.5, rtol=1e-5)


def test_results_of_one_call_stay_when_the_next_comes(shapes_exe: byoc.Executable) -> None:
    exe = buckets(shapes_exe, 4)
    x = rows(3, 5, 4)
    first = exe(x)[0]
    exe(rows(3, 5, 4, seed=1))
    np.testing.assert_array_equal(first, x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64", "uint8", "bool"])
def test_any_dtype_is_padded_and_split(make_module: Any, dtype: str) -> None:
    module = make_module({"x": (("n", 3), dtype)}, relax.op.permute_dims)
    exe = buckets(byoc.compile(module, "llvm"), 2, 4)
    x = np.asarray(rows(7, 3) * 4).astype(np.dtype(dtype))
    np.testing.assert_array_equal(exe(x), x.T)


def test_a_layout_of_its_own_and_a_dlpack_tensor_give_the_same(
    shapes_exe: byoc.Executable,
) -> None:
    exe = buckets(shapes_exe, 4)
    x = rows(6, 5, 4)
    for form in (np.asfortranarray(x), torch.from_numpy(x), tvm.runtime.tensor(x), x[::-1][::-1]):
        np.testing.assert_array_equal(exe(form)[0], x)


def test_threads_with_different_sizes_do_not_meet(
    host_exe: byoc.Executable, two_outputs_numpy: Callable[..., Any]
) -> None:
    exe = buckets(host_exe, 2, 8)

    def calls(batch: int) -> None:
        for seed in range(40):
            x, y = rows(batch, 4, seed=seed), rows(batch, 3, seed=seed + 1)
            for mine, theirs in zip(exe(x, y), two_outputs_numpy(x, y), strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(calls, (1, 2, 3, 5, 8, 9, 13, 17)))


# What is refused


def test_inputs_that_do_not_fit_are_refused_as_ever(host_exe: byoc.Executable) -> None:
    exe = buckets(host_exe, 2, 8)
    with pytest.raises(InputError, match=r"input 'y' .* must be 5, as 'n' is in input 'x'"):
        exe(rows(5, 4), rows(4, 3))
    with pytest.raises(InputError, match="is float64, expected float32"):
        exe(rows(5, 4).astype("float64"), rows(5, 3))
    with pytest.raises(InputError, match="expected rank 2"):
        exe(rows(5, 4, 1), rows(5, 3))
    with pytest.raises(InputError, match="missing: y"):
        exe.run({"x": rows(5, 4)})


def test_no_row_is_refused_unless_a_build_leaves_the_batch_open(host_exe: byoc.Executable) -> None:
    with pytest.raises(InputError, match="takes n=0"):
        buckets(host_exe, 2)(rows(0, 4), rows(0, 3))
    exe = claim(host_exe, Variant("main"), Variant("main", {"n": 2}), n=BATCH)
    assert [output.shape for output in exe(rows(0, 4), rows(0, 3))] == [(0, 3), (0, 3)]


def test_a_build_that_is_not_there_is_an_error_of_the_model(host_exe: byoc.Executable) -> None:
    with pytest.raises(ModelError, match="failed while it ran"):
        claim(host_exe, Variant("gone", {"n": 2}), n=BATCH)(rows(2, 4), rows(2, 3))


# Padding never leaks: NaN in its place changes nothing


class Attention(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(x).split(8, -1)
        return torch.softmax(query @ key.transpose(1, 2) / 8**0.5, -1) @ value


class Convolution(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.inner(x)
        return torch.nn.functional.max_pool2d(y, 2), y.mean((2, 3))


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "convolution, pooling": (Convolution, (3, 8, 8)),
    "softmax": (lambda: torch.nn.Softmax(-1), (5,)),
    "layer_norm": (lambda: torch.nn.LayerNorm(6), (3, 6)),
    "attention": (Attention, (4, 8)),
}


@pytest.fixture
def nan_padding(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """NaN where padding is; gives how often something was padded."""
    padded: list[int] = []

    def pad(memory: Array, axis: int, size: int, _value: float | None) -> None:
        assert axis == 0
        memory[size:] = np.nan
        padded.append(len(memory) - size)

    monkeypatch.setattr(transfers, "pad", pad)
    return padded


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODELS)
def test_nothing_of_the_padding_is_in_the_results(
    name: str, backend: str, nan_padding: list[int]
) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(3)
    model = make().eval()
    example = torch.randn(2, *shape)
    dim = torch.export.Dim("batch", min=1, max=64)
    imported = byoc.load_model(model, (example,), dynamic_shapes=({0: dim},))
    exe = byoc.compile(imported, backend, batch=byoc.Buckets(4))
    for batch in (1, 3, 6):
        x = torch.randn(batch, *shape)
        with torch.no_grad():
            expected = model(x)
        expected = expected if isinstance(expected, tuple) else (expected,)
        nan_padding.clear()
        got = exe.run({exe.inputs[0].name: x.numpy()})
        assert nan_padding
        for mine, theirs in zip(got.values(), expected, strict=True):
            np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_of_the_padding_is_in_the_results_of_an_onnx_model(
    dynamic_onnx_proto: Any, backend: str, nan_padding: list[int]
) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(dynamic_onnx_proto.SerializeToString())
    exe = byoc.compile(dynamic_onnx_proto, backend, batch=byoc.Buckets(2, 4))
    for batch in (1, 3, 5):
        x = rows(batch, 4)
        expected = session.run(None, {"input.1": x})
        for mine, theirs in zip(exe(x), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)
    assert nan_padding


# Asking, measuring


@pytest.fixture(scope="module")
def measured(host_exe: byoc.Executable) -> byoc.Executable:
    exe = claim(host_exe, Variant("main"), Variant("main", {"n": 2}), n=BATCH)
    exe.measure(600.0)  # far more than all its rounds take
    return exe


def test_a_plan_can_be_asked_for(host_exe: byoc.Executable) -> None:
    exe = buckets(host_exe, 1, 4)
    assert str(exe.plan({"batch": 5})) == "2 calls: main rows 0-3, main row 4"
    assert exe.plan({"n": 5}) == exe.plan({"batch": 5})
    with pytest.raises(OptionError, match="unknown dimension 'rows'; open are: n"):
        exe.plan({"rows": 5})


def test_one_build_takes_all(host_exe: byoc.Executable) -> None:
    assert str(host_exe.plan({"batch": 5})) == "1 call: main"
    assert host_exe.measure() == ()


def test_costs_are_measured_at_the_buckets_sizes_and_one_beyond(
    measured: byoc.Executable,
) -> None:
    costs = measured.manifest.variants.costs
    assert sorted(cost.sizes["n"] for cost in costs) == [2, 2, 4]
    assert all(cost.seconds > 0 for cost in costs)
    assert measured.plan({"n": 2}).seconds is not None


def test_what_there_is_no_time_to_measure_is_estimated(two_outputs: Any) -> None:
    buckets_of = byoc.Buckets(1, 4, 8, fallback="symbolic")
    exe = byoc.compile(two_outputs, "llvm", batch=buckets_of)
    costs = {(cost.entry, *cost.sizes.values()): cost.seconds for cost in exe.measure(0.0)}
    assert costs.keys() == {("main", 1), ("main_n_1", 1), ("main_n_4", 4), ("main_n_8", 8)}
    one = costs["main_n_1", 1]
    assert costs["main_n_4", 4] == pytest.approx(4 * one)
    assert costs["main_n_8", 8] == pytest.approx(8 * one)
    assert exe.plan({"batch": 20}).seconds is not None


def test_costs_are_in_the_artifact(
    measured: byoc.Executable, two_outputs_numpy: Callable[..., Any], tmp_path: Any
) -> None:
    measured.export(tmp_path / "model.so")
    again = byoc.load(tmp_path / "model.so")
    assert again.manifest.variants == measured.manifest.variants
    assert again.plan({"n": 7}) == measured.plan({"n": 7})
    x, y = rows(7, 4), rows(7, 3)
    for mine, theirs in zip(again(x, y), two_outputs_numpy(x, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_measuring_needs_the_device(
    host_exe: byoc.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm_byoc_kit import runtime
    from tvm_byoc_kit.status import Status

    manifest = replace(buckets(host_exe, 2).manifest, target="cuda")
    exe = byoc.Executable(host_exe._built, manifest)
    missing = Status("device:cuda", False, "no GPU", "add one")
    monkeypatch.setattr(runtime, "probe", lambda _name: missing)
    with pytest.raises(byoc.BackendUnavailable, match=r"no GPU\. To add it: add one"):
        exe.measure()


def test_every_build_is_a_function_of_the_virtual_machine(
    two_outputs: tvm.IRModule, two_outputs_numpy: Callable[..., Any]
) -> None:
    exe = byoc.compile(two_outputs, "llvm", batch=byoc.Buckets(2, 3))
    assert exe.manifest.entry == exe.manifest.variants.builds[0].entry
    assert "x: float32[n, 4]" in repr(exe)
    for build in exe.manifest.variants.builds:
        x, y = rows(build.sizes["n"], 4), rows(build.sizes["n"], 3)
        results = exe.vm[build.entry](tvm.runtime.tensor(x), tvm.runtime.tensor(y))
        for mine, theirs in zip(results, two_outputs_numpy(x, y), strict=True):
            np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.byoc("example_npu")
def test_schedules_are_there_of_the_builds_that_are_fixed_or_have_run(
    two_outputs: tvm.IRModule, tmp_path: Any
) -> None:
    from tvm_byoc_kit.backends.example_npu_schedule import schedules

    made = byoc.compile(two_outputs, "example_npu", batch=byoc.Buckets(2, fallback="symbolic"))
    made.export(tmp_path / "model.so")
    exe = byoc.load(tmp_path / "model.so")
    fixed = schedules(exe)
    exe.measure(0)
    both = schedules(exe)
    assert 0 < len(fixed) < len(both)
    assert set(fixed) < set(both)
