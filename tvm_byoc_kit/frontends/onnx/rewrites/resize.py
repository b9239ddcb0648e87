"""Resize where TVM's differs: written as a Gather, or a product with a matrix, for each axis.

Resizing is separable: along one axis of length n it is a linear map, a matrix of (output, n). TVM's
converter looks at the last axes of ranks 3 to 5 alone, takes the ratio of the sizes for the scale
(4 * 0.6 gives 2 elements, 0.6 is not 2 / 4), and does not know antialias, half_pixel_symmetric,
axes and keep_aspect_ratio_policy. What it gets right stays a Resize.

The formulas are those of the operator's specification, the kernels Keys' (1981) for cubic and the
triangle for linear; ONNX Runtime agrees. An antialiasing kernel is stretched by 1 / scale and
normalised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]

_IMPORTED_RANKS = (3, 4, 5)
_FIRST_SPATIAL = 2
_CUBIC_REACH = 2
_IMPORTED_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
_FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16)


@dataclass(frozen=True)
class _Axis:
    """One axis: its length before and after, and the scale that the formulas use."""

    index: int
    before: int
    after: int
    scale: float

    @property
    def exact(self) -> bool:
        """Whether the scale is the ratio of the lengths."""
        return bool(np.isclose(self.scale * self.before, self.after, rtol=1e-6, atol=0))


@dataclass(frozen=True)
class _Options:
    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool


@replaces("Resize")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every Resize that TVM would get wrong; refuse where it cannot be told."""
    said = attributes_of(node)
    options = _Options(
        mode=said.get("mode", b"nearest").decode(),
        coordinates=said.get("coordinate_transformation_mode", b"half_pixel").decode(),
        nearest=said.get("nearest_mode", b"round_prefer_floor").decode(),
        cubic=float(said.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(said.get("exclude_outside", 0)),
        antialias=bool(said.get("antialias", 0)),
    )
    axes = _axes(node, scope, said)
    if axes is None:
        if _needs_axes(node, scope, said, options):
            raise ModelError(
                f"{describe(node, scope)} cannot be imported right unless the sizes of the axes "
                "that it changes are known: fix them with load_model(..., shapes=...)"
            )
        return False
    changed = [axis for axis in axes if axis.before != axis.after or not axis.exact]
    if options.coordinates == "tf_crop_and_resize":
        return _check_crop(node, scope, said, axes)
    if _is_imported_right(axes, changed, options, said):
        return False
    _write(node, scope, new, changed, options)
    return True


def _axes(node: onnx.NodeProto, scope: Scope, said: dict[str, Any]) -> list[_Axis] | None:
    """What the node does to each axis; None where a size that matters is not known."""
    shape = scope.shape(node.input[0])
    names = [*node.input, "", "", ""][:4]
    scales, sizes = (scope.constant(name) if name else None for name in names[2:])
    scaled, sized = (value is not None and value.size > 0 for value in (scales, sizes))
    if shape is None or not (scaled or sized):
        return None
    asked = [axis % len(shape) for axis in said.get("axes", range(len(shape)))]
    if scales is not None and scaled:
        resized = [axis for axis, scale in zip(asked, scales, strict=True) if scale != 1]
        if any(not isinstance(shape[axis], int) for axis in resized):
            return None
        factors = dict(zip(asked, map(float, scales), strict=True))
        lengths = {
            axis: int(np.floor(np.float32(shape[axis]) * np.float32(factor)))
            for axis, factor in factors.items()
            if isinstance(shape[axis], int)
        }
    else:
        assert sizes is not None  # noqa: S101 - one of the two is known
        if any(not isinstance(shape[axis], int) for axis in asked if axis >= _FIRST_SPATIAL):
            return None  # an open batch, or number of channels, stays as it is
        lengths = {
            axis: int(size)
            for axis, size in zip(asked, sizes, strict=True)
            if isinstance(shape[axis], int)
        }
        asked = list(lengths)
        factors = {axis: lengths[axis] / int(shape[axis] or 1) for axis in asked}
        policy = said.get("keep_aspect_ratio_policy", b"stretch").decode()
        if policy != "stretch":
            factor = (min if policy == "not_larger" else max)(factors.values())
            factors = dict.fromkeys(asked, factor)
            lengths = {axis: int(np.floor(factor * int(shape[axis] or 1) + 0.5)) for axis in asked}
    return [
        _Axis(axis, dim, lengths.get(axis, dim), factors.get(axis, 1.0))
        if isinstance(dim, int)
        else _Axis(axis, 1, 1, 1.0)  # an open size that stays as it is
        for axis, dim in enumerate(shape)
    ]


def _needs_axes(
    node: onnx.NodeProto, scope: Scope, said: dict[str, Any], options: _Options
) -> bool:
    """Whether a Resize of unknown sizes is one that TVM may get wrong."""
    name = [*node.input, "", ""][2]
    scales = scope.constant(name) if name else None
    whole = scales is not None and all(float(scale).is_integer() for scale in scales)
    spatial_only = scales is None or bool((scales[:_FIRST_SPATIAL] == 1).all())
    known_form = options.coordinates in _IMPORTED_COORDINATES and not (
        options.antialias or "axes" in said or "keep_aspect_ratio_policy" in said
    )
    sized = scales is None or not scales.size
    return not (known_form and spatial_only and (whole or sized))


def _is_imported_right(
    axes: list[_Axis], changed: list[_Axis], options: _Options, said: dict[str, Any]
) -> bool:
    rank = len(axes)
    one_left = any(axis.after == 1 for axis in axes[_FIRST_SPATIAL:])
    return (
        rank in _IMPORTED_RANKS
        and options.coordinates in _IMPORTED_COORDINATES
        and "axes" not in said
        and said.get("keep_aspect_ratio_policy", b"stretch") == b"stretch"
        and not (options.antialias and any(axis.after < axis.before for axis in changed))
        and not (options.mode == "cubic" and rank != _FIRST_SPATIAL + 2)
        and not (options.coordinates == "align_corners" and one_left)  # TVM divides by zero
        and all(axis.index >= _FIRST_SPATIAL and axis.exact for axis in changed)
    )


def _check_crop(
    node: onnx.NodeProto, scope: Scope, said: dict[str, Any], axes: list[_Axis]
) -> bool:
    """tf_crop_and_resize is imported right over all axes, with exact scales."""
    if "axes" in said or not all(axis.exact for axis in axes):
        raise ModelError(
            f"{describe(node, scope)} has coordinate_transformation_mode tf_crop_and_resize with "
            "`axes`, or scales that do not divide the sizes, which TVM gets wrong; give `sizes` "
            "and a roi over all axes"
        )
    return False


def _write(
    node: onnx.NodeProto,
    scope: Scope,
    new: Replacement,
    changed: list[_Axis],
    options: _Options,
) -> None:
    x, output = node.input[0], node.output[0]
    shape = scope.shape(x)
    dtype = scope.dtype(x)
    if options.coordinates == "align_corners" and not all(axis.exact for axis in changed):
        raise ModelError(
            f"{describe(node, scope)} aligns corners with scales that do not divide the sizes: "
            "ONNX's specification and ONNX Runtime give different results; give `sizes` instead"
        )
    if options.mode != "nearest" and dtype not in _FLOATS:
        raise ModelError(
            f"{describe(node, scope)} interpolates integers in a form that TVM gets wrong; cast "
            "to float32 first"
        )
    inner = x
    if options.mode != "nearest" and dtype != TensorProto.DOUBLE:
        inner = new.add("Cast", [x], to=TensorProto.FLOAT)
    kind = np.float64 if dtype == TensorProto.DOUBLE else np.float32
    for axis in changed:
        if options.mode == "nearest":
            indices = new.constant(_nearest_indices(axis, options))
            inner = new.add("Gather", [inner, indices], axis=axis.index)
        else:
            inner = _multiply(
                new, inner, _matrix(axis, options).astype(kind), axis, len(shape or ())
            )
    if options.mode != "nearest" and dtype != TensorProto.DOUBLE:
        new.add("Cast", [inner], output, to=dtype)
    else:
        new.add("Identity", [inner], output)


def _multiply(new: Replacement, x: str, matrix: np.ndarray, axis: _Axis, rank: int) -> str:
    """`matrix` times `x` along one axis."""
    last = rank - 1
    if axis.index == last - 1:
        return new.add("MatMul", [new.constant(matrix), x])
    order = [i for i in range(rank) if i != axis.index] + [axis.index]
    if axis.index != last:
        x = new.add("Transpose", [x], perm=order)
    x = new.add("MatMul", [x, new.constant(np.ascontiguousarray(matrix.T))])
    if axis.index == last:
        return x
    return new.add("Transpose", [x], perm=[int(i) for i in np.argsort(order)])


def _positions(axis: _Axis, options: _Options) -> np.ndarray:
    """Where each output element lies among the input's."""
    y = np.arange(axis.after, dtype=np.float64)
    if options.coordinates == "align_corners":
        return np.linspace(0, axis.before - 1 if axis.after > 1 else 0, axis.after)
    if options.coordinates == "asymmetric":
        return np.asarray(y / axis.scale)
    if options.coordinates == "pytorch_half_pixel" and axis.after == 1:
        return np.zeros(1)
    position = (y + 0.5) / axis.scale - 0.5
    if options.coordinates == "half_pixel_symmetric":
        position += axis.before / 2 * (1 - axis.after / (axis.scale * axis.before))
    return np.asarray(position)


_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _nearest_indices(axis: _Axis, options: _Options) -> np.ndarray:
    # Positions a rounding error beside a tie, or a whole number, are meant to be on it.
    position = np.round(_positions(axis, options), 6)
    index = _ROUNDING[options.nearest](position)
    return np.asarray(np.clip(index, 0, axis.before - 1), np.int64)


def _matrix(axis: _Axis, options: _Options) -> np.ndarray:
    """The weights of the input's elements, a row for each element of the output."""
    linear = options.mode == "linear"
    kernel, reach = _triangle if linear else _cubic(options.cubic), 1 if linear else _CUBIC_REACH
    shrink = min(axis.scale, 1.0) if options.antialias else 1.0
    position = _positions(axis, options)
    width = int(np.ceil(reach / shrink))
    taps = np.floor(position)[:, None] + np.arange(1 - width, width + 1)
    weights = kernel((taps - position[:, None]) * shrink)
    outside = (taps < 0) | (taps > axis.before - 1)
    if options.exclude_outside:
        weights = np.where(outside, 0.0, weights)
    weights /= weights.sum(1, keepdims=True)
    rows = np.broadcast_to(np.arange(axis.after)[:, None], taps.shape)
    matrix = np.zeros((axis.after, axis.before))
    np.add.at(matrix, (rows, np.clip(taps, 0, axis.before - 1).astype(int)), weights)
    return matrix


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(1 - np.abs(x), 0))


def _cubic(a: float) -> Callable[[np.ndarray], np.ndarray]:
    def kernel(x: np.ndarray) -> np.ndarray:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < _CUBIC_REACH, far, 0.0))

    return kernel
