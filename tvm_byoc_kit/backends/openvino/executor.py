"""The runtime in Python: compiles a payload's model and runs it on the caller's memory.

Imports OpenVINO, NumPy and tvm-ffi only, so that a process which just runs an artifact starts fast.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.openvino.memory import lent
from tvm_byoc_kit.backends.openvino.payload import unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Executor", "runtime"]


def runtime(payload: bytes, constants: Sequence[Any] = ()) -> Executor:  # noqa: ARG001 - baked in
    """The executor of a payload that the codegen of the OpenVINO backend made."""
    return Executor(payload)


class Executor:
    """One region, compiled; called from any number of threads, each with its inference request.

    Parameters
    ----------
    payload : bytes
        Kept: the weights stay where they are.

    Raises
    ------
    ValueError
        For other bytes, or a device that OpenVINO cannot compile for; lists those it has.
    """

    def __init__(self, payload: bytes) -> None:
        import openvino

        header, model, weights = unpack(payload)
        self._payload = payload
        self._wrap = openvino.Tensor
        core = _core()
        shared = openvino.Tensor(lent(np.frombuffer(weights, np.uint8)), shared_memory=True)
        try:
            read = core.read_model(model, shared)
            self._compiled = core.compile_model(read, header.device, header.properties)
        except RuntimeError as error:
            raise ValueError(
                f"OpenVINO cannot compile the model for {header.device}: {error}; it has "
                f"{', '.join(core.available_devices)}. Build with options={{'device': ...}}"
            ) from error
        self._inputs = tuple(enumerate(header.inputs))
        self._outputs = tuple(enumerate(header.outputs))
        self._copies = header.copies
        self._local = threading.local()

    def __call__(self, *arguments: Any) -> None:
        """Run on the arguments: inputs, then outputs, which are written."""
        request = self._request()
        for port, number in self._inputs:
            request.set_input_tensor(port, self._tensor(arguments[number]))
        for port, number in self._outputs:
            request.set_output_tensor(port, self._tensor(arguments[number]))
        if self._outputs:
            request.infer(share_outputs=True)
        for source, target in self._copies:
            np.copyto(np.from_dlpack(arguments[target]), np.from_dlpack(arguments[source]))

    def _request(self) -> Any:
        """This thread's own: a request is busy while it runs."""
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        return request

    def _tensor(self, argument: Any) -> Any:
        """The argument's memory; a shape becomes a vector."""
        if isinstance(argument, tuple):  # tvm_ffi.Shape
            return self._wrap(np.asarray(argument, np.int64))
        return self._wrap(np.from_dlpack(argument), shared_memory=True)


_lock = threading.Lock()
_cores: list[Any] = []


def _core() -> Any:
    """One for the process: regions share its threads and its plugins."""
    import openvino

    with _lock:
        if not _cores:
            _cores.append(openvino.Core())
        return _cores[0]
