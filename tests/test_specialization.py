"""Several builds of a model in one artifact: each right, none in another's way, weights once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.preparation import bind_sizes
from tvm_byoc_kit.specialization import specialize
from tvm_byoc_kit.variants import Variants

Make = Callable[..., Any]
Array = np.ndarray
pytestmark = pytest.mark.usefixtures("forget_backends")
npu = pytest.mark.byoc("example_npu", step="runtime")
python = pytest.mark.byoc("openvino", step="codegen")  # whose needs are those of `in_numpy`
RNG = np.random.default_rng(0)
SMALL = RNG.standard_normal((4, 3), dtype=np.float32)
LARGE = RNG.standard_normal((1024, 1024), dtype=np.float32)  # 4 MiB


def in_numpy(name: str, *, beside: bool, **choices: Any) -> byoc.Backend:
    """A backend for ``matmul``, with its weights beside the payload or in it."""

    def codegen(graph: byoc.Graph, _options: Mapping[str, Any]) -> bytes | byoc.Payload:
        (weight,) = graph.constants
        if beside:
            return byoc.Payload(b"{}", (weight,))
        return json.dumps({"weight": weight.data.tolist()}).encode()

    def runtime(payload: bytes, constants: tuple[Any, ...]) -> Callable[..., None]:
        stored = json.loads(payload)
        weight = np.from_dlpack(constants[0]) if beside else np.float32(stored["weight"])

        def execute(x: Any, y: Any) -> None:
            np.from_dlpack(y)[...] = np.from_dlpack(x) @ weight

        return execute

    table = [("matmul", ["relax.matmul"])]
    choices = {"patterns": table, "bind_constants": True, "annotate_codegen": True} | choices
    return byoc.Backend(name, "NumPy", codegen=codegen, runtime=runtime, **choices)


def product(make_module: Make, weight: Array = SMALL) -> byoc.ImportedModel:
    """``x[n, k] -> relu(x @ weight)``."""
    shape = ("n", weight.shape[0])
    return byoc.load_model(
        make_module(
            {"x": (shape, "float32")},
            lambda x: op.nn.relu(op.matmul(x, relax.const(weight))),
        )
    )


def alone(exe: byoc.Executable, entry: str) -> byoc.Executable:
    """One build of `exe`, run as it is."""
    manifest = replace(exe.manifest, entry=entry, variants=Variants())
    return byoc.Executable(exe._built, manifest)


def sizes_of(exe: byoc.Executable) -> list[dict[str, int]]:
    return [dict(build.sizes) for build in exe.manifest.variants.builds]


BACKENDS = [
    pytest.param("llvm", id="llvm"),
    pytest.param("example_npu", id="example_npu", marks=npu),
    pytest.param("openvino", id="openvino", marks=pytest.mark.byoc("openvino", step="runtime")),
    pytest.param(in_numpy("beside", beside=True), id="payload and constants", marks=python),
    pytest.param(in_numpy("baked", beside=False), id="baked bytes", marks=python),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_build_computes_the_model(make_module: Make, backend: Any, tmp_path: Path) -> None:
    if isinstance(backend, byoc.Backend):
        byoc.register_backend(backend)
    exe = byoc.compile(product(make_module), backend, batch=byoc.Buckets(1, 2, 5, pad=False))
    exe.export(tmp_path / "model.so")
    for built in (exe, byoc.load(tmp_path / "model.so")):
        for build in built.manifest.variants.builds:
            x = RNG.standard_normal((build.sizes["n"], 4), dtype=np.float32)
            np.testing.assert_allclose(built(x), np.maximum(x @ SMALL, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["llvm", pytest.param("example_npu", marks=npu)])
def test_the_open_build_keeps_the_models_name(make_module: Make, backend: str) -> None:
    buckets = byoc.Buckets(2, 4, fallback="symbolic")
    exe = byoc.compile(product(make_module), backend, batch=buckets)
    assert sizes_of(exe) == [{}, {"n": 2}, {"n": 4}]
    assert exe.manifest.entry == exe.manifest.variants.builds[0].entry == "main"
    x = RNG.standard_normal((7, 4), dtype=np.float32)
    expected = np.maximum(x @ SMALL, 0)
    np.testing.assert_allclose(alone(exe, "main")(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS[:-1])
def test_weights_are_stored_once(make_module: Make, backend: Any, tmp_path: Path) -> None:
    if isinstance(backend, byoc.Backend):
        byoc.register_backend(backend)
    model = product(make_module, LARGE)
    byoc.compile(bind_sizes(model, {"n": 4}), backend).export(tmp_path / "one.so")
    byoc.compile(model, backend, batch=byoc.Buckets(1, 4, 8)).export(tmp_path / "all.so")
    one, every = ((tmp_path / name).stat().st_size for name in ("one.so", "all.so"))
    assert one > LARGE.nbytes
    assert every < 1.1 * one


@python
def test_a_weight_that_is_folded_anew_for_each_build_is_stored_once(
    make_module: Make, tmp_path: Path
) -> None:
    half = relax.const(LARGE / 2)
    mod = make_module({"x": (("n", 1024), "float32")}, lambda x: op.matmul(x, op.add(half, half)))
    backend = byoc.register_backend(in_numpy("beside", beside=True))
    exe = byoc.compile(mod, backend, batch=byoc.Buckets(1, 4, 8))
    exe.export(tmp_path / "model.so")
    assert (tmp_path / "model.so").stat().st_size < 1.1 * LARGE.nbytes


def test_constants_of_other_bits_stay_apart(make_module: Make) -> None:
    positive, negative = np.zeros(3, np.float32), -np.zeros(3, np.float32)
    params = {"x": (("n", 3), "float32")}
    mod = make_module(
        params,
        lambda x: [op.divide(x, relax.const(positive)), op.divide(x, relax.const(negative))],
    )
    exe = byoc.compile(mod, "llvm", batch=byoc.Buckets(1, 2), prepare=False)
    one = np.ones((2, 3), np.float32)
    up, down = exe(one)
    assert (up == np.inf).all()
    assert (down == -np.inf).all()


@npu
def test_a_region_that_is_the_same_in_every_build(make_module: Make) -> None:
    def body(x: Any, scale: Any) -> Any:
        return op.nn.relu(op.matmul(x, relax.const(SMALL))), op.nn.relu(scale)

    mod = make_module({"x": (("n", 4), "float32"), "scale": ((2, 3), "float32")}, body)
    exe = byoc.compile(mod, "example_npu", batch=byoc.Buckets(1, 4), annotate_codegen=True)
    x = RNG.standard_normal((5, 4), dtype=np.float32)
    scale = RNG.standard_normal((2, 3), dtype=np.float32)
    product, same = alone(exe, "main_n_4")(x[:4], scale)
    np.testing.assert_allclose(product, np.maximum(x[:4] @ SMALL, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(same, np.maximum(scale, 0))


def test_names_that_are_taken_get_a_number(make_module: Make) -> None:
    params = {"x": (("n", 3), "float32")}
    other = make_module(params, op.negative, name="main_n_2")
    mod = make_module(params, op.nn.relu, into=other)
    buckets = byoc.Buckets(2, fallback="symbolic")
    exe = byoc.compile(byoc.load_model(mod), "llvm", batch=buckets, prepare=False)
    static = exe.manifest.variants.builds[1].entry
    assert static != "main_n_2"
    x = RNG.standard_normal((2, 3), dtype=np.float32)
    np.testing.assert_array_equal(alone(exe, static)(x), np.maximum(x, 0))
    np.testing.assert_array_equal(alone(exe, "main_n_2")(x), -x)


def test_functions_that_the_model_calls_are_those_of_its_build(make_module: Make) -> None:
    """A model with a function in TIR, which is bound to the sizes of its build too."""

    def body(x: Any) -> Any:
        return relax.BlockBuilder.current().emit_te(
            lambda a: tvm.te.compute(a.shape, lambda i, j: a[i, j] * tirx.const(2, "float32")), x
        )

    exe = byoc.compile(
        make_module({"x": (("n", 3), "float32")}, body), "llvm", batch=byoc.Buckets(1, 4, pad=False)
    )
    for size in (1, 4):
        x = RNG.standard_normal((size, 3), dtype=np.float32)
        np.testing.assert_array_equal(exe(x), x * 2)


# Several dimensions


def test_buckets_of_two_dimensions_are_all_their_combinations(make_module: Make) -> None:
    mod = make_module({"x": (("n", "m"), "float32")}, op.nn.relu)
    sizes = {"n": byoc.Buckets(1, 2), "m": byoc.Buckets(3, 4)}
    exe = byoc.compile(mod, "llvm", sizes=sizes)
    assert sizes_of(exe) == [{"n": n, "m": m} for n in (1, 2) for m in (3, 4)]
    for n in (1, 2, 5):
        for m in (2, 3, 4):
            x = RNG.standard_normal((n, m), dtype=np.float32)
            np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def test_a_profile_stays_open_in_every_build(make_module: Make) -> None:
    mod = make_module({"x": (("n", "m"), "float32")}, op.nn.relu)
    sizes = {"n": byoc.Buckets(1, 2), "m": byoc.Profile(2, 4, 8)}
    exe = byoc.compile(mod, "llvm", sizes=sizes)
    assert sizes_of(exe) == [{"n": 1}, {"n": 2}]
    x = RNG.standard_normal((3, 7), dtype=np.float32)
    np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def test_a_profile_alone_is_one_build(make_module: Make) -> None:
    exe = byoc.compile(product(make_module), "llvm", batch=byoc.Profile(2, 4, 8))
    assert sizes_of(exe) == [{}]
    assert exe(np.zeros((3, 4), np.float32)).shape == (3, 3)


def test_a_dimension_that_nothing_is_said_of_stays_open(make_module: Make) -> None:
    mod = make_module({"x": (("n", "m"), "float32")}, op.nn.relu)
    exe = byoc.compile(mod, "llvm", batch=byoc.Buckets(1, 2))
    x = RNG.standard_normal((3, 7), dtype=np.float32)
    np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def test_more_combinations_than_an_artifact_shall_hold_are_refused(make_module: Make) -> None:
    mod = make_module({"x": (("n", "m"), "float32")}, op.nn.relu)
    sizes = {"n": byoc.Buckets(*range(1, 9)), "m": byoc.Buckets(*range(1, 10))}
    with pytest.raises(OptionError, match="are 72 combinations, and an artifact holds at most 64"):
        byoc.compile(mod, "llvm", sizes=sizes)


# What the user did before


def test_the_sizes_that_a_user_bound_stay_bound(make_module: Make) -> None:
    mod = make_module({"x": (("n", "m"), "float32")}, op.nn.relu)
    prepared = byoc.prepare(mod, "llvm", symbols={"m": 3})
    exe = byoc.compile(prepared, "llvm", batch=byoc.Buckets(1, 2))
    assert exe.inputs[0].shape == ("n", 3)
    assert exe(np.ones((2, 3), np.float32)).shape == (2, 3)


def test_a_calibrated_model_stays_in_8_bits(make_module: Make) -> None:
    model = product(make_module, RNG.standard_normal((16, 8), dtype=np.float32))
    data = [{"x": RNG.standard_normal((4, 16), dtype=np.float32)} for _ in range(8)]
    calibrated = byoc.calibrate(model, data)
    exe = byoc.compile(calibrated, "llvm", batch=byoc.Buckets(1, 4, fallback="symbolic"))
    expected = byoc.compile(calibrated, "llvm", prepare=False)
    plain = byoc.compile(model, "llvm")
    for build in exe.manifest.variants.builds:
        x = data[0]["x"][: build.sizes.get("n", 4)]
        result = alone(exe, build.entry)(x)
        np.testing.assert_allclose(result, expected(x), rtol=1e-5, atol=1e-5)
        assert np.abs(result - plain(x)).max() > 1e-3
    assert byoc.verify(exe)


@npu
def test_the_static_builds_are_prepared_once_more_when_sizes_are_known(make_module: Make) -> None:
    def body(x: Any) -> Any:
        return op.nn.relu(op.broadcast_to(x, x.ty.shape))

    prepared = byoc.prepare(make_module({"x": (("n", 3), "float32")}, body), "example_npu")
    special = specialize(
        prepared,
        byoc.get_backend("example_npu"),
        {"n": byoc.Buckets(1, 2)},
        lambda model: byoc.partition(model, "example_npu"),
    )
    assert all(part.coverage.offloaded == part.coverage.total for part in special.parts)


# What else is given to compile, and what comes of it


@npu
def test_a_strict_policy_is_of_every_build(make_module: Make) -> None:
    mod = make_module({"x": (("n", 3), "float32")}, lambda x: op.nn.relu(op.erf(x)))
    with pytest.raises(ModelError, match="erf"):
        byoc.compile(mod, "example_npu", batch=byoc.Buckets(1, 2), policy={"strict": True})
    exe = byoc.compile(
        product(make_module),
        "example_npu",
        batch=byoc.Buckets(1, 2),
        policy={"strict": True},
        options={"power_mode": "low_power"},
        bind_constants=True,
        annotate_codegen=True,
    )
    assert exe.manifest.options["power_mode"] == "low_power"
    x = RNG.standard_normal((2, 4), dtype=np.float32)
    np.testing.assert_allclose(exe(x), np.maximum(x @ SMALL, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fallback", [None, "symbolic"])
def test_verify_compares_with_the_model_as_it_was(make_module: Make, fallback: Any) -> None:
    exe = byoc.compile(product(make_module), "llvm", batch=byoc.Buckets(3, fallback=fallback))
    assert exe.model is not None
    assert byoc.verify(exe)
    assert not byoc.verify(exe, reference=lambda arrays: {"output": arrays["x"] @ SMALL})


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        (byoc.Buckets(3, 5, pad=False), "n=3"),
        (byoc.Buckets(3, 5), "n=2"),
        (byoc.Buckets(3, 5, pad=False, fallback="symbolic"), "n=2"),
        (byoc.Profile(4, 5, 6), "n=4"),
        (byoc.Profile(1, 1, 1), "n=1"),
    ],
)
def test_verify_takes_a_size_that_can_be_run(make_module: Make, given: Any, sizes: str) -> None:
    verification = byoc.verify(byoc.compile(product(make_module), "llvm", batch=given))
    assert verification
    assert [case.name for case in verification.cases] == [f"random 0, {sizes}"]


def test_a_size_that_the_model_does_not_take_is_named(make_module: Make) -> None:
    def body(x: Any) -> Any:
        return op.reshape(x, (x.ty.shape[0] // 2, 6))

    mod = make_module({"x": (("n", 3), "float32")}, body)
    with pytest.raises(ModelError, match=r"does not take n=3.*leave that size out"):
        byoc.compile(mod, "llvm", batch=byoc.Buckets(2, 3, pad=False))


# Backends of one build for ranges of sizes


@dataclass(frozen=True)
class Ranges:
    """Options of a backend with `profiles`."""

    profiles: Any = ()


@python
def test_a_backend_with_profiles_gets_ranges_for_one_build(make_module: Make) -> None:
    backend = in_numpy("ranged", beside=True, options=Ranges, profiles=True)
    byoc.register_backend(backend)
    exe = byoc.compile(product(make_module), backend, batch=byoc.Buckets(1, 4, 8))
    assert exe.manifest.options["profiles"] == (
        {"n": (1, 1, 1)},
        {"n": (2, 4, 4)},
        {"n": (5, 8, 8)},
    )
    assert sizes_of(exe) == [{}]
    x = RNG.standard_normal((19, 4), dtype=np.float32)
    np.testing.assert_allclose(exe(x), np.maximum(x @ SMALL, 0), rtol=1e-5, atol=1e-6)
    assert [step.stop for step in exe.plan({"batch": 19}).steps] == [8, 16, 19]


@python
@pytest.mark.parametrize(
    "options", [{"profiles": ({"n": (1, 2, 3)},)}, Ranges(({"n": (1, 2, 3)},))]
)
def test_ranges_and_the_option_profiles_do_not_go_together(make_module: Make, options: Any) -> None:
    backend = in_numpy("ranged", beside=True, options=Ranges, profiles=True)
    byoc.register_backend(backend)
    with pytest.raises(OptionError, match="the option profiles does so too"):
        byoc.compile(product(make_module), backend, batch=byoc.Profile(1, 4, 8), options=options)


@settings(max_examples=50, deadline=None)
@given(sizes=st.sets(st.integers(1, 40), min_size=1, max_size=8))
def test_ranges_hold_every_size_up_to_the_largest_once(make_module: Make, sizes: set[int]) -> None:
    backend = in_numpy("ranged", beside=True, options=Ranges, profiles=True)
    special = specialize(
        product(make_module),
        backend,
        {"n": byoc.Buckets(*sizes)},
        lambda model: byoc.Partition(model.mod, backend, model),
    )
    ranges = [profile["n"] for profile in special.profiles]
    held = [size for low, _, high in ranges for size in range(low, high + 1)]
    assert held == list(range(1, max(sizes) + 1))
    assert {high for _, _, high in ranges} == sizes
