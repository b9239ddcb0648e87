"""NumPy arrays from PyTorch tensors and back, bfloat16 included."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray


def to_tensor(array: NDArray[np.generic]) -> torch.Tensor:
    """A tensor with the data of `array`; of bfloat16 NumPy knows the bytes alone."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(np.ascontiguousarray(array).view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_array(tensor: torch.Tensor) -> NDArray[np.generic]:
    """The data of `tensor`; bfloat16 in the type of ml_dtypes, which TVM brings along."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        raw: NDArray[np.generic] = tensor.view(torch.uint16).numpy()
        return raw.view(ml_dtypes.bfloat16)
    plain: NDArray[np.generic] = tensor.numpy()
    return plain
