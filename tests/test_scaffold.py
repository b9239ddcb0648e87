"""What `tvm-byoc new` writes, and what it refuses; the projects run in integration/."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import backend, scaffold
from tvm_byoc_kit.cli import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("kind", ["python", "cpp"])
def test_the_files_given_back_are_those_written(here: Path, kind: scaffold.Kind) -> None:
    written = byoc.new_backend("acme_npu", kind)
    assert list(written) == files(here / "acme_npu")
    assert {Path("README.md"), Path("pyproject.toml"), Path(".gitignore")} < set(written)
    assert Path("tests/test_acme_npu.py") in written
    assert (Path("CMakeLists.txt") in written) == (kind == "cpp")


@pytest.mark.parametrize("kind", ["python", "cpp"])
def test_the_name_stands_everywhere_in_the_place_of_the_placeholder(
    here: Path, kind: scaffold.Kind
) -> None:
    for path in byoc.new_backend("x1", kind):
        assert scaffold.PLACEHOLDER not in str(path)
        assert scaffold.PLACEHOLDER not in (here / "x1" / path).read_text(encoding="utf-8")
    compile((here / "x1/x1/__init__.py").read_text(encoding="utf-8"), "x1", "exec")


def test_an_empty_folder_is_filled(here: Path) -> None:
    (here / "deep" / "project").mkdir(parents=True)
    byoc.new_backend("acme_npu", directory=here / "deep" / "project")
    assert (here / "deep/project/acme_npu/runtime.py").is_file()
    assert [path.name for path in (here / "deep").iterdir()] == ["project"]


def test_a_folder_with_something_in_it_is_left_alone(here: Path) -> None:
    (here / "acme_npu").mkdir()
    (here / "acme_npu" / "notes.txt").write_text("mine")
    with pytest.raises(byoc.OptionError, match="acme_npu is not empty; give a folder that"):
        byoc.new_backend("acme_npu")
    assert files(here) == [Path("acme_npu/notes.txt")]


def test_a_file_in_the_place_of_the_folder_is_left_alone(here: Path) -> None:
    (here / "acme_npu").write_text("mine")
    with pytest.raises(byoc.OptionError, match="acme_npu is no folder"):
        byoc.new_backend("acme_npu")
    assert (here / "acme_npu").read_text() == "mine"


def test_an_error_half_way_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_text

    def fail(path: Path, *arguments: object, **options: object) -> int:
        if path.name == "runtime.py":
            raise OSError(28, "No space left on device")
        return write(path, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(byoc.OptionError, match=r"acme_npu cannot be written: .*No space left"):
        byoc.new_backend("acme_npu")
    assert list(here.iterdir()) == []


@pytest.fixture
def acme_tuples(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[byoc.Backend]:
    """A new backend in Python that was given a kernel for concat, for one test."""
    byoc.new_backend("acme_tuples")
    monkeypatch.syspath_prepend(here / "acme_tuples")
    kernels = importlib.import_module("acme_tuples.runtime").KERNELS
    kernels["relax.concat"] = lambda _op, *parts: np.concatenate(parts)
    made = importlib.import_module("acme_tuples").BACKEND
    pattern = byoc.Pattern("concat", ["relax.concat"])
    yield byoc.register_backend(replace(made, patterns=[pattern]))
    del backend.REGISTERED["acme_tuples"]
    for module in [name for name in sys.modules if name.startswith("acme_tuples")]:
        del sys.modules[module]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_tensors_of_a_tuple_are_checked_and_handed_to_the_kernel(
    acme_tuples: byoc.Backend, make_module: Any, dtype: str
) -> None:
    mod = make_module(
        {"x": ((2, 3), dtype), "y": ((1, 3), dtype)}, lambda x, y: relax.op.concat([x, y])
    )
    parts = byoc.partition(mod, acme_tuples)
    if dtype == "int32":
        assert "relax.concat of int32; acme_tuples has float32" in str(parts.coverage)
        return
    assert parts.coverage.offloaded == 1
    x, y = np.full((2, 3), 2, dtype), np.ones((1, 3), dtype)
    (got,) = byoc.build(parts).run({"x": x, "y": y}).values()
    np.testing.assert_array_equal(got, np.concatenate([x, y]))


def test_a_pattern_without_a_kernel_is_told_when_a_model_is_built(
    acme_tuples: byoc.Backend, make_module: Any
) -> None:
    patterns = [byoc.Pattern("tanh", ["relax.tanh"])]
    mod = make_module({"x": ((2, 3), "float32")}, relax.op.tanh)
    parts = byoc.partition(mod, replace(acme_tuples, patterns=patterns))
    message = (
        r"acme_tuples/patterns\.py takes relax\.tanh, .*acme_tuples/runtime\.py .*add a kernel$"
    )
    with pytest.raises(byoc.ModelError, match=message):
        byoc.build(parts)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("Acme-NPU", "acme_npu"),
        ("2fast", "npu_2fast"),
        ("acme_", "acme"),
        ("class", "class_npu"),
        ("conftest", "conftest_npu"),
        ("a.b", "a_b"),
        ("src", "src_npu"),
        ("", "npu"),
        ("../up", "up"),
        ("ünit", "nit"),
    ],
)
def test_a_name_that_is_no_package_is_refused_with_one_that_is(name: str, instead: str) -> None:
    with pytest.raises(byoc.OptionError, match=f"for instance '{instead}'"):
        byoc.new_backend(name)
    byoc.new_backend(instead)


def test_a_backend_s_name_is_refused_with_its_owner() -> None:
    message = "'openvino' belongs to tvm_byoc_kit; choose another, such as 'my_openvino'"
    with pytest.raises(byoc.OptionError, match=message):
        byoc.new_backend("openvino")


def test_the_name_of_a_package_of_pip_is_refused() -> None:
    message = "pip has installed a package 'apache_tvm' here.*such as 'apache_tvm_backend'"
    with pytest.raises(byoc.OptionError, match=message):
        byoc.new_backend("apache_tvm")


def test_a_module_s_name_is_refused() -> None:
    with pytest.raises(byoc.OptionError, match="'numpy' is here already, which the project's"):
        byoc.new_backend("numpy")


def test_another_kind_is_refused() -> None:
    with pytest.raises(byoc.OptionError, match="kind 'rust': expected one of python, cpp"):
        byoc.new_backend("acme_npu", "rust")  # type: ignore[arg-type]


def test_the_command_tells_what_it_wrote_and_what_comes_next(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["tvm-byoc", "new", "acme_npu", "--cpp", "--dir", "a b", "--json"]
    monkeypatch.setattr("sys.argv", line)
    with pytest.raises(SystemExit):
        app()
    facts = json.loads(capsys.readouterr().out)
    assert facts["files"] == list(map(str, files(here / "a b")))
    assert facts["kind"] == "cpp"
    assert facts["next"][0] == "cd 'a b'"
    readme = (here / "a b" / "README.md").read_text(encoding="utf-8")
    assert "\n".join(facts["next"][1:]) in readme  # whose commands a test runs
