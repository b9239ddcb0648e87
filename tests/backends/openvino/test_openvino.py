"""The OpenVINO backend as a whole: options, payloads, executors, artifacts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.openvino import BACKEND, OpenVINOOptions
from tvm_byoc_kit.backends.openvino.conversion import Conversion, codegen
from tvm_byoc_kit.backends.openvino.executor import Executor
from tvm_byoc_kit.backends.openvino.ops import TABLE
from tvm_byoc_kit.backends.openvino.payload import Header, pack, unpack

pytestmark = pytest.mark.byoc("openvino", step="runtime")

RNG = np.random.default_rng(16)
X = RNG.normal(size=(2, 3)).astype(np.float32)
W = RNG.normal(size=(3, 4)).astype(np.float32)
WIDE = RNG.normal(size=(3, 512)).astype(np.float32)  # stands beside the payload


def dense(x: Any) -> Any:
    return op.nn.relu(op.matmul(x, relax.const(W)))


@pytest.fixture
def dense_payload(check: Any) -> bytes:
    return codegen(check.graph(dense, (("n", 3), "float32")), {}).data


def call(executor: Executor, x: np.ndarray) -> np.ndarray:
    output = np.full((len(x), 4), 77, np.float32)
    executor(x, output)
    return output


# --- Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device", "TPU"),
        ("device", "AUTO:GPU,TPU"),
        ("device", "GPU.x"),
        ("precision", "f64"),
        ("threads", -1),
        ("threads", True),
        ("threads", "2"),
        ("performance", "fast"),
        ("weights", "int8"),
        ("cache_dir", 3),
    ],
)
def test_a_bad_option_is_named_with_what_is_expected(name: str, value: Any) -> None:
    with pytest.raises(byoc.OptionError, match=f"openvino option {name}=.*expected"):
        OpenVINOOptions(**{name: value})


def test_threads_are_the_cpus() -> None:
    with pytest.raises(byoc.OptionError, match="device GPU has no CPU threads"):
        OpenVINOOptions(device="GPU", threads=2)


@pytest.mark.parametrize("device", ["CPU", "GPU", "GPU.1", "NPU", "AUTO", "AUTO:GPU,CPU"])
def test_devices_are_named_as_openvino_does(device: str) -> None:
    assert OpenVINOOptions(device=device).device == device


def test_options_become_openvinos_properties(check: Any, tmp_path: Path) -> None:
    options = {
        "threads": 2,
        "precision": "f16",
        "performance": "throughput",
        "cache_dir": str(tmp_path),
    }
    header, _, _ = unpack(codegen(check.graph(dense, ((2, 3), "float32")), options).data)
    assert header.device == "CPU"
    assert header.properties == {
        "PERFORMANCE_HINT": "THROUGHPUT",
        "INFERENCE_PRECISION_HINT": "f16",
        "INFERENCE_NUM_THREADS": "2",
        "ENABLE_CPU_PINNING": "NO",
        "CACHE_DIR": str(tmp_path),
    }


def test_compiled_models_are_cached_where_asked(check: Any, tmp_path: Path) -> None:
    options = {"cache_dir": str(tmp_path)}
    payload = codegen(check.graph(dense, ((2, 3), "float32")), options).data
    for _ in range(2):
        np.testing.assert_allclose(call(Executor(payload), X), np.maximum(X @ W, 0), rtol=1e-5)
    assert list(tmp_path.iterdir())


def test_a_cached_model_is_told_from_one_of_other_weights(check: Any, tmp_path: Path) -> None:
    weights = [RNG.normal(size=(3, 512)).astype(np.float32) for _ in range(2)]
    graphs = [
        check.graph(lambda x, w=w: op.matmul(x, relax.const(w)), ((2, 3), "float32"))
        for w in weights
    ]
    payloads = [codegen(graph, {"cache_dir": str(tmp_path)}) for graph in graphs]
    for _ in range(2):
        for payload, weight in zip(payloads, weights, strict=True):
            found = np.zeros((2, 512), np.float32)
            check.executor(payload)(X, found)
            np.testing.assert_allclose(found, X @ weight, rtol=1e-5, atol=1e-6)
    assert len(list(tmp_path.iterdir())) == len(weights)


def test_weights_are_rounded_only_when_asked(check: Any, through_openvino: Any) -> None:
    graph = check.graph(dense, ((2, 3), "float32"))
    payloads = {kind: codegen(graph, {"weights": kind}).data for kind in _KINDS}
    sizes = {kind: unpack(payload)[0].weights_bytes for kind, payload in payloads.items()}
    assert sizes == {"as_is": W.nbytes, "fp16": W.nbytes // 2}
    (found,) = through_openvino(graph, [X], {"weights": "fp16"})
    rounded = W.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(found, np.maximum(X @ rounded, 0), rtol=1e-5, atol=1e-6)


_KINDS = ("as_is", "fp16")


# --- Payloads ------------------------------------------------------------------------------------


def test_a_payload_is_what_was_packed() -> None:
    header = Header("CPU", {"A": "b"}, [0, 2], [3], [(1, 4)])
    for size in range(70):
        found, model, weights = unpack(pack(header, bytes(range(size)), b"<net/>"))
        assert (found.inputs, found.outputs, found.copies) == ([0, 2], [3], [(1, 4)])
        assert (found.properties, model) == ({"A": "b"}, b"<net/>")
        assert bytes(weights) == bytes(range(size))


@pytest.mark.parametrize(
    "damage", [lambda p: p[:-1], lambda p: p + b"x", lambda _: b"", lambda _: b"X" * 99]
)
def test_other_bytes_are_told_from_a_payload(
    dense_payload: bytes, damage: Callable[[bytes], bytes]
) -> None:
    with pytest.raises(ValueError, match=r"payload of the OpenVINO backend.*build the model again"):
        Executor(damage(dense_payload))


def test_the_same_weights_are_stored_once(check: Any) -> None:
    big = RNG.normal(size=(64, 64)).astype(np.float32)

    def twice(x: Any) -> Any:
        return op.matmul(op.matmul(x, relax.const(big)), relax.const(big.copy()))

    payload = codegen(check.graph(twice, ((1, 64), "float32")), {})
    assert [value.data.shape for value in payload.constants] == [big.shape]
    assert unpack(payload.data)[0].weights_bytes < 64


def test_small_constants_stay_in_the_model(check: Any) -> None:
    weight, bias = (RNG.normal(size=size).astype(np.float32) for size in ((3, 128), 128))
    graph = check.graph(
        lambda x: op.add(op.matmul(x, relax.const(weight)), relax.const(bias)),
        (("n", 3), "float32"),
    )
    payload = codegen(graph, {})
    assert [value.shape for value in payload.constants] == [weight.shape]
    header, _, weights = unpack(payload.data)
    assert (header.constants, len(header.inputs)) == (1, 1)
    assert bytes(weights) == bias.tobytes()


def test_weights_as_halves_are_in_the_payload(check: Any, through_openvino: Any) -> None:
    big = RNG.normal(size=(64, 64)).astype(np.float32)
    graph = check.graph(lambda x: op.matmul(x, relax.const(big)), ((2, 64), "float32"))
    payload = codegen(graph, {"weights": "fp16"})
    assert not payload.constants
    assert big.nbytes / 2 < len(payload.data) < big.nbytes
    x = RNG.normal(size=(2, 64)).astype(np.float32)
    (found,) = through_openvino(graph, [x], {"weights": "fp16"})
    np.testing.assert_allclose(found, x @ big.astype(np.float16), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64", "bool"])
def test_a_large_constant_of_any_dtype_is_put_back(
    dtype: str, check: Any, through_openvino: Any
) -> None:
    table = RNG.integers(0, 2, (70, 64)).astype(dtype)
    graph = check.graph(lambda i: op.take(relax.const(table, dtype), i, axis=0), ((5,), "int64"))
    rows = np.array([0, 69, 3, 3, 42])
    (found,) = through_openvino(graph, [rows])
    assert found.dtype == table.dtype
    np.testing.assert_array_equal(found, table[rows])


# --- Conversion ----------------------------------------------------------------------------------


def test_every_operator_of_the_table_has_a_pattern() -> None:
    names = {pattern.name for pattern in BACKEND.fusion_patterns()}
    assert names == {"openvino." + name.removeprefix("relax.") for name in TABLE}


def test_a_region_of_tvms_passes_alone_may_have_a_long_name(make_module: Any) -> None:
    def many(x: Any) -> Any:
        for number in range(80):
            x = relax.op.add(x, relax.const(np.float32(number)))
        return x

    mod = make_module({"x": ((4,), "float32")}, many)
    fused = relax.transform.FuseOpsByPattern(BACKEND.fusion_patterns(), bind_constants=True)(mod)
    exe = byoc.build(relax.transform.MergeCompositeFunctions()(fused))
    (name,) = exe.manifest.regions
    assert len(name) > 512
    x = np.arange(4, dtype="float32")
    np.testing.assert_allclose(exe(x), x + sum(range(80)), rtol=1e-6)


def test_an_input_that_is_an_output_is_copied(make_module: Any) -> None:
    statistics = [np.abs(RNG.normal(size=3)).astype(np.float32) for _ in range(4)]
    names = ("gamma", "beta", "mean", "variance")
    mod = make_module(
        {"x": ((2, 3, 4), "float32"), **dict.fromkeys(names, ((3,), "float32"))},
        lambda x, *rest: op.nn.batch_norm(x, *rest, 1, 1e-4, training=False),
    )
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    exe = byoc.compile(mod, "openvino", prepare=False)
    found = exe(x, *statistics)
    gamma, beta, mean, variance = (part[:, None] for part in statistics)
    expected = (x - mean) / np.sqrt(variance + 1e-4) * gamma + beta
    np.testing.assert_allclose(np.asarray(found[0]), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.asarray(found[1]), statistics[2])
    np.testing.assert_array_equal(np.asarray(found[2]), statistics[3])


def test_an_operator_outside_the_table_is_named(check: Any) -> None:
    from dataclasses import replace

    graph = check.graph(op.abs, ((2,), "float32"))
    (composite,) = graph.calls
    odd = replace(composite, ops=(replace(composite.ops[0], name="relax.odd"),))
    with pytest.raises(byoc.ModelError, match=r"relax\.odd: .* no such operator"):
        Conversion(replace(graph, calls=(odd,)))


def test_what_openvino_refuses_is_named(check: Any) -> None:
    from dataclasses import replace

    graph = check.graph(lambda x: op.permute_dims(x, [1, 0]), ((2, 3), "float32"))
    (composite,) = graph.calls
    wrong = replace(composite.ops[0], attrs={"axes": (0, 0)})
    with pytest.raises(byoc.ModelError, match=r"relax\.permute_dims: OpenVINO refuses it"):
        Conversion(replace(graph, calls=(replace(composite, ops=(wrong,)),)))


# --- Executors -----------------------------------------------------------------------------------


def test_an_executor_takes_any_size_of_a_symbolic_dimension(dense_payload: bytes) -> None:
    executor = Executor(dense_payload)
    for rows in (1, 7, 2, 64):
        x = RNG.normal(size=(rows, 3)).astype(np.float32)
        np.testing.assert_allclose(call(executor, x), np.maximum(x @ W, 0), rtol=1e-5, atol=1e-6)


def test_threads_share_an_executor(dense_payload: bytes) -> None:
    executor = Executor(dense_payload)
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            x = rng.normal(size=(int(rng.integers(1, 9)), 3)).astype(np.float32)
            if not np.allclose(call(executor, x), np.maximum(x @ W, 0), rtol=1e-4, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_device_that_is_not_there_is_named_with_those_that_are(check: Any) -> None:
    payload = codegen(check.graph(dense, ((2, 3), "float32")), {"device": "NPU"}).data
    with pytest.raises(ValueError, match=r"(?s)for NPU.*it has CPU"):
        Executor(payload)


def test_integers_beyond_32_bits_are_an_error_and_not_cut_off(check: Any) -> None:
    executor = Executor(codegen(check.graph(op.negative, ((3,), "int64")), {}).data)
    output = np.zeros(3, np.int64)
    executor(np.array([1, -(2**31) + 1, 2**31 - 1]), output)
    np.testing.assert_array_equal(output, [-1, 2**31 - 1, -(2**31) + 1])
    with pytest.raises(ValueError, match="input 0 of a region holds integers beyond 32 bits"):
        executor(np.array([1, 2, 2**31]), output)


# --- Artifacts -----------------------------------------------------------------------------------


@pytest.fixture
def artifact(make_module: Any, tmp_path: Path) -> Path:
    mod = make_module(
        {"x": (("n", 3), "float32")}, lambda x: op.nn.relu(op.matmul(x, relax.const(WIDE)))
    )
    path = tmp_path / "m.so"
    byoc.compile(mod, "openvino", options={"threads": 1}).export(path)
    return path


FRESH = """
import sys
for name in ("torch", "onnx", "onnxruntime"):
    sys.modules[name] = None  # as if they were not installed
import numpy as np
import tvm_byoc_kit as byoc
exe = byoc.load(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], np.asarray(exe(x)))
"""


def test_a_fresh_process_without_torch_and_onnx_runs_an_artifact(
    artifact: Path, run_python: Any, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", X)
    done = run_python(FRESH, artifact, tmp_path / "x.npy", tmp_path / "y.npy")
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(found, np.maximum(X @ WIDE, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("on_host", "regions"), [((), 1), (("tanh",), 2)])
def test_weights_are_in_an_artifact_once(
    on_host: tuple[str, ...], regions: int, make_module: Any, tmp_path: Path
) -> None:
    weight = RNG.normal(size=(512, 512)).astype(np.float32) / 32
    both = relax.const(weight)
    mod = make_module(
        {"x": ((1, 512), "float32")}, lambda x: op.matmul(op.tanh(op.matmul(x, both)), both)
    )
    parts = byoc.partition(mod, "openvino", policy={"exclude_ops": on_host})
    assert len(parts.coverage.regions) == regions
    byoc.build(parts).export(tmp_path / "m.so")
    assert (tmp_path / "m.so").stat().st_size < 1.3 * weight.nbytes
    x = RNG.normal(size=(1, 512)).astype(np.float32)
    found = byoc.load(tmp_path / "m.so")(x)
    np.testing.assert_allclose(found, np.tanh(x @ weight) @ weight, rtol=1e-4, atol=1e-5)
