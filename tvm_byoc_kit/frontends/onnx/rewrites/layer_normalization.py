"""LayerNormalization's outputs Mean and InvStdDev, and scales that are broadcast.

TVM's converter gives the scalar 0 for both outputs, and takes the number of normalized axes from
the scale's rank.
"""

from __future__ import annotations

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

_AXES_ARE_INPUTS = 18
_EPSILON = 1e-5


@replaces("LayerNormalization")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Write out the statistics where the model uses them, and the whole where TVM errs."""
    shape = scope.shape(node.input[0])
    statistics = any(node.output[1:])
    if shape is None:
        raise ModelError(
            f"{describe(node, scope)} has an input of unknown rank; give its shape with "
            "load_model(..., shapes=...)"
        )
    axis = int(attributes_of(node).get("axis", -1)) % len(shape)
    matching = all(_fits(scope.shape(name), shape[axis:]) for name in node.input[1:3] if name)
    if matching and not statistics:
        return False
    centred, inverse = _statistics(node, scope, new, list(range(axis, len(shape))))
    if matching:
        _keep(node, new)
    else:
        _normalize(node, scope, new, centred, inverse)
    return True


def _fits(found: tuple[int | str | None, ...] | None, wanted: tuple[int | str | None, ...]) -> bool:
    """Whether a scale or bias has the normalized shape, as far as that is known."""
    if found is None or len(found) != len(wanted):
        return False
    return all(
        a == b or (a != 1 and not isinstance(b, int)) for a, b in zip(found, wanted, strict=True)
    )


def _statistics(
    node: onnx.NodeProto, scope: Scope, new: Replacement, axes: list[int]
) -> tuple[str, str]:
    """The centred input and 1 / standard deviation, both in the stash type."""
    said = attributes_of(node)
    stash = int(said.get("stash_type", TensorProto.FLOAT))
    if scope.dtype(node.input[0]) == TensorProto.DOUBLE:
        stash = TensorProto.DOUBLE
    kind = onnx.helper.tensor_dtype_to_np_dtype(stash)
    names = [*node.output, "", ""][1:3]
    x = new.add("Cast", [node.input[0]], to=stash)
    mean = _mean(scope, new, x, axes, names[0])
    centred = new.add("Sub", [x, mean])
    variance = _mean(scope, new, new.add("Mul", [centred, centred]), axes)
    epsilon = new.constant(said.get("epsilon", _EPSILON), kind)
    deviation = new.add("Sqrt", [new.add("Add", [variance, epsilon])])
    return centred, new.add("Reciprocal", [deviation], names[1] or None)


def _mean(scope: Scope, new: Replacement, x: str, axes: list[int], output: str = "") -> str:
    if scope.opset >= _AXES_ARE_INPUTS:
        return new.add("ReduceMean", [x, new.constant(axes)], output or None, keepdims=1)
    return new.add("ReduceMean", [x], output or None, axes=axes, keepdims=1)


def _keep(node: onnx.NodeProto, new: Replacement) -> None:
    kept = onnx.NodeProto.FromString(node.SerializeToString())
    del kept.output[1:]
    new.nodes.append(kept)


def _normalize(
    node: onnx.NodeProto, scope: Scope, new: Replacement, centred: str, inverse: str
) -> None:
    dtype = scope.dtype(node.input[0])
    y = new.add("Cast", [new.add("Mul", [centred, inverse])], to=dtype)
    _, scale, bias = [*node.input, ""][:3]
    y = new.add("Mul", [y, scale], None if bias else node.output[0])
    if bias:
        new.add("Add", [y, bias], node.output[0])
