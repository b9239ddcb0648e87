"""What changed between two coverage reports."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.coverage import Coverage, CoveredOp, Reason, Region
from tvm_byoc_kit.errors import InputError

WHY = Reason("refused", "float64 is not taken")


def op(name: str, kind: str = "relax.add", region: str | None = None, **facts: Any) -> CoveredOp:
    reason = None if region else WHY
    return replace(
        CoveredOp(name, kind, "2x2", "float32", region, reason=reason, bytes=16), **facts
    )


def report(*ops: CoveredOp, crossing: int | None = 8, **facts: Any) -> Coverage:
    """Each region gets and gives `crossing` bytes."""
    names = dict.fromkeys(each.region for each in ops if each.region)
    regions = tuple(
        Region(
            name,
            name,
            "npu",
            ("npu.add",),
            ops=sum(each.region == name for each in ops),
            bytes_in=crossing,
            bytes_out=crossing,
        )
        for name in names
    )
    return Coverage(ops, regions, **facts)


def names(ops: tuple[CoveredOp, ...]) -> list[str]:
    return [each.name for each in ops]


def test_equal_reports_have_no_difference() -> None:
    one = report(op("a", region="r"), op("b"))
    change = byoc.diff(one, one)
    assert not change
    assert not change.fell
    assert str(change) == "coverage is the same"


def test_ops_that_changed_sides_are_told_by_name() -> None:
    before = report(op("a", region="r"), op("b", region="r"), op("c"))
    after = report(op("a"), op("b", region="r"), op("c", region="r"))
    change = byoc.diff(before, after)
    assert names(change.to_host) == ["a"]
    assert names(change.to_region) == ["c"]
    assert (change.gone, change.new) == ((), ())
    assert change
    assert not change.fell  # as many as before, and no more bytes


def test_another_name_is_the_same_op_if_operator_and_shape_agree() -> None:
    before = report(op("a", region="r"), op("x", "relax.erf", shape="3"))
    after = report(op("lv7"), op("y", "relax.erf", shape="3"), op("z", "relax.erf", shape="4"))
    change = byoc.diff(before, after)
    assert names(change.to_host) == ["lv7"]
    assert names(change.new) == ["z"]
    assert change.gone == ()


def test_renamed_ops_are_paired_so_that_the_fewest_move() -> None:
    before = report(op("a"), op("b", region="r"))
    after = report(op("p", region="r"), op("q"))
    change = byoc.diff(before, after)
    assert (change.to_host, change.to_region, change.gone, change.new) == ((), (), (), ())


def test_functions_with_ops_of_one_name_are_told_apart() -> None:
    before = report(op("a", region="r"), op("a", function="other"))
    after = report(op("a"), op("a", function="other", region="r"))
    change = byoc.diff(before, after)
    assert [(each.function, each.name) for each in change.to_host] == [("main", "a")]
    assert [(each.function, each.name) for each in change.to_region] == [("other", "a")]


# --- Whether it fell ----------------------------------------------------------------------------


def test_it_fell_when_a_smaller_part_of_the_ops_is_offloaded() -> None:
    whole = report(op("a", region="r"), op("b", region="r"))
    part = report(op("a", region="r"), op("b"))
    assert byoc.diff(whole, part).losses == ("fewer ops offloaded: 2 of 2 -> 1 of 2",)
    assert not byoc.diff(part, whole).fell


def test_it_did_not_fall_when_there_are_only_fewer_ops() -> None:
    before = report(op("a", region="r"), op("b", region="r"), op("c"))
    after = report(op("a", region="r"), op("b", region="r"))
    change = byoc.diff(before, after)
    assert not change.fell
    assert names(change.gone) == ["c"]


def test_it_fell_when_a_smaller_part_of_the_macs_is_offloaded() -> None:
    light = {"kind": "relax.add", "macs": 0}
    heavy = {"kind": "relax.matmul", "macs": 1000}
    before = report(op("a", **heavy, region="r"), op("b", **light))
    after = report(op("a", **heavy), op("b", **light, region="r"))
    assert byoc.diff(before, after).losses == (
        "fewer MACs offloaded: 100 % of 1 kMACs -> 0 % of 1 kMACs",
    )
    assert not byoc.diff(after, before).fell


def test_ops_with_macs_are_counted_where_the_macs_are_not_known() -> None:
    product = {"kind": "relax.matmul", "macs": None}
    before = report(op("a", **product, region="r"), op("b"))
    after = report(op("a", **product), op("b", region="r"))
    change = byoc.diff(before, after)
    assert change.losses == ("fewer MACs offloaded: 1 of 1 ops with MACs -> 0 of 1 ops with MACs",)


def test_it_fell_when_the_same_ops_cost_more_at_the_boundary() -> None:
    one = report(op("a", region="r"), op("b", region="r"))
    two = report(op("a", region="r"), op("b", region="s"))
    assert byoc.diff(one, two).losses == ("more bytes cross boundaries: 16 B -> 32 B",)
    assert not byoc.diff(two, one).fell


def test_regions_are_counted_where_the_bytes_are_not_known() -> None:
    one = report(op("a", region="r"), op("b", region="r"), crossing=None)
    two = report(op("a", region="r"), op("b", region="s"), crossing=None)
    assert byoc.diff(one, two).losses == ("more regions: 1 -> 2",)


def test_more_bytes_are_the_price_of_more_offloaded() -> None:
    none, one = report(op("a"), op("b")), report(op("a", region="r"), op("b"))
    assert not byoc.diff(none, one).fell


def test_empty_reports_are_no_obstacle() -> None:
    empty, one = report(), report(op("a", region="r"))
    assert not byoc.diff(empty, empty)
    assert not byoc.diff(empty, one).fell
    assert byoc.diff(one, empty).fell


# --- What it says -------------------------------------------------------------------------------


def test_the_text_names_figures_and_ops_with_reasons() -> None:
    before = report(op("a", region="r"), op("b", region="r"), backend="npu", tvm="0.27")
    after = report(op("a"), op("b", region="r"), backend="npu", tvm="0.28")
    assert str(byoc.diff(before, after)).splitlines() == [
        "coverage fell: fewer ops offloaded: 2 of 2 -> 1 of 2",
        "  TVM              0.27 -> 0.28",
        "  ops offloaded    2 of 2 -> 1 of 2",
        "  to the host (1):",
        "    a  add  2x2  float64 is not taken",
    ]


def test_long_lists_are_cut() -> None:
    before = report(*(op(f"v{i}", region="r") for i in range(100)))
    after = report(*(op(f"v{i}") for i in range(100)))
    lines = str(byoc.diff(before, after)).splitlines()
    assert len(lines) < 30
    assert lines[-1].strip() == "and 80 more"


def test_the_dict_is_json() -> None:
    before, after = report(op("a", region="r")), report(op("a"))
    facts = json.loads(json.dumps(byoc.diff(before, after).to_dict()))
    assert facts["fell"] is True
    assert facts["ops_offloaded"] == [1, 0]
    assert facts["to_host"][0]["name"] == "a"
    assert facts["to_host"][0]["reason"] == {"kind": "refused", "text": WHY.text}


def test_what_is_no_coverage_is_refused() -> None:
    with pytest.raises(InputError, match="after must be a Coverage, not str"):
        byoc.diff(report(), "coverage.json")  # type: ignore[arg-type]


def test_policies_of_one_model_compare(two_outputs: Any) -> None:
    free = byoc.partition(two_outputs, "example_npu").coverage
    bound = byoc.partition(two_outputs, "example_npu", policy={"exclude_ops": "tanh"}).coverage
    change = byoc.diff(free, bound)
    assert [(each.op, each.reason and each.reason.kind) for each in change.to_host] == [
        ("relax.tanh", "policy")
    ]
    assert change.fell
    assert not byoc.diff(bound, free).fell
