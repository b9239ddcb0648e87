"""What ``relax.ext.example_npu`` makes of a region: TVM's JSON graph, read back from the module."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc

pytestmark = pytest.mark.byoc("example_npu", step="runtime")
Params = dict[str, tuple[tuple[Any, ...], str]]
X: Params = {"x": ((2, 4), "float32")}


@dataclass(frozen=True)
class Compiled:
    """A region's graph, and what the module says of its constants."""

    graph: dict[str, Any]
    symbol: str
    const_vars: list[str]

    @property
    def kernels(self) -> list[dict[str, Any]]:
        return [node for node in self.graph["nodes"] if node["op"] == "kernel"]

    @property
    def inputs(self) -> list[dict[str, Any]]:
        return [node for node in self.graph["nodes"] if node["op"] == "input"]

    @property
    def consts(self) -> list[dict[str, Any]]:
        return [node for node in self.graph["nodes"] if node["op"] == "const"]

    @property
    def ops(self) -> list[dict[str, Any]]:
        return [inner for kernel in self.kernels for inner in kernel["attrs"]["ops"]]


def constants_of(region: relax.Function) -> dict[Any, str]:
    """Names for the constants in `region`, as RunCodegen gives them."""
    found: dict[Any, str] = {}

    def look(expr: Any) -> None:
        if isinstance(expr, type(relax.const(0.0))):
            found.setdefault(expr, f"constant_{len(found)}")

    relax.analysis.post_order_visit(region, look)
    return found


def codegen(region: relax.Function, options: dict[str, Any] | None = None) -> Any:
    compile_regions = tvm.get_global_func("relax.ext.example_npu")
    return compile_regions([region], options or {}, constants_of(region))


def compiled(mod: tvm.IRModule, options: dict[str, Any] | None = None, **choices: Any) -> Compiled:
    parts = byoc.partition(mod, "example_npu", **choices)
    (region,) = (f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs)
    (module,) = codegen(region, options)
    graph = json.loads(str(module.get_function("get_graph")()))
    check_form(graph)
    names = [str(name) for name in module.get_function("get_const_vars")()]
    return Compiled(graph, str(module.get_function("get_symbol")()), names)


def check_form(graph: dict[str, Any]) -> None:
    """What TVM's form of a JSON graph asks for, of every graph of these tests."""
    nodes = graph["nodes"]
    leaves = [i for i, node in enumerate(nodes) if node["op"] in {"input", "const"}]
    assert graph["arg_nodes"] == leaves
    counts = [len(node["attrs"]["shape"]) for node in nodes]
    assert graph["node_row_ptr"] == [sum(counts[:i]) for i in range(len(nodes) + 1)]
    for i, node in enumerate(nodes):
        assert len(node["attrs"]["dtype"]) == len(node["attrs"]["shape"])
        for source, output, version in node.get("inputs", []):
            assert source < i
            assert output < counts[source]
            assert version == 0
        if node["op"] == "kernel":
            assert node["attrs"]["num_inputs"] == len(node["inputs"])
            assert node["attrs"]["num_outputs"] == counts[i] == len(node["attrs"]["results"])
    for source, output, _ in graph["heads"]:
        assert output < counts[source]


def test_a_region_is_inputs_kernels_and_heads(make_module: Any) -> None:
    got = compiled(make_module(X, lambda x: op.tanh(op.nn.relu(x))))
    assert got.symbol == "example_npu_1"
    assert [node["op"] for node in got.graph["nodes"]] == ["input", "kernel", "kernel"]
    assert [node["name"] for node in got.graph["nodes"]] == [
        "x",
        "example_npu.relu",
        "example_npu.tanh",
    ]
    assert got.graph["heads"] == [[2, 0, 0]]
    assert got.inputs[0]["attrs"] == {"shape": [[2, 4]], "dtype": ["float32"]}
    assert got.kernels[0]["attrs"]["shape"] == [[2, 4]]


# Inner ops, with their attributes


def weight(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(np.ones(shape), dtype)


def quantize(x: Any) -> Any:
    scale, zero = relax.const(0.5, "float32"), relax.const(1, "int8")
    return op.quantize(x, scale, zero, axis=0, out_dtype="int8")


IMAGE: Params = {"x": ((1, 4, 9, 9), "float32")}
ATTRIBUTES: dict[str, tuple[Params, Callable[..., Any], dict[str, Any]]] = {
    "relax.nn.conv2d": (
        IMAGE,
        lambda x: op.nn.conv2d(
            x,
            weight(8, 2, 3, 3),
            strides=(2, 1),
            padding=(0, 1, 2, 3),
            dilation=(1, 2),
            groups=2,
            out_dtype="float32",
        ),
        {
            "strides": [2, 1],
            "padding": [0, 1, 2, 3],
            "dilation": [1, 2],
            "groups": 2,
            "data_layout": "NCHW",
            "kernel_layout": "OIHW",
            "out_layout": "NCHW",
            "out_dtype": "float32",
        },
    ),
    "relax.nn.conv1d": (
        {"x": ((1, 4, 9), "float32")},
        lambda x: op.nn.conv1d(x, weight(8, 4, 3), strides=2, padding=(1, 2)),
        {"strides": [2], "padding": [1, 2], "dilation": [1], "groups": 1, "data_layout": "NCW"},
    ),
    "relax.matmul": (
        {"x": ((2, 4), "int8")},
        lambda x: op.matmul(x, weight(4, 3, dtype="int8"), out_dtype="int32"),
        {"out_dtype": "int32"},
    ),
    "relax.nn.max_pool2d": (
        IMAGE,
        lambda x: op.nn.max_pool2d(
            x, (3, 2), strides=(2, 1), padding=(1, 0, 0, 1), dilation=(1, 2), ceil_mode=True
        ),
        {
            "pool_size": [3, 2],
            "strides": [2, 1],
            "padding": [1, 0, 0, 1],
            "dilation": [1, 2],
            "ceil_mode": 1,
            "layout": "NCHW",
        },
    ),
    "relax.nn.avg_pool2d": (
        IMAGE,
        lambda x: op.nn.avg_pool2d(x, (2, 2), count_include_pad=True),
        {"pool_size": [2, 2], "count_include_pad": 1, "ceil_mode": 0},
    ),
    "relax.nn.softmax": (X, lambda x: op.nn.softmax(x, axis=-2), {"axis": -2}),
    "relax.nn.leakyrelu": (X, lambda x: op.nn.leakyrelu(x, 0.25), {"alpha": 0.25}),
    "relax.nn.layer_norm": (
        X,
        lambda x: op.nn.layer_norm(x, weight(4), weight(4), axes=[-1], epsilon=0.125),
        {"axes": [-1], "epsilon": 0.125, "center": 1, "scale": 1},
    ),
    "relax.mean": (
        X,
        lambda x: op.mean(x, axis=[0, -1], keepdims=True),
        {"axis": [0, -1], "keepdims": 1},
    ),
    "relax.concat": (X, lambda x: op.concat([x, x], axis=-1), {"axis": -1}),
    "relax.permute_dims": (X, lambda x: op.permute_dims(x, [1, 0]), {"axes": [1, 0]}),
    "relax.expand_dims": (X, lambda x: op.expand_dims(x, [0, 2]), {"axis": [0, 2]}),
    "relax.squeeze": (
        {"x": ((1, 2, 1), "float32")},
        lambda x: op.squeeze(x, [0]),
        {"axis": [0]},
    ),
    "relax.quantize": (X, quantize, {"out_dtype": "int8", "axis": 0}),
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_an_inner_op_keeps_its_attributes(make_module: Any, name: str) -> None:
    params, body, attributes = ATTRIBUTES[name]
    (inner,) = compiled(make_module(params, body)).ops
    assert inner["op"] == name
    assert {key: inner["attrs"][key] for key in attributes} == attributes


@pytest.mark.parametrize(
    ("body", "attribute"),
    [
        (op.mean, "axis"),
        (op.permute_dims, "axes"),
        (op.squeeze, "axis"),
        (lambda x: op.nn.conv2d(op.reshape(x, (1, 2, 2, 2)), weight(1, 2, 1, 1)), "out_dtype"),
    ],
    ids=["mean", "permute_dims", "squeeze", "conv2d"],
)
def test_an_attribute_that_is_not_set_is_an_empty_text(
    make_module: Any, body: Any, attribute: str
) -> None:
    assert compiled(make_module(X, body)).ops[-1]["attrs"].get(attribute, "") == ""


def test_every_op_of_a_composite_is_listed_in_order(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.clip(op.add(op.matmul(x, weight(4, 3)), weight(3)), 0, 6)

    got = compiled(make_module(X, body))
    assert [kernel["name"] for kernel in got.kernels] == ["example_npu.matmul_bias_clip"]
    assert [inner["op"] for inner in got.ops] == ["relax.matmul", "relax.add", "relax.clip"]
    matmul, add, clip = got.ops
    assert matmul["args"] == [[0, 0], [1, 0]]
    assert add["args"] == [[3, 0], [2, 0]]
    assert clip["args"][0] == [4, 0]
    assert got.kernels[0]["attrs"]["results"] == [[5, 0]]


def test_the_limits_of_a_clip_are_values(make_module: Any) -> None:
    (clip,) = compiled(make_module(X, lambda x: op.clip(x, -1.5, 6))).ops
    assert clip["args"] == [[0, 0], {"value": -1.5}, {"value": 6}]


def test_infinite_limits_of_a_clip_survive_or_are_refused(make_module: Any) -> None:
    mod = make_module(X, lambda x: op.clip(x, 0, float("inf")))
    exe = byoc.compile(mod, "example_npu")
    x = np.array([[-1, 0, 1, 2], [3, -4, 5, 1e30]], "float32")
    np.testing.assert_array_equal(exe(x), np.maximum(x, 0))


def test_operands_are_numbered_by_their_first_use(make_module: Any) -> None:
    def body(x: Any, bias: Any, kernel: Any) -> Any:
        return op.add(bias, op.matmul(x, kernel))

    params: Params = {
        "x": ((2, 4), "float32"),
        "bias": ((3,), "float32"),
        "kernel": ((4, 3), "float32"),
    }
    got = compiled(make_module(params, body))
    (kernel,) = got.kernels
    names = [got.graph["nodes"][source]["name"] for source, *_ in kernel["inputs"]]
    assert names == ["x", "kernel", "bias"]
    assert got.ops[1]["args"] == [[2, 0], [3, 0]]


def test_an_operand_used_twice_is_one_input(make_module: Any) -> None:
    got = compiled(make_module(X, lambda x: op.multiply(x, x)))
    assert got.kernels[0]["inputs"] == [[0, 0, 0]]
    assert got.ops[0]["args"] == [[0, 0], [0, 0]]


# Constants


def test_constants_stay_with_the_host_unless_they_are_bound(make_module: Any) -> None:
    mod = make_module(X, lambda x: op.add(op.matmul(x, weight(4, 3)), weight(3)))
    free = compiled(mod, bind_constants=False)
    assert (len(free.inputs), len(free.consts), free.const_vars) == (3, 0, [])
    bound = compiled(mod, bind_constants=True)
    assert (len(bound.inputs), len(bound.consts)) == (1, 2)
    assert bound.const_vars == [node["name"] for node in bound.consts]
    assert [node["attrs"]["shape"] for node in bound.consts] == [[[4, 3]], [[3]]]
    assert bound.kernels[0]["inputs"] == [[0, 0, 0], [1, 0, 0], [2, 0, 0]]


def test_a_constant_shared_by_two_composites_is_one_node(make_module: Any) -> None:
    shared = weight(4)

    def body(x: Any) -> Any:
        return op.multiply(op.nn.relu(op.subtract(x, shared)), shared)

    got = compiled(make_module(X, body), bind_constants=True)
    assert len(got.consts) == len(got.const_vars) == 1
    source = got.graph["nodes"].index(got.consts[0])
    assert sum([source, 0, 0] in kernel["inputs"] for kernel in got.kernels) == 2


def test_a_scalar_constant_has_no_dimension(make_module: Any) -> None:
    got = compiled(make_module(X, lambda x: op.multiply(x, relax.const(2.0))), bind_constants=True)
    assert got.consts[0]["attrs"]["shape"] == [[]]


def test_a_constant_that_runcodegen_did_not_name_is_an_error(make_module: Any) -> None:
    mod = make_module(X, lambda x: op.multiply(x, weight(4)))
    parts = byoc.partition(mod, "example_npu", bind_constants=True)
    (region,) = (f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs)
    with pytest.raises(ValueError, match="gave no name for a constant"):
        tvm.get_global_func("relax.ext.example_npu")([region], {}, {})


# Tuples and several outputs


def test_concat_takes_a_tuple(make_module: Any) -> None:
    params = X | {"y": ((3, 4), "float32")}
    got = compiled(make_module(params, lambda x, y: op.concat([x, y, x], axis=0)))
    assert got.ops[0]["args"] == [{"tuple": [[0, 0], [1, 0], [0, 0]]}]
    assert got.kernels[0]["inputs"] == [[0, 0, 0], [1, 0, 0]]
    assert got.ops[0]["shape"] == [[7, 4]]


def test_concat_of_values_computed_inside_the_region(make_module: Any) -> None:
    got = compiled(make_module(X, lambda x: op.concat([op.tanh(x), op.nn.relu(x)], axis=0)))
    assert [kernel["name"] for kernel in got.kernels][-1] == "example_npu.concat"
    sources = [got.graph["nodes"][source]["name"] for source, *_ in got.kernels[-1]["inputs"]]
    assert sources == ["example_npu.tanh", "example_npu.relu"]


def batch_norm(x: Any) -> Any:
    return op.nn.batch_norm(x, *(weight(4) for _ in range(4)), axis=1, epsilon=0.25, momentum=0.5)


def test_batch_norm_has_three_outputs(make_module: Any) -> None:
    got = compiled(make_module(IMAGE, batch_norm))
    (inner,) = got.ops
    assert inner["shape"] == [[1, 4, 9, 9], [4], [4]]
    assert inner["dtype"] == ["float32"] * 3
    assert (inner["attrs"]["epsilon"], inner["attrs"]["momentum"]) == (0.25, 0.5)
    (kernel,) = got.kernels
    assert kernel["attrs"]["num_outputs"] == 3
    assert kernel["attrs"]["results"] == [[5, 0], [5, 1], [5, 2]]


def test_one_output_of_batch_norm_goes_on(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.nn.relu(relax.TupleGetItem(batch_norm(x), 0))

    got = compiled(make_module(IMAGE, body))
    assert len(got.kernels) == 2
    source, output, _ = got.kernels[1]["inputs"][0]
    assert got.graph["nodes"][source]["name"] == "example_npu.batch_norm"
    assert output == 0


def test_a_region_may_have_several_outputs(make_module: Any) -> None:
    def body(x: Any) -> Any:
        first = op.nn.relu(x)
        return op.tanh(first), first, op.sigmoid(first)

    got = compiled(make_module(X, body))
    assert len(got.graph["heads"]) == 3
    assert sorted(got.graph["nodes"][source]["name"] for source, *_ in got.graph["heads"]) == [
        "example_npu.relu",
        "example_npu.sigmoid",
        "example_npu.tanh",
    ]


# Symbolic dimensions


def test_symbolic_dimensions_are_minus_one(make_module: Any) -> None:
    params: Params = {"x": (("n", 4), "float32")}
    got = compiled(make_module(params, lambda x: op.nn.relu(op.matmul(x, weight(4, 3)))))
    assert got.inputs[0]["attrs"]["shape"] == [[-1, 4]]
    assert got.kernels[0]["attrs"]["shape"] == [[-1, 3]]
    assert [inner["shape"] for inner in got.ops] == [[[-1, 3]], [[-1, 3]]]


def test_a_symbolic_target_of_reshape_is_a_shape_parameter() -> None:
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.nn.relu(op.reshape(x, (n * 2, 2))))
        builder.emit_func_output(result)
    got = compiled(builder.finalize())
    reshape = got.ops[0]
    assert reshape["shape"] == [[-1, 2]]
    source, *_ = got.kernels[0]["inputs"][reshape["args"][1][0]]
    target = got.graph["nodes"][source]
    assert target["op"] == "input"
    assert target["attrs"] == {"shape": [[2]], "dtype": ["int64"], "is_shape": 1}


def test_a_static_target_of_reshape_is_a_shape(make_module: Any) -> None:
    (inner,) = compiled(make_module(X, lambda x: op.reshape(x, (4, 2)))).ops
    assert inner["args"] == [[0, 0], {"shape": [4, 2]}]


def test_a_shape_parameter_is_an_int64_input() -> None:
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    x = relax.Var("x", relax.TensorType((n, 4), "float32"))
    s = relax.Var("s", relax.ShapeType([n, m]))
    region = region_of([x, s], lambda x, _: op.nn.relu(x), relax.TensorType((n, 4), "float32"))
    (module,) = codegen(region)
    nodes = json.loads(str(module.get_function("get_graph")()))["nodes"]
    assert nodes[1]["name"] == "s"
    assert nodes[1]["attrs"] == {"shape": [[2]], "dtype": ["int64"], "is_shape": 1}


# Options and symbols


def test_options_travel_in_the_graph(make_module: Any) -> None:
    mod = make_module(X, op.nn.relu)
    assert compiled(mod).graph["options"] == {}
    options = {"mode": "record", "l1_bytes": 1024}
    assert compiled(mod, options).graph["options"] == options


def test_several_regions_are_one_module_each(make_module: Any) -> None:
    mod = make_module(X, lambda x: op.tanh(op.erf(op.nn.relu(x))))
    parts = byoc.partition(mod, "example_npu")
    found = [f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    modules = tvm.get_global_func("relax.ext.example_npu")(found, {}, {})
    symbols = [str(module.get_function("get_symbol")()) for module in modules]
    assert symbols == [str(f.attrs["global_symbol"]) for f in found]
    assert len(symbols) == 2


def test_no_region_is_no_module() -> None:
    assert list(tvm.get_global_func("relax.ext.example_npu")([], {}, {})) == []


def test_a_long_chain_is_one_region(make_module: Any) -> None:
    depth = 300
    mod = make_module(X, lambda x: reduce(lambda value, _: op.tanh(value), range(depth), x))
    assert len(compiled(mod).kernels) == depth


# What it cannot hold


def region_of(
    params: list[Any],
    body: Callable[..., Any],
    result: Any,
    inner_attrs: dict[str, str] | None = None,
    outer_attrs: dict[str, str] | None = None,
) -> relax.Function:
    """A region with one composite whose body is `body`, made by hand."""
    inner_attrs = {"Composite": "example_npu.relu"} if inner_attrs is None else inner_attrs
    inner_params = [relax.Var(f"inner_{p.name}", p.ty) for p in params]
    y, out = relax.Var("y", result), relax.Var("out", result)
    value = relax.BlockBuilder().normalize(body(*inner_params))
    block = relax.BindingBlock([relax.VarBinding(y, value)])
    inner = relax.Function(inner_params, relax.SeqExpr([block], y), result)
    for key, text in inner_attrs.items():
        inner = inner.with_attr(key, text)
    local = relax.Var("local", relax.FuncType([p.ty for p in params], result))
    call = relax.BlockBuilder().normalize(relax.Call(local, params))
    block = relax.BindingBlock([relax.VarBinding(local, inner), relax.VarBinding(out, call)])
    region = relax.Function(params, relax.SeqExpr([block], out), result)
    if outer_attrs is None:
        outer_attrs = {"Codegen": "example_npu", "global_symbol": "the_region"}
    for key, text in outer_attrs.items():
        region = region.with_attr(key, text)
    return region


TENSOR = relax.TensorType((2, 4), "float32")


def simple(**choices: Any) -> relax.Function:
    return region_of([relax.Var("x", TENSOR)], op.nn.relu, TENSOR, **choices)


def test_a_region_made_by_hand_is_fine() -> None:
    assert len(codegen(simple())) == 1


def test_a_region_without_symbol_is_an_error() -> None:
    with pytest.raises(ValueError, match="no `global_symbol`"):
        codegen(simple(outer_attrs={"Codegen": "example_npu"}))


def test_an_inner_function_that_is_no_composite_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"`the_region`: an inner function has no `Composite`"):
        codegen(simple(inner_attrs={}))


def test_a_composite_that_calls_another_function_names_it() -> None:
    packed = relax.ExternFunc("some.packed.function")
    region = region_of(
        [relax.Var("x", TENSOR)], lambda x: relax.Call(packed, [x], ty_args=[TENSOR]), TENSOR
    )
    with pytest.raises(
        ValueError, match=r"`the_region`, composite `example_npu\.relu`.*ExternFunc"
    ):
        codegen(region)


def test_a_parameter_of_unknown_shape_is_named() -> None:
    unknown = relax.TensorType(dtype="float32", ndim=2)
    region = region_of([relax.Var("x", unknown)], op.nn.relu, unknown)
    with pytest.raises(ValueError, match=r"`the_region`, parameter `x`: shape and dtype must be"):
        codegen(region)


@pytest.mark.parametrize(
    "ty",
    [relax.TupleType([TENSOR, TENSOR]), relax.ObjectType(), relax.ShapeType(ndim=2)],
    ids=["tuple", "object", "shape of unknown sizes"],
)
def test_a_parameter_that_is_no_tensor_is_named(ty: Any) -> None:
    region = region_of([relax.Var("strange", ty)], lambda _: weight(2, 4), TENSOR)
    with pytest.raises(ValueError, match=r"`the_region`, parameter `strange`"):
        codegen(region)


def test_a_branch_inside_a_region_names_the_construct() -> None:
    x = relax.Var("x", TENSOR)
    condition = relax.Var("condition", relax.TensorType((), "bool"))
    out = relax.Var("out", TENSOR)

    def branch() -> relax.SeqExpr:
        return relax.SeqExpr([], x)

    block = relax.BindingBlock([relax.VarBinding(out, relax.If(condition, branch(), branch()))])
    region = relax.Function([condition, x], relax.SeqExpr([block], out), TENSOR)
    region = region.with_attr("Codegen", "example_npu").with_attr("global_symbol", "the_region")
    with pytest.raises(ValueError, match=r"`the_region`: cannot serialize a relax\.expr\.If"):
        codegen(region)


def test_a_match_cast_inside_a_region_names_the_construct() -> None:
    x, out = relax.Var("x", TENSOR), relax.Var("out", TENSOR)
    block = relax.BindingBlock([relax.MatchCast(out, x, TENSOR)])
    region = relax.Function([x], relax.SeqExpr([block], out), TENSOR)
    region = region.with_attr("Codegen", "example_npu").with_attr("global_symbol", "the_region")
    with pytest.raises(
        ValueError, match=r"`the_region`: cannot serialize a relax\.expr\.MatchCast"
    ):
        codegen(region)


def test_a_plain_op_outside_a_composite_is_an_error() -> None:
    x, out = relax.Var("x", TENSOR), relax.Var("out", TENSOR)
    block = relax.BindingBlock([relax.VarBinding(out, op.nn.relu(x))])
    region = relax.Function([x], relax.SeqExpr([block], out), TENSOR)
    region = region.with_attr("Codegen", "example_npu").with_attr("global_symbol", "the_region")
    with pytest.raises(ValueError, match=r"expected a call of a composite function.*ir\.Op"):
        codegen(region)


def test_an_op_that_the_npu_lacks_is_named() -> None:
    region = region_of([relax.Var("x", TENSOR)], op.erf, TENSOR)
    with pytest.raises(ValueError, match=r"example_npu\.relu\).*relax\.erf"):
        codegen(region)


def test_an_argument_that_is_no_function_is_an_error() -> None:
    compile_regions = tvm.get_global_func("relax.ext.example_npu")
    for wrong in ([3], ["text"], [None], 3, None):
        with pytest.raises((ValueError, TypeError)):
            compile_regions(wrong, {}, {})
    with pytest.raises((ValueError, TypeError)):
        compile_regions([relax.Var("x", TENSOR)], {}, {})


def test_the_graph_does_not_depend_on_what_was_compiled_before(make_module: Any) -> None:
    mod = make_module(X, lambda x: op.nn.relu(op.matmul(x, weight(4, 3))))
    first = compiled(mod, bind_constants=True)
    compiled(make_module(IMAGE, batch_norm))
    assert compiled(mod, bind_constants=True).graph == first.graph
