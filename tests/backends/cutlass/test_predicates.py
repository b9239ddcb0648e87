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
from tvm.contrib.cutlass.build import _get_cutlass_path
from tvm.relax import op
from tvm.script import tirx as T  # noqa: N812 - TVM's own spelling

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.cutlass import predicates
from tvm_byoc_kit.region_names import name_regions

from ..predicate_tools import (  # noqa: TID252 - what other backends are tested with
    Case,
    composites,
    isolated,
    kit_composites,
    module,
    normal,
    products,
    reasons,
    unshaped,
    upstream_composites,
)

HALF, BRAIN, FLOAT = "float16", "bfloat16", "float32"
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


FLOATS = (
    "float16 x float16 to float16 or float32, bfloat16 x bfloat16 to bfloat16 or float32, "
    "float32 x float32 to float32"
)
BATCH = "CUTLASS has equal ones, or one operand without any"
COMBINED = (
    "CUTLASS combines a product, its vector of biases and one tensor of the product's shape, or a "
    "vector"
)
CONV, MATMUL = ("conv2d",), ("matmul",)

CASES = {
    "unknown shape": Case(
        unknown(),
        "relax.matmul: the shape of operand 0 is unknown",
        product((2, 4), (4, 8)),
        MATMUL,
    ),
    "matmul dtypes": Case(
        product((2, 4), (4, 8), "float64"),
        f"relax.matmul: float64 x float64 to float64; expected {FLOATS}",
        product((2, 4), (4, 8), FLOAT),
        MATMUL,
    ),
    "matmul of bytes": Case(
        product((2, 4), (4, 8), "int8", "int32"),
        f"relax.matmul: int8 x int8 to int32; expected {FLOATS}",
        product((2, 4), (4, 8), BRAIN, FLOAT),
        MATMUL,
        stricter=True,
        beyond=True,
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
        matmul_sum((2, 8), a=(3, 2, 4)),
        "relax.add: operand 1 is 2x8 for a result of 3x2x8; expected a vector of 8 or the result's "
        "shape",
        matmul_sum((3, 2, 8), a=(3, 2, 4)),
        ("matmul_bias",),
        rest=MATMUL,
        stricter=True,
    ),
    "bias of a convolution": Case(
        conv_sum((1, 8, 8, 1)),
        "relax.add: operand 1 is 1x8x8x1 for a result of 1x8x8x6; expected a vector of 6 or the "
        "result's shape",
        conv_sum((1, 8, 8, 6)),
        ("conv2d_bias",),
        rest=CONV,
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
    "residual after a tensor": Case(
        conv_sum((1, 4, 4, 6), (1, 4, 4, 6), strides=2),
        f"relax.add: operands are 1x4x4x6 and 1x4x4x6; {COMBINED}",
        conv_sum((6,), (1, 4, 4, 6), strides=2),
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
    "window": Case(
        conv(data=(1, 40, 40, 4), weight=(6, 1, 33, 4)),
        "relax.nn.conv2d: the window is 1x33; expected at most 32",
        conv(data=(1, 40, 40, 4), weight=(6, 1, 32, 4)),
        CONV,
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
WITHOUT_HEADERS = {
    **{
        name: (mod, f"nn.{name}", "kernel_forward.h and flash.h") for name, mod in ATTENTION.items()
    },
    "layer_norm": (norm(), "nn.layer_norm", "cutlass/util/device_layernorm.h"),
    "rms_norm": (
        call_tir("rms_norm"),
        "call_tir",
        "cutlass/util/device_rmsnorm.h and cutlass_kernels/fpA_intB_gemm.h",
    ),
}


@pytest.mark.parametrize("name", WITHOUT_HEADERS)
def test_what_there_are_no_headers_for_is_refused_with_their_names(name: str) -> None:
    mod, operator, headers = WITHOUT_HEADERS[name]
    expected = f"relax.{operator}: TVM's wheel comes without {headers} for CUTLASS"
    assert reasons(mod, "cutlass") == [expected]
    assert kit_composites(mod, "cutlass") == ()
    assert upstream_composites(mod, "cutlass") == (name,)


@pytest.mark.parametrize("name", WITHOUT_HEADERS)
def test_these_headers_are_not_in_the_wheel(name: str) -> None:
    root = Path(_get_cutlass_path())
    for header in WITHOUT_HEADERS[name][2].split(" and "):
        assert not list(root.parent.rglob(Path(header).name)), header


UNKNOWN: dict[str, Callable[..., Any]] = {
    "nn.conv2d": op.nn.conv2d,
    "matmul": op.matmul,
    "permute_dims": lambda x, _: op.permute_dims(x),
    "add": op.add,
    "multiply": op.multiply,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_shape_is_a_reason_and_no_error(name: str) -> None:
    reason = predicates.refusal(normal(UNKNOWN[name](*unshaped(2))))
    assert reason == f"relax.{name}: the shape of operand 0 is unknown"


def test_every_predicate_is_isolated_by_a_case() -> None:
    table = predicates.PREDICATES
    others = {name: Case(mod, "", mod, ()) for name, (mod, *_) in WITHOUT_HEADERS.items()}
    asked = {found for checks in table.values() for found in checks}
    assert asked == isolated({**CASES, **others}, table)


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


def test_products_of_attention_stay_products_where_attention_is_refused() -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = spelled_out()
    before = mod.script()
    assert composites(byoc.partition(mod, "cutlass").mod) == ("matmul", "matmul_transposed")
    assert mod.script() == before
    with pytest.raises(KeyError):
        partition_for_cutlass(mod)


# Against upstream

BATCHES = st.sampled_from([(), (1,), (2,), (2, 3), (2, 1), (1, 2), ("n",)])
SIZES = st.sampled_from([1, 4, 6, 8])
DTYPES = st.sampled_from([HALF, FLOAT, "int8", "uint8", "float64"])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(products(BATCHES, SIZES, DTYPES, st.sampled_from([HALF, FLOAT, "int32", "int8"])))
def test_a_matmul_without_a_reason_is_one_that_upstream_takes(
    product: tuple[tvm.IRModule, bool],
) -> None:
    mod, is_transposed = product
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
    fits = bias in (VECTOR, ROW) and residual in (VECTOR, ROW, MATRIX)
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


@pytest.mark.parametrize("name", [name for name in CASES if not CASES[name].beyond])
def test_what_is_accepted_is_partitioned_as_upstream_does(name: str) -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = CASES[name].near
    before = mod.script()
    mine = byoc.partition(mod, "cutlass").mod
    assert mod.script() == before
    theirs = partition_for_cutlass(tvm.ir.IRModule(mod.functions))
    tvm.ir.assert_structural_equal(mine, name_regions(theirs, mod))


def test_a_function_named_after_the_library_is_no_region() -> None:
    from tvm.relax.backend.cuda.cutlass import partition_for_cutlass

    mod = module([((2, 4), HALF), ((4, 8), HALF)], op.matmul, name="my_cutlass_model")
    assert composites(byoc.partition(mod, "cutlass").mod) == MATMUL
    with pytest.raises(TypeError):
        partition_for_cutlass(mod)
