"""Integers of 64 bits, which OpenVINO computes in 32."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = ["fit_32_bits"]

_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def fit_32_bits(array: np.ndarray) -> bool:
    """Whether 32 bits hold every element."""
    return not array.size or bool(array.min() >= _LOWEST and array.max() <= _HIGHEST)
