"""Why an op stayed on the host, on modules that isolate each reason."""
# ruff: noqa: ANN201, N805 - TVMScript is not Python

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.dpl import is_const, is_op, wildcard
from tvm.relax.transform import FusionPattern
from tvm.script import ir as I  # noqa: N812 - TVM's own spelling
from tvm.script import relax as R  # noqa: N812

import tvm_byoc_kit as byoc
from tvm_byoc_kit.coverage import REASON_KINDS, Reason

X = {"x": ((2, 4), "float32")}
relu = relax.op.nn.relu


def toy(*patterns: Any, refusal: Callable[[Any], str | None] | None = None) -> byoc.Backend:
    """A backend with these patterns alone."""
    made = [FusionPattern(f"toy.{name}", *rest) for name, *rest in patterns]
    return byoc.Backend("toy", "for tests", patterns=lambda: made, refusal=refusal)


def one(op: str, *operands: Any) -> Any:
    return is_op(op)(*operands or (wildcard(),))


ADD = one("relax.add", wildcard(), wildcard())
RELU = ("relu", one("relax.nn.relu"))
ADD_RELU = ("add_relu", one("relax.nn.relu", ADD))


def reasons(mod: tvm.IRModule, backend: Any, **choices: Any) -> dict[str, Reason | None]:
    coverage = byoc.partition(mod, backend, **choices).coverage
    return {op.op: op.reason for op in coverage.ops}


@pytest.fixture
def lone(make_module: Any) -> Callable[..., tvm.IRModule]:
    """A module with one op, or what the body makes."""
    return lambda body=relu, params=X: make_module(params, body)


def test_an_op_in_a_region_has_no_reason(lone: Any) -> None:
    assert reasons(lone(), toy(RELU)) == {"relax.nn.relu": None}


def test_an_op_that_no_pattern_names(lone: Any) -> None:
    assert reasons(lone(relax.op.erf), toy(RELU)) == {
        "relax.erf": Reason("no_pattern", "no pattern of toy names relax.erf")
    }


@pytest.mark.parametrize("backend", ["llvm", "cuda"])
def test_a_backend_without_patterns_says_so(lone: Any, backend: str) -> None:
    (reason,) = reasons(lone(), backend).values()
    assert reason == Reason(
        "no_pattern", f"backend {backend} has no patterns: TVM writes all kernels"
    )


@pytest.mark.filterwarnings("ignore:function `main` calls the external function")
def test_calls_of_functions_say_that_patterns_match_operators(lone: Any) -> None:
    def packed(x: Any) -> Any:
        return relax.call_dps_packed("some.library", [x], out_ty=x.ty)

    lowered = relax.transform.LegalizeOps()(lone())
    for mod, op, callee in (
        (lowered, "relax.call_tir", "relu"),
        (lone(packed), "relax.call_dps_packed", "some.library"),
    ):
        (reason,) = reasons(mod, toy(RELU)).values()
        assert reason is not None
        assert reason.kind == "no_pattern"
        assert reason.text.startswith(f"no pattern of toy names {op} of `{callee}`: patterns match")


def test_an_op_that_a_predicate_refuses_has_the_words_of_the_predicate(lone: Any) -> None:
    backend = toy(RELU, refusal=lambda call: f"{call.op.name}: not on a Sunday")
    assert reasons(lone(), backend) == {
        "relax.nn.relu": Reason("refused", "relax.nn.relu: not on a Sunday")
    }


def test_the_predicate_sees_the_call_as_it_was_with_its_constants(lone: Any) -> None:
    seen: list[Any] = []
    backend = toy(("add", ADD), refusal=lambda call: seen.append(call) or "no")
    ones = relax.const(np.ones(4, "float32"))
    assert reasons(lone(lambda x: relax.op.add(x, ones)), backend)["relax.add"] is not None
    assert isinstance(seen[-1].args[1], tvm.ir.GenericConst)


def test_an_op_that_is_named_only_together_with_others(lone: Any) -> None:
    assert reasons(lone(), toy(ADD_RELU)) == {
        "relax.nn.relu": Reason("no_match", "toy.add_relu needs relax.add too")
    }


def test_of_alternatives_the_least_demanding_is_named(lone: Any) -> None:
    matmul = one("relax.matmul", wildcard(), wildcard())
    biased = one("relax.add", matmul, wildcard()) | ADD
    backend = toy(("choice", one("relax.nn.relu", biased)), ADD_RELU)
    (reason,) = reasons(lone(), backend).values()
    assert reason == Reason("no_match", "toy.choice needs relax.add too; 1 more pattern names it")


def test_a_pattern_whose_operands_do_not_fit(lone: Any) -> None:
    backend = toy(("add_const", one("relax.add", wildcard(), is_const())))
    assert reasons(lone(lambda x: relax.op.add(x, x)), backend) == {
        "relax.add": Reason("no_match", "toy.add_const does not fit its operands")
    }


def test_a_pattern_whose_own_check_refuses(lone: Any) -> None:
    backend = toy((*RELU, {}, lambda _context: False))
    assert reasons(lone(), backend) == {
        "relax.nn.relu": Reason("no_match", "toy.relu fits, but its own check refused")
    }


def test_a_partner_that_is_refused_is_named_with_its_refusal(lone: Any) -> None:
    backend = toy(ADD_RELU, refusal=lambda call: "too wide" if "add" in call.op.name else None)
    found = reasons(lone(lambda x: relu(relax.op.add(x, x))), backend)
    assert found["relax.add"] == Reason("refused", "too wide")
    assert found["relax.nn.relu"] == Reason(
        "no_match", "toy.add_relu takes it only with relax.add, which is refused: too wide"
    )


def test_the_predicate_of_a_single_pattern_speaks_for_each_op_of_the_match(lone: Any) -> None:
    seen: list[list[str]] = []

    def refuse(calls: tuple[Any, ...]) -> str:
        seen.append([call.op.name for call in calls])
        return "not on a Sunday"

    chain = byoc.Pattern("add_relu", ["relax.add", "relax.nn.relu"], refuse)
    backend = byoc.Backend("toy", "for tests", patterns=[chain])
    refused = Reason("refused", "toy.add_relu: not on a Sunday")
    found = reasons(lone(lambda x: relu(relax.op.add(x, x))), backend)
    assert found == {"relax.add": refused, "relax.nn.relu": refused}
    assert set(map(tuple, seen)) == {("relax.add", "relax.nn.relu")}


def test_the_predicate_of_a_pattern_that_does_not_fit_is_no_reason(lone: Any) -> None:
    chain = byoc.Pattern("add_relu", ["relax.add", "relax.nn.relu"], lambda _calls: "never")
    backend = byoc.Backend("toy", "for tests", patterns=[chain])
    assert reasons(lone(), backend) == {
        "relax.nn.relu": Reason("no_match", "toy.add_relu needs relax.add too")
    }


def test_a_check_that_refuses_several_ops(lone: Any) -> None:
    backend = toy((*ADD_RELU, {}, lambda _context: False))
    found = reasons(lone(lambda x: relu(relax.op.add(x, x))), backend)
    assert found["relax.nn.relu"] == Reason(
        "no_match", "toy.add_relu fits, but its own check refused"
    )


def test_a_pattern_in_two_forms_is_named_once(lone: Any) -> None:
    forms = (("both", one("relax.nn.relu", one(f"relax.{name}"))) for name in ("exp", "tanh"))
    (reason,) = reasons(lone(), toy(*forms)).values()
    assert reason is not None
    assert reason.text == "toy.both needs relax.exp too; 1 more pattern names it"


def test_a_long_list_of_patterns_is_cut(lone: Any) -> None:
    others = ("exp", "tanh", "sqrt", "erf")
    backend = toy(*((name, one("relax.nn.relu", one(f"relax.{name}"))) for name in others))
    (reason,) = reasons(lone(), backend).values()
    assert reason is not None
    assert reason.text == (
        "toy.exp needs relax.exp too; toy.tanh needs relax.tanh too; 2 more patterns name it"
    )


@I.ir_module
class Outside:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        a = R.nn.relu(x)
        b = R.erf(a)
        return b  # noqa: RET504


def test_an_op_outside_a_dataflow_block_whether_or_not_a_pattern_names_it() -> None:
    found = reasons(Outside, toy(RELU))
    assert [reason.kind for reason in found.values() if reason] == ["outside_dataflow"] * 2


def test_preparing_removes_that_reason() -> None:
    found = reasons(Outside, "example_npu", prepare=True)
    assert found["relax.nn.relu"] is None
    assert found["relax.erf"] == Reason("no_pattern", "no pattern of example_npu names relax.erf")


@I.ir_module
class Branches:
    @R.function
    def main(condition: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")):
        if condition:
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.erf(a)
                R.output(b)
            c = b
        else:
            c = R.nn.relu(x)
        with R.dataflow():
            d = R.erf(R.nn.relu(c))
            R.output(d)
        return d


def test_each_op_of_a_function_that_cannot_be_merged_has_its_own_reason() -> None:
    with pytest.warns(UserWarning, match="has an `If`"):
        coverage = byoc.partition(Branches, toy(RELU)).coverage
    found = [(op.op, op.reason.kind if op.reason else None) for op in coverage.ops]
    assert found == [
        ("relax.nn.relu", None),
        ("relax.erf", "no_pattern"),
        ("relax.nn.relu", "outside_dataflow"),
        ("relax.nn.relu", None),
        ("relax.erf", "no_pattern"),
    ]


@I.ir_module
class Primitive:
    @R.function(private=True)
    def fused(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        R.func_attr({"Primitive": True})
        with R.dataflow():
            a = R.nn.relu(x)
            R.output(a)
        return a

    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = Primitive
        with R.dataflow():
            a = cls.fused(x)
            R.output(a)
        return a


@pytest.mark.filterwarnings("ignore:function `main` calls")
def test_a_function_that_tvm_leaves_alone_is_the_reason() -> None:
    (reason,) = reasons(Primitive, toy(RELU)).values()
    assert reason is not None
    assert reason.kind == "outside_dataflow"
    assert reason.text == (
        "it stands in function `fused`, marked Primitive, from which TVM offloads nothing"
    )


def test_policy_is_asked_first(lone: Any) -> None:
    (reason,) = reasons(lone(), toy(RELU), policy={"exclude_ops": "relu"}).values()
    assert reason == Reason("policy", "exclude_ops has 'relax.nn.relu'")


@pytest.mark.parametrize("op", [relu, relax.op.erf])
def test_policy_is_no_reason_for_what_the_backend_would_not_take(lone: Any, op: Any) -> None:
    backend = toy(RELU, refusal=lambda _: "never")
    policy = {"exclude_ops": "relu,erf"}
    kinds = {relu: "refused", relax.op.erf: "no_pattern"}
    (reason,) = reasons(lone(op), backend, policy=policy).values()
    assert reason is not None
    assert reason.kind == kinds[op]


def test_an_op_that_lost_its_partner_to_the_policy_says_so(lone: Any) -> None:
    found = reasons(
        lone(lambda x: relu(relax.op.add(x, x))), toy(ADD_RELU), policy={"exclude_ops": "add"}
    )
    assert found["relax.add"] == Reason("policy", "exclude_ops has 'relax.add'")
    assert found["relax.nn.relu"] is not None
    assert found["relax.nn.relu"].kind == "policy"
    assert "only together with ops that the policy keeps" in found["relax.nn.relu"].text


BACKENDS = ("example_npu", "tensorrt", "cutlass", "cublas", "cudnn", "llvm")


@pytest.mark.parametrize("backend", BACKENDS)
def test_host_ops_have_one_reason_and_offloaded_ops_none(backend: str, onnx_path: Any) -> None:
    for op in byoc.partition(onnx_path, backend).coverage.ops:
        assert (op.region is None) == (op.reason is not None)
        assert op.reason is None or op.reason.kind in REASON_KINDS
        assert op.reason is None or len(op.reason.text.splitlines()) == 1
