"""What TVM cannot import is said with the node, its inputs and their shapes; nothing is printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def test_the_failing_node_is_named_with_its_inputs_and_nothing_is_printed(
    make_onnx: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = [("Relu", ["x"], ["a"]), ("Add", ["a", "w"], ["y"])]
    proto = make_onnx(nodes, ["x"], ["y"], {"w": np.ones(4, np.float32)})
    with pytest.raises(ModelError) as caught:
        byoc.load_model(proto, simplify=False)
    message = str(caught.value)
    assert "cannot import Add (node 'the Add'; inputs: a float[2, 3], w float[4])" in message
    assert "relax.add: the first input shape at dim 1" in message
    assert "no valid ONNX" in message
    assert len(message.splitlines()) == 1
    assert "Error converting operator" not in capfd.readouterr().out


def test_a_failing_node_in_a_branch_is_named_with_the_branch(make_onnx: Any) -> None:
    bodies = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Add", ["x", bad], ["r"], f"add of {name}")],
            f"body of {name}",
            [],
            [helper.make_tensor_value_info("r", FLOAT, None)],
        )
        for name, bad in (("then", "four"), ("else", "x"))
    }
    proto = make_onnx(
        [("If", ["c"], ["y"], bodies)],
        ["x", ("c", BOOL, [])],
        ["y"],
        {"four": np.ones(4, np.float32)},
    )
    with pytest.raises(ModelError, match=r"Add \(node 'add of then'.*in 'body of then', a branch"):
        byoc.load_model(proto, simplify=False)


@pytest.mark.parametrize(
    ("nodes", "inputs"),
    [
        ([("NonZero", ["x"], ["n"]), ("Cast", ["n"], ["y"], {"to": FLOAT})], []),
        ([("Compress", ["x", "c"], ["n"], {"axis": 1}), ("Relu", ["n"], ["y"])], ["c"]),
        ([("Slice", ["x", "a", "b"], ["n"]), ("MatMul", ["n", "w"], ["y"])], ["a", "b"]),
    ],
)
def test_sizes_that_only_the_run_tells_have_names(
    make_onnx: Any, agree: Any, nodes: list[Any], inputs: list[str]
) -> None:
    kinds = {"c": ("c", BOOL, [3]), "a": ("a", INT64, [1]), "b": ("b", INT64, [1])}
    values = {"c": np.array([True, False, True]), "a": np.array([0]), "b": np.array([1])}
    proto = make_onnx(
        nodes, ["x", *(kinds[name] for name in inputs)], ["y"], {"w": np.ones((3, 2), np.float32)}
    )
    model = agree(proto, {name: values[name] for name in inputs})
    assert any(isinstance(size, str) for size in model.outputs[0].shape)


def test_an_output_of_unknown_rank_is_refused(make_onnx: Any) -> None:
    shapes = {"then": [], "else": [2, 3]}
    bodies = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], ["r"], **attributes)],
            name,
            [],
            [helper.make_tensor_value_info("r", FLOAT, shapes[name])],
        )
        for name, op, attributes in (("then", "ReduceSum", {"keepdims": 0}), ("else", "Exp", {}))
    }
    proto = make_onnx([("If", ["c"], ["y"], bodies)], ["x", ("c", BOOL, [])], ["y"])
    with pytest.raises(ModelError, match=r"outputs must have a rank.*If \(node 'the If'"):
        byoc.load_model(proto, simplify=False)
