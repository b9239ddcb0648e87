"""Calling an Executable: names, shapes and dtypes are checked before the virtual machine runs."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ArtifactError, InputError

Array = np.ndarray
Reference = Callable[[Array, Array], tuple[Array, Array]]
BOTH = pytest.mark.parametrize(
    "exe",
    ["host_exe", pytest.param("npu_exe", marks=pytest.mark.byoc("example_npu"))],
    indirect=True,
)


@pytest.fixture
def exe(request: pytest.FixtureRequest) -> byoc.Executable:
    return request.getfixturevalue(request.param)


def arrays(batch: int = 2, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return (
        rng.standard_normal((batch, 4), dtype=np.float32),
        rng.standard_normal((batch, 3), dtype=np.float32),
    )


def assert_close(got: Any, expected: Any) -> None:
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@BOTH
def test_run_takes_and_gives_arrays_by_name(
    exe: byoc.Executable, two_outputs_numpy: Reference
) -> None:
    x, y = arrays()
    got = exe.run({"y": y, "x": x})
    assert list(got) == ["output_0", "output_1"]
    assert all(type(value) is np.ndarray for value in got.values())
    assert_close(got.values(), two_outputs_numpy(x, y))


@BOTH
def test_a_call_takes_inputs_in_order_and_gives_a_tuple(
    exe: byoc.Executable, two_outputs_numpy: Reference
) -> None:
    x, y = arrays()
    got = exe(x, y)
    assert isinstance(got, tuple)
    assert_close(got, two_outputs_numpy(x, y))


@BOTH
@pytest.mark.parametrize("batch", [1, 3, 17, 0])
def test_the_batch_is_symbolic(
    exe: byoc.Executable, two_outputs_numpy: Reference, batch: int
) -> None:
    x, y = arrays(batch)
    got = exe(x, y)
    assert got[0].shape == (batch, 3)
    assert_close(got, two_outputs_numpy(x, y))


def fortran(array: Array) -> Array:
    return np.asfortranarray(array)


def strided(array: Array) -> Array:
    wide = np.zeros((array.shape[0] * 2, array.shape[1] * 3), array.dtype)
    wide[::2, ::3] = array
    return wide[::2, ::3]


def reversed_twice(array: Array) -> Array:
    return np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1]


def read_only(array: Array) -> Array:
    array = array.copy()
    array.setflags(write=False)
    return array


def matrix(array: Array) -> Array:
    return array.view(np.matrix)


def torch_tensor(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.copy())


def torch_transposed(array: Array) -> torch.Tensor:
    return torch.from_numpy(array.T.copy()).T


def torch_lazily_negated(array: Array) -> torch.Tensor:
    zeros = torch.zeros(array.shape)
    return torch.complex(zeros, torch.from_numpy(-array)).conj().imag


def tvm_tensor(array: Array) -> Any:
    return tvm.runtime.tensor(array)


@BOTH
@pytest.mark.parametrize(
    "form",
    [
        fortran,
        strided,
        reversed_twice,
        read_only,
        matrix,
        torch_tensor,
        torch_transposed,
        torch_lazily_negated,
        tvm_tensor,
    ],
)
def test_any_layout_and_any_dlpack_tensor_gives_the_same(
    exe: byoc.Executable, two_outputs_numpy: Reference, form: Callable[[Array], Any]
) -> None:
    x, y = arrays(3)
    assert_close(exe(form(x), form(y)), two_outputs_numpy(x, y))


@BOTH
def test_inputs_are_not_changed_and_outputs_stay(exe: byoc.Executable) -> None:
    x, y = arrays()
    before = x.copy(), y.copy()
    first = exe(x, y)
    kept = [value.copy() for value in first]
    exe(*arrays(seed=1))
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(y, before[1])
    for value, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(value, copy)
        assert not np.shares_memory(value, x)
        assert not np.shares_memory(value, y)


X, Y = arrays()
WRONG = {
    "missing name": ({"x": X}, r"missing: y\).*expected x, y"),
    "unknown name": ({"x": X, "y": Y, "z": Y}, r"unknown: z\)"),
    "misspelt name": ({"x": X, "Y": Y}, r"missing: y; unknown: Y\)"),
    "no names": ({}, "missing: x, y"),
    "numbers as names": ({0: X, 1: Y}, "missing: x, y; unknown: 0, 1"),
    "an array": (X, "inputs are a ndarray; expected a dict from name to array"),
    "a list": ([X, Y], "inputs are a list"),
    "None": (None, "inputs are a NoneType"),
    "float64": ({"x": X.astype("float64"), "y": Y}, "'x' is float64, expected float32; convert"),
    "int32": ({"x": X, "y": Y.astype("int32")}, "'y' is int32, expected float32"),
    "big endian": ({"x": X.astype(">f4"), "y": Y}, "'x' is >f4, expected float32"),
    "objects": ({"x": X.astype(object), "y": Y}, "'x' is object"),
    "rank too low": ({"x": X[0], "y": Y}, r"'x' has shape \(4,\), expected rank 2"),
    "rank too high": ({"x": X[None], "y": Y}, r"'x' has shape \(1, 2, 4\), expected rank 2"),
    "0-d": ({"x": np.float32(1), "y": Y}, r"'x' has shape \(\), expected rank 2"),
    "wrong size": ({"x": X[:, :3], "y": Y}, r"x: float32\[n, 4\]: axis 1 must be 4"),
    "two batches": ({"x": X, "y": Y[:1]}, "axis 0 must be 2, as 'n' is in input 'x'"),
    "a text": ({"x": "text", "y": Y}, "'x' is a str; expected a NumPy array or a DLPack"),
    "nested lists": ({"x": X.tolist(), "y": Y}, "'x' is a list"),
    "nothing": ({"x": None, "y": Y}, "'x' is a NoneType"),
    "requires grad": ({"x": torch.zeros(2, 4, requires_grad=True), "y": Y}, "detach()"),
    "sparse": ({"x": torch.zeros(2, 4).to_sparse(), "y": Y}, "'x' cannot be read through DLPack"),
    "no memory": ({"x": torch.zeros(2, 4, device="meta"), "y": Y}, "'x' cannot be read"),
    "half tensor": ({"x": torch.zeros(2, 4).half(), "y": Y}, "'x' is float16, expected float32"),
}


@pytest.mark.parametrize(("inputs", "message"), WRONG.values(), ids=WRONG)
def test_inputs_that_do_not_fit_are_one_error(
    host_exe: byoc.Executable, inputs: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        host_exe.run(inputs)


@pytest.mark.parametrize("inputs", [(), (X,), (X, Y, X)])
def test_a_call_with_another_number_of_inputs_is_refused(
    host_exe: byoc.Executable, inputs: tuple[Array, ...]
) -> None:
    message = rf"expected 2 input\(s\) \(x: float32\[n, 4\]; y: .*\), got {len(inputs)}"
    with pytest.raises(InputError, match=message):
        host_exe(*inputs)


def test_a_refused_call_leaves_the_executable_usable(
    host_exe: byoc.Executable, two_outputs_numpy: Reference
) -> None:
    with pytest.raises(InputError):
        host_exe(X, Y[:1])
    assert_close(host_exe(X, Y), two_outputs_numpy(X, Y))


@BOTH
def test_four_threads_share_an_executable(
    exe: byoc.Executable, two_outputs_numpy: Reference
) -> None:
    start = threading.Barrier(4)

    def work(thread: int) -> Any:
        start.wait()
        for call in range(50):
            x, y = arrays(1 + (thread + call) % 5, seed=thread * 1000 + call)
            assert_close(exe(x, y), two_outputs_numpy(x, y))
        return exe.vm

    with ThreadPoolExecutor(4) as pool:
        machines = list(pool.map(work, range(4)))
    assert len({id(machine) for machine in machines}) == 4


def test_a_scalar_input_and_a_scalar_output(make_module: Any) -> None:
    params = {"x": ((3,), "float32"), "s": ((), "float32")}
    mod = make_module(params, lambda x, s: relax.op.multiply(relax.op.sum(x), s))
    exe = byoc.compile(mod, "llvm")
    for scale in (np.float32(2), np.array(2, "float32"), torch.tensor(2.0)):
        got = exe(np.ones(3, "float32"), scale)
        assert got.shape == ()
        assert got == 6


def test_nested_results_are_flattened(make_module: Any) -> None:
    def body(x: Any) -> Any:
        inner = relax.Tuple([relax.op.nn.relu(x), x])
        return relax.op.tanh(x), inner

    exe = byoc.compile(make_module({"x": ((2,), "float32")}, body), "llvm")
    x = np.array([-1, 1], "float32")
    assert_close(exe(x), (np.tanh(x), np.maximum(x, 0), x))


def test_one_output_in_a_tuple_is_an_array(make_module: Any) -> None:
    mod = make_module({"x": ((2,), "float32")}, lambda x: (relax.op.tanh(x),))
    got = byoc.compile(mod, "llvm")(np.ones(2, "float32"))
    assert isinstance(got, np.ndarray)


def test_an_input_may_be_the_output(make_module: Any) -> None:
    exe = byoc.compile(make_module({"x": ((2,), "float32")}, lambda x: x), "llvm")
    x = np.array([1, 2], "float32")
    got = exe(x)
    np.testing.assert_array_equal(got, x)
    assert not np.shares_memory(got, x)


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "float16", "float64"])
def test_dtypes_come_out_as_they_went_in(make_module: Any, dtype: str) -> None:
    exe = byoc.compile(make_module({"x": ((2, 3), dtype)}, relax.op.permute_dims), "llvm")
    x = np.array([[0, 1, 0], [1, 1, 0]]).astype(dtype)
    got = exe(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, x.T)


def fixed(make_module: Any) -> byoc.Executable:
    """Of fixed shape: gives its input back, and the double of it."""
    module = make_module({"x": ((2, 3), "float32")}, lambda x: (x, relax.op.add(x, x)))
    return byoc.compile(module, "llvm")


def test_results_stay_when_inputs_of_fixed_shape_are_given_again(make_module: Any) -> None:
    exe = fixed(make_module)
    first = np.arange(6, dtype=np.float32).reshape(2, 3)
    results = [exe.run({"x": first + number}) for number in range(3)]
    for number, (same, double) in enumerate(map(dict.values, results)):
        np.testing.assert_array_equal(same, first + number)
        np.testing.assert_array_equal(double, 2 * (first + number))


@pytest.mark.parametrize("dtype", ["float64", ">f4"])
def test_what_does_not_fit_is_refused_after_calls_that_fit(make_module: Any, dtype: str) -> None:
    exe = fixed(make_module)
    x = np.ones((2, 3), np.float32)
    exe.run({"x": x})
    for wrong in ({"x": x.astype(dtype)}, {"x": x[:1]}, {"y": x}, {"x": x, "y": x}, {}):
        with pytest.raises(InputError):
            exe.run(wrong)
    np.testing.assert_array_equal(exe.run({"x": x})["output_0"], x)


def test_inputs_of_fixed_shape_may_have_any_strides(make_module: Any) -> None:
    exe = fixed(make_module)
    plain = np.arange(12, dtype=np.float32).reshape(3, 4)
    for view in (plain.T[:2], plain[::-1, ::-1][:2, :3], np.asfortranarray(plain[:2, :3])):
        np.testing.assert_array_equal(exe.run({"x": view})["output_1"], 2 * view)
        tensor = torch.from_numpy(view.copy())
        np.testing.assert_array_equal(exe.run({"x": tensor})["output_0"], view)


@pytest.mark.parametrize("shape", [(2, 0, 4), (0, 3), (3, 0), (0,)])
@pytest.mark.parametrize("batch", ["fixed", "symbolic"])
def test_empty_tensors_go_in_and_out(make_module: Any, shape: tuple[int, ...], batch: str) -> None:
    dims = shape if batch == "fixed" else ("n", *shape[1:])
    exe = byoc.compile(make_module({"x": (dims, "float32")}, relax.op.nn.relu), "llvm")
    assert exe(np.zeros(shape, "float32")).shape == shape
    assert exe.run({"x": np.zeros(shape, "float32")})[exe.outputs[0].name].shape == shape


def test_bfloat16_is_taken_and_given_as_ml_dtypes_has_it(make_module: Any) -> None:
    exe = byoc.compile(make_module({"x": ((3,), "bfloat16")}, relax.op.nn.relu), "llvm")
    x = np.array([-1, 0.5, 2], ml_dtypes.bfloat16)
    got = exe(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, np.maximum(x, ml_dtypes.bfloat16(0)))


def test_a_size_that_follows_from_another_is_checked() -> None:
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    params = [
        relax.Var("x", relax.TensorType((n,), "float32")),
        relax.Var("y", relax.TensorType((n * 2,), "float32")),
    ]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(relax.op.concat(params, axis=0))
        builder.emit_func_output(result)
    exe = byoc.compile(builder.finalize(), "llvm")
    x, y = np.ones(2, "float32"), np.zeros(4, "float32")
    np.testing.assert_array_equal(exe(x, y), np.concatenate([x, y]))
    with pytest.raises(InputError, match=r"'y' has shape \(3,\).*n \* 2\]: axis 0 must be 4"):
        exe(x, y[:3])


def test_what_pickles_it_is_told_to_load_the_artifact(host_exe: byoc.Executable) -> None:
    with pytest.raises(ArtifactError, match=r"byoc\.load"):
        pickle.dumps(host_exe)


def test_it_prints_its_signature(host_exe: byoc.Executable) -> None:
    assert repr(host_exe).startswith(
        "<Executable for llvm: (x: float32[n, 4], y: float32[n, 3]) -> (output_0: float32[n, 3]"
    )


def test_a_model_that_cannot_start_is_one_error_of_the_kit(host_exe: byoc.Executable) -> None:
    broken = byoc.Executable("no module of TVM", host_exe.manifest)
    with pytest.raises(byoc.ModelError, match="TVM cannot start the model: "):
        broken(X, Y)


def test_a_failure_while_the_model_runs_is_one_error_of_the_kit() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 4), "float32"))
    with builder.function("main", [x]):
        two = builder.match_cast(x, relax.TensorType((2, 4), "float32"))
        builder.emit_func_output(builder.emit(relax.op.nn.relu(two)))
    exe = byoc.compile(builder.get(), "llvm")
    assert exe(np.ones((2, 4), "float32")).shape == (2, 4)
    with pytest.raises(byoc.ModelError, match="failed while it ran"):
        exe(np.ones((3, 4), "float32"))


LOAD_WITHOUT_TORCH = """
import sys
import numpy as np
import tvm_byoc_kit as byoc
exe = byoc.load(sys.argv[1])
shapes = {spec.name: [2, *spec.shape[1:]] for spec in exe.inputs}
first = exe.run({name: np.ones(shape, "float32") for name, shape in shapes.items()})
print("torch" in sys.modules, "onnx" in sys.modules)
import torch
second = exe.run({name: torch.ones(*shape) for name, shape in shapes.items()})
print(all((first[name] == second[name]).all() for name in first))
"""


def test_a_process_that_runs_an_artifact_imports_neither_torch_nor_onnx_and_may_do_so_later(
    host_exe: byoc.Executable, run_python: Any, tmp_path: Any
) -> None:
    host_exe.export(tmp_path / "model.so")
    done = run_python(LOAD_WITHOUT_TORCH, tmp_path / "model.so")
    assert done.stdout.split() == ["False", "False", "True"], done.stderr
