"""Quantized operators: integer results equal those of ONNX Runtime, others to one step.

Weights keep to seven bits: on CPUs without VNNI, ONNX Runtime's own product of uint8 and int8
saturates beyond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.rewrites.quantized import rewrite_quantized
from tvm_byoc_kit.frontends.onnx.rewrites.recurrent import rewrite_recurrent

Array = np.ndarray
FLOAT, UINT8, INT8, INT32 = np.float32, np.uint8, np.int8, np.int32
MICROSOFT = "com.microsoft"
BYTES = pytest.mark.parametrize("dtype", [UINT8, INT8])


@dataclass(frozen=True)
class Case:
    """One node; arrays in `feeds` are inputs of the model, those in `constants` initializers."""

    op: str
    order: Sequence[str]
    feeds: Mapping[str, Array]
    constants: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=lambda: {"y": UINT8})
    domain: str = ""
    opset: int = 17

    def model(self) -> onnx.ModelProto:
        node = helper.make_node(
            self.op,
            list(self.order),
            list(self.outputs),
            f"the {self.op}",
            domain=self.domain,
            **self.attributes,
        )
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape
                )
                for name, x in self.feeds.items()
            ],
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None
                )
                for name, dtype in self.outputs.items()
            ],
            [
                numpy_helper.from_array(np.asarray(value), name)
                for name, value in self.constants.items()
            ],
        )
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)


def run(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(feeds))


def rewritten(
    case: Case, rewrite: Callable[[onnx.ModelProto], int] = rewrite_quantized
) -> onnx.ModelProto:
    model = onnx.shape_inference.infer_shapes(case.model())
    assert rewrite(model) == 1
    model = onnx.shape_inference.infer_shapes(model)  # the outputs of com.microsoft's operators
    onnx.checker.check_model(model)
    return model


def check(case: Case, steps: int = 0, tvm: bool = False) -> onnx.ModelProto:
    """Compare the rewritten model, in ONNX Runtime or in TVM, with the model itself."""
    expected = run(case.model(), case.feeds)
    new = rewritten(case)
    if tvm:
        exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
        got = list(exe.run(dict(case.feeds)).values())
    else:
        got = run(new, case.feeds)
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(mine, theirs, 1e-6, 1e-6)
        else:
            assert np.abs(mine.astype(int) - theirs.astype(int)).max() <= steps
    return new


def refusal(case: Case) -> str:
    with pytest.raises(ModelError) as caught:
        rewritten(case)
    return str(caught.value)


def integers(dtype: Any, *shape: int, bits: int = 8, seed: int = 0) -> Array:
    low = -(2 ** (bits - 1)) if dtype == INT8 else 0
    return np.random.default_rng(seed).integers(low, low + 2**bits, shape).astype(dtype)


def floats(*shape: int, low: float = -1, high: float = 1) -> Array:
    return np.random.default_rng(1).uniform(low, high, shape).astype(FLOAT)


# What the importer does itself, and is right about


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [UINT8, INT8])
def test_tvm_quantizes_and_dequantizes_by_axis(dtype: Any, axis: int) -> None:
    halves = np.arange(-12, 12, dtype=FLOAT).reshape(2, 3, 4) / 2
    x = np.concatenate([floats(2, 3, 4) * 50, halves])
    count = x.shape[axis]
    constants = {"scale": np.full(count, 1, FLOAT), "zero": integers(dtype, count, bits=7)}
    for op, value, result in (
        ("QuantizeLinear", x, dtype),
        ("DequantizeLinear", integers(dtype, 4, 3, 4), FLOAT),
    ):
        case = Case(
            op, ("x", "scale", "zero"), {"x": value}, constants, {"axis": axis}, {"y": result}
        )
        exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
        np.testing.assert_array_equal(
            exe.run({"x": value})["y"], run(case.model(), {"x": value})[0]
        )


@BYTES
def test_tvm_multiplies_integers(dtype: Any) -> None:
    case = Case(
        "MatMulInteger",
        ("a", "b", "az", "bz"),
        {"a": integers(UINT8, 2, 4, 30)},
        {"b": integers(dtype, 30, 5, bits=7), "az": UINT8(7), "bz": integers(dtype, 5, bits=4)},
        outputs={"y": INT32},
    )
    exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
    np.testing.assert_array_equal(exe.run(dict(case.feeds))["y"], run(case.model(), case.feeds)[0])


# DynamicQuantizeLinear


@pytest.mark.parametrize(
    "x",
    [
        floats(3, 4),
        floats(3, 4, low=2, high=5),
        -floats(3, 4, low=2, high=5),
        np.zeros((2, 3), FLOAT),
        np.arange(-128, 128, dtype=FLOAT) * FLOAT(0.5),
    ],
    ids=["both signs", "positive", "negative", "zero", "halves"],
)
@pytest.mark.parametrize("tvm", [False, True])
def test_dynamic_quantization(x: Array, tvm: bool) -> None:
    outputs = {"y": UINT8, "scale": FLOAT, "zero": UINT8}
    check(Case("DynamicQuantizeLinear", ["x"], {"x": x}, outputs=outputs), tvm=tvm)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=40))
def test_dynamic_quantization_of_any_values(values: list[float]) -> None:
    outputs = {"y": UINT8, "scale": FLOAT, "zero": UINT8}
    feeds = {"x": np.array(values, FLOAT)}
    if np.ptp([0, *feeds["x"]]) > 0 and np.ptp([0, *feeds["x"]]) < 1e-30:
        return  # a range whose 255th part is subnormal; runtimes differ on those
    check(Case("DynamicQuantizeLinear", ["x"], feeds, outputs=outputs))


# Convolutions

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "1-D": ((1, 5, 20), (6, 5, 3), {}),
    "2-D": ((2, 5, 8, 9), (6, 5, 3, 3), {"pads": [1, 2, 0, 1], "strides": [2, 1]}),
    "3-D": ((1, 2, 5, 5, 5), (3, 2, 2, 2, 2), {}),
    "groups": ((2, 6, 8, 9), (4, 3, 3, 2), {"group": 2, "dilations": [2, 1]}),
    "depthwise": ((1, 8, 8, 8), (8, 1, 3, 3), {"group": 8, "auto_pad": "SAME_UPPER"}),
    "more than float32 holds": ((1, 600, 5, 5), (3, 600, 3, 3), {}),
}
convolutions = pytest.mark.parametrize("name", CONVOLUTIONS)


def conv_integer(name: str, dtype: Any, **zero_points: Any) -> Case:
    data, kernel, attributes = CONVOLUTIONS[name]
    constants = {"w": integers(dtype, *kernel, bits=7), **zero_points}
    feeds = {"x": integers(UINT8, *data)}
    order = ["x", "w", *zero_points]
    return Case("ConvInteger", order, feeds, constants, attributes, {"y": INT32})


@BYTES
@convolutions
def test_integer_convolution(name: str, dtype: Any) -> None:
    check(conv_integer(name, dtype))
    check(conv_integer(name, dtype, xz=UINT8(13), wz=dtype(5)))


@pytest.mark.parametrize("name", ["2-D", "more than float32 holds"])
def test_integer_convolution_in_tvm(name: str) -> None:
    check(conv_integer(name, INT8, xz=UINT8(13), wz=INT8(5)), tvm=True)


def test_integer_convolution_with_a_zero_point_for_each_channel() -> None:
    # ONNX Runtime has none: NumPy in its place.
    case = conv_integer("1-D", UINT8, xz=UINT8(13), wz=integers(UINT8, 6, bits=4))
    centered = case.constants["w"].astype(int) - case.constants["wz"].astype(int)[:, None, None]
    x = np.lib.stride_tricks.sliding_window_view(case.feeds["x"].astype(int) - 13, 3, axis=2)
    expected = np.einsum("nctk,ock->not", x, centered)
    np.testing.assert_array_equal(run(rewritten(case), case.feeds)[0], expected)


def test_channels_are_summed_in_as_few_parts_as_stay_exact() -> None:
    def parts(name: str) -> int:
        nodes = rewritten(conv_integer(name, INT8, xz=UINT8(0))).graph.node
        return sum(node.op_type == "Conv" for node in nodes)

    assert parts("2-D") == 1
    assert 2 <= parts("more than float32 holds") <= 4


def test_weights_may_be_an_input() -> None:
    data, kernel, attributes = CONVOLUTIONS["2-D"]
    feeds = {"x": integers(UINT8, *data), "w": integers(INT8, *kernel, bits=7)}
    check(Case("ConvInteger", ["x", "w"], feeds, {}, attributes, {"y": INT32}))


def test_sums_that_float32_cannot_hold_are_refused() -> None:
    wide = np.full((2, 1, 600), 127, INT8)
    case = Case(
        "ConvInteger", ["x", "w"], {"x": integers(UINT8, 1, 1, 700)}, {"w": wide}, {}, {"y": INT32}
    )
    text = refusal(case)
    assert "ConvInteger (node 'the ConvInteger'; inputs: x uint8[1, 1, 700]" in text
    assert "2**24" in text


@pytest.mark.parametrize("bias", [None, 10_000, 2**30])
@pytest.mark.parametrize("per_channel", [False, True])
@BYTES
@convolutions
def test_quantized_convolution(name: str, dtype: Any, per_channel: bool, bias: int | None) -> None:
    check(quantized_convolution(name, dtype, per_channel, bias))


def quantized_convolution(name: str, dtype: Any, per_channel: bool, bias: int | None) -> Case:
    data, kernel, attributes = CONVOLUTIONS[name]
    channels = kernel[:1] if per_channel else ()
    large = bias is not None and bias > 2**24
    constants: dict[str, Any] = {
        "xs": FLOAT(0.05),
        "xz": UINT8(13),
        "w": integers(dtype, *kernel, bits=7),
        "ws": floats(*channels, low=0.01, high=0.03),
        "wz": np.zeros(channels, dtype),
        "ys": FLOAT(6000 if large else 6 if name.startswith("more") else 0.6),
        "yz": UINT8(120),
    }
    if bias is not None:
        constants["b"] = np.random.default_rng(2).integers(-bias, bias, kernel[0]).astype(INT32)
    feeds = {"x": integers(UINT8, *data)}
    return Case("QLinearConv", ["x", *constants], feeds, constants, attributes)


@pytest.mark.parametrize("name", ["2-D", "more than float32 holds"])
def test_quantized_convolution_in_tvm(name: str) -> None:
    check(quantized_convolution(name, INT8, per_channel=True, bias=10_000), tvm=True)


def test_quantized_convolution_of_signed_values() -> None:
    constants = {
        "xs": FLOAT(0.05),
        "xz": INT8(-3),
        "w": integers(INT8, 6, 5, 3),
        "ws": FLOAT(0.02),
        "wz": INT8(0),
        "ys": FLOAT(0.6),
        "yz": INT8(7),
    }
    feeds = {"x": integers(INT8, 1, 5, 20)}
    check(Case("QLinearConv", ["x", *constants], feeds, constants, outputs={"y": INT8}))


# Matrix products

PRODUCT = {"as": FLOAT(0.02), "az": UINT8(7), "bs": FLOAT(0.03), "ys": FLOAT(0.5), "yz": UINT8(128)}


@pytest.mark.parametrize("tvm", [False, True])
@pytest.mark.parametrize("per_column", [False, True])
@BYTES
def test_quantized_matrix_product(dtype: Any, per_column: bool, tvm: bool) -> None:
    columns = (7,) if per_column else ()
    constants = {
        **PRODUCT,
        "b": integers(dtype, 30, 7, bits=6),
        "bs": floats(*columns, low=0.01, high=0.05),
        "bz": np.full(columns, 5, dtype),
    }
    order = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    check(Case("QLinearMatMul", order, {"a": integers(UINT8, 2, 4, 30)}, constants), tvm=tvm)


@pytest.mark.parametrize("quantized", [True, False])
@BYTES
def test_quantized_gemm(dtype: Any, quantized: bool) -> None:
    bias = np.random.default_rng(2).integers(-500, 500, 7).astype(INT32)
    constants = {**PRODUCT, "b": integers(dtype, 7, 30, bits=6), "bz": dtype(5), "c": bias}
    order = ["a", "as", "az", "b", "bs", "bz", "c", *(["ys", "yz"] if quantized else [])]
    attributes = {"transB": 1, "alpha": 1.5}
    check(
        Case(
            "QGemm",
            order,
            {"a": integers(UINT8, 4, 30)},
            {name: constants[name] for name in order[1:]},
            attributes,
            {"y": UINT8 if quantized else FLOAT},
            MICROSOFT,
        )
    )


@pytest.mark.parametrize("tvm", [False, True])
@BYTES
def test_products_in_floating_point(dtype: Any, tvm: bool) -> None:
    b = {"b": integers(dtype, 30, 7, bits=7), "bs": FLOAT(0.03), "bz": dtype(5), "bias": floats(7)}
    check(
        Case(
            "DynamicQuantizeMatMul",
            ["x", *b],
            {"x": floats(3, 30)},
            b,
            outputs={"y": FLOAT},
            domain=MICROSOFT,
        ),
        tvm=tvm,
    )
    check(
        Case(
            "MatMulIntegerToFloat",
            ["a", "b", "as", "bs", "az", "bz", "bias"],
            {"a": integers(UINT8, 3, 30)},
            {"as": FLOAT(0.02), "az": UINT8(7), **b},
            outputs={"y": FLOAT},
            domain=MICROSOFT,
        ),
        tvm=tvm,
    )


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 60), st.integers(1, 5)),
    scale=st.floats(2**-13, 1.0, width=32),
    zero=st.integers(0, 255),
)
def test_quantized_products_of_any_size(
    shape: tuple[int, int, int], scale: float, zero: int
) -> None:
    rows, depth, columns = shape
    constants = {
        **PRODUCT,
        "b": integers(INT8, depth, columns, bits=7),
        "bs": FLOAT(scale),
        "bz": INT8(0),
        "yz": UINT8(zero),
    }
    order = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
    check(Case("QLinearMatMul", order, {"a": integers(UINT8, rows, depth)}, constants))


# Operators between DequantizeLinear and QuantizeLinear

BINARY = ["a", "as", "az", "b", "bs", "bz", "ys", "yz"]
UNARY = ["a", "as", "az", "ys", "yz"]
BETWEEN: dict[str, tuple[list[str], dict[str, Any]]] = {
    "QLinearAdd": (BINARY, {}),
    "QLinearMul": (BINARY, {}),
    "QLinearConcat": (["ys", "yz", *BINARY[:6]], {"axis": 1}),
    "QLinearSigmoid": (UNARY, {}),
    "QLinearLeakyRelu": (UNARY, {"alpha": 0.1}),
    "QLinearSoftmax": (UNARY, {"axis": -1, "opset": 17}),
    "QLinearAveragePool": (UNARY, {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearGlobalAveragePool": (UNARY, {}),
}


def between(op: str, dtype: Any, **changed: Any) -> Case:
    order, attributes = BETWEEN[op]
    parameters = {
        "as": FLOAT(0.02),
        "az": dtype(3),
        "bs": FLOAT(0.03),
        "bz": dtype(5),
        "ys": FLOAT(1 / 256 if op in {"QLinearSigmoid", "QLinearSoftmax"} else 0.05),
        "yz": dtype(0 if dtype == UINT8 else -100),
    }
    feeds = {
        name: integers(dtype, 3, 5, 8, 8, seed=seed)
        for seed, name in enumerate(("a", "b"))
        if name in order
    }
    constants = {name: parameters[name] for name in order if name in parameters}
    said = {**attributes, **changed}
    return Case(op, order, feeds, constants, said, {"y": dtype}, MICROSOFT)


@pytest.mark.parametrize("op", BETWEEN)
@BYTES
def test_float_operators_agree_to_one_step(op: str, dtype: Any) -> None:
    check(between(op, dtype), steps=1)


def test_float_operators_in_tvm() -> None:
    check(between("QLinearAdd", INT8), steps=1, tvm=True)


@BYTES
def test_the_zero_point_left_out_is_zero_of_the_input_s_type(dtype: Any) -> None:
    whole = between("QLinearMul", dtype)
    zeros = {**whole.constants, "yz": dtype(0)}
    expected = run(Case(**{**vars(whole), "constants": zeros}).model(), whole.feeds)[0]
    short = {name: value for name, value in whole.constants.items() if name != "yz"}
    case = Case(**{**vars(whole), "constants": short, "order": BINARY[:-1]})
    (got,) = run(rewritten(case), case.feeds)
    assert got.dtype == dtype
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1


def test_attributes_without_a_counterpart_are_refused() -> None:
    assert "channels_last" in refusal(between("QLinearAveragePool", UINT8, channels_last=1))
    assert "older opset" in refusal(between("QLinearSoftmax", UINT8, opset=12))


@BYTES
def test_the_quantizers_of_com_microsoft_are_those_of_onnx(dtype: Any) -> None:
    parameters = {"scale": FLOAT(0.02), "zero": dtype(3)}
    order = ["x", *parameters]
    for op, value, result in (
        ("QuantizeLinear", floats(3, 4), dtype),
        ("DequantizeLinear", integers(dtype, 3, 4), FLOAT),
    ):
        check(Case(op, order, {"x": value}, parameters, {}, {"y": result}, MICROSOFT))


# DynamicQuantizeLSTM


def dynamic_lstm(direction: str, batch: int = 1) -> Case:
    count, hidden, features, steps = 2 if direction == "bidirectional" else 1, 8, 6, 5
    constants = {
        "W": integers(INT8, count, features, 4 * hidden, bits=7),
        "R": integers(INT8, count, hidden, 4 * hidden, bits=7, seed=1),
        "B": floats(count, 8 * hidden),
        "ws": floats(count, low=0.005, high=0.01),
        "wz": np.zeros(count, INT8),
        "rs": floats(count, low=0.005, high=0.01),
        "rz": np.zeros(count, INT8),
    }
    order = ["X", "W", "R", "B", "", "", "", "", "ws", "wz", "rs", "rz"]
    attributes = {"hidden_size": hidden, "direction": direction}
    return Case(
        "DynamicQuantizeLSTM",
        order,
        {"X": floats(steps, batch, features)},
        constants,
        attributes,
        {"Y": FLOAT, "Y_h": FLOAT, "Y_c": FLOAT},
        MICROSOFT,
    )


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_quantized_at_run_time(direction: str, batch: int) -> None:
    # With several threads ONNX Runtime quantizes parts of a batch on their own.
    case = dynamic_lstm(direction, batch)
    got = run(rewritten(case, rewrite_recurrent), case.feeds)
    for mine, theirs in zip(got, run(case.model(), case.feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 1e-6)


def test_lstm_quantized_at_run_time_in_tvm() -> None:
    case = dynamic_lstm("bidirectional")
    exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "llvm")
    got = exe.run(dict(case.feeds)).values()
    for mine, theirs in zip(got, run(case.model(), case.feeds), strict=True):
        # TVM's tanh and sigmoid may move a state across the middle between two steps.
        np.testing.assert_allclose(mine, theirs, 1e-2, 2e-3)


@pytest.mark.byoc("example_npu", step="runtime")
def test_the_example_npu_takes_the_convolution_of_an_integer_model() -> None:
    case = quantized_convolution("2-D", INT8, per_channel=True, bias=10_000)
    exe = byoc.compile(byoc.load_model(case.model(), simplify=False), "example_npu")
    assert exe.manifest.loaders
    np.testing.assert_array_equal(exe.run(dict(case.feeds))["y"], run(case.model(), case.feeds)[0])


def test_what_has_no_rewrite_is_refused_by_name() -> None:
    node = helper.make_node("QAttention", ["x"], ["y"], "attention", domain=MICROSOFT, num_heads=1)
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "g",
        [value("x", TensorProto.UINT8, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    with pytest.raises(ModelError, match=r"com\.microsoft\.QAttention"):
        byoc.load_model(helper.make_model(graph, opset_imports=imports, ir_version=8))
