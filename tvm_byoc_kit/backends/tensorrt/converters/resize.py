"""Resizing of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.lengths import length, vector
from tvm_byoc_kit.backends.tensorrt.converters.table import BF16, converter

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op, Shape

# Of trt.InterpolationMode, trt.ResizeCoordinateTransformation and trt.ResizeRoundMode.
_METHODS = {"nearest_neighbor": "NEAREST", "linear": "LINEAR", "cubic": "CUBIC"}
_COORDINATES = {
    "asymmetric": "ASYMMETRIC",
    "align_corners": "ALIGN_CORNERS",
    "half_pixel": "HALF_PIXEL",
    "pytorch_half_pixel": "HALF_PIXEL",
}
_ROUNDINGS = {
    "floor": "FLOOR",
    "ceil": "CEIL",
    "round_prefer_ceil": "HALF_UP",
    "round_prefer_floor": "HALF_DOWN",
}
# These give the first pixel where one is asked for, not what the formula says.
_FIRST_OF_ONE = ("align_corners", "pytorch_half_pixel")


# TensorRT has none of bfloat16.
@converter("relax.image.resize2d", widened=BF16)
def resize2d(net: NetworkBuilder, op: Op, x: Tensor, _size: Shape) -> Tensor:
    """The last two dimensions, to the size of the result."""
    trt, attrs = net.trt, op.attrs
    method, coordinates = attrs["method"], attrs["coordinate_transformation_mode"]
    layer = net.network.add_resize(net.tensor(x))
    layer.resize_mode = getattr(trt.InterpolationMode, _METHODS[method])
    layer.coordinate_transformation = getattr(
        trt.ResizeCoordinateTransformation, _COORDINATES[coordinates]
    )
    if coordinates in _FIRST_OF_ONE:
        layer.selector_for_single_pixel = trt.ResizeSelector.UPPER
    if method == "nearest_neighbor":
        rounding = _ROUNDINGS[attrs["rounding_method"]]
        layer.nearest_rounding = getattr(trt.ResizeRoundMode, rounding)
    if method == "cubic":
        layer.cubic_coeff = attrs["cubic_alpha"]
        layer.exclude_outside = bool(attrs["cubic_exclude"])
    result = op.results[0]
    if result.is_static:
        layer.shape = result.shape
    else:
        kept = [length(net, x, axis) for axis in (0, 1)]
        layer.set_input(1, vector(net, [*kept, *result.shape[2:]]))
    return net.check(layer)
