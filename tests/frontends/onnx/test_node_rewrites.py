"""Operators that TVM reads in part: what they become is the same in ONNX Runtime, and in TVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.rewrites import (
    conv_transpose,
    dropout,
    layer_normalization,
    mod,
    non_max_suppression,
    one_hot,
    power,
    reductions,
    resize,
    rms_normalization,
    roi_align,
    softplus,
    space_to_depth,
)

Array = np.ndarray
FLOAT = np.float32
RNG = np.random.default_rng(3)


@dataclass(frozen=True)
class Case:
    """One node; arrays in `inputs` are fed, those in `constants` are initializers."""

    rewrite: Callable[[onnx.ModelProto], int]
    op: str
    inputs: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    order: Sequence[str] = ()
    outputs: Sequence[str] = ("y",)
    opset: int = 18

    def model(self, **shapes: Sequence[str | int | None]) -> onnx.ModelProto:
        names = list(self.order) or [*self.inputs, *self.constants]
        node = helper.make_node(self.op, names, list(self.outputs), "the_node", **self.attributes)
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(x.dtype), shapes.get(name, x.shape)
                )
                for name, x in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in self.outputs if name],
            [numpy_helper.from_array(x, name) for name, x in self.constants.items()],
        )
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=9)
        return onnx.shape_inference.infer_shapes(model, strict_mode=True)

    def rewritten(self) -> tuple[onnx.ModelProto, int]:
        model = self.model()
        count = self.rewrite(model)
        return model, count


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape, dtype=FLOAT)


def resize_case(
    shape: Sequence[int], values: Sequence[float], name: str = "sizes", **attributes: Any
) -> Case:
    dtype = np.int64 if name == "sizes" else FLOAT
    order = ["x", "", "", "sizes"] if name == "sizes" else ["x", "", "scales"]
    return Case(
        resize.rewrite,
        "Resize",
        {"x": normal(*shape)},
        {name: np.array(values, dtype)},
        attributes,
        order,
        opset=19,
    )


def layer_norm_case(scale: Sequence[int], outputs: Sequence[str], **attributes: Any) -> Case:
    inputs = {"x": normal(2, 3, 3), "scale": normal(*scale), "bias": normal(*scale)}
    return Case(
        layer_normalization.rewrite,
        "LayerNormalization",
        inputs,
        attributes=attributes,
        outputs=outputs,
    )


def conv_case(output_shape: Sequence[int], **attributes: Any) -> Case:
    inputs = {"x": normal(1, 2, 5, 4), "w": normal(2, 3, 3, 3)}
    attributes = {"strides": [3, 2], "output_shape": output_shape, **attributes}
    return Case(conv_transpose.rewrite, "ConvTranspose", inputs, attributes=attributes)


def nms_case(threshold: float, center: int) -> Case:
    corners = np.array([[[0, 0, 1, 1], [0.5, 0.5, 1.5, 1.5], [0, 0.1, 1, 1.1]]], FLOAT)
    limits = {"n": np.array([3]), "iou": np.array([threshold], FLOAT)}
    return Case(
        non_max_suppression.rewrite,
        "NonMaxSuppression",
        {"boxes": corners, "scores": np.array([[[0.9, 0.8, 0.7]]], FLOAT)},
        limits | {"score": np.array([0.1], FLOAT)},
        {"center_point_box": center},
        outputs=["selected"],
    )


EMPTY = {"x": np.zeros((2, 0, 4), FLOAT)}
SIGNED = np.array([7.5, -7.5, 7.5, -7.5, 6, -6, 0, 1], FLOAT)
CASES = {
    "resize, scales that do not divide": resize_case(
        (1, 2, 4, 5), (1, 1, 0.6, 1.7), "scales", mode="linear"
    ),
    "resize, cubic and exclude_outside": resize_case(
        (1, 2, 4, 5), (1, 1, 0.8, 0.7), "scales", mode="cubic", exclude_outside=1
    ),
    "resize, antialias": resize_case((1, 2, 9, 8), (1, 2, 4, 3), mode="linear", antialias=1),
    "resize, antialias cubic": resize_case((1, 2, 9, 8), (1, 2, 4, 3), mode="cubic", antialias=1),
    "resize, half_pixel_symmetric": resize_case(
        (1, 1, 4, 5),
        (1, 1, 0.6, 1.3),
        "scales",
        mode="linear",
        coordinate_transformation_mode="half_pixel_symmetric",
    ),
    "resize, nearest by scales": resize_case((1, 2, 5, 7), (1, 1, 0.7, 1.7), "scales"),
    "resize, axes swapped": resize_case((1, 2, 5, 7), (9, 4), mode="linear", axes=[3, 2]),
    "resize, rank 2": resize_case((4, 5), (6, 3), mode="linear"),
    "resize, one element left": resize_case(
        (1, 2, 3, 1), (1, 2, 5, 1), mode="linear", coordinate_transformation_mode="align_corners"
    ),
    "resize, aspect ratio kept": resize_case(
        (1, 2, 4, 6), (7, 8), axes=[2, 3], keep_aspect_ratio_policy="not_larger"
    ),
    "conv transpose, smaller": conv_case((13, 8)),
    "conv transpose, same upper": conv_case((12, 8), auto_pad="SAME_UPPER"),
    "conv transpose, larger": conv_case((16, 10)),
    "dropout, mask": Case(
        dropout.rewrite, "Dropout", {"x": normal(2, 3)}, outputs=["y", "mask"], opset=13
    ),
    "dropout, training without a share": Case(
        dropout.rewrite,
        "Dropout",
        {"x": normal(2, 3)},
        {"ratio": np.array(0, FLOAT), "training": np.array(True)},
        opset=13,
    ),
    "layer normalization, statistics": layer_norm_case([3], ["y", "mean", "inverse"]),
    "layer normalization, two axes": layer_norm_case([3, 3], ["y", "", "inverse"], axis=1),
    "layer normalization, scale broadcast": layer_norm_case([3], ["y"], axis=1, epsilon=1e-2),
    "mod, signs": Case(
        mod.rewrite,
        "Mod",
        {"x": SIGNED.astype(np.int32), "m": np.array([2, 2, -2, -2, 3, 3, -3, -3], np.int32)},
    ),
    "space to depth": Case(
        space_to_depth.rewrite, "SpaceToDepth", {"x": normal(2, 3, 4, 6)}, {}, {"blocksize": 2}
    ),
    "roi align, half pixel and scale": Case(
        roi_align.rewrite,
        "RoiAlign",
        {"x": normal(1, 2, 8, 8), "rois": np.array([[2, 2, 13, 9], [0, 1, 5, 15]], FLOAT)},
        {"batch": np.zeros(2, np.int64)},
        {"spatial_scale": 0.5, "output_height": 3, "output_width": 2, "sampling_ratio": 2},
    ),
    "pow, integer exponent": Case(
        power.rewrite, "Pow", {"x": normal(4), "p": np.array([2, 3, 0, -1])}
    ),
    "pow, integers": Case(
        power.rewrite,
        "Pow",
        {"x": np.array([3, -2, 46340, 7], np.int32), "p": np.array([4, 5, 2, 0], np.int32)},
    ),
    "one hot, last axis": Case(
        one_hot.rewrite,
        "OneHot",
        {"x": np.array([[0, 2], [-1, 7]])},
        {"depth": np.array(4), "values": np.array([0.5, 2], FLOAT)},
    ),
    "one hot, first axis": Case(
        one_hot.rewrite,
        "OneHot",
        {"x": np.array([0, 2, -3, 7])},
        {"depth": np.array([4]), "values": np.array([0, 5])},
        {"axis": 0},
    ),
    "softplus": Case(
        softplus.rewrite, "Softplus", {"x": np.array([-90, -20, -9, 0, 1, 100], FLOAT)}
    ),
    "mish": Case(softplus.rewrite, "Mish", {"x": np.array([-90, -9, -1, 0, 25, 200], FLOAT)}),
    **{
        f"reduce {op} of nothing": Case(
            reductions.rewrite, op, EMPTY, {"axes": np.array([1])}, {"keepdims": keep}
        )
        for op, keep in (
            *(("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", 1), ("ReduceMin", 0)),
            *(("ReduceL1", 1), ("ReduceL2", 1), ("ReduceSumSquare", 0)),
        )
    },
    "nms, overlap at the threshold": nms_case(0.25 / 1.75, 0),
    "nms, centres": nms_case(0.4, 1),
}


def run_onnx(model: onnx.ModelProto, inputs: dict[str, Array]) -> list[Array]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


def expected(case: Case) -> list[Array]:
    return run_onnx(case.model(), case.inputs)


def assert_equal(got: Sequence[Array], wanted: Sequence[Array]) -> None:
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-6, strict=True)


UNCHANGED = {"mod, signs", "space to depth"}  # what TVM reads right stays as it is


@pytest.mark.parametrize("name", CASES)
def test_the_rewritten_model_is_the_same_in_onnx_runtime(name: str) -> None:
    case = CASES[name]
    model, count = case.rewritten()
    onnx.checker.check_model(model)
    assert count == (0 if name in UNCHANGED else 1)
    if name.startswith(("softplus", "mish")):  # more digits than ONNX Runtime gives
        return
    if name.startswith("nms"):  # the threshold is moved for TVM
        return
    assert_equal(run_onnx(model, case.inputs), expected(case))


@pytest.mark.parametrize("name", CASES)
def test_tvm_gives_what_onnx_runtime_does(name: str) -> None:
    case = CASES[name]
    exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
    outputs = [output for output in case.outputs if output]
    got = exe.run(case.inputs)
    assert list(got) == outputs
    assert_equal(list(got.values()), expected(case))


def test_softplus_and_mish_keep_their_digits_for_negative_values() -> None:
    x = np.linspace(-60, 30, 181, dtype=FLOAT)
    exact = np.log1p(np.exp(x.astype(np.float64)))
    for op, wanted in (("Softplus", exact), ("Mish", x * np.tanh(exact))):
        case = Case(softplus.rewrite, op, {"x": x})
        got = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")(x)
        np.testing.assert_allclose(got, wanted, rtol=2e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_floored_remainder_of_floats_has_the_divisors_sign(dtype: type) -> None:
    # ONNX Runtime has it for integers only; NumPy's remainder is the same function.
    x = np.array([7.5, -7.5, 7.5, -7.5, -3, 3, -1, 1, np.inf, 1, np.nan, 1], dtype)
    y = np.array([2, 2, -2, -2, np.inf, np.inf, -np.inf, -np.inf, 2, 0, 2, np.nan], dtype)
    case = Case(mod.rewrite, "Mod", {"x": x, "y0": y})
    exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(exe(x, y), np.remainder(x, y))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_rms_over_all_axes(dtype: type) -> None:
    x, scale = normal(2, 3).astype(dtype), normal(2, 3).astype(dtype)
    case = Case(
        rms_normalization.rewrite,
        "RMSNormalization",
        {"x": x, "scale": scale},
        attributes={"axis": 0, "epsilon": 1e-3},
        opset=23,
    )
    model, count = case.rewritten()
    assert count == 1
    onnx.checker.check_model(model)
    got = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")(x, scale)
    root = np.sqrt(np.square(x.astype(FLOAT)).mean() + 1e-3)
    np.testing.assert_allclose(got, x / root * scale, rtol=1e-2 if dtype == np.float16 else 1e-5)


def test_space_to_depth_in_either_order() -> None:
    x = normal(2, 3, 4, 6)
    attributes = {"blocksize": 2, "mode": "CRD"}
    node = helper.make_node("SpaceToDepth", ["x"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 12, 2, 3))],
    )
    opset = onnx.defs.onnx_opset_version()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    got = byoc.compile(byoc.load_model(model, simplify=False), "llvm")(x)
    wanted = x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 1, 3, 5, 2, 4).reshape(2, 12, 2, 3)
    np.testing.assert_array_equal(got, wanted)


REFUSED = {
    "aligns corners": resize_case(
        (1, 1, 4, 5),
        (1, 1, 0.6, 1.7),
        "scales",
        mode="linear",
        coordinate_transformation_mode="align_corners",
    ),
    "larger than its strides": conv_case((30, 30)),
    "drops at random": Case(
        dropout.rewrite,
        "Dropout",
        {"x": normal(2, 3), "training": np.array(True)},
        order=["x", "", "training"],
        opset=13,
    ),
    "training_mode, or more": Case(
        lambda _: 0,
        "BatchNormalization",
        {"x": normal(2, 3, 4), **{name: np.ones(3, FLOAT) for name in ("s", "b", "m", "v")}},
        attributes={"training_mode": 1},
        outputs=["y", "mean", "var"],
    ),
    "mode 'max'": Case(
        lambda _: 0,
        "RoiAlign",
        {"x": normal(1, 2, 8, 8), "rois": np.array([[2, 2, 7, 7]], FLOAT)},
        {"batch": np.zeros(1, np.int64)},
        {"mode": "max"},
    ),
    "uint64 values": Case(
        lambda _: 0,
        "TopK",
        {"x": np.arange(4, dtype=np.uint64)},
        {"k": np.array([2])},
        outputs=["y", "i"],
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_right_is_refused_by_name(message: str) -> None:
    with pytest.raises(ModelError, match=rf"the_node(?s:.)*{message}"):
        byoc.load_model(REFUSED[message].model(), simplify=False)


@pytest.mark.parametrize(("op", "infinity"), [("ReduceMax", -np.inf), ("ReduceMin", np.inf)])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_bound_of_a_row_that_is_masked_by_infinity_is_infinite(
    op: str, infinity: float, keepdims: int
) -> None:
    lowest = np.copysign(np.finfo(FLOAT).max, infinity)
    x = np.array([[1, 2, 3], [lowest, lowest, lowest], [4, lowest, 5]], FLOAT)
    mask = np.array([[True, False, True], [True, True, False], [False, False, False]])
    nodes = [
        helper.make_node("Where", ["mask", "x", "infinity"], ["masked"]),
        helper.make_node(op, ["masked", "axes"], ["y"], keepdims=keepdims),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape),
            helper.make_tensor_value_info("mask", TensorProto.BOOL, mask.shape),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.array(infinity, FLOAT), "infinity"),
            numpy_helper.from_array(np.array([1]), "axes"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    got = byoc.compile(byoc.load_model(model, simplify=False), "llvm").run({"x": x, "mask": mask})
    np.testing.assert_array_equal(got["y"], run_onnx(model, {"x": x, "mask": mask})[0])


@pytest.mark.parametrize("dtype", ["FLOAT8E4M3FN", "FLOAT8E5M2", "INT4"])
def test_a_value_of_a_small_type_within_the_graph_is_refused(dtype: str) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["a"], "narrow", to=TensorProto.DataType.Value(dtype)),
        helper.make_node("Cast", ["a"], ["y"], "widen", to=TensorProto.FLOAT),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    with pytest.raises(ModelError, match=r"narrow.*float8, or of less than 8 bits"):
        byoc.load_model(model, simplify=False)


def test_a_resize_of_open_sizes_by_a_fraction_is_refused() -> None:
    case = resize_case((1, 2, 4, 5), (1, 1, 0.6, 1.7), "scales", mode="linear")
    with pytest.raises(ModelError, match=r"the_node.*unless the sizes.*shapes="):
        byoc.load_model(
            case.model(x=(1, 2, "h", "w")), shapes={"x": (1, 2, "h", "w")}, simplify=False
        )
