"""Every converter: its network by the oracle against PyTorch, and a real engine of it."""

from __future__ import annotations

import pytest

from tvm_byoc_kit.backends.tensorrt.patterns import EXTENSIONS, tensorrt_patterns

from . import engines
from .case import RANGES, Case
from .cases import CASES

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

EACH = {f"{name}: {label}": case for name, group in CASES.items() for label, case in group.items()}
RUNS = {f"{name}, {p}": (case, p) for name, case in EACH.items() for p in case.precisions}


def test_every_pattern_has_a_case() -> None:
    patterns = {pattern.name.removeprefix("tensorrt.") for pattern in tensorrt_patterns()}
    assert set(EXTENSIONS) <= patterns
    assert set(CASES) == patterns


@pytest.mark.parametrize("name", CASES)
def test_a_case_is_of_its_pattern(name: str) -> None:
    for case in CASES[name].values():
        assert name in case.composites


@pytest.mark.parametrize(("case", "precision"), RUNS.values(), ids=RUNS)
def test_the_network_computes_what_pytorch_does(case: Case, precision: str) -> None:
    case.check(precision)


FIRST = {name: next(iter(group.values())) for name, group in CASES.items()}
NARROW = {f"{n}, {p}": (c, p) for n, c in FIRST.items() for p in c.precisions if p != "fp32"}


@pytest.mark.parametrize("case", EACH.values(), ids=EACH)
def test_an_engine_is_built(case: Case) -> None:
    case.engine("fp32")


@pytest.mark.parametrize(("case", "precision"), NARROW.values(), ids=NARROW)
def test_a_narrow_engine_is_built(case: Case, precision: str) -> None:
    case.engine(precision)


def test_an_engine_of_other_shapes_would_be_noticed() -> None:
    network = CASES["nn.conv2d"]["dynamic"].subject.network()
    engine = engines.build(network, RANGES)
    engines.check(engine, network, RANGES)
    for name in ("n", "h", "w"):
        with pytest.raises(AssertionError):
            engines.check(engine, network, {**RANGES, name: (2, 7, 64)})


def test_what_the_vendor_says_against_a_network_is_told() -> None:
    """TensorRT-RTX has no product of float32 for compute capability 7.5."""
    network = CASES["nn.batch_matmul"]["matrices"].subject.network()
    with pytest.raises(AssertionError, match="FP32 GEMM is not supported"):
        engines.build(network, RANGES, (75,))
