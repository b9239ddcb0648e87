"""The builder of networks: what it makes of a region around the converters, and what it refuses."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt.converters import CONVERTERS, NARROW, Converter
from tvm_byoc_kit.backends.tensorrt.network import Network, build_network
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.graph import Call, Graph, Op, Shape, Value

trt = pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

from .harness import vendor  # noqa: E402 - it needs the vendor's package
from .oracle import interpret  # noqa: E402

X = Value("x", (2, 3), "float32")
FEED = np.arange(6, dtype="float32").reshape(2, 3) - 3


def value(name: str, like: Value = X, **fields: Any) -> Value:
    kept = {"shape": like.shape, "dtype": like.dtype} | fields
    return Value(name, **kept)


def graph(
    *ops: Op,
    inputs: tuple[Value, ...] = (X,),
    outputs: tuple[Value, ...] | None = None,
    symbols: Mapping[str, tuple[int, int]] | None = None,
) -> Graph:
    """A region of `ops` in one composite."""
    results = ops[-1].results if outputs is None else outputs
    calls = (Call("tensorrt.test", inputs, tuple(ops), results),)
    return Graph("region", "tensorrt", inputs, (), calls, results, symbols or {})


def network(region: Graph, precision: str = "fp32") -> Network:
    return build_network(region, vendor(), TensorRTOptions(precision=precision))


def run(net: Network, *feeds: np.ndarray) -> list[np.ndarray]:
    given = {binding.name: feeds[binding.argument] for binding in net.inputs}
    found = interpret(vendor().module, net.network, given)
    return [found[binding.name] for binding in net.outputs]


def layers(net: Network) -> list[str]:
    every = (net.network.get_layer(i) for i in range(net.network.num_layers))
    return [vendor().module.ILayer.type.fget(layer).name for layer in every]


def relu(operand: Value = X, name: str = "y") -> Op:
    return Op("relax.nn.relu", (operand,), {}, (value(name, operand),))


@pytest.fixture
def replace_relu(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Gives relu another converter."""

    def replace(convert: Any, widened: frozenset[str] = frozenset()) -> None:
        monkeypatch.setitem(CONVERTERS, "relax.nn.relu", Converter(convert, widened))

    return replace


# --- faults ---------------------------------------------------------------------------------------


def test_a_converter_that_gives_another_shape_is_found_out(replace_relu: Any) -> None:
    replace_relu(lambda net, _op, x: net.transpose(x, (1, 0)))
    with pytest.raises(byoc.ModelError) as caught:
        network(graph(relu()))
    assert str(caught.value) == (
        "region `region`, relax.nn.relu of x: float32[2, 3]: its converter gave float32[3, 2], "
        "expected float32[2, 3]; this is a fault of the backend"
    )


def test_a_converter_that_gives_another_dtype_is_found_out(replace_relu: Any) -> None:
    replace_relu(lambda net, _op, x: net.cast(x, net.dtype("float16")))
    with pytest.raises(byoc.ModelError, match=r"gave float16\[2, 3\], expected float32\[2, 3\]"):
        network(graph(relu()))


def test_a_converter_that_fixes_a_symbol_is_found_out(replace_relu: Any) -> None:
    replace_relu(lambda net, _op, x: net.reshape(x, (1, 3)))
    x = Value("x", ("n", 3), "float32")
    with pytest.raises(byoc.ModelError, match=r"gave float32\[1, 3\], expected float32\[n, 3\]"):
        network(graph(relu(x), inputs=(x,), symbols={"n": (0, 0)}))


def test_a_converter_that_gives_too_few_results_is_found_out(replace_relu: Any) -> None:
    replace_relu(lambda _net, _op, _x: ())
    with pytest.raises(byoc.ModelError, match="its converter gave 0 results, expected 1"):
        network(graph(relu()))


def test_what_the_vendor_refuses_is_told_with_its_own_words(replace_relu: Any) -> None:
    replace_relu(lambda net, _op, x: net.elementwise("SUM", x, np.ones((2, 4), "float32")))
    with pytest.raises(byoc.ModelError) as caught:
        network(graph(relu()))
    text = str(caught.value)
    assert text.startswith(
        "region `region`, relax.nn.relu of x: float32[2, 3]: "
        "tensorrt_rtx refuses the layer `elementwise`: "
    )
    assert "broadcast" in text.lower()


def test_an_operator_without_a_converter_is_named() -> None:
    op = Op("relax.nn.dropout", (X,), {}, (value("y"),))
    with pytest.raises(byoc.ModelError, match=r"`region`, relax\.nn\.dropout of .*no such operat"):
        network(graph(op))


def test_an_input_of_a_dtype_that_tensorrt_lacks_is_named() -> None:
    x = Value("x", (2,), "float64")
    with pytest.raises(byoc.ModelError, match=r"x: float64\[2\]"):
        network(graph(relu(x), inputs=(x,)))


def test_a_vendor_that_makes_no_networks_here_is_no_fault_of_the_model() -> None:
    def refuse(_logger: Any) -> None:
        raise TypeError("pybind11::init(): factory function returned nullptr")

    other = dataclasses.replace(vendor(), module=types.SimpleNamespace(Builder=refuse))
    with pytest.raises(byoc.BackendUnavailable, match=r"makes no builder: pybind11.*tensorrt-rtx"):
        build_network(graph(relu()), other, TensorRTOptions())


# --- inputs and outputs ---------------------------------------------------------------------------


def test_an_input_that_nothing_reads_is_no_input_of_the_engine() -> None:
    net = network(graph(relu(), inputs=(Value("unread", (7,), "float32"), X)))
    assert [(binding.name, binding.argument) for binding in net.inputs] == [("input_1", 1)]
    assert [(binding.name, binding.argument) for binding in net.outputs] == [("output_0", 2)]


def test_outputs_may_be_inputs_constants_and_each_other() -> None:
    one = Value("one", (1,), "float32", data=np.ones(1, "float32"))
    net = network(graph(relu(), outputs=(value("y"), X, value("y"), one)))
    assert [binding.argument for binding in net.outputs] == [1, 2, 3, 4]
    found = run(net, FEED)
    expected = np.maximum(FEED, 0)
    for array, wanted in zip(found, (expected, FEED, expected, np.ones(1)), strict=True):
        np.testing.assert_array_equal(array, wanted)


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp32"])
def test_inputs_and_outputs_keep_their_dtypes(precision: str) -> None:
    net = network(graph(relu()), precision)
    inner = {"fp16": ["CAST", "ACTIVATION", "CAST"], "bf16": ["CAST", "ACTIVATION", "CAST"]}
    assert layers(net) == inner.get(precision, ["ACTIVATION", "IDENTITY"])
    (found,) = run(net, FEED)
    np.testing.assert_array_equal(found, np.maximum(FEED, 0))


def test_what_several_ops_read_is_cast_once() -> None:
    first, second = relu(name="a"), relu(name="b")
    net = network(graph(first, second, outputs=(*first.results, *second.results)), "fp16")
    assert layers(net) == ["CAST", "ACTIVATION", "ACTIVATION", "CAST", "CAST"]


def test_an_op_computes_in_float32_where_its_converter_says_so(replace_relu: Any) -> None:
    seen: list[Any] = []

    def convert(net: Any, _op: Op, x: Any) -> Any:
        seen.append(x.dtype)
        return net.activation("RELU", x)

    replace_relu(convert, NARROW)
    x = Value("x", (2, 3), "float16")
    (found,) = run(network(graph(relu(x), inputs=(x,))), FEED.astype("float16"))
    assert seen == [trt.float32]
    assert found.dtype == np.float16


def test_between_ops_in_float32_nothing_is_narrowed() -> None:
    exp = Op("relax.exp", (X,), {}, (value("a"),))
    log = Op("relax.log", (value("a"),), {}, (value("b"),))
    net = network(graph(exp, log, relu(value("b"))), "fp16")
    assert layers(net) == ["UNARY", "UNARY", "CAST", "ACTIVATION", "CAST"]
    feed = np.full((2, 3), 16, "float32")  # whose exponential no half holds
    np.testing.assert_array_equal(run(net, feed)[0], feed)


# --- constants ------------------------------------------------------------------------------------


def plus(data: np.ndarray) -> Graph:
    constant = Value("c", data.shape, "float32", data=data)
    return graph(Op("relax.add", (X, constant), {}, (value("y"),)))


def test_weights_are_not_copied() -> None:
    data = np.ones((2, 3), "float32")
    data.flags.writeable = False
    (kept,) = network(plus(data)).weights
    assert np.shares_memory(kept, data)


def test_a_constant_that_is_read_twice_is_stored_once() -> None:
    constant = Value("c", (2, 3), "float32", data=np.ones((2, 3), "float32"))
    first = Op("relax.add", (X, constant), {}, (value("a"),))
    second = Op("relax.add", (value("a"), constant), {}, (value("b"),))
    net = network(graph(first, second), "fp16")
    assert layers(net).count("CONSTANT") == 1
    np.testing.assert_array_equal(run(net, FEED)[0], FEED + 2)


def test_weights_in_memory_of_another_order_are_taken_as_they_read() -> None:
    data = np.arange(6, dtype="float32").reshape(3, 2).T
    np.testing.assert_array_equal(run(network(plus(data)), FEED)[0], FEED + data)


@pytest.mark.parametrize(("precision", "most"), [("fp16", 65504.0), ("bf16", 3.3895314e38)])
def test_a_finite_constant_stays_finite_in_half(precision: str, most: float) -> None:
    lowest = np.finfo("float32").min
    data = np.array([[lowest, -lowest, 1], [-np.inf, np.inf, 2]], "float32")
    constant = Value("c", data.shape, "float32", data=data)
    op = Op("relax.multiply", (X, constant), {}, (value("y"),))
    feed = np.array([[0, 1, 1], [1, 1, 1]], "float32")
    (found,) = run(network(graph(op), precision), feed)
    np.testing.assert_allclose(found, [[0, most, 1], [-np.inf, np.inf, 2]])


# --- symbolic dimensions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        (("m", "n"), (6, 4)),
        (("n * 2", "m // 2"), (8, 3)),
        (("n + m + 2", "m - n"), (12, 2)),
        (("max(n, 3)", "min(m, 9)"), (4, 6)),
        (("(n * m) // 3", "(m % n) + 1"), (8, 3)),
        ((2, "n * m // 2"), (2, 12)),
    ],
)
def test_sizes_are_computed_from_the_inputs(
    replace_relu: Any, dims: tuple[int | str, ...], shape: tuple[int, ...]
) -> None:
    replace_relu(lambda net, op, x: net.reshape(x, op.results[0].shape))
    x = Value("x", ("n", "m"), "float32")
    op = Op("relax.nn.relu", (x,), {}, (Value("y", dims, "float32"),))
    net = network(graph(op, inputs=(x,), symbols={"n": (0, 0), "m": (0, 1)}))
    feed = np.arange(24, dtype="float32").reshape(4, 6)
    np.testing.assert_array_equal(run(net, feed)[0], feed.reshape(shape))


def test_a_size_that_no_tensor_has_is_named(replace_relu: Any) -> None:
    replace_relu(lambda net, op, x: net.reshape(x, op.operands[1].dims))
    held = Value("s", (2,), "int64", dims=("a", "b"))
    op = Op("relax.nn.relu", (X, Shape(("a", "b"))), {}, (value("y", shape=("a", "b")),))
    replace_relu(lambda net, op, x, _shape: net.reshape(x, op.results[0].shape))
    with pytest.raises(byoc.ModelError, match="the size `a` is that of no tensor"):
        network(graph(op, inputs=(X, held), symbols={"a": (1, 0), "b": (1, 1)}))


def test_a_shape_parameter_is_given_to_converters_as_a_shape(replace_relu: Any) -> None:
    seen: list[Any] = []

    def convert(net: Any, _op: Op, x: Any, shape: Shape) -> Any:
        seen.append(shape)
        return net.activation("RELU", x)

    replace_relu(convert)
    held = Value("s", (1,), "int64", dims=("n",))
    op = Op("relax.nn.relu", (X, held), {}, (value("y"),))
    net = network(graph(op, inputs=(X, held)))
    assert seen == [Shape(("n",))]
    assert [binding.value for binding in net.inputs] == [X]


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 3), (1, 2)])
def test_dimensions_of_one_come_and_go_beside_symbols(
    replace_relu: Any, axes: tuple[int, ...]
) -> None:
    replace_relu(lambda net, _op, x: net.squeeze(net.unsqueeze(x, axes), axes))
    x = Value("x", ("n", "m"), "float32")
    net = network(graph(relu(x), inputs=(x,), symbols={"n": (0, 0), "m": (0, 1)}))
    np.testing.assert_array_equal(run(net, FEED)[0], FEED)


# --- the way from Relax ---------------------------------------------------------------------------


def test_every_pattern_of_the_table_has_converters() -> None:
    from tvm_byoc_kit.backends.tensorrt.patterns import EXTENSIONS

    assert {f"relax.{name}" for name in EXTENSIONS} <= set(CONVERTERS)


def test_layers_are_named_after_the_values_of_the_region() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.softplus(x))
        builder.emit_func_output(y)
    from .harness import Subject

    net = Subject.of_module(builder.finalize()).network()
    named = [net.network.get_layer(i).name for i in range(net.network.num_layers)]
    assert all(name.startswith(("nn.softplus ", "output 0 ")) for name in named)
    assert len(set(named)) == len(named)
