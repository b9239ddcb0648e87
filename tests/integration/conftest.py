"""What several integration tests use."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REAL_MODELS = Path(__file__).parents[2] / "scripts" / "real_models.py"


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    """The module of scripts/real_models.py."""
    spec = importlib.util.spec_from_file_location("real_models", REAL_MODELS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["real_models"] = module  # where dataclasses look for their annotations
    spec.loader.exec_module(module)
    yield module
    del sys.modules["real_models"]
