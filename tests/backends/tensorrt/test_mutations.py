"""The cases have teeth: each planted fault is noticed by the cases of its pattern."""

from __future__ import annotations

import functools

import pytest

from tvm_byoc_kit.errors import ModelError

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

from .case import Case
from .cases import CASES
from .mutations import MUTATIONS

# By the cases' comparison, by what the kit or the vendor says against the network, by PyTorch.
_NOTICED = (AssertionError, ModelError, RuntimeError, ValueError, IndexError)


@functools.cache
def notices(name: str) -> set[str]:
    """The kinds of exceptions that cases of the pattern end in."""
    mutation = MUTATIONS[name]
    with pytest.MonkeyPatch.context() as patch:
        mutation.plant(patch)
        return {outcome(case) for case in CASES[mutation.pattern].values()} - {""}


def outcome(case: Case) -> str:
    try:
        case.check()
    except _NOTICED as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_fault_is_noticed(name: str) -> None:
    assert notices(name)


def test_most_faults_are_noticed_by_the_numbers() -> None:
    """What only the shapes contradict, no interpreter would be needed for."""
    by_numbers = [name for name in MUTATIONS if "AssertionError" in notices(name)]
    assert len(by_numbers) >= 60
