"""Constants, folding, limits, functions, and what TVM's converters read only in part."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def refusal(proto: onnx.ModelProto, **arguments: Any) -> str:
    with pytest.raises(ModelError) as caught:
        byoc.load_model(proto, **arguments)
    return str(caught.value)


# Constants


@pytest.mark.parametrize(
    ("attribute", "value", "op"),
    [
        ("value_ints", [3, 2], "Reshape"),
        ("value_int", 1, "Gather"),
        ("value_floats", [3.0, 2.0, 1.0], "Add"),
        ("value_float", 0.5, "Mul"),
    ],
)
def test_constants_that_are_numbers(
    make_onnx: Any, agree: Any, attribute: str, value: Any, op: str
) -> None:
    nodes = [("Constant", [], ["c"], {attribute: value}), (op, ["x", "c"], ["y"])]
    agree(make_onnx(nodes, ["x"], ["y"]))


def test_an_empty_list_is_a_constant(make_onnx: Any, agree: Any) -> None:
    node = helper.make_node("Constant", [], ["c"])
    empty = helper.make_attribute("value_ints", [], attr_type=onnx.AttributeProto.INTS)
    node.attribute.append(empty)
    agree(make_onnx([node, ("Reshape", ["x", "c"], ["y"])], [("x", FLOAT, [1, 1])], ["y"]))


@pytest.mark.parametrize("indices", [[1, 4], [[0, 1], [1, 1]]])
def test_sparse_constants_and_initializers_are_filled(
    make_onnx: Any, agree: Any, indices: list[Any]
) -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("i", INT64, np.shape(indices), np.ravel(indices)),
        [2, 3],
    )
    agree(
        make_onnx(
            [("Constant", [], ["c"], {"sparse_value": sparse}), ("Add", ["x", "c"], ["y"])],
            ["x"],
            ["y"],
        )
    )
    proto = make_onnx([("Add", ["x", "s"], ["y"])], ["x"], ["y"])
    proto.graph.sparse_initializer.append(sparse)
    agree(proto)


@pytest.mark.parametrize(
    "attributes",
    [
        {"value_string": "text"},
        {"value_strings": ["a", "b"]},
        {"value": helper.make_tensor("t", TensorProto.STRING, [1], [b"a"])},
    ],
)
def test_text_is_refused(make_onnx: Any, attributes: dict[str, Any]) -> None:
    nodes = [("Constant", [], ["c"], attributes), ("Relu", ["x"], ["y"])]
    assert "Constant (node 'the Constant'" in refusal(make_onnx(nodes, ["x"], ["y"]))


# Folding

SIZE_AS_SHAPE = [
    ("Shape", ["x"], ["shape"]),
    ("Gather", ["shape", "zero"], ["n"]),
    ("Unsqueeze", ["n", "first"], ["n1"]),
    ("Concat", ["n1", "rest"], ["wanted"], {"axis": 0}),
    ("Reshape", ["x", "wanted"], ["y"]),
]
SIZE_CONSTANTS = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1])}


@pytest.mark.parametrize("shape", [(2, 3, 4), ("n", 3, 4)])
def test_a_shape_computed_from_sizes(make_onnx: Any, agree: Any, shape: tuple[Any, ...]) -> None:
    proto = make_onnx(
        SIZE_AS_SHAPE, [("x", FLOAT, ["n", 3, 4])], [("y", FLOAT, ["n", 12])], SIZE_CONSTANTS
    )
    agree(proto, {"x": np.ones((2, 3, 4), np.float32)}, shapes={"x": shape})


def test_a_known_size_beside_an_open_one_is_a_number(make_onnx: Any, agree: Any) -> None:
    nodes = [
        ("Shape", ["x"], ["d"], {"start": 1, "end": 2}),
        ("Cast", ["d"], ["f"], {"to": FLOAT}),
        ("Sqrt", ["f"], ["root"]),
        ("Div", ["x", "root"], ["y"]),
    ]
    proto = make_onnx(nodes, [("x", FLOAT, ["n", 4])], [("y", FLOAT, ["n", 4])])
    model = agree(proto, {"x": np.ones((3, 4), np.float32)}, shapes={"x": ("n", 4)})
    assert "sqrt" not in model.mod.script()


@pytest.mark.parametrize("rows", [2, 3])
def test_the_branch_that_a_size_decides_is_taken(
    make_onnx: Any, agree: Any, operators: Any, rows: int
) -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name, op in (("then", "Neg"), ("else", "Exp"))
    }
    nodes = [
        ("Shape", ["x"], ["shape"]),
        ("Gather", ["shape", "zero"], ["n"]),
        ("Equal", ["n", "two"], ["c"]),
        ("If", ["c"], ["y"], branches),
    ]
    constants = {"zero": np.array(0), "two": np.array(2)}
    proto = make_onnx(nodes, [("x", FLOAT, ["n", 3])], ["y"], constants)
    model = agree(proto, shapes={"x": (rows, 3)})
    assert operators(model) == ["negative" if rows == 2 else "exp"]


@pytest.mark.parametrize("rows", [1, 2])
def test_a_branch_taken_gives_the_size_that_decides_the_next(
    make_onnx: Any, agree: Any, operators: Any, rows: int
) -> None:
    def bodies(then: onnx.NodeProto, other: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
        return {
            f"{name}_branch": helper.make_graph(
                [node], name, [], [helper.make_tensor_value_info(node.output[0], FLOAT, None)]
            )
            for name, node in (("then", then), ("else", other))
        }

    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Equal", ["rows", "one"], ["single"]),
        helper.make_node(
            "If",
            ["single"],
            ["v"],
            **bodies(
                helper.make_node("Squeeze", ["x", "first"], ["squeezed"]),
                helper.make_node("Identity", ["x"], ["same"]),
            ),
        ),
        helper.make_node("Shape", ["v"], ["shape"]),
        helper.make_node("Size", ["shape"], ["rank"]),
        helper.make_node("Equal", ["rank", "two"], ["matrix"]),
        helper.make_node(
            "If",
            ["matrix"],
            ["y"],
            **bodies(
                helper.make_node("Neg", ["v"], ["negative"]),
                helper.make_node("Exp", ["v"], ["power"]),
            ),
        ),
    ]
    constants = {"one": np.array([1]), "first": np.array([0]), "two": np.array(2)}
    proto = make_onnx(nodes, [("x", FLOAT, ["n", 3])], ["y"], constants)
    model = agree(proto, shapes={"x": (rows, 3)})
    assert operators(model)[-1] == ("negative" if rows == 2 else "exp")


# Branches


def branches(*operators: tuple[str, list[str], list[int]]) -> dict[str, onnx.GraphProto]:
    """Bodies for an If; both call their values alike."""
    return {
        f"{name}_branch": helper.make_graph(
            [
                helper.make_node(op, inputs, ["inner"]),
                helper.make_node("Split", ["inner"], ["a", "b"], axis=0, num_outputs=2),
                helper.make_node("Sub", ["a", "b"], ["result"]),
            ],
            name,
            [],
            [helper.make_tensor_value_info("result", FLOAT, shape)],
        )
        for name, (op, inputs, shape) in zip(("then", "else"), operators, strict=True)
    }


@pytest.mark.parametrize("condition", [True, False, [True], [False], [[True]], [[False]]])
def test_a_branch_decided_at_run_time_is_selected(
    make_onnx: Any, agree: Any, operators: Any, condition: Any
) -> None:
    bodies = branches(("Neg", ["x"], [1, 3]), ("Exp", ["x"], [1, 3]))
    inputs = ["x", ("c", BOOL, np.shape(condition))]
    model = agree(
        make_onnx([("If", ["c"], ["y"], bodies)], inputs, ["y"]), {"c": np.array(condition)}
    )
    assert "where" in operators(model)
    assert "if" not in model.mod.script().split()


@pytest.mark.parametrize("index", [1, 9])
def test_what_only_the_taken_branch_may_compute_stays_in_it(
    make_onnx: Any, agree: Any, index: int
) -> None:
    bodies = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node(op, inputs, ["result"])],
            name,
            [],
            [helper.make_tensor_value_info("result", FLOAT, [3])],
        )
        for name, op, inputs in (("then", "Gather", ["x", "i"]), ("else", "Exp", ["z"]))
    }
    nodes = [("Less", ["i", "two"], ["c"]), ("If", ["c"], ["y"], bodies)]
    inputs = ["x", ("z", FLOAT, [3]), ("i", INT64, [])]
    proto = make_onnx(nodes, inputs, ["y"], {"two": np.array(2)})
    model = agree(proto, {"i": np.array(index)})
    assert "if" in model.mod.script().split()


# Inputs that must be known

BOXES = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], np.float32)
SCORES = np.array([[[0.9, 0.75, 0.6, 0.95]]], np.float32)
NMS_INPUTS = [("boxes", FLOAT, [1, 4, 4]), ("scores", FLOAT, [1, 1, 4])]


@pytest.mark.parametrize(("iou", "threshold"), [(None, None), (0.0, -10.0), (0.5, 0.7), (0.5, 0.0)])
@pytest.mark.parametrize("lower", [0.0, 0.7, 2.0])
def test_nms_with_constant_limits(
    make_onnx: Any, agree: Any, iou: float | None, threshold: float | None, lower: float
) -> None:
    given = {"most": 4, "iou": iou, "threshold": threshold}
    constants = {
        name: np.array([value], np.int64 if name == "most" else np.float32)
        for name, value in given.items()
        if value is not None
    }
    names = ["boxes", "scores", *(name if name in constants else "" for name in given)]
    proto = make_onnx(
        [("NonMaxSuppression", names, ["y"])], NMS_INPUTS, [("y", INT64, None)], constants
    )
    agree(proto, {"boxes": BOXES, "scores": SCORES - np.float32(lower)})


def test_nms_with_limits_computed_from_constants(make_onnx: Any, agree: Any) -> None:
    nodes = [
        ("Cast", ["number"], ["most"], {"to": INT64}),
        ("NonMaxSuppression", ["boxes", "scores", "most"], ["y"]),
    ]
    proto = make_onnx(nodes, NMS_INPUTS, [("y", INT64, None)], {"number": np.float32([2])})
    agree(proto, {"boxes": BOXES, "scores": SCORES})


@pytest.mark.parametrize(
    ("op", "inputs", "limit"),
    [
        ("NonMaxSuppression", [*NMS_INPUTS, ("k", INT64, [1])], "max_output_boxes_per_class"),
        ("TopK", ["x", ("k", INT64, [1])], "K"),
        ("Reshape", ["x", ("k", INT64, [2])], "shape"),
        ("ReduceSum", ["x", ("k", INT64, [1])], "axes"),
        ("Pad", ["x", ("k", INT64, [4])], "pads"),
        ("CumSum", ["x", ("k", INT64, [])], "axis"),
        ("ConstantOfShape", [("k", INT64, [2])], "input"),
        ("Resize", [("x", FLOAT, [1, 1, 2, 2]), "", ("k", FLOAT, [4])], "scales"),
    ],
)
def test_a_limit_that_depends_on_the_inputs_is_refused(
    make_onnx: Any, op: str, inputs: list[Any], limit: str
) -> None:
    names = [value if isinstance(value, str) else value[0] for value in inputs]
    outputs = ["y", "indices"] if op == "TopK" else ["y"]
    proto = make_onnx([(op, names, outputs)], [value for value in inputs if value], outputs[:1])
    message = refusal(proto, simplify=False)
    assert f"{op} (node 'the {op}'; inputs: " in message
    assert f"takes `{limit}` from 'k', which depends on the model's inputs" in message


# Read in part


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("negative", [0, 1])
def test_isinf_of_one_sign(make_onnx: Any, agree: Any, positive: int, negative: int) -> None:
    attributes = {"detect_positive": positive, "detect_negative": negative}
    proto = make_onnx([("IsInf", ["x"], ["y"], attributes)], ["x"], [("y", BOOL, None)])
    agree(proto, {"x": np.array([[np.inf, -np.inf, 1], [np.nan, 0, -2]], np.float32)})


@pytest.mark.parametrize("name", ["UINT8", "UINT32", "UINT64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_the_width_or_more_give_zero(
    make_onnx: Any, agree: Any, name: str, direction: str
) -> None:
    number = TensorProto.DataType.Value(name)
    dtype = helper.tensor_dtype_to_np_dtype(number)
    proto = make_onnx(
        [("BitShift", ["x", "s"], ["y"], {"direction": direction})],
        [("x", number, [4]), ("s", number, [4])],
        [("y", number, None)],
    )
    width = dtype.itemsize * 8
    values = {"x": np.array([1, 200, 255, 7], dtype), "s": np.array([0, 3, width - 1, 3], dtype)}
    agree(proto, values)
    values["s"][3] = width
    got = byoc.compile(byoc.load_model(proto), "llvm").run(values)["y"]
    assert got[3] == 0


@pytest.mark.parametrize(("direction", "far"), [("LEFT", [0, 0]), ("RIGHT", [0, -1])])
def test_shifts_of_signed_integers_keep_the_sign(
    make_onnx: Any, direction: str, far: list[int]
) -> None:
    int32 = TensorProto.INT32
    proto = make_onnx(  # ONNX Runtime has unsigned shifts only
        [("BitShift", ["x", "s"], ["y"], {"direction": direction})],
        [("x", int32, [6]), ("s", int32, [6])],
        [("y", int32, None)],
        opset=onnx.defs.onnx_opset_version(),
    )
    x, amounts = np.array([5, -9, 3, -3, 3, -3], np.int32), np.array([2, 2, 32, 40, -1, -2])
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    exe = byoc.compile(byoc.load_model(proto), "llvm")
    got = exe.run({"x": x, "s": amounts.astype(np.int32)})["y"]
    np.testing.assert_array_equal(got, [*shift(x[:2], amounts[:2]), *far, *far])


@pytest.mark.parametrize("op", ["Elu", "Selu", "ThresholdedRelu"])
@pytest.mark.parametrize("opset", [12, 22])
def test_activations_of_halves(make_onnx: Any, agree: Any, op: str, opset: int) -> None:
    half = TensorProto.FLOAT16
    proto = make_onnx([(op, ["x"], ["y"])], [("x", half, [2, 3])], [("y", half, None)], opset=opset)
    agree(proto, rtol=5e-3)


# Functions


@pytest.mark.parametrize(
    ("op", "opset", "attributes"),
    [
        ("Celu", 12, {"alpha": 2.0}),
        ("Celu", 22, {}),
        ("HardSwish", 14, {}),
        ("HardSwish", 22, {}),
        ("Shrink", 9, {"lambd": 0.3, "bias": 0.2}),
        ("Shrink", 18, {}),
        ("Mish", 18, {}),
        ("ThresholdedRelu", 10, {"alpha": 0.5}),
        ("Swish", 24, {"alpha": 1.5}),
        ("Swish", 24, {}),
    ],
)
def test_operators_that_onnx_defines_by_functions(
    make_onnx: Any, agree: Any, op: str, opset: int, attributes: dict[str, float]
) -> None:
    agree(make_onnx([(op, ["x"], ["y"], attributes)], ["x"], ["y"], opset=opset))


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize("attributes", [{}, {"is_causal": 1}, {"scale": 0.5}, {"softcap": 2.0}])
def test_standard_attention(
    make_onnx: Any, agree: Any, opset: int, attributes: dict[str, Any]
) -> None:
    inputs = [(name, FLOAT, [1, 2, 4, 8]) for name in "qkv"]
    agree(make_onnx([("Attention", [*"qkv"], ["y"], attributes)], inputs, ["y"], opset=opset))


def test_standard_attention_with_fewer_keys_than_queries(make_onnx: Any, agree: Any) -> None:
    sizes = {"q": [1, 4, 16], "k": [1, 4, 8], "v": [1, 4, 8]}
    inputs = [(name, FLOAT, shape) for name, shape in sizes.items()]
    heads = {"q_num_heads": 2, "kv_num_heads": 1}
    agree(make_onnx([("Attention", [*"qkv"], ["y"], heads)], inputs, ["y"], opset=23))


def test_standard_attention_with_an_open_batch(make_onnx: Any, agree: Any) -> None:
    inputs = [(name, FLOAT, ["b", 2, 4, 8]) for name in "qkv"]
    proto = make_onnx([("Attention", [*"qkv"], ["y"])], inputs, ["y"], opset=23)
    agree(proto, shapes=dict.fromkeys("qkv", ("b", 2, 4, 8)))


def twice(opset: int = 18) -> onnx.FunctionProto:
    body = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Mul", ["a", "two"], ["b"]),
    ]
    return helper.make_function(
        "acme", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", opset)]
    )


def test_functions_of_the_model_are_inlined_also_within_each_other(
    make_onnx: Any, agree: Any, operators: Any
) -> None:
    calls = [
        helper.make_node("Twice", ["a"], ["c"], domain="acme"),
        helper.make_node("Twice", ["c"], ["b"], domain="acme"),
    ]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    four = helper.make_function("acme", "Four", ["a"], ["b"], calls, imports)
    proto = make_onnx(
        [("Four", ["x"], ["y"], {"domain": "acme"})],
        ["x"],
        ["y"],
        functions=[twice(), four],
        domains=["acme"],
    )
    assert operators(agree(proto)) == ["multiply", "multiply"]


def test_a_function_that_redefines_a_standard_operator_is_refused(make_onnx: Any) -> None:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    function = helper.make_function("", "Relu", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    proto = make_onnx([("Relu", ["x"], ["y"])], ["x"], ["y"], functions=[function])
    assert "redefines ONNX's own operator Relu" in refusal(proto)


# Old opsets


@pytest.mark.parametrize(
    ("node", "opset", "constants"),
    [
        (("Slice", ["x"], ["y"], {"starts": [0], "ends": [1], "axes": [1]}), 9, {}),
        (("Resize", ["x", "s"], ["y"]), 10, {"s": np.float32([1, 1, 1.5, 1.5])}),
        (("Resize", ["x", "s"], ["y"], {"mode": "linear"}), 10, {"s": np.float32([1, 1, 2, 2])}),
        (("Upsample", ["x"], ["y"], {"scales": [1.0, 1.0, 2.0, 2.0]}), 7, {}),
        (("Upsample", ["x", "s"], ["y"], {"mode": "linear"}), 9, {"s": np.float32([1, 1, 2, 2])}),
        (("Reshape", ["x"], ["y"], {"shape": [2, 16]}), 1, {}),
        (("Pad", ["x"], ["y"], {"pads": [0, 0, 1, 0, 0, 0, 0, 1], "value": 2.0}), 2, {}),
        (("TopK", ["x"], ["y", "i"], {"k": 2}), 1, {}),
        (("Softmax", ["x"], ["y"]), 9, {}),
        (("Unsqueeze", ["x"], ["y"], {"axes": [0]}), 11, {}),
        (("ReduceSum", ["x"], ["y"], {"axes": [1]}), 11, {}),
        (("Dropout", ["x"], ["y"]), 7, {}),
    ],
)
def test_forms_of_old_opsets(
    make_onnx: Any, agree: Any, node: tuple[Any, ...], opset: int, constants: dict[str, Any]
) -> None:
    agree(make_onnx([node], [("x", FLOAT, [1, 2, 4, 4])], ["y"], constants, opset=opset))


@pytest.mark.parametrize(
    ("node", "opset"),
    [
        (("Pad", ["x"], ["y"], {"paddings": [0] * 8}), 1),
        (("Cast", ["x"], ["y"], {"to": "INT32"}), 1),
        (("Add", ["x", "z"], ["y"], {"broadcast": 1, "axis": 1}), 6),
    ],
)
def test_forms_of_old_opsets_that_onnx_cannot_convert_are_refused(
    make_onnx: Any, node: tuple[Any, ...], opset: int
) -> None:
    inputs = [("x", FLOAT, [1, 2, 4, 4]), ("z", FLOAT, [2])]
    message = refusal(make_onnx([node], inputs, ["y"], opset=opset))
    assert node[0] in message
    assert "opset 13 or newer" in message


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 14, 17, 19, 21, 23, 25, 26])
def test_a_network_of_every_opset(make_onnx: Any, agree: Any, opset: int) -> None:
    nodes = [
        ("Gemm", ["x", "w", "b"], ["g"]),
        ("Relu", ["g"], ["r"]),
        ("Softmax", ["r"], ["y"], {"axis": 1}),
    ]
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((3, 5)).astype("f"), "b": np.ones(5, "f")}
    agree(make_onnx(nodes, ["x"], ["y"], constants, opset=opset))
