"""The report of what a partition offloads."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.coverage_reader import read_coverage


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


def test_the_report_is_json(coverage: byoc.Coverage) -> None:
    facts = json.loads(json.dumps(coverage.to_dict()))
    assert facts["ops_total"] == 5
    assert facts["ops_offloaded"] == 4
    assert len(facts["ops"]) == 5
    assert facts["regions"][0]["composites"] == ["example_npu.relu", "example_npu.tanh"]


def test_the_report_reads_well(coverage: byoc.Coverage) -> None:
    lines = str(coverage).splitlines()
    assert lines[0] == "4 of 5 ops offloaded in 2 region(s)"
    assert lines[1].strip() == "region 1 (example_npu, 2 ops): relu, tanh"
    assert lines[-2].strip() == "on the host:"
    assert lines[-1].strip().startswith("1 x erf")
