"""The whole pipeline: any module, its report, and where it is run."""
# ruff: noqa: N805 - TVMScript is not Python

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812 - TVM's own spelling
from tvm.script import relax as R  # noqa: N812

import tvm_byoc_kit as byoc
from tvm_byoc_kit import preparation
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.preparation import PASSES, tidy
from tvm_byoc_kit.prepare_report import count_ops

op = relax.op
X = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
INPUT = {"x": ((2, 3), "float32")}
WEIGHT = np.arange(12, dtype="float32").reshape(4, 3)


@I.ir_module
class Branch:
    @R.function
    def main(condition: R.Tensor((), "bool"), x: R.Tensor((2, 3), "float32")) -> R.Tensor(
        (2, 3), "float32"
    ):
        a = R.reshape(R.reshape(x, R.shape([6])), R.shape([2, 3]))
        if condition:
            b = R.add(a, R.add(R.const(1.0, "float32"), R.const(2.0, "float32")))
            c = R.multiply(b, R.const(1.0, "float32"))
        else:
            c = R.multiply(a, a)
        return R.tanh(c)


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor(("n", 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.add(x, R.const(0.5, "float32"))
            b = R.match_cast(a, R.Tensor((2, 3), "float32"))
            c = R.reshape(b, R.shape([2, 3]))
            d = R.tanh(c)
            R.output(d)
        return d


@I.ir_module
class Callee:
    @R.function(private=True)
    def helper(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            a = R.tanh(R.broadcast_to(x, R.shape([2, 3])))
            R.output(a)
        return a

    @R.function
    def run(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        cls = Callee
        a = cls.helper(R.add(x, R.const(0.5, "float32")))
        return a  # noqa: RET504 - Relax returns variables


AWKWARD = {
    "If, taken": (Branch, (np.array(True), X), np.tanh(X + 3)),
    "If, not taken": (Branch, (np.array(False), X), np.tanh(X * X)),
    "MatchCast": (Cast, (X,), np.tanh(X + 0.5)),
    "two functions, none called main": (Callee, (X,), np.tanh(X + 0.5)),
}


@pytest.mark.parametrize("name", AWKWARD)
@pytest.mark.parametrize("backend", [None, "example_npu", "cutlass"])
def test_any_module_goes_through_every_pass(name: str, backend: str | None) -> None:
    mod, inputs, expected = AWKWARD[name]
    entry = "run" if mod is Callee else "main"
    model = byoc.prepare(byoc.load_model(mod, entry=entry), backend)
    assert model.report is not None
    assert not [item.skipped for item in model.report.passes if item.skipped]
    found = count_ops(model.mod)
    assert not {"relax.reshape", "relax.broadcast_to"} & found.keys()
    result = byoc.compile(model, "llvm", prepare=False)(*inputs)
    np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_a_function_with_a_branch_is_offloaded_on_both_sides_of_it() -> None:
    with pytest.warns(UserWarning, match="has an `If`"):
        parts = byoc.partition(byoc.prepare(Branch, "example_npu"), "example_npu")
    assert parts.coverage.host_ops == {}
    assert parts.coverage.offloaded == 3  # add, multiply, tanh


def test_a_pass_that_fails_is_skipped_with_its_reason(
    make_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("first line\nthe reason")

    broken = [
        preparation.Pass(item.name, fail) if item.name == "common_subexpressions" else item
        for item in PASSES
    ]
    monkeypatch.setattr(preparation, "PASSES", tuple(broken))
    model = byoc.prepare(make_module(INPUT, op.exp))
    assert model.report is not None
    skipped = {item.name: item.skipped for item in model.report.passes if item.skipped}
    assert skipped == {"common_subexpressions": "ValueError: the reason"}
    assert "skipped: ValueError: the reason" in str(model.report)
    np.testing.assert_allclose(byoc.compile(model, "llvm")(X), np.exp(X), rtol=1e-5)


def test_symbolic_dimensions_are_bound(make_module: Any) -> None:
    mod = make_module({"x": (("n", 3), "float32")}, op.exp)
    model = byoc.prepare(mod, symbols={"n": 2})
    assert model.inputs[0].shape == (2, 3)
    assert model.outputs[0].shape == (2, 3)
    np.testing.assert_allclose(byoc.compile(model, "llvm")(X), np.exp(X), rtol=1e-5)
    assert byoc.prepare(mod).inputs[0].shape == ("n", 3)


@pytest.mark.parametrize(
    ("symbols", "message"),
    [
        ({"batch": 2}, r"'batch', which is no symbolic dimension .* there are: n"),
        ({"n": 0}, r"symbols\['n'\] = 0: expected an integer >= 1"),
        ({"n": "2"}, r"symbols\['n'\] = '2'"),
    ],
)
def test_symbols_are_checked(make_module: Any, symbols: Any, message: str) -> None:
    mod = make_module({"x": (("n", 3), "float32")}, op.exp)
    with pytest.raises(OptionError, match=message):
        byoc.prepare(mod, symbols=symbols)


def test_names_and_order_of_inputs_and_outputs_stay(onnx_proto: Any) -> None:
    model = byoc.load_model(onnx_proto)
    after = byoc.prepare(model, "example_npu")
    assert [spec.name for spec in after.inputs] == [spec.name for spec in model.inputs]
    assert [spec.name for spec in after.outputs] == ["probs:0", "logits"]
    assert byoc.verify(byoc.compile(after, "llvm"), "onnxruntime")


def test_the_model_given_is_not_changed(make_module: Any) -> None:
    mod = make_module(INPUT, lambda x: op.exp(op.reshape(x, (2, 3))))
    before = mod.script()
    model = byoc.prepare(mod)
    assert mod.script() == before
    assert model.unprepared is mod
    assert byoc.prepare(model).unprepared is mod


def test_preparing_twice_changes_nothing_more(make_module: Any) -> None:
    def body(x: Any) -> Any:
        weight = op.permute_dims(relax.const(WEIGHT))
        return op.add(op.matmul(x, weight), op.broadcast_to(relax.const(1.0, "float32"), (2, 4)))

    once = byoc.prepare(make_module(INPUT, body))
    twice = byoc.prepare(once)
    tvm.ir.assert_structural_equal(once.mod, twice.mod)
    assert twice.report is not None
    assert not any(item.changes for item in twice.report.passes)


# --- The report ---------------------------------------------------------------------------------


def test_the_report_says_what_each_pass_changed(make_module: Any) -> None:
    def body(x: Any) -> Any:
        op.nn.dropout(x, 0.5)
        weight = op.permute_dims(relax.const(WEIGHT))
        return op.matmul(op.reshape(x, (2, 3)), weight)

    report = byoc.prepare(make_module(INPUT, body), "tensorrt").report
    assert report is not None
    assert report.backend == "tensorrt"
    changes = {item.name: item.changes for item in report.passes if item.changes}
    assert changes == {
        "fold_constants": {"relax.permute_dims": -1},
        "simplify": {"relax.reshape": -1},
    }
    lines = str(report).splitlines()
    assert lines[0].startswith("prepared for tensorrt: 3 -> 1 ops in ")
    assert "fold_constants          permute_dims -1" in lines[1]
    assert "simplify                reshape -1" in lines[2]
    assert "nothing to do: bind_symbols, dataflow, canonicalize" in lines[3]
    assert len(lines) == 4
    facts = json.loads(json.dumps(report.to_dict()))
    assert [item["name"] for item in facts["passes"]] == [item.name for item in PASSES]
    assert facts["passes"][0]["ops_before"] == 3
    assert facts["passes"][-1]["ops_after"] == 1
    assert facts["seconds"] >= 0


# --- Where it is run ----------------------------------------------------------------------------


def same_shape(x: Any) -> Any:
    return op.exp(op.reshape(x, (2, 3)))


def host_ops(parts: byoc.Partition) -> list[str]:
    return [item.op for item in parts.coverage.ops]


def test_a_plain_module_is_partitioned_as_it_is(make_module: Any) -> None:
    mod = make_module(INPUT, same_shape)
    assert host_ops(byoc.partition(mod, "llvm")) == ["relax.reshape", "relax.exp"]
    assert host_ops(byoc.partition(mod, "llvm", prepare=True)) == ["relax.exp"]


def test_an_imported_model_is_prepared_for_the_backend_first(make_module: Any) -> None:
    model = byoc.load_model(make_module(INPUT, same_shape))
    parts = byoc.partition(model, "llvm")
    assert host_ops(parts) == ["relax.exp"]
    assert parts.model.report is not None
    assert parts.model.report.backend == "llvm"
    assert len(host_ops(byoc.partition(model, "llvm", prepare=False))) == 2


def test_a_model_that_is_prepared_for_the_backend_is_not_prepared_again(make_module: Any) -> None:
    model = byoc.prepare(make_module(INPUT, same_shape), "tensorrt")
    assert byoc.partition(model, "tensorrt").model is model
    assert byoc.partition(model, "llvm").model is not model


def test_compile_prepares(make_module: Any) -> None:
    exe = byoc.compile(make_module(INPUT, same_shape), "llvm")
    assert exe.model is not None
    assert exe.model.report is not None
    unprepared = byoc.compile(make_module(INPUT, same_shape), "llvm", prepare=False)
    assert unprepared.model is not None
    assert unprepared.model.report is None


def test_verify_compares_with_the_module_before_preparation(
    make_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that changed numbers must show."""
    mod = make_module(INPUT, op.exp)
    assert byoc.verify(byoc.compile(mod, "llvm"), "tvm")

    other = make_module(INPUT, op.negative)
    monkeypatch.setattr(
        preparation, "PASSES", (preparation.Pass("wrong", lambda *_: other), *PASSES)
    )
    assert not byoc.verify(byoc.compile(mod, "llvm"), "tvm")


def test_importers_fold_weights_and_drop_dead_code(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return op.matmul(op.reshape(x, (2, 3)), op.permute_dims(relax.const(WEIGHT)))

    mod, report = tidy(make_module(INPUT, body))
    assert count_ops(mod) == {"relax.reshape": 1, "relax.matmul": 1}
    model = replace(byoc.load_model(mod), report=report)
    for _ in range(2):
        model = byoc.prepare(model)
        assert model.report is not None
        lines = [line.split("s  ")[1] for line in str(model.report).splitlines()[1:3]]
        assert lines[0].startswith("fold_constants (import) permute_dims -1")
    assert count_ops(model.mod) == {"relax.matmul": 1}


@pytest.mark.parametrize("as_json", [False, True])
def test_the_command_line_explains(onnx_path: Path, as_json: bool) -> None:
    from typer.testing import CliRunner

    from tvm_byoc_kit.cli import cli

    wanted = "--json" if as_json else "--explain"
    done = CliRunner().invoke(cli, ["partition", str(onnx_path), "--backend", "llvm", wanted])
    assert done.exit_code == 0, done.output
    if as_json:
        facts = json.loads(done.stdout)["prepare"]
        assert facts["backend"] == "llvm"
        assert {item["name"] for item in facts["passes"]} == {item.name for item in PASSES}
    else:
        assert "prepared for llvm: 4 -> 4 ops in" in done.stdout
        assert "nothing to do:" in done.stdout


def test_functions_beside_the_entry_are_kept_and_prepared(make_module: Any) -> None:
    mod = make_module(INPUT, same_shape)
    mod = make_module(INPUT, lambda x: op.negative(op.reshape(x, (2, 3))), name="other", into=mod)
    model = byoc.prepare(mod)
    assert count_ops(model.mod) == {"relax.exp": 1, "relax.negative": 1}


# --- A model of some size -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet() -> tuple[tvm.IRModule, Any, Any]:
    """ResNet-18 as TVM's importer gives it, the module it came from, and an input."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    path = Path(__file__).parents[1] / "scripts" / "bench_simulator.py"
    spec = importlib.util.spec_from_file_location("bench_simulator", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    network = script.resnet18()
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 2)
    image = torch.rand(1, 3, 64, 64)
    exported = torch.export.export(network, (image,))
    return from_exported_program(exported, unwrap_unit_return_tuple=True), network, image


def test_resnet18_is_one_tensorrt_region_and_nothing_is_compiled_for_it(
    resnet: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, _, _ = resnet
    assert len(byoc.partition(mod, "tensorrt").coverage.regions) == 2  # a dead op after the pool
    with monkeypatch.context() as patch:  # TVM's pass compiles each call that it folds
        patch.setattr(relax.transform, "FoldConstant", lambda: pytest.fail("it was compiled"))
        model = byoc.prepare(mod, "tensorrt")
    coverage = byoc.partition(model, "tensorrt").coverage
    assert len(coverage.regions) == 1
    assert coverage.offloaded == coverage.total


def test_resnet18_has_pytorchs_numbers_after_preparation(resnet: Any) -> None:
    import torch

    mod, network, image = resnet
    with torch.no_grad():
        expected = network(image).numpy()
    result = byoc.compile(mod, "llvm")(image.numpy())
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
