"""Negative indices: each op that indexes, as Relax and from ONNX, against an independent result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.negative_indices import normalize_negative_indices

if TYPE_CHECKING:
    from collections.abc import Callable

X = np.arange(12, dtype="float32").reshape(3, 4)
LIST = np.array([0, -1, -2])
ALONG = np.array([[0, -1], [-2, 1], [3, -4]])
POINTS = np.array([[0, -1], [-2, 1]])
UPDATES = np.array([10, 20], dtype="float32")


def gathered_points() -> np.ndarray:
    return X[POINTS[:, 0], POINTS[:, 1]]


def scattered_points() -> np.ndarray:
    result = X.copy()
    result[POINTS[:, 0], POINTS[:, 1]] = UPDATES
    return result


def put_along() -> np.ndarray:
    result = X.copy()
    np.put_along_axis(result, ALONG, -X[:, :2], 1)
    return result


def module_of(build: Callable[..., Any], arrays: list[np.ndarray], *, constant: bool) -> Any:
    """A module that calls `build`, with all arrays but the first as constants if so wished."""
    builder = relax.BlockBuilder()
    params = [
        relax.Var(f"a{i}", relax.TensorType(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    kept = params[:1] if constant else params
    given = kept + [relax.const(a, str(a.dtype)) for a in arrays[len(kept) :]]
    with builder.function("main", kept):
        with builder.dataflow():
            result = builder.emit_output(build(*given))
        builder.emit_func_output(result)
    return builder.get()


OPS: dict[str, tuple[Callable[..., Any], list[np.ndarray], np.ndarray]] = {
    "take": (lambda x, i: relax.op.take(x, i, axis=0), [X, LIST], X[LIST]),
    "take on the last axis": (lambda x, i: relax.op.take(x, i, axis=-1), [X, LIST], X[:, LIST]),
    "take of int32": (
        lambda x, i: relax.op.take(x, i, axis=0), [X, LIST.astype("int32")], X[LIST],
    ),
    "take of int8": (lambda x, i: relax.op.take(x, i, axis=0), [X, LIST.astype("int8")], X[LIST]),
    "take of a scalar": (lambda x, i: relax.op.take(x, i, axis=1), [X, np.array(-2)], X[:, -2]),
    "take from the flattened": (
        relax.op.take, [X.ravel(), LIST], X.ravel()[LIST],
    ),
    "gather_elements": (
        lambda x, i: relax.op.gather_elements(x, i, axis=1),
        [X, ALONG], np.take_along_axis(X, ALONG, 1),
    ),
    "gather_elements of int8": (
        lambda x, i: relax.op.gather_elements(x, i, axis=1),
        [X, ALONG.astype("int8")], np.take_along_axis(X, ALONG, 1),
    ),
    "gather_nd": (relax.op.gather_nd, [X, POINTS], gathered_points()),
    "gather_nd in batches": (
        lambda x, i: relax.op.gather_nd(x, i, batch_dims=1),
        [X, LIST.reshape(3, 1)], X[np.arange(3), LIST],
    ),
    "index_tensor": (
        lambda x, i, j: relax.op.index_tensor(x, [i, j]),
        [X, POINTS[:, 0].copy(), POINTS[:, 1].copy()], gathered_points(),
    ),
    "scatter_elements": (
        lambda x, i, u: relax.op.scatter_elements(x, i, u, axis=1),
        [X, ALONG, -X[:, :2].copy()], put_along(),
    ),
    "scatter_nd": (relax.op.scatter_nd, [X, POINTS, UPDATES], scattered_points()),
    "index_put": (
        lambda x, i, j, u: relax.op.index_put(x, (i, j), u),
        [X, POINTS[:, 0].copy(), POINTS[:, 1].copy(), UPDATES], scattered_points(),
    ),
    "strided_slice": (
        lambda x: relax.op.strided_slice(x, [0, 1], [-2, -3], [3, -1]), [X], X[-2:, -3:-1],
    ),
}  # fmt: skip


@pytest.mark.parametrize("constant", [False, True], ids=["runtime", "constant"])
@pytest.mark.parametrize("name", OPS)
def test_an_op_counts_negative_indices_from_the_end(name: str, constant: bool) -> None:
    build, arrays, expected = OPS[name]
    mod = normalize_negative_indices(module_of(build, arrays, constant=constant))
    exe = byoc.compile(mod, "llvm")
    np.testing.assert_array_equal(exe(*arrays[: len(exe.inputs)]), expected)


@pytest.mark.parametrize("constant", [False, True], ids=["runtime", "constant"])
@pytest.mark.parametrize("name", OPS)
def test_the_pass_is_idempotent(name: str, constant: bool) -> None:
    build, arrays, _ = OPS[name]
    once = normalize_negative_indices(module_of(build, arrays, constant=constant))
    tvm.ir.assert_structural_equal(normalize_negative_indices(once), once)


def test_an_index_that_cannot_be_negative_is_left_alone() -> None:
    def sort(x: Any) -> Any:
        return relax.op.gather_elements(x, relax.op.argsort(x, axis=1, dtype="int64"), axis=1)

    mod = module_of(sort, [X], constant=False)
    tvm.ir.assert_structural_equal(normalize_negative_indices(mod), mod)


def test_a_symbolic_size_is_read_at_run_time() -> None:
    n = tvm.tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType([n, 4], "float32"))
    index = relax.Var("i", relax.TensorType([1, 4], "int64"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, index]):
        with builder.dataflow():
            taken = builder.emit(relax.op.take(x, relax.const([-1], "int64"), axis=0))
            along = builder.emit(relax.op.gather_elements(x, index, axis=0))
            result = builder.emit_output(relax.op.concat([taken, along]))
        builder.emit_func_output(result)
    exe = byoc.compile(normalize_negative_indices(builder.get()), "llvm")
    for rows in (2, 5):
        x_value = np.arange(rows * 4, dtype="float32").reshape(rows, 4)
        got = exe(x_value, np.array([[-1, 0, -2, 1]]))
        along = x_value[[-1, 0, -2, 1], range(4)]
        np.testing.assert_array_equal(got, np.stack([x_value[-1], along]))


@pytest.mark.parametrize("index", [3, -4])
def test_a_constant_index_out_of_range_is_named(index: int) -> None:
    mod = module_of(
        lambda x, i: relax.op.take(x, i, axis=0), [X, np.array([0, index])], constant=True
    )
    with pytest.raises(ModelError, match=rf"relax\.take has the constant indices \[0, {index}\]"):
        normalize_negative_indices(mod)


def test_an_index_out_of_range_at_run_time_stays_within_the_tensor() -> None:
    mod = module_of(lambda x, i: relax.op.take(x, i, axis=0), [X, LIST], constant=False)
    exe = byoc.compile(normalize_negative_indices(mod), "llvm")
    got = exe(X, np.array([10**12, -(10**12), 7]))
    assert np.isin(got, X).all()


ONNX_OPS: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    "Gather": ([X, LIST], {"axis": 0}),
    "GatherElements": ([X, ALONG], {"axis": 1}),
    "GatherND": ([X, POINTS], {}),
    "ScatterElements": ([X, ALONG, -X[:, :2].copy()], {"axis": 1}),
    "ScatterND": ([X, POINTS, UPDATES], {}),
    "OneHot": ([LIST, np.array(4), np.array([-1, 1], dtype="float32")], {}),
}


@pytest.mark.parametrize("constant", [False, True], ids=["runtime", "constant"])
@pytest.mark.parametrize("name", ONNX_OPS)
def test_an_onnx_op_agrees_with_onnx_runtime(name: str, constant: bool) -> None:
    arrays, attributes = ONNX_OPS[name]
    first_constant = 1 if constant or name == "OneHot" else len(arrays)
    names = [f"a{i}" for i in range(len(arrays))]
    graph = helper.make_graph(
        [helper.make_node(name, names, ["y"], **attributes)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in list(zip(names, arrays, strict=True))[:first_constant]
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(a, n)
            for n, a in list(zip(names, arrays, strict=True))[first_constant:]
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    given = dict(zip(names[:first_constant], arrays, strict=False))
    expected = ort.InferenceSession(model.SerializeToString()).run(None, given)[0]
    exe = byoc.compile(byoc.load_model(model), "llvm")
    np.testing.assert_array_equal(exe(*given.values()), expected)
