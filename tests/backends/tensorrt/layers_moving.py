"""The oracle's layers that move data, or make it out of nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional

from .interpreter import Layer, OracleError, Tensor, axes_of, layer


def _numbers(this: Layer, attribute: str, given: Tensor | None) -> tuple[int, ...] | None:
    """From an input where there is one, else from the attribute."""
    if given is not None:
        return tuple(int(number) for number in given)
    found = getattr(this, attribute)
    return None if found is None else tuple(found)


@layer("CONSTANT", "IConstantLayer", "shape weights")
def constant(this: Layer) -> Tensor:
    found = this.stored("weights")
    if found is None:
        raise OracleError(f"{this.name}: no elements")
    return found.reshape(tuple(this.shape))


@layer("SHAPE", "IShapeLayer")
def shape(_this: Layer, x: Tensor) -> Tensor:
    return torch.tensor(x.shape, dtype=torch.int64)


@layer("FILL", "IFillLayer", "operation shape alpha beta is_alpha_beta_int64 to_type")
def fill(
    this: Layer,
    dims: Tensor | None = None,
    start: Tensor | None = None,
    step: Tensor | None = None,
) -> Tensor:
    this.expect(operation="LINSPACE")
    sizes = _numbers(this, "shape", dims)
    if sizes is None:
        raise OracleError(f"{this.name}: no shape")
    steps = [this.beta] if step is None else step.reshape(-1).tolist()
    first = this.alpha if start is None else start.item()
    grids = torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")
    found = sum((grid * by for grid, by in zip(grids, steps, strict=True)), torch.tensor(first))
    return found.float() if this.to_type.name == "FLOAT" else found.long()


# --- Shapes -------------------------------------------------------------------------------------


@layer(
    "SHUFFLE", "IShuffleLayer", "first_transpose reshape_dims second_transpose zero_is_placeholder"
)
def shuffle(this: Layer, x: Tensor, target: Tensor | None = None) -> Tensor:
    x = x.permute(tuple(this.first_transpose)[: x.dim()])
    sizes = _numbers(this, "reshape_dims", target)  # None where the layer only transposes
    if sizes is not None:
        if this.zero_is_placeholder:
            sizes = tuple(size or x.shape[i] for i, size in enumerate(sizes))
        x = x.reshape(sizes)
    return x.permute(tuple(this.second_transpose)[: x.dim()])


@layer("SQUEEZE", "ISqueezeLayer")
def squeeze(this: Layer, x: Tensor, axes: Tensor) -> Tensor:
    at = [int(axis) % x.dim() for axis in axes.reshape(-1)]
    if any(x.shape[axis] != 1 for axis in at):
        raise OracleError(f"{this.name}: the axes {at} of {list(x.shape)}")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in at])


@layer("UNSQUEEZE", "IUnsqueezeLayer")
def unsqueeze(_this: Layer, x: Tensor, axes: Tensor) -> Tensor:
    rank = x.dim() + axes.numel()
    for axis in sorted(int(axis) % rank for axis in axes.reshape(-1)):
        x = x.unsqueeze(axis)
    return x


@layer("CONCATENATION", "IConcatenationLayer", "axis")
def concatenation(this: Layer, *parts: Tensor) -> Tensor:
    if len({part.dtype for part in parts}) != 1:
        raise OracleError(f"{this.name}: {[part.dtype for part in parts]} together")
    return torch.cat(parts, this.axis)


# --- Slices -------------------------------------------------------------------------------------


def _reflected(index: Tensor, size: int) -> Tensor:
    """Edges are not repeated: -1 is 1, `size` is ``size - 2``."""
    period = max(2 * (size - 1), 1)
    turned = index % period
    return torch.where(turned < size, turned, period - turned)


@layer("SLICE", "ISliceLayer", "start shape stride axes mode")
def slice_(this: Layer, x: Tensor, *optional: Tensor | None) -> Tensor:
    start, size, stride, value, axes = (*optional, *[None] * (5 - len(optional)))
    named = (("start", start), ("shape", size), ("stride", stride))
    first, count, step = (_numbers(this, name, given) for name, given in named)
    at = _numbers(this, "axes", axes) or tuple(range(x.dim()))
    if first is None or count is None or step is None:
        raise OracleError(f"{this.name}: no start, size or stride")
    if value is not None and this.mode.name != "FILL":
        raise OracleError(f"{this.name}: a fill value in mode {this.mode.name}")
    for axis, begin, length, by in zip(at, first, count, step, strict=True):
        index = begin + by * torch.arange(length)
        outside = (index < 0) | (index >= x.shape[axis])
        y = x.index_select(axis, _inside(this, index, x.shape[axis]))
        x = _filled(y, outside, axis, value) if this.mode.name == "FILL" else y
    return x


def _inside(this: Layer, index: Tensor, size: int) -> Tensor:
    """Where an index that may be outside reads."""
    mode, last = this.mode.name, size - 1
    if mode == "WRAP":
        return index % size
    if mode == "REFLECT":
        return _reflected(index, size)
    if mode == "STRICT_BOUNDS" and (index.min() < 0 or index.max() > last):
        raise OracleError(f"{this.name}: {index.tolist()} along an axis of {size}")
    return index.clamp(0, last)


def _filled(y: Tensor, outside: Tensor, axis: int, value: Tensor | None) -> Tensor:
    mask = outside.reshape([-1 if i == axis else 1 for i in range(y.dim())])
    filling = torch.zeros(()) if value is None else value.reshape(())
    return torch.where(mask, filling.to(y.dtype), y)


@layer("PADDING", "IPaddingLayer", "pre_padding_nd post_padding_nd")
def padding(this: Layer, x: Tensor) -> Tensor:
    pairs = zip(reversed(this.pre_padding_nd), reversed(this.post_padding_nd), strict=True)
    return functional.pad(x, [width for pair in pairs for width in pair])


# --- Gathers ------------------------------------------------------------------------------------


def _at(x: Tensor, positions: Sequence[Tensor]) -> Tensor:
    """``x[positions]``, 0 where one is outside."""
    limits = zip(positions, x.shape, strict=False)
    valid = torch.stack([(p >= 0) & (p < size) for p, size in limits]).all(0)
    y = x[tuple(torch.where(valid, p, torch.zeros_like(p)).long() for p in positions)]
    mask = valid.reshape(*valid.shape, *[1] * (y.dim() - valid.dim()))
    return torch.where(mask, y, torch.zeros((), dtype=x.dtype))


def _taken(x: Tensor, index: Tensor, axis: int) -> Tensor:
    picked = _at(x.movedim(axis, 0), [index])
    order = list(range(index.dim(), index.dim() + axis))
    rest = list(range(index.dim() + axis, picked.dim()))
    return picked.permute(order + list(range(index.dim())) + rest)


@layer("GATHER", "IGatherLayer", "mode axis num_elementwise_dims")
def gather(this: Layer, x: Tensor, index: Tensor) -> Tensor:
    batches, axis = this.num_elementwise_dims, this.axis
    if this.mode.name == "ELEMENT":
        grids = torch.meshgrid(*(torch.arange(size) for size in index.shape), indexing="ij")
        if [*x.shape[:axis], *x.shape[axis + 1 :]] != [
            *index.shape[:axis],
            *index.shape[axis + 1 :],
        ]:
            raise OracleError(f"{this.name}: {list(index.shape)} elements of {list(x.shape)}")
        return _at(x, [index if i == axis else grid for i, grid in enumerate(grids)])
    if batches > 1:
        raise OracleError(f"{this.name}: {batches} elementwise dimensions")
    if this.mode.name == "ND":
        pairs = zip(x, index, strict=True) if batches else [(x, index)]
        parts = [_at(data, positions.unbind(-1)) for data, positions in pairs]
    else:
        pairs = zip(x, index, strict=True) if batches else [(x, index)]
        parts = [_taken(data, positions, axis - batches) for data, positions in pairs]
    return torch.stack(parts) if batches else parts[0]


@layer("TOPK", "ITopKLayer", "op k axes indices_type")
def topk(this: Layer, x: Tensor, count: Tensor | None = None) -> tuple[Tensor, Tensor]:
    (axis,) = axes_of(this.axes)
    k = this.k if count is None else int(count)
    values, indices = x.sort(dim=axis, descending=this.op.name == "MAX", stable=True)
    return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)


@layer("ONE_HOT", "IOneHotLayer", "axis")
def one_hot(this: Layer, index: Tensor, values: Tensor, depth: Tensor) -> Tensor:
    hot = functional.one_hot(index.long(), int(depth)).movedim(-1, this.axis).bool()
    return torch.where(hot, values[1], values[0])


@layer("NON_ZERO", "INonZeroLayer", "indices_type")
def non_zero(_this: Layer, x: Tensor) -> Tensor:
    return x.nonzero().T
