"""The picture of a benchmark: what is in it, and the formats it is written in."""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit import bench_plot


def side(name: str, cpu: float, wall: float) -> byoc.BenchSide:
    one = byoc.Spread(1.0, 1.0, 1.0)
    return byoc.BenchSide(
        name=name,
        version="1",
        wall_ms=byoc.Spread(wall, wall * 0.9, wall * 1.2),
        cpu_ms=byoc.Spread(cpu, cpu * 0.9, cpu * 1.2),
        wall_ratio=one,
        cpu_ratio=one,
        rounds=3,
        calls=1,
        setup_s=1.0,
        setup_cpu_s=1.0,
        first_call_s=1.0,
        held_bytes=0,
        peak_bytes=None,
        max_abs=0.5,
        agrees=True,
    )


@pytest.fixture
def report() -> byoc.BenchReport:
    return byoc.BenchReport(
        model="models/<net>&co.onnx",
        backend="openvino",
        inputs=("x: float32[1]",),
        threads=2,
        machine="2 cores (a processor)",
        reference="onnxruntime",
        regions=1,
        ops_offloaded=1,
        ops_total=1,
        sides=(side("byoc:openvino", 0.02, 0.03), side("onnxruntime", 40.0, 25.0)),
    )


def test_every_side_has_a_row_with_both_times_in_order_of_the_axis(
    report: byoc.BenchReport,
) -> None:
    drawing = bench_plot.draw(report)
    position = {text.text: text.x for text in drawing.texts}
    assert {"byoc:openvino", "onnxruntime", "<net>&co.onnx"} <= position.keys()
    assert position["0.02"] < position["0.03"] < position["25"] < position["40"]
    rows = {text.text: text.y for text in drawing.texts}
    assert rows["byoc:openvino"] < rows["onnxruntime"]
    inside = [(line.x1, line.x2, line.y1, line.y2) for line in drawing.lines]
    assert all(min(ends) >= 0 and max(ends) <= drawing.width for ends in inside)


def test_the_line_between_quartiles_does_not_cross_the_number(report: byoc.BenchReport) -> None:
    wide = byoc.Spread(1.0, 0.5, 9.0)
    sides = tuple(dataclasses.replace(s, cpu_ms=wide, wall_ms=wide) for s in report.sides)
    drawing = bench_plot.draw(dataclasses.replace(report, sides=sides))
    numbers = [text for text in drawing.texts if text.text == "1" and text.anchor == "start"]
    assert len(numbers) == 4
    ends = {line.y1: max(o.x2 for o in drawing.lines if o.y1 == line.y1) for line in drawing.lines}
    assert all(text.x > ends[text.y - 4] for text in numbers)


def test_wrong_numbers_have_no_dot(report: byoc.BenchReport) -> None:
    sides = (report.sides[0], dataclasses.replace(report.sides[1], agrees=False))
    drawing = bench_plot.draw(dataclasses.replace(report, sides=sides))
    words = [text.text for text in drawing.texts]
    assert "wrong numbers: off by 0.5" in words
    assert "40" not in words


def test_a_time_below_the_clocks_resolution_is_drawn_at_the_edge(
    report: byoc.BenchReport,
) -> None:
    zero = dataclasses.replace(report.sides[0], cpu_ms=byoc.Spread(0.0, 0.0, 0.0))
    bench_plot.draw(dataclasses.replace(report, sides=(zero, report.sides[1])))


def test_html_is_one_page_that_names_everything_and_loads_nothing(
    report: byoc.BenchReport, tmp_path: Path
) -> None:
    report.write_plot(tmp_path / "times.html")
    page = (tmp_path / "times.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "&lt;net&gt;&amp;co.onnx" in page
    assert "src=" not in page
    assert "href=" not in page


def test_svg_is_well_formed(report: byoc.BenchReport, tmp_path: Path) -> None:
    report.write_plot(tmp_path / "times.svg")
    root = ET.parse(tmp_path / "times.svg").getroot()  # noqa: S314 - written just now
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


def test_png_has_twice_the_size_of_the_drawing(report: byoc.BenchReport, tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    report.write_plot(tmp_path / "times.png")
    drawing = bench_plot.draw(report)
    with image.open(tmp_path / "times.png") as picture:
        assert picture.size == (2 * drawing.width, 2 * drawing.height)
        assert len(picture.getcolors(1 << 20)) > 4


def test_png_without_pillow_names_what_adds_it_and_the_way_without(
    report: byoc.BenchReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = byoc.Status("pillow", ok=False, detail="no Pillow", remedy="pip install it")
    monkeypatch.setattr(bench_plot, "probe", lambda _name: missing)
    with pytest.raises(byoc.OptionError, match=r"no Pillow\. To add it: pip install it; .*\.html"):
        report.write_plot(tmp_path / "times.png")
    report.write_plot(tmp_path / "times.html")


def test_other_names_and_places_are_refused(report: byoc.BenchReport, tmp_path: Path) -> None:
    with pytest.raises(byoc.OptionError, match=r"times\.pdf: expected a name that ends in \.html"):
        report.write_plot(tmp_path / "times.pdf")
    with pytest.raises(byoc.OptionError, match="cannot be written"):
        report.write_plot(tmp_path / "missing" / "times.svg")
