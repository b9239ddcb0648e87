"""What a policy keeps on the host, and that the numbers stay the same."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm_ffi import structural_equal

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.policy import PartitionPolicy, as_policy

npu = pytest.mark.byoc("example_npu", step="runtime")


def layers(x: Any, w: Any) -> Any:
    """Three regions, of 1, 2 and 4 ops, that ops which the NPU does not have keep apart."""
    a = relax.op.erf(relax.op.tanh(x))
    b = relax.op.erf(relax.op.nn.relu(relax.op.exp(a)))
    c = relax.op.matmul(b, w)
    return relax.op.tanh(relax.op.nn.relu(relax.op.add(c, x)))


SIZES = [1, 2, 4]
OPS = Counter(
    {
        "relax.tanh": 2,
        "relax.erf": 2,
        "relax.nn.relu": 2,
        "relax.exp": 1,
        "relax.matmul": 1,
        "relax.add": 1,
    }
)


@pytest.fixture(scope="module")
def model(make_module: Any) -> tvm.IRModule:
    return make_module({"x": ((4, 4), "float32"), "w": ((4, 4), "float32")}, layers)


def partition(mod: Any, **policy: Any) -> byoc.Partition:
    return byoc.partition(mod, "example_npu", policy=policy)


def sizes(parts: byoc.Partition) -> list[int]:
    return [region.ops for region in parts.coverage.regions]


def kept_by_policy(parts: byoc.Partition) -> Counter[str]:
    ops = parts.coverage.ops
    return Counter(op.op for op in ops if op.reason is not None and op.reason.kind == "policy")


def test_without_a_policy_nothing_is_kept(model: tvm.IRModule) -> None:
    parts = byoc.partition(model, "example_npu")
    assert parts.policy is None
    assert sizes(parts) == SIZES
    assert not kept_by_policy(parts)


def test_the_default_policy_changes_nothing(model: tvm.IRModule) -> None:
    parts = partition(model)
    assert parts.policy == PartitionPolicy()
    assert structural_equal(parts.mod, byoc.partition(model, "example_npu").mod)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"min_region_ops": 2}, [2, 4]),
        ({"min_region_ops": 3}, [4]),
        ({"min_region_ops": 5}, []),
        ({"require_mac": True}, [4]),
        ({"max_regions": 2}, [2, 4]),
        ({"max_regions": 1}, [4]),
        ({"max_regions": 0}, []),
        ({"exclude_ops": "relax.tanh"}, [2, 3]),
        ({"exclude_ops": ["tanh", "nn.relu"]}, [1, 2]),
        ({"exclude_ops": "ta*"}, [2, 3]),
        ({"exclude_ops": "matmul", "require_mac": True}, []),
        ({"include_only": "tanh,relu"}, [1, 1, 2]),
        ({"include_only": ("nn.*",)}, [1, 1]),
        ({"exclude_ops": "tanh", "max_regions": 1, "min_region_ops": 3}, [3]),
        ({"include_only": "tanh", "exclude_ops": "tanh"}, []),
    ],
)
def test_regions_that_a_policy_leaves(
    model: tvm.IRModule, policy: dict[str, Any], expected: list[int]
) -> None:
    parts = partition(model, **policy)
    assert sizes(parts) == expected
    coverage = parts.coverage
    assert coverage.total == OPS.total()
    assert kept_by_policy(parts) + Counter({"relax.erf": 2}) == Counter(coverage.host_ops)


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        ({"min_region_ops": 2}, "its region has 1 op(s), min_region_ops is 2"),
        ({"require_mac": True}, "its region multiplies and accumulates nothing (require_mac)"),
        ({"max_regions": 2}, "its region is not among those with most MACs, max_regions is 2"),
        ({"exclude_ops": "tanh"}, "exclude_ops has 'relax.tanh'"),
        ({"exclude_names": "lv"}, "exclude_names has 'lv'"),
        ({"include_only": "matmul"}, "include_only has relax.matmul"),
    ],
)
def test_the_reason_names_the_rule(model: tvm.IRModule, policy: dict[str, Any], text: str) -> None:
    first = partition(model, **policy).coverage.ops[0]
    assert (first.name, first.op) == ("lv", "relax.tanh")
    assert first.reason is not None
    assert (first.reason.kind, first.reason.text) == ("policy", text)


def test_names_are_those_of_the_report(model: tvm.IRModule) -> None:
    ops = byoc.partition(model, "example_npu").coverage.ops
    relus = [op.name for op in ops if op.op == "relax.nn.relu"]
    parts = partition(model, exclude_names=relus[:1])
    kept = [op.name for op in parts.coverage.ops if op.reason and op.reason.kind == "policy"]
    assert kept == relus[:1]


def test_names_hold_in_every_function(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.tanh)
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.tanh, name="other", into=mod)
    (name,) = {op.name for op in byoc.partition(mod, "example_npu").coverage.ops}
    assert partition(mod, exclude_names=name).coverage.offloaded == 0


@pytest.mark.parametrize("choices", [{}, {"annotate_codegen": True}])
def test_an_op_excluded_from_a_fused_match_leaves_the_rest_to_the_backend(
    two_outputs: tvm.IRModule, choices: dict[str, bool]
) -> None:
    parts = byoc.partition(two_outputs, "example_npu", policy={"exclude_ops": "add"}, **choices)
    assert parts.coverage.host_ops == {"relax.add": 1}
    assert parts.coverage.offloaded == 3


def test_what_the_host_gets_back_is_as_if_it_had_never_matched(model: tvm.IRModule) -> None:
    refused = partition(model, min_region_ops=3)
    names = [op.name for op in refused.coverage.ops if op.reason and op.reason.kind == "policy"]
    excluded = partition(model, exclude_names=names)
    assert len(names) == 3
    assert structural_equal(refused.mod, excluded.mod)
    host = byoc.partition(model, "llvm").mod
    assert structural_equal(partition(model, max_regions=0).mod, host)


def test_a_region_that_falls_apart_is_judged_again(make_module: Any) -> None:
    """Without the op in its middle, what is left of a region may be too small itself."""

    def body(x: Any) -> Any:
        for op in (relax.op.tanh, relax.op.nn.relu, relax.op.exp, relax.op.nn.relu, relax.op.tanh):
            x = op(x)
        return x

    mod = make_module({"x": ((2, 4), "float32")}, body)
    assert sizes(partition(mod, exclude_ops="exp")) == [2, 2]
    assert sizes(partition(mod, exclude_ops="exp", min_region_ops=3)) == []


def test_of_regions_with_the_same_macs_the_bigger_is_kept(make_module: Any) -> None:
    def body(x: Any) -> Any:
        return relax.op.nn.relu(relax.op.tanh(relax.op.erf(relax.op.tanh(x))))

    parts = partition(make_module({"x": ((2, 4), "float32")}, body), max_regions=1)
    assert [op.region is not None for op in parts.coverage.ops] == [False, False, True, True]


def test_macs_count_before_ops(make_module: Any) -> None:
    def body(x: Any, w: Any) -> Any:
        chain = relax.op.tanh(relax.op.nn.relu(relax.op.tanh(x)))
        return relax.op.matmul(relax.op.erf(chain), w)

    params = {"x": ((4, 4), "float32"), "w": ((4, 4), "float32")}
    coverage = partition(make_module(params, body), max_regions=1).coverage
    assert [op.op for op in coverage.ops if op.region is not None] == ["relax.matmul"]


def test_macs_that_a_symbolic_dimension_decides_count(make_module: Any) -> None:
    params = {"x": (("n", 4), "float32"), "w": ((4, 4), "float32")}
    mod = make_module(params, lambda x, w: relax.op.matmul(relax.op.erf(relax.op.tanh(x)), w))
    for policy in ({"require_mac": True}, {"max_regions": 1}):
        coverage = partition(mod, **policy).coverage
        assert [op.op for op in coverage.ops if op.region is not None] == ["relax.matmul"]


def test_every_function_of_a_module_is_under_the_policy(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, relax.op.tanh)
    mod = make_module(
        {"x": ((2, 4), "float32")}, lambda x: relax.op.tanh(relax.op.exp(x)), "other", into=mod
    )
    parts = partition(mod, min_region_ops=2)
    assert [op.function for op in parts.coverage.ops if op.region is not None] == ["other"] * 2


def test_regions_that_a_module_has_already_are_left(model: tvm.IRModule) -> None:
    once = byoc.partition(model, "example_npu").mod
    with pytest.warns(UserWarning, match="calls the function"):
        again = partition(once, min_region_ops=3)
    assert sizes(again) == SIZES


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_warning_is_given_once_however_often_it_is_partitioned(model: tvm.IRModule) -> None:
    once = byoc.partition(model, "example_npu").mod
    with pytest.warns(UserWarning, match="calls the function") as caught:
        partition(once, exclude_ops="tanh", min_region_ops=3)
    assert [item.category for item in caught].count(UserWarning) == 1


# Strict


def test_strict_lists_what_is_on_the_host_and_why(model: tvm.IRModule) -> None:
    with pytest.raises(ModelError) as caught:
        partition(model, strict=True, exclude_ops="exp")
    text = str(caught.value)
    assert text.startswith("policy strict: 3 of 9 ops stay on the host: 2 x relax.erf `lv1, lv4`")
    assert "no pattern of example_npu names relax.erf" in text
    assert "exclude_ops has 'relax.exp'" in text


def test_strict_is_content_when_all_is_offloaded(two_outputs: tvm.IRModule) -> None:
    assert partition(two_outputs, strict=True).coverage.offloaded == 4


def test_strict_refuses_a_backend_that_offloads_nothing(model: tvm.IRModule) -> None:
    with pytest.raises(ModelError, match="9 of 9 ops stay on the host"):
        byoc.partition(model, "llvm", policy={"strict": True})


def test_a_long_list_is_cut(make_module: Any) -> None:
    def body(x: Any) -> Any:
        for _ in range(100):
            x = relax.op.erf(x)
        for op in (relax.op.sin, relax.op.cos, relax.op.tan, relax.op.sinh, relax.op.cosh):
            x = op(x)
        for op in (relax.op.asin, relax.op.acos, relax.op.atan, relax.op.floor, relax.op.ceil):
            x = op(x)
        return x

    with pytest.raises(ModelError) as caught:
        partition(make_module({"x": ((2, 4), "float32")}, body), strict=True)
    text = str(caught.value)
    assert "100 x relax.erf `lv, lv1, lv2, ...`" in text
    assert text.endswith("3 more ops")
    assert len(text) < 1000


# Values


def test_lists_and_strings_are_the_same() -> None:
    expected = ("relax.add", "relax.nn.relu")
    for value in ("add, nn.relu", ["add", "relax.nn.relu"], ("relax.add", "relu")):
        assert PartitionPolicy(exclude_ops=value).exclude_ops == expected  # type: ignore[arg-type]
    assert PartitionPolicy(exclude_names=["a", "b*"]).exclude_names == ("a", "b*")  # type: ignore[arg-type]


def test_a_policy_is_frozen_and_compares_by_value() -> None:
    policy = PartitionPolicy(exclude_ops=("add",))
    assert policy == PartitionPolicy(exclude_ops=("relax.add",))
    assert hash(policy) == hash(PartitionPolicy(exclude_ops=("relax.add",)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.strict = True  # type: ignore[misc]


def test_a_policy_says_what_is_not_by_default() -> None:
    assert str(PartitionPolicy()) == "default"
    policy = PartitionPolicy(min_region_ops=3, exclude_ops=("add", "relu"), strict=True)
    assert str(policy) == "min_region_ops=3, exclude_ops=relax.add,relax.nn.relu, strict=true"


def test_a_policy_survives_its_dict() -> None:
    policy = PartitionPolicy(2, True, ("add",), ("lv*",), ("matmul",), 4, False)
    assert as_policy(policy.to_dict()) == policy
    assert as_policy(policy) is policy
    assert as_policy(None) is None


WRONG = {
    "zero": ({"min_region_ops": 0}, "min_region_ops=0: expected an integer >= 1"),
    "a float": ({"min_region_ops": 2.0}, "min_region_ops=2.0: expected an integer"),
    "a bool": ({"min_region_ops": True}, "min_region_ops=True: expected an integer"),
    "text": ({"min_region_ops": "many"}, "min_region_ops='many': expected an integer"),
    "negative": ({"max_regions": -1}, "max_regions=-1: expected an integer >= 0"),
    "a number": ({"strict": 1}, "strict=1: expected true or false"),
    "yes": ({"require_mac": "yes"}, "require_mac='yes': expected true or false"),
    "unknown op": ({"exclude_ops": "reluu"}, "'reluu', which is no operator.*'relax.nn.relu'"),
    "unknown op, prefix": ({"include_only": "relax.cnv2d"}, "mean 'relax.nn.conv2d'"),
    "capitals": ({"exclude_ops": "Relu"}, "mean 'relax.nn.relu'"),
    "unknown glob": ({"exclude_ops": "qqq*"}, r"'qqq\*', which is no operator of TVM"),
    "empty": ({"exclude_ops": "add,"}, "exclude_ops has ''"),
    "numbers": ({"exclude_names": [3]}, "exclude_names has 3: expected a name"),
    "nothing": ({"exclude_names": None}, "exclude_names=None: expected a name or a list"),
    "unknown field": ({"min_regions": 3}, "has no 'min_regions'.*mean 'min_region_ops'"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_wrong_values_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        as_policy(fields)


def test_what_is_no_policy_is_refused(model: tvm.IRModule) -> None:
    with pytest.raises(OptionError, match="a PartitionPolicy or a dict, not list"):
        byoc.partition(model, "example_npu", policy=["strict"])  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["example_npu", "llvm"])
def test_a_name_that_is_not_there_is_refused_with_those_close_to_it(
    model: tvm.IRModule, backend: str
) -> None:
    for name, close in (("lv22", "close to it: lv2"), ("conv*", "coverage.ops has the names")):
        with pytest.raises(OptionError, match=close):
            byoc.partition(model, backend, policy={"exclude_names": name})


def test_an_operator_that_a_model_does_not_have_is_no_error(model: tvm.IRModule) -> None:
    assert sizes(partition(model, exclude_ops="nn.conv2d")) == SIZES


# Numbers

policies = st.fixed_dictionaries(
    {},
    optional={
        "min_region_ops": st.integers(1, 5),
        "require_mac": st.booleans(),
        "exclude_ops": st.lists(st.sampled_from(sorted(OPS)), max_size=3),
        "exclude_names": st.lists(st.sampled_from(["lv", "lv1", "lv3", "lv5", "gv"]), max_size=3),
        "include_only": st.lists(st.sampled_from(sorted(OPS)), max_size=4),
        "max_regions": st.none() | st.integers(0, 3),
    },
)


def layers_numpy(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    import math

    erf = np.vectorize(math.erf, otypes=[np.float32])
    hidden = erf(np.maximum(np.exp(erf(np.tanh(x))), 0))
    return np.tanh(np.maximum(hidden @ w + x, 0))


@npu
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies)
def test_a_policy_does_not_change_the_numbers(
    model: tvm.IRModule, policy: Mapping[str, Any]
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((4, 4), dtype=np.float32) for _ in range(2))
    exe = byoc.compile(model, "example_npu", policy=policy, prepare=False)
    np.testing.assert_allclose(exe(x, w), layers_numpy(x, w), rtol=1e-4, atol=1e-5)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies)
def test_a_policy_holds_for_every_region_and_every_op(
    model: tvm.IRModule, policy: Mapping[str, Any]
) -> None:
    rules = PartitionPolicy(**policy)
    coverage = byoc.partition(model, "example_npu", policy=rules).coverage
    assert Counter(op.op for op in coverage.ops) == OPS
    for op in coverage.ops:
        assert (op.region is None) == (op.reason is not None)
        if op.region is not None:
            assert op.op not in rules.exclude_ops
            assert op.name not in rules.exclude_names
            assert not rules.include_only or op.op in rules.include_only
    assert all(region.ops >= rules.min_region_ops for region in coverage.regions)
    assert rules.max_regions is None or len(coverage.regions) <= rules.max_regions
    if rules.require_mac:
        with_matmul = {op.region for op in coverage.ops if op.op == "relax.matmul"}
        assert {region.name for region in coverage.regions} <= with_matmul
