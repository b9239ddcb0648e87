from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tvm_byoc_kit as byoc
from tvm_byoc_kit.quickstart import (
    ModelRun,
    QuickstartResult,
    TutorialResult,
    _predict_in_fresh_process,
    quickstart,
)

pytest.importorskip("onnx")

DATA = Path(str(files("tvm_byoc_kit"))) / "data"
needs_npu = pytest.mark.byoc("example_npu", step="runtime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickstart") / "made" / "by it"


@pytest.fixture(scope="module")
def console() -> Console:
    return Console(record=True, width=120, file=io.StringIO())


@pytest.fixture(scope="module")
def result(console: Console, folder: Path) -> QuickstartResult:
    return quickstart(console, folder)


@pytest.fixture(scope="module")
def text(console: Console, result: QuickstartResult) -> str:
    assert result is not None
    return console.export_text()


def onnxruntime_accuracy() -> float:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        str(DATA / "digits.onnx"), providers=["CPUExecutionProvider"]
    )
    with np.load(DATA / "digits_test.npz") as held_out:
        images, labels = held_out["images"], held_out["labels"]
    scaled = images.reshape(-1, 1, 1, 8, 8).astype(np.float32) / np.float32(16)
    logits = [session.run(None, {"image": image})[0] for image in scaled]
    return float((np.concatenate(logits).argmax(axis=1) == labels).mean())


@needs_npu
def test_everything_runs_and_agrees(result: QuickstartResult) -> None:
    assert result
    assert result.unavailable == ()


@needs_npu
def test_tutorial_module_becomes_one_region_with_the_values_of_numpy(
    result: QuickstartResult,
) -> None:
    tutorial = result.tutorial
    assert (tutorial.ops_offloaded, tutorial.ops_total, tutorial.regions) == (2, 2, 1)
    assert tutorial.output_shape == (1, 16, 30, 30)
    assert tutorial.max_abs is not None
    assert tutorial.max_abs < 1e-4


@needs_npu
def test_digits_have_the_same_accuracy_everywhere(result: QuickstartResult) -> None:
    assert result.digits is not None
    accuracies = [run.accuracy for run in result.digits.runs]
    assert len(accuracies) == 4
    assert accuracies == [onnxruntime_accuracy()] * 4
    assert result.digits.reference == result.digits.runs[0].name == "ONNX Runtime"


@needs_npu
def test_reloaded_model_computes_the_very_same_logits(result: QuickstartResult) -> None:
    assert result.digits is not None
    *_, built, reloaded = result.digits.runs
    assert reloaded.max_abs == built.max_abs


@needs_npu
def test_schedule_counts_the_multiply_accumulates_of_the_network(result: QuickstartResult) -> None:
    assert result.digits is not None
    convolutions = 8 * 8 * 16 * 9 * 1 + 8 * 8 * 32 * 9 * 16
    dense = 512 * 64 + 64 * 10
    assert sum(schedule.macs for schedule in result.digits.schedules) == convolutions + dense


@needs_npu
def test_output_folder_keeps_a_model_that_loads_and_a_trace(
    result: QuickstartResult, folder: Path
) -> None:
    assert result.digits is not None
    assert result.digits.artifact == str(folder / "digits.so")
    assert byoc.load(folder / "digits.so").outputs == (
        byoc.TensorSpec("logits", (1, 10), "float32"),
    )
    trace = json.loads((folder / "digits_trace.json").read_text(encoding="utf-8"))
    names = {event["name"] for event in trace["traceEvents"]}
    assert "example_npu.conv2d_bias_relu" in names


def test_backends_without_a_step_come_with_reason_and_remedy(result: QuickstartResult) -> None:
    states = {state.name: state for state in result.backends}
    assert states.keys() == {backend.name for backend in byoc.list_backends()}
    assert states["llvm"].missing is None
    for state in states.values():
        assert "partition" in state.steps
        if state.missing is not None:
            assert state.missing.detail
            assert state.missing.remedy


def test_printed_text_has_the_module_the_figures_and_every_remedy_on_one_line(
    result: QuickstartResult, text: str
) -> None:
    lines = text.splitlines()
    assert 'R.func_attr({"Composite": "example_npu.conv2d_relu_fused"})' in text
    assert result.digits is not None
    for run in result.digits.runs:
        (line,) = (line for line in lines if line.strip().startswith(f"{run.name} "))
        assert f"{run.accuracy:.2%}" in line
    for state in result.backends:
        if state.missing is not None:
            assert f"    {state.missing.remedy}" in lines


def test_result_is_plain_json(result: QuickstartResult) -> None:
    data = json.loads(json.dumps(result.to_dict()))
    assert data["ok"] is bool(result)
    assert data["digits"]["images"] == 360


def test_without_onnxruntime_the_cpu_code_of_tvm_is_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    console = Console(record=True, file=io.StringIO())
    result = quickstart(console)
    assert result.digits is not None
    assert result.digits.reference == result.digits.runs[0].name == "TVM on the CPU"
    assert "ONNX Runtime is not installed" in console.export_text()


def test_without_onnx_the_tutorial_runs_and_the_remedy_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    result = quickstart()
    assert not result
    assert result.digits is None
    assert result.tutorial.ops_offloaded == 2
    (missing,) = (status for status in result.unavailable if status.name == "onnx")
    assert "pip install" in missing.remedy


def test_without_the_plugin_partitions_are_shown_and_the_rest_is_unavailable() -> None:
    # A fresh process, where the environment keeps the plugin from being loaded.
    code = (
        "import json; from tvm_byoc_kit.quickstart import quickstart; "
        "print(json.dumps(quickstart().to_dict()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"TVM_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["ok"] is False
    assert data["tutorial"]["ops_offloaded"] == data["tutorial"]["ops_total"] == 2
    assert data["tutorial"]["max_abs"] is None
    assert data["digits"]["ops_offloaded"] == data["digits"]["ops_total"] > 0
    assert data["digits"]["artifact_bytes"] is None
    (missing,) = data["unavailable"]
    assert "TVM_DEVICE_BACKEND_AUTOLOAD" in missing["remedy"]


def test_an_artifact_that_fails_in_a_fresh_process_is_an_error_with_the_reason(
    tmp_path: Path,
) -> None:
    (tmp_path / "broken.so").write_bytes(b"no library")
    with pytest.raises(byoc.ArtifactError, match=r"fresh process: .*broken\.so"):
        _predict_in_fresh_process(tmp_path / "broken.so", np.zeros((1, 1, 1, 8, 8), np.float32))


@pytest.mark.parametrize(
    ("max_abs", "disagreements"),
    [
        pytest.param(0.0, 1, id="label"),
        pytest.param(0.01, 0, id="logit"),
        pytest.param(np.nan, 0, id="not a number"),
    ],
)
def test_a_run_that_differs_is_false(max_abs: float, disagreements: int) -> None:
    run = ModelRun("any", 0.9, max_abs, disagreements, ms_per_image=1.0)
    assert not run
    assert ModelRun("any", 0.9, 1e-6, 0, ms_per_image=1.0)


def test_a_tutorial_that_differs_is_false() -> None:
    right = TutorialResult("", 2, 2, 1, output_shape=(1,), max_abs=1e-6)
    wrong = TutorialResult("", 2, 2, 1, output_shape=(1,), max_abs=0.5)
    assert right
    assert not wrong
