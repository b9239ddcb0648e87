"""scripts/gpu_check.py without a GPU: artifacts for the CPU stand in for those that need one."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.artifact import write_artifact

SCRIPT = Path(__file__).parents[1] / "scripts" / "gpu_check.py"
CRASH = "__attribute__((constructor)) void crash() { *(volatile int *)0 = 0; }"

pytestmark = [pytest.mark.byoc("openvino"), pytest.mark.byoc("llvm", step="codegen")]
no_gpu = pytest.mark.skipif(bool(byoc.probe("cuda-driver")), reason="there is a GPU")

Run = Callable[..., subprocess.CompletedProcess[str]]


def gpu_check(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",  # not the checkout, which would hide the installed package
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prepare` makes of the smallest model; tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("check") / "folder"
    done = gpu_check("prepare", folder, "--models", "digits", "--no-wheels")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "folder"))


def change_plan(folder: Path, **fields: Any) -> None:
    plan = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    (folder / "plan.json").write_text(json.dumps({**plan, **fields}), encoding="utf-8")


def items(report: Path) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in json.loads(report.read_text(encoding="utf-8"))["items"]}


def test_the_folder_has_the_artifacts_their_reference_and_this_script(prepared: Path) -> None:
    plan = json.loads((prepared / "plan.json").read_text(encoding="utf-8"))
    assert [item["side"] for item in plan["items"]] == ["llvm", "openvino"]
    for item in plan["items"]:
        assert item["error"] == ""
        assert byoc.read_manifest(prepared / item["file"]).backend == item["side"]
    with np.load(prepared / "artifacts" / "digits.npz") as arrays:
        expected = byoc.load_model(SCRIPT.parents[1] / "tvm_byoc_kit/data/digits.onnx").reference
        (logits,) = expected.run({"image": arrays["in0"]}).values()
        np.testing.assert_array_equal(arrays["out0"], logits)
    assert (prepared / "kit" / "scripts" / "gpu_check.py").is_file()
    assert (prepared / "kit" / "tests" / "gpu").is_dir()


def test_a_run_checks_and_measures_and_reports(folder: Path) -> None:
    done = gpu_check("run", folder, "--items", "digits/*", "--json", folder / "r.json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = items(folder / "r.json")
    assert found.keys() == {"digits/llvm", "digits/openvino"}
    for name, item in found.items():
        assert item["state"] == "ok"
        assert item["max_abs"] < 1e-3
        assert 0 < item["ms"]["lower"] <= item["ms"]["median"] <= item["ms"]["upper"]
        (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"{name} ")]
        assert f"{item['ms']['median']:.3f}" in row.split()


def test_wrong_numbers_and_a_crash_are_told_apart_and_stop_nothing(folder: Path) -> None:
    artifact, data = folder / "artifacts" / "digits-llvm.so", folder / "artifacts" / "digits.npz"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o"]
    write_artifact(
        artifact,
        byoc.read_manifest(artifact),
        lambda path: subprocess.run([*command, path], input=CRASH, text=True, check=True),
    )
    with np.load(data) as arrays:
        changed = {**arrays, "out0": arrays["out0"] + 0.01}
    np.savez(data, **changed)
    done = gpu_check("run", folder, "--items", "digits/*", "--json", folder / "r.json")
    assert done.returncode == 1
    found = items(folder / "r.json")
    crashed, wrong = found["digits/llvm"], found["digits/openvino"]
    assert crashed["state"] == "failed"
    assert crashed["detail"] == "the process was ended by SIGSEGV"
    assert wrong["state"] == "wrong"
    assert wrong["max_abs"] == pytest.approx(0.01, abs=1e-4)
    assert wrong["ms"] is None, "there is no speed of wrong numbers"


def test_what_the_time_does_not_suffice_for_is_listed(folder: Path) -> None:
    arguments = ("--items", "digits/*", "--budget", 0, "--json", folder / "r.json")
    done = gpu_check("run", folder, *arguments)
    assert done.returncode == 1
    for item in items(folder / "r.json").values():
        assert (item["state"], item["detail"]) == ("not run", "the 0 s are used up")
    assert done.stdout.count("the 0 s are used up") == 2


def test_an_item_that_was_not_built_says_why(folder: Path) -> None:
    missing = {"model": "digits", "side": "llvm", "error": "pip install x[y]"}
    change_plan(folder, items=[missing])
    done = gpu_check("run", folder, "--items", "digits/*")
    assert done.returncode == 1
    assert "was not built: pip install x[y]" in done.stdout


@no_gpu
def test_without_a_gpu_a_run_says_so_in_one_line_and_its_dry_run_is_fine(folder: Path) -> None:
    done = gpu_check("run", folder)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu_check: ")
    assert "run this on a machine with an NVIDIA GPU" in line
    done = gpu_check("run", folder, "--dry-run")
    assert done.returncode == 0
    for words in ("digits/llvm", "tests", "missing: "):
        assert words in done.stdout


def test_wheels_for_another_python_are_refused_before_anything_is_installed(folder: Path) -> None:
    change_plan(folder, python="3.9")
    (folder / "wheels").mkdir()
    (folder / "wheels" / "some-1-py3-none-any.whl").touch()
    done = gpu_check("run", folder, "--items", "digits/*")
    assert done.returncode == 1
    assert "the wheels are for Python 3.9" in done.stderr
    assert not (folder / "venv").exists()


def test_a_folder_that_was_not_prepared_is_refused(tmp_path: Path) -> None:
    done = gpu_check("run", tmp_path)
    assert done.returncode == 1
    assert "has no plan.json: fill it with" in done.stderr


def test_the_dry_run_of_prepare_names_every_item_and_writes_nothing(tmp_path: Path) -> None:
    done = gpu_check("prepare", tmp_path / "new", "--dry-run", "--no-torch")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    for model in ("resnet18", "encoder"):
        for side in ("torch", "cuda", "cutlass", "tensorrt", "tensorrt-direct"):
            assert f"{model}/{side}" in lines
    assert {"matmul/cutlass", "matmul/cutlass-tf32", "conv-relu/cutlass"} <= lines.keys()
    assert "torch" not in lines["wheels"]
    assert not (tmp_path / "new").exists()


TESTS = """
import pytest

pytestmark = pytest.mark.gpu


def test_passes(): pass
@pytest.fixture
def broken(): raise ValueError
def test_of_fixture(broken): pass
def test_fails(): raise ValueError
def test_skips(): pytest.skip("no GPU")
"""


def test_the_tests_are_counted_by_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    runner = importlib.import_module("gpu_check_run")
    tests = tmp_path / "kit" / "tests" / "gpu"
    tests.mkdir(parents=True)
    (tests / "test_some.py").write_text(TESTS, encoding="utf-8")
    (tests / "test_others.py").write_text("import no_such_module", encoding="utf-8")
    result = runner._run_tests(tmp_path, runner.Clock(3600.0, time.time()))
    assert result.state == "failed"
    assert result.detail.startswith("2 error, 1 failed, 1 passed, 1 skipped; ")
