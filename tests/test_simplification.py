"""What `prepare` takes out or writes more plainly keeps its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

import tvm_byoc_kit as byoc
from tvm_byoc_kit.prepare_report import count_ops

op = relax.op
X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
INPUT = {"x": ((2, 3, 4), "float32")}


def scalar(value: float) -> Any:
    return relax.const(value, "float32")


def kinds(model: byoc.ImportedModel) -> dict[str, int]:
    return {name.removeprefix("relax."): n for name, n in count_ops(model.mod).items()}


def run_both(mod: Any, *inputs: np.ndarray) -> tuple[byoc.ImportedModel, Any, Any]:
    """The prepared model, its result, and that of the module as it was."""
    model = byoc.prepare(mod)
    assert model.report is not None
    assert not [item.skipped for item in model.report.passes if item.skipped]
    result = byoc.compile(model, "llvm")(*inputs)
    return model, result, byoc.compile(mod, "llvm", prepare=False)(*inputs)


def constant(value: Any) -> Any:
    return relax.const(np.array(value))


NOTHING = {
    "broadcast_to": lambda x: op.broadcast_to(x, (2, 3, 4)),
    "reshape": lambda x: op.reshape(x, (2, 3, 4)),
    "reshapes": lambda x: op.reshape(op.reshape(x, (6, 4)), (2, 3, 4)),
    "squeeze": lambda x: op.squeeze(op.expand_dims(x, [1]), [1]),
    "permute_dims": lambda x: op.permute_dims(x, [0, 1, 2]),
    "permutations": lambda x: op.permute_dims(op.permute_dims(x, [2, 0, 1]), [1, 2, 0]),
    "strided_slice": lambda x: op.strided_slice(x, [0, 2], [0, 0], [10**9, 2**31 - 1], [1, 1]),
    "strided_slice without strides": lambda x: op.strided_slice(x, [1], [0], [3]),
    "astype": lambda x: op.astype(x, "float32"),
    "concat": lambda x: op.concat([x], 1),
    "times one": lambda x: op.multiply(scalar(1), x),
    "divided by one": lambda x: op.divide(x, relax.const(np.ones((3, 4), "float32"))),
    "minus zero": lambda x: op.subtract(x, scalar(0)),
    "at least -inf": lambda x: op.maximum(scalar(-np.inf), x),
    "where true": lambda x: op.where(constant(True), x, op.exp(x)),
    "where false": lambda x: op.where(constant([False] * 4), op.exp(x), x),
    "at most inf": lambda x: op.minimum(scalar(np.inf), x),
    "dropout": lambda x: relax.TupleGetItem(op.nn.dropout(x, 0.5), 0),
}


@pytest.mark.parametrize("name", NOTHING)
def test_a_call_that_does_nothing_goes(make_module: Any, name: str) -> None:
    mod = make_module(INPUT, lambda x: op.exp(NOTHING[name](op.negative(x))))
    model, result, before = run_both(mod, X)
    assert kinds(model) == {"negative": 1, "exp": 1}
    np.testing.assert_array_equal(result, before)


SOMETHING = {
    "a slice backwards": lambda x: op.strided_slice(x, [2], [-1], [-100], [-1]),
    "a cast": lambda x: op.astype(x, "float16"),
    "times one, broadcast": lambda x: op.multiply(x, relax.const(np.ones((2, 2, 3, 4), "float32"))),
    "times a one of two": lambda x: op.multiply(
        x, relax.const(np.array([1, 1, 1, 2], dtype="float32"))
    ),
    "where some": lambda x: op.where(constant([True, False, True, True]), x, scalar(0)),
    "where true, broadcast": lambda x: op.where(constant([True] * 4), scalar(1), x),
    "one minus": lambda x: op.subtract(scalar(0), x),
    "one over": lambda x: op.divide(scalar(1), x),
    "a permutation of the same shape": lambda x: op.permute_dims(
        op.reshape(x, (4, 6, 1)), [1, 0, 2]
    ),
}


@pytest.mark.parametrize("name", SOMETHING)
def test_a_call_that_does_something_stays(make_module: Any, name: str) -> None:
    mod = make_module(INPUT, SOMETHING[name])
    model, result, before = run_both(mod, X)
    assert kinds(model) == {kind.removeprefix("relax."): n for kind, n in count_ops(mod).items()}
    np.testing.assert_array_equal(result, before)


PLAINER = {
    "a broadcast operand": (
        lambda x: op.add(x, op.broadcast_to(op.sum(x, [0, 1, 2], keepdims=True), (2, 3, 4))),
        {"sum": 1, "add": 1},
    ),
    "a filled operand": (
        lambda x: op.maximum(x, op.zeros_like(x)),
        {"maximum": 1},
    ),
    "a filled branch": (
        lambda x: op.where(op.less(x, scalar(0)), op.full_like(x, scalar(7)), x),
        {"less": 1, "where": 1},
    ),
    "two permutations": (
        lambda x: op.permute_dims(op.permute_dims(x, [1, 0, 2]), [0, 2, 1]),
        {"permute_dims": 1},
    ),
    "three reshapes": (
        lambda x: op.reshape(op.expand_dims(op.flatten(x), [0]), (4, 6)),
        {"reshape": 1},
    ),
    "one index": (
        lambda x: op.take(x, relax.const(1, "int64"), 1),
        {"strided_slice": 1, "reshape": 1},
    ),
    "ONNX's Max": (
        lambda x: op.max(
            op.stack([op.broadcast_to(scalar(0.1), (2, 3, 4)), op.broadcast_to(x, (2, 3, 4))], 0),
            [0],
        ),
        {"maximum": 1},
    ),
    "ONNX's Min of three": (
        lambda x: op.min(op.stack([x, op.negative(x), op.exp(x)], 0), [0]),
        {"negative": 1, "exp": 1, "minimum": 2},
    ),
    "the same twice": (
        lambda x: op.add(op.exp(op.negative(x)), op.exp(op.negative(x))),
        {"negative": 1, "exp": 1, "add": 1},
    ),
}


@pytest.mark.parametrize("name", PLAINER)
def test_a_plainer_form_has_the_same_numbers(make_module: Any, name: str) -> None:
    body, expected = PLAINER[name]
    model, result, before = run_both(make_module(INPUT, body), X)
    assert kinds(model) == expected
    np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_a_filled_operand_keeps_a_wide_dtype(make_module: Any, dtype: str) -> None:
    def body(x: Any) -> Any:
        return op.add(x, op.full_like(x, relax.const(2**40, dtype)))

    mod = make_module({"x": ((3,), dtype)}, body)
    model, result, before = run_both(mod, np.arange(3).astype(dtype))
    assert kinds(model) == {"add": 1}
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, before)


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_of_infinities_are_numpys(make_module: Any, reduce: str) -> None:
    """TVM's reduction starts at 3.4e38, and so does not give the maximum of two -inf."""
    values = np.array([-np.inf, np.inf, 1.0, -0.0], "float32")
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    shape = {"x": (x.shape, "float32"), "y": (y.shape, "float32")}

    def body(x: Any, y: Any) -> Any:
        return getattr(op, reduce)(op.stack([x, y], 0), [0])

    model, result, _ = run_both(make_module(shape, body), x, y)
    assert kinds(model) == {f"{reduce}imum": 1}
    np.testing.assert_array_equal(result, getattr(np, f"{reduce}imum")(x, y))


def wrap(x: Any, half: int, period: int) -> Any:
    rest = op.floor_mod(x, relax.const(period, "int64"))
    lower = op.subtract(rest, relax.const(period, "int64"))
    test = op.greater_equal(rest, relax.const(half, "int64"))
    return op.astype(op.where(test, lower, rest), "int32")


def test_what_a_cast_to_int32_wraps_by_itself_is_not_wrapped_before(make_module: Any) -> None:
    x = np.array([0, 5, -5, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32 + 7, 2**63 - 1])
    mod = make_module({"x": ((9,), "int64")}, lambda x: wrap(x, 2**31, 2**32))
    model, result, original = run_both(mod, x)
    assert kinds(model) == {"astype": 1}
    np.testing.assert_array_equal(result, original)
    np.testing.assert_array_equal(result, x.astype("int32"))


@pytest.mark.parametrize(("half", "period"), [(2**30, 2**32), (2**31, 2**33), (2**15, 2**16)])
def test_what_is_wrapped_into_another_range_stays(make_module: Any, half: int, period: int) -> None:
    x = np.array([0, 5, -5, 2**15, 2**31 - 1, 2**30, -(2**31)])
    mod = make_module({"x": ((7,), "int64")}, lambda x: wrap(x, half, period))
    model, result, original = run_both(mod, x)
    assert kinds(model)["floor_mod"] == 1
    np.testing.assert_array_equal(result, original)


def test_a_dropout_that_is_read_as_a_tuple_goes_too(make_module: Any) -> None:
    def body(x: Any) -> Any:
        whole = op.nn.dropout(x, 0.5)
        return [relax.TupleGetItem(whole, 0), relax.TupleGetItem(whole, 1)]

    model, (result, mask), _ = run_both(make_module(INPUT, body), X)
    assert "nn.dropout" not in kinds(model)
    np.testing.assert_array_equal(result, X)
    np.testing.assert_array_equal(mask, np.ones_like(X))


def test_a_model_that_does_nothing_gives_its_input(make_module: Any) -> None:
    model = byoc.prepare(make_module(INPUT, lambda x: op.reshape(x, (2, 3, 4))))
    assert kinds(model) == {}
    np.testing.assert_array_equal(byoc.compile(model, "llvm")(X), X)


def test_symbolic_shapes_are_compared_by_their_symbols(make_module: Any) -> None:
    shapes = {"x": (("n", 4), "float32"), "y": (("m", 4), "float32")}

    def body(x: Any, y: Any) -> Any:
        same = op.broadcast_to(x, x.ty.shape)
        other = op.reshape(y, relax.ShapeExpr([y.ty.shape[0] * 2, 2]))
        return [op.exp(same), op.exp(other)]

    mod = make_module(shapes, body)
    x, y = X.reshape(6, 4), X.reshape(6, 4)[:2]
    model, result, before = run_both(mod, x, y)
    assert kinds(model) == {"exp": 2, "reshape": 1}
    for mine, theirs in zip(result, before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Attention(nn.Module):
    """PyTorch's attention guards its softmax against rows of nothing but -inf."""

    def __init__(self, mask: torch.Tensor | None = None) -> None:
        super().__init__()
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x, self.mask)


CAUSAL = torch.full((4, 4), -torch.inf).triu(1)
NO_KEY = torch.full((4, 4), -torch.inf).triu(0)


@pytest.mark.parametrize(
    ("mask", "guarded"), [(None, False), (CAUSAL, False), (NO_KEY, True)], ids=str
)
def test_the_guard_of_attention_goes_where_no_row_is_empty(
    mask: torch.Tensor | None, guarded: bool
) -> None:
    x = torch.randn(1, 2, 4, 8)
    exported = torch.export.export(Attention(mask).eval(), (x,))
    raw = from_exported_program(exported, unwrap_unit_return_tuple=True)
    model, result, _ = run_both(raw, x.numpy())
    assert ("where" in kinds(model)) == guarded
    with torch.no_grad():
        expected = Attention(mask)(x).numpy()
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_a_layout_brings_no_permutation_but_at_the_ends(make_module: Any) -> None:
    rng = np.random.default_rng(1)
    weights = [rng.standard_normal((4, 4, 3, 3)).astype("float32") for _ in range(2)]
    bias = relax.const(rng.standard_normal((4, 1, 1)).astype("float32"))

    def body(x: Any) -> Any:
        y = op.clip(op.add(op.nn.conv2d(x, relax.const(weights[0]), padding=1), bias), 0, 6)
        return op.add(y, op.nn.conv2d(y, relax.const(weights[1]), padding=1))

    mod = make_module({"x": ((1, 4, 6, 6), "float32")}, body)
    model = byoc.prepare(mod, "cutlass")
    assert kinds(model) == {"permute_dims": 2, "nn.conv2d": 2, "add": 2, "clip": 1}
    convolutions = [
        binding.value
        for block in model.mod["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", "") == "relax.nn.conv2d"
    ]
    assert {(c.attrs.data_layout, c.attrs.kernel_layout) for c in convolutions} == {
        ("NHWC", "OHWI")
    }
    x = rng.standard_normal((1, 4, 6, 6)).astype("float32")
    before = byoc.compile(mod, "llvm", prepare=False)(x)
    # The sums of the convolution are added in another order.
    np.testing.assert_allclose(byoc.compile(model, "llvm")(x), before, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["add", "multiply"])
def test_a_constant_comes_second_where_patterns_have_it(make_module: Any, name: str) -> None:
    bias = np.arange(4, dtype="float32")
    mod = make_module(INPUT, lambda x: getattr(op, name)(relax.const(bias), op.exp(x)))
    model, result, before = run_both(mod, X)
    last = model.mod["main"].body.blocks[0].bindings[-1].value
    np.testing.assert_array_equal(last.args[1].value.numpy(), bias)
    np.testing.assert_array_equal(result, before)
