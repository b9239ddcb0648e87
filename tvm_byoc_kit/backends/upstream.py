"""Pattern tables and passes that TVM itself has, imported at first use."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.relax.transform import FusionPattern

__all__ = ["upstream_patterns"]


def upstream_patterns(module: str, prefix: str) -> Callable[[], list[FusionPattern]]:
    """Gives the patterns under `prefix` that importing `module` registers."""
    return functools.partial(_patterns, module, prefix)


def _patterns(module: str, prefix: str) -> list[FusionPattern]:
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    importlib.import_module(module)
    return list(get_patterns_with_prefix(prefix))
