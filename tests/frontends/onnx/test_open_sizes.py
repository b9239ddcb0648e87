"""What exporters compute from open sizes: imported, keeping rows apart, as in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tvm_byoc_kit.row_independence import why_dependent

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64

# The number of rows of `x`, as a scalar and as a vector.
ROWS = [("Shape", ["x"], ["shape"]), ("Gather", ["shape", "0"], ["n"])]
VECTOR = [*ROWS, ("Unsqueeze", ["n", "[0]"], ["[n]"])]
TO_RESHAPE = [("Concat", ["[n]", "[6]"], ["to"], {"axis": 0}), ("Reshape", ["x", "to"], ["y"])]

CHAINS: dict[str, list[Any]] = {
    "torch's view": [*VECTOR, ("Concat", ["[n]", "[-1]"], ["to"], {"axis": 0}), TO_RESHAPE[1]],
    "tf2onnx's reshape": [
        ("Shape", ["x"], ["shape"]),
        ("Cast", ["shape"], ["small"], {"to": INT32}),
        ("Slice", ["small", "[0]", "[1]", "[0]"], ["n32"]),
        ("Concat", ["n32", "[6] int32"], ["to32"], {"axis": 0}),
        ("Cast", ["to32"], ["to"], {"to": INT64}),
        TO_RESHAPE[1],
    ],
    "heads joined with the batch, and back": [
        *ROWS,
        ("Mul", ["n", "2"], ["2n"]),
        ("Reshape", ["2n", "[-1]"], ["[2n]"]),
        ("Concat", ["[2n]", "[3]"], ["joined"], {"axis": 0}),
        ("Reshape", ["x", "joined"], ["j"]),
        ("Softmax", ["j"], ["s"]),
        ("Shape", ["s"], ["of s"]),
        ("Gather", ["of s", "0"], ["m"]),
        ("Div", ["m", "2"], ["half"]),
        ("Unsqueeze", ["half", "[0]"], ["[n]"]),
        TO_RESHAPE[0],
        ("Reshape", ["s", "to"], ["y"]),
    ],
    "what is left of all entries": [
        ("Size", ["x"], ["size"]),
        ("Div", ["size", "6"], ["n"]),
        VECTOR[2],
        *TO_RESHAPE,
    ],
    "the lesser of two, times the other": [
        *ROWS,
        ("Min", ["n", "64"], ["least"]),
        ("Mul", ["least", "6"], ["product"]),
        ("Div", ["product", "n"], ["six"]),
        ("Unsqueeze", ["six", "[0]"], ["[six]"]),
        VECTOR[2],
        ("Concat", ["[n]", "[six]"], ["to"], {"axis": 0}),
        ("Neg", ["x"], ["negative"]),
        ("Reshape", ["negative", "to"], ["y"]),
    ],
    "torch's expand": [
        *VECTOR,
        ("Concat", ["[n]", "[-1]", "[3]"], ["asked"], {"axis": 0}),
        ("Shape", ["asked"], ["rank"]),
        ("ConstantOfShape", ["rank"], ["ones"], {"value": helper.make_tensor("", INT64, [1], [1])}),
        ("Mul", ["ones", "-1"], ["minus"]),
        ("Equal", ["asked", "minus"], ["kept"]),
        ("Where", ["kept", "ones", "asked"], ["to"]),
        ("Expand", ["row", "to"], ["rows"]),
        ("Concat", ["rows", "x"], ["y"], {"axis": 1}),
    ],
    "a mask of heads": [("Expand", ["x", "[1, 2, 3]"], ["y"])],
    "a target with fewer axes": [("Expand", ["x", "[3]"], ["y"])],
    "torch's repeat": [
        *VECTOR,
        ("Concat", ["[n]", "[2]", "[1]"], ["times"], {"axis": 0}),
        ("Tile", ["row", "times"], ["rows"]),
        ("Add", ["rows", "x"], ["y"]),
    ],
    "repeated columns": [("Tile", ["x", "[1, 2, 3]"], ["y"])],
    "zeros of the batch": [
        *VECTOR,
        ("Concat", ["[n]", "[2]", "[3]"], ["to"], {"axis": 0}),
        ("ConstantOfShape", ["to"], ["zeros"]),
        ("Concat", ["zeros", "x"], ["y"], {"axis": 2}),
    ],
    "all rows, up to a large number": [
        ("Slice", ["x", "[0, 1]", "large", "[0, 1]"], ["part"]),
        ("Shape", ["part"], ["shape"]),
        ("Gather", ["shape", "0"], ["n"]),
        VECTOR[2],
        ("Concat", ["[n]", "[3]"], ["to"], {"axis": 0}),
        ("Reshape", ["part", "to"], ["y"]),
    ],
    "a mask by the number of its row": [
        *ROWS,
        ("Range", ["0", "n", "1"], ["numbers"]),
        ("Unsqueeze", ["numbers", "[1, 2]"], ["rows"]),
        *VECTOR[2:],
        ("Concat", ["[n]", "[2]", "[1]"], ["to"], {"axis": 0}),
        ("Expand", ["rows", "to"], ["first"]),
        ("Expand", ["[0, 1] below", "to"], ["column"]),
        ("Concat", ["first", "column"], ["indices"], {"axis": -1}),
        ("GatherND", ["x", "indices"], ["y"]),
    ],
    "If of an open size": [
        (
            "If",
            ["yes"],
            ["y"],
            {
                f"{name}_branch": helper.make_graph(
                    [helper.make_node(op, ["x"], [name])],
                    name,
                    [],
                    [helper.make_tensor_value_info(name, FLOAT, None)],
                )
                for name, op in (("then", "Neg"), ("else", "Exp"))
            },
        )
    ],
}
CONSTANTS = {
    **{text: np.array(int(text)) for text in ("0", "2", "6", "64", "-1")},
    **{f"[{n}]": np.array([n]) for n in (-1, 0, 1, 2, 3, 6)},
    **{f"[{text}]": np.array(eval(f"[{text}]")) for text in ("1, 2, 3", "0, 1")},  # noqa: S307
    "1": np.array(1),
    "[1, 2]": np.array([1, 2]),
    "[0, 1] below": np.array([[[0], [1]]]),
    "[6] int32": np.array([6], np.int32),
    "large": np.array([10**9, 2**31 - 1]),
    "row": np.arange(3, dtype=np.float32).reshape(1, 1, 3),
}


def chain(make_onnx: Any, name: str) -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, inputs, outputs, f"gives {outputs[0]}", **dict(*attributes))
        for op, inputs, outputs, *attributes in CHAINS[name]
    ]
    width = 1 if name == "a mask of heads" else 2
    inputs = [("x", FLOAT, ["batch", width, 3])]
    if name.startswith("If"):
        inputs.append(("yes", TensorProto.BOOL, []))
    read = {value for node in nodes for value in node.input}
    constants = {key: value for key, value in CONSTANTS.items() if key in read}
    return make_onnx(nodes, inputs, ["y"], constants)


@pytest.mark.parametrize("name", CHAINS)
def test_rows_stay_open_and_apart(make_onnx: Any, agree: Any, name: str) -> None:
    proto = chain(make_onnx, name)
    shapes = {value.name: tuple(dimensions(value)) for value in proto.graph.input}
    x = np.random.default_rng(0).standard_normal((5, *shapes["x"][1:]), np.float32)
    x[[1, 3]] = np.nan
    yes = {"yes": np.array(True)} if "yes" in shapes else {}
    model = agree(proto, {"x": x, **yes}, shapes=shapes)
    assert why_dependent(model, "batch") is None
    assert model.outputs[0].shape[0] == "batch"
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    alone, among_others = (session.run(None, {"x": rows, **yes})[0] for rows in (x[::2], x))
    np.testing.assert_array_equal(alone, among_others[::2])


def dimensions(value: onnx.ValueInfoProto) -> list[int | str]:
    return [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_an_image_is_resized_beside_an_open_batch(make_onnx: Any, agree: Any) -> None:
    nodes = [
        ("Shape", ["x"], ["shape"], {"end": 2}),
        ("Concat", ["shape", "size"], ["sizes"], {"axis": 0}),
        ("Resize", ["x", "", "", "sizes"], ["y"], {"mode": "linear"}),
    ]
    image = ("x", FLOAT, ["batch", 1, 2, 3])
    proto = make_onnx(nodes, [image], ["y"], {"size": np.array([4, 5])})
    model = agree(proto, {"x": np.ones((2, 1, 2, 3), np.float32)}, shapes={"x": image[2]})
    assert why_dependent(model, "batch") is None


@pytest.mark.parametrize(("start", "dtype"), [(0, INT64), (2, INT32)])
def test_a_range_of_an_open_size(make_onnx: Any, agree: Any, start: int, dtype: int) -> None:
    nodes = [
        *ROWS,
        ("Cast", ["n"], ["limit"], {"to": dtype}),
        ("Range", ["start", "limit", "one"], ["numbers"]),
        ("Add", ["numbers", "one"], ["y"]),
    ]
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    constants = {"0": np.array(0), "start": np.array(start, kind), "one": np.array(1, kind)}
    proto = make_onnx(nodes, [("x", FLOAT, ["batch", 3])], [("y", dtype, None)], constants)
    model = agree(proto, {"x": np.ones((5, 3), np.float32)}, shapes={"x": ("batch", 3)})
    assert why_dependent(model, "batch") is not None  # the numbers of the rows


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("size", ["n", "[n]"])
def test_what_depends_on_whether_a_size_is_one_is_decided_at_run_time(
    make_onnx: Any, agree: Any, rows: int, size: str
) -> None:
    nodes = [*VECTOR, ("Equal", [size, "1"], ["single"]), ("Where", ["single", "zero", "x"], ["y"])]
    one = np.array([1] if size == "[n]" else 1)
    constants = {"0": np.array(0), "[0]": np.array([0]), "1": one, "zero": np.zeros(3, np.float32)}
    proto = make_onnx(nodes, [("x", FLOAT, ["batch", 3])], ["y"], constants)
    agree(proto, {"x": np.ones((rows, 3), np.float32)}, shapes={"x": ("batch", 3)})


def test_a_size_is_a_number_too(make_onnx: Any, agree: Any) -> None:
    nodes = [
        *ROWS,
        helper.make_node("Cast", ["n"], ["number"], to=FLOAT),
        ("ReduceSum", ["x", "[0]"], ["sum"]),
        ("Div", ["sum", "number"], ["y"]),
    ]
    constants = {"0": np.array(0), "[0]": np.array([0])}
    proto = make_onnx(nodes, [("x", FLOAT, ["batch", 3])], ["y"], constants)
    agree(proto, {"x": np.ones((5, 3), np.float32)}, shapes={"x": ("batch", 3)})


EQUATIONS = ("bij,jk->bik", "bid,bjd->bij", "b,j->bj", "bij,bij->b", "bij,bij->ijb", "bic,dic->bd")


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_einsum_of_two_is_a_product(
    make_onnx: Any, agree: Any, operators: Any, equation: str
) -> None:
    terms = equation.partition("->")[0].split(",")
    sizes = {"b": "batch", "i": 2, "j": 3, "k": 4, "c": 3, "d": 5}
    shapes = {
        name: [sizes[letter] for letter in term] for name, term in zip("xw", terms, strict=True)
    }
    node = ("Einsum", ["x", "w"], ["y"], {"equation": equation})
    proto = make_onnx([node], [(name, FLOAT, shape) for name, shape in shapes.items()], ["y"])
    model = agree(proto, shapes=shapes)
    assert why_dependent(model, "batch") is None
    assert {"matmul", "multiply"} & set(operators(model))
