"""The example NPU's simulator against PyTorch or NumPy, both in float64.

Regions are made as partitioning makes them (a composite in a function of the backend), go through
the plugin's own codegen and run on its runtime module, so attributes arrive as TVM writes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

pytestmark = pytest.mark.byoc("example_npu", step="runtime")

Array = np.ndarray
Body = Callable[..., Any]

# (relative, absolute).  float32: rounding of sums of up to a few hundred products of values near 1.
# float16: operands are widened and the result is rounded once, to 11 bits, so half a unit in the
# last place (2^-11 of the value, 2^-25 for denormals) on top of that.  Integers are exact.
TOLERANCE = {
    "float32": (1e-5, 1e-5),
    "float16": (2**-11 + 1e-5, 1e-5),
    "int8": (0, 0),
    "uint8": (0, 0),
    "int16": (0, 0),
    "int32": (0, 0),
    "int64": (0, 0),
}
FLOATS = ("float32", "float16")
NUMBERS = (*FLOATS, "int8", "uint8", "int16", "int32", "int64")

torch.set_num_threads(1)  # the references are small: a second thread only waits

some = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def make_region(body: Body, arrays: Sequence[Array], options: dict[str, Any] | None = None) -> Any:
    """The runtime module of a region of one composite, `body`."""
    types = [relax.TensorType(a.shape, str(a.dtype)) for a in arrays]
    builder = relax.BlockBuilder()
    inner = [relax.Var(f"x{i}", type_) for i, type_ in enumerate(types)]
    with builder.function("composite", inner):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*inner)))
        builder.emit_func_output(result)
    composite = builder.finalize()["composite"].without_attr("global_symbol")
    composite = composite.with_attr("Composite", "example_npu.test")
    return make_module_of(composite, types, options or {})


def make_module_of(composite: relax.Function, types: Sequence[Any], options: dict[str, Any]) -> Any:
    builder = relax.BlockBuilder()
    outer = [relax.Var(f"a{i}", type_) for i, type_ in enumerate(types)]
    with builder.function("region", outer, attrs={"Codegen": "example_npu"}):
        callee = builder.emit(composite)
        with builder.dataflow():
            result = builder.emit_output(callee(*outer))
        builder.emit_func_output(result)
    region = builder.finalize()["region"]
    return tvm.get_global_func("relax.ext.example_npu")([region], options, {})[0]


def outputs_of(module: Any) -> list[Any]:
    graph = json.loads(str(module["get_graph"]()))
    infos = []
    for node, output, _ in graph["heads"]:
        attrs = graph["nodes"][node]["attrs"]
        infos.append((attrs["shape"][output], attrs["dtype"][output]))
    return [tvm.runtime.tensor(np.full(shape, 77, dtype)) for shape, dtype in infos]


def run_region(body: Body, *arrays: Array, options: dict[str, Any] | None = None) -> list[Array]:
    module = make_region(body, arrays, options)
    outputs = outputs_of(module)
    module["region"](*[tvm.runtime.tensor(np.array(a, order="C")) for a in arrays], *outputs)
    return [out.numpy() for out in outputs]


def run(body: Body, *arrays: Array) -> Array:
    (result,) = run_region(body, *arrays)
    return result


def check(result: Array, expected: Any, scale: float = 1.0) -> None:
    """`scale` is for errors that grow with intermediate values instead of with the result."""
    wanted = np.asarray(expected)
    assert result.shape == wanted.shape
    relative, absolute = TOLERANCE[str(result.dtype)]
    if relative == 0:
        np.testing.assert_array_equal(result, wanted)
    else:
        np.testing.assert_allclose(
            result.astype("float64"), wanted, rtol=relative, atol=absolute * scale
        )


def random_array(shape: Sequence[int], dtype: str, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if dtype in FLOATS:
        return np.asarray(rng.standard_normal(shape), dtype)
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(max(info.min, -1000), min(info.max, 1000) + 1, shape), dtype)


def wide(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.astype("int64" if array.dtype.kind in "iu" else "float64"))


# Convolution --------------------------------------------------------------------------------------


@st.composite
def convolutions(draw: st.DrawFn, dims: int) -> dict[str, Any]:
    groups = draw(st.integers(1, 4))
    per_group = draw(st.integers(1, 5))
    window = [draw(st.integers(1, 4)) for _ in range(dims)]
    dilation = [draw(st.integers(1, 2)) for _ in range(dims)]
    padding = [draw(st.integers(0, 2)) for _ in range(2 * dims)]
    smallest = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    return {
        "batch": draw(st.integers(1, 2)),
        "channels": groups * per_group,
        "outputs": groups * draw(st.integers(1, 9)),
        "groups": groups,
        "window": window,
        "dilation": dilation,
        "padding": padding,
        "strides": [draw(st.integers(1, 3)) for _ in range(dims)],
        "size": [draw(st.integers(least, least + 12)) for least in smallest],
        "dtype": draw(st.sampled_from((*FLOATS, "int8"))),
        "layouts": draw(st.sampled_from(LAYOUTS[dims])),
    }


LAYOUTS = {
    1: [("NCW", "OIW", "NCW"), ("NWC", "WIO", "NWC"), ("NWC", "OWI", "NCW")],
    2: [
        ("NCHW", "OIHW", "NCHW"),
        ("NHWC", "HWIO", "NHWC"),
        ("NHWC", "OHWI", "NHWC"),
        ("NCHW", "OIHW", "NHWC"),
        ("NHWC", "HWOI", "NCHW"),
    ],
}


def to_layout(array: Array, source: str, target: str) -> Array:
    return array.transpose([source.index(axis) for axis in target])


def reference_conv(x: Array, w: Array, case: dict[str, Any]) -> Array:
    """In NC..., asymmetric padding by hand."""
    dims = len(case["window"])
    before, after = case["padding"][:dims], case["padding"][dims:]
    pads = [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
    convolve = F.conv1d if dims == 1 else F.conv2d
    return convolve(
        F.pad(wide(x).double(), pads),
        wide(w).double(),
        stride=case["strides"],
        dilation=case["dilation"],
        groups=case["groups"],
    ).numpy()


def check_conv(case: dict[str, Any], operator: Callable[..., Any], spatial: str) -> None:
    x = random_array([case["batch"], case["channels"], *case["size"]], case["dtype"])
    per_group = case["channels"] // case["groups"]
    w = random_array([case["outputs"], per_group, *case["window"]], case["dtype"])
    data, kernel, out = case["layouts"]
    result = run(
        lambda a, b: operator(
            a,
            b,
            strides=case["strides"],
            padding=case["padding"],
            dilation=case["dilation"],
            groups=case["groups"],
            data_layout=data,
            kernel_layout=kernel,
            out_layout=out,
            out_dtype="int32" if case["dtype"] == "int8" else None,
        ),
        to_layout(x, "NC" + spatial, data),
        to_layout(w, "OI" + spatial, kernel),
    )
    expected = reference_conv(x, w, case)
    products = per_group * math.prod(case["window"])
    check(result, to_layout(expected, "NC" + spatial, out), scale=math.sqrt(products))


@settings(some, max_examples=250)
@given(convolutions(2))
def test_conv2d_with_any_stride_padding_dilation_groups_layout_and_dtype(
    case: dict[str, Any],
) -> None:
    check_conv(case, op.nn.conv2d, "HW")


@settings(some, max_examples=100)
@given(convolutions(1))
def test_conv1d_with_any_stride_padding_dilation_groups_layout_and_dtype(
    case: dict[str, Any],
) -> None:
    check_conv(case, op.nn.conv1d, "W")


@pytest.mark.parametrize("dtype", [*FLOATS, "int8"])
@pytest.mark.parametrize("outputs", [6, 12])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_conv2d_with_and_without_multiplier(
    dtype: str, outputs: int, stride: int
) -> None:
    case = {
        "batch": 2,
        "channels": 6,
        "outputs": outputs,
        "groups": 6,
        "window": [3, 3],
        "dilation": [1, 1],
        "padding": [1, 0, 2, 1],
        "strides": [stride, stride],
        "size": [15, 21],
        "dtype": dtype,
    }
    for layouts in LAYOUTS[2]:
        check_conv({**case, "layouts": layouts}, op.nn.conv2d, "HW")


def test_a_large_conv2d_spans_blocks_of_the_product_in_every_direction() -> None:
    case = {
        "batch": 1,
        "channels": 40,
        "outputs": 21,
        "groups": 1,
        "window": [3, 3],
        "dilation": [1, 1],
        "padding": [1, 1, 1, 1],
        "strides": [1, 1],
        "size": [23, 29],
        "layouts": LAYOUTS[2][0],
    }
    for dtype in (*FLOATS, "int8"):
        check_conv({**case, "dtype": dtype}, op.nn.conv2d, "HW")


def test_int8_products_are_exact_at_the_extremes() -> None:
    x = np.full((3, 5000), -128, "int8")
    result = run(lambda a, b: op.matmul(a, b, out_dtype="int32"), x, np.ascontiguousarray(x.T))
    check(result, np.full((3, 3), 5000 * 128 * 128))


def test_int8_conv_without_out_dtype_wraps_like_int8_sums() -> None:
    x, w = random_array((1, 8, 6, 6), "int8"), random_array((3, 8, 3, 3), "int8")
    expected = F.conv2d(wide(x).double(), wide(w).double()).long()
    check(run(op.nn.conv2d, x, w), expected.to(torch.int8))


# Matmul -------------------------------------------------------------------------------------------


@st.composite
def matmuls(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    m, n = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    k = draw(st.integers(1, 300))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    batches = []
    for _ in range(2):
        kept = [draw(st.sampled_from([1, d])) for d in batch]
        batches.append(kept[draw(st.integers(0, len(kept))) :])
    a, b = [*batches[0], m, k], [*batches[1], k, n]
    vectors = draw(st.sampled_from(["", "", "", "a", "b", "ab"]))
    return ([k] if "a" in vectors else a), ([k] if "b" in vectors else b)


@settings(some, max_examples=150)
@given(matmuls(), st.sampled_from([*FLOATS, "int8"]))
def test_matmul_broadcasts_batches_and_takes_vectors(
    shapes: tuple[list[int], list[int]], dtype: str
) -> None:
    a, b = random_array(shapes[0], dtype, 1), random_array(shapes[1], dtype, 2)
    out_dtype = "int32" if dtype == "int8" else None
    result = run(lambda x, y: op.matmul(x, y, out_dtype=out_dtype), a, b)
    check(result, np.matmul(wide(a).numpy(), wide(b).numpy()), scale=math.sqrt(a.shape[-1]))


@pytest.mark.parametrize("rows", [1, 2, 3, 17])
@pytest.mark.parametrize("dtype", [*FLOATS, "int8"])
def test_matmul_reads_a_permuted_weight(rows: int, dtype: str) -> None:
    a, w = random_array((rows, 130), dtype, 1), random_array((50, 130), dtype, 2)
    out_dtype = "int32" if dtype == "int8" else None
    result = run(lambda x, y: op.matmul(x, op.permute_dims(y), out_dtype=out_dtype), a, w)
    check(result, wide(a).numpy() @ wide(w).numpy().T, scale=10)


def test_float16_matmul_accumulates_into_float32_when_asked() -> None:
    a, b = random_array((5, 40), "float16", 1), random_array((40, 6), "float16", 2)
    result = run(lambda x, y: op.matmul(x, y, out_dtype="float32"), a, b)
    assert result.dtype == np.float32
    check(result, wide(a).numpy() @ wide(b).numpy())


# Pooling ------------------------------------------------------------------------------------------


@st.composite
def pools(draw: st.DrawFn) -> dict[str, Any]:
    window = [draw(st.integers(1, 4)) for _ in range(2)]
    return {
        "shape": [draw(st.integers(1, 2)), draw(st.integers(1, 20))]
        + [draw(st.integers(8, 17)) for _ in range(2)],
        "window": window,
        "strides": [draw(st.integers(1, 3)) for _ in range(2)],
        "padding": [draw(st.integers(0, k // 2)) for k in window],  # PyTorch has at most half
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": draw(st.sampled_from(["NCHW", "NHWC"])),
        "dtype": draw(st.sampled_from([*FLOATS, "int8"])),
    }


def run_pool(operator: Callable[..., Any], x: Array, case: dict[str, Any], **extra: Any) -> Array:
    layout = case["layout"]
    result = run(
        lambda a: operator(
            a,
            pool_size=case["window"],
            strides=case["strides"],
            padding=case["padding"],
            ceil_mode=case["ceil_mode"],
            layout=layout,
            **extra,
        ),
        to_layout(x, "NCHW", layout),
    )
    return to_layout(result, layout, "NCHW")


@settings(some, max_examples=120)
@given(pools(), st.integers(1, 2))
def test_max_pool2d(case: dict[str, Any], dilation: int) -> None:
    x = random_array(case["shape"], case["dtype"])
    result = run_pool(op.nn.max_pool2d, x, case, dilation=dilation)
    expected = F.max_pool2d(
        wide(x).double(),
        case["window"],
        case["strides"],
        case["padding"],
        dilation,
        case["ceil_mode"],
    )
    check(result, expected.numpy())


@settings(some, max_examples=120)
@given(pools())
def test_avg_pool2d(case: dict[str, Any]) -> None:
    x = random_array(case["shape"], case["dtype"])
    result = run_pool(op.nn.avg_pool2d, x, case, count_include_pad=case["count_include_pad"])
    expected = F.avg_pool2d(
        wide(x).double(),
        case["window"],
        case["strides"],
        case["padding"],
        case["ceil_mode"],
        case["count_include_pad"],
    ).numpy()
    # Integers: the exact quotient's integer part.  A hair is added before, for float64's rounding.
    check(result, np.trunc(expected + 1e-9 * np.sign(expected)) if x.dtype == np.int8 else expected)


def test_pooling_with_asymmetric_padding() -> None:
    x = random_array((2, 3, 9, 10), "float32")
    arguments = {"pool_size": (3, 2), "strides": (2, 2), "padding": (1, 0, 2, 1)}
    padded = F.pad(wide(x), (0, 1, 1, 2), value=-np.inf)
    result = run(lambda a: op.nn.max_pool2d(a, **arguments), x)
    check(result, F.max_pool2d(padded, (3, 2), (2, 2)).numpy())
    padded = F.pad(wide(x), (0, 1, 1, 2))
    result = run(lambda a: op.nn.avg_pool2d(a, count_include_pad=True, **arguments), x)
    check(result, F.avg_pool2d(padded, (3, 2), (2, 2)).numpy())


# Elementwise --------------------------------------------------------------------------------------

BINARY = {
    "add": (op.add, np.add),
    "subtract": (op.subtract, np.subtract),
    "multiply": (op.multiply, np.multiply),
    "divide": (op.divide, np.divide),
    "maximum": (op.maximum, np.maximum),
    "minimum": (op.minimum, np.minimum),
}


@st.composite
def broadcastable(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    shape = draw(st.lists(st.integers(1, 9), max_size=4))
    pair = []
    for _ in range(2):
        kept = [draw(st.sampled_from([1, d, d])) for d in shape]
        pair.append(kept[draw(st.integers(0, len(kept))) :])
    return pair[0], pair[1]


@pytest.mark.parametrize("name", BINARY)
@settings(some, max_examples=40)
@given(shapes=broadcastable(), dtype=st.sampled_from(NUMBERS))
def test_binary_ops_broadcast_and_integers_wrap(
    name: str, shapes: tuple[list[int], list[int]], dtype: str
) -> None:
    operator, reference = BINARY[name]
    a, b = random_array(shapes[0], dtype, 1), random_array(shapes[1], dtype, 2)
    if name == "divide" and dtype not in FLOATS:
        b = np.where(b == 0, 1, b).astype(dtype)
        x, y = np.broadcast_arrays(a.astype("int64"), b.astype("int64"))
        expected: Array = np.asarray(np.trunc(x / y)).astype(dtype)  # towards zero, as C does
    elif dtype in FLOATS:
        expected = reference(a.astype("float64"), b.astype("float64"))
        if dtype == "float16":
            expected = np.clip(expected, -65504, 65504)
    else:
        expected = reference(a, b)
    result = run(operator, a, b)
    check(np.clip(result, -65504, 65504) if dtype == "float16" else result, expected)


def test_integer_division_by_zero_and_overflow_do_not_stop_the_process() -> None:
    a = np.array([5, -(2**31)], "int32")
    check(run(op.divide, a, np.array([0, -1], "int32")), np.array([0, -(2**31)], "int32"))


UNARY = {
    "relu": (op.nn.relu, F.relu),
    "leakyrelu": (lambda x: op.nn.leakyrelu(x, 0.2), lambda x: F.leaky_relu(x, 0.2)),
    "clip": (lambda x: op.clip(x, -0.5, 1.25), lambda x: torch.clamp(x, -0.5, 1.25)),
    "relu6": (op.nn.relu6, F.relu6),
    "gelu": (op.nn.gelu, F.gelu),
    "gelu_tanh": (op.nn.gelu_tanh, lambda x: F.gelu(x, approximate="tanh")),
    "silu": (op.nn.silu, F.silu),
    "sigmoid": (op.sigmoid, torch.sigmoid),
    "tanh": (op.tanh, torch.tanh),
    "exp": (op.exp, torch.exp),
    "negative": (op.negative, torch.neg),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", UNARY)
def test_activations_over_their_whole_range(name: str, dtype: str) -> None:
    operator, reference = UNARY[name]
    x = np.concatenate([np.linspace(-10.9, 10.9, 4001), np.geomspace(1e-7, 1, 50)]).astype(dtype)
    check(run(operator, x), reference(wide(x)).numpy())


@pytest.mark.parametrize("dtype", FLOATS)
def test_sqrt(dtype: str) -> None:
    x = np.geomspace(1e-4, 6e4, 999).astype(dtype)
    check(run(op.sqrt, x), np.sqrt(x.astype("float64")))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_relu_clip_and_negative_of_integers(dtype: str) -> None:
    x = random_array((7, 11), dtype)
    check(run(op.nn.relu, x), np.maximum(x, 0))
    check(run(lambda a: op.clip(a, 3, 90), x), np.clip(x, 3, 90))
    check(run(lambda a: op.clip(a, -1e9, 1e30), x), x)
    check(run(op.negative, x), np.negative(x))


def test_activations_at_infinity_and_beyond_the_range_of_exp() -> None:
    x = np.array([np.inf, -np.inf, 1000, -1000, 88.7, -104, 0, -0.0], "float32")
    with np.errstate(over="ignore"):
        check(run(op.exp, x), np.exp(x), scale=1)
    check(run(op.sigmoid, x), torch.sigmoid(torch.from_numpy(x)).numpy())
    check(run(op.tanh, x), np.tanh(x))
    check(run(op.nn.gelu, x[2:]), F.gelu(torch.from_numpy(x[2:])).numpy())
    check(run(op.nn.relu, x), np.maximum(x, 0))


NAN_OPS = {
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, -1, 2),
    "sigmoid": op.sigmoid,
    "tanh": op.tanh,
    "exp": op.exp,
    "gelu": op.nn.gelu,
    "softmax": op.nn.softmax,
}


def host_result(body: Body, *arrays: Array) -> Array:
    builder = relax.BlockBuilder()
    variables = [
        relax.Var(f"x{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(*variables)))
        builder.emit_func_output(result)
    machine = relax.VirtualMachine(relax.build(builder.finalize(), "llvm"), tvm.cpu())
    return machine["main"](*[tvm.runtime.tensor(a) for a in arrays]).numpy()


@pytest.mark.parametrize("name", NAN_OPS)
def test_nan_becomes_what_tvm_makes_of_it(name: str) -> None:
    """TVM's host code is the reference here: its relu(NaN) is 0, where PyTorch's is NaN."""
    x = np.array([1, np.nan, -3, np.nan], "float32")
    check(run(NAN_OPS[name], x), host_result(NAN_OPS[name], x))


def test_maximum_of_nan_is_what_tvm_makes_of_it() -> None:
    a, b = np.array([1, np.nan, 2], "float32"), np.array([np.nan, 1, 1], "float32")
    check(run(op.maximum, a, b), host_result(op.maximum, a, b))
    check(run(op.minimum, a, b), host_result(op.minimum, a, b))


# Normalisation and means --------------------------------------------------------------------------


@st.composite
def with_axis(draw: st.DrawFn) -> tuple[list[int], int]:
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    shape[draw(st.integers(0, len(shape) - 1))] = draw(st.integers(1, 70))
    return shape, draw(st.integers(-len(shape), len(shape) - 1))


@some
@given(with_axis(), st.sampled_from(FLOATS), st.booleans())
def test_softmax_along_any_axis(case: tuple[list[int], int], dtype: str, log: bool) -> None:
    shape, axis = case
    x = random_array(shape, dtype) * np.array(4, dtype)
    if log:
        result = run(lambda a: op.nn.log_softmax(a, axis), x)
        check(result, torch.log_softmax(wide(x), axis).numpy())
    else:
        check(run(lambda a: op.nn.softmax(a, axis), x), torch.softmax(wide(x), axis).numpy())


@some
@given(with_axis(), st.sampled_from(FLOATS), st.booleans(), st.booleans(), st.booleans())
def test_batch_norm_gives_its_three_outputs(
    case: tuple[list[int], int], dtype: str, training: bool, scale: bool, center: bool
) -> None:
    shape, axis = case
    axis %= len(shape)
    x = random_array(shape, dtype)
    gamma, beta, mean = (random_array((shape[axis],), dtype, seed) for seed in (1, 2, 3))
    variance = np.abs(random_array((shape[axis],), dtype, 4)) + np.array(0.5, dtype)
    if training and x.size // shape[axis] < 4:
        return  # the variance of so few values divides by nearly nothing
    y, new_mean, new_variance = run_region(
        lambda *args: op.nn.batch_norm(
            *args, axis=axis, epsilon=1e-3, center=center, scale=scale, training=training
        ),
        *(x, gamma, beta, mean, variance),
    )
    shaped = [-1 if i == axis else 1 for i in range(len(shape))]
    wx, wg, wb, wm, wv = (a.astype("float64") for a in (x, gamma, beta, mean, variance))
    others = tuple(i for i in range(len(shape)) if i != axis)
    used_mean, used_variance = (wx.mean(others), wx.var(others)) if training else (wm, wv)
    expected = (wx - used_mean.reshape(shaped)) / np.sqrt(used_variance.reshape(shaped) + 1e-3)
    expected = expected * (wg.reshape(shaped) if scale else 1)
    check(y, expected + (wb.reshape(shaped) if center else 0), scale=10)
    check(new_mean, 0.9 * wm + 0.1 * used_mean if training else wm)
    check(new_variance, 0.9 * wv + 0.1 * used_variance if training else wv)


@some
@given(
    st.lists(st.integers(1, 7), min_size=2, max_size=4),
    st.data(),
    st.sampled_from(FLOATS),
)
def test_layer_norm_over_any_axes(shape: list[int], data: st.DataObject, dtype: str) -> None:
    count = data.draw(st.integers(1, len(shape)))
    axes = data.draw(st.permutations(range(len(shape))))[:count]
    dims = [shape[a] for a in axes]
    x, gamma, beta = (random_array(s, dtype, i) for i, s in enumerate((shape, dims, dims)))
    result = run(
        lambda *args: op.nn.layer_norm(*args, axes=list(axes), epsilon=1e-2), x, gamma, beta
    )
    rest = [i for i in range(len(shape)) if i not in axes]
    order = [*rest, *axes]
    moved = wide(x).permute(order)
    expected = F.layer_norm(moved, dims, wide(gamma), wide(beta), eps=1e-2)
    check(result, expected.permute(np.argsort(order).tolist()).numpy(), scale=10)


@some
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(FLOATS),
    st.booleans(),
)
def test_mean_over_any_axes(
    shape: list[int], data: st.DataObject, dtype: str, keepdims: bool
) -> None:
    axes = data.draw(st.none() | st.sets(st.integers(0, len(shape) - 1), min_size=1).map(list))
    x = random_array(shape, dtype)
    expected = x.astype("float64").mean(None if axes is None else tuple(axes), keepdims=keepdims)
    check(run(lambda a: op.mean(a, axes, keepdims), x), expected)


# Moving data --------------------------------------------------------------------------------------

MOVABLE = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64", "float64", "bool")


@some
@given(st.lists(st.integers(1, 35), min_size=1, max_size=4), st.data(), st.sampled_from(MOVABLE))
def test_permute_dims(shape: list[int], data: st.DataObject, dtype: str) -> None:
    axes = data.draw(st.none() | st.permutations(range(len(shape))))
    x = random_array(shape, "int32").astype(dtype)
    result = run(lambda a: op.permute_dims(a, axes), x)
    np.testing.assert_array_equal(result, x.transpose(axes))


@pytest.mark.parametrize("dtype", MOVABLE)
def test_shape_ops_on_any_type(dtype: str) -> None:
    x = random_array((2, 1, 3, 4), "int32").astype(dtype)
    for body, expected in (
        (lambda a: op.reshape(a, (4, 6)), x.reshape(4, 6)),
        (lambda a: op.reshape(a, (-1, 2)), x.reshape(-1, 2)),
        (op.flatten, x.reshape(-1)),
        (lambda a: op.squeeze(a, [1]), x.squeeze(1)),
        (op.squeeze, x.squeeze()),
        (lambda a: op.expand_dims(a, [0, -1]), x[None, ..., None]),
        (
            lambda a: op.reshape(op.permute_dims(a, [3, 0, 1, 2]), (8, 3)),
            x.transpose(3, 0, 1, 2).reshape(8, 3),
        ),
    ):
        np.testing.assert_array_equal(run(body, x), expected)


@some
@given(with_axis(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.sampled_from(MOVABLE))
def test_concat_along_any_axis(case: tuple[list[int], int], sizes: list[int], dtype: str) -> None:
    shape, axis = case
    arrays = []
    for i, size in enumerate(sizes):
        dims = list(shape)
        dims[axis] = size
        arrays.append(random_array(dims, "int32", i).astype(dtype))
    result = run(lambda *args: op.concat(list(args), axis), *arrays)
    np.testing.assert_array_equal(result, np.concatenate(arrays, axis))


# Quantization -------------------------------------------------------------------------------------


@st.composite
def quantizations(draw: st.DrawFn) -> tuple[Array, Array, int]:
    shape, axis = draw(with_axis())
    per_axis = draw(st.booleans())
    count = (shape[axis],) if per_axis else ()
    scale = random_array(count, "float32", 3)
    zero_point = np.random.default_rng(4).integers(-20, 20, count, "int8")
    return (
        random_array(shape, "float32") * np.float32(50),
        np.asarray(np.abs(scale) + 0.05, "float32"),
        np.asarray(zero_point),
        axis % len(shape),
    )


@some
@given(quantizations(), st.sampled_from(["int8", "uint8", "int16"]), st.sampled_from(FLOATS))
def test_quantize_rounds_half_to_even_and_clips(case: Any, out_dtype: str, dtype: str) -> None:
    x, scale, zero_point, axis = case
    x = x.astype(dtype)
    result = run(
        lambda a, s, z: op.quantize(a, s, z, axis=axis, out_dtype=out_dtype), x, scale, zero_point
    )
    shaped = [-1 if i == axis else 1 for i in range(x.ndim)] if scale.ndim else [1] * x.ndim
    # In float32, as the op is defined: in float64 quotients next to a half would round elsewhere.
    rounded = np.round(x.astype("float32") / scale.reshape(shaped)) + zero_point.reshape(shaped)
    info = np.iinfo(out_dtype)
    check(result, np.clip(rounded, info.min, info.max).astype(out_dtype))


def test_quantize_at_ties() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9], "float32")
    one, zero = np.array(1, "float32"), np.array(0, "int8")
    result = run(lambda a, s, z: op.quantize(a, s, z, axis=0, out_dtype="int8"), x, one, zero)
    check(result, np.array([0, 2, 2, 0, -2, 127, -128], "int8"))


@some
@given(
    quantizations(), st.sampled_from(["int8", "uint8", "int16", "int32"]), st.sampled_from(FLOATS)
)
def test_dequantize(case: Any, dtype: str, out_dtype: str) -> None:
    values, scale, zero_point, axis = case
    x = random_array(values.shape, dtype)
    result = run(
        lambda a, s, z: op.dequantize(a, s, z, axis=axis, out_dtype=out_dtype), x, scale, zero_point
    )
    shaped = [-1 if i == axis else 1 for i in range(x.ndim)] if scale.ndim else [1] * x.ndim
    zero_points = zero_point.reshape(shaped).astype("float64")
    check(result, (x.astype("float64") - zero_points) * scale.reshape(shaped).astype("float64"))


def test_an_int8_convolution_with_bias_relu_and_requantization_is_one_region() -> None:
    x, w = random_array((1, 8, 10, 10), "int8", 1), random_array((6, 8, 3, 3), "int8", 2)
    bias = random_array((1, 6, 1, 1), "int32", 3)
    scale, zero = np.array(0.01, "float32"), np.array(0, "int32")

    def body(a: Any, b: Any, c: Any, s: Any, z: Any) -> Any:
        sums = op.add(op.nn.conv2d(a, b, padding=1, out_dtype="int32"), c)
        return op.dequantize(op.nn.relu(sums), s, z, axis=1)

    sums = F.conv2d(wide(x).double(), wide(w).double(), padding=1).numpy() + bias
    check(run(body, x, w, bias, scale, zero), np.maximum(sums, 0) * float(scale))


# Fused and multi-node regions ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_residual_block_keeps_the_value_that_is_used_twice(dtype: str) -> None:
    x, w = random_array((1, 16, 9, 9), dtype, 1), random_array((16, 16, 3, 3), dtype, 2)
    bias = random_array((1, 16, 1, 1), dtype, 3)

    def body(a: Any, b: Any, c: Any) -> Any:
        first = op.nn.relu(op.add(op.nn.conv2d(a, b, padding=1), c))
        return op.nn.relu(op.add(op.nn.conv2d(first, b, padding=1), first))

    def reference(a: Any, b: Any, c: Any) -> Any:
        first = F.relu(F.conv2d(a, b, padding=1) + c)
        return F.relu(F.conv2d(first, b, padding=1) + first)

    check(run(body, x, w, bias), reference(wide(x), wide(w), wide(bias)).numpy(), scale=300)


def test_several_outputs_that_alias_each_other_are_all_right() -> None:
    x = random_array((4, 6), "float32")

    def body(a: Any) -> Any:
        y = op.nn.relu(a)
        flat = op.reshape(y, (24,))
        return relax.Tuple([y, flat, op.permute_dims(y), op.exp(flat), y])

    results = run_region(lambda a: relax.Tuple(list(body(a).fields)), x)
    y = np.maximum(x, 0)
    for result, expected in zip(
        results, (y, y.reshape(-1), y.T, np.exp(y.reshape(-1)), y), strict=True
    ):
        check(result, expected)


def test_a_square_transposed_in_place_of_its_own_output_is_right() -> None:
    x = random_array((8, 8), "float32")
    check(run(lambda a: op.permute_dims(op.nn.relu(a)), x), np.maximum(x, 0).T)


def test_inputs_are_never_written_to() -> None:
    x = random_array((32, 32), "float32")
    tensor = tvm.runtime.tensor(x)
    module = make_region(lambda a: op.nn.relu(op.negative(a)), [x])
    (out,) = outputs_of(module)
    module["region"](tensor, out)
    np.testing.assert_array_equal(tensor.numpy(), x)


def test_empty_tensors_are_no_problem() -> None:
    x = np.zeros((0, 5), "float32")
    assert run(op.nn.relu, x).shape == (0, 5)
    assert run(op.matmul, x, np.ones((5, 3), "float32")).shape == (0, 3)
    result = run(op.matmul, np.ones((2, 0), "float32"), np.ones((0, 3), "float32"))
    np.testing.assert_array_equal(result, np.zeros((2, 3)))


def test_record_mode_leaves_the_outputs_alone_and_has_a_schedule() -> None:
    x = random_array((4, 4), "float32")
    module = make_region(op.nn.relu, [x], {"mode": "record"})
    (out,) = outputs_of(module)
    module["region"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), np.full((4, 4), 77))
    assert json.loads(str(module["get_schedule"]()))["mode"] == "record"


# Symbolic shapes ----------------------------------------------------------------------------------


def dense_reference(x: Array, w: Array) -> Array:
    y = F.relu(wide(x) @ wide(w)).reshape(-1, 6, 8)
    return torch.softmax(y, 1).numpy()


@pytest.mark.parametrize("mode", ["simulate", "record"])
def test_symbolic_dimensions_take_the_shapes_of_each_call(mode: str) -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.TensorType((n, 64), "float32")
    w = relax.TensorType((64, 48), "float32")
    builder = relax.BlockBuilder()
    inner = [relax.Var("x", x), relax.Var("w", w)]
    with builder.function("composite", inner):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(op.matmul(*inner)))
            out = builder.emit_output(op.nn.softmax(builder.emit(op.reshape(y, (n, 6, 8))), 1))
        builder.emit_func_output(out)
    composite = builder.finalize()["composite"].without_attr("global_symbol")
    composite = composite.with_attr("Composite", "example_npu.test")
    module = make_module_of(composite, [x, w], {"mode": mode})
    weight = random_array((64, 48), "float32", 7)
    with pytest.raises(ValueError, match=r"symbolic shapes: call it before"):
        module["get_schedule"]()
    cycles = []
    for rows in (1, 3, 50, 3):
        a = random_array((rows, 64), "float32", rows)
        out = tvm.runtime.tensor(np.zeros((rows, 6, 8), "float32"))
        module["region"](tvm.runtime.tensor(a), tvm.runtime.tensor(weight), out)
        if mode == "simulate":
            check(out.numpy(), dense_reference(a, weight))
        cycles.append(json.loads(str(module["get_schedule"]()))["cycles"])
    assert cycles[0] < cycles[2]
    assert cycles[1] == cycles[3]
    wrong = tvm.runtime.tensor(np.zeros((4, 6, 8), "float32"))
    if mode == "simulate":
        with pytest.raises(ValueError, match=r"output 0 has shape \[3, 6, 8\].*has \[4, 6, 8\]"):
            module["region"](tvm.runtime.tensor(a), tvm.runtime.tensor(weight), wrong)
