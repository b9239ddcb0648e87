"""cuBLAS: each reason on a module that isolates it, with a near miss, and upstream's checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends import cublas_predicates
from tvm_byoc_kit.region_names import name_regions

from .predicate_tools import (
    Case,
    check,
    isolated,
    kit_composites,
    module,
    normal,
    products,
    reasons,
    told,
    unshaped,
    upstream_composites,
)

FP8 = "float8_e4m3fn"
HALF = "float16"


def product(
    a: tuple[Any, ...],
    b: tuple[Any, ...],
    dtype: str = HALF,
    result: str | None = None,
    right: str | None = None,
) -> tvm.IRModule:
    return module(
        [(a, dtype), (b, right or dtype)], lambda x, y: op.matmul(x, y, out_dtype=result or dtype)
    )


def transposed(
    a: tuple[Any, ...],
    b: tuple[Any, ...],
    dtype: str = HALF,
    result: str | None = None,
    axes: list[int] | None = None,
) -> tvm.IRModule:
    return module(
        [(a, dtype), (b, dtype)],
        lambda x, y: op.matmul(x, op.permute_dims(y, axes), out_dtype=result or dtype),
    )


def biased(
    a: tuple[Any, ...],
    b: tuple[Any, ...],
    bias: tuple[Any, ...],
    dtype: str = HALF,
    result: str | None = None,
) -> tvm.IRModule:
    kind = result or dtype
    return module(
        [(a, dtype), (b, dtype), (bias, kind)],
        lambda x, y, z: op.add(op.matmul(x, y, out_dtype=kind), z),
    )


def dequantized(scale: np.ndarray, zero_point: np.ndarray) -> tvm.IRModule:
    def body(x: Any, w: Any) -> Any:
        result = op.matmul(x, op.permute_dims(w), out_dtype="int32")
        constants = relax.const(scale), relax.const(zero_point)
        return op.dequantize(result, *constants, axis=0, out_dtype="float32")

    return module([((8, 16), "int8"), ((8, 16), "int8")], body)


def unknown(dtype: str | None, dims: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=dims, dtype=dtype))
    w = relax.Var("w", relax.TensorType((4, 8), dtype))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(op.matmul(x, w))
        builder.emit_func_output(result)
    return builder.finalize()


OPERANDS = "cuBLAS has two of float32, float16, bfloat16, int8, float8_e4m3fn"
BATCH = "cuBLAS has equal ones, or a second operand without any"
ONE, ZERO = np.array(0.5, "float32"), np.array(0, "int8")
CASES = {
    "unknown shape": Case(
        unknown(HALF, 2),
        "relax.matmul: the shape of operand 0 is unknown",
        product((2, 4), (4, 8)),
        ("matmul",),
    ),
    "operands": Case(
        product((2, 4), (4, 8), "float64"),
        f"relax.matmul: float64 x float64; {OPERANDS}",
        product((2, 4), (4, 8), "bfloat16"),
        ("matmul",),
    ),
    "mixed operands": Case(
        product((8, 16), (16, 8), "int8", "int32", right="uint8"),
        f"relax.matmul: int8 x uint8; {OPERANDS}",
        product((8, 16), (16, 8), "int8", "int32"),
        ("matmul",),
    ),
    "result": Case(
        product((8, 16), (16, 8), "int8", "int8"),
        "relax.matmul: int8 to int8; cuBLAS has int32, float32",
        product((8, 16), (16, 8), "int8", "float32"),
        ("matmul",),
        stricter=True,
    ),
    "low rank": Case(
        product((4,), (4, 8)),
        "relax.matmul: operand 0 is 4; expected a matrix or more",
        product((1, 4), (4, 8)),
        ("matmul",),
        stricter=True,
    ),
    "symbolic reduction": Case(
        product((2, "k"), ("k", 8)),
        "relax.matmul: the reduction axis is `k`; expected a fixed size",
        product(("m", 4), (4, "n")),
        ("matmul",),
    ),
    "depth of int8": Case(
        product((8, 6), (6, 8), "int8", "int32"),
        "relax.matmul: the reduction axis of int8 is 6; expected a multiple of 4",
        product((7, 8), (8, 8), "int8", "int32"),
        ("matmul",),
    ),
    "depth of float8": Case(
        transposed((16, 8), (16, 8), FP8, HALF),
        "relax.matmul: the reduction axis of float8_e4m3fn is 8; expected a multiple of 16",
        transposed((7, 16), (16, 16), FP8, HALF),
        ("matmul_transposed",),
    ),
    "columns of int8": Case(
        product((8, 8), (8, 6), "int8", "int32"),
        "relax.matmul: int8 to int32 with 6 columns; expected a multiple of 4",
        product((6, 8), (8, 4), "int8", "int32"),
        ("matmul",),
    ),
    "columns of int8 that are not transposed": Case(
        product((8, 8), (8, 10), "int8", "int32"),
        "relax.matmul: int8 to int32 with 10 columns; expected a multiple of 4",
        transposed((8, 8), (10, 8), "int8", "int32"),
        ("matmul_transposed",),
    ),
    "columns of float8 to float16": Case(
        transposed((16, 16), (4, 16), FP8, HALF),
        "relax.matmul: float8_e4m3fn to float16 with 4 columns; expected a multiple of 8",
        transposed((16, 16), (4, 16), FP8, "float32"),
        ("matmul_transposed",),
    ),
    "symbolic columns": Case(
        transposed((16, 16), ("n", 16), FP8, HALF),
        "relax.matmul: float8_e4m3fn to float16 with n columns; expected a multiple of 8",
        transposed(("m", 16), (8, 16), FP8, HALF),
        ("matmul_transposed",),
    ),
    "batch of the second operand": Case(
        product((2, 4), (3, 4, 8)),
        f"relax.matmul: batches none and 3; {BATCH}",
        product((3, 2, 4), (4, 8)),
        ("matmul",),
    ),
    "crossed batches": Case(
        product((6, 1, 2, 4), (1, 6, 4, 8)),
        f"relax.matmul: batches 6x1 and 1x6; {BATCH}",
        product((6, 1, 2, 4), (6, 1, 4, 8)),
        ("matmul",),
        stricter=True,
    ),
    "batch of one for many": Case(
        product(("n", 2, 4), (1, 4, 8)),
        f"relax.matmul: batches n and 1; {BATCH}",
        product(("n", 2, 4), ("n", 4, 8)),
        ("matmul",),
        stricter=True,
    ),
    "transposition of float8": Case(
        product((16, 16), (16, 16), FP8, HALF),
        "relax.matmul: operand 1 is not transposed; cuBLAS multiplies float8_e4m3fn only so",
        transposed((16, 16), (16, 16), FP8, HALF),
        ("matmul_transposed",),
    ),
    "other transposition": Case(
        transposed((4, 2, 4), (4, 4, 4), axes=[2, 1, 0]),
        "relax.permute_dims: the axes of 4x4x4 become [2, 1, 0]; only the last two may change "
        "places",
        transposed((4, 2, 4), (4, 4, 4), axes=[0, 2, 1]),
        ("matmul_transposed",),
        rest=("matmul",),
        stricter=True,
    ),
    "bias": Case(
        biased((2, 4), (4, 8), (2, 8)),
        "relax.add: operand 1 is 2x8; cuBLAS adds one vector of 8 to every row",
        biased((2, 4), (4, 8), (1, 8)),
        ("matmul_bias",),
        rest=("matmul",),
    ),
    "scalar bias": Case(
        biased((2, 4), (4, 8), (1,)),
        "relax.add: operand 1 is 1; cuBLAS adds one vector of 8 to every row",
        biased((2, 4), (4, 8), (8,)),
        ("matmul_bias",),
        rest=("matmul",),
        stricter=True,
    ),
    "bias of integers": Case(
        biased((4, 4), (4, 8), (8,), "int8", "float32"),
        "relax.add: cuBLAS adds nothing to a product of integers",
        biased((4, 4), (4, 8), (8,), HALF, "float32"),
        ("matmul_bias",),
        rest=("matmul",),
    ),
    "scales": Case(
        dequantized(np.full(8, 0.5, "float32"), np.zeros(8, "int8")),
        "relax.dequantize: the scale is 8; cuBLAS has one for all",
        dequantized(ONE, ZERO),
        ("matmul_transposed_dequantize",),
        rest=("matmul_transposed",),
    ),
    "zero point": Case(
        dequantized(ONE, np.array(1, "int8")),
        "relax.dequantize: the zero point is 1; cuBLAS has 0 only",
        dequantized(np.array(0.5, "float16"), ZERO),
        ("matmul_transposed_dequantize",),
        rest=("matmul_transposed",),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_reason_has_a_module_that_isolates_it_and_a_near_miss(name: str) -> None:
    check(CASES[name], "cublas")


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"unknown shape"})
)  # which no model may have
def test_the_coverage_report_tells_the_reason(name: str) -> None:
    assert told(CASES[name].refused, "cublas") == [CASES[name].reason]


UNKNOWN: dict[str, Callable[..., Any]] = {
    "matmul": op.matmul,
    "add": op.add,
    "permute_dims": lambda x, _: op.permute_dims(x),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_shape_is_a_reason_and_no_error(name: str) -> None:
    reason = cublas_predicates.refusal(normal(UNKNOWN[name](*unshaped(2))))
    assert reason == f"relax.{name}: the shape of operand 0 is unknown"


def test_every_predicate_is_isolated_by_a_case() -> None:
    table = cublas_predicates.PREDICATES
    assert isolated(CASES, table) == {check for checks in table.values() for check in checks}


SIZES = st.sampled_from([1, 2, 4, 6, 8, 16])
BATCHES = st.sampled_from([(), (1,), (2,), (3,), (2, 3), (1, 2), (6, 1), ("n",)])
DTYPES = st.sampled_from(["float16", "float32", "bfloat16", "int8", "uint8", "float64", FP8])
RESULTS = st.sampled_from(["float16", "float32", "int32", "int8", "bfloat16"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(products(BATCHES, SIZES, DTYPES, RESULTS))
def test_no_reason_means_that_upstream_matches_and_no_match_of_upstream_means_a_reason(
    product: tuple[tvm.IRModule, bool],
) -> None:
    mod, is_transposed = product
    theirs = upstream_composites(mod, "cublas")
    whole = ("matmul_transposed",) if is_transposed else ("matmul",)
    mine = reasons(mod, "cublas")
    assert (kit_composites(mod, "cublas") == whole) == (not mine)
    if not mine:
        assert theirs == whole
    elif theirs == whole:  # stricter, for one of the documented reasons
        assert any(known in mine[0] for known in ("batches", " to ", "unknown"))


def partition_for_cublas(mod: tvm.IRModule) -> tvm.IRModule:
    from tvm.relax.backend.cuda.cublas import partition_for_cublas

    return partition_for_cublas(mod)


@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_partitioned_as_upstream_does(name: str) -> None:
    mod = CASES[name].near
    mine = byoc.partition(mod, "cublas").mod
    tvm.ir.assert_structural_equal(mine, name_regions(partition_for_cublas(mod), mod))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"relu": op.nn.relu, "gelu": op.nn.gelu}


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_fused_pattern_of_upstream_is_kept(activation: str, is_transposed: bool) -> None:
    def body(x: Any, w: Any, bias: Any) -> Any:
        rhs = op.permute_dims(w) if is_transposed else w
        return ACTIVATIONS[activation](op.add(op.matmul(x, rhs), bias))

    mod = module([((4, 8), HALF), ((8, 8), HALF), ((8,), HALF)], body)
    kind = "matmul_transposed" if is_transposed else "matmul"
    assert kit_composites(mod, "cublas") == (f"{kind}_bias_{activation}",)
    mine = byoc.partition(mod, "cublas").mod
    tvm.ir.assert_structural_equal(mine, name_regions(partition_for_cublas(mod), mod))


def test_scaled_products_of_float8_are_kept() -> None:
    def body(x: Any, w: Any, a: Any, b: Any) -> Any:
        product = op.matmul(x, op.permute_dims(w), out_dtype="float32")
        return op.astype(op.multiply(product, op.multiply(a, b)), HALF)

    scales = [((1,), "float32")] * 2
    mod = module([((16, 16), FP8), ((16, 16), FP8), *scales], body)
    assert kit_composites(mod, "cublas") == ("matmul_transposed_multiply",)


def test_a_sum_that_follows_no_product_misses_its_product_and_not_other_sizes() -> None:
    mod = module([((2, 4), HALF), ((2, 4), HALF)], lambda x, y: op.add(op.nn.relu(x), y))
    assert told(mod, "cublas") == []
    (sum_,) = [o for o in byoc.partition(mod, "cublas").coverage.ops if o.op == "relax.add"]
    assert sum_.reason is not None
    assert sum_.reason.kind == "no_match"
    assert "relax.matmul" in sum_.reason.text


def test_a_constant_bias_is_fused_whichever_operand_it_is() -> None:
    bias = relax.const(np.ones(8, HALF))
    mod = module([((2, 4), HALF), ((4, 8), HALF)], lambda x, y: op.add(bias, op.matmul(x, y)))
    assert [
        region.composites for region in byoc.partition(mod, "cublas", prepare=True).coverage.regions
    ] == [("cublas.matmul_bias",)]
