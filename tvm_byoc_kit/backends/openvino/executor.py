"""The runtime in Python: compiles a payload's model and runs it on the caller's memory.

Imports OpenVINO, NumPy and tvm-ffi only, so that a process which just runs an artifact starts fast.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.backends.openvino.constants import put_back
from tvm_byoc_kit.backends.openvino.integers import fit_32_bits
from tvm_byoc_kit.backends.openvino.memory import lent
from tvm_byoc_kit.backends.openvino.payload import unpack
from tvm_byoc_kit.errors import reason

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Executor", "runtime"]


def runtime(payload: bytes, constants: Sequence[Any] = ()) -> Executor:
    """The executor of a payload that the codegen of the OpenVINO backend made."""
    return Executor(payload, constants)


class Executor:
    """One region, compiled; called from any number of threads, each with its inference request.

    Parameters
    ----------
    payload : bytes
    constants : sequence of tensors
        That the payload stands for. Both are kept: OpenVINO reads weights where they are.

    Raises
    ------
    ValueError
        For other bytes, other constants, or a device that OpenVINO cannot compile for; lists those
        it has.
    """

    def __init__(self, payload: bytes, constants: Sequence[Any] = ()) -> None:
        import openvino

        header, model, weights = unpack(payload)
        if len(constants) != header.constants:
            raise ValueError(
                f"a payload of the OpenVINO backend goes with {header.constants} constants, found "
                f"{len(constants)}; build the model again"
            )
        arrays = [lent(np.from_dlpack(constant)) for constant in constants]
        self._kept = payload, constants, arrays
        self._wrap = openvino.Tensor
        core = _core()
        shared = openvino.Tensor(lent(np.frombuffer(weights, np.uint8)), shared_memory=True)
        try:
            read = core.read_model(model, shared)
            put_back(read, list(map(self._tensor, arrays)))
            self._compiled = core.compile_model(read, header.device, header.properties)
        except RuntimeError as error:
            raise ValueError(
                f"OpenVINO cannot compile the model for {header.device}: {reason(error)}; it has "
                f"{', '.join(core.available_devices)}. Build with another device, or cache_dir, "
                "among the options"
            ) from error
        self._inputs = tuple(enumerate(header.inputs))
        self._outputs = tuple(enumerate(header.outputs))
        self._copies = header.copies
        self._local = threading.local()

    def __call__(self, *arguments: Any) -> None:
        """Run on the arguments: inputs, then outputs, which are written."""
        request = self._request()
        # Held while they are read: a shape's is made here, and a tensor keeps no array alive.
        arrays = [_narrow(arguments[number], number) for _, number in self._inputs]
        for (port, _), array in zip(self._inputs, arrays, strict=True):
            request.set_input_tensor(port, self._tensor(array))
        for port, number in self._outputs:
            request.set_output_tensor(port, self._tensor(np.from_dlpack(arguments[number])))
        if self._outputs:
            request.infer(share_outputs=True)
        for source, target in self._copies:
            np.copyto(np.from_dlpack(arguments[target]), np.from_dlpack(arguments[source]))

    def _request(self) -> Any:
        """The calling thread's own: a request is busy while it runs."""
        request = getattr(self._local, "request", None)
        if request is None:
            request = self._local.request = self._compiled.create_infer_request()
        return request

    def _tensor(self, array: np.ndarray) -> Any:
        """The array's memory as a tensor."""
        return self._wrap(array, shared_memory=True)


def _narrow(argument: Any, number: int) -> np.ndarray:
    """An input's memory; a shape becomes a vector.

    Raises
    ------
    ValueError
        For integers of 64 bits that OpenVINO, which computes them in 32, would cut off.
    """
    if isinstance(argument, tuple):  # tvm_ffi.Shape
        return np.asarray(argument, np.int64)
    array = np.from_dlpack(argument)
    if array.dtype == np.int64 and not fit_32_bits(array):
        raise ValueError(
            f"input {number} of a region holds integers beyond 32 bits, in which OpenVINO "
            "computes; build the model for a backend that has 64"
        )
    return array


_lock = threading.Lock()
_cores: list[Any] = []


def _core() -> Any:
    """One for the process: regions share its threads and its plugins."""
    import openvino

    with _lock:
        if not _cores:
            _cores.append(openvino.Core())
        return _cores[0]
