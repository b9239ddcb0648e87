"""The example NPU's pattern table: what it matches, in which order, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.backend.pattern_registry import get_pattern, get_patterns_with_prefix

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends import example_npu

npu = pytest.mark.byoc("example_npu", step="runtime")
Body = Callable[..., Any]
Params = dict[str, tuple[tuple[Any, ...], str]]

IMAGE = ((1, 4, 8, 8), "float32")
SIGNAL = ((1, 4, 8), "float32")
MATRIX = ((2, 4), "float32")
KERNELS = {"conv2d": (8, 4, 3, 3), "conv1d": (8, 4, 3), "matmul": (4, 8)}
INPUTS = {"conv2d": IMAGE, "conv1d": SIGNAL, "matmul": MATRIX}
BIASES = {"conv2d": (8, 1, 1), "conv1d": (8, 1), "matmul": (8,)}
MAC: dict[str, Body] = {"conv2d": op.nn.conv2d, "conv1d": op.nn.conv1d, "matmul": op.matmul}
ACTIVATIONS: dict[str, Body] = {
    "relu": op.nn.relu,
    "clip": lambda x: op.clip(x, 0, 6),
    "gelu": op.nn.gelu,
    "sigmoid": op.sigmoid,
    "silu": op.nn.silu,
}
# Names that upstream gave to what the kit would call like the others.
UPSTREAM_NAMES = {"conv2d_relu": "conv2d_relu_fused", "matmul_relu": "matmul_relu_fused"}


def numbers(*shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(0).uniform(0.5, 1.5, shape), "float32")


def const(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(numbers(*shape), dtype)


def mac_body(mac: str, activation: str | None, biased: bool, swapped: bool = False) -> Body:
    def body(x: Any) -> Any:
        result = MAC[mac](x, const(*KERNELS[mac]))
        bias = const(*BIASES[mac])
        if biased:
            result = op.add(bias, result) if swapped else op.add(result, bias)
        return ACTIVATIONS[activation](result) if activation else result

    return body


def quantize(x: Any) -> Any:
    return op.quantize(x, const(), relax.const(np.int8(0)), axis=0, out_dtype="int8")


def dequantize(x: Any) -> Any:
    return op.dequantize(x, const(), relax.const(np.int8(0)), axis=0, out_dtype="float32")


def batch_norm(x: Any) -> Any:
    return relax.TupleGetItem(op.nn.batch_norm(x, *(const(4) for _ in range(4)), axis=1), 0)


PLAIN: dict[str, tuple[Params, Body]] = {
    name: ({"x": MATRIX}, body)
    for name, body in {
        "relu": op.nn.relu,
        "gelu": op.nn.gelu,
        "gelu_tanh": op.nn.gelu_tanh,
        "silu": op.nn.silu,
        "sigmoid": op.sigmoid,
        "tanh": op.tanh,
        "leakyrelu": op.nn.leakyrelu,
        "exp": op.exp,
        "sqrt": op.sqrt,
        "negative": op.negative,
        "softmax": op.nn.softmax,
        "log_softmax": op.nn.log_softmax,
        "clip": lambda x: op.clip(x, -1, 1),
        "add": lambda x: op.add(x, x),
        "subtract": lambda x: op.subtract(x, const(4)),
        "multiply": lambda x: op.multiply(x, x),
        "divide": lambda x: op.divide(x, const(2, 4)),
        "maximum": lambda x: op.maximum(x, const(4)),
        "minimum": lambda x: op.minimum(x, const(4)),
        "add_relu": lambda x: op.nn.relu(op.add(x, x)),
        "reshape": lambda x: op.reshape(x, (4, 2)),
        "flatten": op.flatten,
        "squeeze": lambda x: op.squeeze(op.erf(op.expand_dims(x, 0)), 0),
        "expand_dims": lambda x: op.expand_dims(x, 1),
        "permute_dims": op.permute_dims,
        "concat": lambda x: op.concat([x, x], axis=1),
        "mean": lambda x: op.mean(x, axis=1),
        "layer_norm": lambda x: op.nn.layer_norm(x, const(4), const(4), axes=-1),
        "quantize_affine": quantize,
    }.items()
}
PLAIN |= {
    "dequantize_affine": ({"x": ((2, 4), "int8")}, dequantize),
    "batch_norm": ({"x": IMAGE}, batch_norm),
    "max_pool2d": ({"x": IMAGE}, lambda x: op.nn.max_pool2d(x, (2, 2))),
    "avg_pool2d": ({"x": IMAGE}, lambda x: op.nn.avg_pool2d(x, (2, 2))),
    "depthwise_conv2d": ({"x": IMAGE}, lambda x: op.nn.conv2d(x, const(4, 1, 3, 3), groups=4)),
}
MACS: dict[str, tuple[Params, Body]] = {
    "_".join(filter(None, (mac, "bias" if biased else None, activation))): (
        {"x": INPUTS[mac]},
        mac_body(mac, activation, biased),
    )
    for mac in MAC
    for biased in (False, True)
    for activation in (None, *ACTIVATIONS)
}
TABLE = PLAIN | {UPSTREAM_NAMES.get(name, name): case for name, case in MACS.items()}
# Upstream's own that cannot be met: the first is the same as matmul, which comes before it; the
# others name one of three operands.
UNREACHABLE = {"dense", "quantize", "dequantize"}


def composites(mod: tvm.IRModule, **choices: Any) -> list[str]:
    coverage = byoc.partition(mod, "example_npu", **choices).coverage
    names = [name for region in coverage.regions for name in region.composites]
    return [name.removeprefix("example_npu.") for name in names]


def names() -> list[str]:
    return [pattern.name.removeprefix("example_npu.") for pattern in example_npu.patterns()]


@pytest.mark.parametrize("name", TABLE)
def test_every_pattern_matches_what_it_is_named_after(make_module: Any, name: str) -> None:
    params, body = TABLE[name]
    assert name in composites(make_module(params, body))


def test_every_pattern_of_the_table_is_tested() -> None:
    assert set(names()) == TABLE.keys() | UNREACHABLE


@pytest.mark.parametrize("mac", MAC)
@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
def test_a_bias_is_found_on_either_side(make_module: Any, mac: str, activation: str) -> None:
    mod = make_module({"x": INPUTS[mac]}, mac_body(mac, activation, biased=True, swapped=True))
    expected = f"{mac}_bias_{activation}" if activation else f"{mac}_bias"
    assert composites(mod) == [expected]


def test_fused_patterns_come_before_the_plain_ones_they_contain() -> None:
    order = {name: position for position, name in enumerate(names())}
    for name in TABLE:
        mac, _, rest = name.partition("_")
        if mac in MAC and rest:
            assert order[name] < order[mac]
        if mac in MAC and rest.startswith("bias_"):
            assert order[name] < order[f"{mac}_bias"]
    assert order["add_relu"] < min(order["add"], order["relu"])


def test_upstream_s_patterns_are_used_unchanged() -> None:
    patterns = {pattern.name: pattern for pattern in example_npu.patterns()}
    upstream = {
        "example_npu.conv2d_relu_fused",
        "example_npu.matmul",
        "example_npu.softmax",
        "example_npu.batch_norm",
    }
    for name in upstream:
        registered = get_pattern(name)
        assert patterns[name].pattern.same_as(registered.pattern)
        assert patterns[name].annotation_patterns.keys() == registered.annotation_patterns.keys()


def test_asking_twice_registers_nothing_twice() -> None:
    before = [pattern.name for pattern in get_patterns_with_prefix("example_npu.")]
    example_npu.patterns()
    example_npu.patterns()
    after = [pattern.name for pattern in get_patterns_with_prefix("example_npu.")]
    assert before == after
    assert len(after) == len(set(after))


def test_the_table_is_the_same_in_every_process(run_python: Any) -> None:
    script = """
from tvm_byoc_kit.native import without_torch
with without_torch():
    import tvm
from tvm_byoc_kit.backends import example_npu
print([pattern.name for pattern in example_npu.patterns()])
"""
    runs = {run_python(script, PYTHONHASHSEED=seed).stdout for seed in ("1", "2")}
    assert len(runs) == 1
    assert "conv2d" in runs.pop()


# The bias predicate


@pytest.mark.parametrize(
    ("shape", "is_bias"),
    [
        ((8, 1, 1), True),
        ((1, 8, 1, 1), True),
        ((), True),
        ((1,), True),
        ((1, 1, 1, 1), True),
        ((1, 8, 6, 6), False),
        ((6,), False),
        ((6, 1), False),
        ((8, 6, 6), False),
    ],
)
def test_only_one_value_per_channel_is_a_bias(
    make_module: Any, shape: tuple[int, ...], is_bias: bool
) -> None:
    mod = make_module(
        {"x": IMAGE}, lambda x: op.add(op.nn.conv2d(x, const(8, 4, 3, 3)), const(*shape))
    )
    assert composites(mod) == (["conv2d_bias"] if is_bias else ["conv2d", "add"])


def test_the_channel_of_nhwc_is_the_last_axis(make_module: Any) -> None:
    def body(x: Any) -> Any:
        layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        return op.add(op.nn.conv2d(x, const(3, 3, 4, 8), **layout), const(8))

    assert composites(make_module({"x": ((1, 8, 8, 4), "float32")}, body)) == ["conv2d_bias"]


def test_a_residual_is_added_and_rectified_in_one_composite(make_module: Any) -> None:
    def body(x: Any, residual: Any) -> Any:
        return op.nn.relu(op.add(op.nn.conv2d(x, const(8, 4, 3, 3)), residual))

    mod = make_module({"x": IMAGE, "residual": ((1, 8, 6, 6), "float32")}, body)
    assert composites(mod) == ["conv2d", "add_relu"]


def test_a_symbolic_batch_does_not_hide_the_bias(make_module: Any) -> None:
    mod = make_module(
        {"x": (("n", 4), "float32")}, lambda x: op.add(op.matmul(x, const(4, 8)), const(8))
    )
    assert composites(mod) == ["matmul_bias"]


def test_an_addend_of_symbolic_size_is_no_bias(make_module: Any) -> None:
    mod = make_module(
        {"x": ((2, 4), "float32"), "w": ((4, "n"), "float32"), "b": (("n",), "float32")},
        lambda x, w, b: op.add(op.matmul(x, w), b),
    )
    assert composites(mod) == ["matmul", "add"]


@npu
@pytest.mark.parametrize("addend", [(), (1,), (8,)])
def test_a_product_of_vectors_has_no_channel(make_module: Any, addend: tuple[int, ...]) -> None:
    mod = make_module(
        {"x": ((4,), "float32")}, lambda x: op.add(op.matmul(x, const(4)), const(*addend))
    )
    x = np.arange(4, dtype="float32")
    expected = x @ numbers(4) + numbers(*addend)
    np.testing.assert_allclose(byoc.compile(mod, "example_npu")(x), expected, rtol=1e-5)


@npu
def test_an_addend_that_makes_the_result_larger_is_right(make_module: Any) -> None:
    mod = make_module(
        {"x": MATRIX}, lambda x: op.nn.relu(op.add(op.matmul(x, const(4, 8)), const(8, 1, 1)))
    )
    x = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    expected = np.maximum(x @ numbers(4, 8) + numbers(8, 1, 1), 0)
    got = byoc.compile(mod, "example_npu")(x)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@npu
def test_a_value_that_is_used_again_is_not_lost_in_a_fusion(make_module: Any) -> None:
    def body(x: Any) -> Any:
        product = op.matmul(x, const(4, 8))
        biased = op.add(product, const(8))
        return op.nn.relu(biased), op.tanh(product), op.sigmoid(biased)

    x = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    product = x @ numbers(4, 8)
    biased = product + numbers(8)
    expected = np.maximum(biased, 0), np.tanh(product), 1 / (1 + np.exp(-biased))
    got = byoc.compile(make_module({"x": MATRIX}, body), "example_npu")(x)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


# Dtypes, layouts and shapes that the NPU does not have

SHAPE_OPS = ("reshape", "flatten", "squeeze", "expand_dims", "permute_dims", "concat")


@pytest.mark.parametrize("dtype", ["float64", "int64", "bool", "bfloat16", "int16"])
@pytest.mark.parametrize("name", SHAPE_OPS)
def test_dtypes_that_the_npu_lacks_stay_on_the_host(
    make_module: Any, name: str, dtype: str
) -> None:
    if name == "squeeze":
        mod = make_module({"x": ((1, 2, 4), dtype)}, lambda x: op.squeeze(x, 0))
    else:
        mod = make_module({"x": ((2, 4), dtype)}, PLAIN[name][1])
    assert composites(mod) == []


@pytest.mark.parametrize("dtype", ["float64", "int64"])
@pytest.mark.parametrize("name", ["add", "multiply", "relu", "clip"])
def test_wide_arithmetic_stays_on_the_host(make_module: Any, name: str, dtype: str) -> None:
    assert composites(make_module({"x": ((2, 4), dtype)}, PLAIN[name][1])) == []


def test_a_mean_of_integers_stays_on_the_host(make_module: Any) -> None:
    assert composites(make_module({"x": ((2, 4), "int32")}, PLAIN["mean"][1])) == []


def test_a_wide_product_takes_its_bias_and_activation_along(make_module: Any) -> None:
    def body(x: Any) -> Any:
        product = op.matmul(x, const(4, 8, dtype="float64"))
        return op.nn.relu(op.add(product, const(8, dtype="float64")))

    assert composites(make_module({"x": ((2, 4), "float64")}, body)) == []


def test_one_operand_of_another_dtype_keeps_an_op_on_the_host(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.dequantize(x, const(), relax.const(np.int16(0)), out_dtype="float32")

    assert composites(make_module({"x": ((2, 4), "int8")}, body)) == []


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("name", ["conv2d_bias_relu", "matmul_bias", "add", "mean", "concat"])
def test_half_and_single_precision_are_offloaded(make_module: Any, name: str, dtype: str) -> None:
    params, body = TABLE[name]
    if dtype == "float16":
        mod = relax.transform.ToMixedPrecision("float16")(make_module(params, body))
        params = {key: (shape, dtype) for key, (shape, _) in params.items()}
    else:
        mod = make_module(params, body)
    assert composites(mod)


def test_int8_with_int32_sums_is_offloaded(make_module: Any) -> None:
    def body(x: Any) -> Any:
        weight = relax.const(np.ones((8, 4, 3, 3), "int8"))
        return op.nn.conv2d(x, weight, out_dtype="int32")

    assert composites(make_module({"x": ((1, 4, 8, 8), "int8")}, body)) == ["conv2d"]


@npu
@pytest.mark.parametrize(
    ("operand", "result"),
    [("int32", "int32"), ("uint8", "uint8"), ("int8", "int32"), ("uint8", "int32")],
)
@pytest.mark.parametrize("mac", MAC)
def test_a_product_of_integers_that_the_npu_lacks_stays_on_the_host(
    make_module: Any, mac: str, operand: str, result: str
) -> None:
    shape = INPUTS[mac][0]
    weight = np.random.default_rng(0).integers(0, 3, KERNELS[mac])

    def body(x: Any) -> Any:
        return MAC[mac](x, relax.const(weight, operand), out_dtype=result)

    mod = make_module({"x": (shape, operand)}, body)
    assert composites(mod) == ([mac] if operand != result else [])
    x = np.random.default_rng(1).integers(0, 3, shape).astype(operand)
    found = byoc.compile(mod, "example_npu")(x)
    np.testing.assert_array_equal(found, byoc.compile(mod, "llvm")(x))


def test_dequantizing_what_is_floating_point_already_stays_on_the_host(make_module: Any) -> None:
    assert composites(make_module({"x": MATRIX}, dequantize)) == []


def test_a_blocked_layout_stays_on_the_host(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.nn.max_pool2d(x, (2, 2), layout="NCHW4c")

    assert composites(make_module({"x": ((1, 1, 8, 8, 4), "float32")}, body)) == []


def test_a_shape_that_is_not_known_stays_on_the_host() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=2))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.nn.relu(x))
        builder.emit_func_output(result)
    fused = relax.transform.FuseOpsByPattern(example_npu.BACKEND.guarded_patterns())(
        builder.finalize()
    )
    assert len(fused.get_global_vars()) == 1


@npu
def test_a_tuple_that_is_no_list_of_tensors_is_right(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.nn.relu(op.concat(op.split(x, 2, axis=1), axis=0))

    mod = make_module({"x": MATRIX}, body)
    x = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    expected = np.maximum(np.concatenate(np.split(x, 2, axis=1), axis=0), 0)
    np.testing.assert_array_equal(byoc.compile(mod, "example_npu")(x), expected)


@npu
def test_a_reshape_to_a_symbolic_shape_is_right() -> None:
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            flat = builder.emit(op.reshape(x, (n * 2, 2)))
            result = builder.emit_output(op.nn.relu(flat))
        builder.emit_func_output(result)
    exe = byoc.compile(builder.finalize(), "example_npu")
    for size in (1, 3):
        value = np.random.default_rng(size).standard_normal((size, 4), dtype=np.float32)
        np.testing.assert_array_equal(exe(value), np.maximum(value.reshape(size * 2, 2), 0))


@npu
@pytest.mark.parametrize("offloaded", [False, True])
def test_a_number_as_operand_is_right(make_module: Any, offloaded: bool) -> None:
    two = tvm.tirx.FloatImm("float32", 2.0)

    def body(x: Any) -> Any:
        return op.maximum(op.add(op.matmul(x, const(4, 8)) if offloaded else x, two), two)

    x = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    expected = np.maximum((x @ numbers(4, 8) if offloaded else x) + 2, 2)
    mod = make_module({"x": MATRIX}, body)
    assert composites(mod) == (["matmul"] if offloaded else [])
    np.testing.assert_allclose(byoc.compile(mod, "example_npu")(x), expected, rtol=1e-5)


def test_a_limit_that_is_known_only_at_run_time_stays_on_the_host() -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    call = relax.BlockBuilder().normalize(op.clip(x, 0, n))
    assert example_npu.refusal(call) == "relax.clip: operand 2 is known only when the model runs"


def test_a_reason_names_the_op_and_what_there_is() -> None:
    x = relax.Var("x", relax.TensorType((2, 4), "float64"))
    call = relax.BlockBuilder().normalize(op.tanh(x))
    assert example_npu.refusal(call) == (
        "relax.tanh: operand 0 is float64; the NPU has float16, float32"
    )
    y = relax.Var("y", relax.TensorType((2, 4), "float32"))
    assert example_npu.refusal(relax.BlockBuilder().normalize(op.tanh(y))) is None
