"""The operators that a pattern is made of."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.relax.dpl import is_const, is_op, is_tuple, is_tuple_get_item, wildcard
from tvm.relax.transform import FusionPattern
from tvm_ffi import structural_equal

import tvm_byoc_kit as byoc
from tvm_byoc_kit.pattern_ops import alternatives, possible


def one(op: str, *operands: Any) -> Any:
    return is_op(op)(*operands or (wildcard(),))


A, B, C = (f"relax.{name}" for name in ("add", "exp", "tanh"))
add, exp, tanh = one(A, wildcard(), wildcard()), one(B), one(C)
PATTERNS = {
    "wildcard": (wildcard(), [[]]),
    "constant": (is_const(), [[]]),
    "call": (one(B, add), [[A, B]]),
    "or": (one(B, add | tanh), [[A, B], [B, C]]),
    "or of more and less": (one(B, add | wildcard()), [[A, B], [B]]),
    "two choices": (is_op(A)(exp | tanh, exp | wildcard()), [[A, B], [A, B, C], [A, C]]),
    "and": (exp & exp.has_dtype("float32"), [[B]]),
    "not": (one(B, ~tanh), [[B]]),
    "attributes, types, shapes": (exp.has_dtype("float32").has_shape([2, 4]), [[B]]),
    "tuple": (one("relax.concat", is_tuple([exp, tanh])), [["relax.concat", B, C]]),
    "member of a tuple": (is_tuple_get_item(one("relax.split"), 0), [["relax.split"]]),
}


@pytest.mark.parametrize(("pattern", "names"), PATTERNS.values(), ids=PATTERNS)
def test_alternatives_are_what_a_match_is_made_of(pattern: Any, names: list[list[str]]) -> None:
    assert sorted(map(sorted, alternatives(pattern))) == sorted(map(sorted, names))


def test_many_choices_in_a_row_stay_cheap() -> None:
    pattern = wildcard()
    for _ in range(40):
        pattern = one(B, pattern) | one(C, pattern)
    assert len(alternatives(pattern)) == 3


def names(patterns: Any, *ops: str) -> list[str]:
    return [pattern.name for pattern in possible(patterns, ops)]


def test_patterns_that_need_an_operator_that_is_not_there_are_left_out() -> None:
    parts = {"any": wildcard(), "exp": exp, "choice": one(B, add | tanh), "both": one(B, add)}
    patterns = [FusionPattern(name, pattern) for name, pattern in parts.items()]
    assert names(patterns) == ["any"]
    assert names(patterns, A) == ["any"]
    assert names(patterns, B, C) == ["any", "exp", "choice"]
    assert names(patterns, A, B, C) == list(parts)


@pytest.mark.parametrize("backend", ["example_npu", "tensorrt", "cutlass", "cublas", "cudnn"])
def test_leaving_them_out_changes_no_partition(
    backend: str, onnx_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = byoc.load_model(onnx_path)
    mod = byoc.partition(model, backend).mod
    monkeypatch.setattr("tvm_byoc_kit.partitioning.possible", lambda patterns, _: patterns)
    assert structural_equal(byoc.partition(model, backend).mod, mod)
