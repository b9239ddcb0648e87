"""Where the time of a run goes: the partition's regions, and a slow one that was planted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import profiling
from tvm_byoc_kit.backend import REGISTERED
from tvm_byoc_kit.errors import InputError, ModelError, OptionError

npu = pytest.mark.byoc("example_npu", step="runtime")
X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
NAP = 0.004  # seconds: far more than anything else in these runs


class Clock:
    """A microsecond passes from one look to the next, and naps; nothing holds these runs up."""

    def __init__(self) -> None:
        self.now = 0

    def perf_counter_ns(self) -> int:
        self.now += 1000
        return self.now


CLOCK = Clock()


def codegen(graph: byoc.Graph, _options: dict[str, Any]) -> bytes:
    return ",".join(call.name.rpartition(".")[2] for call in graph.calls).encode()


def runtime(payload: bytes, _constants: tuple[Any, ...]) -> Callable[..., None]:
    """Computes in NumPy, and naps in regions with a tanh."""
    kernels = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0), "exp": np.exp}
    names = payload.decode().split(",")

    def execute(x: Any, out: Any) -> None:
        values = np.from_dlpack(x)
        for name in names:
            values = kernels[name](values)
        np.from_dlpack(out)[...] = values
        if "tanh" in names:
            CLOCK.now += round(1e9 * NAP)

    return execute


@pytest.fixture(scope="module")
def sleepy() -> Iterator[byoc.Backend]:
    status = byoc.probe("plugin:core")
    if not status:
        pytest.skip(str(status))
    patterns = [(name, [f"relax.{prefix}{name}"]) for prefix, name in OPS]
    backend = byoc.Backend("sleepy", "naps", patterns, codegen=codegen, runtime=runtime)
    yield byoc.register_backend(backend)
    del REGISTERED["sleepy"]


OPS = (("nn.", "relu"), ("", "tanh"), ("", "exp"))


@pytest.fixture(scope="module")
def chain(make_module: Any) -> tvm.IRModule:
    """relu, host op, tanh (slow), host op, relu: three regions, the first and last are one code."""

    def body(x: Any) -> Any:
        for op in (relax.op.nn.relu, relax.op.tanh, relax.op.nn.relu):
            x = relax.op.add(op(x), relax.const(0.5, "float32"))
        return x

    return make_module({"x": ((2, 4), "float32")}, body)


@pytest.fixture(scope="module")
def parts(chain: tvm.IRModule, sleepy: byoc.Backend) -> byoc.Partition:
    return byoc.partition(chain, sleepy)


@pytest.fixture(scope="module")
def exe(parts: byoc.Partition) -> byoc.Executable:
    return byoc.build(parts)


@pytest.fixture(scope="module")
def profile(exe: byoc.Executable) -> byoc.RunProfile:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(profiling, "time", CLOCK)
        return exe.profile({"x": X}, repeats=4)


# Regions


def test_regions_are_those_of_the_partition_by_name_and_patterns(
    parts: byoc.Partition, profile: byoc.RunProfile
) -> None:
    expected = [(region.name, region.composites) for region in parts.coverage.regions]
    assert [(part.name, part.composites) for part in profile.regions] == expected
    assert len(expected) == 3
    assert [part.calls for part in profile.regions] == [1, 1, 1]


def test_a_slow_region_that_was_planted_has_the_largest_share(profile: byoc.RunProfile) -> None:
    slowest = max(profile.parts, key=lambda part: part.share)
    assert slowest.composites == ("sleepy.tanh",)
    assert slowest.seconds >= NAP
    assert slowest.share > 0.5
    assert str(profile).splitlines()[3].rstrip().endswith("region 2: tanh")


def test_the_parts_are_the_whole(profile: byoc.RunProfile) -> None:
    assert sum(part.seconds for part in profile.parts) == pytest.approx(profile.measured_seconds)
    assert sum(part.share for part in profile.parts) == pytest.approx(1)
    assert all(part.seconds >= 0 for part in profile.parts)
    kinds = ("region", "host", "memory", "checks", "arrays", "between")
    assert sum(profile.share(kind) for kind in kinds) == pytest.approx(1)
    assert profile.seconds >= NAP
    assert profile.repeats == 4


def test_host_functions_are_named_and_counted(profile: byoc.RunProfile) -> None:
    host = {part.name: part.calls for part in profile.parts if part.kind == "host"}
    assert sum(host.values()) == 3
    assert all("add" in name for name in host)


def test_an_artifact_tells_the_same_parts(
    exe: byoc.Executable, profile: byoc.RunProfile, tmp_path: Path
) -> None:
    exe.export(tmp_path / "m.so")
    again = byoc.load(tmp_path / "m.so").profile(repeats=1)

    def facts(of: byoc.RunProfile) -> list[tuple[Any, ...]]:
        return [(part.name, part.kind, part.calls, part.composites) for part in of.parts]

    assert facts(again) == facts(profile)


def test_a_model_without_regions_is_all_host(host_exe: byoc.Executable) -> None:
    profile = host_exe.profile(repeats=1)
    assert profile.regions == ()
    assert profile.share("host") > 0
    assert "vm.builtin" not in str(profile)


@npu
def test_the_example_npu_tells_its_cycles(npu_exe: byoc.Executable) -> None:
    from tvm_byoc_kit.backends.example_npu_schedule import schedules

    profile = npu_exe.profile(repeats=1)
    cycles = {schedule.symbol: schedule.cycles for schedule in schedules(npu_exe)}
    assert {part.name: part.cycles for part in profile.regions} == cycles
    assert "cycles" in str(profile)


def test_time_inside_a_function_is_not_counted_twice(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.exp, name="inner")
    builder = relax.BlockBuilder(mod)
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))
    with builder.function("main", [x]):
        out = builder.emit(relax.Call(mod.get_global_var("inner"), [x]))
        builder.emit_func_output(builder.emit(relax.Call(mod.get_global_var("inner"), [out])))
    profile = byoc.compile(builder.finalize(), "llvm", prepare=False).profile(repeats=2)
    assert sum(part.share for part in profile.parts) == pytest.approx(1)
    assert all(part.share >= 0 for part in profile.parts)
    inner = [call for call in profile.calls if call.name == "inner"]
    assert len(inner) == 2
    inside = [call for call in profile.calls if call.name.endswith("exp")]
    for outer, call in zip(inner, inside, strict=True):
        assert outer.start <= call.start
        assert call.start + call.seconds <= outer.start + outer.seconds


# Variants


def test_the_build_that_ran_is_named(make_module: Any, sleepy: byoc.Backend) -> None:
    mod = make_module({"x": (("n", 4), "float32")}, relax.op.nn.relu)
    exe = byoc.compile(mod, sleepy, sizes={"n": byoc.Buckets(2, 4, fallback="symbolic")})
    for rows in (2, 3):
        profile = exe.profile({"x": np.ones((rows, 4), "float32")}, repeats=1)
        assert profile.plan == str(exe.plan({"n": rows}))
        assert profile.plan in str(profile)
        assert profile.to_dict()["plan"]
        build = profile.plan.split(": main")[1].split()[0]  # "_n_2", or nothing for the open one
        assert f"sleepy_1{build}: relu" in str(profile)


# What it leaves behind


def test_a_profiled_model_computes_the_same_afterwards(
    exe: byoc.Executable, profile: byoc.RunProfile
) -> None:
    expected = np.maximum(np.tanh(np.maximum(X, 0) + 0.5) + 0.5, 0) + 0.5
    np.testing.assert_allclose(exe(X), expected, rtol=1e-6)
    assert profile


def test_a_run_that_fails_leaves_no_instrument(make_module: Any, sleepy: byoc.Backend) -> None:
    calls: list[int] = []

    def failing(_payload: bytes, _constants: tuple[Any, ...]) -> Callable[..., None]:
        def execute(_x: Any, _out: Any) -> None:
            calls.append(1)
            if len(calls) == 2:
                raise RuntimeError("out of order")

        return execute

    backend = byoc.Backend(
        "failing", "fails", [("relu", ["relax.nn.relu"])], codegen=codegen, runtime=failing
    )
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.nn.relu)
    exe = byoc.compile(mod, byoc.register_backend(backend))
    try:
        with pytest.raises(ModelError, match="out of order"):
            exe.profile({"x": X})
        exe(X)
        assert len(exe.profile({"x": X}, repeats=1).regions) == 1
    finally:
        del REGISTERED["failing"]
    assert sleepy


def test_wrong_arguments_are_refused(exe: byoc.Executable) -> None:
    with pytest.raises(OptionError, match="repeats is 0; expected at least 1"):
        exe.profile(repeats=0)
    with pytest.raises(InputError, match="unknown: y"):
        exe.profile({"y": X})


# JSON and trace


def test_json_has_the_facts(profile: byoc.RunProfile) -> None:
    facts = json.loads(json.dumps(profile.to_dict(), allow_nan=False))
    assert facts["backend"] == "sleepy"
    assert len(facts["parts"]) == len(profile.parts)
    assert facts["measured_seconds"] == profile.measured_seconds


def test_the_trace_has_a_lane_for_host_and_backend_and_spans_that_nest(
    profile: byoc.RunProfile, tmp_path: Path
) -> None:
    path = profile.write_chrome_trace(tmp_path / "trace.json")
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {0: "host", 1: "sleepy"}
    spans = [event for event in events if event["ph"] == "X"]
    starts = [event["ts"] for event in spans]
    assert starts == sorted(starts)
    whole = spans[0]
    assert (whole["name"], whole["ts"], whole["tid"]) == ("run", 0, 0)
    ends: list[float] = []  # of the spans around
    for event in spans:
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        end = event["ts"] + event["dur"]
        assert not ends or end <= ends[-1] + 1e-6
        ends.append(end)
    on_backend = [event for event in spans if event["tid"] == 1]
    assert [event["name"] for event in on_backend] == [part.name for part in profile.regions]
    assert [event["args"]["composites"] for event in on_backend] == [
        ["sleepy.relu"],
        ["sleepy.tanh"],
        ["sleepy.relu"],
    ]
