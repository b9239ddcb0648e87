"""The executors in Python and in C++: the same payloads, the same results, the same errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native, plugin_build
from tvm_byoc_kit.backends.openvino import executor as in_python
from tvm_byoc_kit.backends.openvino.payload import unpack

pytest.importorskip("openvino")

Make = Callable[..., Callable[..., None]]
RUNTIME = "byoc.runtime.openvino"


@pytest.fixture(scope="module", params=["python", "c++"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """What makes executors; meanwhile that of every OpenVINO region, too."""
    before = tvm_ffi.get_global_func(RUNTIME, allow_missing=True)
    if request.param == "c++":
        folder: Path = request.getfixturevalue("openvino_plugin")
        plugin = plugin_build.BUILDABLE["openvino"]
        status = native.load(plugin.installed_in(folder))
        assert status, status
        makes = tvm_ffi.get_global_func(plugin.function)
        tvm_ffi.register_global_func(RUNTIME, makes, override=True)
        yield lambda payload, constants=(): makes(payload, list(constants))
    else:
        tvm_ffi.register_global_func(
            RUNTIME,
            lambda payload, constants: in_python.runtime(bytes(payload), constants),
            override=True,
        )
        yield in_python.runtime
    if before is not None:
        tvm_ffi.register_global_func(RUNTIME, before, override=True)
    else:
        tvm_ffi.remove_global_func(RUNTIME)


def module(shapes: dict[str, tuple[Any, str]], body: Callable[..., Any]) -> tvm.IRModule:
    """Of one function; strings in a shape are symbols, a tuple as result is several outputs."""
    builder = relax.BlockBuilder()
    symbols: dict[str, Any] = {}

    def size(dim: Any) -> Any:
        return symbols.setdefault(dim, tvm.tirx.Var(dim, "int64")) if isinstance(dim, str) else dim

    variables = [
        relax.Var(name, relax.TensorType([size(dim) for dim in shape], dtype))
        for name, (shape, dtype) in shapes.items()
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = body(*variables)
            result = relax.Tuple(result) if isinstance(result, tuple) else result
            output = builder.emit_output(builder.normalize(result))
        builder.emit_func_output(output)
    return builder.finalize()


def build(shapes: dict[str, tuple[Any, str]], body: Callable[..., Any], **options: Any) -> Any:
    parts = byoc.partition(module(shapes, body), "openvino")
    assert parts.coverage.regions
    return byoc.build(parts, options=options or None)


def payload_of(exe: byoc.Executable) -> bytes:
    def modules(root: Any) -> Iterator[Any]:
        yield root
        for imported in root.imports:
            yield from modules(imported)

    found = next(m for m in modules(exe.module) if m.kind == "byoc_payload")
    return bytes(found["get_payload"]())


def tensor(array: np.ndarray) -> Any:
    return tvm.runtime.tensor(array)


def relu_payload() -> bytes:
    return payload_of(build({"x": ((2, 3), "float32")}, relax.op.nn.relu))


@pytest.mark.usefixtures("make")
def test_a_convolution_gives_what_torch_gives() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 3, 3, 3), dtype=np.float32)  # beside the payload
    exe = build(
        {"x": ((1, 3, 8, 8), "float32")},
        lambda x: relax.op.nn.relu(relax.op.nn.conv2d(x, relax.const(weight), padding=1)),
    )
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((1, 3, 8, 8), dtype=np.float32)
        expected = torch.relu(
            torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(weight), padding=1)
        )
        np.testing.assert_allclose(exe(x), expected.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("make")
def test_dimensions_may_change_from_call_to_call() -> None:
    exe = build(
        {"x": (("n", 3), "float32"), "y": (("n", 3), "float32")},
        lambda x, y: relax.op.nn.softmax(relax.op.add(x, y), axis=1),
    )
    for rows in (1, 4, 2, 4, 4, 17, 1):
        x, y = np.random.default_rng(rows).standard_normal((2, rows, 3), dtype=np.float32)
        expected = torch.softmax(torch.from_numpy(x + y), 1).numpy()
        np.testing.assert_allclose(exe(x, y), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("make")
def test_shapes_are_arguments_where_reshapes_need_them() -> None:
    def body(x: Any) -> Any:
        rows, columns, _ = x.ty.shape
        x = relax.op.nn.relu(relax.op.reshape(x, relax.ShapeExpr([columns, rows, 6])))
        x = relax.op.negative(relax.op.reshape(x, relax.ShapeExpr([rows * 2, columns, 3])))
        return relax.op.reshape(x, relax.ShapeExpr([columns, 3, rows * 2]))

    exe = build({"x": (("n", "m", 6), "float32")}, body)
    for rows, columns in ((1, 1), (5, 2), (2, 7), (2, 2)):
        x = np.random.default_rng(rows).standard_normal((rows, columns, 6), dtype=np.float32)
        np.testing.assert_array_equal(exe(x), -np.maximum(x, 0).reshape(columns, 3, rows * 2))


@pytest.mark.usefixtures("make")
def test_a_reshape_that_leaves_one_size_open_takes_no_shape() -> None:
    def body(x: Any) -> Any:
        rows, columns, _ = x.ty.shape
        x = relax.op.nn.relu(relax.op.reshape(x, relax.ShapeExpr([rows, columns, 2, 3])))
        return relax.op.reshape(x, relax.ShapeExpr([rows, columns * 3, 2]))

    exe = build({"x": (("n", "m", 6), "float32")}, body)
    assert len(unpack(payload_of(exe))[0].inputs) == 1
    for rows, columns in ((1, 1), (5, 2), (2, 7)):
        x = np.random.default_rng(rows).standard_normal((rows, columns, 6), dtype=np.float32)
        np.testing.assert_array_equal(exe(x), np.maximum(x, 0).reshape(rows, columns * 3, 2))


@pytest.mark.usefixtures("make")
def test_an_output_that_is_an_input_is_copied() -> None:
    exe = build(
        {"x": ((2, 3), "float32"), "y": ((2, 3), "float32")},
        lambda x, y: (relax.op.add(x, y), relax.op.reshape(x, (2, 3)), y),
    )
    for seed in range(3):
        x, y = np.random.default_rng(seed).standard_normal((2, 2, 3), dtype=np.float32)
        for got, expected in zip(exe(x, y), (x + y, x, y), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("make")
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint8", "int32", "int64", "bool"])
def test_every_dtype_goes_in_and_out(dtype: str) -> None:
    operator = relax.op.logical_and if dtype == "bool" else relax.op.maximum
    reference = np.logical_and if dtype == "bool" else np.maximum
    exe = build({"x": ((2, 5), dtype), "y": ((2, 5), dtype)}, operator)
    x, y = np.random.default_rng(0).integers(0, 100, (2, 2, 5)).astype(dtype)
    got = exe(x, y)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(got, reference(x, y))


@pytest.mark.usefixtures("make")
def test_a_scalar_goes_in_and_out() -> None:
    exe = build({"x": ((), "float32")}, lambda x: relax.op.add(x, x))
    for value in (1.5, -2.0):
        assert exe(np.float32(value)) == np.float32(2 * value)


def test_the_memory_of_a_call_is_read_and_written_whatever_the_call_before_had(make: Make) -> None:
    execute = make(relu_payload())
    rng = np.random.default_rng(0)
    inputs = [tensor(rng.standard_normal((2, 3)).astype("float32")) for _ in range(3)]
    outputs = [tvm.runtime.empty((2, 3), "float32") for _ in range(3)]
    for i, j in ((0, 0), (0, 0), (1, 0), (1, 1), (0, 2), (2, 2), (2, 0)):
        execute(inputs[i], outputs[j])
        np.testing.assert_array_equal(outputs[j].numpy(), np.maximum(inputs[i].numpy(), 0))
    fresh = rng.standard_normal((2, 3)).astype("float32")
    inputs[2].copyfrom(fresh)  # the same memory with something else in it
    execute(inputs[2], outputs[0])
    np.testing.assert_array_equal(outputs[0].numpy(), np.maximum(fresh, 0))


@pytest.mark.usefixtures("make")
def test_threads_share_an_executor() -> None:
    exe = build(
        {"x": ((16, 16), "float32")},
        lambda x: relax.op.matmul(relax.op.nn.relu(x), relax.op.nn.relu(x)),
        threads=1,
    )

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).standard_normal((16, 16), dtype=np.float32)
        expected = np.maximum(x, 0) @ np.maximum(x, 0)
        return all(np.allclose(exe(x), expected, rtol=1e-4, atol=1e-4) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_many_executors_live_in_one_process(make: Make) -> None:
    payload = relu_payload()
    x, y = tensor(-np.ones((2, 3), "float32")), tvm.runtime.empty((2, 3), "float32")
    for execute in [make(payload) for _ in range(5)]:
        execute(x, y)
        np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))


@pytest.mark.parametrize("keep", [0, 7, 8, 15, 60, -1])
def test_bytes_that_are_no_payload_are_one_clear_error(make: Make, keep: int) -> None:
    with pytest.raises(
        ValueError, match=r"payload of the OpenVINO backend.* build the model again"
    ):
        make(relu_payload()[:keep])


def test_a_payload_with_its_weights_in_it_is_of_an_older_release(make: Make) -> None:
    with pytest.raises(ValueError, match=r"of an older release of the kit.*build the model again"):
        make(b"OPENVINO" + relu_payload()[8:])


def test_other_constants_than_the_payloads_are_an_error(make: Make) -> None:
    weight = relax.const(np.zeros((64, 64), np.float32))
    exe = build({"x": ((2, 64), "float32")}, lambda x: relax.op.matmul(x, weight))
    with pytest.raises(ValueError, match=r"goes with 1 constants, found 0; build the model again"):
        make(payload_of(exe))


def test_a_device_that_is_not_there_is_named_with_those_that_are(make: Make) -> None:
    payload = payload_of(build({"x": ((2,), "float32")}, relax.op.nn.relu, device="GPU.7"))
    with pytest.raises(ValueError, match=r"cannot compile the model for GPU\.7: .*it has .*CPU"):
        make(payload)


def test_a_cache_that_cannot_be_written_is_named(make: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = str(tmp_path / "file" / "cache")
    payload = payload_of(build({"x": ((2,), "float32")}, relax.op.nn.relu, cache_dir=cache))
    with pytest.raises(ValueError, match=r"file/cache.*Build with another device, or cache_dir"):
        make(payload)


def test_a_call_that_does_not_fit_is_an_error_and_the_next_one_works(make: Make) -> None:
    execute = make(relu_payload())
    x, y = tensor(-np.ones((2, 3), "float32")), tvm.runtime.empty((2, 3), "float32")
    wrong = (
        (tensor(np.ones((2, 4), "float32")), y),
        (tensor(np.ones((2, 3), "float64")), y),
        (x, tvm.runtime.empty((3, 3), "float32")),
        (x,),
    )
    for arguments in wrong:
        with pytest.raises((RuntimeError, TypeError, ValueError, IndexError)):
            execute(*arguments)
        execute(x, y)
        np.testing.assert_array_equal(y.numpy(), np.zeros((2, 3)))


def test_integers_beyond_32_bits_are_an_error_and_not_cut_off(make: Make) -> None:
    execute = make(payload_of(build({"x": ((3,), "int64")}, relax.op.negative)))
    x, y = tensor(np.array([1, -(2**31) + 1, 2**31 - 1])), tvm.runtime.empty((3,), "int64")
    execute(x, y)
    np.testing.assert_array_equal(y.numpy(), [-1, 2**31 - 1, -(2**31) + 1])
    for value in (2**31, -(2**31) - 1, 2**40, 2**63 - 1, -(2**63)):
        x.copyfrom(np.array([1, 2, value]))  # the same memory: it is bound already
        with pytest.raises(ValueError, match="input 0 of a region holds integers beyond 32 bits"):
            execute(x, y)
