"""Models from PyPI's wheels against ONNX Runtime, and the script that runs them all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "real_models.md"
MEMORY = 12 * 2**30

# Quick ones with small wheels: by name the share of the ops that the example NPU takes at least.
QUICK = {
    "silero-vad": 0.6,  # If over an input made constant, LSTM
    "openwakeword mycroft": 0.6,  # two LSTMs
    "openwakeword jarvis": 0.8,  # an If decided at run time
    "basic-pitch": 0.7,
    "swift-f0": 0.6,
}


@pytest.fixture(scope="module")
def model(script: Any) -> Any:
    """Gives a model of the table by its name."""
    return {model.name: model for model in script.MODELS}.__getitem__


def downloaded(script: Any, model: Any) -> Path:
    try:
        return script.model_file(model, script.default_cache())
    except OSError as error:
        pytest.skip(f"no network, or the wheel is gone: {error}")


@pytest.mark.slow
@pytest.mark.byoc("example_npu", step="runtime")
@pytest.mark.parametrize("name", QUICK)
def test_models_of_wheels_agree_with_onnxruntime(script: Any, model: Any, name: str) -> None:
    path = downloaded(script, model(name))
    result = script.run_child(model(name), path, seed=0, timeout=900, memory=MEMORY)
    assert result.outcome == "ok", result.reason
    assert result.offloaded / result.ops >= QUICK[name]


@pytest.mark.slow
def test_a_child_that_hangs_or_dies_is_a_result(script: Any, model: Any, tmp_path: Path) -> None:
    missing = tmp_path / "missing.onnx"
    hung = script.run_child(model("magika"), missing, seed=0, timeout=0.01, memory=MEMORY)
    assert (hung.outcome, hung.reason) == ("hung", "no answer in 0.01 s")
    died = script.run_child(model("magika"), missing, seed=0, timeout=900, memory=2**27)
    assert died.outcome == "crashed"
    # Where memory runs out first decides which of Python's errors it is.
    assert re.fullmatch(
        r"exit status 1: (MemoryError|OSError: .*Cannot allocate memory.*)", died.reason
    )
    raised = script.run_child(model("magika"), missing, seed=0, timeout=900, memory=MEMORY)
    assert raised.outcome == "error"
    assert raised.reason.startswith("load_model: FileNotFoundError: ")


def test_a_wheel_that_cannot_be_downloaded_is_a_result(
    script: Any, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    options = script.parse(["--cache", str(tmp_path)])
    (result,) = script.run_all([model("magika")], options)
    assert result.outcome == "unavailable"
    assert result.reason.startswith("pip download magika==")


def test_the_page_has_every_model_and_no_failure(script: Any) -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    results = {row[0].strip(): row[2] for row in rows if len(row) == len(script.COLUMNS)}
    assert set(results) >= {model.name for model in script.MODELS}
    for model in script.MODELS:
        assert results[model.name].split(":")[0] in ("ok", "refused"), model.name
    packages = {model.wheel.partition("==")[0] for model in script.MODELS}
    assert len(packages) >= 9


def test_the_page_counts_operators_as_the_kit_has_them(script: Any) -> None:
    covered = script.coverage()
    parts = (covered.importer, covered.rewrites, covered.functions, covered.refused)
    assert sum(map(len, parts)) == covered.operators
    text = PAGE.read_text(encoding="utf-8")
    assert f"importer | {len(covered.importer)} |" in text
    for names in (covered.rewrites, covered.functions, covered.refused):
        assert f"| {len(names)}: {', '.join(names)} |" in text


def test_results_survive_json_and_tables(script: Any, model: Any) -> None:
    result = script.Result("magika", "wrong", "two | three\n  <four>", ops=9, offloaded=3)
    assert script.Result(**json.loads(json.dumps(vars(result)))) == result
    page = script.page([(replace(model("magika"), note="why"), result)], script.coverage())
    assert "| wrong: two \\| three<br>&lt;four&gt; |" in page
    assert "- magika: why" in page
    assert "1 models: 1 wrong." in page
