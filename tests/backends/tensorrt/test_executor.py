"""The executor, with a vendor's runtime and a GPU that pretend: there is no GPU where this runs.

The pretended GPU has memory of its own, by address, which the pretended engine computes on; what
the executor tells it is what TensorRT's documentation asks for. That a real one does the same was
not seen.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest
import tvm_ffi

import tvm_byoc_kit as byoc
from tvm_byoc_kit import runtime as runtime_module
from tvm_byoc_kit.backends.tensorrt import executor
from tvm_byoc_kit.backends.tensorrt.codegen import codegen
from tvm_byoc_kit.backends.tensorrt.executor import Executor
from tvm_byoc_kit.backends.tensorrt.payload import pack, unpack
from tvm_byoc_kit.backends.tensorrt.vendor import Vendor, find_vendor
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable, ModelError
from tvm_byoc_kit.graph import evaluate
from tvm_byoc_kit.status import Status

from .small_regions import dense, dense_reference, flattened, graph_of, rtx

OPTIONS: dict[str, Any] = {
    "profiles": [{"n": (1, 1, 4)}, {"n": (2, 8, 32)}],
    "compute_capabilities": [89],
}
STREAM = 0x5EED


class Memory:
    """A tensor, in the memory of the host or of a GPU."""

    def __init__(self, array: np.ndarray, gpu: int | None = None, offset: int = 0) -> None:
        whole = np.zeros(array.nbytes + 512 + offset, np.uint8)
        start = -whole.ctypes.data % 256 + offset
        self.array = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array
        self.gpu = gpu
        kind = 1 if gpu is None else 2
        self.device = SimpleNamespace(index=gpu or 0, dlpack_device_type=lambda: kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    def data_ptr(self) -> int:
        return self.array.ctypes.data if self.array.size else 0

    def numel(self) -> int:
        return self.array.size

    def is_contiguous(self) -> bool:
        return bool(self.array.flags.c_contiguous)


@dataclass
class Machine:
    """What is in it, and what was done to it, in order."""

    capability: int = 89
    events: list[Any] = field(default_factory=list)
    allocated: list[Memory] = field(default_factory=list)
    known: dict[int, Memory] = field(default_factory=dict)
    engines: int = 0
    function: Callable[[np.ndarray], np.ndarray] = dense_reference
    refuses: str = ""
    shape: Callable[[tuple[int, ...]], tuple[int, ...]] = lambda x: (x[0], 3)
    ranges: Sequence[dict[str, tuple[int, int, int]]] = tuple(OPTIONS["profiles"])

    def tensor(self, array: np.ndarray, gpu: int | None = None, offset: int = 0) -> Memory:
        made = Memory(array, gpu, offset)
        if gpu is not None:
            self.known[made.data_ptr()] = made
        return made


class FakeGpu:
    """In place of `executor.Gpu`."""

    machine: Machine

    def __init__(self, index: int) -> None:
        self.index = index

    @property
    def capability(self) -> int:
        return self.machine.capability

    @property
    def stream(self) -> int:
        return STREAM

    def activate(self) -> None:
        self.machine.events.append(("activate", self.index))

    def wait(self, stream: int) -> None:
        self.machine.events.append(("wait", stream))

    def empty(self, shape: Sequence[int], dtype: str) -> Memory:
        made = self.machine.tensor(np.zeros(shape, dtype), self.index)
        self.machine.allocated.append(made)
        return made

    def copy(self, source: Memory, target: Memory) -> None:
        assert (source.gpu is None) != (target.gpu is None) or source.gpu == target.gpu
        self.machine.events.append("in" if source.gpu is None else "out")
        target.array[...] = source.array


class Context:
    """In place of IExecutionContext, for a region of one input and one output."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.profile = 0
        self.shape: tuple[int, ...] = ()
        self.addresses: dict[str, int] = {}

    def set_optimization_profile_async(self, number: int, stream: int) -> bool:
        self.machine.events.append(("profile", number, stream))
        self.profile = number
        return self.machine.refuses != "profile"

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        assert name == "input_0"
        low, _, high = self.machine.ranges[self.profile]["n"]
        self.shape = shape
        return low <= shape[0] <= high and self.machine.refuses != "shape"

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.machine.shape(self.shape) if name == "output_0" else self.shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        assert address
        assert address % 256 == 0
        self.addresses[name] = address
        return self.machine.refuses != "address"

    def execute_async_v3(self, stream: int) -> bool:
        self.machine.events.append(("run", stream, threading.get_ident()))
        if self.machine.refuses == "run":
            return False
        read, written = (
            self.machine.known[self.addresses[name]] for name in ("input_0", "output_0")
        )
        if read.array.size and self.shape:
            written.array[...] = self.machine.function(read.array)
        return True


class FakeModule:
    """In place of the vendor's module."""

    machine: Machine

    class Runtime:
        """Gives engines that compute what the machine's function does."""

        def __init__(self, logger: Any) -> None:
            assert logger is rtx().logger

        def deserialize_cuda_engine(self, plan: memoryview) -> Any:
            machine = FakeModule.machine
            assert bytes(plan[:4]) in (b"vtrt", b"ftrt")
            machine.events.append("deserialize")
            machine.engines += 1
            if machine.refuses == "plan":
                return None
            make = (lambda: None) if machine.refuses == "context" else (lambda: Context(machine))
            return SimpleNamespace(create_execution_context=make)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """One with a GPU."""
    made = Machine()
    FakeGpu.machine = FakeModule.machine = made
    real = rtx()
    fake = Vendor(real.name, FakeModule, real.version, real.release, real.logger)

    def find(name: str | None = None) -> Vendor:
        return fake if name in (None, "tensorrt_rtx") else find_vendor(name)

    # Another machine's engines, which a test before may still hold, are none of this one.
    monkeypatch.setattr(executor, "_ENGINES", WeakValueDictionary())
    monkeypatch.setattr(executor, "Gpu", FakeGpu)
    monkeypatch.setattr(executor, "find_vendor", find)
    monkeypatch.setattr(executor, "probe", lambda name: Status(name, ok=True, detail=""))
    yield made
    gc.collect()


@pytest.fixture(scope="module")
def payload() -> bytes:
    """Of `dense`, with two profiles."""
    return codegen(graph_of(dense()), OPTIONS)


def rows(count: int, seed: int = 0) -> np.ndarray:
    """An input."""
    return np.random.default_rng(seed).standard_normal((count, 4), dtype=np.float32)


def call(machine: Machine, run: Executor, x: np.ndarray, gpu: int | None = 0) -> np.ndarray:
    """One run, with all tensors in the same memory."""
    out = machine.tensor(np.full((len(x), 3), np.nan, np.float32), gpu)
    assert run(machine.tensor(x, gpu), out) is None
    return out.array


# --- where tensors are ----------------------------------------------------------------------------


def test_tensors_on_the_gpu_are_used_in_place_without_waiting(
    machine: Machine, payload: bytes
) -> None:
    run = Executor(payload)
    x = rows(2)
    assert np.array_equal(call(machine, run, x), dense_reference(x))
    assert machine.allocated == []
    events = [event for event in machine.events if event != ("activate", 0)]
    assert events == ["deserialize", ("run", STREAM, threading.get_ident())]


def test_tensors_of_the_host_are_copied_in_the_right_order(
    machine: Machine, payload: bytes
) -> None:
    run = Executor(payload)
    x = rows(3)
    assert np.array_equal(call(machine, run, x, gpu=None), dense_reference(x))
    events = [event for event in machine.events if event != ("activate", 0)]
    ran = ("run", STREAM, threading.get_ident())
    # Copies are on stream 0: the engine waits for it, and it for the engine.
    assert events == ["deserialize", "in", ("wait", 0), ran, ("wait", STREAM), "out", ("wait", 0)]


def test_memory_for_copies_is_kept_for_calls_of_the_same_shape(
    machine: Machine, payload: bytes
) -> None:
    run = Executor(payload)
    for count, allocated in ((3, 2), (3, 2), (4, 4), (4, 4)):
        x = rows(count, seed=allocated)
        assert np.array_equal(call(machine, run, x, gpu=None), dense_reference(x))
        assert len(machine.allocated) == allocated


def test_an_address_that_is_not_aligned_is_copied(machine: Machine, payload: bytes) -> None:
    x = rows(2)
    out = machine.tensor(np.zeros((2, 3), np.float32), 0)
    Executor(payload)(machine.tensor(x, 0, offset=16), out)
    assert np.array_equal(out.array, dense_reference(x))
    assert len(machine.allocated) == 1


def test_inputs_may_be_on_the_host_and_outputs_on_the_gpu(machine: Machine, payload: bytes) -> None:
    x = rows(2)
    out = machine.tensor(np.zeros((2, 3), np.float32), 0)
    Executor(payload)(machine.tensor(x), out)
    assert np.array_equal(out.array, dense_reference(x))
    assert machine.events[-1] == ("wait", STREAM)  # the copied input may be overwritten then


def test_tensors_on_two_gpus_are_refused(machine: Machine, payload: bytes) -> None:
    out = machine.tensor(np.zeros((2, 3), np.float32), 1)
    with pytest.raises(ModelError, match=r"several GPUs: \[0, 1\]"):
        Executor(payload)(machine.tensor(rows(2), 0), out)


def test_another_number_of_arguments_is_refused(machine: Machine, payload: bytes) -> None:
    with pytest.raises(ModelError, match="called with 1 arguments, expected 2"):
        Executor(payload)(machine.tensor(rows(2), 0))


# --- shapes and profiles --------------------------------------------------------------------------


def test_the_profile_is_switched_by_shape_and_only_then(machine: Machine, payload: bytes) -> None:
    run = Executor(payload)
    for count in (1, 4, 8, 32, 8, 2):
        x = rows(count)
        assert np.array_equal(call(machine, run, x), dense_reference(x))
    switches = [event[1:] for event in machine.events if event[0] == "profile"]
    assert switches == [(1, STREAM), (0, STREAM)]


def test_a_size_beyond_all_profiles_is_named_with_them(machine: Machine, payload: bytes) -> None:
    with pytest.raises(ModelError, match=r"called with n = 33") as caught:
        call(machine, Executor(payload), rows(33))
    assert "n = (1, 1, 4); or n = (2, 8, 32)" in str(caught.value)


def test_an_output_of_another_shape_is_refused(machine: Machine, payload: bytes) -> None:
    out = machine.tensor(np.zeros((3, 3), np.float32), 0)
    with pytest.raises(ModelError, match=r"gives \[2, 3\] as output_0.*memory for \[3, 3\]"):
        Executor(payload)(machine.tensor(rows(2), 0), out)


def test_sizes_are_found_where_shapes_are_given_too(machine: Machine) -> None:
    ranges = {"n": (1, 2, 4), "m": (2, 8, 16)}
    graph = graph_of(flattened())
    assert any(value.dims is not None for value in graph.inputs)
    payload = codegen(graph, {"profiles": ranges, "compute_capabilities": [89]})
    machine.ranges = (ranges,)
    machine.shape = lambda x: (x[0] * x[1], 3)
    machine.function = lambda x: x.reshape(-1, 3)
    x = np.random.default_rng(0).standard_normal((2, 5, 3), dtype=np.float32)
    out = machine.tensor(np.zeros((10, 3), np.float32), 0)
    shapes = [tvm_ffi.Shape(_sizes(value.dims)) for value in graph.inputs if value.dims]
    order = sorted(range(len(graph.inputs)), key=lambda i: graph.inputs[i].dims is not None)
    assert order == list(range(len(order)))  # tensors come first
    Executor(payload)(machine.tensor(x, 0), *shapes, out)
    assert np.array_equal(out.array, x.reshape(-1, 3))
    with pytest.raises(ModelError, match=r"called with n = 2, m = 17"):
        Executor(payload)(
            machine.tensor(np.zeros((2, 17, 3), np.float32), 0),
            *shapes,
            machine.tensor(np.zeros((34, 3), np.float32), 0),
        )


def _sizes(dims: Any) -> list[int]:
    return [evaluate(dim, {"n": 2, "m": 5}) or 0 for dim in dims]


# --- engines and threads --------------------------------------------------------------------------


def test_an_engine_is_made_once_for_each_gpu(machine: Machine, payload: bytes) -> None:
    first, second = Executor(payload), Executor(payload)
    for gpu in (0, 1, 0, 1):
        for run in (first, second):
            call(machine, run, rows(2), gpu)
    assert machine.engines == 2
    activated = {event[1] for event in machine.events if event[0] == "activate"}
    assert activated == {0, 1}


def test_an_engine_that_nobody_uses_goes(machine: Machine, payload: bytes) -> None:
    call(machine, Executor(payload), rows(2))
    gc.collect()
    assert len(executor._ENGINES) == 0
    call(machine, Executor(payload), rows(2))
    assert machine.engines == 2


def test_each_thread_has_a_context_of_its_own(machine: Machine, payload: bytes) -> None:
    made: list[Context] = []
    init = Context.__init__

    def note(self: Context, machine: Machine) -> None:
        init(self, machine)
        made.append(self)

    failures: list[str] = []
    run = Executor(payload)
    barrier = threading.Barrier(4)

    def work(seed: int) -> None:
        barrier.wait()
        for turn in range(20):
            x = rows(1 + (seed + turn) % 32, seed)
            if not np.array_equal(call(machine, run, x, None), dense_reference(x)):
                failures.append(f"{seed} {turn}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "__init__", note)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    assert len(made) == 4
    assert machine.engines == 1


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refuses", "message"),
    [
        ("plan", "cannot load the engine of region"),
        ("context", "cannot run region"),
        ("shape", r"refuses the shape \[8, 4\] of input_0: no reason given"),
        ("address", "refuses the memory of input_0"),
        ("profile", "refuses optimization profile 1"),
        ("run", "refuses to run"),
    ],
)
def test_what_the_vendor_refuses_is_one_error(
    machine: Machine, payload: bytes, refuses: str, message: str
) -> None:
    machine.refuses = refuses
    with pytest.raises(ModelError, match=message) as caught:
        call(machine, Executor(payload), rows(8))
    assert "tensorrt_rtx 1." in str(caught.value)


def test_a_plan_for_another_gpu_is_refused_before_the_vendor_sees_it(
    machine: Machine, payload: bytes
) -> None:
    machine.capability = 90
    with pytest.raises(ArtifactError, match=r"for compute capability 8.9; here is .* 9.0"):
        Executor(payload)
    assert machine.events == []


def test_a_plan_of_another_release_is_refused_before_the_vendor_sees_it(
    machine: Machine, payload: bytes
) -> None:
    header, plan, _ = unpack(payload)
    with pytest.raises(ArtifactError, match=r"of tensorrt_rtx 1.2.3, which no other release runs"):
        Executor(pack(replace(header, release="1.2.3"), plan))
    assert machine.events == []


def test_a_damaged_payload_is_refused_before_the_vendor_sees_it(
    machine: Machine, payload: bytes
) -> None:
    with pytest.raises(ArtifactError, match="is damaged"):
        Executor(payload[:-1] + bytes([payload[-1] ^ 1]))
    assert machine.events == []


def test_a_vendor_that_is_not_here_is_named(machine: Machine, payload: bytes) -> None:
    header, plan, _ = unpack(payload)
    if byoc.probe("tensorrt"):
        pytest.skip("it is here")
    with pytest.raises(BackendUnavailable, match="No module named 'tensorrt'"):
        Executor(pack(replace(header, vendor="tensorrt"), plan))
    assert machine.events == []


def test_a_missing_gpu_is_one_error(payload: bytes) -> None:
    if byoc.probe("device:cuda"):
        pytest.skip("there is a GPU")
    with pytest.raises(BackendUnavailable) as caught:
        Executor(payload)
    assert caught.value.step == "device"
    assert len(str(caught.value).splitlines()) == 1


# --- built where it runs --------------------------------------------------------------------------


def test_first_run_builds_for_this_gpu_once_and_keeps_it(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm_byoc_kit.backends.tensorrt import codegen as codegen_module

    monkeypatch.setenv("TVM_BYOC_ENGINE_CACHE", str(tmp_path / "engines"))
    monkeypatch.setattr(codegen_module, "target_capabilities", lambda _v, o: o.compute_capabilities)
    monkeypatch.setattr(executor, "find_vendor", lambda name=None: loads_fake(name))
    kept = codegen(graph_of(dense()), {"profiles": OPTIONS["profiles"], "build_at": "first_run"})
    run = Executor(kept)
    assert machine.events == []
    for count in (2, 8):
        x = rows(count)
        assert np.array_equal(call(machine, run, x), dense_reference(x))
    assert machine.engines == 1
    (entry,) = byoc_entries(tmp_path / "engines")
    assert entry.capabilities == (89,)
    del run
    gc.collect()
    monkeypatch.setattr(codegen_module, "build_engine", pytest.fail)
    assert call(machine, Executor(kept), rows(2)).shape == (2, 3)


def test_one_region_with_other_options_is_another_engine(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tvm_byoc_kit.backends.tensorrt import codegen as codegen_module

    monkeypatch.setenv("TVM_BYOC_ENGINE_CACHE", str(tmp_path))
    monkeypatch.setattr(codegen_module, "target_capabilities", lambda _v, o: o.compute_capabilities)
    monkeypatch.setattr(executor, "find_vendor", lambda name=None: loads_fake(name))
    runs = [
        Executor(codegen(graph_of(dense()), {"profiles": {"n": sizes}, "build_at": "first_run"}))
        for sizes in ((1, 2, 2), (3, 3, 4))
    ]
    for run, count in zip(runs, (2, 4), strict=True):
        assert call(machine, run, rows(count)).shape == (count, 3)
    assert machine.engines == 2


def byoc_entries(folder: Path) -> Any:
    """What is in a cache."""
    from tvm_byoc_kit.backends.tensorrt.engine_cache import EngineCache

    return EngineCache(folder).entries()


def loads_fake(_: str | None) -> Vendor:
    """Builds with the real module, and loads with the pretended one."""
    real = rtx()
    module = SimpleNamespace(**vars(real.module))
    module.Runtime = FakeModule.Runtime
    return Vendor(real.name, module, real.version, real.release, real.logger)


# --- through TVM ----------------------------------------------------------------------------------


@pytest.mark.skipif(not byoc.probe("plugin:core"), reason="the core was not built")
def test_an_artifact_runs_from_load_to_outputs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tvm

    from tvm_byoc_kit import backend

    byoc.compile(dense(), "tensorrt", options=OPTIONS).export(tmp_path / "m.so")
    yes = lambda name: Status(name, ok=True, detail="")  # noqa: E731
    monkeypatch.setattr(backend, "probe", yes)
    monkeypatch.setattr(runtime_module, "probe", yes)
    monkeypatch.setattr(executor, "Gpu", TvmGpu)
    loaded = byoc.load(tmp_path / "m.so")
    assert machine.events == []
    for count in (1, 8, 32):
        x = rows(count)
        assert np.array_equal(loaded.run({"x": x})["output"], dense_reference(x))
    with pytest.raises(ModelError, match="n = 33"):
        loaded.run({"x": rows(33)})
    assert tvm.cpu().exist


class TvmGpu(FakeGpu):
    """With TVM's own tensors, of the host, as its memory."""

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        return self.machine.tensor(np.zeros(shape, dtype), self.index)

    def copy(self, source: Any, target: Any) -> None:
        self.machine.events.append("copy")
        arrays = [t.array if isinstance(t, Memory) else np.from_dlpack(t) for t in (source, target)]
        np.copyto(arrays[1], arrays[0])
