"""A region as dataclasses says the same as the JSON graph that the C++ codegen makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.graph import Call, Graph, Operand, Shape, Value, evaluate, read_graph

pytestmark = pytest.mark.byoc("example_npu", step="codegen")
Params = dict[str, tuple[tuple[Any, ...], str]]


def regions_of(mod: tvm.IRModule) -> list[relax.Function]:
    """Regions with their symbols, as codegens get them."""
    return [
        function.with_attr("global_symbol", var.name_hint)
        for var, function in mod.functions_items()
        if function.attrs and "Codegen" in function.attrs
    ]


def only_region(mod: tvm.IRModule, backend: Any = "example_npu", **choices: Any) -> Graph:
    (region,) = regions_of(byoc.partition(mod, backend, **choices).mod)
    return read_graph(region)


def constant_names(region: relax.Function) -> dict[Any, str]:
    """Names for the constants, as RunCodegen gives them."""
    found: dict[Any, str] = {}

    def look(expr: Any) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found.setdefault(expr, f"the_constant_{len(found)}")

    relax.analysis.post_order_visit(region, look)
    return found


# The JSON form, made from each side


def sizes(shape: tuple[Any, ...]) -> list[int]:
    return [dim if isinstance(dim, int) else -1 for dim in shape]


def plain(value: Any) -> Any:
    """An attribute as the JSON form has it: no booleans, nothing unset, no tuples."""
    if value is None:
        return ""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, bool) else value


class JsonForm:
    """The nodes of a graph, kernels' inputs resolved to the nodes' outputs that they are."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.places: dict[Value, list[int]] = {}
        for value in graph.inputs:
            self.add_leaf("input", value)
        for call in graph.calls:
            for value in graph.constants:
                if value in call.inputs and value not in self.places:
                    self.add_leaf("const", value)
            self.add_kernel(call)
        for value in graph.outputs:
            if value not in self.places:
                self.add_leaf("const", value)
        self.heads = [self.places[value] for value in graph.outputs]

    def add_leaf(self, op: str, value: Value) -> None:
        attrs: dict[str, Any] = {"shape": [sizes(value.shape)], "dtype": [value.dtype]}
        if value.dims is not None:
            attrs["is_shape"] = 1
        self.places[value] = [len(self.nodes), 0]
        self.nodes.append({"op": op, "name": value.name, "attrs": attrs})

    def add_kernel(self, call: Call) -> None:
        inner: dict[Value, list[Any]] = {}
        ops = []
        for k, each in enumerate(call.ops):
            attrs = {key: plain(value) for key, value in each.attrs.items()}
            args = [self.operand(item, inner) for item in each.operands]
            ops.append({"op": each.name, "args": args, "attrs": attrs, **tensors(each.results)})
            inner |= {value: ["op", k, i] for i, value in enumerate(each.results)}
        inputs = [self.places[value] for value in call.inputs]
        results = [self.operand(value, inner) for value in call.results]
        self.places |= {value: [len(self.nodes), i] for i, value in enumerate(call.results)}
        names = {"op": "kernel", "name": call.name}
        parts = {"inputs": inputs, "ops": ops, "results": results}
        self.nodes.append({**names, **parts, **tensors(call.results)})

    def operand(self, value: Operand, inner: dict[Value, list[Any]]) -> Any:
        if isinstance(value, Value):
            return inner.get(value) or ["outside", *self.places[value]]
        if isinstance(value, tuple):
            return {"tuple": [self.operand(item, inner) for item in value]}
        return {"shape": sizes(value.dims)} if isinstance(value, Shape) else {"value": value}


def tensors(values: tuple[Value, ...]) -> dict[str, Any]:
    shapes = [sizes(value.shape) for value in values]
    return {"shape": shapes, "dtype": [value.dtype for value in values]}


def resolved(graph: dict[str, Any]) -> list[dict[str, Any]]:
    """What the C++ codegen made, in the same words."""
    return [resolved_kernel(node) if node["op"] == "kernel" else node for node in graph["nodes"]]


def resolved_kernel(node: dict[str, Any]) -> dict[str, Any]:
    attrs, inputs = node["attrs"], [entry[:2] for entry in node.get("inputs", [])]

    def operand(arg: Any) -> Any:
        if isinstance(arg, dict):
            return {"tuple": [operand(i) for i in arg["tuple"]]} if "tuple" in arg else arg
        value, output = arg
        if value < len(inputs):
            return ["outside", *inputs[value]]
        return ["op", value - len(inputs), output]

    return {
        "op": "kernel",
        "name": node["name"],
        "inputs": inputs,
        "ops": [each | {"args": [operand(arg) for arg in each["args"]]} for each in attrs["ops"]],
        "results": [operand(result) for result in attrs["results"]],
        "shape": attrs["shape"],
        "dtype": attrs["dtype"],
    }


def check_against_cpp(mod: tvm.IRModule, **choices: Any) -> list[Graph]:
    graphs = []
    for region in regions_of(byoc.partition(mod, "example_npu", **choices).mod):
        names = constant_names(region)
        (module,) = tvm.get_global_func("relax.ext.example_npu")([region], {}, names)
        graph = read_graph(region, names)
        expected = json.loads(str(module["get_graph"]()))
        check_form(graph)
        form = JsonForm(graph)
        for node, var in zip(form.nodes, region.params, strict=False):
            check_name(node, [param.name for param in region.params], var.name)
        assert form.nodes == resolved(expected)
        assert form.heads == [head[:2] for head in expected["heads"]]
        assert [value.name for value in graph.constants] == list(module["get_const_vars"]())
        assert graph.name == module["get_symbol"]()
        graphs.append(graph)
    return graphs


def check_name(node: dict[str, Any], names: list[str], name: str) -> None:
    """Give an input's node TVM's name, which is another only where TVM uses it twice."""
    if node["name"] != name:
        assert names.count(name) > 1
        assert re.fullmatch(rf"{name}_\d+", node["name"])
        node["name"] = name


def check_form(graph: Graph) -> None:
    """What is true of every graph: names are unique, and what is read was there before."""
    known = {value.name: value for value in (*graph.inputs, *graph.constants)}
    assert len(known) == len(graph.inputs) + len(graph.constants)
    for call in graph.calls:
        assert all(known[value.name] is value for value in call.inputs)
        assert set(call.operands) == set(call.inputs)
        for each in call.ops:
            for value in filter(lambda o: isinstance(o, Value), each.operands):
                assert known[value.name] is value
            for value in each.results:
                assert value.name not in known
                known[value.name] = value
        assert all(known[value.name] is value for value in call.results)
    assert all(known[value.name] is value for value in graph.outputs)


# Many modules


def weight(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(np.arange(np.prod(shape)).reshape(shape) % 7, dtype)


SHARED = weight(4, 4)
X: Params = {"x": ((2, 4), "float32")}
IMAGE: Params = {"x": ((1, 4, 9, 9), "float32")}
BATCH: Params = {"x": (("n", 4), "float32"), "y": (("n", 4), "float32")}


def reshaped(x: Any) -> Any:
    return op.reshape(x, (x.ty.shape[0] * 2, 2))


MODULES: dict[str, tuple[Params, Callable[..., Any]]] = {
    "conv2d": (
        IMAGE,
        lambda x: op.nn.conv2d(
            x, weight(8, 2, 3, 3), strides=(2, 1), padding=(0, 1, 2, 3), dilation=(1, 2), groups=2
        ),
    ),
    "conv2d bias relu": (
        IMAGE,
        lambda x: op.nn.relu(op.add(op.nn.conv2d(x, weight(8, 4, 3, 3)), weight(1, 8, 1, 1))),
    ),
    "conv1d": ({"x": ((1, 4, 9), "float32")}, lambda x: op.nn.conv1d(x, weight(8, 4, 3))),
    "matmul to int32": (
        {"x": ((2, 4), "int8")},
        lambda x: op.matmul(x, weight(4, 3, dtype="int8"), out_dtype="int32"),
    ),
    "max_pool2d": (IMAGE, lambda x: op.nn.max_pool2d(x, (3, 2), strides=(2, 1), ceil_mode=True)),
    "avg_pool2d": (IMAGE, lambda x: op.nn.avg_pool2d(x, (2, 2), count_include_pad=True)),
    "softmax": (X, lambda x: op.nn.softmax(x, axis=-2)),
    "leakyrelu": (X, lambda x: op.nn.leakyrelu(x, 0.1)),
    "layer_norm": (X, lambda x: op.nn.layer_norm(x, weight(4), weight(4), axes=[-1], epsilon=0.1)),
    "mean": (X, lambda x: op.mean(x, axis=[0, -1], keepdims=True)),
    "mean of all": (X, op.mean),
    "concat": (X, lambda x: op.concat([x, op.tanh(x), x], axis=-1)),
    "permute_dims": (X, lambda x: op.permute_dims(x, [1, 0])),
    "permute_dims without axes": (X, op.permute_dims),
    "expand_dims": (X, lambda x: op.expand_dims(x, [0, 2])),
    "quantize": (
        X,
        lambda x: op.quantize(x, relax.const(0.5, "float32"), relax.const(1, "int8"), axis=0),
    ),
    "clip": (X, lambda x: op.clip(x, -1.5, 6)),
    "the same operand twice": (X, lambda x: op.add(x, x)),
    "one constant read twice": (
        X,
        lambda x: op.matmul(op.nn.relu(op.matmul(x, SHARED)), SHARED),
    ),
    "several outputs": (X, lambda x: (op.tanh(x), op.nn.relu(x), op.tanh(x))),
    "symbolic": (BATCH, lambda x, y: (op.add(x, y), op.matmul(x, weight(4, 3)))),
    "symbolic reshape": (BATCH, lambda x, y: (reshaped(x), op.nn.relu(y))),
    "symbols of one name": (
        {"x": (("n", 4), "float32"), "y": ((3, "m"), "float32")},
        lambda x, y: (op.tanh(x), op.tanh(y)),
    ),
}


@pytest.mark.parametrize("choices", [{}, {"bind_constants": True}, {"annotate_codegen": True}])
@pytest.mark.parametrize("name", MODULES)
def test_it_is_the_cpp_graph(make_module: Any, name: str, choices: dict[str, bool]) -> None:
    params, body = MODULES[name]
    assert check_against_cpp(make_module(params, body), **choices)


def test_it_is_the_cpp_graph_of_a_real_model() -> None:
    digits = Path(byoc.__file__).parent / "data" / "digits.onnx"
    model = byoc.prepare(byoc.load_model(digits), "example_npu")
    for choices in ({}, {"bind_constants": True}, {"annotate_codegen": True}):
        assert check_against_cpp(model.mod, **choices)


# Each takes two values of shape (n, 4, 6, 6) and gives one.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda x, _: op.nn.relu(x),
    "tanh": lambda x, _: op.tanh(x),
    "add": op.add,
    "multiply": op.multiply,
    "constant": lambda x, _: op.add(x, weight(1, 4, 1, 1)),
    "conv": lambda x, _: op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1),
    "conv_relu": lambda x, _: op.nn.relu(op.nn.conv2d(x, weight(4, 4, 1, 1))),
    "conv_bias": lambda x, _: op.add(op.nn.conv2d(x, weight(4, 4, 1, 1)), weight(1, 4, 1, 1)),
    "pool": lambda x, _: op.nn.max_pool2d(x, (3, 3), padding=1),
    "softmax": lambda x, _: op.nn.softmax(x, axis=1),
    "join": lambda x, y: op.nn.conv2d(op.concat([x, y], axis=1), weight(4, 8, 1, 1)),
    "clip": lambda x, _: op.clip(x, 0, 6),
    "erf": lambda x, _: op.erf(x),  # stays on the host
}


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 99), st.integers(0, 99)),
        min_size=1,
        max_size=8,
    ),
    batch=st.sampled_from([1, "n"]),
    outputs=st.integers(1, 3),
    bind=st.booleans(),
    annotate=st.booleans(),
)
def test_it_is_the_cpp_graph_of_any_network(
    make_module: Any, *, steps: Any, batch: Any, outputs: int, bind: bool, annotate: bool
) -> None:
    def body(x: Any, y: Any) -> Any:
        builder = relax.BlockBuilder.current()
        values = [x, y]
        for name, left, right in steps:
            operands = values[left % len(values)], values[right % len(values)]
            values.append(builder.emit(STEPS[name](*operands)))
        return tuple(values[-outputs:])

    params: Params = dict.fromkeys("xy", ((batch, 4, 6, 6), "float32"))
    mod = make_module(params, body)
    check_against_cpp(mod, bind_constants=bind, annotate_codegen=annotate)


# What the C++ form has not


def test_a_constant_is_a_read_only_view_of_its_elements(make_module: Any) -> None:
    elements = np.arange(12, dtype="float32").reshape(4, 3)
    constant = relax.const(elements)
    graph = only_region(
        make_module(X, lambda x: op.matmul(x, constant)), "example_npu", bind_constants=True
    )
    (value,) = graph.constants
    assert value.data is not None
    np.testing.assert_array_equal(value.data, elements)
    assert value.data.ctypes.data == np.from_dlpack(constant.value).ctypes.data
    with pytest.raises(ValueError, match="read-only"):
        value.data[0, 0] = 1


def test_the_data_of_a_constant_outlives_the_module(make_module: Any) -> None:
    graph = only_region(
        make_module(X, lambda x: op.matmul(x, weight(4, 3))), "example_npu", bind_constants=True
    )
    np.testing.assert_array_equal(graph.constants[0].data, weight(4, 3).value.numpy())


EVERYTHING = byoc.Backend(
    "everything",
    "takes what it is given",
    patterns=[
        (name, [f"relax.{name}"])
        for name in (
            "reshape",
            "split",
            "concat",
            "strided_slice",
            "full",
            "astype",
            "layout_transform",
            "tanh",
            "nn.batch_norm",
            "topk",
        )
    ],
    codegen=lambda graph, options: b"",  # noqa: ARG005
)


def ops_of(mod: tvm.IRModule, **choices: Any) -> dict[str, Any]:
    regions = regions_of(byoc.partition(mod, EVERYTHING, **choices).mod)
    return {each.name: each for region in regions for each in read_graph(region).ops}


def test_symbolic_dimensions_are_expressions(make_module: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        n, m = x.ty.shape[0], y.ty.shape[0]
        joined = op.tanh(op.concat([x, y], axis=0))
        return op.reshape(joined, (n * 4 + m * 4,))

    graph = only_region(
        make_module({"x": (("n", 4), "float32"), "y": (("m", 4), "float32")}, body), EVERYTHING
    )
    x, y, *given = graph.inputs  # TVM gives the symbols too, since `n + m` does not tell them
    assert (x.shape, y.shape) == (("n", 4), ("m", 4))
    (target,) = (value for value in given if value.shape == (1,))
    assert target.dims is not None
    sizes = {"n": 3, "m": 4}
    assert [evaluate(dim, sizes) for dim in target.dims] == [28]
    shapes = {each.name: each.results[0].shape for each in graph.ops}
    assert [evaluate(dim, sizes) for dim in shapes["relax.concat"]] == [7, 4]
    assert [evaluate(dim, sizes) for dim in shapes["relax.reshape"]] == [28]
    assert graph.symbols == {"n": (0, 0), "m": (1, 0)}


def test_two_symbols_of_one_name_stay_two() -> None:
    n, other = (tvm.tirx.Var("n", "int64") for _ in range(2))
    builder = relax.BlockBuilder()
    x, y = (relax.Var(v, relax.TensorType((d, 4), "float32")) for v, d in (("x", n), ("y", other)))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(op.concat([x, y], axis=0)))
        builder.emit_func_output(out)
    graph = only_region(builder.finalize(), EVERYTHING)
    assert graph.symbols == {"n": (0, 0), "n_1": (1, 0)}
    assert graph.outputs[0].shape == ("n + n_1", 4)
    assert evaluate("n + n_1", {"n": 1, "n_1": 2}) == 3


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda n: n // 2 + n % 3, 7),
        (lambda n: (n + 7) // 8 * 8, 16),
        (lambda n: n - (n - 1) * 2, -11),
        (lambda n: tvm.tirx.max(n, 20) - tvm.tirx.min(n, 5), 15),
    ],
)
def test_an_expression_can_be_evaluated(make: Any, expected: int) -> None:
    n = tvm.tirx.Var("n", "int64")
    dim = make(n)
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    y = relax.Var("y", relax.TensorType((dim, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            out = builder.emit_output(builder.normalize(op.tanh(y)))
        builder.emit_func_output(builder.normalize(relax.Tuple([out, x])))
    graph = only_region(builder.finalize(), EVERYTHING)
    assert evaluate(graph.outputs[0].shape[0], {"n": 13}) == expected


def test_operands_that_are_no_tensors(make_module: Any) -> None:
    def body(x: Any) -> Any:
        cut = op.strided_slice(x, axes=[1], begin=[0], end=[2], strides=[2])
        return op.tanh(cut), op.full((2, 3), relax.const(1.0), "float16")

    ops = ops_of(make_module(X, body), bind_constants=True)
    assert ops["relax.strided_slice"].operands[1:] == ((1,), (0,), (2,), (2,))
    assert ops["relax.full"].operands[0] == Shape((2, 3))
    assert ops["relax.full"].attrs == {"dtype": "float16"}


def test_attributes_are_plain_values(make_module: Any) -> None:
    attrs = ops_of(make_module(X, lambda x: op.astype(op.tanh(x), "float16")))["relax.astype"].attrs
    assert attrs == {"dtype": "float16"}
    assert type(attrs["dtype"]) is str
    attrs = ops_of(make_module(X, lambda x: op.split(x, [1, 3], axis=1)))["relax.split"].attrs
    assert attrs == {"indices_or_sections": (1, 3), "axis": 1}
    attrs = ops_of(make_module(X, lambda x: op.topk(x, 2)))["relax.topk"].attrs
    assert attrs["largest"] is True
    assert json.dumps(attrs)


def test_an_index_map_is_its_final_indices(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.layout_transform(x, lambda row, column: (column // 2, row, column % 2))

    attrs = ops_of(make_module(X, body))["relax.layout_transform"].attrs
    assert attrs["index_map"] == ("i1 // 2", "i0", "i1 % 2")


def test_tuples_are_flattened(make_module: Any) -> None:
    def body(x: Any) -> Any:
        parts = relax.BlockBuilder.current().emit(op.split(x, 2, axis=1))
        return op.concat([parts[1], op.tanh(parts[0])], axis=1)

    graph = only_region(make_module(X, body), EVERYTHING)
    ops = {each.name: each for each in graph.ops}
    first, second = ops["relax.split"].results
    assert first.shape == second.shape == (2, 2)
    assert ops["relax.tanh"].operands == (first,)
    assert ops["relax.concat"].operands == ((second, ops["relax.tanh"].results[0]),)


def test_a_tuple_that_another_call_computes_is_an_operand(make_module: Any) -> None:
    graph = only_region(make_module(X, lambda x: op.concat(op.split(x, 2, axis=1))), EVERYTHING)
    split, concat = graph.ops
    assert concat.operands == (split.results,)


def test_a_value_that_is_read_twice_is_two_operands_and_one_input(make_module: Any) -> None:
    kernel = weight(4, 4, 1, 1)
    residual = make_module(IMAGE, lambda x: op.nn.relu(op.add(op.nn.conv2d(x, kernel), x)))
    chain = ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    fused = byoc.Backend("fused", "", patterns=[("fused", chain)], bind_constants=True)
    (call,) = only_region(residual, fused).calls
    x, w = call.inputs
    assert (x.name, w.is_constant) == ("x", True)
    assert call.operands == (x, w, x)
    adder = byoc.Backend("adder", "", patterns=[("add", ["relax.add"])])
    (call,) = only_region(make_module(X, lambda x: op.add(x, x)), adder).calls
    assert call.operands == (call.inputs[0],) * 2


def test_a_composite_that_is_called_twice_is_there_twice(make_module: Any) -> None:
    graph = only_region(make_module(X, lambda x: op.tanh(op.tanh(op.tanh(x)))), EVERYTHING)
    assert [call.name for call in graph.calls] == ["everything.tanh"] * 3
    assert [call.inputs for call in graph.calls[1:]] == [call.results for call in graph.calls[:-1]]


def test_names_stay_cheap_when_all_are_the_same(make_module: Any, lines_run: Any) -> None:
    def chain(ops: int) -> Any:
        def body(x: Any) -> Any:
            for _ in range(ops):
                x = op.tanh(x)
            return x

        (region,) = regions_of(byoc.partition(make_module(X, body), EVERYTHING).mod)
        return region

    once, twice = chain(400), chain(800)
    assert len({call.results[0].name for call in read_graph(twice).calls}) == 800
    assert lines_run(lambda: read_graph(twice)) < 2.5 * lines_run(lambda: read_graph(once))


def test_a_bfloat16_constant_is_read(make_module: Any) -> None:
    params: Params = {"x": ((2, 4), "bfloat16")}
    backend = byoc.Backend("half", "", patterns=[("matmul", ["relax.matmul"])], bind_constants=True)
    mod = make_module(params, lambda x: op.matmul(x, weight(4, 3, dtype="bfloat16")))
    (value,) = only_region(mod, backend).constants
    assert (value.dtype, str(value.data.dtype), value.shape) == ("bfloat16", "bfloat16", (4, 3))


def test_a_region_without_symbol_is_an_error(make_module: Any) -> None:
    parts = byoc.partition(make_module(X, op.tanh), EVERYTHING)
    (region,) = regions_of(parts.mod)
    with pytest.raises(ModelError, match="global_symbol"):
        read_graph(region.without_attr("global_symbol"))


def test_what_cannot_be_read_is_named() -> None:
    unknown = relax.Var("strange", relax.TensorType(dtype="float32", ndim=2))
    out = relax.Var("out", unknown.ty)
    block = relax.BindingBlock([relax.VarBinding(out, op.tanh(unknown))])
    region = relax.Function([unknown], relax.SeqExpr([block], out), unknown.ty)
    region = region.with_attr("Codegen", "some").with_attr("global_symbol", "the_region")
    with pytest.raises(ModelError, match="`the_region`, parameter `strange`: shape and dtype must"):
        read_graph(region)


def test_a_plain_op_outside_a_composite_is_an_error() -> None:
    ty = relax.TensorType((2, 4), "float32")
    x, out = relax.Var("x", ty), relax.Var("out", ty)
    block = relax.BindingBlock([relax.VarBinding(out, op.nn.relu(x))])
    region = relax.Function([x], relax.SeqExpr([block], out), ty)
    region = region.with_attr("Codegen", "some").with_attr("global_symbol", "the_region")
    with pytest.raises(ModelError, match="`the_region`: expected a call of a composite function"):
        read_graph(region)
