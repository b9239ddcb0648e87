"""The payload module: one executor for all that ask first, and bytes that come back whole."""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native

pytestmark = pytest.mark.skipif(
    not native.load("core"), reason=f"needs the plugin: {native.load('core')}"
)


@pytest.fixture
def runtime() -> Iterator[Callable[[Callable[..., Any]], None]]:
    """Gives ``register(make)``: `make` is the runtime of backend ``test_payload``."""
    name = "byoc.runtime.test_payload"
    yield lambda make: tvm_ffi.register_global_func(name, make, override=True)
    tvm_ffi.remove_global_func(name)


def module(
    payload: bytes = b"payload", constants: tuple[str, ...] = (), backend: str = "test_payload"
) -> Any:
    create = tvm_ffi.get_global_func("byoc.payload.create")
    return create(backend, "some-package", "the_region", payload, list(constants))


def saved(payload: bytes, names: tuple[str, ...] = ()) -> bytes:
    """What a module saves, written by hand from the description of the format."""

    def sized(text: bytes) -> bytes:
        return struct.pack("<Q", len(text)) + text

    texts = [b"test_payload", b"some-package", b"the_region"]
    body = b"".join(map(sized, texts)) + struct.pack("<Q", len(names))
    body += b"".join(sized(name.encode()) for name in names) + sized(payload)
    return b"byocpay1" + struct.pack("<Q", checksum(body)) + body


def checksum(body: bytes) -> int:
    value = 14695981039346656037 ^ len(body)
    for start in range(0, len(body), 8):
        word = int.from_bytes(body[start : start + 8], "little")
        value = (value ^ word) * 1099511628211 % 2**64
    return value


def load(content: bytes) -> Any:
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.byoc_payload")(content)


# The first call


def test_the_runtime_gets_payload_and_constants_and_the_executor_the_tensors(
    runtime: Any,
) -> None:
    seen: list[Any] = []

    def make(payload: bytes, constants: Any) -> Callable[..., None]:
        (weight,) = (np.from_dlpack(constant) for constant in constants)
        seen.append(payload)

        def execute(x: Any, shape: Any, out: Any) -> None:
            np.from_dlpack(out)[...] = np.from_dlpack(x) * weight + shape[1]

        return execute

    runtime(make)
    made = module(b"\0\xff binary", ("w",))
    made["__init_the_region"]([tvm.runtime.tensor(np.full(3, 2.0, "float32"))])
    x, out = (tvm.runtime.tensor(np.arange(3, dtype="float32")) for _ in range(2))
    for _ in range(2):
        made["the_region"](x, tvm_ffi.Shape((5, 7)), out)
    np.testing.assert_array_equal(out.numpy(), [7, 9, 11])
    assert seen == [b"\0\xff binary"]


FIRST_CALLS = """
import sys, threading, time
import numpy as np, tvm, tvm_ffi
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tvm_byoc_kit import native
assert native.load("core")
calling, made = [], []

def wait_for_the_others():
    # Until all have called and sleep there: ten times in a row none of this process's threads runs.
    looks = 0
    for _ in range(2000):
        time.sleep(0.02)  # gives the GIL away, as a compiler does
        stats = [path.read_text() for path in Path("/proc/self/task").glob("*/stat")]
        running = sum(stat.rpartition(")")[2].split()[0] != "S" for stat in stats)
        looks = looks + 1 if len(calling) == 8 and running == 1 else 0
        if looks == 10:
            break

def make(payload, constants):
    wait_for_the_others()
    made.append(threading.get_ident())
    if len(made) <= int(sys.argv[1]):
        raise ValueError(f"attempt {len(made)} failed")
    def execute(x, out):
        np.from_dlpack(out)[...] = np.from_dlpack(x) * 2
    return execute

tvm_ffi.register_global_func("byoc.runtime.slow", make)
module = tvm_ffi.get_global_func("byoc.payload.create")("slow", "", "region", b"", [])
call, start = module["region"], threading.Barrier(8)

def first_call(i):
    x = tvm.runtime.tensor(np.full(4, i, "float32"))
    out = tvm.runtime.tensor(np.zeros(4, "float32"))
    start.wait()
    calling.append(i)
    try:
        call(x, out)
    except ValueError as error:
        return str(error)
    assert (out.numpy() == 2 * i).all()
    return "ok"

with ThreadPoolExecutor(8) as pool:
    for _ in range(2):
        calling.clear()
        print(sorted(pool.map(first_call, range(8))))
print(len(made))
"""


@pytest.mark.parametrize("release_gil", ["0", "1"])
def test_eight_first_calls_build_one_executor(run_python: Any, release_gil: str) -> None:
    done = run_python(FIRST_CALLS, 0, TVM_FFI_RELEASE_GIL_BY_DEFAULT=release_gil)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(["ok"] * 8), str(["ok"] * 8), "1"]


@pytest.mark.parametrize("release_gil", ["0", "1"])
def test_a_failure_reaches_every_caller_and_the_next_call_tries_again(
    run_python: Any, release_gil: str
) -> None:
    done = run_python(FIRST_CALLS, 1, TVM_FFI_RELEASE_GIL_BY_DEFAULT=release_gil)
    assert done.returncode == 0, done.stderr
    failed = ["attempt 1 failed"] * 8
    assert done.stdout.splitlines() == [str(failed), str(["ok"] * 8), "2"]


FIRST_RUNS = """
import sys, threading, time
import numpy as np, tvm_byoc_kit as byoc
from concurrent.futures import ThreadPoolExecutor
from tvm import relax
made = []

def runtime(payload, constants):
    time.sleep(0.2)
    made.append(sum(range(200_000)))
    weight = np.from_dlpack(constants[0])
    def execute(x, out):
        np.from_dlpack(out)[...] = np.from_dlpack(x) @ weight
    return execute

byoc.register_backend(byoc.Backend(
    "slow_start", "", [("matmul", ["relax.matmul"])], bind_constants=True,
    codegen=lambda graph, options: byoc.Payload(b"", graph.constants), runtime=runtime,
))
weight = np.random.default_rng(0).standard_normal((64, 64), dtype="float32")
builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((3, 64), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        hidden = builder.emit(relax.op.tanh(relax.op.matmul(x, relax.const(weight))))
        out = builder.emit_output(relax.op.matmul(hidden, relax.const(weight.T)))
    builder.emit_func_output(out)
byoc.compile(builder.finalize(), "slow_start").export(sys.argv[1])
exe = byoc.load(sys.argv[1])
start = threading.Barrier(8)

def run(i):
    x = np.random.default_rng(i).standard_normal((3, 64), dtype="float32")
    expected = np.tanh(x @ weight) @ weight.T
    start.wait()
    for _ in range(20):
        np.testing.assert_allclose(exe(x), expected, rtol=1e-4, atol=1e-4)
    return i

with ThreadPoolExecutor(8) as pool:
    assert list(pool.map(run, range(8))) == list(range(8))
print(len(made))
"""


@pytest.mark.parametrize("release_gil", ["0", "1"])
def test_eight_first_runs_of_a_loaded_model_are_right(
    run_python: Any, tmp_path: Path, release_gil: str
) -> None:
    path = tmp_path / "model.so"
    done = run_python(FIRST_RUNS, path, TVM_FFI_RELEASE_GIL_BY_DEFAULT=release_gil)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2\n"  # of two regions, one executor each


def test_a_maker_that_calls_its_own_region_is_an_error_and_no_hang(runtime: Any) -> None:
    made = module()
    runtime(lambda payload, constants: made["the_region"]())  # noqa: ARG005
    with pytest.raises(RuntimeError, match="by its own maker"):
        made["the_region"]()


def test_different_regions_are_made_side_by_side(runtime: Any) -> None:
    both = threading.Barrier(2, timeout=600)  # broken, if they come one by one

    def make(payload: bytes, constants: Any) -> Callable[..., None]:  # noqa: ARG001
        both.wait()
        return lambda: None

    runtime(make)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda made: made["the_region"](), [module(), module()])) == [None] * 2


def test_without_python_one_executor_is_built_too(tmp_path: Path) -> None:
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if compiler is None:
        pytest.skip("no C++ compiler: install g++")
    source = Path(__file__).resolve().parent / "cpp" / "first_calls.cc"
    library = Path(tvm_ffi.libinfo.find_libtvm_ffi())
    program = tmp_path / "first_calls"
    flags = ["-std=c++17", f"-I{tvm_ffi.libinfo.find_include_path()}", "-pthread"]
    dlpack = tvm_ffi.libinfo.find_dlpack_include_path()
    link = [str(library), f"-Wl,-rpath,{library.parent}", "-ldl"]
    subprocess.run(
        [compiler, *flags, f"-I{dlpack}", str(source), "-o", str(program), *link], check=True
    )
    plugin = native.PLUGINS["core"].library
    done = subprocess.run([program, plugin], capture_output=True, text=True, check=False, env={})
    assert done.stdout.splitlines() == ["failed: 8, built: 1", "succeeded: 8, built: 2"], (
        done.stderr
    )


# What goes wrong


def test_a_missing_runtime_names_the_package() -> None:
    with pytest.raises(RuntimeError, match=r"backend 'nowhere'.*pip install some-package"):
        module(backend="nowhere")["the_region"]()
    hook = tvm_ffi.get_global_func("byoc.payload.provide")
    tvm_ffi.remove_global_func("byoc.payload.provide")  # as in a program without Python
    try:
        with pytest.raises(
            RuntimeError,
            match=r"`the_region`.*'nowhere'.*byoc\.runtime\.nowhere.*pip install some-package",
        ):
            module(backend="nowhere")["the_region"]()
    finally:
        tvm_ffi.register_global_func("byoc.payload.provide", hook)


def test_a_runtime_that_gives_no_function_is_named(runtime: Any) -> None:
    runtime(lambda payload, constants: 3)  # noqa: ARG005
    with pytest.raises(TypeError, match=r"byoc\.runtime\.test_payload must give a function"):
        module()["the_region"]()


def test_a_call_before_the_constants_is_an_error(runtime: Any) -> None:
    runtime(lambda payload, constants: lambda: None)  # noqa: ARG005
    made = module(constants=("a", "b"))
    with pytest.raises(RuntimeError, match="before __init_the_region"):
        made["the_region"]()
    one = tvm.runtime.tensor(np.zeros(1, "float32"))
    with pytest.raises(ValueError, match="expects 2 constants, found 1"):
        made["__init_the_region"]([one])
    made["__init_the_region"]([one, one])
    made["the_region"]()


# Saved and loaded


def test_what_a_module_holds_can_be_asked() -> None:
    made = load(saved(b"\0payload\0", ("w0", "w1")))
    assert made["get_symbol"]() == "the_region"
    assert made["get_backend"]() == "test_payload"
    assert made["get_package"]() == "some-package"
    assert made["get_payload"]() == b"\0payload\0"
    assert list(made["get_const_vars"]()) == ["w0", "w1"]
    assert made.kind == "byoc_payload"


@settings(max_examples=300, deadline=None)
@given(data=st.data(), payload=st.binary(max_size=40))
def test_damaged_bytes_are_one_clear_error(data: Any, payload: bytes) -> None:
    whole = saved(payload, ("constant_0",))
    assert load(whole)["get_payload"]() == payload
    damage = data.draw(st.sampled_from(["flip", "cut", "extend"]))
    damaged = bytearray(whole)
    if damage == "flip":
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    elif damage == "cut":
        del damaged[data.draw(st.integers(0, len(whole) - 1)) :]
    else:
        damaged += data.draw(st.binary(min_size=1, max_size=20))
    with pytest.raises(ValueError, match=r"a saved region is damaged \(.*export the model again"):
        load(bytes(damaged))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_sizes_that_lie_are_an_error_though_the_checksum_fits(data: Any) -> None:
    body = bytearray(saved(b"payload", ("constant_0",))[16:])
    position = data.draw(st.integers(0, len(body) - 8))
    lie = data.draw(st.integers(0, 2**64 - 1) | st.sampled_from([2**64 - 1, 2**63, 2**32]))
    struct.pack_into("<Q", body, position, lie)
    content = b"byocpay1" + struct.pack("<Q", checksum(bytes(body))) + bytes(body)
    try:
        load(content)
    except ValueError as error:
        assert "damaged" in str(error)  # noqa: PT017 - a lie inside a text is a text


def test_an_artifact_gives_the_payload_back_and_holds_it_once(tmp_path: Path) -> None:
    payload = np.random.default_rng(0).bytes(3 << 20)
    path = tmp_path / "model.so"
    exe = byoc.compile(_relu(), _backend(payload))
    exe.export(path)
    assert path.read_bytes().count(payload[:1000]) == 1
    assert path.stat().st_size < 1.1 * len(payload) + (1 << 17)


def _relu() -> tvm.IRModule:
    from tvm import relax

    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(out)
    return builder.finalize()


def _backend(payload: bytes) -> byoc.Backend:
    def make(found: bytes, constants: tuple[Any, ...]) -> Callable[..., None]:
        assert found == payload
        assert constants == ()

        def execute(x: Any, out: Any) -> None:
            np.from_dlpack(out)[...] = np.maximum(np.from_dlpack(x), 0)

        return execute

    return byoc.Backend(
        "payload_keeper",
        "gives fixed bytes",
        patterns=[("relu", ["relax.nn.relu"])],
        codegen=lambda graph, options: payload,  # noqa: ARG005
        runtime=make,
    )
