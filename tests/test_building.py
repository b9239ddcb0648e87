"""From a partition, or a plain module, to an Executable."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax, te

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError

LLVM = tvm.target.Target("llvm")
npu = pytest.mark.byoc("example_npu", step="runtime")
X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
Y = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)


def check(exe: byoc.Executable, reference: Any) -> None:
    for mine, theirs in zip(exe(X, Y), reference(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_plain_module_is_built_for_the_host(
    two_outputs: tvm.IRModule, two_outputs_numpy: Any
) -> None:
    exe = byoc.build(two_outputs)
    assert exe.manifest.backend == "llvm"
    assert exe.manifest.loaders == ()
    check(exe, two_outputs_numpy)


@npu
def test_a_partition_and_its_plain_module_build_to_the_same(
    two_outputs: tvm.IRModule, two_outputs_numpy: Any
) -> None:
    parts = byoc.partition(two_outputs, "example_npu")
    for given in (parts, parts.mod):
        exe = byoc.build(given)
        assert exe.manifest.backend == "example_npu"
        assert exe.manifest.loaders == ("example_npu_json",)
        check(exe, two_outputs_numpy)


@npu
def test_compile_does_all_of_it(two_outputs: tvm.IRModule, two_outputs_numpy: Any) -> None:
    exe = byoc.compile(two_outputs, "example_npu", bind_constants=True, annotate_codegen=True)
    check(exe, two_outputs_numpy)


@npu
@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("annotate", [False, True])
def test_every_way_of_partitioning_runs(
    two_outputs: tvm.IRModule, two_outputs_numpy: Any, bind: bool, annotate: bool
) -> None:
    parts = byoc.partition(
        two_outputs, "example_npu", bind_constants=bind, annotate_codegen=annotate
    )
    check(byoc.build(parts), two_outputs_numpy)


@npu
def test_a_partition_can_be_built_twice(two_outputs: tvm.IRModule, two_outputs_numpy: Any) -> None:
    parts = byoc.partition(two_outputs, "example_npu")
    before = parts.mod.script()
    first, second = byoc.build(parts), byoc.build(parts)
    assert parts.mod.script() == before
    check(first, two_outputs_numpy)
    check(second, two_outputs_numpy)


@npu
def test_executables_of_models_with_regions_of_the_same_name_do_not_mix(make_module: Any) -> None:
    def build(factor: float) -> byoc.Executable:
        def body(x: Any) -> Any:
            return relax.op.nn.relu(relax.op.multiply(x, relax.const(factor, "float32")))

        mod = make_module({"x": ((2, 4), "float32")}, body)
        return byoc.compile(mod, "example_npu", bind_constants=True)

    double, triple = build(2.0), build(3.0)
    for _ in range(2):
        np.testing.assert_allclose(double(X), np.maximum(X * 2, 0), rtol=1e-6)
        np.testing.assert_allclose(triple(X), np.maximum(X * 3, 0), rtol=1e-6)


@npu
def test_a_model_without_a_matching_op_needs_no_loader(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.erf)
    exe = byoc.compile(mod, "example_npu")
    assert exe.manifest.loaders == ()
    assert exe(X).shape == (2, 4)


@npu
def test_options_reach_the_codegen_and_the_manifest(two_outputs: tvm.IRModule) -> None:
    from tvm_byoc_kit.backends import example_npu_schedule

    parts = byoc.partition(two_outputs, "example_npu")
    cycles = {}
    for mode in ("high_performance", "low_power"):
        exe = byoc.build(parts, options={"power_mode": mode})
        assert exe.manifest.options["power_mode"] == mode
        exe(X, Y)
        cycles[mode] = str(example_npu_schedule.schedules(exe))
    assert cycles["high_performance"] != cycles["low_power"]


def test_a_built_model_is_described_by_its_manifest(host_exe: byoc.Executable) -> None:
    manifest = host_exe.manifest
    assert manifest.entry == "main"
    assert "llvm" in manifest.target
    assert manifest.versions.keys() >= {"tvm", "tvm_ffi", "tvm_byoc_kit"}
    assert host_exe.inputs == manifest.inputs


def test_a_target_is_taken_as_text_and_as_object(
    two_outputs: tvm.IRModule, two_outputs_numpy: Any
) -> None:
    for target in ("llvm", tvm.target.Target({"kind": "llvm", "num-cores": 1})):
        check(byoc.build(two_outputs, target), two_outputs_numpy)


@pytest.mark.parametrize("target", ["nonsense", "llvm -mcpu", "{}", 3, object()])
def test_an_unknown_target_is_refused(two_outputs: tvm.IRModule, target: Any) -> None:
    with pytest.raises(OptionError, match="unknown target"):
        byoc.build(two_outputs, target)


@pytest.mark.parametrize(
    ("backend", "options", "message"),
    [
        ("llvm", {"mode": "record"}, "'llvm' has no options"),
        ("example_npu", {"mod": "record"}, "no option 'mod'"),
        ("example_npu", {"l2_bytes": 0}, "l2_bytes=0"),
        ("tensorrt", {"fp16": True}, "'tensorrt' has no option 'fp16'"),
    ],
)
def test_options_are_checked_before_anything_is_compiled(
    two_outputs: tvm.IRModule, backend: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        byoc.build(byoc.partition(two_outputs, backend), options=options)


@pytest.mark.parametrize("backend", ["cublas", "cudnn"])
def test_a_codegen_that_is_not_here_is_named_with_its_remedy(
    two_outputs: tvm.IRModule, backend: str
) -> None:
    if byoc.get_backend(backend).check("codegen"):
        pytest.skip(f"this TVM has relax.ext.{backend}")
    parts = byoc.partition(two_outputs, backend)
    for given in (parts, *([parts.mod] if parts.coverage.regions else [])):
        with pytest.raises(BackendUnavailable, match=rf"relax\.ext\.{backend}") as caught:
            byoc.build(given)
        error = caught.value
        assert error.backend == backend
        assert error.step == "codegen"
        assert error.remedy in str(error)
        assert len(str(error).splitlines()) == 1


def test_cuda_code_is_generated_on_a_machine_without_a_gpu(make_module: Any) -> None:
    if not byoc.get_backend("cuda").check("codegen"):
        pytest.skip("this TVM cannot compile CUDA")
    mod = make_module({"x": ((64, 64), "float32")}, relax.op.nn.relu)
    exe = byoc.compile(mod, "cuda", target="a100")
    assert "cuda" in exe.manifest.target
    if not byoc.get_backend("cuda").check("device"):
        with pytest.raises(BackendUnavailable, match="driver"):
            exe(np.zeros((64, 64), "float32"))


def test_regions_of_an_unknown_backend_are_refused(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.nn.relu)
    mod = byoc.partition(mod, "example_npu").mod
    region = next(var for var, f in mod.functions.items() if f.attrs and "Codegen" in f.attrs)
    mod[region] = mod[region].with_attr("Codegen", "somebody")
    with pytest.raises(OptionError, match="unknown backend 'somebody'"):
        byoc.build(mod)


def test_regions_of_several_backends_are_refused(make_module: Any) -> None:
    one = make_module({"x": ((2, 4), "float32")}, relax.op.nn.relu)
    one = byoc.partition(one, "example_npu", annotate_codegen=True).mod
    other = byoc.partition(
        make_module({"x": ((3, 4), "float32")}, relax.op.tanh, name="other"),
        "tensorrt",
        annotate_codegen=True,
    ).mod
    both = tvm.IRModule({**dict(one.functions.items()), **dict(other.functions.items())})
    with pytest.raises(ModelError, match="several backends: example_npu, tensorrt"):
        byoc.build(both)


@pytest.mark.parametrize("backend", ["llvm", "tensorrt"])
def test_regions_of_one_backend_are_not_built_for_another(
    two_outputs: tvm.IRModule, backend: str
) -> None:
    parts = byoc.partition(two_outputs, "example_npu")
    again = byoc.Partition(parts.mod, byoc.get_backend(backend), parts.model)
    with pytest.raises(ModelError, match=f"regions of example_npu already.*'{backend}'"):
        byoc.build(again)


def test_what_tvm_cannot_compile_is_one_line(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return relax.op.nn.attention(x, x, x)

    mod = make_module({"x": ((1, 2, 2, 4), "int8")}, body)
    with pytest.raises(ModelError, match="TVM cannot build") as caught:
        byoc.build(mod)
    assert len(str(caught.value).splitlines()) == 1


def test_an_onnx_model_is_built_straight_from_its_proto(onnx_proto: onnx.ModelProto) -> None:
    exe = byoc.build(onnx_proto)
    assert exe.model is not None
    assert exe.model.source == "onnx"
    assert exe.manifest.backend == "llvm"


@pytest.mark.parametrize("given", [None, 3, "no/such/file.onnx"])
def test_what_is_no_model_is_refused(given: Any) -> None:
    with pytest.raises(ModelError):
        byoc.build(given)


# --- The host part ------------------------------------------------------------------------------


def elementwise(x: Any) -> Any:
    return relax.op.erf(relax.op.add(relax.op.exp(x), relax.op.cos(x)))


def test_the_host_part_is_fused(make_module: Any) -> None:
    exe = byoc.compile(make_module({"x": ((2, 4), "float32")}, elementwise), "llvm")
    assert re.search(r"fused_\w*exp\w*cos\w*add_erf", exe.module.as_text())
    np.testing.assert_allclose(exe(X), erf(np.exp(X) + np.cos(X)), rtol=1e-5, atol=1e-6)


def test_open_sizes_leave_llvm_the_word_that_arrays_do_not_overlap(make_module: Any) -> None:
    mod = make_module({"x": (("n", 4), "float32")}, elementwise)
    (llvm,) = byoc.compile(mod, "llvm").module.imports
    source = llvm.inspect_source("ll")
    assert "shape_func" in source
    assert re.search(r"define internal .*add_erf_compute_\(.*ptr noalias", source)


def test_open_sizes_say_nothing_of_the_arrays_of_a_function_that_does_not(make_module: Any) -> None:
    x = te.placeholder((2, 4), "float32")
    plus_one = te.create_prim_func([x, te.compute((2, 4), lambda i, j: x[i, j] + 1.0)])
    plus_one = plus_one.without_attr("tirx.noalias").with_attr("global_symbol", "plus_one")

    def body(x: Any, y: Any) -> Any:
        return relax.op.nn.relu(x), relax.call_tir(added, (y,), relax.TensorType((2, 4), "float32"))

    builder = relax.BlockBuilder()
    added = builder.add_func(plus_one, "plus_one")
    params = {"x": (("n", 4), "float32"), "y": ((2, 4), "float32")}
    exe = byoc.compile(make_module(params, body, into=builder.get()), "llvm")
    (llvm,) = exe.module.imports
    source = llvm.inspect_source("ll")
    assert "shape_func" in source
    assert not re.search(r"define internal .*ptr noalias", source)
    np.testing.assert_allclose(exe(X, X)[1], X + 1)


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x).astype("float32")


@npu
@pytest.mark.parametrize("symbolic", [False, True])
def test_regions_survive_the_fusion_around_them(make_module: Any, symbolic: bool) -> None:
    """Host ops before, between and after two regions."""

    def body(x: Any) -> Any:
        y = relax.op.nn.relu(relax.op.add(relax.op.erf(x), relax.op.cos(x)))
        return relax.op.tanh(relax.op.nn.relu(relax.op.erf(relax.op.cos(y))))

    mod = make_module({"x": (("n" if symbolic else 2, 4), "float32")}, body)
    parts = byoc.partition(mod, "example_npu")
    assert len(parts.coverage.regions) == 2
    exe = byoc.build(parts)
    text = exe.module.as_text()
    for region in parts.coverage.regions:
        assert region.function in text
    y = np.maximum(erf(X) + np.cos(X), 0)
    expected = np.tanh(np.maximum(erf(np.cos(y)), 0))
    np.testing.assert_allclose(exe(X), expected, rtol=1e-5, atol=1e-6)


def test_an_external_call_for_its_side_effect_is_not_dropped() -> None:
    """The target's pipeline removes it, as TVM's own comment on `relax.build` warns."""
    calls: list[int] = []

    @tvm.register_global_func("tvm_byoc_kit.test.side_effect", override=True)
    def record(x: Any) -> Any:
        calls.append(1)
        return x

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        packed = relax.ExternFunc("tvm_byoc_kit.test.side_effect")
        builder.emit(relax.op.call_pure_packed(packed, x, ty_args=[x.ty]))
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    mod = builder.get()
    exe = byoc.build(mod)
    np.testing.assert_allclose(exe(X), np.exp(X), rtol=1e-5)
    assert calls == [1]

    calls.clear()
    unsafe = relax.build(mod, "llvm", relax_pipeline=relax.get_default_pipeline(LLVM))
    relax.VirtualMachine(unsafe, tvm.cpu())["main"](tvm.runtime.tensor(X))
    assert not calls, "TVM has mended it: the generic pipeline is not needed any more"


def test_a_division_by_a_constant_zero_is_no_matter_of_the_build(make_module: Any) -> None:
    """TVM's FoldConstant would divide, and the process would end."""

    def body(x: Any) -> Any:
        ones, zeros = (relax.const(np.full(2, value)) for value in (1, 0))
        return [x, relax.op.divide(ones, zeros)]

    assert byoc.compile(make_module({"x": ((2, 4), "float32")}, body), "llvm").outputs


def test_what_the_targets_pipeline_cannot_compile_the_generic_one_does(
    make_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_target: Any) -> Any:
        raise ValueError("no pipeline")

    monkeypatch.setattr(relax, "get_default_pipeline", refuse)
    exe = byoc.compile(make_module({"x": ((2, 4), "float32")}, elementwise), "llvm")
    np.testing.assert_allclose(exe(X), erf(np.exp(X) + np.cos(X)), rtol=1e-5, atol=1e-6)


@npu
def test_a_backend_in_cpu_memory_is_not_built_into_a_gpu_host(make_module: Any) -> None:
    parts = byoc.partition(make_module({"x": ((2, 3), "float32")}, relax.op.nn.relu), "example_npu")
    with pytest.raises(byoc.OptionError, match="reads CPU memory; build it with target='llvm'"):
        byoc.build(partition=parts, target={"kind": "cuda", "arch": "sm_80"})


def test_a_backend_for_gpus_is_not_built_for_a_cpu(make_module: Any) -> None:
    mod = make_module({"x": ((2, 3), "float32")}, relax.op.nn.relu)
    with pytest.raises(byoc.OptionError, match=r"'llvm' is no GPU, .* target='a100', or take"):
        byoc.compile(mod, "cuda", target="llvm")


# Several builds


SIZES = byoc.Buckets(1, 4, fallback="symbolic")


@pytest.mark.parametrize(
    ("batch", "entries"),
    [
        (SIZES, {"main", "main_n_1", "main_n_4"}),
        (byoc.Buckets(1, 4), {"main_n_1", "main_n_4"}),
        (byoc.Buckets(4), set()),
        (byoc.Profile(1, 2, 8), set()),
    ],
)
def test_costs_are_measured_where_there_is_a_choice(
    two_outputs: Any, batch: Any, entries: set[str]
) -> None:
    costs = byoc.compile(two_outputs, "llvm", batch=batch).manifest.variants.costs
    assert {cost.entry for cost in costs} == entries


@npu
def test_what_cannot_run_here_is_built_and_not_measured(two_outputs: Any) -> None:
    here = byoc.get_backend("example_npu")
    elsewhere = replace(here, requires={**here.requires, "device": ("runtime:not_here",)})
    variants = byoc.compile(two_outputs, elsewhere, batch=SIZES).manifest.variants
    assert len(variants.builds) == 3
    assert not variants.costs


def test_a_model_that_fails_while_it_is_measured_is_a_warning(
    two_outputs: Any, two_outputs_numpy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_exe: byoc.Executable, _seconds: float) -> None:
        raise ModelError("an index is out of range")

    monkeypatch.setattr(byoc.Executable, "measure", fail)
    with pytest.warns(UserWarning, match=r"the least padding wins: an index is out of range"):
        exe = byoc.compile(two_outputs, "llvm", batch=SIZES)
    check(exe, two_outputs_numpy)


def test_a_target_and_a_policy_are_of_every_build(two_outputs: Any, two_outputs_numpy: Any) -> None:
    exe = byoc.compile(
        two_outputs,
        "llvm",
        batch=byoc.Buckets(2, 4),
        target={"kind": "llvm", "num-cores": 1},
        policy={"min_region_ops": 2},
        prepare=False,
    )
    assert "num-cores" in exe.manifest.target
    check(exe, two_outputs_numpy)
