"""The report of what a partition offloads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import coverage_text
from tvm_byoc_kit.coverage import REASON_KINDS, Coverage, CoveredOp, Reason, Region, Totals
from tvm_byoc_kit.coverage_reader import read_coverage
from tvm_byoc_kit.errors import InputError


def mixed(x: Any) -> Any:
    """Offloaded, on the host, and the same again."""
    a = relax.op.tanh(relax.op.nn.relu(x))
    b = relax.op.erf(a)
    return relax.op.tanh(relax.op.nn.relu(b))


@pytest.fixture(scope="module")
def coverage(make_module: Any) -> byoc.Coverage:
    return byoc.partition(make_module({"x": ((2, "n"), "float32")}, mixed), "example_npu").coverage


def test_every_op_is_counted_once_with_its_region(coverage: byoc.Coverage) -> None:
    assert [(op.op, op.region is not None) for op in coverage.ops] == [
        ("relax.nn.relu", True),
        ("relax.tanh", True),
        ("relax.erf", False),
        ("relax.nn.relu", True),
        ("relax.tanh", True),
    ]
    assert (coverage.offloaded, coverage.total) == (4, 5)
    assert coverage.host_ops == {"relax.erf": 1}


def test_ops_say_what_matched_them_and_what_they_give(coverage: byoc.Coverage) -> None:
    first, host = coverage.ops[0], coverage.ops[2]
    assert (first.shape, first.dtype) == ("2xn", "float32")
    assert first.composite == "example_npu.relu"
    assert (host.region, host.composite) == (None, None)


def test_calls_of_one_region_are_told_apart(coverage: byoc.Coverage) -> None:
    names = [region.name for region in coverage.regions]
    assert len(names) == len(set(names)) == 2
    assert all(region.ops == 2 for region in coverage.regions)
    assert {op.region for op in coverage.ops} == {None, *names}


def test_a_region_called_twice_counts_twice(make_module: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        stretch = [relax.op.tanh(relax.op.erf(each)) for each in (x, y)]
        return tuple(relax.op.erf(each) for each in stretch)

    params = {"x": ((2, 4), "float32"), "y": ((2, 4), "float32")}
    parts = byoc.partition(make_module(params, body), "example_npu", annotate_codegen=True)
    functions = [f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    first, second = parts.coverage.regions
    assert len(functions) == 1
    assert first.function == second.function
    assert first.name != second.name
    assert parts.coverage.offloaded == 2


def test_an_unpartitioned_module_is_all_host(two_outputs: tvm.IRModule) -> None:
    coverage = read_coverage(two_outputs)
    assert coverage.regions == ()
    assert coverage.offloaded == 0
    assert coverage.host_ops == {
        "relax.matmul": 1,
        "relax.add": 1,
        "relax.nn.relu": 1,
        "relax.tanh": 1,
    }


def test_a_module_without_ops_is_empty() -> None:
    coverage = read_coverage(tvm.IRModule())
    assert (coverage.total, coverage.offloaded, coverage.regions) == (0, 0, ())
    assert str(coverage) == "0 of 0 ops offloaded in 0 region(s)"


def test_an_op_with_several_results_is_one_op(make_module: Any) -> None:
    def body(x: Any) -> Any:
        ones = relax.const(np.ones(4, "float32"))
        return relax.TupleGetItem(relax.op.nn.batch_norm(x, ones, ones, ones, ones, axis=1), 0)

    mod = make_module({"x": ((2, 4, 3, 3), "float32")}, body)
    coverage = byoc.partition(mod, "example_npu").coverage
    assert [op.op for op in coverage.ops] == ["relax.nn.batch_norm"]
    assert coverage.offloaded == 1


def test_a_fused_match_is_one_composite_of_several_ops(two_outputs: tvm.IRModule) -> None:
    coverage = byoc.partition(two_outputs, "example_npu").coverage
    assert [op.op for op in coverage.ops].count("relax.matmul") == 1
    assert coverage.offloaded == 4
    assert sum(len(region.composites) for region in coverage.regions) < 4


# --- Totals -------------------------------------------------------------------------------------

PRODUCT = CoveredOp("p", "relax.matmul", "4x4", "float32", "r", macs=64, parameters=16, bytes=64)
SUM = CoveredOp("s", "relax.add", "4x4", "float32", bytes=64, reason=Reason("no_pattern", "none"))
REGION = Region("r", "f", "npu", ("npu.matmul",), 1, 64, bytes_in=100, bytes_out=20)


def test_totals_are_sums_over_ops_and_regions() -> None:
    report = Coverage((PRODUCT, SUM, replace(SUM, name="t")), (REGION, replace(REGION, name="r#2")))
    assert report.totals == Totals(ops=3, macs=64, parameters=16, bytes=192)
    assert report.offloaded_totals == Totals(ops=1, macs=64, parameters=16, bytes=64)
    assert report.boundary_bytes == 240
    assert report.macs_share == 1.0
    assert report.host_reasons == {("relax.add", SUM.reason): 2}


def test_what_is_not_known_of_one_is_not_known_of_all() -> None:
    report = Coverage(
        (PRODUCT, replace(PRODUCT, macs=None, bytes=None)), (replace(REGION, bytes_in=None),)
    )
    assert (report.totals.macs, report.totals.bytes) == (None, None)
    assert (report.macs_share, report.boundary_bytes) == (None, None)
    assert "MACs" not in str(report).splitlines()[0]


def test_a_model_without_macs_has_no_share() -> None:
    assert Coverage((SUM,), ()).macs_share is None


# --- JSON ---------------------------------------------------------------------------------------

SCHEMA_PATH = Path(byoc.__file__).parent / "data/coverage.schema.json"
SCHEMA = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))


def valid(facts: Any) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(facts)


def reports(make_module: Any) -> list[Coverage]:
    mod = make_module({"x": ((2, "n"), "float32")}, mixed)
    parts = byoc.partition(mod, "example_npu", policy={"exclude_ops": "tanh"})
    digits = Path(byoc.__file__).parent / "data/digits.onnx"
    return [
        Coverage((), ()),
        read_coverage(mod),
        parts.coverage,
        byoc.partition(digits, "example_npu").coverage,
        byoc.partition(digits, "tensorrt", policy={"min_region_ops": 100}).coverage,
    ]


def test_the_report_is_as_its_schema_says_and_reads_back(make_module: Any) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    for report in reports(make_module):
        text = report.to_json()
        valid(json.loads(text))
        assert Coverage.from_json(text) == report
        # What the command line writes has more keys, and is a baseline as well.
        more = report.to_dict() | {"prepare": None, "script": "..."}
        valid(more)
        assert Coverage.from_json(json.dumps(more)) == report


def test_the_schema_knows_all_fields_and_kinds() -> None:
    parts = {"op": CoveredOp, "region": Region, "totals": Totals, "reason": Reason}
    for name, kind in parts.items():
        fields = set(kind.__dataclass_fields__)
        assert set(SCHEMA["$defs"][name]["properties"]) == fields
        assert set(SCHEMA["$defs"][name]["required"]) == fields
    kinds = SCHEMA["$defs"]["reason"]["properties"]["kind"]["oneOf"]
    assert [kind["const"] for kind in kinds] == list(REASON_KINDS)


def test_the_report_keeps_the_keys_of_the_command_line(coverage: byoc.Coverage) -> None:
    facts = json.loads(coverage.to_json())
    assert facts["ops_total"] == 5
    assert facts["ops_offloaded"] == 4
    assert facts["host_ops"] == {"relax.erf": 1}
    assert len(facts["ops"]) == 5
    assert facts["regions"][0]["composites"] == ["example_npu.relu", "example_npu.tanh"]
    assert facts["tvm"] == tvm.__version__


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"coverage_version": 2}, "version 2, this tvm_byoc_kit reads 1"),
        ({"model": 3}, "model is 3, expected text"),
        ({"ops": {}}, "ops is {}, expected a list"),
        ({"ops": [1]}, r"ops\[0\] is 1, expected an object"),
        ({"regions": [{}]}, r"regions\[0\].name is missing"),
    ],
)
def test_a_wrong_report_is_refused_by_place(change: dict[str, Any], message: str) -> None:
    facts = Coverage((PRODUCT,), (REGION,)).to_dict() | change
    with pytest.raises(InputError, match=message):
        Coverage.from_json(json.dumps(facts))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"macs": -1}, r"ops\[0\].macs is -1, expected a number, 0 or more"),
        ({"parameters": True}, r"ops\[0\].parameters is true, expected a number"),
        ({"inputs": ["0"]}, r"ops\[0\].inputs\[0\] is \"0\", expected a number"),
        ({"inputs": [1]}, r"ops\[0\] reads op 1, which is none"),
        ({"region": "q"}, r"ops\[0\] is in no region 'q'"),
        (
            {"reason": {"kind": "luck", "text": ""}},
            r"reason.kind is \"luck\", expected one of no_p",
        ),
        ({"shape": None}, r"ops\[0\].shape is null, expected text"),
    ],
)
def test_a_wrong_op_is_refused_by_place(change: dict[str, Any], message: str) -> None:
    facts = Coverage((PRODUCT,), (REGION,)).to_dict()
    facts["ops"][0] |= change
    with pytest.raises(InputError, match=message):
        Coverage.from_json(json.dumps(facts))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ops": []}', "not json", "\x00", "[" * 200_000])
def test_what_is_no_report_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InputError, match="tvm-byoc partition --json"):
        Coverage.from_json(text)


# --- Text ---------------------------------------------------------------------------------------


def test_the_report_reads_well(coverage: byoc.Coverage) -> None:
    lines = str(coverage).splitlines()
    assert lines[0] == "4 of 5 ops offloaded in 2 region(s)"
    assert lines[1].strip() == "region 1 (example_npu, 2 ops): relu, tanh"
    assert lines[-2].strip() == "on the host:"
    assert lines[-1].strip().startswith("1 x erf")


def test_the_report_says_what_is_computed_and_passed() -> None:
    lines = str(Coverage((PRODUCT, SUM), (REGION,))).splitlines()
    assert lines == [
        "1 of 2 ops offloaded in 1 region(s), with 100 % of 64 MACs",
        "  region 1 (npu, 1 op, 64 MACs, 100 B in, 20 B out): matmul",
        "  on the host:",
        "    1 x add  none",
    ]


def test_equal_reasons_are_one_line_and_long_ones_are_cut() -> None:
    long = replace(SUM, op="relax.nn.conv2d", reason=Reason("refused", "why " * 200))
    lines = str(Coverage((long, *(replace(SUM, name=f"s{i}") for i in range(12))), ())).splitlines()
    assert lines[2] == "    12 x add        none"
    assert lines[3].startswith("     1 x nn.conv2d  why why")
    assert lines[3].endswith("...")
    assert len(lines[3]) < 180
    assert len(lines) == 4


def test_a_report_of_many_regions_and_reasons_stays_short() -> None:
    regions = tuple(replace(REGION, name=f"r{i}") for i in range(500))
    hosts = tuple(replace(SUM, reason=Reason("refused", f"{i}")) for i in range(500))
    text = str(Coverage((*(replace(PRODUCT, region=r.name) for r in regions), *hosts), regions))
    assert len(text.splitlines()) < 40
    assert "and 488 more regions with 488 ops" in text
    assert "and 480 more ops, for 480 more reasons" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 MACs"),
        (999, "999 MACs"),
        (1000, "1 kMACs"),
        (1_814_073_344, "1.81 GMACs"),
        (999_999, "1 MMACs"),
        (123_456_789, "123 MMACs"),
    ],
)
def test_amounts_have_three_digits(count: int, text: str) -> None:
    assert coverage_text.amount(count, "MACs") == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (602_112, "588 KiB"), (1 << 20, "1 MiB")],
)
def test_sizes_have_three_digits(count: int, text: str) -> None:
    assert coverage_text.size(count) == text


def test_nearly_all_is_not_all() -> None:
    assert coverage_text.percent(1) == "100 %"
    assert coverage_text.percent(0.99999) == "99.9 %"
    assert coverage_text.percent(0.00001) == "0.1 %"
    assert coverage_text.percent(0) == "0 %"


def test_the_page_holds_the_report(coverage: byoc.Coverage) -> None:
    pytest.importorskip("fast_sugiyama")
    page = coverage.to_html()
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert all(op.name in page for op in coverage.ops)
