"""Resizing of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry
from tvm_byoc_kit.backends.openvino.opset import integers, opset
from tvm_byoc_kit.backends.openvino.predicates import (
    FLOAT,
    dtypes,
    plain_layouts,
    same_dtype,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]

_METHODS = {"nearest_neighbor": "nearest", "linear": "linear_onnx", "cubic": "cubic"}
_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_ROUNDING = {
    "round": "round_prefer_ceil",
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
    "floor": "floor",
    "ceil": "ceil",
}


def _rounding(method: str, coordinates: str) -> str:
    """TVM's own choice where none is named: what neither loses nor shifts a corner."""
    return method or ("round" if coordinates == "align_corners" else "floor")


def _resize(op: Op, x: Node, size: Node) -> Node:
    attrs = op.attrs
    layout, coordinates = attrs["layout"], attrs["coordinate_transformation_mode"]
    return opset.interpolate(
        x,
        size,
        _METHODS[attrs["method"]],
        "sizes",
        coordinate_transformation_mode=coordinates,
        nearest_mode=_ROUNDING[_rounding(attrs["rounding_method"], coordinates)],
        cube_coeff=attrs["cubic_alpha"],
        axes=integers(layout.index(axis) for axis in "HW"),
    )


def _is_other(call: Call) -> bool:
    attrs = call.attrs
    coordinates = str(attrs.coordinate_transformation_mode)
    rounding = _rounding(str(attrs.rounding_method), coordinates)
    return (
        str(attrs.method) not in _METHODS
        or coordinates not in _COORDINATES
        or rounding not in _ROUNDING
        or any(float(bound) != 0 for bound in attrs.roi)
        or (str(attrs.method) == "cubic" and int(attrs.cubic_exclude) != 0)
    )


TABLE: Table = {
    "relax.image.resize2d": Entry(
        _resize,
        (
            dtypes(FLOAT, operand=0),
            same_dtype,
            plain_layouts("layout"),
            unless(
                lambda call: str(call.attrs.layout) != "NCHW",
                "OpenVINO resizes images with channels first",
            ),
            unless(_is_other, "a method, transformation or region that OpenVINO does not have"),
        ),
        (2,),
    ),
}
