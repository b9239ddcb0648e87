"""Where a model's ops are drawn: layers from top to bottom, long models folded into columns.

The layers and the order in them come from fast-sugiyama (MIT). A network is much deeper than wide,
so its layers are cut where few edges cross, and the pieces stand side by side.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm_byoc_kit import remedies
from tvm_byoc_kit.errors import ByocError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

__all__ = ["NODE_HEIGHT", "NODE_WIDTH", "DrawnEdge", "GraphLayout", "lay_out"]

NODE_WIDTH, NODE_HEIGHT = 140, 38
_COLUMN_STEP, _ROW_STEP = 164, 66  # between the centres of neighbours
_MARGIN = 12
_GAP = 28  # between two columns
_LANE = 7  # between edges that lead from one column to the next
_TURN = 6  # radius of their corners
# How far from even a fold may be, as a part of a column, to cut where fewer edges cross; and what
# one more edge at each fold costs, as a part of the size.
_CUT_SLACKS = (1 / 8, 1 / 4, 3 / 8)
_CROSSING_COST = 0.12
# What fits into the page's view without being made smaller.
_VIEW_WIDTH, _VIEW_HEIGHT = 900, 540

_SPACING = 72  # fast-sugiyama's unit, of layers and of neighbours in one
_BEND_WIDTH = 4  # in that unit: what an edge that passes through a layer takes there


@dataclass(frozen=True)
class DrawnEdge:
    """An edge as an SVG path, from the bottom of `source` to the top of `target`.

    Parameters
    ----------
    source, target : int
    path : str
        The attribute ``d``.
    direct : bool
        Whether it is drawn straight across other nodes: the longest edges of a model with very many
        of them, which would otherwise take more room than the nodes.
    """

    source: int
    target: int
    path: str
    direct: bool = False


@dataclass(frozen=True)
class GraphLayout:
    """A drawing of `width` by `height`; `positions` are the centres of the nodes."""

    width: int
    height: int
    positions: tuple[tuple[int, int], ...]
    edges: tuple[DrawnEdge, ...]


def lay_out(inputs: Sequence[Sequence[int]]) -> GraphLayout:
    """Place nodes and edges.

    Parameters
    ----------
    inputs : sequence of sequence of int
        For each node those whose results it reads. They must come before it; others are left out.

    Raises
    ------
    ByocError
        fast-sugiyama is not installed.
    """
    edges = list(
        dict.fromkeys((i, node) for node, each in enumerate(inputs) for i in each if 0 <= i < node)
    )
    layered, direct = _without_longest(edges, len(inputs))
    components = _components(layered, len(inputs))
    pieces = min(
        (
            _fold(components, rows, slack)
            for rows in _row_limits(components)
            for slack in _CUT_SLACKS
        ),
        key=_cost,
    )
    return _draw(components, pieces, direct, len(inputs))


# --- Layers ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Component:
    """Connected nodes: their layers, and the bends of edges that pass through layers.

    `place` maps a node, or a bend, to x and layer; `chains` maps an edge to all that it touches.
    """

    place: Mapping[int, tuple[float, int]]
    chains: Mapping[tuple[int, int], tuple[int, ...]]
    spans: tuple[tuple[float, float], ...] = field(init=False)
    crossings: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        layers = 1 + max(layer for _, layer in self.place.values())
        lows, highs = [math.inf] * layers, [-math.inf] * layers
        for x, layer in self.place.values():
            lows[layer], highs[layer] = min(lows[layer], x), max(highs[layer], x)
        # Edges of one source share a lane, so a cut counts sources.
        sources: list[set[int]] = [set() for _ in range(layers)]
        for (source, _), chain in self.chains.items():
            for vertex in chain[:-1]:
                sources[self.place[vertex][1] + 1].add(source)
        object.__setattr__(self, "spans", tuple(zip(lows, highs, strict=True)))
        object.__setattr__(self, "crossings", tuple(map(len, sources)))


def _without_longest(
    edges: list[tuple[int, int]], nodes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split off the longest edges where all would cost more bends than can be drawn."""
    depth = [0] * nodes
    for source, target in edges:  # by target, so a source is done before it is read
        depth[target] = max(depth[target], depth[source] + 1)
    by_length = sorted(edges, key=lambda edge: depth[edge[1]] - depth[edge[0]])
    budget = 500 + 5 * nodes
    kept = 0
    for source, target in by_length:
        budget -= depth[target] - depth[source]
        if budget < 0:
            break
        kept += 1
    return by_length[:kept], by_length[kept:]


def _components(edges: list[tuple[int, int]], nodes: int) -> list[_Component]:
    """Connected components in the order of their first nodes."""
    connected = {node for edge in edges for node in edge}
    alone = [_Component({node: (0.0, 0)}, {}) for node in range(nodes) if node not in connected]
    if edges:
        # It aborts the process on cycles; there are none, every edge leads forward.
        layouts = _from_edges()(edges, dummy_vertices=True, dummy_size=_BEND_WIDTH)
        alone += [_component(positions, steps, nodes) for positions, _, _, steps in layouts]
    return sorted(alone, key=lambda component: min(component.place))


def _from_edges() -> Callable[..., Any]:
    try:
        from fast_sugiyama import from_edges
    except ImportError as error:
        needed = "Python 3.11 or later, then: " if sys.version_info < (3, 11) else ""
        raise ByocError(
            "the HTML report draws the model's graph with the Python package 'fast-sugiyama', "
            f"which is not installed. To add it: {needed}{remedies.kit_extra('html')}"
        ) from error
    return from_edges


def _component(
    positions: Iterable[tuple[int, tuple[float, float]]],
    steps: Iterable[tuple[int, int]],
    nodes: int,
) -> _Component:
    at = dict(positions)
    top = max(y for _, y in at.values())
    # Sorted, for the library gives them in another order each time.
    place = {v: (at[v][0], round((top - at[v][1]) / _SPACING)) for v in sorted(at)}
    onwards: defaultdict[int, list[int]] = defaultdict(list)
    for here, there in sorted(steps):
        onwards[here].append(there)
    chains = {}
    for source in [v for v in place if v < nodes]:
        for vertex in onwards[source]:
            chain = [source, vertex]
            while chain[-1] >= nodes:  # a bend, which has one successor
                chain.append(onwards[chain[-1]][0])
            chains[source, chain[-1]] = tuple(chain)
    return _Component(place, chains)


# --- Folding --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    """Layers `first` to `last` of a component, in a column from `row` on."""

    component: int
    first: int
    last: int
    column: int
    row: int
    low: float
    width: float
    lanes: int  # of edges that come from the piece before


def _row_limits(components: Sequence[_Component]) -> list[int]:
    """Heights to try, in layers: for one column, two columns, and so on."""
    rows = sum(len(component.spans) + 1 for component in components)
    return list(dict.fromkeys(math.ceil(rows / columns) for columns in range(1, 65))) or [1]


def _fold(components: Sequence[_Component], limit: int, slack: float) -> list[_Piece]:
    """Cut components into pieces of at most `limit` layers; short ones share a column."""
    pieces: list[_Piece] = []
    column, row = 0, 0
    for index, component in enumerate(components):
        for first, last in _cuts(component, limit, slack):
            rows = last - first + 1
            if pieces and (first > 0 or row + rows > limit):
                column, row = column + 1, 0
            low = min(span[0] for span in component.spans[first : last + 1])
            high = max(span[1] for span in component.spans[first : last + 1])
            lanes = component.crossings[first] if first else 0
            width = (high - low) * _COLUMN_STEP / _SPACING + NODE_WIDTH
            pieces.append(_Piece(index, first, last, column, row, low, width, lanes))
            row += rows
    return pieces


def _cuts(component: _Component, limit: int, slack: float) -> list[tuple[int, int]]:
    """Pieces of about the same height, cut where the fewest edges cross within the slack."""
    layers, first = len(component.spans), 0
    pieces = []
    while layers - first > limit:
        remaining = math.ceil((layers - first) / limit)
        even = first + math.ceil((layers - first) / remaining)
        reach = max(1, round((even - first) * slack))
        near = range(max(first + 1, even - reach), min(first + limit, even + reach) + 1)
        cut = min(near, key=lambda layer: (component.crossings[layer], abs(layer - even)))
        pieces.append((first, cut - 1))
        first = cut
    return [*pieces, (first, layers - 1)]


def _cost(pieces: Sequence[_Piece]) -> tuple[float, int]:
    """How much a drawing must shrink to fit the view, and is crossed; then, how many columns."""
    if not pieces:
        return 1.0, 0
    rows = max(piece.row + piece.last - piece.first + 1 for piece in pieces)
    columns = _Columns(pieces)
    shrink = max(columns.right / _VIEW_WIDTH, rows * _ROW_STEP / _VIEW_HEIGHT, 1.0)
    lanes = [piece.lanes for piece in pieces if piece.first]
    crossed = sum(lanes) / len(lanes) - 1 if lanes else 0.0
    return shrink * (1 + _CROSSING_COST * crossed), len(columns.left)


class _Columns:
    """Left ends and widths of the columns; between them is room for the lanes."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        count = 1 + max(piece.column for piece in pieces)
        self.width = [0.0] * count
        lanes = [0] * count
        for piece in pieces:
            self.width[piece.column] = max(self.width[piece.column], piece.width)
            lanes[piece.column] = max(lanes[piece.column], piece.lanes)
        self.left: list[float] = []
        self.right = float(_MARGIN)
        for column in range(count):
            gap = _GAP + lanes[column] * _LANE if column else 0
            self.left.append(self.right + gap)
            self.right = self.left[-1] + self.width[column]
        # Above and below the columns, for edges on their way to the next column.
        self.lane_room = max(lanes) * _LANE + _TURN if max(lanes) else 0


# --- Drawing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Spot:
    """Centre of a node or of a bend, and the piece in which it is."""

    x: float
    y: float
    piece: _Piece
    half: float  # of its height; nothing for a bend


def _draw(
    components: Sequence[_Component],
    pieces: Sequence[_Piece],
    direct: Iterable[tuple[int, int]],
    nodes: int,
) -> GraphLayout:
    if not pieces:
        return GraphLayout(0, 0, (), ())
    columns = _Columns(pieces)
    edges = []
    positions: dict[int, tuple[int, int]] = {}
    for index, component in enumerate(components):
        spots = _spots(component, [p for p in pieces if p.component == index], columns, nodes)
        positions |= {v: (round(s.x), round(s.y)) for v, s in spots.items() if v < nodes}
        lanes: defaultdict[int, dict[int, int]] = defaultdict(dict)
        for (source, target), chain in sorted(component.chains.items()):
            path = _path([spots[v] for v in chain], columns, lanes, source)
            edges.append(DrawnEdge(source, target, path))
    for source, target in direct:
        edges.append(DrawnEdge(source, target, _line(positions, source, target), direct=True))
    bottom = max(y for _, y in positions.values()) + NODE_HEIGHT / 2
    return GraphLayout(
        math.ceil(columns.right + _MARGIN),
        math.ceil(bottom + columns.lane_room + _MARGIN),
        tuple(positions[node] for node in range(nodes)),
        tuple(edges),
    )


def _spots(
    component: _Component, pieces: Sequence[_Piece], columns: _Columns, nodes: int
) -> dict[int, _Spot]:
    piece_of = [piece for piece in pieces for _ in range(piece.first, piece.last + 1)]
    spots = {}
    for vertex, (x, layer) in component.place.items():
        piece = piece_of[layer]
        left = columns.left[piece.column] + (columns.width[piece.column] - piece.width) / 2
        row = piece.row + layer - piece.first
        spots[vertex] = _Spot(
            left + NODE_WIDTH / 2 + (x - piece.low) * _COLUMN_STEP / _SPACING,
            _MARGIN + columns.lane_room + NODE_HEIGHT / 2 + row * _ROW_STEP,
            piece,
            NODE_HEIGHT / 2 if vertex < nodes else 0.0,
        )
    return spots


def _line(positions: Mapping[int, tuple[int, int]], source: int, target: int) -> str:
    half = NODE_HEIGHT // 2
    (x1, y1), (x2, y2) = positions[source], positions[target]
    return f"M{x1} {y1 + half}L{x2} {y2 - half}"


def _path(
    spots: Sequence[_Spot],
    columns: _Columns,
    lanes: Mapping[int, dict[int, int]],
    source: int,
) -> str:
    parts = [f"M{spots[0].x:.0f} {spots[0].y + spots[0].half:.0f}"]
    for here, there in itertools.pairwise(spots):
        if here.piece is there.piece:
            parts.append(_curve(here, there))
        else:
            taken = lanes[there.piece.column]
            lane = taken.setdefault(source, len(taken))
            parts.append(_around(here, there, columns, lane))
    return "".join(parts)


def _curve(here: _Spot, there: _Spot) -> str:
    """Down to the next layer, leaving and arriving vertically."""
    start, end = here.y + here.half, there.y - there.half
    if round(here.x) == round(there.x):
        return f"V{end:.0f}"
    middle = (start + end) / 2
    return f"C{here.x:.0f} {middle:.0f} {there.x:.0f} {middle:.0f} {there.x:.0f} {end:.0f}"


def _around(here: _Spot, there: _Spot, columns: _Columns, lane: int) -> str:
    """Below one column, up between the two, and into the next from above."""
    away = _TURN + _LANE * lane
    below = here.y + NODE_HEIGHT / 2 + away
    above = there.y - NODE_HEIGHT / 2 - away
    between = columns.left[there.piece.column] - _GAP / 2 - _LANE * lane
    end = there.y - there.half
    return (
        f"V{below - _TURN:.0f}q0 {_TURN} {_TURN} {_TURN}"
        f"H{between - _TURN:.0f}q{_TURN} 0 {_TURN} -{_TURN}"
        f"V{above + _TURN:.0f}q0 -{_TURN} {_TURN} -{_TURN}"
        f"H{there.x - _TURN:.0f}q{_TURN} 0 {_TURN} {_TURN}V{end:.0f}"
    )
