"""Kernels that are measured: which one is taken, with a GPU and a clock that pretend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tvm.relax import op

from tvm_byoc_kit import availability
from tvm_byoc_kit.backends.cutlass import measuring
from tvm_byoc_kit.backends.cutlass.codegen import compile_regions, plan
from tvm_byoc_kit.errors import BackendUnavailable
from tvm_byoc_kit.graph import Graph, read_graph
from tvm_byoc_kit.status import Status

from ..predicate_tools import module  # noqa: TID252 - what other backends are tested with
from .library import region_functions


def graph(rows: int | str) -> Graph:
    mod = module([((rows, 64), "float16"), ((64, 32), "float16")], op.matmul)
    (function,) = region_functions({"layer": mod})
    return read_graph(function)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Status("device:cuda", ok=True, detail="pretended", remedy="")
    monkeypatch.setattr(measuring, "probe", lambda _: found)


@pytest.mark.usefixtures("gpu")
def test_the_fastest_of_the_candidates_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = plan([graph(4), graph(4096)], ("sm_80",), most=3)
    seconds = {"candidate_0_0": 3.0, "candidate_0_1": 1.0, "candidate_0_2": 2.0}
    seconds |= {"candidate_1_0": 1.0, "candidate_1_1": 2.0, "candidate_1_2": 3.0}
    compiled: list[str] = []

    def compile_all(planned: Sequence[Any]) -> bytes:
        compiled.extend(graph.name for graph, _, _ in planned)
        return b"object"

    monkeypatch.setattr(measuring, "_measure", lambda *_: seconds)
    assert measuring.fastest(candidates, compile_all) == [candidates[0][1], candidates[1][0]]
    assert compiled == list(seconds)


@pytest.mark.usefixtures("gpu")
def test_where_sizes_are_unknown_the_ranking_decides() -> None:
    candidates = plan([graph("n")], ("sm_80",), most=3)
    assert measuring.fastest(candidates, lambda _: b"") == [candidates[0][0]]


def test_candidates_are_in_the_order_of_the_ranking() -> None:
    (some,) = plan([graph(4)], ("sm_80",), most=5)
    cycles = [choice.cycles for _, _, choice in some]
    assert len(some) == 5
    assert cycles == sorted(cycles)


def test_measuring_needs_a_gpu() -> None:
    if availability.probe("device:cuda"):
        pytest.skip("here is a GPU")
    mod = module([((4, 64), "float16"), ((64, 32), "float16")], op.matmul)
    functions = region_functions({"layer": mod})
    with pytest.raises(BackendUnavailable, match="has no device here"):
        compile_regions(functions, {"architectures": "sm_80", "measure": 3}, {})
