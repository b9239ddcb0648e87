"""docs/your_backend.md, command by command: both kinds of project, generated, installed, used."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from tvm_byoc_kit import scaffold

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your_backend.md").read_text(encoding="utf-8")
PROJECTS = {"python": "acme_npu", "cpp": "acme_cpp"}
KINDS = pytest.mark.parametrize("kind", PROJECTS)

pytestmark = pytest.mark.slow


def commands(text: str) -> list[str]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


class Done(NamedTuple):
    command: str
    folder: Path
    output: str


class Workbench:
    """A virtual environment that sees the packages of this one, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "env" / "bin"
        venv.create(folder / "env", with_pip=False)
        python = self.bin / "python"
        packages = sysconfig.get_path(
            "purelib", vars={"base": str(folder / "env"), "platbase": str(folder / "env")}
        )
        Path(packages, "parent.pth").write_text("\n".join(site.getsitepackages()))
        # What the page's commands are: of this environment, and without the network.
        pip = f'{python} -m pip "$@" --no-deps --no-build-isolation'
        for name, line in {
            "pip": f"{pip} --quiet --disable-pip-version-check",
            "pytest": f'{python} -m pytest -p no:cacheprovider "$@"',
            "tvm-byoc": f'{python} -m tvm_byoc_kit.cli "$@"',
        }.items():
            (self.bin / name).write_text(f"#!/bin/sh\nexec {line}\n")
            (self.bin / name).chmod(0o755)

    def run(self, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        path = f"{self.bin}{os.pathsep}{kept['PATH']}"
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**kept, "PATH": path, "COLUMNS": "200"},
        )


@pytest.fixture(scope="module")
def workbench(tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    return Workbench(tmp_path_factory.mktemp("backend"))


@pytest.fixture(scope="module")
def page(workbench: Workbench) -> list[Done]:
    """Every command of the page, run in its order."""
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        pytest.skip("no C++ compiler: install g++")
    done, folder = [], workbench.folder
    for command in commands(PAGE):
        if command.startswith("cd "):
            folder = (folder / command.removeprefix("cd ")).resolve()
            continue
        result = workbench.run(command, folder)
        assert result.returncode == 0, f"{command}\n{result.stdout}"
        done.append(Done(command, folder, result.stdout))
    return done


def output(page: list[Done], kind: str, command: str) -> str:
    """What the first such command gave in the project of that kind."""
    found = [
        done.output
        for done in page
        if done.command.startswith(command) and done.folder.name == PROJECTS[kind]
    ]
    assert found, f"the page does not run {command} in the project of kind {kind}"
    return found[0]


@KINDS
def test_the_project_passes_its_own_tests(page: list[Done], kind: str) -> None:
    assert re.search(r"\b12 passed", output(page, kind, "pytest"))


@KINDS
def test_the_doctor_shows_the_backend(page: list[Done], kind: str) -> None:
    row = re.compile(rf"^{PROJECTS[kind]}( +ok){{4}}\s*$", re.MULTILINE)
    assert row.search(output(page, kind, "tvm-byoc doctor"))


@KINDS
def test_the_digits_model_runs_on_it_with_all_of_its_macs(page: list[Done], kind: str) -> None:
    shown = output(page, kind, "tvm-byoc partition")
    assert "13 of 13 ops offloaded in 1 region(s), with 100 % of 338 kMACs" in shown
    assert "2 x conv2d_bias_relu, max_pool2d, reshape, matmul_bias_relu, matmul_bias" in shown


@KINDS
def test_the_artifact_agrees_in_a_fresh_process(page: list[Done], kind: str) -> None:
    assert "agrees with onnxruntime" in output(page, kind, "tvm-byoc verify")


@KINDS
def test_the_readme_of_the_project_runs_what_the_page_runs(
    page: list[Done], workbench: Workbench, kind: str
) -> None:
    name = PROJECTS[kind]
    readme = (workbench.folder / name / "README.md").read_text(encoding="utf-8")
    assert len(commands(readme)) > 5
    ran = {done.command for done in page if done.folder.name == name}
    assert set(commands(readme)) <= ran


@KINDS
def test_the_readme_names_files_that_are_there(
    page: list[Done], workbench: Workbench, kind: str
) -> None:
    assert page
    project = workbench.folder / PROJECTS[kind]
    named = re.findall(r"^\| `([^`]+)`", (project / "README.md").read_text(), re.MULTILINE)
    assert len(named) > 5
    assert [name for name in named if not (project / name).exists()] == []


# A kernel made wrong: where, what stood there, what stands there then, and what builds it again.
FAULTS = {
    "python": ("acme_npu/runtime.py", "np.maximum(x, 0)", "np.maximum(x, 0.5)", "true"),
    "cpp": (
        "src/kernels.cc",
        "std::max(value, 0.0f)",
        "std::max(value, 0.5f)",
        "pip install --no-build-isolation -e .",
    ),
}


@KINDS
def test_a_fault_in_a_kernel_fails_the_project_s_tests(
    page: list[Done], workbench: Workbench, kind: str
) -> None:
    assert page
    project = workbench.folder / PROJECTS[kind]
    name, right, wrong, build = FAULTS[kind]
    source = (project / name).read_text(encoding="utf-8")
    assert source.count(right) == 1
    (project / name).write_text(source.replace(right, wrong), encoding="utf-8")
    built = workbench.run(build, project)
    assert built.returncode == 0, built.stdout
    done = workbench.run("pytest -k agree", project)
    assert done.returncode == 1
    # Those with a ReLU, and no other.
    failed = re.findall(r"^FAILED .*\[(\w+)\]", done.stdout, re.MULTILINE)
    assert failed == ["conv2d_bias_relu", "flatten"]


@KINDS
def test_a_pattern_without_a_kernel_is_told_when_a_model_is_built(
    page: list[Done], workbench: Workbench, kind: str
) -> None:
    assert page
    name = PROJECTS[kind]
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    tanh = onnx.parser.parse_model(f"{head} g (float[2] x) => (float[2] y) {{ y = Tanh(x) }}")
    onnx.save(tanh, workbench.folder / "tanh.onnx")
    patterns = workbench.folder / name / name / "patterns.py"
    source = patterns.read_text(encoding="utf-8")
    more = 'PATTERNS = [byoc.Pattern("tanh", ["relax.tanh"]),'
    patterns.write_text(source.replace("PATTERNS = [", more), encoding="utf-8")
    compiling = f"tvm-byoc compile tanh.onnx --backend {name} --output tanh.so"
    done = workbench.run(compiling, workbench.folder)
    patterns.write_text(source, encoding="utf-8")
    assert done.returncode == 1
    file = {"python": f"{name}/runtime.py", "cpp": "src/kernels.cc"}[kind]
    told = rf"tvm-byoc: .*{name}/patterns.py takes relax.tanh.*{file} does not have; add a kernel\n"
    assert re.fullmatch(told, done.stdout), done.stdout


def test_nothing_of_the_templates_is_left(page: list[Done], workbench: Workbench) -> None:
    assert page
    for name in PROJECTS.values():
        for path in (workbench.folder / name).rglob("*"):
            assert scaffold.PLACEHOLDER not in path.name
            if path.suffix in {".py", ".cc", ".h", ".toml", ".md", ".txt"}:
                assert scaffold.PLACEHOLDER not in path.read_text(encoding="utf-8"), path


def test_links_of_the_page_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert targets
    for target in targets:
        assert (ROOT / "docs" / target).exists(), target
