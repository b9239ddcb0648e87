"""Bisection names the region and the op in which a fault was planted, and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir
from tvm.script import relax as R  # noqa: N812 - as TVMScript has it

import tvm_byoc_kit as byoc
from tvm_byoc_kit import backend as backends
from tvm_byoc_kit import native, region_run
from tvm_byoc_kit.cli import program
from tvm_byoc_kit.errors import BackendUnavailable, InputError, ModelError, OptionError

pytestmark = pytest.mark.skipif(
    not native.load("core"), reason=f"needs the plugin: {native.load('core')}"
)
Module = tvm.IRModule

# A backend in NumPy, which computes wrong what FAULT says. It is a module, since reproducers run in
# processes of their own.
BACKEND = """
import ctypes, json, os, time
import numpy as np
import tvm_byoc_kit as byoc

OPS = ["add", "multiply", "subtract", "tanh", "sigmoid", "exp", "nn.relu", "matmul", "reshape",
       "split", "concat"]

KEPT = {}
DEADLY = {"crashes": lambda: ctypes.string_at(0), "aborts": os.abort, "exits": lambda: os._exit(7),
          "hangs": lambda: (open(os.environ["HANGS"], "x").close(), time.sleep(600))}

def names(value):
    if isinstance(value, tuple):
        return [names(item) for item in value]
    return value.name if hasattr(value, "name") else list(value.dims)

def codegen(graph, options):
    ops = [[op.name.removeprefix("relax."), [names(x) for x in op.operands], dict(op.attrs),
            [value.name for value in op.results]] for op in graph.ops]
    program = {"names": [v.name for v in (*graph.inputs, *graph.constants)], "ops": ops,
               "outputs": [v.name for v in graph.outputs]}
    return byoc.Payload(json.dumps(program).encode(), graph.constants)

def compute(name, operands, attrs):
    functions = {"nn.relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
                 "split": lambda x: np.split(x, attrs["indices_or_sections"], attrs["axis"]),
                 "reshape": lambda x, shape: np.reshape(x, tuple(shape)),
                 "concat": lambda xs: np.concatenate(xs, attrs["axis"])}
    return functions.get(name, getattr(np, name, None))(*operands)

def wrong(at, ops, operands, results):
    fault = os.environ.get("FAULT", "")
    kind, _, name = fault.partition(":")
    if not kind or ops[at][0] != name:
        return results
    first = operands[0][0] if isinstance(operands[0], list) else operands[0]
    fused = at + 1 < len(ops) and ops[at + 1][0] == "nn.relu" and ops[at][3][0] in ops[at + 1][1]
    plant = {"always": True, "fused": fused, "wide": first.shape[-1] == 8,
             "negative": bool((first < 0).any()), "positive": bool((first > 0).all()),
             "nan": True, "second": True, "slightly": True, "silent": False, "raises": True,
             "stale": True, "unsteady": True, "overwrites": True,
             **dict.fromkeys(DEADLY, True)}[kind]
    if not plant:
        return results
    if kind == "raises":
        raise RuntimeError("timeout of the kernel")
    if kind in DEADLY:
        DEADLY[kind]()
    if kind == "stale":
        return KEPT.setdefault((at, len(ops)), results)
    if kind == "overwrites":
        first *= 2
        return results
    if kind == "unsteady":
        KEPT["calls"] = KEPT.get("calls", 0) + 1
        return [x + np.float32(KEPT["calls"]) for x in results]
    if kind == "nan":
        return [np.full_like(x, np.nan) for x in results]
    error = np.float32(3e-6 if kind == "slightly" else 0.5)
    return [x + error if kind != "second" or i == 1 else x for i, x in enumerate(results)]

def runtime(payload, constants):
    program, weights = json.loads(payload), [np.from_dlpack(c) for c in constants]
    def execute(*tensors):
        count = len(program["outputs"])
        arrays = [np.from_dlpack(t) if hasattr(t, "dtype") else t for t in tensors]
        values = dict(zip(program["names"], arrays[:len(arrays) - count] + weights, strict=True))
        def value(operand):
            if isinstance(operand, list):
                return [value(x) if isinstance(x, str) else x for x in operand]
            return values[operand]
        for at, (name, operands, attrs, results) in enumerate(program["ops"]):
            given = [value(x) for x in operands]
            made = compute(name, given, attrs)
            made = wrong(at, program["ops"], given, made if isinstance(made, list) else [made])
            values.update(zip(results, made, strict=True))
        if os.environ.get("FAULT", "").startswith("silent"):
            return
        for name, array in zip(program["outputs"], arrays[len(arrays) - count:], strict=True):
            array[...] = values[name]
            beyond = {"after": array.nbytes, "before": -4}.get(os.environ.get("FAULT"))
            if beyond is not None:
                ctypes.memset(array.ctypes.data + beyond, 0, 4)
    return execute

PATTERNS = [(name.replace(".", "_"), "relax." + name) for name in OPS]
for name, bind in (("faulty_npu", True), ("faulty_npu_given_weights", False)):
    made = byoc.Backend(name, "NumPy", PATTERNS, codegen=codegen, runtime=runtime,
                        bind_constants=bind)
    byoc.register_backend(made, replace=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the backend's module is."""
    path = tmp_path_factory.mktemp("faulty")
    (path / "faulty_npu.py").write_text(BACKEND)
    return path


@pytest.fixture(autouse=True)
def registered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The backend, for one test."""
    before = dict(backends.REGISTERED)
    monkeypatch.syspath_prepend(str(folder))
    importlib.reload(importlib.import_module("faulty_npu"))
    monkeypatch.setattr(region_run, "STARTED", set())
    yield
    backends.REGISTERED.clear()
    backends.REGISTERED.update(before)


Plant = Callable[[str], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    return lambda fault: monkeypatch.setenv("FAULT", fault)


def weights(*shape: int) -> Any:
    return relax.const(np.random.default_rng(3).standard_normal(shape, dtype="float32"))


def body(builder: relax.BlockBuilder, x: Any) -> tuple[Any, ...]:
    """Two regions with a softmax between them; the names are those that the tests expect."""
    hidden = emit(builder, op.matmul(x, weights(8, 8)), "hidden")
    summed = emit(builder, op.add(hidden, weights(8)), "summed")
    rectified = emit(builder, op.nn.relu(summed), "rectified")
    scaled = emit(builder, op.multiply(rectified, x), "scaled")
    squashed = emit(builder, op.tanh(scaled), "squashed")
    chances = emit(builder, op.nn.softmax(squashed), "chances")
    low, high = halves(builder, chances)
    product = emit(builder, op.multiply(low, high), "product")
    return product, emit(builder, op.tanh(high), "tail")


def halves(builder: relax.BlockBuilder, x: Any) -> tuple[Any, Any]:
    both = emit(builder, op.split(x, 2, axis=1), "both")
    return emit(builder, both[0], "low"), emit(builder, both[1], "high")


def emit(builder: relax.BlockBuilder, expr: Any, name: str) -> Any:
    return builder.emit(expr, name_hint=name)


def module(make: Callable[..., Any], *shape: int | str) -> Module:
    """A function of `x`, whose ops `make` emits under names."""
    builder = relax.BlockBuilder()
    dims = [tvm.tirx.Var(dim, "int64") if isinstance(dim, str) else dim for dim in shape]
    x = relax.Var("x", relax.TensorType(dims, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = make(builder, x)
            result = builder.emit_output(relax.Tuple(made if isinstance(made, tuple) else [made]))
        builder.emit_func_output(result)
    return builder.finalize()


def ops(result: byoc.Bisection) -> tuple[str, ...]:
    assert result.culprit is not None, str(result)
    return result.culprit.ops


# Nothing planted


@pytest.mark.parametrize("backend", ["faulty_npu", "faulty_npu_given_weights"])
def test_a_right_backend_agrees(backend: str) -> None:
    result = byoc.bisect(module(body, 4, 8), backend)
    assert result
    assert [region.ops for region in result.regions] == [
        ("hidden", "summed", "rectified", "scaled", "squashed"),
        ("both", "product", "tail"),
    ]
    assert result.culprit is None
    assert result.builds == 2
    assert all(out.max_abs < 1e-5 for region in result.regions for out in region.outputs)
    assert "agrees" in str(result)
    with pytest.raises(ModelError, match="nothing to reproduce"):
        result.write_reproducer("nowhere")


# One op


@pytest.mark.parametrize(
    ("backend", "fault", "region", "op_name"),
    [
        ("faulty_npu", "always:add", 0, "summed"),
        ("faulty_npu", "always:nn.relu", 0, "rectified"),
        ("faulty_npu", "always:matmul", 0, "hidden"),
        ("faulty_npu", "nan:nn.relu", 0, "rectified"),
        ("faulty_npu", "second:split", 1, "both"),
        ("faulty_npu", "wide:multiply", 0, "scaled"),
        ("faulty_npu_given_weights", "always:matmul", 0, "hidden"),
        ("faulty_npu_given_weights", "second:split", 1, "both"),
    ],
)
def test_the_op_that_is_wrong_is_named(
    plant: Plant, backend: str, fault: str, region: int, op_name: str
) -> None:
    plant(fault)
    result = byoc.bisect(module(body, 4, 8), backend)
    assert not result
    assert [bool(item) for item in result.regions] == [number != region for number in (0, 1)]
    assert ops(result) == (op_name,)
    assert [part.ops for part in result.regions[region].parts if not part] == [(op_name,)]
    assert f"DIVERGES first in region {region + 1}, at {op_name} " in str(result)
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_result_that_is_never_written_is_not_right_by_chance(plant: Plant) -> None:
    plant("silent:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4, 8)
    for _ in range(3):  # memory that was freed is taken again
        result = byoc.bisect(mod, "faulty_npu")
        assert ops(result) == ("only",)
        assert result.regions[0].outputs[0].nan == (32, 0)


def test_a_nan_agrees_where_the_host_has_one_and_nowhere_else(plant: Plant) -> None:
    mod = module(lambda builder, x: emit(builder, op.add(x, x), "only"), 4)
    inputs = {"x": np.array([0, np.nan, np.inf, 1], "float32")}
    right = byoc.bisect(mod, "faulty_npu", inputs=inputs)
    assert right
    assert "agrees, max abs 0, SNR inf dB, 1 NaN, expected 1, 1 infinite, expected 1" in str(right)
    for fault, count in (("silent:add", "3 NaN, expected 1"), ("nan:add", "4 NaN, expected 1")):
        plant(fault)
        wrong = byoc.bisect(mod, "faulty_npu", inputs=inputs)
        assert ops(wrong) == ("only",)
        assert f"DIVERGES, max abs inf, SNR -inf dB, {count}" in str(wrong)
        assert not re.search(r"(abs|rel|SNR|cosine) nan", str(wrong))
        json.dumps(wrong.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("fault", "op_name", "problem"),
    [
        ("raises:tanh", "squashed", "it fails: .*RuntimeError: timeout of the kernel"),
        ("stale:matmul", "hidden", "^$"),
        ("unsteady:nn.relu", "rectified", "^calls with the same inputs give different results"),
        ("overwrites:split", "both", "it writes to its input 0"),
    ],
)
def test_what_is_wrong_otherwise_than_by_a_wrong_number_is_told(
    plant: Plant, fault: str, op_name: str, problem: str
) -> None:
    plant(fault)
    result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    assert ops(result) == (op_name,)
    assert result.culprit is not None
    assert re.search(problem, result.culprit.problem)
    assert not result
    assert result.culprit.problem in result.verdict
    assert result.diverging[0].outputs == () or "raises" not in fault
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("crashes:tanh", "the process was ended by SIGSEGV"),
        ("aborts:tanh", "the process was ended by SIGABRT"),
        ("exits:tanh", "the process ended itself, exit(7)"),
    ],
)
def test_what_ends_its_process_is_found_like_a_wrong_number(
    plant: Plant, tmp_path: Path, fault: str, problem: str
) -> None:
    plant(fault)
    result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    assert result.diverging == result.regions  # there is a tanh in the second too
    assert [region.problem for region in result.regions] == [problem, problem]
    assert ops(result) == ("squashed",)
    assert [bool(part) for part in result.regions[0].parts] == [True] * 4 + [False]
    assert all(part.outputs for part in result.regions[0].parts[:4])
    assert result.verdict.endswith(f"at squashed (faulty_npu.tanh): {problem}")
    assert "  the whole model: not run" in str(result).splitlines()
    json.dumps(result.to_dict(), allow_nan=False)
    script = result.write_reproducer(tmp_path / "found")
    with pytest.raises(SystemExit, match="1"):
        runpy.run_path(str(script))


@pytest.fixture
def limits_begin_with_the_hang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that a short limit is none for a slow machine that is still on its way there."""
    hanging, ready = tmp_path / "hangs", Connection.poll

    def poll(connection: Any, limit: float) -> bool:
        while not ready(connection, 0.05):
            if hanging.exists():
                hanging.unlink()
                return ready(connection, limit)
        return True

    monkeypatch.setenv("HANGS", str(hanging))
    monkeypatch.setattr(Connection, "poll", poll)


@pytest.mark.usefixtures("limits_begin_with_the_hang")
def test_what_does_not_come_to_an_end_is_found_too(plant: Plant) -> None:
    plant("hangs:nn.relu")
    result = byoc.bisect(module(body, 4, 8), "faulty_npu", limit=0.2)
    assert ops(result) == ("rectified",)
    assert "nothing was heard of it for 0.2 s" in result.verdict
    assert "region 2 (3 ops): not run" in str(result)
    assert "  the whole model: not run" in str(result).splitlines()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_what_writes_beside_its_output_is_told(plant: Plant, fault: str) -> None:
    plant(fault)
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 3, 5)
    result = byoc.bisect(mod, "faulty_npu")
    assert ops(result) == ("only",)
    assert result.regions[0].problem == "it writes outside its output 0"
    assert result.regions[0].outputs[0].ok


def test_a_backend_that_has_run_here_runs_here_again(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = importlib.import_module("faulty_npu").KEPT
    plant("stale:tanh")  # leaves what it keeps in the memory of its process
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4)
    byoc.bisect(mod, "faulty_npu")
    assert not kept
    byoc.bisect(mod, "faulty_npu", isolate=False)
    assert kept
    kept.clear()
    monkeypatch.setattr(region_run, "STARTED", {"faulty_npu"})
    byoc.bisect(mod, "faulty_npu", isolate=True)
    assert not kept
    byoc.bisect(mod, "faulty_npu")
    assert kept


def test_the_log_says_which_region_runs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "tvm_byoc_kit.region_run"):
        result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    names = [*(region.name for region in result.regions), "the whole model"]
    assert caplog.messages == [f"running {name}" for name in names]


def test_a_region_that_fails_does_not_hide_the_next(plant: Plant) -> None:
    plant("raises:tanh")
    result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    assert result.diverging == result.regions
    assert "it fails: the model failed while it ran" in result.problem


def test_a_fault_of_one_shape_is_not_seen_at_another(plant: Plant) -> None:
    plant("wide:tanh")

    def two_widths(builder: relax.BlockBuilder, x: Any) -> Any:
        low, high = halves(builder, x)
        first = emit(builder, op.tanh(op.add(low, high)), "narrow")
        return first, emit(builder, op.tanh(x), "broad")

    assert ops(byoc.bisect(module(two_widths, 4, 8), "faulty_npu")) == ("broad",)
    assert byoc.bisect(module(two_widths, 4, 6), "faulty_npu")


# Only together


def chain(builder: relax.BlockBuilder, x: Any) -> Any:
    first = emit(builder, op.tanh(x), "first")
    doubled = emit(builder, op.add(first, first), "doubled")
    rectified = emit(builder, op.nn.relu(doubled), "rectified")
    scaled = emit(builder, op.multiply(rectified, x), "scaled")
    return emit(builder, op.exp(scaled), "last")


def test_ops_that_are_wrong_only_together_are_named_and_no_others(plant: Plant) -> None:
    plant("fused:add")
    result = byoc.bisect(module(chain, 4, 8), "faulty_npu")
    assert ops(result) == ("doubled", "rectified")
    assert all(result.regions[0].parts)
    assert "each op alone agrees" in result.verdict


# Regions that share a function


@pytest.mark.parametrize(("sign", "number"), [("negative", 0), ("positive", 1)])
def test_of_two_calls_of_one_region_the_wrong_one_is_named(
    plant: Plant, sign: str, number: int
) -> None:
    plant(f"{sign}:tanh")

    def alike(builder: relax.BlockBuilder, x: Any) -> Any:
        first = emit(builder, op.tanh(x), "first")
        host = emit(builder, op.abs(op.cos(first)), "host")
        return emit(builder, op.tanh(host), "second")

    mod = module(alike, 4, 8)
    inputs = {"x": -np.ones((4, 8), "float32")}
    result = byoc.bisect(mod, "faulty_npu", inputs=inputs)
    assert [region.name.endswith("#2") for region in result.regions] == [False, True]
    assert [bool(region) for region in result.regions] == [number != 0, number != 1]
    assert ops(result) == (("first", "second")[number],)


def test_a_region_after_a_wrong_one_is_judged_by_the_host_s_inputs(plant: Plant) -> None:
    plant("always:matmul")
    result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    assert [bool(region) for region in result.regions] == [False, True]
    assert not all(out.ok for out in result.outputs)


def test_every_region_that_is_wrong_is_listed_and_the_first_is_looked_into(plant: Plant) -> None:
    plant("always:tanh")
    result = byoc.bisect(module(body, 4, 8), "faulty_npu")
    assert result.diverging == result.regions
    assert ops(result) == ("squashed",)
    assert not result.regions[1].parts


# Shapes that stay open


def reshaped(builder: relax.BlockBuilder, x: Any) -> tuple[Any, ...]:
    n = x.ty.shape[0]
    doubled = emit(builder, op.add(x, x), "doubled")
    long = emit(builder, op.reshape(doubled, (n * 2, 4)), "long")
    both = emit(builder, op.concat([long, long], axis=1), "both")
    return emit(builder, op.tanh(both), "squashed"), emit(builder, op.exp(doubled), "last")


@pytest.mark.parametrize(
    ("fault", "op_name"),
    [("always:reshape", "long"), ("always:concat", "both"), ("always:tanh", "squashed")],
)
def test_a_region_of_open_shapes_is_taken_apart(plant: Plant, fault: str, op_name: str) -> None:
    plant(fault)
    result = byoc.bisect(module(reshaped, "n", 8), "faulty_npu", sizes={"n": 5})
    assert ops(result) == (op_name,)
    assert result.outputs[0].worst is not None


def test_sizes_are_those_of_the_inputs(plant: Plant) -> None:
    plant("wide:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4, "n")
    wide, narrow = (np.ones((4, size), "float32") for size in (8, 7))
    assert byoc.bisect(mod, "faulty_npu", inputs={"x": narrow})
    assert ops(byoc.bisect(mod, "faulty_npu", inputs={"x": wide})) == ("only",)


def test_of_several_builds_the_one_for_the_inputs_is_looked_into(
    plant: Plant, tmp_path: Path
) -> None:
    plant("wide:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4, "n")
    given = {size: {"x": np.ones((4, size), "float32")} for size in (6, 7, 8)}
    buckets = {"n": byoc.Buckets(7, 8)}
    result = byoc.bisect(mod, "faulty_npu", sizes=buckets, inputs=given[8])
    assert ops(result) == ("only",)
    assert "R.Tensor((4, 8)" in result.write_reproducer(tmp_path / "found").read_text()
    assert byoc.bisect(mod, "faulty_npu", sizes=buckets, inputs=given[7])
    with pytest.raises(OptionError, match="n=6 have no build of their own: there is one for 7, 8"):
        byoc.bisect(mod, "faulty_npu", sizes=buckets, inputs=given[6])
    with pytest.raises(OptionError, match=r"give inputs of its size, or .*{'n': Buckets\(7\)}"):
        byoc.bisect(mod, "faulty_npu", sizes=buckets)
    symbolic = {"n": byoc.Buckets(7, fallback="symbolic")}
    result = byoc.bisect(mod, "faulty_npu", sizes=symbolic, inputs=given[8])
    assert ops(result) == ("only",)
    assert "(4, n)" in result.write_reproducer(tmp_path / "found").read_text()


def test_a_batch_fixes_axis_0(plant: Plant, tmp_path: Path) -> None:
    plant("always:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), "n", 8)
    result = byoc.bisect(mod, "faulty_npu", batch=3)
    assert result.regions[0].outputs[0].worst is not None
    assert "R.Tensor((3, 8)" in result.write_reproducer(tmp_path / "found").read_text()
    profile = byoc.bisect(mod, "faulty_npu", batch=byoc.Profile(1, 5, 9))
    assert "(n, 8)" in profile.write_reproducer(tmp_path / "found").read_text()
    with pytest.raises(ModelError, match="axis 0"):
        byoc.bisect(module(chain, 4, 8), "faulty_npu", batch=4)


def test_an_artifact_has_nothing_to_look_into() -> None:
    with pytest.raises(ModelError, match="give the model that it was built from"):
        byoc.bisect("model.so", "faulty_npu")


# Branches


def test_a_region_that_is_not_run_is_told(plant: Plant) -> None:
    plant("always:exp")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((4,), "float32"))
    condition = relax.Var("condition", relax.TensorType((), "bool"))

    def branch(make: Callable[[Any], Any]) -> relax.SeqExpr:
        value = relax.Var("value", x.ty)
        inner = relax.DataflowBlock([relax.VarBinding(value, make(x))])
        return relax.SeqExpr([inner], value)

    with builder.function("main", [x, condition]):
        chosen = builder.emit(relax.If(condition, branch(op.exp), branch(op.tanh)))
        builder.emit_func_output(chosen)
    mod = relax.transform.Normalize()(builder.finalize())
    given = {"x": np.ones(4, "float32")}
    with pytest.warns(UserWarning, match="has an `If`"):
        right = byoc.bisect(mod, "faulty_npu", inputs={**given, "condition": np.array(False)})
    assert right
    assert [len(region.outputs) for region in right.regions] == [1, 0]
    assert ": not run" in str(right)
    with pytest.warns(UserWarning, match="has an `If`"):
        wrong = byoc.bisect(mod, "faulty_npu", inputs={**given, "condition": np.array(True)})
    assert wrong.diverging[0].composites == ("faulty_npu.exp",)


def test_a_region_that_runs_twice_is_judged_by_the_run_that_is_wrong(plant: Plant) -> None:
    plant("positive:tanh")

    @ir.ir_module
    class Twice:
        @R.function
        def helper(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):  # noqa: N805
            with R.dataflow():
                inner = R.tanh(x)
                R.output(inner)
            return inner

        @R.function
        def main(x: R.Tensor((4, 8), "float32")) -> R.Tensor((4, 8), "float32"):  # noqa: N805
            first = Twice.helper(x)
            turned = R.cos(first)
            return Twice.helper(turned)

    with pytest.warns(UserWarning, match="calls the function `helper`"):
        result = byoc.bisect(Twice, "faulty_npu", inputs={"x": -np.ones((4, 8), "float32")})
    assert len(result.regions) == 1
    assert ops(result) == ("inner",)
    assert result.regions[0].outputs[0].worst is not None
    assert result.regions[0].outputs[0].worst.expected > 0


# The whole


def test_rounding_that_adds_up_is_told_from_a_wrong_region(plant: Plant) -> None:
    plant("slightly:tanh")

    def steep(builder: relax.BlockBuilder, x: Any) -> Any:
        small = emit(builder, op.tanh(x), "small")
        return emit(builder, op.cos(op.divide(small, relax.const(1e-4))), "steep")

    result = byoc.bisect(module(steep, 4, 8), "faulty_npu")
    assert not result
    assert not result.diverging
    assert "rounding adds up" in result.verdict


def test_a_model_without_regions_is_compared_as_a_whole() -> None:
    result = byoc.bisect(
        module(lambda builder, x: emit(builder, op.cos(x), "only"), 4), "faulty_npu"
    )
    assert result
    assert result.regions == ()


def test_a_wrong_import_is_told_from_a_wrong_backend(onnx_proto: onnx.ModelProto) -> None:
    from dataclasses import replace

    model = byoc.load_model(onnx_proto)
    wrong = replace(
        model.reference,  # type: ignore[type-var]
        run=lambda inputs: {k: v + 1 for k, v in model.reference.run(inputs).items()},  # type: ignore[union-attr]
    )
    result = byoc.bisect(replace(model, reference=wrong), "faulty_npu")
    assert not result
    assert not result.diverging
    assert "DIFFERS from onnxruntime: look at import" in result.verdict


# Inputs


def test_inputs_come_from_an_archive(plant: Plant, tmp_path: Path) -> None:
    plant("negative:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4)
    for sign in (1, -1):
        np.savez(tmp_path / "x.npz", x=np.full(4, sign, "float32"))
        assert bool(byoc.bisect(mod, "faulty_npu", inputs=tmp_path / "x.npz")) == (sign == 1)


def test_the_case_in_which_a_build_is_wrong_is_looked_into(plant: Plant) -> None:
    plant("negative:tanh")
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4)
    assert byoc.bisect(mod, "faulty_npu", case="ones")
    assert ops(byoc.bisect(mod, "faulty_npu", case="negative")) == ("only",)
    with pytest.raises(OptionError, match="unknown case 'odd'"):
        byoc.bisect(mod, "faulty_npu", case="odd")
    with pytest.raises(OptionError, match="bisect takes one case"):
        byoc.bisect(mod, "faulty_npu", case="edge")


def test_inputs_that_do_not_fit_are_refused() -> None:
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), 4)
    with pytest.raises(InputError, match="missing: x"):
        byoc.bisect(mod, "faulty_npu", inputs={})
    with pytest.raises(InputError, match="inputs hold a list; expected a dict"):
        byoc.bisect(mod, "faulty_npu", inputs=[1])  # type: ignore[arg-type]


def test_sizes_that_do_not_fit_are_refused() -> None:
    mod = module(lambda builder, x: emit(builder, op.tanh(x), "only"), "n")
    with pytest.raises(OptionError, match="'m', which is no open dimension; there is n"):
        byoc.bisect(mod, "faulty_npu", sizes={"m": 3})
    with pytest.raises(OptionError, match="bisect takes one case, and one size of each dimension"):
        byoc.bisect(mod, "faulty_npu", sizes={"n": (3, 4)})
    with pytest.raises(OptionError, match="limit=0: expected seconds"):
        byoc.bisect(mod, "faulty_npu", limit=0)


def test_a_backend_that_does_not_run_here_is_refused() -> None:
    with pytest.raises(BackendUnavailable):
        byoc.bisect(module(chain, 4, 8), "cutlass")


# The command line


@pytest.fixture
def command(
    onnx_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Any, str, str]]:
    """Runs a command for the ONNX model: exit code, output, error."""

    def run(name: str, *options: str) -> tuple[Any, str, str]:
        line = ["tvm-byoc", name, str(onnx_path), "-b", "faulty_npu", *options]
        monkeypatch.setattr(sys, "argv", line)
        with pytest.raises(SystemExit) as left:
            program.app()
        return left.value.code, *capfd.readouterr()

    return run


def test_verify_says_in_which_region_its_process_was_ended(plant: Plant, command: Any) -> None:
    code, out, _ = command("verify")
    assert (code, out.split("\n")[0]) == (0, "agrees with onnxruntime")
    plant("crashes:add")
    code, out, error = command("verify")
    assert (code, out) == (1, "")
    assert error == (
        "tvm-byoc: the process was ended by SIGSEGV in region faulty_npu_1; `tvm-byoc bisect` "
        "looks into its regions\n"
    )


def test_what_was_found_is_shown_where_no_reproducer_can_be_written(
    plant: Plant, command: Any, tmp_path: Path
) -> None:
    plant("aborts:add")
    code, out, error = command("bisect", "--json", "-o", str(tmp_path / "no" / "such"))
    facts = json.loads(out)
    assert code == 1
    assert (facts["culprit"]["composites"], facts["reproducer"]) == (["faulty_npu.add"], None)
    assert facts["culprit"]["problem"] == "the process was ended by SIGABRT"
    assert "cannot be written" in error


# Reproducers


def run_script(
    directory: Path, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, str(directory / "reproduce.py")],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )


def test_a_reproducer_fails_with_the_fault_and_passes_without(
    plant: Plant, folder: Path, tmp_path: Path
) -> None:
    plant("fused:add")
    result = byoc.bisect(module(chain, 4, 8), "faulty_npu")
    script = result.write_reproducer(tmp_path / "found")
    assert script == tmp_path / "found" / "reproduce.py"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found"]
    wrong = run_script(script.parent, folder)
    assert wrong.returncode == 1, wrong.stderr
    assert "not within" in wrong.stdout
    right = run_script(script.parent, folder, FAULT="")
    assert (right.returncode, right.stderr) == (0, "")
    assert "ok" in right.stdout


@pytest.mark.parametrize(
    ("make", "shape", "fault"),
    [
        (body, (4, 8), "always:matmul"),
        (reshaped, ("n", 8), "always:tanh"),
        (body, (4, 8), "raises:tanh"),
        (body, (4, 8), "stale:matmul"),
    ],
    ids=["weights", "open shapes", "exception", "state"],
)
def test_a_reproducer_holds_weights_and_sizes(
    plant: Plant, tmp_path: Path, make: Any, shape: tuple[Any, ...], fault: str
) -> None:
    plant(fault)
    script = byoc.bisect(module(make, *shape), "faulty_npu").write_reproducer(tmp_path / "found")
    for planted, code in ((fault, 1), ("", 0)):
        plant(planted)
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(script))
        assert left.value.code == code


@pytest.mark.parametrize("name", ["lambda", "0", "a b", "constant_0", "R"])
def test_a_model_may_call_its_inputs_as_it_likes(plant: Plant, tmp_path: Path, name: str) -> None:
    plant("always:add")
    x = relax.Var(name, relax.TensorType((4, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(op.add(x, weights(8)))
        builder.emit_func_output(result)
    script = byoc.bisect(builder.get(), "faulty_npu").write_reproducer(tmp_path / "found")
    for planted, code in (("always:add", 1), ("", 0)):
        plant(planted)
        with pytest.raises(SystemExit) as left:
            runpy.run_path(str(script))
        assert left.value.code == code


def test_a_reproducer_replaces_an_earlier_one_and_nothing_else(
    plant: Plant, tmp_path: Path
) -> None:
    plant("always:tanh")
    result = byoc.bisect(module(chain, 4, 8), "faulty_npu")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(OptionError, match="mine exists and is no earlier reproducer"):
        result.write_reproducer(tmp_path / "mine")
    with pytest.raises(OptionError, match="cannot be written"):
        result.write_reproducer(tmp_path / "no" / "such")
    for _ in range(2):
        result.write_reproducer(tmp_path / "own")
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == [
        "inputs.npz",
        "reproduce.py",
    ]


# Backends that are right


@pytest.mark.parametrize(
    ("backend", "isolate"),
    [
        pytest.param("example_npu", True, marks=pytest.mark.byoc("example_npu", step="runtime")),
        # In a fork it would wait for threads that other tests have started here.
        pytest.param("openvino", False, marks=pytest.mark.byoc("openvino", step="runtime")),
    ],
)
@pytest.mark.parametrize("kind", ["digits", "convnet", "encoder"])
def test_backends_of_the_kit_agree_on_real_models(backend: str, isolate: bool, kind: str) -> None:
    result = byoc.bisect(MODELS[kind](), backend, isolate=isolate)
    assert result, str(result)
    assert result.regions
    assert result.host is not None


def digits() -> Any:
    return Path(byoc.__file__).parent / "data/digits.onnx"


def convnet() -> Any:
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.AvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 5),
    ).eval()
    return byoc.load_model(net, (torch.randn(2, 3, 16, 16),))


def encoder() -> Any:
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    return byoc.load_model(layer.eval(), (torch.randn(1, 6, 16),))


MODELS: dict[str, Callable[[], Any]] = {"digits": digits, "convnet": convnet, "encoder": encoder}
