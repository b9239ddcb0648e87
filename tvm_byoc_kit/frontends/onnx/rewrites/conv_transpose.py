"""ConvTranspose with `output_shape`, which TVM's converter does not look at: as pads."""

from __future__ import annotations

import onnx
from onnx import helper

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    describe,
    replaces,
)

__all__ = ["rewrite"]


@replaces("ConvTranspose")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Give every ConvTranspose of a wanted output shape the pads that lead to it."""
    said = attributes_of(node)
    wanted = said.get("output_shape")
    if not wanted:
        return False
    x, weight = scope.static_shape(node.input[0]), scope.static_shape(node.input[1])
    if x is None or weight is None:
        raise ModelError(
            f"{describe(node, scope)} has the attribute output_shape, whose pads depend on the "
            "input's size: fix it with load_model(..., shapes=...)"
        )
    rank = len(x) - 2
    strides, dilations = said.get("strides", [1] * rank), said.get("dilations", [1] * rank)
    extra = list(said.get("output_padding", [0] * rank))
    upper = said.get("auto_pad", b"NOTSET") == b"SAME_UPPER"
    before, after = [], []
    for axis in range(rank):
        full = strides[axis] * (x[axis + 2] - 1) + (weight[axis + 2] - 1) * dilations[axis] + 1
        total = full + extra[axis] - wanted[axis - rank]
        if total < 0:  # the rest is filled behind, as output_padding does
            extra[axis] -= total
            total = 0
        half = total // 2
        before.append(half if upper else total - half)
        after.append(total - before[-1])
    if any(size >= max(s, d) for size, s, d in zip(extra, strides, dilations, strict=True)):
        raise ModelError(
            f"{describe(node, scope)} asks for the output shape {list(wanted)}, larger than its "
            "strides can give; pad the result instead"
        )
    replaced = onnx.NodeProto.FromString(node.SerializeToString())
    del replaced.attribute[:]
    kept = {k: v for k, v in said.items() if k not in ("output_shape", "auto_pad", "pads")}
    kept |= {"pads": before + after, "output_padding": extra}
    replaced.attribute.extend(helper.make_attribute(key, value) for key, value in kept.items())
    new.nodes.append(replaced)
    return True
