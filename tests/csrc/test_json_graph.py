"""Malformed graphs: one ValueError that names the place, and never a crash."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc

pytestmark = pytest.mark.byoc("example_npu", step="runtime")
Graph = dict[str, Any]
EXAMPLES = 1500


def leaf(name: str, shape: list[int], kind: str = "input", dtype: str = "float32") -> Graph:
    return {"op": kind, "name": name, "attrs": {"shape": [shape], "dtype": [dtype]}}


def graph() -> Graph:
    """relu(x + w) for x[2, 4] and a constant w[4]."""
    tensor = {"shape": [[2, 4]], "dtype": ["float32"]}
    ops = [
        {"op": "relax.add", "args": [[0, 0], [1, 0]], "attrs": {}, **tensor},
        {"op": "relax.nn.relu", "args": [[2, 0]], "attrs": {}, **tensor},
    ]
    attrs = {"num_inputs": 2, "num_outputs": 1, "ops": ops, "results": [[3, 0]], **tensor}
    kernel = {"op": "kernel", "name": "npu.add_relu", "inputs": [[0, 0, 0], [1, 0, 0]]}
    return {
        "nodes": [leaf("x", [2, 4]), leaf("w", [4], "const"), {**kernel, "attrs": attrs}],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
        "node_row_ptr": [0, 1, 2, 3],
    }


def create(given: Any, constants: Any = ("w",), symbol: Any = "region") -> Any:
    text = given if isinstance(given, str) else json.dumps(given)
    return tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")(symbol, text, constants)


def at(*path: Any, value: Any = None) -> Callable[[Graph], None]:
    """Replace the value at a place."""

    def change(given: Graph) -> None:
        parent: Any = given
        for key in path[:-1]:
            parent = parent[key]
        parent[path[-1]] = value

    return change


def without(*path: Any) -> Callable[[Graph], None]:
    def change(given: Graph) -> None:
        parent: Any = given
        for key in path[:-1]:
            parent = parent[key]
        del parent[path[-1]]

    return change


def test_the_graph_that_is_not_changed_runs() -> None:
    module = create(graph())
    weight = np.array([1, -1, 2, -2], "float32")
    x = np.array([[1, 2, 3, 4], [-1, -2, -3, -4]], "float32")
    out = tvm.runtime.tensor(np.zeros((2, 4), "float32"))
    module["__init_region"]([tvm.runtime.tensor(weight)])
    module["region"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), np.maximum(x + weight, 0))


KERNEL = ("nodes", 2)
ADD = (*KERNEL, "attrs", "ops", 0)
RELU = (*KERNEL, "attrs", "ops", 1)
HERE = r"node 2 \(npu\.add_relu\)"
MALFORMED: dict[str, tuple[Callable[[Graph], None], str]] = {
    "no nodes": (without("nodes"), "the graph has no `nodes`"),
    "nodes no array": (at("nodes", value={}), "nodes must be an array"),
    "empty": (at("nodes", value=[]), "heads refers to node 2"),
    "no heads": (without("heads"), "the graph has no `heads`"),
    "empty heads": (at("heads", value=[]), "has no heads"),
    "heads no array": (at("heads", value=2), "heads must be an array"),
    "head no pair": (at("heads", value=[[2]]), r"heads must be \[id, output\]"),
    "head of text": (at("heads", value=[["a", "b"]]), r"heads must be \[id, output\]"),
    "head too far": (at("heads", value=[[3, 0, 0]]), "heads refers to node 3"),
    "head negative": (at("heads", value=[[-1, 0, 0]]), "heads refers to node -1"),
    "head output": (at("heads", value=[[2, 1, 0]]), "heads refers to output 1 of value 2"),
    "head fraction": (at("heads", value=[[1.5, 0, 0]]), "heads must be"),
    "arg_nodes short": (at("arg_nodes", value=[0]), "arg_nodes must list every input and const"),
    "arg_nodes no array": (at("arg_nodes", value="0"), "arg_nodes must be an array"),
    "node no object": (at("nodes", 0, value=[]), "node 0 must be an object"),
    "node without name": (without("nodes", 1, "name"), "node 1 has no `name`"),
    "name no text": (at("nodes", 1, "name", value=3), r"node 1\.name must be a string"),
    "node without op": (without("nodes", 1, "op"), r"node 1 \(w\) has no `op`"),
    "unknown kind": (at("nodes", 1, "op", value="tvm_op"), r"\(w\) is of kind `tvm_op`; expected"),
    "no attrs": (without("nodes", 0, "attrs"), r"node 0 \(x\) has no `attrs`"),
    "no shape": (without("nodes", 0, "attrs", "shape"), r"node 0 \(x\) has no `shape`"),
    "no dtype": (without("nodes", 0, "attrs", "dtype"), r"node 0 \(x\) has no `dtype`"),
    "flat shape": (at("nodes", 0, "attrs", "shape", value=[2, 4]), r"node 0 \(x\).*shape"),
    "no shape at all": (at("nodes", 0, "attrs", "shape", value=[]), r"node 0 \(x\) must give one"),
    "negative size": (at("nodes", 0, "attrs", "shape", 0, value=[-2, 4]), "negative dimension"),
    "fraction": (at("nodes", 0, "attrs", "shape", 0, value=[2.5, 4]), "integer dimensions"),
    "text size": (at("nodes", 0, "attrs", "shape", 0, value=["n", 4]), "integer dimensions"),
    "two dtypes": (at("nodes", 0, "attrs", "dtype", value=["int8"] * 2), r"\(x\) must give one"),
    "unknown dtype": (at("nodes", 0, "attrs", "dtype", value=["real"]), "unknown dtype `real`"),
    "dtype no text": (at("nodes", 0, "attrs", "dtype", value=[32]), "dtype must be an array of"),
    "no ops": (without(*KERNEL, "attrs", "ops"), f"{HERE} has no `ops`"),
    "ops no array": (at(*KERNEL, "attrs", "ops", value=3), rf"{HERE}\.ops must be an array"),
    "op no object": (at(*ADD, value="relax.add"), rf"{HERE}\.ops must be an array of objects"),
    "op without name": (without(*ADD, "op"), rf"{HERE}\.ops has no `op`"),
    "op without args": (without(*ADD, "args"), f"{HERE} relax.add has no `args`"),
    "op without shape": (without(*ADD, "shape"), f"{HERE} relax.add has no `shape`"),
    "argument too far": (at(*ADD, "args", 1, value=[2, 0]), f"{HERE} relax.add refers to value 2"),
    "argument of itself": (at(*RELU, "args", 0, value=[3, 0]), "relax.nn.relu refers to value 3"),
    "argument output": (at(*RELU, "args", 0, value=[2, 1]), "relax.nn.relu refers to output 1"),
    "argument of text": (at(*ADD, "args", 0, value="x"), "relax.add must be called with arrays"),
    "argument unknown": (at(*ADD, "args", 0, value={"what": 1}), "relax.add has an argument that"),
    "tuple no array": (at(*ADD, "args", 0, value={"tuple": 1}), "relax.add must be called with"),
    "scalar no number": (at(*ADD, "args", 0, value={"value": []}), "relax.add must be called with"),
    "attrs no object": (at(*ADD, "attrs", value=[]), f"{HERE} relax.add must be an object"),
    "input too far": (at(*KERNEL, "inputs", 0, value=[2, 0, 0]), rf"{HERE}\.inputs refers to node"),
    "input of text": (at(*KERNEL, "inputs", 0, value="x"), rf"{HERE}\.inputs must be \[id"),
    "no inputs": (without(*KERNEL, "inputs"), f"{HERE} relax.add refers to value 0"),
    "no results": (without(*KERNEL, "attrs", "results"), f"{HERE} has no `results`"),
    "results short": (at(*KERNEL, "attrs", "results", value=[]), f"{HERE} must have one of"),
    "result too far": (at(*KERNEL, "attrs", "results", value=[[9, 0]]), rf"{HERE}\.results refers"),
    "options no object": (at("options", value=[]), "options must be an object"),
    "unknown option": (at("options", value={"speed": 1}), "speed"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_graph_is_one_error_that_names_the_place(name: str) -> None:
    change, message = MALFORMED[name]
    given = graph()
    change(given)
    with pytest.raises(ValueError, match=message) as caught:
        create(given)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"text"', '{"nodes": [}', "nodes: []", "\x00", "{}{}"]
)
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed JSON graph"):
        create(text)


@pytest.mark.parametrize(
    "arguments",
    [(3, "{}", ()), ("region", None, ()), ("region", "{}", (1,)), ("region", "{}", "w"), (), (1,)],
)
def test_arguments_of_other_types_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError)):
        tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")(*arguments)


@pytest.mark.parametrize("number", [2**63, -(2**64), 1e400, "1e5", 10**30])
def test_numbers_out_of_range_are_refused(number: Any) -> None:
    text = json.dumps(graph()).replace('"shape": [[4]]', f'"shape": [[{number}]]')
    with pytest.raises(ValueError, match=r"node 1|JSON"):
        create(text)


NESTED = """
import sys
from tvm_byoc_kit import native
with native.without_torch():
    import tvm
assert native.load("example_npu")
create = tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")
depth = int(sys.argv[1])
tuples = '{"tuple": [' * depth + "]}" * depth
argument = '{"nodes": [{"op": "input", "name": "x", "attrs": {"shape": [[1]], "dtype": ["int8"]}},'
argument += '{"op": "kernel", "name": "k", "inputs": [[0, 0, 0]], "attrs": {"shape": [[1]], "dtype"'
argument += ': ["int8"], "results": [[1, 0]], "ops": [{"op": "relax.concat", "args": ['
argument += tuples + '], "attrs": {"axis": 0}, "shape": [[1]], "dtype": ["int8"]}]}}],'
argument += '"heads": [[1, 0, 0]]}'
load = tvm.get_global_func("ffi.Module.load_from_bytes.example_npu_json")
for text in ("[" * depth, '{"a":' * depth, "[" * depth + "]" * depth, argument):
    for read in (lambda text: create("region", text, []), lambda text: load(text.encode())):
        try:
            read(text)
        except ValueError as error:
            assert len(str(error)) < 2000, len(str(error))
        else:
            raise AssertionError("accepted")
print("alive")
"""


@pytest.mark.parametrize("depth", [100, 1_000_000])
def test_deep_nesting_is_refused(run_python: Any, depth: int) -> None:
    done = run_python(NESTED, depth)
    assert done.stdout == "alive\n", (done.returncode, done.stderr)


# Random changes


def weight(*shape: int, dtype: str = "float32") -> Any:
    return relax.const(np.ones(shape), dtype)


def residual(x: Any) -> Any:
    conv = op.nn.conv2d(x, weight(4, 4, 3, 3), padding=1)
    norm = relax.TupleGetItem(op.nn.batch_norm(conv, *(weight(4) for _ in range(4)), axis=1), 0)
    return op.nn.max_pool2d(op.nn.relu(op.add(norm, x)), (2, 2), strides=(2, 2))


def classifier(x: Any) -> Any:
    hidden = op.clip(op.add(op.matmul(x, weight(4, 6)), weight(6)), 0, 6)
    normal = op.nn.layer_norm(op.reshape(hidden, (3, 4)), weight(4), weight(4), axes=-1)
    joined = op.concat([normal, op.sigmoid(normal)], axis=1)
    return op.nn.softmax(joined, axis=-1), op.mean(op.permute_dims(joined), axis=0)


def quantized(x: Any) -> Any:
    scale, zero = weight(), relax.const(0, "int8")
    small = op.quantize(x, scale, zero, axis=0, out_dtype="int8")
    product = op.matmul(small, weight(4, 3, dtype="int8"), out_dtype="int32")
    return op.dequantize(product, scale, relax.const(0, "int8"), axis=0, out_dtype="float32")


def symbolic(x: Any) -> Any:
    return op.nn.relu(op.matmul(op.expand_dims(x, 0), weight(4, 3)))


MODELS: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
    "residual": ((1, 4, 6, 6), residual),
    "classifier": ((2, 4), classifier),
    "quantized": ((2, 4), quantized),
    "symbolic": (("n", 4), symbolic),
}


def cases(make_module: Any) -> list[dict[str, Any]]:
    """Graphs of real regions, with what else their modules are made from."""
    found = [{"graph": graph(), "constants": ["w"]}]
    for shape, body in MODELS.values():
        mod = make_module({"x": (shape, "float32")}, body)
        for bind in (False, True):
            exe = byoc.compile(mod, "example_npu", bind_constants=bind)
            for module in modules_of(exe.module):
                names = [str(name) for name in module["get_const_vars"]()]
                text = str(module["get_graph"]())
                found.append({"graph": json.loads(text), "constants": names})
    return found


def modules_of(module: Any) -> list[Any]:
    own = [module] if module.kind == "example_npu_json" else []
    return own + [found for child in module.imports for found in modules_of(child)]


def test_changed_graphs_work_or_are_refused(make_module: Any, tmp_path: Path) -> None:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(cases(make_module)), encoding="utf-8")
    script = Path(__file__).with_name("fuzz_json_graph.py")
    done = subprocess.run(
        [sys.executable, str(script), str(path), str(EXAMPLES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stderr[-3000:]}"
    counts = json.loads(done.stdout)
    assert counts["without a message"] == 0
    assert counts["ran"] > EXAMPLES / 50, "most changes are refused, not all"
    assert counts["refused"] > EXAMPLES


def test_a_copy_of_a_graph_is_the_same_graph() -> None:
    given = graph()
    assert str(create(copy.deepcopy(given))["get_graph"]()) == json.dumps(given)
