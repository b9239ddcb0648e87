"""What a tool says when it fails; which tools are found is in test_availability.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.toolchain import run_tool


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a.cu(3): warning: x\\n\\na.cu(4): error: no y\\na.cu(5): error: no z",
            "a.cu(4): error: no y",
        ),
        (
            "nvcc fatal   : Unsupported gpu architecture",
            "nvcc fatal   : Unsupported gpu architecture",
        ),
        (
            "In file included from a.h:1\\na.h:9:2: fatal error: b.h: No such",
            "a.h:9:2: fatal error: b.h: No such",
        ),
        ("sh: 1: cicc: not found\\nmore", "sh: 1: cicc: not found"),
        ("  ", "it says nothing"),
    ],
)
def test_the_first_error_of_a_tool_is_told_in_one_line(text: str, said: str) -> None:
    code = f"import sys; print('{text}', file=sys.stderr); sys.exit(127)"
    with pytest.raises(ModelError) as caught:
        run_tool(sys.executable, "-c", code)
    assert str(caught.value) == f"{sys.executable} fails with exit code 127: {said}"


def test_a_tool_that_cannot_be_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"{tmp_path} cannot be run: "):
        run_tool(str(tmp_path))


def test_a_tool_that_hangs_is_named() -> None:
    with pytest.raises(ModelError, match=r"cannot be run: .*timed out"):
        run_tool(sys.executable, "-c", "import time; time.sleep(60)", timeout=0.2)


def test_temporary_files_have_a_folder_even_if_the_variable_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    folder = run_tool(sys.executable, "-c", "import os; print(os.environ['TMPDIR'])").strip()
    assert Path(folder).is_dir()
