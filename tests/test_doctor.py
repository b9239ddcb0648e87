"""The doctor's report: complete, true, readable at 80 columns and when piped."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from tvm_byoc_kit import plugin_build
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backend import STEPS, list_backends
from tvm_byoc_kit.doctor import GROUPS, Report, Row, doctor, render

REMEDY = (
    'pip install "tvm-byoc-kit[onnx]" && export A_LONG_NAME=/a/path/that/is/wider/than/80/columns'
)
BROKEN = Report(
    (
        Row("core", "tvm", "", ok=False, detail="no [tvm] here", remedy="get-tvm"),
        Row("frontends", "onnx", "", ok=False, detail="no onnx", remedy=REMEDY),
        Row("toolchains", "compiler", "", ok=True, detail="/usr/bin/g++ 12.2.0", remedy=""),
        Row("backends", "npu", "partition", ok=True, detail="", remedy=""),
        Row("backends", "npu", "codegen", ok=False, detail="no plugin", remedy="build-it"),
        Row("backends", "npu", "runtime", ok=False, detail="no plugin", remedy="build-it"),
        Row("backends", "gpu", "codegen", ok=False, detail="no plugin", remedy="build-it"),
    )
)


@pytest.fixture(scope="module")
def report() -> Report:
    return doctor()


def printed(report: Report, width: int = 80) -> str:
    """What `render` writes into a pipe."""
    stream = io.StringIO()
    render(report, Console(file=stream, width=width))
    return stream.getvalue()


def test_the_report_covers_every_group_and_every_step_of_every_backend(report: Report) -> None:
    assert {row.group for row in report.rows} == set(GROUPS)
    seen = [(row.what, row.step) for row in report.group("backends")]
    assert seen == [(backend.name, step) for backend in list_backends() for step in STEPS]


def test_the_report_says_what_the_probes_and_the_backends_say(report: Report) -> None:
    for row in report.rows:
        if row.step:
            backend = next(b for b in list_backends() if b.name == row.what)
            status = backend.check(row.step)  # type: ignore[arg-type]
            assert (row.ok, row.remedy) == (status.ok, status.remedy)
        elif row.what != "python":
            kind, _, name = row.what.partition(":")
            status = plugin_build.inspect(name) if kind == "executor" else probe(row.what)
            assert (row.ok, row.detail, row.remedy) == (status.ok, status.detail, status.remedy)


def test_a_step_after_one_that_is_missing_is_missing_too(report: Report) -> None:
    for backend in list_backends():
        states = [row.ok for row in report.group("backends") if row.what == backend.name]
        assert states == sorted(states, reverse=True)


def test_partitioning_works_for_every_backend_where_the_core_works(report: Report) -> None:
    assert report.ok
    assert all(row.ok for row in report.group("backends") if row.step == "partition")


def test_the_core_alone_decides_whether_the_report_is_ok() -> None:
    assert not BROKEN
    rest = Report(tuple(row for row in BROKEN.rows if row.group != "core"))
    assert rest.ok
    assert rest


def test_the_report_as_data_survives_json(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict()))
    assert data["ok"] is report.ok
    assert len(data["rows"]) == len(report.rows)
    for row in data["rows"]:
        assert set(row) == {"group", "what", "step", "ok", "state", "detail", "remedy"}
        assert row["state"] == ("ok" if row["ok"] else "missing")


def test_every_missing_thing_is_printed_with_its_reason_and_its_remedy_on_one_line(
    report: Report,
) -> None:
    for each in (report, BROKEN):
        lines = printed(each).splitlines()
        text = " ".join(" ".join(lines).split())
        for row in each.rows:
            if not row.ok:
                assert f"    {row.remedy}" in lines
                assert " ".join(row.detail.split()) in text


def test_a_reason_that_several_backends_share_is_printed_once() -> None:
    text = printed(BROKEN)
    assert text.count("no plugin") == 1
    assert "backend npu, backend gpu: no plugin" in text


def test_nothing_but_a_remedy_is_wider_than_80_columns(report: Report) -> None:
    for each in (report, BROKEN):
        remedies = {f"    {row.remedy}" for row in each.rows}
        for line in printed(each).splitlines():
            assert len(line) <= 80 or line in remedies


def test_piped_output_has_no_control_characters(report: Report) -> None:
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", printed(report))


def test_the_last_line_is_the_verdict(report: Report) -> None:
    assert printed(report).splitlines()[-1] == "The core works."
    assert printed(BROKEN).splitlines()[-1] == "The core does not work."
