"""Coverage is read off modules of all shapes, and agrees with a count over the printed module."""
# ruff: noqa: ANN201, N805, RET504 - TVMScript is not Python

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.ir import IRModule
from tvm.relax.transform import FuseOpsByPattern
from tvm.script import ir as I  # noqa: N812
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.coverage_reader import HostOp, read_coverage
from tvm_byoc_kit.op_names import tag_of, tag_ops

ROOT = Path(__file__).parents[1]
MATRIX = {"x": ((4, 4), "float32")}


def quiet_partition(mod: Any, backend: str = "example_npu", **options: Any) -> byoc.Partition:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of functions whose matches are not merged
        return byoc.partition(mod, backend, **options)


def edges(coverage: byoc.Coverage) -> dict[str, list[str]]:
    """By name of each op, the names of those that it reads."""
    return {op.name: [coverage.ops[at].name for at in op.inputs] for op in coverage.ops}


# --- An independent count -----------------------------------------------------------------------

NO_OPS = {"const", "dtype", "match_cast", "prim_value", "shape", "str", "tuple"}
FREE = {"assert_op", "memory.view", "shape_of"}


class Printed:
    """What the text of a module says: ops of each function, calls of others, tensors passed."""

    def __init__(self, text: str) -> None:
        self.ops: dict[str, Counter[str]] = {}
        self.calls: dict[str, Counter[str]] = {}
        self.composites: set[str] = set()
        self.backends: dict[str, str] = {}
        self.signatures: dict[str, str] = {}
        stack: list[tuple[int, str]] = []
        for line in text.splitlines():
            indent = len(line) - len(line.lstrip())
            while stack and line.strip() and indent <= stack[-1][0]:
                stack.pop()
            self._read(line, indent, stack)

    def _read(self, line: str, indent: int, stack: list[tuple[int, str]]) -> None:
        if found := re.match(r" *def (\w+)\((.*):$", line):
            name = ".".join([*(outer for _, outer in stack[-1:]), found[1]])
            stack.append((indent, name))
            self.ops[name], self.calls[name] = Counter(), Counter()
            self.signatures[name] = found[2]
            return
        if not stack:
            return
        function = stack[-1][1]
        if found := re.search(r'"Codegen": "(\w+)"', line):
            self.backends[function] = found[1]
        if '"Composite"' in line:
            self.composites.add(function)
        for name in re.findall(r"\bR\.([a-z][\w.]*)\(", line.partition(" = ")[2]):
            if name not in NO_OPS | FREE:
                self.ops[function][f"relax.{name}"] += 1
        for callee in re.findall(r" = (?:cls\.)?(\w+)\(", line):
            self.calls[function][callee] += 1

    def expanded(self, function: str) -> Counter[str]:
        """Ops of a function, and of the functions inside it, each as often as it is called."""
        found = Counter(self.ops[function])
        for callee, times in self.calls[function].items():
            inner = f"{function}.{callee}"
            if inner in self.ops:
                for op, count in self.expanded(inner).items():
                    found[op] += count * times
        return found

    def region_calls(self) -> Counter[str]:
        hosts = [name for name in self.ops if "." not in name and name not in self.backends]
        calls: Counter[str] = Counter()
        for host in hosts:
            for callee, times in self.calls[host].items():
                if callee in self.backends:
                    calls[callee] += times
        return calls

    def offloaded(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for region, times in self.region_calls().items():
            for op, count in self.expanded(region).items():
                found[op] += count * times
        return found

    def on_host(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for name in self.ops:
            if "." not in name and name not in self.backends:
                found += self.ops[name]
        return found

    def crossing(self, region: str) -> tuple[int, int]:
        """Bytes of the tensors in a region's signature: parameters, and results."""
        given_, result = self.signatures[region].rsplit(" -> ", 1)
        return tensor_bytes(given_), tensor_bytes(result)


def tensor_bytes(text: str) -> int:
    found = re.findall(r'R\.Tensor\(\(([\d, ]*)\), dtype="(\w+)"\)', text)
    shapes = [
        ([int(size) for size in dims.split(",") if size.strip()], dtype) for dims, dtype in found
    ]
    return sum(np.empty(shape, dtype).nbytes for shape, dtype in shapes)


def script(name: str) -> Any:
    folder = str(ROOT / "scripts")
    spec = importlib.util.spec_from_file_location(name, f"{folder}/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)  # the scripts import each other
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def traced(module: str, network: str, *shape: int) -> Callable[[], byoc.ImportedModel]:
    def load() -> byoc.ImportedModel:
        torch = pytest.importorskip("torch")
        return byoc.load_model(getattr(script(module), network)(), (torch.rand(shape),))

    return load


MODELS: dict[str, Callable[[], byoc.ImportedModel]] = {
    "digits": lambda: byoc.load_model(ROOT / "tvm_byoc_kit/data/digits.onnx"),
    "resnet18": traced("bench_simulator", "resnet18", 1, 3, 64, 64),
    "mobilenet_v2": traced("bench_preparation", "mobilenet_v2", 1, 3, 64, 64),
    "encoder": traced("bench_preparation", "encoder", 1, 8, 256),
}


@pytest.fixture(scope="module")
def model() -> Callable[[str], byoc.ImportedModel]:
    loaded: dict[str, byoc.ImportedModel] = {}

    def get(name: str) -> byoc.ImportedModel:
        if name not in loaded:
            loaded[name] = MODELS[name]()
        return loaded[name]

    return get


@pytest.mark.parametrize("annotate_codegen", [True, False])
@pytest.mark.parametrize("bind_constants", [True, False])
@pytest.mark.parametrize("backend", ["example_npu", "tensorrt", "cublas"])
@pytest.mark.parametrize("name", MODELS)
def test_counts_are_those_of_the_printed_module(
    model: Any, name: str, backend: str, bind_constants: bool, annotate_codegen: bool
) -> None:
    parts = byoc.partition(
        model(name), backend, bind_constants=bind_constants, annotate_codegen=annotate_codegen
    )
    coverage, printed = parts.coverage, Printed(parts.mod.script())
    inside = Counter(op.op for op in coverage.ops if op.region is not None)
    assert inside == printed.offloaded()
    assert Counter(coverage.host_ops) == printed.on_host()
    assert coverage.total == (printed.offloaded() + printed.on_host()).total()
    assert Counter(region.function for region in coverage.regions) == printed.region_calls()
    for region in coverage.regions:
        assert region.ops == printed.expanded(region.function).total()
        assert region.backend == printed.backends[region.function]
        if bind_constants:  # all that is passed is data
            assert (region.bytes_in, region.bytes_out) == printed.crossing(region.function)


@pytest.mark.parametrize("name", MODELS)
def test_names_order_and_edges_are_those_of_the_prepared_module(model: Any, name: str) -> None:
    for backend, annotate in (("example_npu", False), ("tensorrt", True), ("cutlass", None)):
        parts = byoc.partition(model(name), backend, annotate_codegen=annotate)
        whole = read_coverage(parts.model.mod)
        assert [(op.function, op.name, op.op, op.inputs) for op in parts.coverage.ops] == [
            (op.function, op.name, op.op, op.inputs) for op in whole.ops
        ]
        printed = re.findall(r"^ {8,12}(\w+): .* = R\.", parts.model.mod.script(), re.MULTILINE)
        assert [op.name for op in parts.coverage.ops] == printed


def test_bound_constants_weigh_as_much_as_those_that_are_passed(model: Any) -> None:
    bound, passed = (
        byoc.partition(model("digits"), "example_npu", bind_constants=bind).coverage
        for bind in (True, False)
    )
    assert [op.parameters for op in bound.ops] == [op.parameters for op in passed.ops]
    for one, other in zip(bound.regions, passed.regions, strict=True):
        assert (one.bytes_in, one.bytes_out) == (other.bytes_in, other.bytes_out)
        assert one.constant_bytes == other.constant_bytes > 0
        assert one.constants == other.constants


# --- Graphs of any form -------------------------------------------------------------------------


@st.composite
def graphs(draw: Any) -> list[tuple[str, tuple[int, ...]]]:
    """Ops with the positions that they read, -1 and -2 being the inputs; twins are frequent."""
    nodes: list[tuple[str, tuple[int, ...]]] = []
    for position in range(draw(st.integers(1, 14))):
        op = draw(st.sampled_from(["tanh", "erf", "relu", "add", "weight", "split", "concat"]))
        arity = 2 if op in ("add", "concat") else 1
        reads = st.integers(max(-2, position - 5), position - 1)
        nodes.append((op, tuple(draw(reads) for _ in range(arity))))
    return nodes


def built(nodes: list[tuple[str, tuple[int, ...]]]) -> IRModule:
    """A module in which op i is bound to ``v{i}``, all on float32[4, 4]."""
    builder = relax.BlockBuilder()
    ty = relax.TensorType((4, 4), "float32")
    inputs = {-1: relax.Var("x", ty), -2: relax.Var("y", ty)}
    weight = relax.const(np.ones((4, 4), "float32"))
    make = {
        "tanh": relax.op.tanh,
        "erf": relax.op.erf,
        "relu": relax.op.nn.relu,
        "add": relax.op.add,
        "weight": lambda x: relax.op.matmul(x, weight),
        "split": lambda x: relax.op.split(x, 2, axis=0),
        "concat": lambda x, y: relax.op.concat([x, y], axis=0),
    }
    with builder.function("main", [inputs[-1], inputs[-2]]):
        with builder.dataflow():
            values = dict(inputs)
            for position, (op, reads) in enumerate(nodes):
                value = builder.emit(make[op](*(values[at] for at in reads)), f"v{position}")
                if op == "split":  # back to 4 x 4, by no op of its own
                    halves = [builder.emit(value[i], f"half{position}_{i}") for i in (0, 1)]
                    value = builder.emit(relax.op.concat(halves, axis=0), f"joined{position}")
                elif op == "concat":
                    value = builder.emit(
                        relax.op.strided_slice(value, [0], [0], [4]), f"part{position}"
                    )
                values[position] = value
            out = builder.emit_output(relax.Tuple([values[at] for at in range(len(nodes))]))
        builder.emit_func_output(out)
    return builder.finalize()


def expected_edges(nodes: list[tuple[str, tuple[int, ...]]]) -> dict[str, list[str]]:
    last = {"split": "joined", "concat": "part"}
    results = [f"{last.get(op, 'v')}{position}" for position, (op, _) in enumerate(nodes)]
    found = {}
    for position, (op, reads) in enumerate(nodes):
        found[f"v{position}"] = [results[at] for at in sorted(set(reads)) if at >= 0]
        if op in last:
            found[results[position]] = [f"v{position}"]
    return found


@settings(max_examples=40, deadline=None)
@given(graphs(), st.booleans(), st.booleans())
def test_names_and_edges_survive_any_partition(
    nodes: list[tuple[str, tuple[int, ...]]], annotate: bool, bind: bool
) -> None:
    mod = built(nodes)
    parts = byoc.partition(mod, "example_npu", annotate_codegen=annotate, bind_constants=bind)
    assert edges(parts.coverage) == expected_edges(nodes)
    assert list(edges(parts.coverage)) == list(expected_edges(nodes))
    # What follows the data through regions alone finds the same edges, under any names.
    alone = read_coverage(parts.mod)
    assert Counter((op.op, len(op.inputs)) for op in alone.ops) == Counter(
        (op.op, len(op.inputs)) for op in parts.coverage.ops
    )


def test_calls_of_one_shared_function_keep_the_names_of_each(make_module: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        return tuple(relax.op.erf(relax.op.tanh(relax.op.erf(each))) for each in (x, y))

    mod = make_module({"x": ((2, 4), "float32"), "y": ((2, 4), "float32")}, body)
    parts = byoc.partition(mod, "example_npu", annotate_codegen=True)
    functions = [f for f in parts.mod.functions.values() if f.attrs and "Codegen" in f.attrs]
    assert len(functions) < len(parts.coverage.regions)
    assert edges(parts.coverage) == edges(read_coverage(mod))
    by_region = {op.region: op.name for op in parts.coverage.ops if op.region is not None}
    assert len(set(by_region.values())) == len(by_region) == len(parts.coverage.regions)


def test_the_order_is_that_of_the_module_not_of_the_regions(make_module: Any) -> None:
    def body(x: Any, y: Any) -> Any:
        a = relax.op.tanh(x)
        b = relax.op.cumsum(y, axis=0)  # on the host, between two ops of one region
        return relax.op.add(relax.op.nn.relu(a), b)

    coverage = byoc.partition(
        make_module(MATRIX | {"y": MATRIX["x"]}, body), "example_npu"
    ).coverage
    assert [op.op for op in coverage.ops] == [
        "relax.tanh",
        "relax.nn.relu",
        "relax.cumsum",
        "relax.add",
    ]
    assert coverage.ops[3].inputs == (1, 2)


# --- Forms of modules ---------------------------------------------------------------------------


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
        (4, 4), "float32"
    ):
        y = R.tanh(x)
        if c:
            a = R.exp(y)
            b = R.negative(a)
        else:
            d = R.abs(y)
            b = R.negative(d)
        with R.dataflow():
            e = R.nn.relu(b)
            R.output(e)
        return e


def test_what_follows_branches_reads_both() -> None:
    for mod in (Branches, quiet_partition(Branches).mod):
        coverage = read_coverage(mod)
        assert [op.op for op in coverage.ops] == [
            *("relax.tanh", "relax.exp", "relax.negative"),
            *("relax.abs", "relax.negative", "relax.nn.relu"),
        ]
        assert [op.inputs for op in coverage.ops] == [(), (0,), (1,), (0,), (3,), (2, 4)]


def test_the_condition_of_a_branch_is_read() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        flag = builder.emit(relax.op.greater(x, x))
        first = builder.emit(relax.op.max(flag))
        block = relax.SeqExpr([], x)
        builder.emit_func_output(builder.emit(relax.If(first, block, block)))
    assert [op.op for op in read_coverage(builder.get()).ops] == ["relax.greater", "relax.max"]


@I.ir_module
class Casts:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor("float32", ndim=2):
        m = T.int64()
        with R.dataflow():
            a = R.unique(
                x, sorted=True, return_index=False, return_inverse=False, return_counts=False
            )
            b = R.match_cast(a, R.Tensor((m,), "float32"))
            c = R.tanh(b)
            d = R.reshape(c, R.shape([m, 1]))
            R.output(d)
        return d


def test_a_cast_is_no_op_and_passes_on_what_it_casts() -> None:
    coverage = quiet_partition(Casts).coverage
    assert edges(coverage) == {"a": [], "c": ["a"], "d": ["c"]}
    assert [op.shape for op in coverage.ops][1:] == ["m", "mx1"]
    assert [(op.bytes, op.macs) for op in coverage.ops][1:] == [(None, 0), (None, 0)]


def test_sums_are_open_where_a_dimension_is(make_module: Any) -> None:
    w = relax.const(np.ones((4, 5), "float32"))
    mod = make_module({"x": (("n", 4), "float32")}, lambda x: relax.op.matmul(x, w))
    for backend in ("example_npu", "tensorrt"):
        coverage = byoc.partition(mod, backend).coverage
        (op,) = coverage.ops
        assert (op.shape, op.macs, op.bytes, op.parameters) == ("nx5", None, None, 20)
        for region in coverage.regions:
            assert (region.macs, region.bytes_in, region.bytes_out) == (None, None, None)
            assert (region.constants, region.constant_bytes) == (1, 80)


def test_functions_are_told_apart(make_module: Any) -> None:
    mod = make_module(MATRIX, lambda x: relax.op.tanh(relax.op.erf(x)))
    mod = make_module(MATRIX, lambda x: relax.op.nn.relu(relax.op.erf(x)), "other", into=mod)
    coverage = quiet_partition(mod).coverage
    assert [(op.function, op.op) for op in coverage.ops] == [
        ("main", "relax.erf"),
        ("main", "relax.tanh"),
        ("other", "relax.erf"),
        ("other", "relax.nn.relu"),
    ]
    assert [op.inputs for op in coverage.ops] == [(), (0,), (), (2,)]
    assert coverage.ops[1].region != coverage.ops[3].region
    names = [(op.function, op.name) for op in coverage.ops]
    assert len(set(names)) == len(names)


@I.ir_module
class CallsEachOther:
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        cls = CallsEachOther
        a = R.exp(x)
        b = cls.helper(a)
        c = cls.helper(b)
        d = R.negative(c)
        return d

    @R.function
    def helper(y: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        with R.dataflow():
            z = R.tanh(y)
            R.output(z)
        return z


def test_a_function_of_the_host_counts_once_and_its_calls_pass_on_what_they_read() -> None:
    coverage = quiet_partition(CallsEachOther).coverage
    assert sorted((op.function, op.op) for op in coverage.ops) == [
        ("helper", "relax.tanh"),
        ("main", "relax.exp"),
        ("main", "relax.negative"),
    ]
    assert edges(coverage)["d"] == ["a"]


def test_a_region_with_several_results_is_followed_result_by_result(make_module: Any) -> None:
    def body(x: Any) -> Any:
        both = relax.op.tanh(relax.op.nn.relu(x))
        return relax.op.cumsum(both, axis=0), relax.op.erf(relax.op.sigmoid(both))

    mod = make_module(MATRIX, body)
    parts = byoc.partition(mod, "tensorrt", policy={"include_only": "nn.relu,tanh,sigmoid"})
    assert "R.Tuple(" in parts.mod.script()  # of the region's results
    for coverage in (read_coverage(parts.mod), parts.coverage, read_coverage(mod)):
        ops = [op.op.removeprefix("relax.") for op in coverage.ops]
        reads = {op.op.removeprefix("relax."): [ops[at] for at in op.inputs] for op in coverage.ops}
        assert reads == {
            "nn.relu": [],
            "tanh": ["nn.relu"],
            "cumsum": ["tanh"],
            "sigmoid": ["tanh"],
            "erf": ["sigmoid"],
        }


@I.ir_module
class Compiled:
    @T.prim_func(s_tir=True)
    def double(x: T.Buffer((4, 4), "float32"), y: T.Buffer((4, 4), "float32")):
        for i, j in T.grid(4, 4):
            y[i, j] = x[i, j] * T.float32(2)

    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tensor((4, 4), "float32"):
        cls = Compiled
        with R.dataflow():
            a = R.tanh(x)
            b = R.call_tir(cls.double, (a,), out_ty=R.Tensor((4, 4), "float32"))
            c = R.nn.relu(b)
            R.output(c)
        return c


def test_calls_of_compiled_functions_are_ops() -> None:
    coverage = byoc.partition(Compiled, "example_npu").coverage
    assert edges(coverage) == {"a": [], "b": ["a"], "c": ["b"]}
    assert [op.region is None for op in coverage.ops] == [False, True, False]
    assert (coverage.ops[1].op, coverage.ops[1].macs, coverage.ops[1].bytes) == (
        "relax.call_tir",
        0,
        64,
    )


def test_calls_inside_calls_are_ops_of_their_own() -> None:
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    inner = relax.op.exp(x)
    relax.expr._update_type(inner, x.ty)
    outer = relax.op.negative(inner)
    relax.expr._update_type(outer, x.ty)
    y = relax.Var("y", x.ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(y, outer)])], y)
    mod = IRModule({"main": relax.Function([x], body, x.ty)})
    coverage = read_coverage(mod)
    assert [(op.name, op.op, op.inputs) for op in coverage.ops] == [
        ("y_1", "relax.exp", ()),
        ("y", "relax.negative", (0,)),
    ]


def test_a_function_inside_a_function_is_entered_where_it_is_called() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    p = relax.Var("p", x.ty)
    body = builder.normalize(relax.op.exp(p))
    e = relax.Var("e", body.ty)
    inner = relax.Function(
        [p], relax.SeqExpr([relax.BindingBlock([relax.VarBinding(e, body)])], e), x.ty
    )
    with builder.function("main", [x]):
        f = builder.emit(inner, "f")
        a = builder.emit(relax.op.abs(x), "a")
        b = builder.emit(relax.Call(f, [a]), "b")
        c = builder.emit(relax.Call(f, [b]), "c")
        builder.emit_func_output(c)
    coverage = read_coverage(builder.get())
    assert [(op.op, op.inputs) for op in coverage.ops] == [
        ("relax.abs", ()),
        ("relax.exp", (0,)),
        ("relax.exp", (1,)),
    ]
    assert len({op.name for op in coverage.ops}) == 3


# --- Modules that someone else partitioned ------------------------------------------------------


def test_a_module_without_tags_keeps_its_own_names(two_outputs: IRModule) -> None:
    patterns = get_backend("example_npu").guarded_patterns()
    mod = FuseOpsByPattern(patterns, bind_constants=False, annotate_codegen=True)(two_outputs)
    coverage = read_coverage(mod)
    assert coverage.offloaded == coverage.total == 4
    assert len({op.name for op in coverage.ops}) == 4
    assert Counter(op.op for op in coverage.ops) == Printed(mod.script()).offloaded()


def test_composites_that_are_in_no_region_are_on_the_host(two_outputs: IRModule) -> None:
    patterns = get_backend("example_npu").guarded_patterns()
    coverage = read_coverage(FuseOpsByPattern(patterns)(two_outputs))
    assert (coverage.offloaded, coverage.total, coverage.regions) == (0, 4, ())
    assert all((op.composite or "").startswith("example_npu.") for op in coverage.ops)


def test_regions_of_two_backends_in_one_module_are_told_apart(make_module: Any) -> None:
    mod = make_module(MATRIX, lambda x: relax.op.cumsum(relax.op.tanh(relax.op.erf(x)), axis=0))
    first = byoc.partition(mod, "example_npu")
    second = quiet_partition(first.mod, "tensorrt")
    backends = {region.name: region.backend for region in second.coverage.regions}
    assert "example_npu" in backends.values()
    assert len(second.coverage.ops) == 3
    tanh = next(op for op in second.coverage.ops if op.op == "relax.tanh")
    assert tanh.region is not None
    assert backends[tanh.region] == "example_npu"


def test_dead_ops_are_left_out_as_the_passes_leave_them_out() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.emit(relax.op.cumsum(x, axis=0), "dead")
            out = builder.emit_output(relax.op.tanh(x), "alive")
        builder.emit_func_output(out)
    coverage = byoc.partition(builder.get(), "example_npu").coverage
    assert [op.name for op in coverage.ops if op.region is not None] == ["alive"]
    printed = Printed(byoc.partition(builder.get(), "example_npu").mod.script())
    assert coverage.total == (printed.offloaded() + printed.on_host()).total()


# --- Tags and reasons ---------------------------------------------------------------------------


def test_tags_change_nothing_but_spans(two_outputs: IRModule) -> None:
    for mod in (two_outputs, Branches, Casts, CallsEachOther, Compiled):
        tagged = tag_ops(mod)
        tvm.ir.assert_structural_equal(tagged, mod)
        assert tagged.script() == mod.script()
        relax.analysis.well_formed(tagged)  # raises


def test_a_tag_names_function_and_variable() -> None:
    block = tag_ops(Compiled)["main"].body.blocks[0]
    assert [tag_of(binding.value) for binding in block.bindings] == [
        ("main", "a"),
        ("main", "b"),
        ("main", "c"),
    ]
    assert tag_of(Compiled["main"].body.blocks[0].bindings[0].value) is None


def test_names_that_repeat_get_numbers_as_in_print() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("v", relax.TensorType((4, 4), "float32"))
    variables = [relax.Var("v", x.ty) for _ in range(3)]
    value: Any = x
    bindings = []
    for variable in variables:
        bindings.append(relax.VarBinding(variable, builder.normalize(relax.op.exp(value))))
        value = variable
    body = builder.normalize(relax.SeqExpr([relax.BindingBlock(bindings)], value))
    mod = IRModule({"main": relax.Function([x], body, x.ty)})
    assert [op.name for op in read_coverage(mod).ops] == ["v_1", "v_2", "v_3"]
    assert re.findall(r"(\w+): .* = R\.exp", mod.script()) == ["v_1", "v_2", "v_3"]


def test_whoever_explains_gets_the_call_as_it_was(make_module: Any) -> None:
    w = relax.const(np.ones((4, 4), "float32"))

    def body(x: Any) -> Any:
        return relax.op.nn.relu(relax.op.cumsum(relax.op.add(relax.op.tanh(x), w), axis=0))

    mod = make_module(MATRIX, body)
    asked: list[HostOp] = []

    def explain(op: HostOp) -> byoc.Reason:
        asked.append(op)
        return byoc.Reason("no_pattern", f"because of {op.name}")

    parts = byoc.partition(mod, "example_npu", policy={"exclude_ops": "add"})
    coverage = read_coverage(parts.mod, original=mod, explain=explain)
    assert [str(op.call.op.name) for op in asked] == ["relax.add", "relax.cumsum"]
    assert all(op.in_dataflow and op.function == "main" for op in asked)
    add = asked[0].call
    assert add.args[1].same_as(w)  # a constant, not the parameter of some function
    assert add.args[0].same_as(mod["main"].body.blocks[0].bindings[0].var)
    reasons = [op.reason for op in coverage.ops if op.region is None]
    assert [reason.text for reason in reasons if reason] == [
        f"because of {op.name}" for op in asked
    ]
    assert all(op.reason is None for op in coverage.ops if op.region is not None)


def test_ops_outside_dataflow_say_so() -> None:
    asked: list[HostOp] = []

    def explain(op: HostOp) -> byoc.Reason:
        asked.append(op)
        return byoc.Reason("no_match", "")

    read_coverage(Branches, explain=explain)
    assert [op.in_dataflow for op in asked] == [False] * 5 + [True]
