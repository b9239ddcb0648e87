"""Coverage as a web page: one file that needs nothing else, neither network nor server.

The page is ``data/coverage_page/``: what it shows is embedded as JSON and drawn by its scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import graph_layout, remedies
from tvm_byoc_kit.backends.example_npu_schedule import ENGINES, TIERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tvm_byoc_kit.backends.example_npu_schedule import Schedule
    from tvm_byoc_kit.coverage import Coverage, CoveredOp

__all__ = ["render"]

_FILES = Path(__file__).parent / "data" / "coverage_page"
_SCRIPTS = ("base.js", "summary.js", "graph.js", "table.js", "schedule.js", "main.js")
_FORMAT = 1  # of the embedded JSON; goes up when a reader of it would have to change

# Inside <script> only these could end the element or be taken for markup; JSON has an escape.
_MARKUP = re.compile("[<>&\u2028\u2029]")


def render(coverage: Coverage, schedules: Sequence[Schedule] = ()) -> str:
    """Give a self-contained HTML document.

    Parameters
    ----------
    coverage : Coverage
    schedules : sequence of Schedule
        What the example NPU recorded for the regions, shown as timelines.

    Raises
    ------
    ByocError
        The package that lays out the graph is not installed.
    """
    style = _file("page.css")
    script = '"use strict";\n' + "\n".join(map(_file, _SCRIPTS))
    # Nothing is fetched, and no script runs but this one, whatever names a model has.
    policy = f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}"
    return Template(_file("page.html")).substitute(
        policy=f"{policy}; base-uri 'none'; form-action 'none'",
        title=html.escape(_title(coverage)),
        text=html.escape(str(coverage)),
        style=style,
        script=script,
        data=_embedded(_content(coverage, schedules)),
    )


def _file(name: str) -> str:
    return (_FILES / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Name an inline script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _title(coverage: Coverage) -> str:
    backend = f" on {coverage.backend}" if coverage.backend else ""
    return f"Coverage of {coverage.model or 'a model'}{backend}"


def _embedded(content: dict[str, Any]) -> str:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return _MARKUP.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _content(coverage: Coverage, schedules: Iterable[Schedule]) -> dict[str, Any]:
    layout = graph_layout.lay_out([op.inputs for op in coverage.ops])
    return {
        "format": _FORMAT,
        "model": coverage.model,
        "backend": coverage.backend,
        "versions": {"tvm-byoc-kit": remedies.version_of(remedies.KIT, ""), "TVM": coverage.tvm},
        "totals": _totals(coverage),
        "ops": _ops(coverage),
        "regions": [asdict(region) for region in coverage.regions],
        "graph": {
            "node": [graph_layout.NODE_WIDTH, graph_layout.NODE_HEIGHT],
            "width": layout.width,
            "height": layout.height,
            "positions": layout.positions,
            "edges": [(edge.source, edge.target, edge.path, edge.direct) for edge in layout.edges],
        },
        "engines": ENGINES,
        "tiers": TIERS,
        "schedules": [asdict(schedule) for schedule in schedules],
    }


def _ops(coverage: Coverage) -> list[dict[str, Any]]:
    """With regions by position: their names stand in the list of regions alone."""
    position = {region.name: i for i, region in enumerate(coverage.regions)}
    return [
        asdict(op) | {"region": None if op.region is None else position[op.region]}
        for op in coverage.ops
    ]


def _totals(coverage: Coverage) -> dict[str, Any]:
    regions = [r for r in coverage.regions if r.bytes_in is not None and r.bytes_out is not None]
    return {
        "ops": {"total": coverage.total, "offloaded": coverage.offloaded},
        "macs": _share((op, op.macs) for op in coverage.ops),
        "bytes": _share((op, op.bytes) for op in coverage.ops),
        "functions": len({region.function for region in coverage.regions}),
        "boundary": {
            "in": sum(region.bytes_in or 0 for region in regions),
            "out": sum(region.bytes_out or 0 for region in regions),
            "known": len(regions),
        },
    }


def _share(counted: Iterable[tuple[CoveredOp, int | None]]) -> dict[str, int]:
    """Sum over all ops and over those in regions; ops whose number is not known are counted."""
    share = {"total": 0, "offloaded": 0, "unknown": 0}
    for op, number in counted:
        if number is None:
            share["unknown"] += 1
            continue
        share["total"] += number
        share["offloaded"] += number if op.region is not None else 0
    return share
