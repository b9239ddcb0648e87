"""pytest plugin: tests that need a backend say so, and skip with the reason where it is missing.

``@pytest.mark.byoc("tensorrt", step="runtime")`` skips a test on a machine where that step of the
backend cannot be done. In the one job that must have the backend, ``--byoc-require=tensorrt`` (or
``BYOC_REQUIRE=tensorrt`` in the environment) turns those skips into failures.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tvm_byoc_kit.backend import Backend, Step

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]

MARKER = "byoc"
REQUIRE_VARIABLE = "BYOC_REQUIRE"
_SIGNATURE = 'byoc(backend, step="runtime")'


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--byoc-require``."""
    parser.getgroup("byoc", "tvm_byoc_kit").addoption(
        "--byoc-require",
        metavar="BACKENDS",
        default=os.environ.get(REQUIRE_VARIABLE, ""),
        help="comma-separated backends whose tests fail instead of being skipped when the backend "
        f"is not available (default: ${REQUIRE_VARIABLE})",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    text = "skip with the reason where the step of the TVM backend cannot be done"
    config.addinivalue_line("markers", f"{_SIGNATURE}: {text}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the markers, so that a misspelt backend is an error and not a skip for ever.

    Raises
    ------
    pytest.UsageError
        A marker or ``--byoc-require`` names something that does not exist.
    """
    for item in items:
        for mark in item.iter_markers(MARKER):
            _parse(mark, item.nodeid)
    for name in _required(config):
        _backend(name, "--byoc-require")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, or fail it, when a backend that it needs is not available."""
    from tvm_byoc_kit.errors import BackendUnavailable

    for mark in item.iter_markers(MARKER):
        backend, step = _parse(mark, item.nodeid)
        try:
            backend.require(step)
        except BackendUnavailable as error:
            missing = str(error)
        else:
            continue
        # Outside the handler, so that the report does not show the error twice.
        if backend.name in _required(item.config):
            pytest.fail(f"{missing} (required by --byoc-require)", pytrace=False)
        pytest.skip(missing)


def _required(config: pytest.Config) -> tuple[str, ...]:
    names = str(config.getoption("--byoc-require")).split(",")
    return tuple(filter(None, (name.strip() for name in names)))


def _parse(mark: pytest.Mark, where: str) -> tuple[Backend, Step]:
    """Return the backend and the step of a marker."""
    from tvm_byoc_kit.backend import STEPS

    unknown = set(mark.kwargs) - {"step"}
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or unknown:
        raise pytest.UsageError(f"{where}: the marker is written {_SIGNATURE}, got {mark}")
    step = mark.kwargs.get("step", "runtime")
    if step not in STEPS:
        raise pytest.UsageError(f"{where}: unknown step {step!r}; expected one of {STEPS}")
    return _backend(mark.args[0], where), step


def _backend(name: str, where: str) -> Backend:
    from tvm_byoc_kit.backend import get_backend
    from tvm_byoc_kit.errors import OptionError

    try:
        return get_backend(name)
    except OptionError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
