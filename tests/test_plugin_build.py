"""Plugins built on demand: what is missing, where they go, and when one is left alone."""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native, plugin_build, remedies

SCRIPT = """
import sys, warnings
from pathlib import Path
from tvm_byoc_kit import plugin_build
plugin_build._places = lambda plugin: (Path(sys.argv[1]), Path(sys.argv[1]))
import numpy as np
import tvm_byoc_kit as byoc
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    exe = byoc.load(sys.argv[2])
    print(exe.run({"x": np.array([-1, 2], "float32")}), [str(w.message) for w in caught])
print("openvino" in sys.modules)
"""


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def run_artifact(
    tmp_path_factory: pytest.TempPathFactory, make_module: Any, run_python: Any
) -> Run:
    """Gives ``run(folder, **environment)``: an artifact, with the plugin that is in a folder."""
    path = tmp_path_factory.mktemp("artifact") / "relu.so"
    module = make_module({"x": ((2,), "float32")}, relax.op.nn.relu)
    byoc.compile(module, "openvino").export(path)
    return lambda folder, **environment: run_python(SCRIPT, folder, path, **environment)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where plugins are looked for, and nothing is there yet."""
    monkeypatch.setattr(plugin_build, "_places", lambda _plugin: (tmp_path, tmp_path))
    return tmp_path


def copy_plugin(source: Path, target: Path, **changes: str) -> None:
    for path in source.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    facts = json.loads((source / "build_info.json").read_text(encoding="utf-8"))
    (target / "build_info.json").write_text(json.dumps(facts | changes), encoding="utf-8")


def test_what_was_not_built_is_told_with_the_command_that_builds_it(place: Path) -> None:
    status = plugin_build.inspect("openvino")
    assert not status
    assert str(status) == (
        "executor:openvino: it was not built. To add it: tvm-byoc build-plugin openvino"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not plugin_build.load("openvino")
        assert plugin_build.find_runtime("openvino") is None
        assert plugin_build.find_runtime("") is None
    assert not list(place.iterdir())


def test_an_unknown_plugin_is_refused_with_those_there_are() -> None:
    for function in (plugin_build.build_plugin, plugin_build.inspect, plugin_build.load):
        with pytest.raises(byoc.OptionError, match=r"no plugin 'nonsense'.*there is openvino"):
            function("nonsense")


@pytest.mark.parametrize("needed", ["openvino", "tvm_ffi", "cmake", "compiler"])
def test_what_the_build_needs_is_named_with_what_adds_it(
    needed: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(name: str) -> byoc.Status:
        return byoc.Status(name, name != needed, f"no {name} here", f"get {name}")

    monkeypatch.setattr(plugin_build, "probe", probe)
    with pytest.raises(byoc.PluginError, match=f"no {needed} here. To add it: get {needed}"):
        plugin_build.build_plugin("openvino")
    assert not list(place.iterdir())


@pytest.mark.usefixtures("place")
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: list[str], **_options: Any) -> Any:
        return subprocess.CompletedProcess(command, 1, stdout="error: no such header\n")

    found = byoc.Status("anything", ok=True, detail="")
    monkeypatch.setattr(plugin_build, "probe", lambda _name: found)
    monkeypatch.setattr(plugin_build.subprocess, "run", fail)
    pytest.importorskip("openvino")
    with pytest.raises(byoc.PluginError, match=r"'openvino' cannot be built: .*no such header"):
        plugin_build.build_plugin("openvino")


def test_without_a_place_to_write_to_the_error_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    places = (Path("/proc/first"), Path("/proc/second"))
    monkeypatch.setattr(plugin_build, "_places", lambda _plugin: places)
    with pytest.raises(byoc.PluginError, match="neither to /proc/first nor to /proc/second"):
        plugin_build._writable_place(plugin_build.BUILDABLE["openvino"])


def test_environments_do_not_share_a_folder_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = plugin_build.BUILDABLE["openvino"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    first = plugin_build._places(plugin)
    monkeypatch.setattr(native, "LIB_DIR", Path("/other/tvm_byoc_kit/lib"))
    second = plugin_build._places(plugin)
    assert first[1].is_relative_to("/cache")
    assert second[0] == Path("/other/tvm_byoc_kit/lib/built/openvino")
    assert not set(first) & set(second)


def test_libraries_are_found_by_relative_path_inside_one_environment_only() -> None:
    folder = Path("/env/site-packages/vendor/libs")
    inside = Path("/env/site-packages/tvm_byoc_kit/lib/built/vendor")
    assert plugin_build._library_path(folder, inside) == "$ORIGIN/../../../../vendor/libs"
    assert plugin_build._library_path(folder, Path("/home/me/.cache")) == str(folder)


def test_a_built_plugin_runs_an_artifact_without_openvinos_python(
    openvino_plugin: Path, run_artifact: Run
) -> None:
    done = run_artifact(openvino_plugin)
    assert done.stdout.splitlines() == [
        "{'output': array([0., 2.], dtype=float32)} []",
        "False",
    ], done.stderr


def test_the_environment_variable_keeps_to_python(openvino_plugin: Path, run_artifact: Run) -> None:
    done = run_artifact(openvino_plugin, TVM_BYOC_EXECUTORS="python")
    assert done.stdout.splitlines()[-1] == "True", done.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"openvino": "2020.1"}, "was built from openvino 2020.1, and "),
        ({"sources": "0"}, "was built from other sources than the kit has"),
        ({"tvm_ffi": "0.1.0"}, "was built for apache-tvm-ffi 0.1.0, but "),
    ],
)
def test_a_stale_plugin_is_left_alone_with_one_warning(
    openvino_plugin: Path, run_artifact: Run, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    copy_plugin(openvino_plugin, tmp_path, **change)
    done = run_artifact(tmp_path)
    first, second = done.stdout.splitlines()
    assert first.count(says) == 1, done.stderr
    assert "To add it: tvm-byoc build-plugin openvino; the executor in Python is used" in first
    assert second == "True"


def test_a_damaged_library_is_left_alone_with_a_warning(
    openvino_plugin: Path, run_artifact: Run, tmp_path: Path
) -> None:
    copy_plugin(openvino_plugin, tmp_path)
    (tmp_path / "libbyoc_openvino.so").write_bytes(b"\x7fELF and no more")
    done = run_artifact(tmp_path)
    first, second = done.stdout.splitlines()
    assert "cannot load" in first
    assert second == "True", done.stderr


def test_a_library_without_its_package_counts_as_stale(
    openvino_plugin: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_plugin(openvino_plugin, place)
    monkeypatch.setattr(remedies, "version_of", lambda _package: "unknown")
    assert "and unknown is installed" in plugin_build.inspect("openvino").detail


def test_build_information_that_is_damaged_counts_as_stale(
    openvino_plugin: Path, place: Path
) -> None:
    copy_plugin(openvino_plugin, place)
    assert plugin_build.inspect("openvino")
    (place / "build_info.json").write_text("{", encoding="utf-8")
    assert "damaged" in plugin_build.inspect("openvino").detail
