"""What is proved of rows is true: chains of ops, run with NaN in all other rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tvm
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op as R  # noqa: N812 - as TVM calls it

import tvm_byoc_kit as byoc
from tvm_byoc_kit.row_independence import why_dependent

Array = np.ndarray
Draw = Callable[[st.SearchStrategy[Any]], Any]
# An op of a value, with a second one at hand; some mix rows, some do not apply to every shape.
Step = Callable[[Draw, Any, Any], Any]

ROWS, PADDED = 2, 5
MOST_AXES, MOST_ENTRIES = 4, 400


def axis_of(draw: Draw, x: Any) -> int:
    return draw(st.integers(0, x.ty.ndim - 1))


def known(size: Any) -> int:
    """A size, and 1 for one that is open."""
    return int(getattr(size, "value", 1))


def regrouped(draw: Draw, x: Any, _other: Any) -> Any:
    """Two neighbouring axes made one, or one made two."""
    sizes, axis = list(x.ty.shape), axis_of(draw, x)
    if axis + 1 < len(sizes) and draw(st.booleans()):
        return R.reshape(x, [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]])
    factor = draw(st.sampled_from([1, 2, 3]))
    halves = [relax.prim_value(factor), tvm.tirx.floordiv(sizes[axis], factor)]
    order = draw(st.sampled_from([1, -1]))
    return R.reshape(x, [*sizes[:axis], *halves[::order], *sizes[axis + 1 :]])


def weights(x: Any) -> Any:
    size = known(x.ty.shape[-1])
    return relax.const(np.linspace(-1, 1, size * 2, dtype=np.float32).reshape(size, 2))


def constant_like(x: Any) -> Any:
    sizes = [known(size) for size in x.ty.shape]
    return relax.const(np.linspace(0.5, 1.5, int(np.prod(sizes)), dtype=np.float32).reshape(sizes))


def zeros_like_shape(x: Any) -> Any:
    return R.zeros(relax.ShapeExpr(list(x.ty.shape)), "float32")


def indices(*shape: int) -> Any:
    return relax.const(np.zeros(shape, np.int64))


def numbers(draw: Draw, least: int, most: int, count: int) -> list[int]:
    return draw(st.lists(st.integers(least, most), min_size=count, max_size=count))


STEPS: dict[str, Step] = {
    "tanh": lambda _draw, x, _: R.tanh(x),
    "add": lambda _draw, x, other: R.add(x, other),
    "add a constant": lambda _draw, x, _: R.add(x, constant_like(x)),
    "add zeros": lambda _draw, x, other: R.add(x, zeros_like_shape(other)),
    "where": lambda _draw, x, other: R.where(R.less(x, relax.const(0.0)), x, other),
    "matmul": lambda _draw, x, other: R.matmul(x, other),
    "matmul transposed": lambda _draw, x, _: R.matmul(x, R.permute_dims(x)),
    "matmul weights": lambda _draw, x, _: R.matmul(x, weights(x)),
    "permute": lambda draw, x, _: R.permute_dims(x, draw(st.permutations(range(x.ty.ndim)))),
    "regroup": regrouped,
    "reshape backwards": lambda _draw, x, _: R.reshape(x, list(x.ty.shape)[::-1]),
    "expand": lambda draw, x, _: R.expand_dims(x, [draw(st.integers(0, x.ty.ndim))]),
    "softmax": lambda draw, x, _: R.nn.softmax(x, axis_of(draw, x)),
    "sum": lambda draw, x, _: R.sum(x, [axis_of(draw, x)], draw(st.booleans())),
    "cumsum": lambda draw, x, _: R.cumsum(x, axis_of(draw, x)),
    "flip": lambda draw, x, _: R.flip(x, axis_of(draw, x)),
    "sort": lambda draw, x, _: R.sort(x, axis_of(draw, x)),
    "argmax": lambda draw, x, _: R.astype(R.argmax(x, axis_of(draw, x)), "float32"),
    "take": lambda draw, x, _: R.take(x, indices(2), axis_of(draw, x)),
    "gather": lambda draw, x, _: R.gather_elements(
        x, indices(*[1] * x.ty.ndim), axis_of(draw, x)
    ),
    "slice": lambda draw, x, _: R.strided_slice(
        x, [axis_of(draw, x)], [draw(st.integers(0, 1))], [2**40], [draw(st.integers(1, 2))]
    ),
    "slice backwards": lambda draw, x, _: R.strided_slice(
        x, [axis_of(draw, x)], [-1], [-(2**40)], [-1]
    ),
    "concat": lambda draw, x, other: R.concat([x, other], axis_of(draw, x)),
    "concat itself": lambda draw, x, _: R.concat([x, x], axis_of(draw, x)),
    "stack": lambda draw, x, _: R.stack([x, R.negative(x)], draw(st.integers(0, x.ty.ndim))),
    "split": lambda draw, x, _: R.split(x, [1], axis_of(draw, x))[0],
    "tile": lambda draw, x, _: R.tile(x, numbers(draw, 1, 2, x.ty.ndim)),
    "repeat": lambda draw, x, _: R.repeat(x, 2, axis_of(draw, x)),
    "pad": lambda draw, x, _: R.nn.pad(x, numbers(draw, 0, 1, 2 * x.ty.ndim)),
    "layer_norm": lambda _draw, x, _: R.nn.layer_norm(
        x, *[relax.const(np.ones(known(x.ty.shape[-1]), np.float32))] * 2, axes=[-1]
    ),
    "the number of rows": lambda _draw, x, _: R.multiply(x, R.astype(R.size(x), "float32")),
}  # fmt: skip


def chain(draw: Draw, length: int) -> tuple[relax.Function, list[Any]]:
    """A function of rows on two axes, and one input without, with all values it computes."""
    builder, n = relax.BlockBuilder(), tvm.tirx.Var("n", "int64")
    shapes = {"x": (n, 2, 3), "y": (2, n), "w": (3,)}
    params = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in shapes.items()]
    values = list(params)
    with builder.function("main", params):
        with builder.dataflow():
            for _ in range(length):
                step = STEPS[draw(st.sampled_from(sorted(STEPS)))]
                value = applied(builder, step, draw, values)
                if value is not None:
                    values.append(builder.emit_output(value))
            builder.emit_output(relax.const(0.0))
        builder.emit_func_output(relax.Tuple(values))
    return builder.get()["main"], values[len(params) :]


def applied(builder: relax.BlockBuilder, step: Step, draw: Draw, values: list[Any]) -> Any:
    """A new value of moderate size and known shape; None where the op does not apply."""
    newest = st.sampled_from(values[::-1])
    x, other = draw(newest), draw(newest)
    if x.ty.ndim == 0:
        return None
    try:
        value = builder.normalize(step(draw, x, other))
    except (tvm.error.InternalError, ValueError, TypeError, IndexError):
        return None
    shape = value.ty.shape
    if getattr(shape, "values", None) is None or value.ty.ndim > MOST_AXES:
        return None
    return value if np.prod([known(size) for size in shape.values]) <= MOST_ENTRIES else None


def model_of(function: relax.Function, result: Any) -> tvm.IRModule:
    body = relax.SeqExpr(function.body.blocks, result)
    made = relax.Function(function.params, body, result.ty).with_attr("global_symbol", "main")
    return relax.transform.Normalize()(tvm.IRModule({"main": made}))


def arrays(rows: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {"x": (rows, 2, 3), "y": (2, rows), "w": (3,)}
    return {key: rng.standard_normal(s).astype(np.float32) for key, s in shapes.items()}


def among_others(values: dict[str, Array], places: Sequence[int]) -> dict[str, Array]:
    """The rows of `values` at `places`, and NaN in all the other rows."""
    x, y = np.full((PADDED, 2, 3), np.nan), np.full((2, PADDED), np.nan)
    x[places], y[:, places] = values["x"], values["y"]
    return {"x": x.astype(np.float32), "y": y.astype(np.float32), "w": values["w"]}


def rows_of(padded: Array, alone: Array, places: Sequence[int]) -> Array:
    """What `padded` holds for the rows that stand at `places`."""
    axes = [i for i, size in enumerate(alone.shape) if size != padded.shape[i]]
    if not axes:
        return padded
    (axis,) = axes
    block = alone.shape[axis] // ROWS
    kept = [row * block + entry for row in places for entry in range(block)]
    return padded.take(kept, axis)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_rows_proved_independent_are_the_same_among_any_others(data: st.DataObject) -> None:
    function, values = chain(data.draw, 8)
    proved = [
        value
        for value in values
        if why_dependent(byoc.load_model(model_of(function, value)), "n") is None
    ]
    event(f"{len(proved)} of {len(values)} proved")
    if not proved:
        return
    exe = byoc.compile(model_of(function, relax.Tuple(proved)), "llvm")
    places = data.draw(st.sampled_from([[0, 1], [1, 3], [3, 4], [0, 4]]), "places")
    inputs = arrays(ROWS)
    alone, padded = exe.run(inputs), exe.run(among_others(inputs, places))
    for name, expected in alone.items():
        actual = rows_of(np.asarray(padded[name]), np.asarray(expected), places)
        np.testing.assert_allclose(actual, expected, 1e-6, 1e-6, err_msg=str(function))
