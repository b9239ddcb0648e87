"""Clip, Min and Max become Relax's own operators, with ONNX Runtime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

INFINITE = np.array([[np.inf, -np.inf, 1], [-3, 9, 2]], np.float32)
BOUNDS = [
    (1, 4, ["clip"]),
    (1, None, ["maximum"]),
    (None, 4, ["minimum"]),
    (None, None, []),
    (5, 2, ["maximum", "minimum"]),  # empty: ONNX gives the upper bound
]


@pytest.mark.parametrize("case", BOUNDS)
@pytest.mark.parametrize("name", ["FLOAT", "DOUBLE", "FLOAT16", "INT32", "INT64", "INT8", "UINT8"])
def test_constant_bounds_become_one_operator(
    make_onnx: Any, agree: Any, operators: Any, name: str, case: tuple[Any, Any, list[str]]
) -> None:
    low, high, expected = case
    dtype = TensorProto.DataType.Value(name)
    constants = {
        key: np.array(value, helper.tensor_dtype_to_np_dtype(dtype))
        for key, value in (("low", low), ("high", high))
        if value is not None
    }
    inputs = ["x", "low" if low is not None else "", "high" if high is not None else ""]
    proto = make_onnx(
        [("Clip", inputs, ["y"])], [("x", dtype, [2, 3])], [("y", dtype, None)], constants, opset=13
    )
    assert operators(agree(proto)) == expected


def test_a_floor_of_zero_is_relu(make_onnx: Any, agree: Any, operators: Any) -> None:
    proto = make_onnx([("Clip", ["x", "low"], ["y"])], ["x"], ["y"], {"low": np.float32(0)})
    assert operators(agree(proto)) == ["nn.relu"]


@pytest.mark.parametrize("low", [np.nan, -np.inf, -1])
@pytest.mark.parametrize("high", [np.nan, np.inf, 2])
def test_bounds_that_are_nan_or_infinite_do_not_bound(
    make_onnx: Any, agree: Any, low: float, high: float
) -> None:
    constants = {"low": np.float32(low), "high": np.float32(high)}
    proto = make_onnx([("Clip", ["x", "low", "high"], ["y"])], ["x"], ["y"], constants)
    agree(proto, {"x": INFINITE})


def test_bounds_that_are_inputs_are_minimum_and_maximum(
    make_onnx: Any, agree: Any, operators: Any
) -> None:
    bounds = [("low", TensorProto.FLOAT, []), ("high", TensorProto.FLOAT, [])]
    proto = make_onnx([("Clip", ["x", "low", "high"], ["y"])], ["x", *bounds], ["y"])
    values = {"x": INFINITE, "low": np.array(-1, np.float32), "high": np.array(2, np.float32)}
    assert operators(agree(proto, values)) == ["maximum", "minimum"]


@pytest.mark.parametrize("opset", [6, 9, 10])
def test_bounds_that_are_attributes(make_onnx: Any, agree: Any, operators: Any, opset: int) -> None:
    attributes = {"min": -1.0, "max": 2.0}
    proto = make_onnx([("Clip", ["x"], ["y"], attributes)], ["x"], ["y"], opset=opset)
    assert operators(agree(proto, {"x": INFINITE})) == ["clip"]


def test_bounds_of_one_element_and_no_rank(make_onnx: Any, agree: Any, operators: Any) -> None:
    constants = {"low": np.ones(1, np.float32), "high": np.full(1, 2, np.float32)}
    proto = make_onnx([("Clip", ["x", "low", "high"], ["y"])], ["x"], ["y"], constants)
    assert operators(agree(proto)) == ["clip"]


@pytest.mark.parametrize("condition", [True, False])
def test_clip_in_a_branch(make_onnx: Any, agree: Any, condition: bool) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x", *bounds], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3])],
        )
        for name, op, bounds in (("then", "Clip", ["low", "high"]), ("else", "Neg", []))
    }
    proto = make_onnx(
        [("If", ["c"], ["y"], branches)],
        ["x", ("c", TensorProto.BOOL, [])],
        ["y"],
        {"low": np.float32(-1), "high": np.float32(2)},
    )
    agree(proto, {"x": INFINITE, "c": np.array(condition)})


@pytest.mark.parametrize(("op", "name"), [("Max", "maximum"), ("Min", "minimum")])
def test_several_values_are_compared_in_pairs(
    make_onnx: Any, agree: Any, operators: Any, op: str, name: str
) -> None:
    inputs = ["x", ("b", TensorProto.FLOAT, [3]), ("c", TensorProto.FLOAT, [2, 1])]
    model = agree(make_onnx([(op, ["x", "b", "c"], ["y"])], inputs, ["y"]))
    assert operators(model) == [name, name]
