"""RoiAlign with half-pixel coordinates: TVM's converter takes the half off before it scales."""

from __future__ import annotations

import onnx
from onnx import helper

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    replaces,
)

__all__ = ["rewrite"]

_HALF_PIXEL_SINCE = 16


@replaces("RoiAlign")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Scale the regions first, where both matter."""
    said = attributes_of(node)
    default = b"half_pixel" if scope.opset >= _HALF_PIXEL_SINCE else b"output_half_pixel"
    scale = said.get("spatial_scale", 1.0)
    if said.get("coordinate_transformation_mode", default) != b"half_pixel" or scale == 1:
        return False
    kind = helper.tensor_dtype_to_np_dtype(scope.dtype(node.input[1]) or onnx.TensorProto.FLOAT)
    rois = new.add("Mul", [node.input[1], new.constant(scale, kind)])
    scaled = onnx.NodeProto.FromString(node.SerializeToString())
    scaled.input[1] = rois
    del scaled.attribute[:]
    kept = {**said, "spatial_scale": 1.0}
    scaled.attribute.extend(helper.make_attribute(key, value) for key, value in kept.items())
    new.nodes.append(scaled)
    return True
