"""What the build makes: the plugins' dependencies and symbols; an install without a compiler."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tvm_byoc_kit

PACKAGE = Path(tvm_byoc_kit.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = PACKAGE / "lib" / "libbyoc_example_npu.so"
CORE = PACKAGE / "lib" / "libbyoc_core.so"
C_AND_CXX_RUNTIME = {"libc.so.6", "libdl.so.2", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"}
DYNAMIC_LOADER = re.compile(r"ld-linux.*")
PIP_WHEEL = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation")


def run(*command: str | Path, **kwargs: object) -> str:
    """Run a command that must succeed and return what it printed to either stream."""
    result = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **kwargs
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module", params=[PLUGIN, CORE], ids=["example_npu", "core"])
def plugin(request: pytest.FixtureRequest) -> Path:
    """A plugin's library."""
    path: Path = request.param
    return path


@pytest.fixture(scope="module")
def dynamic_section(plugin: Path) -> dict[str, list[str]]:
    """Map a tag of the plugin's dynamic section (NEEDED, RUNPATH) to its values."""
    if not plugin.exists() and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("the plugin is not built: no C++ compiler on this machine")
    if not shutil.which("readelf"):
        pytest.skip("readelf is missing: install binutils")
    section: dict[str, list[str]] = {}
    for tag, value in re.findall(
        r"\((\w+)\)\s+[\w ]+: \[(.*)\]", run("readelf", "--dynamic", plugin)
    ):
        section.setdefault(tag, []).append(value)
    return section


def test_plugin_needs_tvm_ffi_and_the_language_runtime_only(
    dynamic_section: dict[str, list[str]],
) -> None:
    needed = {lib for lib in dynamic_section["NEEDED"] if not DYNAMIC_LOADER.fullmatch(lib)}
    assert "libtvm_ffi.so" in needed
    assert needed - {"libtvm_ffi.so"} <= C_AND_CXX_RUNTIME


def test_plugin_finds_tvm_ffi_relative_to_itself(dynamic_section: dict[str, list[str]]) -> None:
    assert dynamic_section["RUNPATH"] == ["$ORIGIN/../../tvm_ffi/lib"]


@pytest.mark.usefixtures("dynamic_section")
def test_plugin_exports_nothing_but_the_type_information_of_ffi_errors(plugin: Path) -> None:
    rows = map(str.split, run("readelf", "--dyn-syms", "--wide", plugin).splitlines())
    defined = [row[-1] for row in rows if len(row) >= 8 and row[6].isdigit()]
    assert defined
    assert not [name for name in defined if not re.match(r"_ZT[IS]N3tvm3ffi", name)]


@pytest.mark.usefixtures("dynamic_section")
def test_build_info_names_the_versions_the_plugin_was_built_with() -> None:
    info = json.loads((PACKAGE / "lib" / "build_info.json").read_text())
    assert info["tvm_ffi"] == importlib.metadata.version("apache-tvm-ffi")
    assert info["plugins"] == ["core", "example_npu"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", info["kit"])
    assert re.fullmatch(r"\w+ [\d.]+", info["compiler"])


def test_build_and_run_requirement_of_tvm_ffi_are_the_same_exact_version() -> None:
    pins = re.findall(r'"(apache-tvm-ffi[^"]*)"', (ROOT / "pyproject.toml").read_text())
    assert len(pins) == 2
    assert pins[0] == pins[1]
    assert "==" in pins[0]
    constraints = (ROOT / "scripts" / "constraints.txt").read_text().splitlines()
    assert pins[0] in constraints


def without_compiler() -> dict[str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "TVM_BYOC_REQUIRE_PLUGIN"}
    return environment | {"CXX": "/nonexistent/c++", "CC": "/nonexistent/cc"}


@pytest.fixture(scope="module")
def wheel_without_compiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("scikit_build_core")
    output = tmp_path_factory.mktemp("wheel")
    log = run(*PIP_WHEEL, "--verbose", "-w", output, ROOT, env=without_compiler())
    assert "plugins were not built" in log
    assert "apt install g++" in log
    (wheel,) = output.glob("*.whl")
    return wheel


def test_without_a_compiler_the_wheel_has_the_python_half(wheel_without_compiler: Path) -> None:
    names = zipfile.ZipFile(wheel_without_compiler).namelist()
    assert wheel_without_compiler.name.endswith("-py3-none-any.whl")
    assert "tvm_byoc_kit/__init__.py" in names
    assert not [name for name in names if name.endswith(".so")]


def test_without_a_compiler_partitioning_works_and_the_plugin_is_reported_missing(
    wheel_without_compiler: Path, tmp_path: Path
) -> None:
    zipfile.ZipFile(wheel_without_compiler).extractall(tmp_path)
    script = """
import tvm
from tvm import relax
import tvm_byoc_kit as byoc
from tvm_byoc_kit import native
assert byoc.__file__.startswith({site!r}), byoc.__file__
status = native.load("example_npu")
assert not status
assert status.remedy
builder = relax.BlockBuilder()
x = relax.Var("x", relax.TensorType((1, 8), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        y = builder.emit_output(builder.emit(relax.op.nn.relu(x)))
    builder.emit_func_output(y)
text = str(byoc.partition(builder.get(), "example_npu").mod)
assert 'Codegen' in text and 'example_npu' in text, text
"""
    run(
        sys.executable,
        "-c",
        script.format(site=str(tmp_path)),
        cwd=tmp_path,
        env=without_compiler() | {"PYTHONPATH": str(tmp_path)},
    )


def test_a_failing_build_is_an_error_when_the_plugin_is_required(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    result = subprocess.run(
        [*PIP_WHEEL, "-w", tmp_path, ROOT],
        capture_output=True,
        text=True,
        check=False,
        env=without_compiler() | {"TVM_BYOC_REQUIRE_PLUGIN": "1"},
    )
    assert result.returncode != 0
    assert "/nonexistent/c++" in result.stdout + result.stderr
