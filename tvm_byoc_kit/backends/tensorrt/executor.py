"""The runtime: runs a payload's engine on the caller's memory, on TVM's current stream.

Never run on a GPU by this project: it is written against the documented API of TensorRT 10 and
tested with a vendor and a GPU that pretend.

Tensors on the GPU are read and written in place. What is elsewhere, or where the engine cannot read
it, is copied to memory of the executor's own and back, by TVM.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backends.tensorrt.payload import check_plan, unpack
from tvm_byoc_kit.backends.tensorrt.profiles import choose
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor
from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm_byoc_kit.backends.tensorrt.payload import Header, Port
    from tvm_byoc_kit.backends.tensorrt.vendor import Vendor

__all__ = ["Executor", "Gpu", "admit", "runtime"]

_Parts: TypeAlias = "tuple[Header, memoryview, memoryview]"  # of a payload: with plan and graph
_CUDA = 2  # kDLCUDA
_ALIGNMENT = 256  # of the addresses that TensorRT takes


def runtime(payload: bytes, constants: Sequence[Any] = ()) -> Executor:  # noqa: ARG001 - baked in
    """The executor of a payload that the codegen of the TensorRT backend made."""
    return Executor(payload)


def admit(payload: bytes) -> None:
    """See whether a payload can run here, before any of it is loaded.

    Raises
    ------
    BackendUnavailable
        Without a GPU, its driver, or the vendor's package.
    ArtifactError
        When it is damaged, or holds an engine for another GPU or release.
    """
    _admitted(payload)


def _admitted(payload: bytes) -> _Parts:
    parts = header, plan, _ = unpack(payload)
    vendor = find_vendor(header.vendor or None)
    probe("device:cuda").require("tensorrt", "device")
    if plan:
        check_plan(header, vendor.name, vendor.release, Gpu(0).capability)
    return parts


class Gpu:
    """A GPU through TVM's own functions, so that nothing else of CUDA is needed.

    Parameters
    ----------
    index : int
        As in ``tvm.cuda(index)``.
    """

    def __init__(self, index: int) -> None:
        import tvm
        import tvm_ffi

        self.index = index
        self._device = tvm.cuda(index)
        self._empty = tvm.runtime.empty
        self._raw_stream = tvm_ffi.get_raw_stream
        self._copy = tvm_ffi.get_global_func("runtime.TVMTensorCopyFromTo")
        self._set_device = tvm_ffi.get_global_func("__tvm_set_device")

    @property
    def capability(self) -> int:
        """Compute capability, 89 for 8.9."""
        return int(str(self._device.compute_version).replace(".", ""))

    @property
    def stream(self) -> int:
        """The handle of the stream that TVM uses in this thread."""
        return int(self._raw_stream(self._device))

    def activate(self) -> None:
        """Make it the GPU of this thread, for the vendor's library."""
        self._set_device(_CUDA, self.index)

    def wait(self, stream: int) -> None:
        """Until all that was put on `stream` is done."""
        self._device.sync(stream)

    def empty(self, shape: Sequence[int], dtype: str) -> Any:
        """A tensor in its memory."""
        return self._empty(tuple(shape), dtype, self._device)

    def copy(self, source: Any, target: Any) -> None:
        """Copy a tensor; done after `wait` for stream 0, which TVM puts it on."""
        self._copy(source, target)


class Executor:
    """One region; called from any number of threads, each with an execution context.

    Parameters
    ----------
    payload : bytes
        Kept: an engine is made from it for each GPU, at the first call there.

    Raises
    ------
    BackendUnavailable, ArtifactError
        As `admit`.
    """

    def __init__(self, payload: bytes) -> None:
        self._parts = _admitted(payload)
        self._lock = threading.Lock()
        self._engines: dict[int, _Loaded] = {}
        self._local = threading.local()

    def __call__(self, *arguments: Any) -> None:
        """Run on the arguments: inputs, then outputs, which are written."""
        index = _gpu_of(arguments)
        contexts: dict[int, _Context] = self._local.__dict__.setdefault("contexts", {})
        if index not in contexts:
            contexts[index] = _Context(self._load(index))
        contexts[index].run(arguments)

    def _load(self, index: int) -> _Loaded:
        with self._lock:
            if index not in self._engines:
                self._engines[index] = _load(self._parts, Gpu(index))
            return self._engines[index]


def _gpu_of(arguments: Sequence[Any]) -> int:
    """The GPU that the tensors are on; the first one for tensors in the host's memory.

    Raises
    ------
    ModelError
        For tensors on several.
    """
    found = {tensor.device.index for tensor in arguments if _is_on_gpu(tensor)}
    if len(found) > 1:
        raise ModelError(f"tensors of one call are on several GPUs: {sorted(found)}")
    return found.pop() if found else 0


def _is_on_gpu(argument: Any) -> bool:
    return not isinstance(argument, tuple) and argument.device.dlpack_device_type() == _CUDA


# --- engines --------------------------------------------------------------------------------------


class _Loaded:
    """An engine on a GPU, shared by threads and by all executors of the same payload."""

    def __init__(self, vendor: Vendor, header: Header, gpu: Gpu, runtime: Any, engine: Any) -> None:
        self.vendor = vendor
        self.header = header
        self.gpu = gpu
        self.engine = engine
        self._runtime = runtime  # has to outlive the engine


# By checksum and GPU.
_ENGINES: weakref.WeakValueDictionary[tuple[str, int], _Loaded] = weakref.WeakValueDictionary()
_LOADING = threading.Lock()


def _load(parts: _Parts, gpu: Gpu) -> _Loaded:
    header, plan, graph = parts
    with _LOADING:
        loaded = _ENGINES.get((header.sha256, gpu.index))
        if loaded is None:
            gpu.activate()
            if not plan:
                parts = _built_here(header, graph, gpu)
            loaded = _ENGINES[header.sha256, gpu.index] = _deserialized(parts, gpu)
        return loaded


def _built_here(header: Header, graph: memoryview, gpu: Gpu) -> _Parts:
    """A payload with an engine for this GPU, taken apart."""
    from tvm_byoc_kit.backends.tensorrt.codegen import engine_payload
    from tvm_byoc_kit.backends.tensorrt.graph_bytes import unpack_graph
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions

    options = replace(TensorRTOptions(**header.options), compute_capabilities=(gpu.capability,))
    vendor = find_vendor(header.vendor or None)
    return unpack(engine_payload(unpack_graph(graph), vendor, options))


def _deserialized(parts: _Parts, gpu: Gpu) -> _Loaded:
    header, plan, graph = parts
    vendor = find_vendor(header.vendor)
    check_plan(header, vendor.name, vendor.release, gpu.capability)
    with vendor.messages() as log:
        runtime = vendor.module.Runtime(vendor.logger)
        if header.version_compatible:
            runtime.engine_host_code_allowed = True  # such a plan carries a runtime of its own
        engine = runtime.deserialize_cuda_engine(plan)
    if engine is None:
        raise ModelError(
            f"{vendor} cannot load the engine of region `{header.region}`: "
            f"{log.errors or 'no reason given'}"
        )
    if header.options.get("strip_weights"):
        _put_weights(engine, vendor, header, graph)
    return _Loaded(vendor, header, gpu, runtime, engine)


def _put_weights(engine: Any, vendor: Vendor, header: Header, graph: memoryview) -> None:
    from tvm_byoc_kit.backends.tensorrt.graph_bytes import unpack_graph
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.refit import put_weights

    put_weights(engine, unpack_graph(graph), vendor, TensorRTOptions(**header.options))


# --- calls ----------------------------------------------------------------------------------------


class _Context:
    """What one thread needs to run an engine: a context of the vendor's, and memory for copies."""

    def __init__(self, loaded: _Loaded) -> None:
        self._loaded = loaded
        self._gpu = loaded.gpu
        self._header = loaded.header
        self._profile = 0
        self._copies: dict[int, Any] = {}
        loaded.gpu.activate()
        with loaded.vendor.messages() as log:
            self._context = loaded.engine.create_execution_context()
        if self._context is None:
            raise ModelError(
                f"{loaded.vendor} cannot run region `{self._header.region}`: "
                f"{log.errors or 'no reason given'}"
            )

    def run(self, arguments: Sequence[Any]) -> None:
        """Put one run on TVM's stream; wait for it where something has to be copied."""
        if len(arguments) != self._header.arguments:
            raise ModelError(
                f"region `{self._header.region}` was called with {len(arguments)} arguments, "
                f"expected {self._header.arguments}"
            )
        self._gpu.activate()
        stream = self._gpu.stream
        with self._loaded.vendor.messages() as log:
            try:
                self._enqueue(arguments, stream)
            except _Refused as error:
                raise ModelError(
                    f"region `{self._header.region}`: {self._loaded.vendor} refuses {error}: "
                    f"{log.errors or 'no reason given'}"
                ) from None

    def _enqueue(self, arguments: Sequence[Any], stream: int) -> None:
        self._switch_profile(arguments, stream)
        read = self._bind(self._header.inputs, arguments)
        for argument, tensor in read:
            self._gpu.copy(argument, tensor)
        if read:
            self._gpu.wait(_COPY_STREAM)  # `stream` need not wait for it by itself
        written = self._bind(self._header.outputs, arguments)
        _check(self._context.execute_async_v3(stream), "to run")
        if read or written:
            self._gpu.wait(stream)
        for argument, tensor in written:
            self._gpu.copy(tensor, argument)
        if written:
            self._gpu.wait(_COPY_STREAM)

    def _switch_profile(self, arguments: Sequence[Any], stream: int) -> None:
        """Take the first profile that the shapes fit."""
        profiles = self._header.profiles
        sizes = {
            name: int(_shape(arguments[number])[axis])
            for name, (number, axis) in self._header.symbols.items()
        }
        number = choose(profiles, sizes)
        if number is None:
            raise ModelError(
                f"region `{self._header.region}` was called with {_listed(sizes)}, and its engine "
                f"was built for {'; or '.join(map(_listed, profiles))} (smallest, best, largest); "
                "build it again with a profile that has them"
            )
        if number != self._profile:
            done = self._context.set_optimization_profile_async(number, stream)
            _check(done, f"optimization profile {number}")
            self._profile = number

    def _bind(self, ports: Sequence[Port], arguments: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Tell the engine where the ports are; gives the arguments to copy, each with where to."""
        copied = []
        for port in ports:
            argument = arguments[port.argument]
            self._set_shape(port, tuple(argument.shape))
            memory = argument if self._is_reachable(argument) else self._own_memory(port, argument)
            if memory is not argument and argument.numel():
                copied.append((argument, memory))
            done = self._context.set_tensor_address(port.name, memory.data_ptr())
            _check(done, f"the memory of {port.name}")
        return copied

    def _set_shape(self, port: Port, shape: tuple[int, ...]) -> None:
        """Give the shape of an input that is not fixed; see that an output's is what is expected.

        Inputs come first: then the engine knows the shapes of its outputs.
        """
        if all(isinstance(dim, int) for dim in port.shape):
            return
        if port in self._header.inputs:
            done = self._context.set_input_shape(port.name, shape)
            _check(done, f"the shape {list(shape)} of {port.name}")
            return
        expected = tuple(self._context.get_tensor_shape(port.name))
        if expected != shape:
            raise ModelError(
                f"region `{self._header.region}` gives {list(expected)} as {port.name}, and was "
                f"called with memory for {list(shape)}"
            )

    def _is_reachable(self, argument: Any) -> bool:
        """Whether the engine can use this memory: of its GPU, and aligned."""
        return (
            _is_on_gpu(argument)
            and argument.numel() > 0  # an empty tensor need not have an address
            and argument.data_ptr() % _ALIGNMENT == 0
            and argument.is_contiguous()
        )

    def _own_memory(self, port: Port, argument: Any) -> Any:
        """Memory on the GPU for an argument, kept for the next call with the same shape."""
        shape = tuple(argument.shape) if argument.numel() else (1,)
        known = self._copies.get(port.argument)
        if known is None or tuple(known.shape) != shape:
            known = self._copies[port.argument] = self._gpu.empty(shape, port.dtype)
        return known


_COPY_STREAM = 0  # that TVM puts copies on


class _Refused(Exception):
    """The vendor's library said no to something."""


def _check(done: bool, what: str) -> None:
    if not done:
        raise _Refused(what)


def _shape(argument: Any) -> tuple[int, ...]:
    """Of a tensor; a shape parameter is one itself."""
    return tuple(argument) if isinstance(argument, tuple) else tuple(argument.shape)


def _listed(sizes: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sizes.items())
