"""Where the nodes of a graph are drawn, and the paths of its edges."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tvm_byoc_kit.errors import ByocError
from tvm_byoc_kit.graph_layout import NODE_HEIGHT, NODE_WIDTH, GraphLayout, lay_out

needs_layout = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="fast-sugiyama needs Python 3.11"
)
Inputs = list[tuple[int, ...]]


def chain(nodes: int) -> Inputs:
    return [(i - 1,) if i else () for i in range(nodes)]


def residual(nodes: int) -> Inputs:
    """A chain with a second way around every third node."""
    return [(i - 1, i - 4) if i % 4 == 0 and i else each for i, each in enumerate(chain(nodes))]


GRAPHS: dict[str, Inputs] = {
    "one node": [()],
    "two nodes, no edge": [(), ()],
    "short chain": chain(4),
    "long chain": chain(300),
    "blocks": residual(200),
    "one value read by all": [(), *((0,) for _ in range(60))],
    "one value read along a chain": [(), *((0, i) for i in range(200))],
    "many components": [(), (0,), (), (), (3,), (3,), (), *((),) * 40],
    "a value read twice": [(), (0, 0), (1, 0, 1)],
}


@pytest.fixture(params=GRAPHS)
def graph(request: pytest.FixtureRequest) -> tuple[Inputs, GraphLayout]:
    inputs = GRAPHS[request.param]
    return inputs, lay_out(inputs)


pytestmark = needs_layout


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", path)]


def end_of(path: str) -> tuple[float, float]:
    """Follow an SVG path to its end."""
    x = y = 0.0
    for command, text in re.findall(r"([MLHVCq])([^MLHVCq]*)", path):
        values = numbers(text)
        if command == "H":
            x = values[0]
        elif command == "V":
            y = values[0]
        elif command == "q":
            x, y = x + values[2], y + values[3]
        else:
            x, y = values[-2:]
    return x, y


def test_nodes_do_not_overlap_and_lie_within_the_drawing(
    graph: tuple[Inputs, GraphLayout],
) -> None:
    inputs, layout = graph
    assert len(layout.positions) == len(inputs)
    for x, y in layout.positions:
        assert NODE_WIDTH / 2 <= x <= layout.width - NODE_WIDTH / 2
        assert NODE_HEIGHT / 2 <= y <= layout.height - NODE_HEIGHT / 2
    by_row = sorted(layout.positions, key=lambda place: (place[1], place[0]))
    for (x1, y1), (x2, y2) in itertools.pairwise(by_row):
        assert y2 - y1 > NODE_HEIGHT or (y1 == y2 and x2 - x1 > NODE_WIDTH)


def test_every_edge_is_drawn_once_from_its_source_to_its_target(
    graph: tuple[Inputs, GraphLayout],
) -> None:
    inputs, layout = graph
    expected = {(i, node) for node, each in enumerate(inputs) for i in each}
    drawn = [(edge.source, edge.target) for edge in layout.edges]
    assert sorted(drawn) == sorted(expected)
    for edge in layout.edges:
        (x1, y1), (x2, y2) = layout.positions[edge.source], layout.positions[edge.target]
        assert numbers(edge.path)[:2] == pytest.approx([x1, y1 + NODE_HEIGHT / 2], abs=1)
        assert end_of(edge.path) == pytest.approx((x2, y2 - NODE_HEIGHT / 2), abs=1)


def test_a_layout_is_the_same_each_time(graph: tuple[Inputs, GraphLayout]) -> None:
    inputs, layout = graph
    assert lay_out(inputs) == layout


def test_data_flows_downwards_in_a_graph_that_fits() -> None:
    layout = lay_out(GRAPHS["short chain"])
    heights = [y for _, y in layout.positions]
    assert heights == sorted(heights)
    assert len({x for x, _ in layout.positions}) == 1


@pytest.mark.parametrize("inputs", [chain(300), residual(300)])
def test_a_deep_graph_is_folded_into_about_the_form_of_a_screen(inputs: Inputs) -> None:
    layout = lay_out(inputs)
    assert 1 < layout.width / layout.height < 3


def test_a_fold_cuts_where_one_edge_crosses() -> None:
    # Blocks of eight layers, past which more edges lead; between two blocks there is one edge.
    inputs = [
        (i - 1, i - 8, i - 7, i - 6) if i % 8 == 0 and i else each
        for i, each in enumerate(chain(161))
    ]
    layout = lay_out(inputs)
    folded = [
        (edge.source, edge.target)
        for edge in layout.edges
        if layout.positions[edge.target][1] < layout.positions[edge.source][1]
    ]
    assert folded
    assert all(source % 8 == 0 for source, _ in folded)


def test_the_longest_edges_are_drawn_straight_when_there_are_very_many() -> None:
    inputs = GRAPHS["one value read along a chain"]
    layout = lay_out([*inputs, *((0, i) for i in range(200, 400))])
    straight = [edge for edge in layout.edges if edge.direct]
    bent = [edge for edge in layout.edges if not edge.direct]
    assert straight
    assert all(edge.source == 0 for edge in straight)
    assert min(edge.target for edge in straight) > max(e.target for e in bent if e.source == 0)


def test_edges_that_do_not_lead_forward_are_left_out() -> None:
    # The library ends the process at a cycle, so none must reach it.
    layout = lay_out([(1, 0, -1, 7), (0,), (2,)])
    assert [(edge.source, edge.target) for edge in layout.edges] == [(0, 1)]


def test_no_nodes_give_an_empty_drawing() -> None:
    assert lay_out([]) == GraphLayout(0, 0, (), ())


@pytest.mark.parametrize("make", [chain, residual])
def test_twice_the_nodes_are_twice_the_work(make: Callable[[int], Inputs], lines_run: Any) -> None:
    once, twice = (lines_run(lambda nodes=nodes: lay_out(make(nodes))) for nodes in (1000, 2000))
    assert twice < 2.5 * once


def test_without_the_library_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(ByocError, match=r"fast-sugiyama.*pip install .*\[html\]"):
        lay_out(chain(2))
