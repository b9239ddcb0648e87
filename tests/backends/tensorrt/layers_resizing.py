"""The oracle's resize layer, by ONNX's definition of the modes that TensorRT has too."""

from __future__ import annotations

import torch

from .interpreter import Layer, OracleError, Tensor, layer

_READS = (
    "resize_mode coordinate_transformation selector_for_single_pixel nearest_rounding "
    "cubic_coeff exclude_outside shape scales"
)
_MOST_AXES = {"NEAREST": 3, "LINEAR": 3, "CUBIC": 2}


@layer("RESIZE", "IResizeLayer", _READS)
def resize(this: Layer, x: Tensor, size: Tensor | None = None) -> Tensor:
    scales = list(this.scales)
    if size is not None:
        target = [int(number) for number in size]
    elif this.shape is not None:
        target = list(this.shape)
    else:
        target = [int(number * by) for number, by in zip(x.shape, scales, strict=True)]
    changed = [axis for axis, count in enumerate(target) if count != x.shape[axis]]
    if changed and changed[0] < x.dim() - _MOST_AXES[this.resize_mode.name]:
        raise OracleError(f"{this.name}: {list(x.shape)} to {target}")
    for axis in changed:
        step = 1 / scales[axis] if scales else x.shape[axis] / target[axis]
        index, weight = _taps(this, x.shape[axis], target[axis], step)
        gathered = x.index_select(axis, index.reshape(-1)).unflatten(axis, index.shape)
        view = [1] * gathered.dim()
        view[axis], view[axis + 1] = weight.shape
        x = (gathered * weight.reshape(view)).sum(axis + 1)
    return x


def _coordinates(this: Layer, size: int, count: int, step: float) -> Tensor:
    """Where each element of the result lies in the source."""
    i = torch.arange(count, dtype=torch.float64)
    mode = this.coordinate_transformation.name
    if count == 1 and this.selector_for_single_pixel.name == "UPPER":
        return i * 0
    if mode == "ALIGN_CORNERS":
        return i * ((size - 1) / max(count - 1, 1))
    return (i + 0.5) * step - 0.5 if mode == "HALF_PIXEL" else i * step


_ROUNDINGS = {
    "FLOOR": torch.floor,
    "CEIL": torch.ceil,
    "HALF_UP": lambda at: torch.floor(at + 0.5),
    "HALF_DOWN": lambda at: torch.ceil(at - 0.5),
}


def _taps(this: Layer, size: int, count: int, step: float) -> tuple[Tensor, Tensor]:
    """Indices and weights, both ``[count, taps]``."""
    at, mode = _coordinates(this, size, count, step), this.resize_mode.name
    if this.exclude_outside and mode != "CUBIC":
        raise OracleError(f"{this.name}: exclude_outside in mode {mode}")
    if mode == "NEAREST":
        index = _ROUNDINGS[this.nearest_rounding.name](at)[:, None]
        return index.long().clamp(0, size - 1), torch.ones(count, 1)
    base = torch.floor(at)
    fraction = (at - base)[:, None]
    offsets = torch.arange(2) if mode == "LINEAR" else torch.arange(-1, 3)
    distance = (fraction - offsets).abs()
    weight = 1 - distance if mode == "LINEAR" else _cubic(distance, this.cubic_coeff)
    index = base.long()[:, None] + offsets
    if this.exclude_outside:
        weight = weight * ((index >= 0) & (index < size))
        weight = weight / weight.sum(1, keepdim=True)
    return index.clamp(0, size - 1), weight.float()


def _cubic(d: Tensor, a: float) -> Tensor:
    """Keys, Cubic convolution interpolation for digital image processing (1981)."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    return torch.where(d <= 1, near, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a)
