"""The coverage report in a real browser: it draws, sorts, filters, zooms, and fetches nothing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit import remedies
from tvm_byoc_kit.backends import example_npu_schedule
from tvm_byoc_kit.coverage import Coverage, CoveredOp, Reason, Region

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
pytest.importorskip("fast_sugiyama", reason="the report needs fast-sugiyama and Python 3.11")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = {"apt-get": "chromium", "dnf": "chromium", "pacman": "chromium", "apk": "chromium"}
DIGITS = Path(byoc.__file__).parent / "data" / "digits.onnx"
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;"
OPS = ("relax.nn.conv2d", "relax.add", "relax.nn.relu", "relax.erf")
OpenPage = Callable[..., Any]


def coverage(nodes: int) -> Coverage:
    """Blocks of four ops, the last on the host; a second edge goes around each block."""
    ops = []
    for i in range(nodes):
        host = i % 4 == 3
        reason = Reason("no_pattern", "no pattern of demo names relax.erf")
        ops.append(
            CoveredOp(
                name=f"lv{i}",
                op=OPS[i % 4],
                shape=f"1x{(i * 37) % 101}x8",
                dtype="float16" if i % 5 else "float32",
                region=None if host else f"fused_{i // 4}",
                composite=None if host else "demo.any",
                reason=reason
                if host and i % 8 != 7
                else Reason("policy", "small")
                if host
                else None,
                macs=None if i % 11 == 10 else (i * 7919) % 1000,
                parameters=(i * 31) % 17,
                bytes=(i * 104729) % 5000,
                inputs=tuple(j for j in (i - 1, i - 4 if i % 4 == 0 else -1) if j >= 0),
            )
        )
    names = [name for name in dict.fromkeys(op.region for op in ops) if name]
    regions = (Region(name, name, "demo", ("demo.any",) * 3, 3, 5, 64, 32) for name in names)
    return Coverage(tuple(ops), tuple(regions), "demo", "models/demo.onnx", "0.27.0")


SMALL = coverage(40)
HOST = [i for i, op in enumerate(SMALL.ops) if op.region is None]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        pytest.skip(f"no Chromium on this machine: {remedies.system_package(PACKAGES)}")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[OpenPage]:
    """Gives ``open(coverage=SMALL, schedules=(), **context)``.

    After the test: no page has fetched anything but its own file, none has logged or thrown.
    """
    contexts, complaints, requests = [], [], []

    def open_it(shown: Coverage = SMALL, schedules: Any = (), **context: Any) -> Any:
        file = tmp_path / "report.html"
        file.write_text(shown.to_html(schedules), encoding="utf-8")
        settings = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
        contexts.append(browser.new_context(**settings | context))
        page = contexts[-1].new_page()
        page.set_default_timeout(300_000)  # whatever else the machine is doing
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        if context.get("java_script_enabled", True):
            page.wait_for_selector('body[data-page="ready"][data-rows="ready"]')
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert complaints == []
    assert {Path(url).name for url in requests} == {"report.html"}


def rows(page: Any) -> list[int]:
    return page.eval_on_selector_all("tbody tr", "all => all.map(row => Number(row.dataset.op))")


def dimmed(page: Any) -> set[int]:
    script = "all => all.map(node => Number(node.dataset.op))"
    return set(page.eval_on_selector_all("#nodes .node.dim", script))


def scale(page: Any) -> float:
    found = re.search(r"scale\(([\d.]+)\)", page.get_attribute("#world", "transform"))
    assert found
    return float(found[1])


def middle(page: Any, selector: str) -> tuple[float, float]:
    box = page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_the_page_draws_every_op_and_region(open_page: OpenPage) -> None:
    page = open_page()
    assert page.title() == "Coverage of models/demo.onnx on demo"
    assert page.inner_text("h1") == "demo.onnx"
    assert page.locator("#nodes .node").count() == 40
    assert page.locator("#nodes .node.host").count() == len(HOST) == 10
    assert page.locator("#region-list .region").count() == 11
    assert "30 of 40 ops" in page.inner_text("#totals")
    assert rows(page) == list(range(40))
    reasons = page.locator("#reason-list button").all_inner_texts()
    assert [text.split()[0] for text in reasons] == ["5", "5"]


def columns() -> dict[str, Callable[[int], Any]]:
    """What each column sorts by; None comes last."""
    ops = SMALL.ops
    names = [region.name for region in SMALL.regions]
    return {
        "op": lambda i: ops[i].op.removeprefix("relax.").removeprefix("nn."),
        "name": lambda i: int(ops[i].name[2:]),
        "shape": lambda i: int(ops[i].shape.split("x")[1]),
        "dtype": lambda i: ops[i].dtype,
        "macs": lambda i: ops[i].macs,
        "parameters": lambda i: ops[i].parameters,
        "bytes": lambda i: ops[i].bytes,
        "region": lambda i: names.index(ops[i].region) if ops[i].region else None,
        "reason": lambda i: getattr(ops[i].reason, "text", ops[i].composite),
        "position": lambda i: i,
    }


def test_every_column_sorts_in_both_directions(open_page: OpenPage) -> None:
    page = open_page()
    for name, key in columns().items():
        known = [i for i in range(40) if key(i) is not None]
        unknown = [i for i in range(40) if key(i) is None]
        ascending = sorted(known, key=key) + unknown
        descending = sorted(known, key=key, reverse=True) + unknown
        found = {}
        for _ in range(2):
            page.click(f"th.col-{name} button")
            found[page.get_attribute(f"th.col-{name}", "aria-sort")] = rows(page)
        assert found == {"ascending": ascending, "descending": descending}, name
        assert page.locator('th[aria-sort="none"]').count() == 9


def test_filters_agree_in_the_table_and_in_the_graph(open_page: OpenPage) -> None:
    page = open_page()

    def passes(expected: list[int]) -> None:
        assert rows(page) == expected
        assert dimmed(page) == set(range(40)) - set(expected)
        assert page.inner_text("#shown") == f"{len(expected)} of 40 ops"

    page.check("#host-only")
    passes(HOST)
    page.fill("#search", "NO pattern relax.erf")
    passes([i for i in HOST if i % 8 == 3])
    page.click("#clear")
    assert rows(page) == list(range(40))
    assert not dimmed(page)
    assert page.inner_text("#shown") == "40 ops"
    assert not page.is_checked("#host-only")

    page.select_option("#where", label="3 fused_2")
    passes([8, 9, 10])
    page.click("#region-list .region:nth-child(2)")
    passes([0, 1, 2])
    page.click("#region-list .region:nth-child(2)")
    assert rows(page) == list(range(40))

    page.click("#reason-list button:has-text('small')")
    passes([i for i in HOST if i % 8 == 7])
    page.fill("#search", "nothing like this")
    passes([])
    assert page.is_visible("#nothing")


def test_a_row_selects_its_node_and_a_node_its_row(open_page: OpenPage) -> None:
    page = open_page()
    page.click("tbody tr[data-op='5'] td.col-op")
    assert page.locator("#marks rect").count() == 1
    marked, node = middle(page, "#marks rect"), middle(page, "#nodes [data-op='5'] .box")
    assert marked == pytest.approx(node, abs=2)
    assert "lv5" in page.inner_text("#details")

    page.click("#zoom-fit")
    page.click("#nodes [data-op='38']")
    selected = page.locator('tbody tr[aria-selected="true"]')
    assert selected.get_attribute("data-op") == "38"
    table, row = page.locator("#table-scroll").bounding_box(), selected.bounding_box()
    assert table["y"] <= row["y"]
    assert row["y"] + row["height"] <= table["y"] + table["height"]
    assert "fused_9" in page.inner_text("#details")

    page.click("#details dd button:has-text('add')")
    assert page.get_attribute('tbody tr[aria-selected="true"]', "data-op") == "37"
    page.focus("#canvas")
    page.keyboard.press("Escape")
    assert page.locator('tbody tr[aria-selected="true"], #marks rect').count() == 0


def test_a_selected_row_brings_its_node_into_sight(open_page: OpenPage) -> None:
    page = open_page()
    for _ in range(8):
        page.click("#zoom-in")
    for op in (0, 39):
        page.click(f"tbody tr[data-op='{op}'] td.col-op")
        x, y = middle(page, f"#nodes [data-op='{op}'] .box")
        box = page.locator("#canvas").bounding_box()
        assert box["x"] < x < box["x"] + box["width"]
        assert box["y"] < y < box["y"] + box["height"]


def test_hovering_tells_what_a_node_is(open_page: OpenPage) -> None:
    page = open_page()
    page.hover("#nodes [data-op='3']")
    text = page.inner_text("#tip")
    op = SMALL.ops[3]
    for fact in (op.name, op.op, op.shape, op.dtype, str(op.macs), "no pattern of demo names"):
        assert str(fact) in text
    page.hover("#nodes [data-op='4']")
    assert "fused_1" in page.inner_text("#tip")
    page.hover("h1")
    assert page.is_hidden("#tip")


def test_the_wheel_zooms_around_the_pointer(open_page: OpenPage) -> None:
    page = open_page()
    before, (x, y) = scale(page), middle(page, "#nodes [data-op='6'] .box")
    transform = page.get_attribute("#world", "transform")
    page.mouse.move(x, y)
    page.mouse.wheel(0, -300)  # does not wait for the page
    page.wait_for_function(
        "old => document.getElementById('world').getAttribute('transform') !== old", arg=transform
    )
    assert scale(page) > 1.5 * before
    assert middle(page, "#nodes [data-op='6'] .box") == pytest.approx((x, y), abs=1.5)
    assert page.evaluate("scrollY") == 0


def test_buttons_keys_and_dragging_move_the_graph(open_page: OpenPage) -> None:
    page = open_page()
    fitted, transform = scale(page), page.get_attribute("#world", "transform")
    page.click("#zoom-in")
    assert scale(page) == pytest.approx(1.4 * fitted)
    page.click("#zoom-out")
    page.click("#zoom-out")
    assert scale(page) == pytest.approx(fitted / 1.4)
    page.focus("#canvas")
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    assert scale(page) == pytest.approx(1.25 * fitted / 1.4)
    page.keyboard.press("0")
    assert page.get_attribute("#world", "transform") == transform

    x, y = middle(page, "#nodes [data-op='6'] .box")
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 30, y + 20)
    page.mouse.move(x + 60, y + 40)
    page.mouse.up()
    assert middle(page, "#nodes [data-op='6'] .box") == pytest.approx((x + 60, y + 40), abs=1)
    assert page.locator("#marks rect").count() == 0  # a drag selects nothing
    page.click("#zoom-fit")
    assert page.get_attribute("#world", "transform") == transform


def test_the_table_is_used_with_the_keyboard_alone(open_page: OpenPage) -> None:
    page = open_page()
    page.focus("#host-only")
    page.keyboard.press("Tab")
    for _ in range(5):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.get_attribute("th.col-macs", "aria-sort") == "descending"
    for _ in range(5):
        page.keyboard.press("Tab")
    focused = "document.activeElement.dataset.op"
    order = [str(i) for i in rows(page)]
    assert page.evaluate(focused) == order[0]
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == order[2]
    page.keyboard.press("Enter")
    assert page.get_attribute('tbody tr[aria-selected="true"]', "data-op") == order[2]
    page.keyboard.press("End")
    assert page.evaluate(focused) == order[-1]


def test_markup_in_names_is_shown_and_not_run(open_page: OpenPage) -> None:
    texts = (HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    ops = (
        CoveredOp(*texts, region=HOSTILE, composite=HOSTILE),
        CoveredOp(*texts, reason=Reason("refused", HOSTILE), inputs=(0,)),
    )
    regions = (Region(HOSTILE, HOSTILE, HOSTILE, (HOSTILE,), 1),)
    page = open_page(Coverage(ops, regions, HOSTILE, "", HOSTILE))
    assert page.inner_text("tbody tr:nth-child(2) td.col-reason") == HOSTILE
    page.click("#nodes [data-op='0']")
    page.hover("#nodes [data-op='1']")
    assert HOSTILE in page.inner_text("#tip")
    assert HOSTILE in page.inner_text("#details")
    assert page.locator("img").count() == 0


@pytest.mark.byoc("example_npu", step="runtime")
def test_the_schedule_is_a_timeline_to_scale(open_page: OpenPage) -> None:
    parts = byoc.partition(byoc.load_model(DIGITS), "example_npu")
    (schedule,) = schedules = example_npu_schedule.schedules(byoc.build(parts))
    page = open_page(parts.coverage, schedules)
    slots = page.locator(".slot")
    assert slots.count() == len(schedule.ops)
    boxes = page.eval_on_selector_all(
        ".slot rect:first-child",
        "all => all.map(r => ['x', 'y', 'width'].map(k => +r.getAttribute(k)))",
    )
    longest = max(range(len(boxes)), key=lambda i: schedule.ops[i].cycles)
    unit = boxes[longest][2] / schedule.ops[longest].cycles
    for op, (x, _, width) in zip(schedule.ops, boxes, strict=True):
        assert x - boxes[0][0] == pytest.approx(op.start_cycle * unit, abs=0.01)
        assert width == pytest.approx(max(2, op.cycles * unit), abs=0.01)
    lanes = {op.engine: y for op, (_, y, _) in zip(schedule.ops, boxes, strict=True)}
    assert len(set(lanes.values())) == len(lanes)
    assert [y for _, y, _ in boxes] == [lanes[op.engine] for op in schedule.ops]

    slots.nth(longest).hover()
    text = page.inner_text("#tip")
    assert f"{schedule.ops[longest].cycles:,}" in text
    assert schedule.ops[longest].engine in text
    page.hover(".tier[data-tier='L1']")
    assert f"{schedule.tiers[1].moved_bytes:,} bytes" in page.inner_text("#tip")
    page.click("[aria-label='Stretch the time axis']")
    stretched = page.get_attribute(f".slot[data-slot='{longest}'] rect", "width")
    assert float(stretched) > 2 * boxes[longest][2]


def luminance(page: Any, selector: str, name: str) -> float:
    colour = page.eval_on_selector(selector, f"node => getComputedStyle(node).{name}")
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_light_and_in_dark(open_page: OpenPage, scheme: str) -> None:
    page = open_page(color_scheme=scheme)
    ground = luminance(page, "body", "backgroundColor")
    assert (ground > 0.5) == (scheme == "light")
    for selector in ("h1", "#versions", ".total p", "#reason-list .kind", "#shown"):
        low, high = sorted((ground, luminance(page, selector, "color")))
        assert (high + 0.05) / (low + 0.05) >= 4.5, selector  # WCAG 2.1, level AA


@pytest.mark.parametrize("width", [390, 1280, 1680])
def test_nothing_sticks_out_of_the_page(open_page: OpenPage, width: int) -> None:
    page = open_page(viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    canvas, world = (page.locator(each).bounding_box() for each in ("#canvas", "#nodes"))
    assert canvas["x"] <= world["x"]
    assert world["x"] + world["width"] <= canvas["x"] + canvas["width"]


def test_printing_shows_all_rows_and_no_controls(open_page: OpenPage) -> None:
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert luminance(page, "body", "backgroundColor") == pytest.approx(1)
    table = page.locator("#table-scroll").bounding_box()
    last = page.locator("tbody tr").last.bounding_box()
    assert last["y"] + last["height"] <= table["y"] + table["height"] + 1
    assert page.is_hidden("#filters")
    assert page.is_hidden("#zoom-in")


def test_without_scripts_the_text_report_is_there(open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    assert "30 of 40 ops offloaded" in page.inner_text("noscript")


def test_an_empty_report_opens(open_page: OpenPage) -> None:
    page = open_page(replace(SMALL, ops=(), regions=()))
    assert page.inner_text("#shown") == "0 ops"
    assert page.is_hidden("#graph")


def test_a_large_model_is_there_as_a_whole(open_page: OpenPage) -> None:
    page = open_page(coverage(2000))
    assert page.locator("#nodes .node").count() == page.locator("tbody tr").count() == 2000
