"""Upstream's own scripts for the example NPU, unmodified, on the stock wheel.

They are read from a checkout of apache/tvm, which the project does not carry:
``TVM_SOURCE=/path/to/tvm scripts/test.sh tests/integration/test_upstream_scripts.py``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = os.environ.get("TVM_SOURCE", "")

pytestmark = [
    pytest.mark.skipif(not SOURCE, reason="set TVM_SOURCE to a checkout of apache/tvm to run this"),
    pytest.mark.byoc("example_npu", step="runtime"),
]


def run(*command: str, cwd: Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_upstream_tests_of_the_example_npu_pass_without_a_skip(tmp_path: Path) -> None:
    script = Path(SOURCE) / "tests/python/contrib/test_example_npu.py"
    output = run(sys.executable, "-m", "pytest", "-q", "--noconftest", str(script), cwd=tmp_path)
    assert "7 passed" in output
    assert "skipped" not in output


def test_upstream_tutorial_runs_on_the_example_npu(tmp_path: Path) -> None:
    script = Path(SOURCE) / "docs/how_to/tutorials/bring_your_own_codegen.py"
    output = run(sys.executable, str(script), cwd=tmp_path)
    assert "Example NPU run completed. Output shape: (1, 16, 30, 30)" in output
