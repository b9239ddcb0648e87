"""Fusing and merging as upstream's own passes do, in time that grows with the module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions

from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.fusing import fuse, fuse_and_merge


def weight(seed: int, dtype: str = "float32") -> relax.Expr:
    return relax.const(np.random.default_rng(seed).standard_normal((4, 4)).astype(dtype))


def products(x: Any, y: Any) -> Any:
    """Weights that differ, that are the same object, and that are equal; an op for the host."""
    same = weight(1)
    for w in (same, weight(2), same, weight(1)):
        x = relax.op.nn.relu(relax.op.matmul(x, w))
    y = relax.op.matmul(relax.op.cumsum(y, axis=0), weight(2))
    return x, relax.op.add(y, same)


@pytest.fixture(scope="module")
def mod(make_module: Any) -> tvm.IRModule:
    return make_module({"x": ((4, 4), "float32"), "y": ((4, 4), "float32")}, products)


@pytest.mark.parametrize("bind_constants", [True, False])
@pytest.mark.parametrize("backend", ["example_npu", "tensorrt"])
def test_the_result_is_that_of_upstreams_passes(
    mod: tvm.IRModule, backend: str, bind_constants: bool
) -> None:
    patterns = get_backend(backend).guarded_patterns()
    each = FuseOpsByPattern(patterns, bind_constants, annotate_codegen=True)(mod)
    merged = MergeCompositeFunctions()(FuseOpsByPattern(patterns, bind_constants)(mod))
    for ours, expected in (
        (fuse(mod, patterns, bind_constants), each),
        (fuse_and_merge(mod, patterns, bind_constants), merged),
    ):
        tvm.ir.assert_structural_equal(ours, expected)
        assert ours.script() == expected.script()
        relax.analysis.well_formed(ours)  # raises


def test_equal_weights_share_a_function_and_others_do_not(mod: tvm.IRModule) -> None:
    patterns = get_backend("tensorrt").guarded_patterns()
    regions = [f for f in fuse(mod, patterns, True).functions.values() if "Codegen" in f.attrs]
    matmuls = [f for f in regions if "R.matmul" in f.script()]
    assert len(matmuls) == 2  # of weight(1) and of weight(2), called five times in all


def test_only_the_named_functions_are_searched(mod: tvm.IRModule, make_module: Any) -> None:
    both = make_module({"x": ((4, 4), "float32")}, relax.op.tanh, name="other", into=mod)
    fused = fuse(both, get_backend("tensorrt").guarded_patterns(), True, ["other"])
    tvm.ir.assert_structural_equal(fused["main"], both["main"])
    assert "R.tanh(" not in fused["other"].script()


def test_constants_of_dtypes_that_numpy_does_not_have_are_no_hindrance(make_module: Any) -> None:
    w = relax.const(np.ones((4, 4), "float32"), "bfloat16")
    mod = make_module(
        {"x": ((4, 4), "bfloat16")}, lambda x: relax.op.nn.relu(relax.op.matmul(x, w))
    )
    patterns = get_backend("example_npu").patterns
    assert patterns is not None
    fused = fuse(mod, patterns(), True)
    relax.analysis.well_formed(fused)  # raises
    assert any("Codegen" in f.attrs for f in fused.functions.values() if f.attrs)


def test_attributes_of_a_pattern_are_kept(mod: tvm.IRModule) -> None:
    from tvm.relax.dpl import is_const, is_op, wildcard
    from tvm.relax.transform import FusionPattern

    product = is_op("relax.matmul")(wildcard(), is_const())
    seen = []

    def check(context: Any) -> bool:
        seen.append(context.matched_expr)
        return len(seen) != 2

    pattern = FusionPattern("npu.matmul", product, {"root": product}, check, lambda _: {"n": "1"})
    fused = fuse(mod, [pattern], True)
    assert len(seen) == 5
    calls = [f.script() for f in fused.functions.values() if f.attrs and "Codegen" in f.attrs]
    assert calls
    assert all('"n": "1"' in call for call in calls)
