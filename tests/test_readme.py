"""Every command and every example of the README runs, and shows what the README shows."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = "tvm_byoc_kit/data/digits.onnx"

# Commands that set up an environment of their own: what runs them instead of this file.
RUN_BY_CI = {
    "scripts/quickstart.sh": "scripts/quickstart.sh",
    "scripts/test.sh": "scripts/test.sh",
    ".ci/run": "is CI itself",
    'pip install ".[onnx]"': "scripts/quickstart.sh",
}

pytestmark = pytest.mark.byoc("example_npu", step="runtime")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("bash") for line in block.splitlines() if line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the model where the README names it, and nothing of the checkout."""
    (tmp_path / MODEL).parent.mkdir(parents=True)
    shutil.copy(ROOT / MODEL, tmp_path / MODEL)
    return tmp_path


def shell(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    script = cwd / "example.py"
    script.write_text(code, encoding="utf-8")
    return subprocess.run(
        [sys.executable, str(script)], cwd=cwd, capture_output=True, text=True, check=False
    )


def without_numbers(text: str) -> str:
    return re.sub(r"-?\d[\d.e+-]*", "N", text)


def test_commands_of_the_readme_run(folder: Path) -> None:
    here = [command for command in commands() if command not in RUN_BY_CI]
    assert any(command.startswith("tvm-byoc run") for command in here)
    for command in here:
        done = shell(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert (folder / "digits.so").stat().st_size > 0
    assert (folder / "trace.json").stat().st_size > 0


def test_commands_not_run_here_are_run_by_ci() -> None:
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for command, runner in RUN_BY_CI.items():
        assert command in commands()
        assert runner in ci or command == ".ci/run", f"CI does not run {command}"


def test_four_steps_print_what_the_readme_shows(folder: Path) -> None:
    done = python(blocks("python")[0], folder)
    assert done.returncode == 0, done.stderr
    shown = [without_numbers(block).strip() for block in blocks("text")]
    assert without_numbers(done.stdout).strip() in shown


def test_dry_run_prints_what_the_readme_shows(folder: Path) -> None:
    code = next(block for block in blocks("python") if "dry_run" in block)
    done = python(code, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout in blocks("text")


def test_partition_prints_what_the_readme_shows(folder: Path) -> None:
    line = next(command for command in commands() if "--html" in command)
    done = shell(line, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout in blocks("text")
    assert (folder / "report.html").stat().st_size > 0


def test_example_npu_example_writes_a_trace(folder: Path) -> None:
    code = next(block for block in blocks("python") if "write_chrome_trace" in block)
    done = python(code, folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "trace.json").stat().st_size > 0


def test_torch_example_reports_and_agrees(folder: Path) -> None:
    code = next(block for block in blocks("python") if "import torch" in block)
    done = python(code, folder)
    assert done.returncode == 0, done.stderr
    assert "prepared for tensorrt" in done.stdout
    assert "agrees with torch" in done.stdout


def test_example_of_open_sizes_plans_and_agrees(folder: Path) -> None:
    code = next(block for block in blocks("python") if "Buckets" in block)
    done = python(code, folder)
    assert done.returncode == 0, done.stderr
    assert re.match(r"\d+ calls?: main", done.stdout)


def test_python_backend_agrees_and_exports(folder: Path) -> None:
    code = next(block for block in blocks("python") if "register_backend" in block)
    done = python(code, folder)
    assert done.returncode == 0, done.stderr
    assert "agrees with torch" in done.stdout
    assert (folder / "my_npu.so").stat().st_size > 0


def test_pytest_example_skips_with_the_reason(folder: Path) -> None:
    code = next(block for block in blocks("python") if "pytest.mark.byoc" in block)
    (folder / "test_example.py").write_text(code, encoding="utf-8")
    done = shell(f"{sys.executable} -m pytest -rs -p no:cacheprovider test_example.py", folder)
    assert done.returncode == 0, done.stdout
    assert "1 skipped" in done.stdout or "1 passed" in done.stdout


def test_links_of_the_readme_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert target.startswith("https://") or (ROOT / target).exists(), target
