"""Graphs that are no graphs of tensors are refused by name; what can be put right is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError

FLOAT = TensorProto.FLOAT
RELU = ("Relu", ["x"], ["y"])


def refusal(proto: onnx.ModelProto, **arguments: Any) -> str:
    with pytest.raises(ModelError) as caught:
        byoc.load_model(proto, **arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    ("nodes", "inputs", "outputs", "message"),
    [
        ([("Relu", ["x"], ["a"]), ("Neg", ["x"], ["a"])], ["x"], ["a"], "more than one value call"),
        ([RELU], ["x", "x"], ["y"], "more than one input called 'x'"),
        ([("Relu", ["x"], ["x"])], ["x"], ["x"], "writes 'x', which is an input or initializer"),
        ([("Relu", ["z"], ["y"])], ["x"], ["y"], r"'the Relu' (Relu) reads 'z', which nothing wr"),
        ([RELU], ["x"], ["z"], "gives 'z', which nothing writes"),
        ([RELU], ["x"], [], "no outputs"),
        ([RELU], ["x"], ["y", "y"], "lists an output twice: y"),
        ([("Relu", [""], ["y"])], [("", FLOAT, [2])], ["y"], "an input of the graph has no name"),
        ([("Add", ["x", "y"], ["a"]), ("Neg", ["a"], ["y"])], ["x"], ["y"], "has a cycle through"),
        ([("Concat", ["x", "x"], ["y"])], ["x"], ["y"], "Required attribute 'axis' is missing"),
        ([("Relu", ["x", "x"], ["y"])], ["x"], ["y"], "Relu (node 'the Relu'; inputs: x float[2"),
        ([RELU], [("x", 0, [2])], ["y"], "input 'x' has the element type undefined"),
        ([RELU], [("x", TensorProto.STRING, [2])], ["y"], "input 'x' has the element type string"),
        ([RELU], [("x", TensorProto.COMPLEX64, [2])], ["y"], "element type complex64; supported"),
        ([RELU], [("x", TensorProto.FLOAT8E4M3FN, [2])], ["y"], "element type float8e4m3fn"),
        ([RELU], [("x", TensorProto.INT4, [2])], ["y"], "element type int4"),
    ],
)
def test_a_broken_graph_is_refused(
    make_onnx: Any, nodes: list[Any], inputs: list[Any], outputs: list[Any], message: str
) -> None:
    assert message in refusal(make_onnx(nodes, inputs, outputs))


def test_sequences_and_optionals_stay_inside(make_onnx: Any, agree: Any) -> None:
    nodes = [
        ("SequenceConstruct", ["x", "x"], ["s"]),
        ("SequenceAt", ["s", "at"], ["y"]),
    ]
    agree(make_onnx(nodes, ["x"], ["y"], {"at": np.array(1)}))
    proto = make_onnx(nodes[:1], ["x"], [])
    proto.graph.output.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    assert "output 's' is a sequence; only tensors" in refusal(proto)
    proto = make_onnx([("OptionalHasElement", ["o"], ["y"])], [], [("y", TensorProto.BOOL, [])])
    tensor = helper.make_tensor_type_proto(FLOAT, [2])
    optional = helper.make_optional_type_proto(tensor)
    proto.graph.input.append(helper.make_value_info("o", optional))
    assert "input 'o' is an optional; only tensors" in refusal(proto)


def no_opset(proto: onnx.ModelProto) -> None:
    del proto.opset_import[:]


def future_opset(proto: onnx.ModelProto) -> None:
    proto.opset_import[0].version = 99


def first_ir(proto: onnx.ModelProto) -> None:
    proto.ir_version = 2


def short_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].raw_data = b"\0" * 4


def no_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")


def double_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (no_opset, r"does not say which version of ONNX's operators it uses \(opset_import\)"),
        (future_opset, r"uses ONNX opset 99; the installed onnx \S+ knows 1 to \d+"),
        (first_ir, "IR version 2; TVM imports 3 and newer"),
        (short_weight, r"the tensor 'w' of shape \[3\] has 4 bytes where 12 are needed"),
        (no_weight, r"the tensor 'w' of shape \[3\] has 0 elements where 3 are needed"),
        (double_weight, "more than one initializer called 'w'"),
    ],
)
def test_a_damaged_model_is_refused(
    make_onnx: Any, damage: Callable[[onnx.ModelProto], None], message: str
) -> None:
    proto = make_onnx([("Add", ["x", "w"], ["y"])], ["x"], ["y"], {"w": np.ones(3, np.float32)})
    damage(proto)
    with pytest.raises(ModelError, match=message):
        byoc.load_model(proto)


@pytest.mark.parametrize("proto", [onnx.ModelProto(), onnx.ModelProto(ir_version=9)])
def test_an_empty_proto_is_refused(proto: onnx.ModelProto) -> None:
    refusal(proto)


def test_nodes_out_of_order_are_sorted(make_onnx: Any, agree: Any) -> None:
    agree(make_onnx([("Neg", ["a"], ["y"]), ("Relu", ["x"], ["a"])], ["x"], ["y"]))


def test_repeated_node_names_do_not_matter(make_onnx: Any) -> None:
    nodes = [("Relu", ["x"], ["a"]), ("Relu", ["a"], ["y"])]
    byoc.load_model(make_onnx(nodes, ["x"], ["y"]))


@pytest.mark.parametrize("name", ["1 x/é:0", "a.b.c", "日本", "def", "with 'quotes\"", " "])
def test_names_are_kept_whatever_they_are(make_onnx: Any, agree: Any, name: str) -> None:
    nodes = [("Relu", [name], [f"{name}/inner"]), ("Neg", [f"{name}/inner"], [f"{name}!"])]
    model = agree(make_onnx(nodes, [(name, FLOAT, [2, 3])], [f"{name}!"]))
    assert [spec.name for spec in (*model.inputs, *model.outputs)] == [name, f"{name}!"]


@pytest.mark.parametrize("shape", [(), (0, 3), (1, 1, 1, 1, 1, 1, 1)])
def test_scalars_and_empty_tensors_are_tensors(make_onnx: Any, agree: Any, shape: Any) -> None:
    proto = make_onnx([("Neg", ["x"], ["y"])], [("x", FLOAT, shape)], ["y"])
    agree(proto, {"x": np.ones(shape, np.float32)})


def test_an_input_may_be_an_output(make_onnx: Any, agree: Any) -> None:
    agree(make_onnx([RELU], ["x"], ["y", ("x", FLOAT, [2, 3])]))


def test_a_graph_without_nodes_gives_its_inputs(make_onnx: Any, agree: Any) -> None:
    agree(make_onnx([], ["x"], [("x", FLOAT, [2, 3])]))


def test_inputs_left_out_in_the_middle_are_left_out(make_onnx: Any, agree: Any) -> None:
    constants = {"start": [0, 0], "end": [2, 3], "step": [1, 2]}
    proto = make_onnx(
        [("Slice", ["x", "start", "end", "", "step"], ["y"])], ["x"], ["y"], constants
    )
    agree(proto)


def test_what_the_file_says_about_values_in_between_is_not_believed(
    make_onnx: Any, agree: Any
) -> None:
    proto = make_onnx([("Relu", ["x"], ["a"]), ("Neg", ["a"], ["y"])], ["x"], ["y"])
    proto.graph.value_info.append(helper.make_tensor_value_info("a", FLOAT, [5, 5]))
    agree(proto)


# Shapes


def test_a_missing_dimension_is_demanded_by_name(make_onnx: Any) -> None:
    inputs = [("x", FLOAT, ["n", 3]), ("z", FLOAT, [None, 3, "h w", 4]), ("fixed", FLOAT, [2])]
    message = refusal(make_onnx([RELU], inputs, ["y"]))
    assert "does not fix the shape of x float32[n, 3], z float32[?, 3, h w, 4]" in message
    assert "(inputs with a fixed shape: 1)" in message
    assert "shapes={'x': (1, 3), 'z': (1, 3, 224, 4)}" in message
    assert "shapes={'x': ('n', 3), 'z': ('dim0', 3, 'dim2', 4)}" in message
    assert "--shape x:1,3 --shape z:1,3,224,4" in message


def test_the_same_name_is_the_same_size(make_onnx: Any, agree: Any) -> None:
    inputs = [("x", FLOAT, ["n", 3]), ("z", FLOAT, ["n", 3])]
    proto = make_onnx([("Add", ["x", "z"], ["y"])], inputs, [("y", FLOAT, ["n", 3])])
    model = agree(proto, shapes={"x": (2, 3)})
    assert [spec.shape for spec in model.inputs] == [(2, 3)] * 2
    message = refusal(proto, shapes={"x": (2, 3), "z": (1, 3)})
    assert "gives the dimension `n` as 2 in 'x' and as 1 in 'z'" in message


def test_an_unknown_rank_can_be_given(make_onnx: Any, agree: Any) -> None:
    proto = make_onnx([RELU], [("x", FLOAT, None)], ["y"])
    assert "x float32 of unknown rank" in refusal(proto)
    assert agree(proto, shapes={"x": (2, 3)}).outputs[0].shape == (2, 3)


def test_an_open_dimension_keeps_the_name_that_the_user_gives(make_onnx: Any, agree: Any) -> None:
    proto = make_onnx([RELU], [("x", FLOAT, ["a", "b"])], [("y", FLOAT, ["a", "b"])])
    model = agree(proto, shapes={"x": ("k", "k")})
    assert model.inputs[0].shape == model.outputs[0].shape == ("k", "k")
