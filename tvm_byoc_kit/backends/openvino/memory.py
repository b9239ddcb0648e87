"""Memory that OpenVINO reads in place."""

from __future__ import annotations

import ctypes

import numpy as np

__all__ = ["lent"]


def lent(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous `array` under one that may be written to.

    OpenVINO's Python takes no read-only arrays, and does not write to constants and weights. The
    result does not keep `array` alive.
    """
    if array.flags.writeable:
        return array
    if not array.nbytes:
        return np.array(array)
    pointer = ctypes.cast(array.ctypes.data, ctypes.POINTER(ctypes.c_uint8))
    flat = np.ctypeslib.as_array(pointer, (array.nbytes,))
    view: np.ndarray = flat.view(array.dtype).reshape(array.shape)
    return view
