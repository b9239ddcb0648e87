"""Pad becomes Relax's own pad, with ONNX Runtime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

SHAPE = [1, 2, 5, 6]
FLOATS = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}
PADS = {
    "around": [0, 0, 1, 2, 0, 0, 1, 2],
    "same upper": [0, 0, 0, 1, 0, 0, 1, 2],
    "before": [0, 0, 3, 0, 0, 0, 0, 0],
    "uneven": [0, 0, 1, 4, 0, 0, 3, 0],
    "nothing": [0] * 8,
}


def padded(
    make_onnx: Any, pads: list[int], mode: str, value: Any = None, dtype: str = "float32"
) -> Any:
    constants = {"pads": np.array(pads, np.int64)}
    inputs = ["x", "pads"]
    if value is not None:
        constants["value"] = np.array(value, dtype)
        inputs.append("value")
    node = ("Pad", inputs, ["y"], {"mode": mode})
    x, y = ("x", FLOATS[dtype], SHAPE), ("y", FLOATS[dtype], None)
    return make_onnx([node], [x], [y], constants, opset=19)


@pytest.mark.parametrize("pads", PADS)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
def test_every_mode_becomes_pad(
    make_onnx: Any, agree: Any, operators: Any, mode: str, pads: str
) -> None:
    found = operators(agree(padded(make_onnx, PADS[pads], mode)))
    assert found == ([] if pads == "nothing" else ["nn.pad"])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [2.5, -np.inf])
def test_a_value_of_its_own_is_kept(
    make_onnx: Any, agree: Any, operators: Any, value: float, dtype: str
) -> None:
    proto = padded(make_onnx, PADS["uneven"], "constant", value, dtype)
    assert operators(agree(proto)) == ["nn.pad"]


def test_a_negative_width_is_left_to_tvms_function(make_onnx: Any, agree: Any) -> None:
    agree(padded(make_onnx, [0, 0, -1, 0, 0, 0, 0, 2], "constant"))


def test_two_pads_of_one_model_are_told_apart(make_onnx: Any, agree: Any, operators: Any) -> None:
    constants = {"p": np.array([0, 1, 1, 0], np.int64), "q": np.array([1, 0, 0, 1], np.int64)}
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["z"], "one"),
        helper.make_node("Pad", ["x", "q"], ["w"], "other"),
        helper.make_node("Add", ["z", "w"], ["y"], "sum"),
    ]
    proto = make_onnx(nodes, ["x"], ["y"], constants)
    assert operators(agree(proto)) == ["nn.pad", "nn.pad", "add"]
