"""docs/tensorrt_ops.md is what its script writes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

SCRIPT = Path(__file__).parents[3] / "scripts" / "tensorrt_ops.py"


def test_the_page_is_current() -> None:
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
