"""CUTLASS: each reason on a module that isolates it, with a near miss, and upstream's checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op
from tvm.script import tirx as T  # noqa: N812 - TVM's own spelling

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends import cutlass, cutlass_predicates

from .predicate_tools import (
    Case,
    check,
    composites,
    isolated,
    kit_composites,
    module,
    normal,
    reasons,
    told,
    unshaped,
    upstream_composites,
)

HALF, FLOAT = "float16", "float32"
NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}


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


def transposed(b: tuple[Any, ...], axes: list[int] | None) -> tvm.IRModule:
    return module(
        [((4, 2, 4), HALF), (b, HALF)], lambda x, y: op.matmul(x, op.permute_dims(y, axes))
    )


def summed(
    product: Any, tensors: list[tuple[Any, ...]], *operations: Any, dtype: str = HALF
) -> tvm.IRModule:
    """A product of the first two tensors, combined with each of the others in turn."""

    def body(*values: Any) -> Any:
        result = product(*values[:2])
        for operation, value in zip(operations, values[2:], strict=True):
            result = operation(result, value)
        return result

    return module([(dims, dtype) for dims in tensors], body)


def matmul_sum(*others: tuple[Any, ...], a: Any = (2, 4), b: Any = (4, 8)) -> tvm.IRModule:
    return summed(op.matmul, [a, b, *others], *[op.add] * len(others))


def conv2d(x: Any, w: Any) -> Any:
    return op.nn.conv2d(x, w, padding=1, **NHWC)


def conv_sum(*others: tuple[Any, ...], strides: int = 1) -> tvm.IRModule:
    def strided(x: Any, w: Any) -> Any:
        return op.nn.conv2d(x, w, padding=1, strides=strides, **NHWC)

    return summed(strided, [(1, 8, 8, 4), (6, 3, 3, 4), *others], *[op.add] * len(others))


def conv(
    dtypes: tuple[str, str] = (HALF, HALF),
    data: tuple[Any, ...] = (1, 8, 8, 4),
    weight: tuple[Any, ...] = (6, 3, 3, 4),
    **attrs: Any,
) -> tvm.IRModule:
    settings = {"out_dtype": dtypes[0], **NHWC, **attrs}
    tensors = [(data, dtypes[0]), (weight, dtypes[1])]
    return module(tensors, lambda x, w: op.nn.conv2d(x, w, **settings))


def norm(dims: tuple[Any, ...] = (2, 8), dtype: str = HALF, **attrs: Any) -> tvm.IRModule:
    choices = {"axes": [-1], "epsilon": 1e-5, **attrs}
    parameters = (tuple(dims[axis] for axis in choices["axes"]), dtype)
    return module(
        [(dims, dtype), parameters, parameters],
        lambda x, gamma, beta: op.nn.layer_norm(x, gamma, beta, **choices),
    )


def unknown() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(ndim=2, dtype=HALF))
    w = relax.Var("w", relax.TensorType((4, 8), HALF))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            result = builder.emit_output(op.matmul(x, w))
        builder.emit_func_output(result)
    return builder.finalize()


def call_tir(name: str, dims: tuple[int, ...] = (2, 8), dtype: str = HALF) -> tvm.IRModule:
    """A call of a TIR function; its body is never looked at."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(n, relax.TensorType(d, dtype)) for n, d in (("x", dims), ("w", dims[-1:])))
    with builder.function("main", [x, w]):
        function = builder.add_func(_kernel, name)
        with builder.dataflow():
            call = op.call_tir(function, [x, w], relax.TensorType(dims, dtype))
            result = builder.emit_output(call)
        builder.emit_func_output(result)
    return builder.finalize()


@T.prim_func(private=True)
def _kernel(x: T.handle, w: T.handle, y: T.handle) -> None:  # noqa: ARG001
    T.evaluate(0)


FLOATS = "float16 x float16 to float16 or float32, float32 x float32 to float32"
BYTES = ", ".join(f"{a} x {b} to int32" for a in ("int8", "uint8") for b in ("int8", "uint8"))
BATCH = "CUTLASS has equal ones, or one operand without any"
COMBINED = "CUTLASS combines a product, its vector of biases and one tensor of the product's shape"
CONV, MATMUL = ("conv2d",), ("matmul",)

CASES = {
    "unknown shape": Case(
        unknown(),
        "relax.matmul: the shape of operand 0 is unknown",
        product((2, 4), (4, 8)),
        MATMUL,
    ),
    "matmul dtypes": Case(
        product((2, 4), (4, 8), "bfloat16"),
        f"relax.matmul: bfloat16 x bfloat16 to bfloat16; expected {FLOATS}, {BYTES}",
        product((2, 4), (4, 8), FLOAT),
        MATMUL,
    ),
    "matmul result": Case(
        product((2, 4), (4, 8), "int8", "int8", right="uint8"),
        f"relax.matmul: int8 x uint8 to int8; expected {FLOATS}, {BYTES}",
        product((2, 4), (4, 8), "int8", "int32", right="uint8"),
        MATMUL,
        stricter=True,
    ),
    "low rank": Case(
        product((4,), (4, 8)),
        "relax.matmul: operand 0 is 4; expected a matrix or more",
        product((1, 4), (4, 8)),
        MATMUL,
        stricter=True,
    ),
    "symbolic reduction": Case(
        product((2, "k"), ("k", 8)),
        "relax.matmul: the reduction axis is `k`; expected a fixed size",
        product(("m", 4), (4, "n")),
        MATMUL,
    ),
    "batch": Case(
        product((2, 1, 4, 8), (2, 3, 8, 16)),
        f"relax.matmul: batches 2x1 and 2x3; {BATCH}",
        product((2, 3, 4, 8), (8, 16)),
        MATMUL,
    ),
    "other transposition": Case(
        transposed((4, 4, 4), [2, 1, 0]),
        "relax.permute_dims: the axes of 4x4x4 become [2, 1, 0]; only the last two may change "
        "places",
        transposed((4, 4, 4), [0, 2, 1]),
        ("matmul_transposed",),
        rest=MATMUL,
        stricter=True,
    ),
    "bias of a matmul": Case(
        matmul_sum((2, 1)),
        "relax.add: operand 1 is 2x1 for a result of 2x8; expected a vector of 8 or the result's "
        "shape",
        matmul_sum((2, 8)),
        ("matmul_bias",),
        rest=MATMUL,
        stricter=True,
    ),
    "matrix for a bias of a batch": Case(
        matmul_sum((3, 2, 8), a=(3, 2, 4)),
        "relax.add: operand 1 is 3x2x8 for a result of 3x2x8; expected a vector of 8",
        matmul_sum((8,), a=(3, 2, 4)),
        ("matmul_bias",),
        rest=MATMUL,
        stricter=True,
    ),
    "residual for a bias of a convolution": Case(
        conv_sum((1, 8, 8, 6)),
        "relax.add: operand 1 is 1x8x8x6 for a result of 1x8x8x6; expected a vector of 6",
        conv_sum((1, 1, 1, 6)),
        ("conv2d_bias",),
        rest=CONV,
        stricter=True,
    ),
    "vector for a residual of a matmul": Case(
        matmul_sum((8,), (1, 8)),
        f"relax.add: operands are 2x8 and 1x8; {COMBINED}",
        matmul_sum((8,), (2, 8)),
        ("matmul_bias_residual_add",),
        rest=("matmul_bias",),
        stricter=True,
    ),
    "residual after a matrix": Case(
        matmul_sum((2, 8), (2, 8)),
        f"relax.add: operands are 2x8 and 2x8; {COMBINED}",
        matmul_sum((1, 8), (2, 8)),
        ("matmul_bias_residual_add",),
        rest=("matmul_bias",),
        stricter=True,
    ),
    "residual of a strided convolution": Case(
        conv_sum((6,), (1, 4, 4, 6), strides=2),
        f"relax.add: operands are 1x4x4x6 and 1x4x4x6; {COMBINED}",
        conv_sum((6,), (1, 8, 8, 6)),
        ("conv2d_bias_residual_add",),
        rest=("conv2d_bias",),
        stricter=True,
    ),
    "short vector for a residual of a convolution": Case(
        conv_sum((6,), (6,)),
        f"relax.add: operands are 1x8x8x6 and 6; {COMBINED}",
        conv_sum((6,), (1, 1, 1, 6)),
        ("conv2d_bias_residual_add",),
        rest=("conv2d_bias",),
        stricter=True,
    ),
    "residual of another shape": Case(
        conv_sum((6,), (8, 1)),
        f"relax.add: operands are 1x8x8x6 and 8x1; {COMBINED}",
        conv_sum((6,), (1, 8, 8, 6)),
        ("conv2d_bias_residual_add",),
        rest=("conv2d_bias",),
    ),
    "factor of another shape": Case(
        summed(op.matmul, [(2, 4), (4, 8), (8,), (2, 1)], op.add, op.multiply),
        f"relax.multiply: operands are 2x8 and 2x1; {COMBINED}",
        summed(op.matmul, [(2, 4), (4, 8), (8,), (2, 8)], op.add, op.multiply),
        ("matmul_bias_residual_multiply",),
        rest=("matmul_bias",),
    ),
    "convolution dtypes": Case(
        conv(("float64", "float64")),
        f"relax.nn.conv2d: float64 x float64 to float64; expected {FLOATS}",
        conv((FLOAT, FLOAT)),
        CONV,
    ),
    "integer convolution": Case(
        conv(("int8", "int8"), out_dtype="int32"),
        f"relax.nn.conv2d: int8 x int8 to int32; expected {FLOATS}",
        conv(out_dtype=FLOAT),
        CONV,
        stricter=True,
    ),
    "layout": Case(
        conv(data=(1, 4, 8, 8), weight=(6, 4, 3, 3), data_layout="NCHW", kernel_layout="OIHW"),
        "relax.nn.conv2d: layouts are NCHW with OIHW; expected NHWC with OHWI",
        conv(),
        CONV,
    ),
    "layout of the result": Case(
        conv(out_layout="NCHW"),
        "relax.nn.conv2d: the result's layout is NCHW; expected NHWC",
        conv(out_layout="NHWC"),
        CONV,
        stricter=True,
    ),
    "symbolic data": Case(
        conv(data=("n", 8, 8, 4)),
        "relax.nn.conv2d: the data is nx8x8x4; expected fixed sizes",
        conv(data=(5, 8, 8, 4)),
        CONV,
    ),
    "symbolic weight": Case(  # upstream's check fails on it
        conv(weight=("o", 3, 3, 4)),
        "relax.nn.conv2d: the weight is ox3x3x4; expected fixed sizes",
        conv(weight=(5, 3, 3, 4), padding=(0, 1, 1, 1), strides=2, dilation=2),
        CONV,
    ),
    "depthwise": Case(
        conv(weight=(4, 3, 3, 1), groups=4),
        "relax.nn.conv2d: 4 groups; CUTLASS's kernels here have one",
        conv(weight=(4, 3, 3, 4)),
        CONV,
    ),
    "grouped": Case(
        conv(weight=(6, 3, 3, 2), groups=2),
        "relax.nn.conv2d: 2 groups; CUTLASS's kernels here have one",
        conv(weight=(6, 3, 3, 4), groups=1),
        CONV,
        stricter=True,
    ),
    "single channel": Case(
        conv(data=(1, 8, 8, 1), weight=(1, 3, 3, 1)),
        "relax.nn.conv2d: one channel to one, which upstream holds for depthwise",
        conv(data=(1, 8, 8, 1), weight=(2, 3, 3, 1)),
        CONV,
    ),
    "layer_norm without scale": Case(
        norm(scale=False),
        "relax.nn.layer_norm: scale is off; CUTLASS's kernel always does it",
        norm(scale=True),
        ("layer_norm",),
    ),
    "layer_norm axis": Case(
        norm((2, 8, 8), axes=[1]),
        "relax.nn.layer_norm: over axes [1] of 3; CUTLASS has the last axis only",
        norm((2, 8, 8), axes=[2]),
        ("layer_norm",),
    ),
    "layer_norm axes": Case(
        norm((2, 8, 8), axes=[1, 2]),
        "relax.nn.layer_norm: over axes [1, 2] of 3; CUTLASS has the last axis only",
        norm((2, 8, 8)),
        ("layer_norm",),
    ),
    "layer_norm dtype": Case(
        norm(dtype="float64"),
        "relax.nn.layer_norm: the dtype is float64; expected float16 or float32",
        norm(dtype=FLOAT),
        ("layer_norm",),
        stricter=True,
    ),
    "layer_norm of a vector": Case(
        norm((8,)),
        "relax.nn.layer_norm: the data are 8; expected rows of a fixed size",
        norm(("n", 8)),
        ("layer_norm",),
        stricter=True,
    ),
    "layer_norm epsilon": Case(
        norm(epsilon=1e-6),
        "relax.nn.layer_norm: epsilon is 1e-06; CUTLASS's kernel has 1e-05",
        norm(epsilon=1e-5),
        ("layer_norm",),
        stricter=True,
    ),
    "function": Case(
        call_tir("softmax"),
        "relax.call_tir: of `softmax`; CUTLASS knows those named rms_norm or decode",
        call_tir("rms_norm"),
        ("rms_norm",),
    ),
    "rms_norm dtype": Case(
        call_tir("rms_norm", dtype="float64"),
        "relax.call_tir: the dtype is float64; expected float16 or float32",
        call_tir("rms_norm", dtype=FLOAT),
        ("rms_norm",),
        stricter=True,
    ),
    "rms_norm of a vector": Case(
        call_tir("rms_norm", (8,)),
        "relax.call_tir: the data are 8; expected rows of a fixed size",
        call_tir("rms_norm", (1, 8)),
        ("rms_norm",),
        stricter=True,
    ),
}

HEADS = ((2, 8, 4, 16), HALF)
ATTENTION = {
    "attention": module([HEADS] * 3, op.nn.attention),
    "attention_bias": module([HEADS] * 3 + [((2, 4, 8, 8), HALF)], op.nn.attention),
}
LENGTHS = [((3,), "int32"), ((3,), "int32"), ((), "int32"), ((), "int32")]
ATTENTION["attention_var_len"] = module([HEADS] * 3 + LENGTHS, op.nn.attention_var_len)
HEADERS = "this TVM comes without CUTLASS's kernel_forward.h and flash.h"


@pytest.mark.parametrize("name", CASES)
def test_each_reason_has_a_module_that_isolates_it_and_a_near_miss(name: str) -> None:
    check(CASES[name], "cutlass")


@pytest.mark.parametrize(
    "name", sorted(CASES.keys() - {"unknown shape"})
)  # which no model may have
def test_the_coverage_report_tells_the_reason(name: str) -> None:
    assert told(CASES[name].refused, "cutlass") == [CASES[name].reason]


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_refused_with_a_reason(name: str) -> None:
    mod = ATTENTION[name]
    assert reasons(mod, "cutlass") == [f"relax.nn.{name}: {HEADERS}"]
    assert kit_composites(mod, "cutlass") == ()
    assert upstream_composites(mod, "cutlass") == (name,)


def test_the_headers_of_attention_are_looked_for_where_upstream_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tvm.contrib.cutlass import build

    fold = tmp_path / "cutlass" / "examples" / "41_fused_multi_head_attention"
    flash = tmp_path / "libflash_attn" / "include"
    for folder, header in ((fold, "kernel_forward.h"), (flash, "flash.h")):
        folder.mkdir(parents=True)
        (folder / header).touch()
    monkeypatch.setattr(build, "_get_cutlass_path", lambda: str(tmp_path / "cutlass"))
    cutlass_predicates.missing_attention_headers.cache_clear()
    try:
        assert cutlass_predicates.missing_attention_headers() == ()
        (reason,) = reasons(ATTENTION["attention"], "cutlass")
        assert "annotate_workspace cannot look up float16 (KeyError)" in reason
    finally:
        monkeypatch.undo()
        cutlass_predicates.missing_attention_headers.cache_clear()
    assert cutlass_predicates.missing_attention_headers() == ("kernel_forward.h", "flash.h")


UNKNOWN: dict[str, Callable[..., Any]] = {
    "nn.conv2d": op.nn.conv2d,
    "matmul": op.matmul,
    "permute_dims": lambda x, _: op.permute_dims(x),
    "add": op.add,
    "multiply": op.multiply,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_shape_is_a_reason_and_no_error(name: str) -> None:
    reason = cutlass_predicates.refusal(normal(UNKNOWN[name](*unshaped(2))))
    assert reason == f"relax.{name}: the shape of operand 0 is unknown"


def test_every_predicate_is_isolated_by_a_case() -> None:
    table = cutlass_predicates.PREDICATES
    attentions = {name: Case(mod, "", mod, ()) for name, mod in ATTENTION.items()}
    asked = {found for checks in table.values() for found in checks}
    met = isolated({**CASES, **attentions}, table)
    assert {found.__name__ for found in asked - met} == {"unsized_workspace"}  # tested above


# Attention that is spelled out


def spelled_out() -> tvm.IRModule:
    """Attention of 4 heads, as upstream's BSNH without bias."""

    def heads(x: Any) -> Any:
        return op.reshape(op.permute_dims(x, [0, 2, 1, 3]), (8, 8, 16))

    def body(q: Any, k: Any, v: Any) -> Any:
        scores = op.matmul(heads(q), op.permute_dims(heads(k), [0, 2, 1]))
        scaled = op.multiply(scores, relax.const(0.25, HALF))
        result = op.matmul(op.nn.softmax(scaled, -1), heads(v))
        return op.permute_dims(op.reshape(result, (2, 4, 8, 16)), [0, 2, 1, 3])

    return module([HEADS] * 3, body)


def ops(mod: tvm.IRModule) -> list[str]:
    found: list[str] = []

    def look(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Op):
            found.append(expr.name)

    relax.analysis.post_order_visit(mod["main"], look)
    return found


def test_products_of_attention_stay_products_where_attention_is_refused() -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = spelled_out()
    before = mod.script()
    assert composites(byoc.partition(mod, "cutlass").mod) == ("matmul", "matmul_transposed")
    assert mod.script() == before
    with pytest.raises(KeyError):
        partition_for_cutlass(mod)


def test_attention_is_rewritten_as_upstream_does_where_it_is_accepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tvm.relax.backend.cuda.cutlass import attention_rewrite_patterns
    from tvm.relax.dpl import rewrite_call

    monkeypatch.setattr(cutlass, "_takes_attention", lambda: True)
    monkeypatch.setattr(cutlass, "refusal", lambda _: None)
    mod = spelled_out()
    before = mod.script()
    rewritten = cutlass.rewrite_attention(mod)
    assert mod.script() == before
    assert "relax.nn.attention" in ops(rewritten)
    expected = mod["main"]
    for pattern, rewriter in attention_rewrite_patterns():
        expected = rewrite_call(pattern, rewriter, expected)
    tvm.ir.assert_structural_equal(rewritten["main"], expected)


def test_attention_is_not_rewritten_into_one_that_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cutlass, "_takes_attention", lambda: True)
    monkeypatch.setattr(cutlass, "refusal", lambda _: "no")
    mod = spelled_out()
    tvm.ir.assert_structural_equal(cutlass.rewrite_attention(mod), mod)


# Against upstream

BATCHES = st.sampled_from([(), (1,), (2,), (2, 3), (2, 1), (1, 2), ("n",)])
SIZES = st.sampled_from([1, 4, 6, 8])
DTYPES = st.sampled_from([HALF, FLOAT, "bfloat16", "int8", "uint8", "float64"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    batches=st.tuples(BATCHES, BATCHES),
    sizes=st.tuples(SIZES | st.just("m"), SIZES | st.just("k"), SIZES | st.just("n")),
    dtypes=st.tuples(DTYPES, DTYPES),
    result=st.sampled_from([HALF, FLOAT, "int32", "int8"]),
    is_transposed=st.booleans(),
)
def test_a_matmul_without_a_reason_is_one_that_upstream_takes(
    *,
    batches: tuple[Any, Any],
    sizes: tuple[Any, Any, Any],
    dtypes: tuple[str, str],
    result: str,
    is_transposed: bool,
) -> None:
    (left, right), (m, k, n) = batches, sizes
    rows = (n, k) if is_transposed else (k, n)
    axes = [*range(len(right)), len(right) + 1, len(right)]

    def body(x: Any, y: Any) -> Any:
        return op.matmul(x, op.permute_dims(y, axes) if is_transposed else y, out_dtype=result)

    try:
        mod = module([((*left, m, k), dtypes[0]), ((*right, *rows), dtypes[1])], body)
    except ValueError:  # shapes that go with no matmul
        return
    agree(mod, ("matmul_transposed",) if is_transposed else MATMUL, (" to ", "unknown"))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    layouts=st.sampled_from([("NHWC", "OHWI"), ("NHWC", "HWIO"), ("NCHW", "OIHW")]),
    dtypes=st.tuples(*[st.sampled_from([HALF, FLOAT, "int8", "float64"])] * 2),
    result=st.sampled_from([HALF, FLOAT, "int32"]),
    groups=st.sampled_from([1, 2, 4]),
    channels=st.sampled_from([(4, 4), (4, 8), (8, 4)]),
    batch=st.sampled_from([1, 3, "n"]),
)
def test_a_convolution_without_a_reason_is_one_that_upstream_takes(
    *,
    layouts: tuple[str, str],
    dtypes: tuple[str, str],
    result: str,
    groups: int,
    channels: tuple[int, int],
    batch: int | str,
) -> None:
    data, kernel = layouts
    inputs, outputs = channels
    sizes: dict[str, Any] = {"N": batch, "H": 8, "W": 8, "C": inputs}
    window = {"O": outputs, "H": 3, "W": 3, "I": inputs // groups}
    mod = conv(
        dtypes,
        tuple(sizes[axis] for axis in data),
        tuple(window[axis] for axis in kernel),
        data_layout=data,
        kernel_layout=kernel,
        groups=groups,
        out_dtype=result,
    )
    agree(mod, CONV, (" to ", "groups"))


VECTOR, ROW, MATRIX = (8,), (1, 8), (2, 8)
ADDENDS = st.sampled_from([VECTOR, ROW, MATRIX, (2, 1), (1,), (1, 2, 8), (3, 2, 8)])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    bias=ADDENDS,
    residual=ADDENDS,
    operation=st.sampled_from([op.add, op.multiply]),
    activation=st.sampled_from([None, op.nn.relu]),
)
def test_what_is_combined_with_a_product_is_what_upstream_takes_or_less(
    *, bias: tuple[int, ...], residual: tuple[int, ...], operation: Any, activation: Any
) -> None:
    def body(x: Any, w: Any, b: Any, r: Any) -> Any:
        result = operation(op.add(op.matmul(x, w), b), r)
        return activation(result) if activation else result

    mod = module([((2, 4), HALF), ((4, 8), HALF), (bias, HALF), (residual, HALF)], body)
    whole = f"matmul_bias_residual_{operation.__name__}" + ("_relu" if activation else "")
    fits = bias in (VECTOR, ROW) and residual == MATRIX
    assert (kit_composites(mod, "cutlass") == (whole,)) == fits
    assert (reasons(mod, "cutlass") == []) == fits
    if fits:
        assert upstream_composites(mod, "cutlass") == (whole,)


def agree(mod: tvm.IRModule, taken: tuple[str, ...], stricter: tuple[str, ...]) -> None:
    mine, theirs = reasons(mod, "cutlass"), upstream_composites(mod, "cutlass")
    assert kit_composites(mod, "cutlass") == (() if mine else taken)
    if not mine:
        assert theirs == taken
    elif theirs == taken:
        assert any(known in mine[0] for known in stricter)


@pytest.mark.parametrize("name", CASES)
def test_what_is_accepted_is_partitioned_as_upstream_does(name: str) -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = CASES[name].near
    before = mod.script()
    mine = byoc.partition(mod, "cutlass").mod
    assert mod.script() == before
    tvm.ir.assert_structural_equal(mine, partition_for_cutlass(tvm.ir.IRModule(mod.functions)))


def test_a_function_named_after_the_library_is_no_region() -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = module([((2, 4), HALF), ((4, 8), HALF)], op.matmul, name="my_cutlass_model")
    assert composites(byoc.partition(mod, "cutlass").mod) == MATMUL
    with pytest.raises(TypeError):
        partition_for_cutlass(mod)
