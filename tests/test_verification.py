"""Verification tells right numbers from wrong ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.comparison import TOLERANCES, Tolerance
from tvm_byoc_kit.errors import InputError, ModelError, OptionError
from tvm_byoc_kit.sample_inputs import CASES, random_inputs

npu = pytest.mark.byoc("example_npu", step="runtime")
Arrays = dict[str, np.ndarray]


def identity(make_module: Any, dtype: str = "float32", size: int = 4) -> byoc.Executable:
    mod = make_module({"x": ((size,), dtype)}, lambda x: x)
    return byoc.compile(mod, "llvm")


def verify_value(make_module: Any, got: Any, expected: Any, **choices: Any) -> byoc.Verification:
    """Compare an executable that gives `got` with a reference that gives `expected`."""
    got, expected = np.asarray(got), np.asarray(expected)
    exe = identity(make_module, str(got.dtype), got.size)
    return byoc.verify(exe, lambda _: {"output": expected}, inputs={"x": got}, **choices)


# References


@pytest.mark.parametrize(
    "backend", ["llvm", pytest.param("example_npu", marks=pytest.mark.byoc("example_npu"))]
)
def test_an_onnx_model_agrees_with_onnx_runtime(onnx_path: Path, backend: str) -> None:
    result = byoc.verify(byoc.compile(onnx_path, backend))
    assert result
    assert result.reference == "onnxruntime"
    assert [output.name for output in result.outputs] == ["probs:0", "logits"]
    assert all(output.max_abs < 1e-5 for output in result.outputs)
    assert all(output.snr_db > 60 for output in result.outputs)


def test_a_torch_module_agrees_with_torch() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Sigmoid())
    result = byoc.verify(byoc.compile(byoc.load_model(net, (torch.zeros(2, 4),)), "llvm"))
    assert result
    assert result.reference == "torch"


@npu
def test_a_plain_module_agrees_with_the_host_build(npu_exe: byoc.Executable) -> None:
    result = byoc.verify(npu_exe)
    assert result
    assert result.reference == "TVM's host build"


@npu
def test_a_partitioned_module_is_not_compared_with_itself(two_outputs: tvm.IRModule) -> None:
    exe = byoc.build(byoc.partition(two_outputs, "example_npu").mod)
    with pytest.raises(ModelError, match="the model was given partitioned"):
        byoc.verify(exe)
    assert byoc.verify(exe, two_outputs)


def test_the_host_build_is_a_reference_of_every_model(onnx_path: Path) -> None:
    result = byoc.verify(byoc.compile(onnx_path, "llvm"), "tvm")
    assert result
    assert result.reference == "TVM's host build"


def test_an_artifact_is_verified_against_its_model(
    onnx_path: Path, onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    byoc.compile(onnx_path, "llvm").export(path)
    loaded = byoc.load(path)
    for reference in (str(onnx_path), onnx_path, onnx_proto, byoc.load_model(onnx_path)):
        assert byoc.verify(loaded, reference).reference == "onnxruntime"


def test_an_artifact_with_an_open_dimension_is_verified_against_its_model(
    dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    model = byoc.load_model(dynamic_onnx_proto, shapes={"input.1": ("rows", 4)})
    byoc.compile(model, "llvm").export(path)
    assert byoc.verify(byoc.load(path), dynamic_onnx_proto).reference == "onnxruntime"


@pytest.mark.parametrize("reference", ["auto", "tvm", "onnxruntime"])
def test_an_artifact_alone_has_no_reference(host_artifact: Path, reference: str) -> None:
    with pytest.raises(ModelError, match=r"does not carry its original model; give it"):
        byoc.verify(byoc.load(host_artifact), reference)


def test_a_plain_module_has_no_framework(host_exe: byoc.Executable) -> None:
    with pytest.raises(ModelError, match=r"came from relax and has no reference, not onnxruntime"):
        byoc.verify(host_exe, "onnxruntime")


def test_another_framework_than_the_model_s_is_refused(onnx_path: Path) -> None:
    with pytest.raises(ModelError, match="has the reference onnxruntime, not torch"):
        byoc.verify(byoc.compile(onnx_path, "llvm"), "torch")


@pytest.mark.parametrize("reference", ["numpy", "", "onnx", "model.tflite"])
def test_an_unknown_reference_lists_the_known(host_exe: byoc.Executable, reference: str) -> None:
    with pytest.raises(OptionError, match="expected auto, tvm, onnxruntime, torch, a model file"):
        byoc.verify(host_exe, reference)


@pytest.mark.parametrize("reference", [None, 3, [1]])
def test_what_is_no_reference_is_refused(host_exe: byoc.Executable, reference: object) -> None:
    with pytest.raises(ModelError):
        byoc.verify(host_exe, reference)


def test_a_missing_model_file_is_named(host_exe: byoc.Executable) -> None:
    with pytest.raises(ModelError, match=r"no such model file: gone\.onnx"):
        byoc.verify(host_exe, "gone.onnx")


def test_a_module_given_as_reference_needs_example_inputs(host_exe: byoc.Executable) -> None:
    with pytest.raises(ModelError, match="give the inputs it is traced with"):
        byoc.verify(host_exe, torch.nn.Linear(4, 3))


def test_a_model_with_other_inputs_is_no_reference(
    host_exe: byoc.Executable, onnx_path: Path
) -> None:
    with pytest.raises(ModelError, match=r"input\.1"):
        byoc.verify(host_exe, onnx_path)


# Wrong results are caught

PERTURBATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one element": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 1, x + 0.01, x),
    "all elements": lambda x: x * np.float32(1.01),
    "sign": lambda x: -x,
    "zeros": np.zeros_like,
    "rows swapped": lambda x: x[::-1],
    "NaN": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 1, np.nan, x).astype(x.dtype),
    "infinity": lambda x: np.where(np.arange(x.size).reshape(x.shape) == 1, np.inf, x).astype(
        x.dtype
    ),
}


@pytest.mark.parametrize("name", ["output_0", "output_1"])
@pytest.mark.parametrize("perturb", PERTURBATIONS.values(), ids=PERTURBATIONS)
def test_a_wrong_result_is_caught(
    host_exe: byoc.Executable,
    two_outputs_numpy: Any,
    perturb: Callable[[np.ndarray], np.ndarray],
    name: str,
) -> None:
    def reference(inputs: Mapping[str, np.ndarray]) -> Arrays:
        values = two_outputs_numpy(inputs["x"], inputs["y"])
        outputs = {"output_0": values[0] + np.float32(1), "output_1": values[1]}
        outputs["output_0"] -= np.float32(1)
        return outputs | {name: perturb(outputs[name])}

    rng = np.random.default_rng(3)
    inputs = {
        "x": rng.uniform(1, 2, (3, 4)).astype("float32"),
        "y": rng.uniform(3, 4, (3, 3)).astype("float32"),
    }
    result = byoc.verify(host_exe, reference, inputs=inputs)
    assert not result
    assert [output.name for output in result.outputs if not output.ok] == [name]
    assert str(result).startswith("DIFFERS with the given function")


def test_the_right_result_is_accepted(host_exe: byoc.Executable, two_outputs_numpy: Any) -> None:
    result = byoc.verify(
        host_exe,
        lambda inputs: dict(
            zip(("output_0", "output_1"), two_outputs_numpy(**inputs), strict=True)
        ),
    )
    assert result
    assert str(result).startswith("agrees with the given function")


@npu
def test_a_mode_that_does_not_compute_is_caught(two_outputs: tvm.IRModule) -> None:
    exe = byoc.compile(two_outputs, "example_npu", options={"mode": "record"})
    rng = np.random.default_rng(3)
    inputs = {
        "x": rng.uniform(10, 20, (3, 4)).astype("float32"),
        "y": rng.uniform(10, 20, (3, 3)).astype("float32"),
    }
    assert not byoc.verify(exe, inputs=inputs)


# The measures


def test_the_measures_are_those_of_their_formulas(make_module: Any) -> None:
    got = np.array([1.0, 2.5, -4.0, 0.5], "float32")
    expected = np.array([1.0, 2.0, -4.0, 0.0], "float32")
    (output,) = verify_value(make_module, got, expected).outputs
    assert output.max_abs == 0.5
    assert output.max_rel == 0.25
    assert math.isclose(output.snr_db, 10 * math.log10((1 + 4 + 16) / (0.25 + 0.25)))
    assert not output.ok


def test_equal_results_have_no_noise(make_module: Any) -> None:
    (output,) = verify_value(make_module, np.ones(4, "f4"), np.ones(4, "f4")).outputs
    assert (output.max_abs, output.max_rel, output.snr_db) == (0, 0, math.inf)


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("got", "expected", "agrees"),
    [
        ([NAN, 1], [NAN, 1], True),
        ([INF, -INF], [INF, -INF], True),
        ([NAN, 1], [1, 1], False),
        ([1, 1], [NAN, 1], False),
        ([INF, 1], [-INF, 1], False),
        ([INF, 1], [1, 1], False),
        ([1, 1], [INF, 1], False),
        ([NAN, 1], [INF, 1], False),
        ([INF, 1], [NAN, 1], False),
        ([INF, 1.1], [INF, 1], False),
        ([NAN, NAN], [NAN, NAN], True),
        ([0, -0.0], [-0.0, 0], True),
    ],
)
def test_nan_and_infinity_agree_with_themselves_alone(
    make_module: Any, got: list[float], expected: list[float], agrees: bool
) -> None:
    result = verify_value(make_module, np.array(got, "float32"), np.array(expected, "float32"))
    assert bool(result) == agrees
    json.dumps(result.to_dict(), allow_nan=False)


def test_empty_outputs_agree(make_module: Any) -> None:
    assert verify_value(make_module, np.zeros(0, "float32"), np.zeros(0, "float32"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_each_dtype_has_its_tolerance(make_module: Any, dtype: str) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    expected = np.array([1, 2, 3, 4]).astype(kind)
    limit = TOLERANCES[dtype].rtol * 4 + TOLERANCES[dtype].atol * 4
    for factor, agrees in ((0.5, True), (2.5, False)):
        got = expected.copy()
        got[3] = kind.type(float(got[3]) + limit * factor)
        assert got[3] != expected[3]
        assert bool(verify_value(make_module, got, expected)) == agrees


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "bool"])
def test_integers_agree_exactly(make_module: Any, dtype: str) -> None:
    expected = np.array([0, 1, 1, 0]).astype(dtype)
    wrong = expected.copy()
    wrong[0] = 1
    assert verify_value(make_module, expected, expected)
    assert not verify_value(make_module, wrong, expected)


def test_large_integers_are_not_rounded(make_module: Any) -> None:
    expected = np.array([2**62, -(2**62)], "int64")
    assert not verify_value(make_module, expected + 1, expected)
    assert verify_value(make_module, expected, expected)


def test_a_tolerance_given_is_used(make_module: Any) -> None:
    got, expected = np.full(4, 1.1, "float32"), np.ones(4, "float32")
    assert not verify_value(make_module, got, expected)
    assert verify_value(make_module, got, expected, tolerance=Tolerance(rtol=0.2, atol=0))
    assert not verify_value(make_module, got, expected, tolerance=Tolerance(rtol=0, atol=0.05))


def test_rounding_follows_the_largest_element(make_module: Any) -> None:
    expected = np.array([1000, 0, 0, 0], "float32")
    got = expected + np.float32(1e-3)
    assert verify_value(make_module, got, expected), "cancellation in a sum of large terms"
    assert not verify_value(make_module, got[1:], expected[1:])


@pytest.mark.parametrize("mask", [-10000, -1e9, np.finfo("float32").min])
def test_a_mask_does_not_hide_the_other_elements(make_module: Any, mask: float) -> None:
    expected = np.array([mask, 2, mask, -3], "float32")
    assert verify_value(make_module, expected * np.float32(1 - 1e-6), expected)
    wrong = expected + np.array([0, 1e-2, 0, 0], "float32")
    result = verify_value(make_module, wrong, expected)
    assert result.outputs[0].worst is not None
    assert (bool(result), result.outputs[0].worst.index) == (False, (1,))


def test_large_terms_that_are_no_mask_set_the_scale(make_module: Any) -> None:
    for large in ([1e5, 9e4], [1e5]):
        expected = np.array([*large, 0.25], "float32")
        got = expected + np.array([*[0] * len(large), 1e-2], "float32")
        assert verify_value(make_module, got, expected)


# References that do not fit


def test_a_reference_without_an_output_is_refused(host_exe: byoc.Executable) -> None:
    with pytest.raises(ModelError, match=r"gives no output output_0, output_1; it gives z"):
        byoc.verify(host_exe, lambda _: {"z": np.zeros(1)})


@pytest.mark.parametrize(
    "value", [np.zeros((2, 3)), np.zeros((3, 2), "float32"), np.zeros(6, "float32")]
)
def test_a_reference_of_another_shape_or_dtype_is_refused(
    host_exe: byoc.Executable, value: np.ndarray
) -> None:
    with pytest.raises(ModelError, match=r"output 'output_0' is float32\[2, 3\], the reference"):
        byoc.verify(host_exe, lambda _: {"output_0": value, "output_1": value})


@pytest.mark.parametrize("value", [None, [1, 2], np.zeros(2)])
def test_a_function_that_gives_no_dict_is_refused(host_exe: byoc.Executable, value: object) -> None:
    with pytest.raises(ModelError, match="the given function gave"):
        byoc.verify(host_exe, lambda _: value)


def test_values_of_a_reference_may_be_lists_and_tensors(make_module: Any) -> None:
    exe = identity(make_module)
    inputs = {"x": np.array([1, 2, 3, 4], "float32")}
    assert byoc.verify(exe, lambda _: {"output": torch.tensor([1.0, 2, 3, 4])}, inputs=inputs)


def test_a_reference_cannot_change_what_the_executable_gets(make_module: Any) -> None:
    def meddling(inputs: Mapping[str, np.ndarray]) -> Arrays:
        before = inputs["x"].copy()
        inputs["x"][:] = 0
        return {"output": before}

    assert byoc.verify(identity(make_module), meddling)


# Inputs


def test_inputs_are_random_but_repeatable(host_exe: byoc.Executable) -> None:
    seen: list[np.ndarray] = []

    def record(inputs: Mapping[str, np.ndarray]) -> Arrays:
        seen.append(inputs["x"].copy())
        return host_exe.run(inputs)

    for seed in (0, 0, 1):
        byoc.verify(host_exe, record, seed=seed)
    np.testing.assert_array_equal(seen[0], seen[1])
    assert (seen[0] != seen[2]).any()
    assert seen[0].shape == (2, 4)


def test_inputs_that_do_not_fit_are_refused(onnx_path: Path) -> None:
    exe = byoc.compile(onnx_path, "llvm")
    for inputs in ({}, {"x": np.zeros(2)}, {"input.1": np.zeros((1, 5), "float32")}):
        with pytest.raises(InputError, match=r"input\.1"):
            byoc.verify(exe, inputs=inputs)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "bfloat16"])
def test_random_inputs_have_the_declared_dtype_and_shape(dtype: str) -> None:
    spec = byoc.TensorSpec("x", ("n", 3, "n * 2"), dtype)
    value = random_inputs((spec,))["x"]
    assert str(value.dtype) == dtype
    assert value.shape == (2, 3, 4)
    assert len(np.unique(value.astype("float64"))) > 1


def test_a_scalar_input_is_an_array(make_module: Any) -> None:
    mod = make_module({"x": ((), "float32")}, relax.op.tanh)
    assert byoc.verify(byoc.compile(mod, "llvm"))


# Several inputs


def test_every_archive_and_every_mapping_is_a_case(make_module: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.full(4, 7, "float32"))
    seen = []

    def record(inputs: Mapping[str, np.ndarray]) -> Arrays:
        seen.append(float(inputs["x"][0]))
        return {"output": inputs["x"]}

    inputs = [{"x": np.full(4, 3, "float32")}, path, str(path)]
    result = byoc.verify(identity(make_module), record, inputs=inputs)
    assert result
    assert seen == [3, 7, 7]
    assert [case.name for case in result.cases] == ["inputs 0", str(path), str(path)]
    assert len(byoc.verify(identity(make_module), record, inputs=path).cases) == 1


def test_the_worst_case_of_each_output_is_reported(host_exe: byoc.Executable) -> None:
    """The reference is wrong by 1 in one output for one case, and by 2 in the other for another."""

    def reference(inputs: Mapping[str, np.ndarray]) -> Arrays:
        outputs = host_exe.run(inputs)
        outputs["output_0"] = outputs["output_0"] + np.float32(inputs["x"][0, 0] == 10)
        outputs["output_1"] = outputs["output_1"] + np.float32(2 * (inputs["x"][0, 0] == 20))
        return outputs

    inputs = [
        {"x": np.full((2, 4), value, "float32"), "y": np.ones((2, 3), "float32")}
        for value in (0, 10, 20)
    ]
    result = byoc.verify(host_exe, reference, inputs=inputs)
    assert not result
    assert [bool(case) for case in result.cases] == [True, False, False]
    first, second = result.outputs
    assert (first.case, second.case) == ("inputs 1", "inputs 2")
    assert (first.max_abs, second.max_abs) == (pytest.approx(1), pytest.approx(2))
    assert "DIFFERS with the given function in 2 of 3 cases" in str(result)
    assert "worst case: inputs 2" in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("backend", ["llvm", pytest.param("example_npu", marks=npu)])
def test_edge_values_agree_with_onnx_runtime(onnx_path: Path, backend: str) -> None:
    result = byoc.verify(byoc.compile(onnx_path, backend), cases=("random", "edge"), samples=3)
    assert result, str(result)
    assert len(result.cases) == 8
    assert result.notes == ()


def test_what_a_reference_gives_as_nan_is_said(make_module: Any) -> None:
    exe = identity(make_module)
    result = byoc.verify(exe, lambda inputs: {"output": inputs["x"]}, cases=["random", "nan"])
    assert result
    (note,) = result.notes
    assert re.fullmatch(r"the given function gives NaN in \d .* of output in case nan", note)
    assert f"note: {note}" in str(result)
    mine = {"x": np.full(4, np.nan, "float32")}
    result = byoc.verify(exe, lambda inputs: {"output": inputs["x"]}, inputs=mine, cases=["nan"])
    (note,) = result.notes
    assert note.endswith(", and in 1 more case(s)")


def test_sizes_of_open_dimensions_are_combined_with_cases(host_exe: byoc.Executable) -> None:
    shapes = []

    def record(inputs: Mapping[str, np.ndarray]) -> Arrays:
        shapes.append(inputs["x"].shape)
        return host_exe.run(inputs)

    result = byoc.verify(host_exe, record, cases=["random", "zeros"], sizes={"n": (1, 5)})
    assert shapes == [(1, 4), (1, 4), (5, 4), (5, 4)]
    assert [case.name for case in result.cases][2:] == ["random 0, n=5", "zeros, n=5"]


def test_another_build_and_another_artifact_are_references(onnx_path: Path, tmp_path: Path) -> None:
    exe = byoc.compile(onnx_path, "llvm")
    exe.export(tmp_path / "other.so")
    assert byoc.verify(exe, exe).reference == "the other build, for llvm"
    for reference in (tmp_path / "other.so", str(tmp_path / "other.so")):
        result = byoc.verify(byoc.load(tmp_path / "other.so"), reference, cases="edge")
        assert result
        assert result.reference == str(tmp_path / "other.so")


def test_a_build_of_other_weights_is_caught(make_module: Any) -> None:
    builds = [
        byoc.compile(
            make_module({"x": ((4,), "float32")}, lambda x, k=k: relax.op.add(x, relax.const(k))),
            "llvm",
        )
        for k in (1.0, 1.1)
    ]
    assert byoc.verify(builds[0], builds[0])
    assert not byoc.verify(builds[0], builds[1])


@pytest.mark.parametrize(
    ("choices", "error", "message"),
    [
        ({"cases": "odd"}, OptionError, "unknown case 'odd'; expected edge, random, zeros"),
        ({"cases": ()}, OptionError, "no case to run"),
        ({"samples": 0}, OptionError, "samples=0: expected a whole number, 1 or more"),
        ({"samples": 2.5}, OptionError, "samples=2.5: expected a whole number"),
        ({"seed": -1}, OptionError, "seed=-1: expected a whole number, 0 or more"),
        ({"cases": 5}, OptionError, "cases=5: expected a case, or a list"),
        ({"tolerance": (1e-3, 1e-3)}, OptionError, "expected a Tolerance"),
        (
            {"sizes": {"m": 3}},
            OptionError,
            "'m', which is no open dimension; there is n",
        ),
        ({"sizes": {"n": ()}}, OptionError, "expected numbers from 1 on"),
        *(
            ({"sizes": {"n": size}}, OptionError, "expected numbers from 1 on")
            for size in (0, 2.5, "12", None, [2.5])
        ),
        ({"inputs": 3}, InputError, "inputs are a int; expected a dict"),
        ({"inputs": []}, InputError, "inputs are a list; expected a dict"),
        ({"inputs": [3]}, InputError, "inputs hold a int; expected a dict"),
        ({"inputs": "gone.npz"}, InputError, r"inputs gone\.npz is no \.npz archive"),
    ],
)
def test_what_cannot_be_tried_is_named(
    host_exe: byoc.Executable, choices: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        byoc.verify(host_exe, host_exe, **choices)


def test_the_case_that_cannot_be_run_is_named(host_exe: byoc.Executable) -> None:
    right = random_inputs(host_exe.inputs)
    with pytest.raises(InputError, match=r"case inputs 1: .*missing: x"):
        byoc.verify(host_exe, host_exe, inputs=[right, {"y": right["y"]}])


# Cases


FLOATS = ["float64", "float32", "float16", "bfloat16"]


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "uint8", "int32", "int64", "bool"])
@pytest.mark.parametrize("case", CASES)
def test_a_case_has_the_declared_dtype_and_shape(case: str, dtype: str) -> None:
    spec = byoc.TensorSpec("x", (3, 4), dtype)
    value = random_inputs((spec,), 0, None, case)["x"]
    assert (str(value.dtype), value.shape) == (dtype, (3, 4))
    if dtype not in FLOATS and dtype not in ("int8", "uint8"):
        assert 0 <= value.astype(int).min() <= value.astype(int).max() <= 9, "they may be indices"
    if case not in ("nan", "infinity"):
        assert np.isfinite(value.astype("float64")).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_cases_of_floats_hold_what_they_are_called(dtype: str) -> None:
    spec = byoc.TensorSpec("x", (16, 16), dtype)
    made = {case: random_inputs((spec,), 0, None, case)["x"].astype("float64") for case in CASES}
    limits = ml_dtypes.finfo(np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    assert (made["zeros"] == 0).all()
    assert (made["ones"] == 1).all()
    assert (made["negative"] < 0).all()
    denormal = (made["tiny"] != 0) & (abs(made["tiny"]) < float(limits.smallest_normal))
    assert denormal.mean() > 0.3
    assert abs(made["large"]).max() ** 2 * 256 < float(limits.max)
    assert abs(made["large"]).min() > 1
    assert np.isnan(made["nan"]).any()
    assert np.isposinf(made["infinity"]).any()
    assert np.isneginf(made["infinity"]).any()


@pytest.mark.parametrize(("dtype", "ends"), [("int8", (-128, 127)), ("uint8", (0, 255))])
def test_large_bytes_are_the_least_and_the_largest(dtype: str, ends: tuple[int, int]) -> None:
    spec = byoc.TensorSpec("x", (64,), dtype)
    value = random_inputs((spec,), 0, None, "large")["x"]
    assert (value.min(), value.max()) == ends


# More measures


def test_where_it_is_worst_and_how_much_is_outside(make_module: Any) -> None:
    expected = np.array([1, 2, 3, -4], "float32")
    got = np.array([1, 2.5, 3, 4], "float32")
    (output,) = verify_value(make_module, got, expected).outputs
    assert output.outside == 0.5
    assert output.worst is not None
    assert (output.worst.index, output.worst.got, output.worst.expected) == ((3,), 4, -4)
    cosine = float(got @ expected) / float(np.linalg.norm(got) * np.linalg.norm(expected))
    assert math.isclose(output.cosine, cosine, rel_tol=1e-6)
    assert "worst at [3]: got 4, expected -4; 50 % of the elements outside" in output.details()


def test_nan_and_infinity_are_counted(make_module: Any) -> None:
    got, expected = np.array([NAN, INF, 1, 2], "f4"), np.array([NAN, NAN, 1, INF], "f4")
    (output,) = verify_value(make_module, got, expected).outputs
    assert (output.nan, output.infinite) == ((1, 2), (1, 1))
    assert output.outside == 0.5
    assert output.cosine == 1.0


def test_the_cosine_of_large_values_does_not_overflow(make_module: Any) -> None:
    got = np.array([1e300, -1e300, 0, 1e300], "float64")
    (output,) = verify_value(make_module, got, got).outputs
    assert math.isclose(output.cosine, 1)
    (output,) = verify_value(make_module, got, -got).outputs
    assert math.isclose(output.cosine, -1)
