"""ONNX's own node tests: no wrong numbers, and every refusal still has its cause in TVM.

The whole runs by scripts/onnx_node_tests.py; here is a fixed sample over all operators.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tvm_byoc_kit.frontends.onnx.known_wrong import KNOWN_WRONG

SCRIPT = Path(__file__).parents[2] / "scripts" / "onnx_node_tests.py"

# A test for each entry of KNOWN_WRONG, by operator and condition.
SHOWN_BY = {
    ("BatchNormalization", "training_mode, or more than one output"): (
        "test_batchnorm_example_training_mode"
    ),
    ("RoiAlign", "mode 'max'"): "test_roialign_mode_max",
    ("", "a value of float8, or of less than 8 bits"): "test_cast_FLOAT_to_FLOAT8E4M3FNUZ",
    ("TopK", "uint64 values"): "test_top_k_uint64",
}
# Repaired by a rewrite, which can go when TVM reads them right.
REPAIRED = {
    "test_convtranspose_output_shape": "conv_transpose",
    "test_dropout_default_mask": "dropout",
    "test_layer_normalization_2d_axis0": "layer_normalization",
    "test_mod_float_edge_cases_fmod_0_float32": "mod",
    "test_nonmaxsuppression_iou_threshold_boundary": "non_max_suppression",
    "test_pow_types_int32_int32": "power",
    "test_reduce_max_empty_set": "reductions",
    "test_resize_downsample_scales_linear": "resize",
    "test_mish": "softplus",
    "test_spacetodepth_crd_mode_example": "space_to_depth",
}


def run(*arguments: str) -> dict[str, dict[str, Any]]:
    process = subprocess.run(
        [sys.executable, str(SCRIPT), "--json", "--jobs", "1", "--timeout", "600", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode in (0, 1), process.stderr
    return {result["name"]: result for result in json.loads(process.stdout)["results"]}


def cases(names: Any) -> list[str]:
    return [word for name in names for word in ("--case", name)]


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_a_sample_over_all_operators_gives_no_wrong_number() -> None:
    results = run("--sample")
    bad = {
        n: r["reason"] for n, r in results.items() if r["outcome"] in ("wrong", "crashed", "hung")
    }
    assert not bad
    raw = {name: r["reason"] for name, r in results.items() if r["outcome"] == "error"}
    assert not raw  # an error that is no ModelError
    passed = [name for name, result in results.items() if result["outcome"] == "passed"]
    assert len(passed) > len(results) // 2


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_what_is_repaired_passes_and_what_is_known_wrong_is_refused() -> None:
    results = run(*cases([*REPAIRED, *SHOWN_BY.values()]))
    outcomes = {name: result["outcome"] for name, result in results.items()}
    assert outcomes == dict.fromkeys(REPAIRED, "passed") | dict.fromkeys(
        SHOWN_BY.values(), "refused"
    )
    for (operator, condition), name in SHOWN_BY.items():
        if operator:  # a graph's float8 output is refused before
            assert condition in results[name]["reason"]


@pytest.mark.slow
@pytest.mark.timeout(1600)
def test_what_is_repaired_or_refused_is_still_wrong_in_tvm_alone() -> None:
    results = run("--upstream", *cases([*REPAIRED, *SHOWN_BY.values()]))
    repaired_upstream = [name for name, r in results.items() if r["outcome"] == "passed"]
    assert not repaired_upstream  # then its rewrite, or its entry in KNOWN_WRONG, can go


def test_every_entry_of_the_table_is_shown_by_a_test() -> None:
    entries = {(fault.operator, fault.condition) for fault in KNOWN_WRONG}
    assert set(SHOWN_BY) == entries
