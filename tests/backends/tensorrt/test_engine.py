"""Building plans, with TensorRT-RTX on a machine without a GPU, or under the name of TensorRT."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import terminal
from tvm_byoc_kit.backends.tensorrt import engine, monitor
from tvm_byoc_kit.backends.tensorrt.engine import (
    build_engine,
    known_capabilities,
    target_capabilities,
)
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError
from tvm_byoc_kit.graph import Graph
from tvm_byoc_kit.status import Status

from .small_regions import WEIGHTS, as_tensorrt, dense, graph_of, rtx

PROFILE = {"n": (1, 8, 32)}
HANGS = 600.0  # seconds after which nothing will come any more


@pytest.fixture(scope="module")
def graph() -> Graph:
    """With a symbolic batch."""
    return graph_of(dense())


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of capability 8.9, as far as building asks."""
    monkeypatch.setattr(engine, "local_capability", lambda: 89)


def build(graph: Graph, capabilities: tuple[int, ...] = (89,), **options: Any) -> engine.Engine:
    """With the vendor that is here."""
    return build_engine(graph, rtx(), TensorRTOptions(**options), capabilities)


def test_a_plan_is_built_without_a_gpu(graph: Graph) -> None:
    built = build(graph, profiles=PROFILE)
    assert built.plan[:4] in (b"vtrt", b"ftrt")
    assert [binding.argument for binding in (*built.inputs, *built.outputs)] == [0, 1]
    assert built.profiles == (PROFILE,)
    for binding in (*built.inputs, *built.outputs):
        assert binding.name.encode() in built.plan


def test_the_same_is_built_each_time(graph: Graph) -> None:
    assert build(graph, profiles=PROFILE).plan == build(graph, profiles=PROFILE).plan


def test_half_precision_has_half_the_weights() -> None:
    weights = np.random.default_rng(0).standard_normal((1024, 1024), dtype=np.float32)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType([4, 1024], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(x, relax.const(weights)))
        builder.emit_func_output(result)
    graph = graph_of(builder.finalize())
    full, half = (len(build(graph, precision=name).plan) for name in ("fp32", "fp16"))
    assert full > weights.nbytes
    assert half < 0.6 * full


def test_a_plan_for_more_gpus_and_one_with_more_profiles_are_others(graph: Graph) -> None:
    one = build(graph, profiles=PROFILE).plan
    assert build(graph, (89, 120), profiles=PROFILE).plan != one
    assert len(build(graph, profiles=[PROFILE, {"n": (64, 64, 64)}]).plan) > len(one)


@pytest.mark.parametrize("level", [0, 5])
def test_the_optimization_level_and_workspace_reach_the_builder(graph: Graph, level: int) -> None:
    made: list[Any] = []

    def note(network: Any, settings: Any) -> Any:
        made.append(config(network, settings))
        return made[-1]

    config = engine._config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_config", note)
        build(graph, profiles=PROFILE, optimization_level=level, workspace_bytes=1 << 24, tf32=True)
    trt = rtx().module
    assert made[0].builder_optimization_level == level
    assert made[0].get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 24
    assert made[0].get_flag(trt.BuilderFlag.TF32)
    assert made[0].num_optimization_profiles == 1


def test_tf32_is_off_unless_it_is_asked_for(graph: Graph) -> None:
    flags: list[bool] = []
    config = engine._config

    def note(network: Any, settings: Any) -> Any:
        made = config(network, settings)
        flags.append(made.get_flag(rtx().module.BuilderFlag.TF32))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_config", note)
        build(graph, profiles=PROFILE)
    assert flags == [False]


def test_what_cannot_be_built_says_what_the_vendor_says(make_module: Any) -> None:
    mod = make_module(
        {"x": ((1, 3, 16, 16), "float32")},
        lambda x: relax.op.nn.conv2d(x, relax.const(np.ones((64, 3, 3, 3), np.float32))),
    )
    with pytest.raises(ModelError, match="workspace limit") as caught:
        build(graph_of(mod), workspace_bytes=1)
    assert "tensorrt_rtx 1." in str(caught.value)
    assert "compute capability 89" in str(caught.value)


# --- what it is built for -------------------------------------------------------------------------


def test_without_a_gpu_all_from_8_0_on_are_built_for() -> None:
    known = known_capabilities(rtx())
    assert 75 in known
    assert target_capabilities(rtx(), TensorRTOptions()) == tuple(c for c in known if c >= 80)
    wanted = TensorRTOptions(compute_capabilities=[75])
    assert target_capabilities(rtx(), wanted) == (75,)


@pytest.mark.usefixtures("gpu")
def test_with_a_gpu_it_is_built_for_that() -> None:
    for vendor in (rtx(), as_tensorrt()):
        assert target_capabilities(vendor, TensorRTOptions()) == (89,)
    # One of which no plan is known: for all others it is built.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "local_capability", lambda: 90)
        assert 90 not in target_capabilities(rtx(), TensorRTOptions())


def test_a_gpu_that_is_not_known_is_refused_with_those_that_are() -> None:
    options = TensorRTOptions(compute_capabilities=[90])
    with pytest.raises(OptionError, match="does not build for 90; it does for 75, 80"):
        target_capabilities(rtx(), options)


def test_tensorrt_without_a_gpu_says_what_can_be_done_instead() -> None:
    with pytest.raises(BackendUnavailable, match="the GPU of the machine only") as caught:
        target_capabilities(as_tensorrt(), TensorRTOptions())
    assert "'build_at': 'first_run'" in caught.value.remedy
    assert "tensorrt-rtx-cu13" in caught.value.remedy


@pytest.mark.usefixtures("gpu")
def test_tensorrt_builds_for_other_gpus_only_where_they_are_compatible() -> None:
    with pytest.raises(OptionError, match="this machine's GPU, which is 89"):
        target_capabilities(as_tensorrt(), TensorRTOptions(compute_capabilities=[120]))
    options = TensorRTOptions(compute_capabilities=[120], hardware_compatibility="ampere_plus")
    assert target_capabilities(as_tensorrt(), options) == (89,)
    older = TensorRTOptions(compute_capabilities=[75], hardware_compatibility="ampere_plus")
    with pytest.raises(OptionError, match="from 80 on"):
        target_capabilities(as_tensorrt(), older)


@pytest.mark.usefixtures("gpu")
def test_the_way_of_tensorrt_builds_too(graph: Graph) -> None:
    options = TensorRTOptions(profiles=PROFILE, hardware_compatibility="ampere_plus")
    assert build_engine(graph, as_tensorrt(), options, (89,)).plan


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hardware_compatibility": "ampere_plus"}, "name all GPUs in compute_capabilities"),
        ({"version_compatible": True}, "has no such thing"),
    ],
)
def test_what_rtx_has_not_is_refused(graph: Graph, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        build(graph, profiles=PROFILE, **options)


@pytest.mark.parametrize("name", ["strip_weights", "refit"])
def test_what_needs_a_driver_is_refused_without_one(graph: Graph, name: str) -> None:
    if byoc.probe("cuda-driver"):
        pytest.skip("there is a driver")
    with pytest.raises(BackendUnavailable, match=f"{name}=True only where a GPU is") as caught:
        build(graph, profiles=PROFILE, **{name: True})
    assert "first_run" in caught.value.remedy


def test_the_build_itself_fails_without_a_driver_as_is_said(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    if byoc.probe("cuda-driver"):
        pytest.skip("there is a driver")
    monkeypatch.setattr(engine, "probe", lambda name: Status(name, ok=True, detail=""))
    with pytest.raises(ModelError, match="CUDA_SUCCESS"):
        build(graph, profiles=PROFILE, refit=True)


# --- timing cache ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*[Tt]iming cache.*:DeprecationWarning")
@pytest.mark.usefixtures("gpu")
def test_the_timing_cache_is_written_whole_and_read_again(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "made" / "timings"
    options = TensorRTOptions(profiles=PROFILE, timing_cache=path)
    for _ in range(2):
        build_engine(graph, as_tensorrt(), options, (89,))
        assert path.read_bytes()
    assert list(path.parent.iterdir()) == [path]
    path.write_bytes(b"no timing cache")  # is empty then, and the build goes on
    assert build_engine(graph, as_tensorrt(), options, (89,)).plan


def test_rtx_has_no_timing_cache(graph: Graph, tmp_path: Path) -> None:
    build(graph, profiles=PROFILE, timing_cache=tmp_path / "timings")
    assert list(tmp_path.iterdir()) == []


# --- progress and interrupts ----------------------------------------------------------------------


class Steps(list[tuple[str, int, int]]):
    """A display that notes."""

    def __call__(self, phase: str, done: int, steps: int) -> None:
        self.append((phase, done, steps))


def watch(monkeypatch: pytest.MonkeyPatch, display: Any) -> None:
    """Show builds on `display`."""
    monkeypatch.setattr(engine, "showing", lambda _region, **_: nullcontext(display))


def test_every_phase_is_shown_to_its_end(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps()
    watch(monkeypatch, steps)
    build(graph, profiles=PROFILE)
    assert steps
    last = {phase: (done, total) for phase, done, total in steps}
    assert all(done == total for done, total in last.values())
    assert all(0 <= done <= total for _, done, total in steps)


@pytest.fixture
def listening() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, in a process that a shell started in the background too."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at_the_first_step(monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Press Ctrl-C once in the next build, whose steps it gives."""
    steps, told = Steps(), []

    def note(work: Any, cancelled: threading.Event) -> Any:
        told.append(cancelled)
        return monitor.interruptible(work, cancelled)

    def interrupt(phase: str, done: int, total: int) -> None:
        steps(phase, done, total)
        if len(steps) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        told[0].wait(HANGS)  # for the main thread to have it

    monkeypatch.setattr(engine, "interruptible", note)
    watch(monkeypatch, interrupt)
    return steps


@pytest.mark.usefixtures("listening")
def test_ctrl_c_stops_the_build_and_goes_on(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = interrupt_at_the_first_step(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        build(graph, profiles=PROFILE)
    stopped = len(steps)
    time.sleep(0.5)
    assert len(steps) == stopped
    whole = Steps()
    watch(monkeypatch, whole)
    assert build(graph, profiles=PROFILE).plan
    assert len(steps) < len(whole)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_is_not_taken_for_an_error_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at_the_first_step(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        byoc.compile(dense(), "tensorrt", options={"profiles": PROFILE})


def test_an_error_while_building_is_raised_where_it_was_asked_for() -> None:
    def fail() -> None:
        raise ModelError("no")

    with pytest.raises(ModelError, match="no"):
        monitor.interruptible(fail, threading.Event())


def test_nothing_is_shown_where_no_terminal_is(capfd: Any, graph: Graph) -> None:
    build(graph, profiles=PROFILE, progress=True)
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_shown_on_a_terminal(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    build(graph, profiles=PROFILE)
    shown = capsys.readouterr().err
    assert graph.name[:20] in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    build(graph, profiles=PROFILE, progress=False)
    assert capsys.readouterr().err == ""


def test_the_command_lines_spinner_tells_the_phase(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(terminal, "has_spinner", lambda: True)
    monkeypatch.setattr(terminal, "say", said.append)
    build(graph, profiles=PROFILE)
    assert said
    assert all(line.startswith(f"{graph.name}: ") for line in said)


def test_weights_of_the_region_are_in_the_plan(graph: Graph) -> None:
    constants = [value.data for value in graph.constants]
    assert any(data is not None and np.array_equal(data, WEIGHTS) for data in constants)
    assert (
        build(graph, profiles=PROFILE).plan
        != build(graph_of(dense(scale=2)), profiles=PROFILE).plan
    )
