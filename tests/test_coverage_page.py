"""The coverage report as a page: what it embeds, that it is safe and needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from dataclasses import asdict, replace
from html.parser import HTMLParser
from typing import Any

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.example_npu_schedule import MemoryTier, Schedule, ScheduledOp, Tiling
from tvm_byoc_kit.coverage import Coverage, CoveredOp, Reason, Region
from tvm_byoc_kit.coverage_page import render
from tvm_byoc_kit.errors import ByocError

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="fast-sugiyama needs Python 3.11"
)

HOSTILE = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>&amp;\u2028'\"`${x}$y"

COVERAGE = Coverage(
    ops=(
        CoveredOp("a", "relax.nn.conv2d", "1x8", "float32", "f", "b.conv", None, "main", 90, 9, 32),
        CoveredOp(
            "b",
            "relax.erf",
            "nx8",
            "float32",
            reason=Reason("no_pattern", "no pattern of b names relax.erf"),
            macs=10,
            bytes=8,
            inputs=(0,),
        ),
        CoveredOp("c", "relax.add", "nx8", "float32", "f#2", "b.add", macs=None, inputs=(0, 1)),
    ),
    regions=(
        Region("f", "f", "b", ("b.conv",), 1, 90, 16, 32, 1, 36),
        Region("f#2", "f", "b", ("b.add",), 1, None, None, None),
    ),
    backend="b",
    model="models/m.onnx",
    tvm="0.27.0",
)

SCHEDULE = Schedule(
    symbol="f",
    mode="simulate",
    power_mode="balanced",
    frequency_mhz=800.0,
    macs=90,
    cycles=40,
    microseconds=0.05,
    tiers=(MemoryTier("L0", 4096, 64.0, 1, 0, 128),),
    ops=(
        ScheduledOp(
            node=1,
            name="b.conv",
            ops=("relax.nn.conv2d",),
            engine="conv",
            fused=False,
            macs=90,
            element_ops=0,
            operands=(),
            tiling=Tiling(("m",), (8,), (8,), 1, 64, "L1"),
            moved_bytes=(128, 0, 0, 0),
            transfers=(1, 0, 0, 0),
            compute_cycles=30,
            memory_cycles=40,
            cycles=40,
            bound="memory",
            start_cycle=0,
        ),
    ),
)


class Elements(HTMLParser):
    """The elements of a page, with the texts of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and data.strip():
            self.texts.append((self.tags[-1][0], data))

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def embedded(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def hostile() -> tuple[Coverage, Schedule]:
    """`COVERAGE` and `SCHEDULE` with markup wherever a text may come from a model."""
    region = Region(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), 1)
    texts = (HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    ops = (
        CoveredOp(*texts, region=HOSTILE, composite=HOSTILE, function=HOSTILE),
        CoveredOp(*texts, reason=Reason("refused", HOSTILE), function=HOSTILE),
    )
    op = replace(SCHEDULE.ops[0], name=HOSTILE, ops=(HOSTILE,))
    coverage = Coverage(ops, (region,), backend=HOSTILE, model=HOSTILE, tvm=HOSTILE)
    return coverage, replace(SCHEDULE, symbol=HOSTILE, ops=(op,))


def test_the_page_embeds_every_op_region_edge_and_schedule() -> None:
    data = embedded(render(COVERAGE, [SCHEDULE]))
    assert (data["format"], data["model"], data["backend"]) == (1, "models/m.onnx", "b")
    assert data["versions"]["TVM"] == "0.27.0"
    assert [op["region"] for op in data["ops"]] == [0, None, 1]
    for op, expected in zip(data["ops"], COVERAGE.ops, strict=True):
        assert op.keys() == asdict(expected).keys()
        assert (op["name"], op["macs"]) == (expected.name, expected.macs)
    assert data["ops"][1]["reason"] == asdict(COVERAGE.ops[1])["reason"]
    assert [region["name"] for region in data["regions"]] == ["f", "f#2"]
    assert len(data["graph"]["positions"]) == 3
    assert sorted((source, target) for source, target, *_ in data["graph"]["edges"]) == [
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    assert data["schedules"] == json.loads(json.dumps([asdict(SCHEDULE)]))


def test_totals_leave_out_what_is_not_known_and_say_how_much_that_is() -> None:
    totals = embedded(render(COVERAGE))["totals"]
    assert totals == {
        "ops": {"total": 3, "offloaded": 2},
        "macs": {"total": 100, "offloaded": 90, "unknown": 1},
        "bytes": {"total": 40, "offloaded": 32, "unknown": 1},
        "functions": 1,
        "boundary": {"in": 16, "out": 32, "known": 1},
    }


def test_names_of_a_model_become_no_markup() -> None:
    coverage, schedule = hostile()
    page = render(coverage, [schedule])
    harmless, attacked = Elements(render(COVERAGE, [SCHEDULE])), Elements(page)
    assert attacked.tags[:1] == harmless.tags[:1] == [("html", {"lang": "en"})]
    assert [tag for tag, _ in attacked.tags] == [tag for tag, _ in harmless.tags]
    data = embedded(page)
    assert data["ops"][0]["name"] == data["schedules"][0]["symbol"] == HOSTILE


def test_the_page_allows_its_own_script_and_style_alone() -> None:
    page = render(COVERAGE)
    policy = next(
        str(attrs["content"])
        for tag, attrs in Elements(page).tags
        if tag == "meta" and "http-equiv" in attrs
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, pattern in (
        ("script", r"<script>(.*?)</script>"),
        ("style", r"<style>(.*?)</style>"),
    ):
        (text,) = re.findall(pattern, page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_the_page_refers_to_nothing_outside_itself() -> None:
    elements = Elements(render(COVERAGE, [SCHEDULE]))
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {t for t, _ in elements.tags}
    assert not [attrs for _, attrs in elements.tags if {"src", "href", "action"} & attrs.keys()]
    scripts = [text for tag, text in elements.texts if tag in {"script", "style"}]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", "\n".join(scripts))


def test_no_script_parses_text_as_html_or_code() -> None:
    page = render(COVERAGE)
    scripts = "\n".join(re.findall(r"<script>(.*?)</script>", page, re.DOTALL))
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
    assert not re.search(forbidden, scripts)


def test_without_scripts_the_page_shows_the_text_report() -> None:
    page = render(replace(COVERAGE, ops=COVERAGE.ops[:2]))
    (text,) = re.findall(r"<noscript><pre>(.*?)</pre>", page, re.DOTALL)
    assert text.splitlines()[0] == str(replace(COVERAGE, ops=COVERAGE.ops[:2])).splitlines()[0]


def test_the_same_coverage_gives_the_same_page() -> None:
    assert render(COVERAGE, [SCHEDULE]) == render(COVERAGE, [SCHEDULE])


def test_a_report_without_ops_is_a_page_too() -> None:
    data = embedded(render(Coverage((), ())))
    assert (data["ops"], data["graph"]["positions"]) == ([], [])


def test_the_size_grows_with_the_ops_and_not_with_their_regions_names() -> None:
    name = "fused_" + "relax_add_" * 1000
    ops = tuple(
        CoveredOp(f"lv{i}", "relax.add", "1x8", "float32", name, inputs=(i - 1,) if i else ())
        for i in range(500)
    )
    regions = (Region(name, name, "b", ("b.add",) * 500, 500),)
    empty = len(render(Coverage((), ())))
    assert empty < 80_000
    assert len(render(Coverage(ops, regions))) - empty < 500 * 400


def test_coverage_gives_the_page(two_outputs: Any) -> None:
    coverage = byoc.partition(two_outputs, "example_npu").coverage
    page = coverage.to_html(schedule=(SCHEDULE,))
    assert page == render(coverage, (SCHEDULE,))
    assert [op["op"] for op in embedded(page)["ops"]] == [op.op for op in coverage.ops]


def test_without_the_layout_library_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    with pytest.raises(ByocError, match=r"\[html\]"):
        render(COVERAGE)
