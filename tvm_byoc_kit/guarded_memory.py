"""Tensors with bytes before and after them that nobody may write."""

from __future__ import annotations

from typing import Any

__all__ = ["Guarded"]

_ALIGNMENT = 64  # bytes, as TVM's own tensors
_BAND = 1 << 16  # bytes on either side: of what lies farther nobody can be sure
_FILL = 0xA5
_CPU = 1  # DLPack's number


class Guarded:
    """A new tensor like another one; not guarded where that is empty or not in CPU memory.

    Parameters
    ----------
    like : tvm.runtime.Tensor

    Attributes
    ----------
    tensor : tvm.runtime.Tensor
    """

    def __init__(self, like: Any) -> None:
        import numpy as np
        import tvm_ffi

        array = like.numpy()
        self._bands: tuple[np.ndarray, ...] = ()
        self.tensor = like
        if not array.nbytes or like.device.dlpack_device_type() != _CPU:
            return
        memory = np.full(2 * _BAND + _ALIGNMENT + array.nbytes, _FILL, np.uint8)
        start = _BAND - (memory.__array_interface__["data"][0] + _BAND) % _ALIGNMENT + _ALIGNMENT
        stop = start + array.nbytes
        self._bands = memory[:start], memory[stop:]
        # As bytes, since NumPy hands over no bfloat16; and no offset, which backends may overlook.
        inner: Any = tvm_ffi.from_dlpack(memory[start:stop])
        self.tensor = inner._create_view(like.shape, like.dtype)  # noqa: SLF001

    @property
    def is_intact(self) -> bool:
        """Whether nothing was written outside the tensor."""
        return all((band == _FILL).all() for band in self._bands)
