"""Constant folding with NumPy gives what TVM's own pass gives, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tvm import relax

from tvm_byoc_kit import constant_folding
from tvm_byoc_kit.constant_folding import LIMIT_BYTES, fold_constants
from tvm_byoc_kit.prepare_report import count_ops
from tvm_byoc_kit.rewriting import array_of

op = relax.op
FLOATS = ("float16", "float32")
INTEGERS = ("int8", "int64", "uint8")


def module(make: Callable[..., Any], *params: Any) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            result = builder.emit_output(make(*params))
        builder.emit_func_output(result)
    return builder.get()


def results(mod: tvm.IRModule) -> list[np.ndarray | None]:
    """The constants that `mod` returns; None for what is not constant."""
    body = mod["main"].body
    value = body.body
    if isinstance(value, relax.Var):
        value = {b.var: b.value for block in body.blocks for b in block.bindings}[value]
    parts = value.fields if isinstance(value, relax.Tuple) else [value]
    return [array_of(part) for part in parts]


def assert_same_bits(one: np.ndarray | None, other: np.ndarray | None) -> None:
    assert one is not None
    assert other is not None
    assert (one.dtype, one.shape) == (other.dtype, other.shape)
    assert one.tobytes() == other.tobytes()


@pytest.fixture
def without_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where NumPy's part leaves something to TVM's."""

    def refuse(call: Any, _scope: Any) -> Any:
        raise AssertionError(f"{call.op.name} was left to TVM")

    monkeypatch.setattr(constant_folding, "_fold_with_tvm", refuse)


def special(dtype: str) -> np.ndarray:
    """Numbers where implementations part: signed zeros, subnormals, infinities, NaN, halves."""
    if dtype in FLOATS:
        tiny = [float(np.finfo(dtype).smallest_subnormal), float(np.finfo(dtype).tiny)]
        return np.array(
            [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 7.3, 1e-3, 3e4, np.inf, -np.inf, np.nan, *tiny], dtype
        )
    return np.array([0, 1, 2, 3, 7, 100, 127] + ([-1, -7, -128] if dtype[0] == "i" else []), dtype)


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.meshgrid(special(dtype), special(dtype))
    return x.ravel(), y.ravel()


ARITHMETIC = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
COMPARISONS = ("equal", "less", "less_equal", "greater", "greater_equal")
INTEGER = ("floor_divide", "floor_mod", "mod", "bitwise_and", "bitwise_or", "bitwise_xor")
UNARY = ("negative", "abs", "square")
FLOAT_UNARY = ("sqrt", "rsqrt", "floor", "ceil", "trunc")


def defined(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where an integer quotient is defined; elsewhere TVM's compiled code ends the process."""
    return (y != 0) & ~((y == np.array(-1).astype(y.dtype)) & (x < 0) & (x == x.min()))


def binary_cases() -> list[tuple[str, str]]:
    cases = [(name, dtype) for name in ARITHMETIC + COMPARISONS for dtype in FLOATS + INTEGERS]
    cases += [(name, dtype) for name in INTEGER for dtype in INTEGERS]
    return cases


@pytest.mark.usefixtures("without_tvm")
@pytest.mark.parametrize(("name", "dtype"), binary_cases())
def test_binary_ops_have_the_bits_of_tvms_pass(name: str, dtype: str) -> None:
    x, y = pairs(dtype)
    if dtype in INTEGERS and name in ("divide", "floor_divide", "floor_mod", "mod"):
        keep = defined(x, y)
        x, y = x[keep], y[keep]
    mod = module(lambda: getattr(op, name)(relax.const(x), relax.const(y)))
    assert_same_bits(results(fold_constants(mod))[0], results(tvms_pass(mod))[0])


def tvms_pass(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.FoldConstant()(mod)


@pytest.mark.usefixtures("without_tvm")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in UNARY for dtype in (*FLOATS, "int8", "int64")]
    + [(name, dtype) for name in FLOAT_UNARY for dtype in FLOATS],
)
def test_unary_ops_have_the_bits_of_tvms_pass(name: str, dtype: str) -> None:
    mod = module(lambda: getattr(op, name)(relax.const(special(dtype))))
    assert_same_bits(results(fold_constants(mod))[0], results(tvms_pass(mod))[0])


@pytest.mark.parametrize("target", [*FLOATS, *INTEGERS, "bool"])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_conversions_have_the_bits_of_tvms_pass(dtype: str, target: str) -> None:
    values = np.array([True, False]) if dtype == "bool" else special(dtype)
    if dtype in FLOATS and target in INTEGERS:
        values = np.array([0.0, -0.0, 1.7, 100.2], dtype)
    mod = module(lambda: op.astype(relax.const(values), target))
    expected = results(tvms_pass(mod))[0]
    if dtype != target:
        assert_same_bits(results(fold_constants(mod))[0], expected)


X = relax.const(np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32"))
MOVES: dict[str, Callable[[], Any]] = {
    "reshape": lambda: op.reshape(X, (4, 6)),
    "flatten": lambda: op.flatten(X),
    "expand_dims": lambda: op.expand_dims(X, [0, -1]),
    "squeeze": lambda: op.squeeze(relax.const(np.ones((1, 2, 1), "int8")), [0]),
    "permute_dims": lambda: op.permute_dims(X, [2, 0, 1]),
    "reversed": lambda: op.permute_dims(X),
    "broadcast_to": lambda: op.broadcast_to(X, (5, 2, 3, 4)),
    "concat": lambda: op.concat([X, X], -1),
    "stack": lambda: op.stack([X, X], 1),
    "split": lambda: op.split(X, 2, -1),
    "split_at": lambda: op.split(X, [1, 2], 1),
    "split_uneven": lambda: op.split(X, 3, 2),
    "slice": lambda: op.strided_slice(X, [1, 2], [0, -3], [100, -1], [2, 1]),
    "take": lambda: op.take(X, relax.const(np.array([[1, 0], [1, 1]])), 1),
    "take_one": lambda: op.take(X, relax.const(np.int64(1)), 2),
    "gather_elements": lambda: op.gather_elements(
        X, relax.const(np.array([[[1, 0], [0, 3]]], "int64")), 2
    ),
    "tile": lambda: op.tile(X, [2, 2, 1, 1, 2]),
    "repeat": lambda: op.repeat(X, 2, 1),
    "repeat_flat": lambda: op.repeat(X, 2),
    "flip": lambda: op.flip(X, 1),
    "tril": lambda: op.tril(X, 1),
    "triu": lambda: op.triu(X, -1),
    "zeros": lambda: op.zeros((2, 3), "float16"),
    "ones": lambda: op.ones((2,), "bool"),
    "full": lambda: op.full((2, 3), relax.const(2.5, "float32"), "int32"),
    "zeros_like": lambda: op.zeros_like(X),
    "ones_like": lambda: op.ones_like(X),
    "full_like": lambda: op.full_like(X, relax.const(2.5, "float32")),
    "where": lambda: op.where(relax.const(np.array([[True], [False], [True]])), X, op.negative(X)),
    "logical_and": lambda: op.logical_and(
        relax.const(np.array([True, False])), relax.const(np.array([[True], [False]]))
    ),
    "logical_not": lambda: op.logical_not(relax.const(np.array([True, False]))),
    "sum": lambda: op.sum(relax.const(np.arange(-3, 3).reshape(2, 3)), [1], keepdims=True),
    "prod": lambda: op.prod(relax.const(np.arange(1, 25, dtype="int8").reshape(4, 6))),
    "max": lambda: op.max(relax.const(np.arange(-3, 3).reshape(2, 3)), [0]),
    "min": lambda: op.min(relax.const(np.arange(-3, 3).reshape(2, 3)), [-1]),
    "empty": lambda: op.add(relax.const(np.zeros((0, 3), "f4")), relax.const(np.ones(3, "f4"))),
    "number": lambda: op.add(X, relax.prim_value(tvm.tirx.FloatImm("float32", 0.1))),
}


@pytest.mark.usefixtures("without_tvm")
@pytest.mark.parametrize("name", MOVES)
def test_moves_of_data_have_the_bits_of_tvms_pass(name: str) -> None:
    mod = module(MOVES[name])
    for mine, theirs in zip(results(fold_constants(mod)), results(tvms_pass(mod)), strict=True):
        assert_same_bits(mine, theirs)


LEFT_TO_TVM: dict[str, Callable[[], Any]] = {
    "exp": lambda: op.exp(X),
    "sum of floats": lambda: op.sum(X, [1]),
    "matmul": lambda: op.matmul(X, op.permute_dims(X, [0, 2, 1])),
    "bfloat16": lambda: op.astype(op.astype(X, "bfloat16"), "float32"),
    "negative step": lambda: op.strided_slice(X, [2], [-1], [-100], [-1]),
    "arange of floats": lambda: op.arange(0.0, 1.0, 0.1, "float32"),
    "conversion out of range": lambda: op.astype(relax.const(special("float32")), "int32"),
    "cumsum": lambda: op.cumsum(X, 1),
}


@pytest.mark.parametrize("name", LEFT_TO_TVM)
def test_what_numpy_may_compute_otherwise_is_tvms(name: str) -> None:
    mod = module(LEFT_TO_TVM[name])
    mine, theirs = results(fold_constants(mod))[0], results(tvms_pass(mod))[0]
    if theirs is None:
        assert mine is None
    else:
        assert_same_bits(mine, theirs)


STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    op.add,
    op.subtract,
    op.multiply,
    op.divide,
    op.maximum,
    op.minimum,
    lambda x, _y: op.sqrt(x),
    lambda x, _y: op.negative(x),
    lambda x, _y: op.astype(op.astype(x, "float16"), "float32"),
    lambda x, y: op.where(op.less(x, y), x, y),
    lambda x, _y: op.reshape(op.permute_dims(x), x.ty.shape),
    lambda x, _y: op.flip(x, 0),
    lambda x, y: op.strided_slice(op.concat([x, y], 0), [0], [1], [1 + int(x.ty.shape[0])]),
)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_random_graphs_have_the_bits_of_tvms_pass(data: Any) -> None:
    mod = data.draw(random_graph())
    for mine, theirs in zip(results(fold_constants(mod)), results(tvms_pass(mod)), strict=True):
        assert_same_bits(mine, theirs)


@st.composite
def random_graph(draw: Any) -> tvm.IRModule:
    shape = draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4))
    floats = st.floats(width=32, allow_nan=True, allow_infinity=True)
    arrays = [draw(hnp.arrays("float32", shape, elements=floats)) for _ in range(2)]
    steps = draw(
        st.lists(
            st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(0, 7)),
            min_size=1,
            max_size=6,
        )
    )
    builder = relax.BlockBuilder()
    with builder.function("main", []):
        with builder.dataflow():
            values = [builder.emit(relax.const(array)) for array in arrays]
            for step, one, other in steps:
                x, y = values[one % len(values)], values[other % len(values)]
                values.append(builder.emit(step(x, y)))
            result = builder.emit_output(relax.Tuple(values))
        builder.emit_func_output(result)
    return builder.get()


def x_var(*shape: int) -> relax.Var:
    return relax.Var("x", relax.TensorType(shape, "float32"))


def test_shapes_are_computed_too() -> None:
    def reshape_to_own_shape(x: Any) -> Any:
        sizes = op.shape_to_tensor(op.shape_of(x))
        swapped = op.flip(sizes, 0)
        return op.reshape(x, op.tensor_to_shape(swapped))

    mod = fold_constants(module(reshape_to_own_shape, x_var(2, 3)))
    mod = relax.transform.DeadCodeElimination(["main"])(mod)
    assert count_ops(mod) == {"relax.reshape": 1}
    assert mod["main"].ret_ty.shape[0] == 3


def test_a_shape_keeps_its_dtype_in_what_is_computed_from_it() -> None:
    def last_size(x: Any) -> Any:
        sizes = op.shape_to_tensor(op.shape_of(x))
        return op.add(op.take(sizes, relax.const(1, "int64"), 0), relax.const(0, "int64"))

    folded = results(fold_constants(module(last_size, x_var(2, 3))))[0]
    assert_same_bits(folded, np.array(3, "int64"))


def test_a_range_is_computed() -> None:
    folded = results(fold_constants(module(lambda: op.arange(2, 10, 3, "int64"))))[0]
    assert_same_bits(folded, np.arange(2, 10, 3))


def test_what_would_grow_beyond_the_limit_stays() -> None:
    count = LIMIT_BYTES // 4
    one = relax.const(np.ones(1, "float32"))
    notes: Counter[str] = Counter()
    small = fold_constants(module(lambda: op.broadcast_to(one, (count,))), notes)
    assert not count_ops(small)
    assert not notes
    large = fold_constants(module(lambda: op.broadcast_to(one, (count + 1,))), notes)
    assert count_ops(large) == {"relax.broadcast_to": 1}
    assert list(notes) == ["relax.broadcast_to would grow to 1.0 MiB"]


def test_a_large_weight_is_folded_when_it_does_not_grow() -> None:
    weight = np.ones((1024, 1024), "float32")
    mod = fold_constants(module(lambda: op.permute_dims(relax.const(weight))))
    assert not count_ops(mod)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: op.divide(relax.const(np.array([1])), relax.const(np.array([0]))), "division"),
        (
            lambda: op.floor_mod(
                relax.const(np.array([-128], "int8")), relax.const(np.array([-1], "int8"))
            ),
            "overflow",
        ),
        (lambda: op.take(X, relax.const(np.array([5])), 1, "fast"), "out of bounds"),
    ],
)
def test_what_would_end_the_process_is_left_alone(make: Any, why: str) -> None:
    notes: Counter[str] = Counter()
    mod = fold_constants(module(make), notes)
    assert sum(count_ops(mod).values()) == 1, why
    assert "without a defined result" in next(iter(notes))


def test_random_numbers_and_other_calls_are_not_folded() -> None:
    packed = relax.ExternFunc("no.such.function")

    def call(x: Any) -> Any:
        return op.add(x, op.call_pure_packed(packed, X, ty_args=[X.ty]))

    mod = fold_constants(module(call, x_var(2, 3, 4)))
    assert count_ops(mod) == {"relax.call_pure_packed": 1, "relax.add": 1}


def test_branches_and_code_outside_dataflow_are_folded() -> None:
    condition = relax.Var("c", relax.TensorType((), "bool"))
    x = x_var(2)
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, x]):
        ones = op.add(relax.const(np.ones(2, "f4")), relax.const(np.ones(2, "f4")))
        then = relax.SeqExpr([], op.multiply(x, ones))
        chosen = builder.emit(relax.If(condition, then, relax.SeqExpr([], op.add(x, ones))))
        builder.emit_func_output(chosen)
    mod = relax.transform.Normalize()(builder.get())
    folded = relax.transform.CanonicalizeBindings()(fold_constants(mod))
    assert count_ops(mod)["relax.add"] == 3
    assert count_ops(folded) == {"relax.multiply": 1, "relax.add": 1}


def test_folding_a_constant_costs_no_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [np.ones((64, 64, 3, 3), "float32") for _ in range(20)]

    def scaled(x: Any) -> Any:
        for weight in weights:
            scale = op.sqrt(relax.const(np.ones((64, 1, 1, 1), "float32")))
            x = op.nn.conv2d(x, op.multiply(relax.const(weight), scale), padding=1)
        return x

    mod = module(scaled, x_var(1, 64, 8, 8))
    with monkeypatch.context() as patch:  # TVM's pass compiles each call that it folds
        patch.setattr(relax.transform, "FoldConstant", lambda: pytest.fail("it was compiled"))
        folded = fold_constants(mod)
    folded = relax.transform.DeadCodeElimination(["main"])(folded)
    assert count_ops(folded) == {"relax.nn.conv2d": 20}
