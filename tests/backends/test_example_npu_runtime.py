"""The example NPU's runtime module: its functions, saved form, threads and errors."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_byoc_kit as byoc

pytestmark = pytest.mark.byoc("example_npu", step="runtime")

Graph = dict[str, Any]


def tensor_node(name: str, shape: list[int], kind: str = "input") -> dict[str, Any]:
    return {"op": kind, "name": name, "attrs": {"shape": [shape], "dtype": ["float32"]}}


def inner(op: str, args: list[Any], shape: list[int], **attrs: Any) -> dict[str, Any]:
    return {"op": op, "args": args, "attrs": attrs, "shape": [shape], "dtype": ["float32"]}


def graph_of(shape: list[int], rows: int = 2) -> Graph:
    """relu(x @ w) for x[rows, 3] and the constant w[3, 4], then reshaped to `shape`."""
    product = [rows, 4]
    ops = [
        inner("relax.matmul", [[0, 0], [1, 0]], product, out_dtype=""),
        inner("relax.nn.relu", [[2, 0]], product),
        inner("relax.reshape", [[3, 0], {"shape": shape}], shape),
    ]
    attrs = {"num_inputs": 2, "num_outputs": 1, "ops": ops, "results": [[4, 0]]}
    attrs |= {"shape": [shape], "dtype": ["float32"]}
    kernel = {"op": "kernel", "name": "example_npu.test", "inputs": [[0, 0, 0], [1, 0, 0]]}
    return {
        "nodes": [
            tensor_node("x", [rows, 3]),
            tensor_node("w", [3, 4], "const"),
            {**kernel, "attrs": attrs},
        ],
        "arg_nodes": [0, 1],
        "heads": [[2, 0, 0]],
        "node_row_ptr": [0, 1, 2, 3],
        "options": {},
    }


def create(graph: Graph | str, constants: tuple[str, ...] = ("w",)) -> Any:
    text = graph if isinstance(graph, str) else json.dumps(graph)
    return tvm.get_global_func("runtime.ExampleNPUJSONRuntimeCreate")("region", text, constants)


def as_tensor(array: Any, dtype: str = "float32") -> Any:
    return tvm.runtime.tensor(np.array(array, dtype))


WEIGHT = np.arange(12, dtype="float32").reshape(3, 4) - 6
DATA = np.array([[1, 2, 3], [-1, 0, 1]], "float32")
EXPECTED = np.maximum(DATA @ WEIGHT, 0).reshape(8)


@pytest.fixture
def module() -> Any:
    region = create(graph_of([8]))
    region["__init_region"]([as_tensor(WEIGHT)])
    return region


def call(module: Any, *inputs: Any) -> Any:
    out = as_tensor(np.zeros(8))
    module["region"](*inputs, out)
    return out.numpy()


# Its functions ------------------------------------------------------------------------------------


def test_the_module_computes_and_tells_what_it_is(module: Any) -> None:
    np.testing.assert_array_equal(call(module, as_tensor(DATA)), EXPECTED)
    assert module.kind == "example_npu_json"
    assert module["get_symbol"]() == "region"
    assert list(module["get_const_vars"]()) == ["w"]
    assert json.loads(str(module["get_graph"]())) == graph_of([8])
    assert json.loads(str(module["get_schedule"]()))["ops"]
    assert not module.implements_function("no_such_function")


def test_a_second_init_changes_nothing(module: Any) -> None:
    module["__init_region"]([as_tensor(WEIGHT * 0)])
    np.testing.assert_array_equal(call(module, as_tensor(DATA)), EXPECTED)


def test_inputs_may_have_strides_and_outputs_too(module: Any) -> None:
    torch = pytest.importorskip("torch")
    strided = torch.zeros(3, 8)[:, 2:4].T  # every stride unusual, and an offset
    strided[:] = torch.from_numpy(DATA)
    assert not strided.is_contiguous()
    out = torch.zeros(8, 3)[:, 1]
    module["region"](tvm_ffi.from_dlpack(strided), tvm_ffi.from_dlpack(out))
    np.testing.assert_array_equal(out.numpy(), EXPECTED)


# Errors of a call ---------------------------------------------------------------------------------

WRONG_ARGUMENTS = {
    "shape": (
        as_tensor(np.zeros((2, 4))),
        r"argument 0 \(`x`\) must be float32\[2, 3\] on cpu, found",
    ),
    "rank": (as_tensor(np.zeros(6)), r"found float32\[6\]"),
    "dtype": (as_tensor(np.zeros((2, 3)), "float64"), r"found float64\[2, 3\]"),
    "kind": ("text", r"must be a tensor float32\[2, 3\] on cpu, found a ffi\.\w*Str"),
    "none": (None, r"must be a tensor .* found a None"),
}


@pytest.mark.parametrize("name", WRONG_ARGUMENTS)
def test_a_wrong_argument_is_named_with_what_was_expected_and_found(name: str, module: Any) -> None:
    value, message = WRONG_ARGUMENTS[name]
    with pytest.raises(ValueError, match=message):
        call(module, value)


def test_a_wrong_output_is_named(module: Any) -> None:
    with pytest.raises(ValueError, match=r"output 0 must be float32\[8\] on cpu, found .*\[9\]"):
        module["region"](as_tensor(DATA), as_tensor(np.zeros(9)))


def test_a_wrong_number_of_arguments_is_told(module: Any) -> None:
    with pytest.raises(ValueError, match="expects 1 inputs and 1 outputs, found 1 arguments"):
        module["region"](as_tensor(DATA))


def test_a_call_before_init_is_told() -> None:
    with pytest.raises(RuntimeError, match="before __init_region"):
        call(create(graph_of([8])), as_tensor(DATA))


def test_wrong_constants_are_named() -> None:
    region = create(graph_of([8]))
    with pytest.raises(ValueError, match=r"constant 0 \(`w`\) must be float32\[3, 4\]"):
        region["__init_region"]([as_tensor(DATA)])
    with pytest.raises(ValueError, match="expects 1 constants, found 0"):
        region["__init_region"]([])


# Errors of a graph --------------------------------------------------------------------------------


def change(path: list[Any], value: Any) -> Callable[[Graph], None]:
    def apply(graph: Graph) -> None:
        target: Any = graph
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return apply


OPS = ["nodes", 2, "attrs", "ops"]
WRONG_GRAPHS = {
    "unknown op": (
        change([*OPS, 1, "op"], "relax.nn.selu"),
        r"node 2 \(example_npu\.test\), relax\.nn\.selu: is no op of the example NPU; supported",
    ),
    "dtype": (
        change(["nodes", 0, "attrs", "dtype"], ["float64"]),
        r"relax\.matmul: cannot take float64, float32 to float32; supported are float32 and",
    ),
    "operand count": (
        change([*OPS, 0, "args"], [[0, 0]]),
        r"relax\.matmul: has 1 tensors as operands; expected 2",
    ),
    "operands that do not fit": (
        change(["nodes", 1, "attrs", "shape"], [[5, 4]]),
        r"relax\.matmul: cannot multiply \[2, 3\] by \[5, 4\]",
    ),
    "declared shape": (
        change([*OPS, 1, "shape"], [[2, 5]]),
        r"relax\.nn\.relu: gives \[2, 4\] where the graph has \[2, 5\]",
    ),
    "reshape": (
        change([*OPS, 2, "args", 1], {"shape": [9]}),
        r"relax\.reshape: cannot reshape \[2, 4\] to \[9\]",
    ),
    "huge shape": (
        change(["nodes", 0, "attrs", "shape"], [[2**40, 3]]),
        r"where the graph has|cannot exist",
    ),
    "head": (change(["heads"], [[7, 0, 0]]), "heads refers to node 7"),
    "output dtype": (change(["nodes", 2, "attrs", "dtype"], ["int8"]), "has not the dtype"),
    "option": (change(["options"], {"speed": 3}), "unknown option `speed`"),
    "option value": (change(["options"], {"mode": "fast"}), "`mode`.*simulate"),
}


@pytest.mark.parametrize("name", WRONG_GRAPHS)
def test_a_wrong_graph_is_refused_when_the_module_is_made(name: str) -> None:
    apply, message = WRONG_GRAPHS[name]
    graph = graph_of([8])
    apply(graph)
    with pytest.raises(ValueError, match=message):
        create(graph)


def test_constant_names_must_fit_the_graph() -> None:
    with pytest.raises(ValueError, match="1 constants in its graph, but 0 names"):
        create(graph_of([8]), ())


CONV = {
    "strides": [1, 1],
    "padding": [0, 0, 0, 0],
    "dilation": [1, 1],
    "groups": 1,
    "data_layout": "NCHW",
    "kernel_layout": "OIHW",
}


def conv_graph(**attrs: Any) -> Graph:
    ops = [inner("relax.nn.conv2d", [[0, 0], [1, 0]], [1, 2, 3, 3], **{**CONV, **attrs})]
    kernel = {"op": "kernel", "name": "example_npu.conv2d", "inputs": [[0, 0, 0], [1, 0, 0]]}
    nodes = [tensor_node("x", [1, 4, 5, 5]), tensor_node("w", [2, 4, 3, 3])]
    result = {"shape": [[1, 2, 3, 3]], "dtype": ["float32"]}
    nodes.append({**kernel, "attrs": {"ops": ops, "results": [[2, 0]], **result}})
    return {"nodes": nodes, "heads": [[2, 0, 0]]}


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"strides": [0, 1]}, r"strides is \[0, 1\]; expected 2 numbers of at least 1"),
        ({"padding": [1]}, "padding is .* expected 4 numbers"),
        ({"groups": 0}, "groups must be at least 1"),
        ({"groups": 3}, "data with 4 channels does not go with 3 groups"),
        ({"data_layout": "NCHW4c"}, "data layout `NCHW4c`"),
        ({"kernel_layout": "OIHX"}, "kernel layout `OIHX`"),
        ({"dilation": [9, 9]}, "window is larger than the padded input"),
        ({"dilation": "x"}, "attribute `dilation` must be an array of integers"),
    ],
)
def test_wrong_attributes_are_refused_when_the_module_is_made(
    attrs: dict[str, Any], message: str
) -> None:
    create(conv_graph(), ())
    with pytest.raises(ValueError, match=message):
        create(conv_graph(**attrs), ())


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested lists and objects."""
    if not isinstance(value, dict | list):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return [path, *(found for key, item in items for found in places(item, (*path, key)))]


def mutate(graph: Graph, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = copy.deepcopy(graph)
    change(list(path), value)(changed)
    return changed


VALUES = st.sampled_from(
    [None, 0, -1, -7, 3, 2**62, 1.5, "", "NHWC", "relax.nn.softmax", "int8", [], [0], [[9, 9]], {}]
)
GRAPHS = (graph_of([8]), graph_of([-1], -1), conv_graph())


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(st.sampled_from(GRAPHS), st.data(), VALUES)
def test_a_graph_with_one_part_replaced_works_or_is_refused(
    graph: Graph, data: st.DataObject, value: Any
) -> None:
    path = data.draw(st.sampled_from(places(graph)[1:]))
    constants = ("w",) if any(n["op"] == "const" for n in graph["nodes"]) else ()
    try:
        region = create(mutate(graph, path, value), constants)
        if constants:
            region["__init_region"]([as_tensor(WEIGHT)])
            call(region, as_tensor(DATA))
    except (ValueError, TypeError, RuntimeError):
        return  # the process lives, that is the point


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_a_truncated_graph_is_refused(length: int) -> None:
    text = json.dumps(graph_of([8]))
    with pytest.raises(ValueError, match="malformed JSON graph"):
        create(text[: length % len(text)])


# Saved form ---------------------------------------------------------------------------------------


def layers(rows: Any) -> tvm.IRModule:
    """relu(x @ w) for x[rows, 64] and a constant w."""
    weight = np.random.default_rng(3).standard_normal((64, 48), "float32")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weight)))
            out = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(out)
    return builder.finalize()


@pytest.fixture(scope="module")
def executable() -> byoc.Executable:
    return byoc.compile(layers(32), "example_npu")


@pytest.fixture(scope="module")
def saved(executable: byoc.Executable, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the module of the region was saved as, cut out of an exported library."""
    path = tmp_path_factory.mktemp("saved") / "model.so"
    executable.export(path)
    content = path.read_bytes()
    start = content.index(b'{"kind":"example_npu_json"')
    text = content[start:].decode("latin-1")
    _, length = json.JSONDecoder().raw_decode(text)
    return content[start : start + length]


def load(content: bytes) -> Any:
    return tvm.get_global_func("ffi.Module.load_from_bytes.example_npu_json")(content)


def test_a_saved_region_loads(saved: bytes) -> None:
    document = json.loads(saved)
    module = load(saved)
    assert module["get_symbol"]() == document["symbol"]
    assert str(module["get_graph"]()) == document["graph"]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 10**6))
def test_truncated_bytes_are_one_clear_error(saved: bytes, length: int) -> None:
    with pytest.raises(ValueError, match=r"saved region is damaged.*export the model again"):
        load(saved[: length % len(saved)])


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_loads_the_same_graph_or_is_an_error(
    saved: bytes, position: int, flip: int
) -> None:
    damaged = bytearray(saved)
    damaged[position % len(saved)] ^= flip
    try:
        module = load(bytes(damaged))
    except ValueError:
        return
    assert str(module["get_graph"]()) == json.loads(saved)["graph"]


def test_another_format_says_what_to_do(saved: bytes) -> None:
    other = json.dumps({**json.loads(saved), "format": 2}).encode()
    with pytest.raises(ValueError, match="has format 2; this plugin reads format 1: export"):
        load(other)


# Threads and memory -------------------------------------------------------------------------------


# A process of its own: its memory is not what other tests take and give back.
THREADS = """
import sys, threading
import numpy as np, tvm
import tvm_byoc_kit as byoc
from tvm import relax
from tvm_byoc_kit.process_memory import measure_memory

executable = byoc.load(sys.argv[1])
x, expected = np.load(sys.argv[2]).values()
failures = []

def work(index, calls):
    machine = relax.VirtualMachine(executable._built, tvm.cpu())
    tensor = tvm.runtime.tensor(x[index])
    for _ in range(calls):
        if not np.allclose(machine["main"](tensor).numpy(), expected[index], 1e-5, 1e-5):
            failures.append(index)

def run_threads(calls):
    threads = [threading.Thread(target=work, args=(index, calls)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

run_threads(50)  # fills the pool of buffers
with measure_memory() as use:
    run_threads(1000)
print(failures, use.held >> 20)
"""


def test_four_threads_with_their_own_virtual_machine_share_one_module(
    executable: byoc.Executable, run_python: Any, tmp_path: Path
) -> None:
    x = np.random.default_rng(1).standard_normal((4, 32, 64), "float32")
    weight = np.random.default_rng(3).standard_normal((64, 48), "float32")
    np.savez(tmp_path / "data.npz", x=x, expected=np.maximum(x @ weight, 0))
    executable.export(tmp_path / "model.so")
    done = run_python(THREADS, tmp_path / "model.so", tmp_path / "data.npz")
    assert done.returncode == 0, done.stderr
    failures, mebibytes = done.stdout.rsplit(maxsplit=1)
    assert failures == "[]"
    assert int(mebibytes) < 12  # a leak of one buffer a call would be 4000 x 6 KB
