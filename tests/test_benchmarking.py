"""`bench`: equal conditions, turns, ratios, and no speed of wrong numbers; no times asserted."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import tvm_byoc_kit as byoc
from tvm_byoc_kit import benchmarking, contenders, turns
from tvm_byoc_kit.benchmarking import Spread
from tvm_byoc_kit.contenders import Contender, Job, Maker
from tvm_byoc_kit.process_memory import MemoryUse
from tvm_byoc_kit.turns import Timer, Turn

ort = pytest.importorskip("onnxruntime")
needs_openvino = pytest.mark.skipif(not byoc.probe("openvino"), reason="openvino is not installed")


def quick(model: Any, backend: str = "llvm", **options: Any) -> byoc.BenchReport:
    return byoc.bench(model, backend, **{"rounds": 2, **options})


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MOST_CALLS", 3)


def fake(name: str, outputs: list[np.ndarray], call: Callable[[], Any] = lambda: None) -> Maker:
    return Maker(
        name=name,
        check=lambda: None,
        modules=(),
        package="numpy",
        make=lambda _job: Contender(call=call, arrays=lambda _result: outputs),
    )


def zero_outputs(path: Path) -> list[np.ndarray]:
    specs = byoc.load_model(path).outputs
    return [np.zeros([int(dim) for dim in spec.shape], spec.dtype) for spec in specs]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_spread_is_the_median_and_the_quartiles(count: int) -> None:
    samples = np.random.default_rng(count).standard_normal(count).tolist()
    expected = np.percentile(samples, [50, 25, 75])
    np.testing.assert_allclose(dataclasses.astuple(Spread.of(samples)), expected, rtol=1e-12)


def test_report_has_the_backend_first_and_every_side_with_its_figures(onnx_path: Path) -> None:
    report = quick(onnx_path, against=("onnxruntime", "tvm", "byoc:llvm"), rounds=3)
    assert report
    assert [side.name for side in report.sides] == ["byoc:llvm", "onnxruntime", "tvm"]
    assert report.reference == "onnxruntime"
    assert report.side("onnxruntime").version == ort.__version__
    assert report.side("onnxruntime").max_abs == 0.0
    first = report.sides[0]
    assert (first.cpu_ratio.median, first.wall_ratio.median) == (1.0, 1.0)
    for side in report.sides:
        assert (side.rounds, 1 <= side.calls <= 3) == (3, True)
        assert 0 < side.cpu_ms.lower <= side.cpu_ms.median <= side.cpu_ms.upper
        assert side.setup_s > 0
    assert json.loads(json.dumps(report.to_dict()))["sides"][1]["name"] == "onnxruntime"
    with pytest.raises(byoc.OptionError, match="'torch' was not measured; there are byoc:llvm, "):
        report.side("torch")


def test_the_text_has_one_line_a_side_and_no_ratio_of_the_backend_to_itself(
    onnx_path: Path,
) -> None:
    lines = str(quick(onnx_path)).splitlines()
    assert lines[0].startswith(f"{onnx_path} (")
    assert " on 1 thread of " in lines[0]
    own = next(line for line in lines if line.startswith("byoc:llvm "))
    other = next(line for line in lines if line.startswith("onnxruntime "))
    assert len(other.split()) == len(own.split()) + 2


def test_ratios_are_the_backends_time_over_the_sides_round_by_round() -> None:
    timer = Timer
    samples = {"a": {0: timer(2.0, 4.0), 1: timer(9.0, 9.0)}, "b": {0: timer(1.0, 8.0)}}
    entrants = {name: entrant(name) for name in samples}
    side = benchmarking._side(entrants["b"], samples, entrants["a"], [])
    assert (side.wall_ratio.median, side.cpu_ratio.median) == (2.0, 0.5)
    assert (side.wall_ms.median, side.rounds) == (1000.0, 1)


def entrant(name: str) -> benchmarking._Entrant:
    maker, timer = fake(name, []), Timer()
    contender = Contender(lambda: None, lambda _: [])
    return benchmarking._Entrant(
        maker, contender, [], timer, timer, MemoryUse(), Turn(contender.call)
    )


def test_wrong_numbers_make_the_report_false_and_have_no_speed(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [value + 1 for value in zero_outputs(onnx_path)]
    monkeypatch.setitem(contenders.OTHERS, "wrong", fake("wrong", wrong))  # type: ignore[misc]
    report = quick(onnx_path, against=("onnxruntime", "wrong"))
    assert not report
    assert [side.agrees for side in report.sides] == [True, True, False]
    line = next(line for line in str(report).splitlines() if line.startswith("wrong "))
    assert line.split()[1] == "WRONG"
    assert len(line.split()) == 5


def test_a_side_with_another_number_of_outputs_is_refused(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = fake("fewer", zero_outputs(onnx_path)[1:])
    monkeypatch.setitem(contenders.OTHERS, "fewer", side)  # type: ignore[misc]
    with pytest.raises(byoc.ModelError, match=r"fewer gives \d output"):
        quick(onnx_path, against=("fewer",))


def test_an_infinite_difference_is_null_in_json(onnx_path: Path) -> None:
    report = quick(onnx_path)
    side = dataclasses.replace(report.sides[0], max_abs=float("inf"))
    facts = dataclasses.replace(report, sides=(side,)).to_dict()
    assert json.loads(json.dumps(facts, allow_nan=False))["sides"][0]["max_abs"] is None


def test_a_torch_model_runs_against_torch_and_not_against_what_reads_onnx() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    report = quick(model, example_inputs=(torch.randn(2, 4),), against=("torch", "tvm"))
    assert report
    assert report.reference == "torch"
    with pytest.raises(byoc.ModelError, match=r"onnxruntime is compared on ONNX models, and this"):
        quick(model, example_inputs=(torch.randn(2, 4),))


def test_an_exported_program_runs_from_its_file(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.randn(2, 4),))
    torch.export.save(program, tmp_path / "linear.pt2")
    assert quick(tmp_path / "linear.pt2", against=("torch",))


def test_onnx_models_are_no_models_for_torch(onnx_path: Path) -> None:
    with pytest.raises(byoc.ModelError, match="torch runs PyTorch models, and this one is onnx"):
        quick(onnx_path, against=("torch",))


def test_a_model_in_memory_is_measured_too(onnx_path: Path) -> None:
    assert quick(onnx.load(onnx_path))


def test_given_inputs_are_what_every_side_gets(onnx_path: Path) -> None:
    specs = byoc.load_model(onnx_path).inputs
    inputs = {spec.name: np.ones([int(d) for d in spec.shape], spec.dtype) for spec in specs}
    received: list[dict[str, np.ndarray]] = []
    job = Job(onnx_path, byoc.load_model(onnx_path), inputs, 1)
    for maker in map(contenders.find_maker, ("byoc:llvm", "onnxruntime", "tvm")):
        contender = maker(job)
        received.append(contender.arrays(contender.call())[0])
    np.testing.assert_allclose(received[0], received[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(received[2], received[1], rtol=1e-4, atol=1e-5)
    with pytest.raises(byoc.InputError, match="unknown: nonsense"):
        quick(onnx_path, inputs={**inputs, "nonsense": np.ones(1)})


def test_onnxruntime_gets_the_threads_and_does_not_spin(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    session = ort.InferenceSession

    def spy(source: Any, options: Any, **rest: Any) -> Any:
        given.append(options)
        return session(source, options, **rest)

    monkeypatch.setattr(ort, "InferenceSession", spy)
    quick(onnx_path, threads=2)
    assert (given[-1].intra_op_num_threads, given[-1].inter_op_num_threads) == (2, 1)
    for kind in ("intra", "inter"):
        assert given[-1].get_session_config_entry(f"session.{kind}_op.allow_spinning") == "0"


@needs_openvino
def test_openvino_gets_the_threads_and_computes_in_single_precision(onnx_path: Path) -> None:
    imported = byoc.load_model(onnx_path)
    arrays = benchmarking.random_inputs(imported.inputs)
    contender = contenders.find_maker("openvino")(Job(onnx_path, imported, arrays, 2))
    compiled = contender.call.func.__self__.get_compiled_model()  # type: ignore[attr-defined]
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 2
    assert compiled.get_property("INFERENCE_PRECISION_HINT").to_string() == "f32"
    first = contender.arrays(contender.call())
    kept = [value.copy() for value in first]
    contender.call()
    for value, before in zip(first, kept, strict=True):
        np.testing.assert_array_equal(value, before)


def test_tvm_gets_the_threads_and_does_not_spin_and_the_environment_is_as_it_was(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "7")
    monkeypatch.delenv("TVM_THREAD_POOL_SPIN_COUNT", raising=False)
    seen: list[tuple[str, str]] = []

    def call() -> None:
        names = ("TVM_NUM_THREADS", "TVM_THREAD_POOL_SPIN_COUNT")
        seen.append(tuple(os.environ[name] for name in names))  # type: ignore[arg-type]

    side = fake("spy", zero_outputs(onnx_path), call)
    monkeypatch.setitem(contenders.OTHERS, "spy", side)  # type: ignore[misc]
    quick(onnx_path, against=("spy",), threads=2)
    assert set(seen) == {("2", "0")}
    assert os.environ["TVM_NUM_THREADS"] == "7"
    assert "TVM_THREAD_POOL_SPIN_COUNT" not in os.environ


def test_a_backends_option_threads_is_set_unless_it_is_given(onnx_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Options:
        threads: int = 0

    backend = dataclasses.replace(byoc.get_backend("llvm"), options=Options)
    assert quick(onnx_path, backend)  # its option is taken, or this would raise
    with pytest.raises(byoc.OptionError, match="no option 'thread'"):
        quick(onnx_path, backend, options={"thread": 1})


def test_a_side_that_is_not_installed_is_named_with_what_adds_it(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = byoc.Status("onnxruntime", ok=False, detail="it is not there", remedy="pip it")
    monkeypatch.setattr(contenders, "probe", lambda _name: missing)
    with pytest.raises(byoc.BackendUnavailable, match=r"'onnxruntime'.*it is not there.*pip it"):
        quick(onnx_path)


def test_an_unknown_side_and_numbers_below_one_are_refused_before_any_work() -> None:
    with pytest.raises(byoc.OptionError, match="'tensorflow'; expected onnxruntime, openvino, tvm"):
        quick("missing.onnx", against=("tensorflow",))
    for wrong in ({"threads": 0}, {"rounds": 0}, {"threads": True}):
        with pytest.raises(byoc.OptionError, match=r"expected an integer from 1 on"):
            quick("missing.onnx", **wrong)


def test_a_library_that_refuses_the_model_gives_one_clear_error(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise RuntimeError("the node is not known")

    monkeypatch.setattr(ort, "InferenceSession", refuse)
    with pytest.raises(byoc.ModelError, match="onnxruntime cannot take the model: the node is not"):
        quick(onnx_path)
