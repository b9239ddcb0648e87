"""Wide joins are legalized alone, and compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.wide_functions import legalize_unfused_joins

LLVM = tvm.target.Target("llvm")
X = np.random.default_rng(0).standard_normal((2, 3), dtype=np.float32)


def joins(make_module: Any, widths: list[int]) -> tvm.IRModule:
    """Joins of joins: each level joins so many of what the level below gives, plus its index."""

    def body(x: Any) -> Any:
        value = x
        for width in widths:
            parts = [relax.op.add(value, relax.const(float(i), "float32")) for i in range(width)]
            value = relax.op.concat(parts, axis=0)
        return value

    return make_module({"x": ((2, 3), "float32")}, body)


def unfused(mod: tvm.IRModule) -> list[int]:
    """How many arrays the functions read and write that are not to be fused."""
    return sorted(
        len(function.params)
        for function in mod.functions.values()
        if isinstance(function, tvm.tirx.PrimFunc) and "op_pattern" in function.attrs
    )


def test_only_wide_functions_are_kept_out_of_fusion(make_module: Any) -> None:
    assert unfused(legalize_unfused_joins(joins(make_module, [3, 4]), LLVM)) == []
    assert unfused(legalize_unfused_joins(joins(make_module, [10, 12]), LLVM)) == [11, 13]


def test_other_targets_legalize_on_their_own(make_module: Any) -> None:
    mod = joins(make_module, [10])
    assert legalize_unfused_joins(mod, tvm.target.Target("c")) is mod


def test_a_tree_of_joins_computes_what_numpy_does(make_module: Any) -> None:
    expected = X
    for width in (10, 12):
        expected = np.concatenate([expected + np.float32(i) for i in range(width)])
    got = byoc.build(joins(make_module, [10, 12]))(X)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
