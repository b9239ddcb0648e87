"""What a dry run shows, and which policy it recommends."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import building
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.policy import PartitionPolicy
from tvm_byoc_kit.trial import Trial, _best

X = ("x", ((4, 4), "float32"))
W = ("w", ((4, 4), "float32"))


def fragmented(x: Any, w: Any) -> Any:
    """Regions of 1, 2 and 5 ops, the last with both matmuls."""
    a = relax.op.erf(relax.op.tanh(x))
    b = relax.op.erf(relax.op.nn.relu(relax.op.exp(a)))
    c = relax.op.nn.relu(relax.op.add(relax.op.matmul(b, w), x))
    return relax.op.tanh(relax.op.matmul(c, w))


@pytest.fixture(scope="module")
def model(make_module: Any) -> tvm.IRModule:
    return make_module(dict([X, W]), fragmented)


@pytest.fixture(scope="module")
def result(model: tvm.IRModule) -> byoc.DryRun:
    return byoc.dry_run(model, "example_npu")


def test_each_different_result_is_shown_once_with_its_mildest_policy(result: byoc.DryRun) -> None:
    shown = [(trial.policy, trial.regions, trial.ops) for trial in result.trials]
    assert shown == [
        (PartitionPolicy(), 3, 8),
        (PartitionPolicy(min_region_ops=2), 2, 7),
        (PartitionPolicy(min_region_ops=3), 1, 5),
    ]


def test_figures_are_those_of_the_partitions(model: tvm.IRModule, result: byoc.DryRun) -> None:
    assert (result.backend, result.ops, result.macs) == ("example_npu", 10, 2 * 4**3)
    for trial in result.trials:
        coverage = byoc.partition(model, "example_npu", policy=trial.policy).coverage
        assert (trial.regions, trial.ops) == (len(coverage.regions), coverage.offloaded)
        assert trial.macs == 2 * 4**3
        assert trial.mac_ops == 2
    tensor = 4 * 4 * 4
    assert [trial.boundary_bytes for trial in result.trials] == [
        (2 + 2 + 4) * tensor,
        (2 + 4) * tensor,
        4 * tensor,
    ]


def test_fewer_regions_with_the_same_macs_are_recommended(result: byoc.DryRun) -> None:
    assert result.recommended == PartitionPolicy(min_region_ops=3)
    assert result.reason == (
        "recommended: min_region_ops=3: 1 region(s) instead of 3, 100 % of the MACs, "
        "256 B across boundaries instead of 512 B"
    )


def test_the_recommended_policy_can_be_used(model: tvm.IRModule, result: byoc.DryRun) -> None:
    coverage = byoc.partition(model, "example_npu", policy=result.recommended).coverage
    assert len(coverage.regions) == 1


def test_the_default_is_recommended_when_nothing_is_gained(onnx_path: Any) -> None:
    result = byoc.dry_run(onnx_path, "example_npu")
    assert result.recommended == PartitionPolicy()
    assert result.reason.startswith("recommended: the default; no stricter one keeps 95 %")


def test_nothing_to_offload_is_said(model: tvm.IRModule) -> None:
    result = byoc.dry_run(model, "llvm")
    assert [(trial.regions, trial.ops) for trial in result.trials] == [(0, 0)]
    assert result.reason == "nothing is offloaded, whatever the policy"


def test_require_mac_is_tried_where_a_big_region_has_none(make_module: Any) -> None:
    def body(x: Any, w: Any) -> Any:
        for op in (relax.op.tanh, relax.op.nn.relu, relax.op.exp, relax.op.erf):
            x = op(x)
        return relax.op.nn.relu(relax.op.matmul(x, w))

    result = byoc.dry_run(make_module(dict([X, W]), body), "example_npu")
    assert result.recommended == PartitionPolicy(require_mac=True)
    assert [trial.ops for trial in result.trials] == [5, 3, 2]


def test_without_macs_ops_are_kept(make_module: Any) -> None:
    def body(x: Any) -> Any:
        for _ in range(30):
            x = relax.op.tanh(x)
        return relax.op.exp(relax.op.erf(x))

    result = byoc.dry_run(make_module(dict([X]), body), "example_npu")
    assert result.recommended == PartitionPolicy(min_region_ops=2)
    assert "96.8 % of the ops" in result.reason


def test_with_symbolic_macs_ops_that_have_macs_are_kept(make_module: Any) -> None:
    params = {"x": (("n", 4), "float32"), "w": ((4, 4), "float32")}
    mod = make_module(
        params, lambda x, w: relax.op.tanh(relax.op.erf(relax.op.nn.relu(relax.op.matmul(x, w))))
    )
    result = byoc.dry_run(mod, "example_npu")
    assert result.macs is None
    assert result.trials[0].boundary_bytes is None
    assert result.recommended == PartitionPolicy(min_region_ops=2)
    assert "100 % of the MAC ops, ? across" in result.reason


def trial(least: int, regions: int, macs: int, size: int) -> Trial:
    return Trial(PartitionPolicy(least), regions, 9, 1, macs, size)


@pytest.mark.parametrize(
    ("trials", "best"),
    [
        ([trial(1, 9, 100, 50), trial(2, 3, 95, 50), trial(3, 1, 94, 10)], 2),
        ([trial(1, 3, 100, 50), trial(2, 3, 99, 40)], 2),
        ([trial(1, 3, 100, 50), trial(2, 3, 99, 50)], 1),
        ([trial(1, 3, 100, 50), trial(2, 2, 99, 90)], 2),
    ],
    ids=["95 % of the MACs", "then bytes", "then the first", "regions before bytes"],
)
def test_the_rule(trials: list[Trial], best: int) -> None:
    assert _best(tuple(trials)).policy.min_region_ops == best


def test_a_policy_given_holds_for_all_trials(model: tvm.IRModule) -> None:
    policy = PartitionPolicy(exclude_ops=("tanh",), min_region_ops=2, strict=True)
    result = byoc.dry_run(model, "example_npu", policy=policy)
    assert all(trial.policy.exclude_ops == ("relax.tanh",) for trial in result.trials)
    assert all(trial.policy.min_region_ops >= 2 for trial in result.trials)
    assert [trial.ops for trial in result.trials] == [6, 4]
    alone = byoc.dry_run(model, "example_npu", policy={"min_region_ops": 3})
    assert "recommended: the policy as it is" in alone.reason


def test_wrong_policies_and_backends_are_refused(model: tvm.IRModule) -> None:
    with pytest.raises(OptionError, match="min_region_ops=0"):
        byoc.dry_run(model, "example_npu", policy={"min_region_ops": 0})
    with pytest.raises(OptionError, match="unknown backend"):
        byoc.dry_run(model, "exampel_npu")


def test_nothing_is_built(model: tvm.IRModule, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(building, "build", refuse)
    monkeypatch.setattr(relax, "build", refuse)
    monkeypatch.setattr(relax.transform, "RunCodegen", refuse)
    assert byoc.dry_run(model, "tensorrt").trials


def test_files_are_prepared_like_for_a_partition(onnx_path: Any) -> None:
    result = byoc.dry_run(onnx_path, "example_npu")
    assert result.model == str(onnx_path)
    assert result.ops == byoc.partition(onnx_path, "example_npu").coverage.total


def test_the_text_is_a_table_with_the_recommended_row_marked(result: byoc.DryRun) -> None:
    assert str(result).splitlines()[:-1] == [
        "   policy            regions      ops   MACs  boundary",
        "   default                 3  8 of 10  100 %     512 B",
        "   min_region_ops=2        2  7 of 10  100 %     384 B",
        "*  min_region_ops=3        1  5 of 10  100 %     256 B",
    ]


def test_the_result_is_json(result: byoc.DryRun) -> None:
    facts = json.loads(json.dumps(result.to_dict()))
    assert facts["recommended"]["min_region_ops"] == 3
    assert [trial["regions"] for trial in facts["trials"]] == [3, 2, 1]
    assert facts["trials"][1]["policy"]["min_region_ops"] == 2
