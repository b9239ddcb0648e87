"""How arrays become tensors, and tensors arrays: on the CPU in aligned memory, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["Staging", "aligned_copy", "flatten_outputs", "is_shared"]

# What NumPy and TVM hand to each other through DLPack, five times faster than `tvm.runtime.tensor`
# and `Tensor.numpy` copy it: NumPy's own numbers. The other dtypes are those of ml_dtypes.
_SHARED = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
)
_ALIGNMENT = 64  # bytes: compiled code loads whole vectors


def is_shared(dtype: str) -> bool:
    """Whether tensors of `dtype` are passed between NumPy and TVM without a copy."""
    return dtype in _SHARED


def aligned_copy(array: np.ndarray) -> Any:
    """A tensor in CPU memory with what is in `array`."""
    memory, tensor = _aligned(array.shape, array.dtype)
    memory[...] = array
    return tensor


def _aligned(shape: tuple[int, ...], dtype: Any) -> tuple[np.ndarray, Any]:
    """An array and a tensor in the same memory."""
    import numpy as np
    import tvm_ffi

    size = np.dtype(dtype).itemsize
    for dim in shape:
        size *= dim
    if not size:  # NumPy's strides of an empty array are not what TVM expects of a compact one
        import tvm

        return np.empty(shape, dtype), tvm.runtime.empty(shape, str(np.dtype(dtype)))
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.__array_interface__["data"][0] % _ALIGNMENT
    array = memory[start : start + size].view(dtype).reshape(shape)
    return array, tvm_ffi.from_dlpack(array)


def flatten_outputs(result: Any) -> list[Any]:
    """The tensors in what a function of the virtual machine gave."""
    if hasattr(result, "__dlpack__"):
        return [result]
    return [leaf for member in result for leaf in flatten_outputs(member)]


class Staging:
    """Memory for the inputs of one thread's calls, all of fixed shape: the same at every call.

    A backend that binds the tensors of a call to something of its own finds them bound already.

    Parameters
    ----------
    specs : sequence of TensorSpec
        With no symbolic dimension.
    device : tvm.runtime.Device, optional
        Where the tensors are to be, when that is not CPU memory.
    """

    def __init__(self, specs: Sequence[TensorSpec], device: Any = None) -> None:
        import numpy as np

        self.specs = specs
        self._device = device
        self._array_type, self._copy = np.ndarray, np.copyto
        self._slots = [(spec.name, *self._slot(spec)) for spec in specs]
        self.arrays = [array for _, array, _ in self._slots]
        self._tensors = [tensor for _, _, tensor in self._slots]
        self._in_place = all(tensor is not None for tensor in self._tensors)

    def _slot(self, spec: TensorSpec) -> tuple[np.ndarray, Any]:
        """Memory, and the tensor in it if there can be one."""
        shape = tuple(map(int, spec.shape))
        if self._device is None and is_shared(spec.dtype):
            return _aligned(shape, spec.dtype)
        import ml_dtypes  # noqa: F401 - NumPy knows its dtypes by name from now on
        import numpy as np

        return np.empty(shape, spec.dtype), None

    @staticmethod
    def fits(specs: Sequence[TensorSpec]) -> bool:
        """Whether there can be tensors in the memory for inputs of `specs`."""
        return all(
            is_shared(spec.dtype) and all(isinstance(dim, int) for dim in spec.shape)
            for spec in specs
        )

    def tensors(self) -> list[Any]:
        """What has been written into `arrays`."""
        if self._in_place:
            return self._tensors
        import tvm

        return [tvm.runtime.tensor(array, self._device or tvm.cpu()) for array in self.arrays]

    def fill(self, inputs: Mapping[str, Any]) -> list[Any] | None:
        """The tensors with what is in `inputs`; None unless these plainly are what they must be."""
        if len(inputs) != len(self._slots):
            return None
        given = []
        for name, memory, _ in self._slots:
            array = inputs.get(name)
            if (
                type(array) is not self._array_type
                or array.dtype != memory.dtype
                or array.shape != memory.shape
            ):
                return None
            given.append((memory, array))
        for memory, array in given:
            self._copy(memory, array)
        return self._tensors
