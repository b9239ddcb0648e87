"""What `import tvm_byoc_kit` costs, and that its public names appear when they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import tvm_byoc_kit

HEAVY = ("torch", "onnx", "onnxruntime", "tvm", "tvm_ffi", "numpy", "rich", "typer", "pytest")


def _run(script: str) -> str:
    """Run a script in a fresh interpreter and return what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd="/",  # not the checkout, which would hide the installed package
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def _imported_after(statement: str) -> set[str]:
    return set(
        json.loads(_run(f"{statement}\nimport json, sys\nprint(json.dumps([*sys.modules]))"))
    )


@pytest.mark.parametrize(
    "module",
    ["tvm_byoc_kit", "tvm_byoc_kit.native", "tvm_byoc_kit.availability", "tvm_byoc_kit.doctor"],
)
def test_importing_the_kit_imports_no_heavy_package(module: str) -> None:
    assert not _imported_after(f"import {module}") & set(HEAVY)


def test_importing_the_kit_imports_its_init_alone() -> None:
    before = "import __future__, importlib, typing, warnings"
    added = _imported_after(f"{before}, tvm_byoc_kit") - _imported_after(before)
    assert added == {"tvm_byoc_kit"}


def test_every_public_name_resolves_and_comes_from_the_kit() -> None:
    assert len(set(tvm_byoc_kit.__all__)) == len(tvm_byoc_kit.__all__) > 20
    for name in tvm_byoc_kit.__all__:
        value = getattr(tvm_byoc_kit, name)
        assert value.__name__ == name
        assert value.__module__.startswith("tvm_byoc_kit.")
        assert name in dir(tvm_byoc_kit)


def test_public_names_stay_what_they_are_after_any_submodule_was_imported() -> None:
    # Importing a submodule sets an attribute of its name on the package, hiding a function's name.
    script = (
        "import importlib, pkgutil, tvm_byoc_kit as b\n"
        "for m in pkgutil.iter_modules(b.__path__):\n"
        "    if m.name != 'pytest_plugin': importlib.import_module('tvm_byoc_kit.' + m.name)\n"
        "bad = [n for n in b.__all__ if getattr(b, n).__name__ != n]\n"
        "print(bad)"
    )
    assert _run(script).strip() == "[]"


def test_a_misspelt_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="partitoin"):
        tvm_byoc_kit.partitoin  # noqa: B018 - the access is what is tested
