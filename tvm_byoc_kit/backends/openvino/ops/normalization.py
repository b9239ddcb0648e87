"""Normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry
from tvm_byoc_kit.backends.openvino.opset import integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    FLOAT,
    dtypes,
    same_dtype,
    trailing_axes,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _rank(op: Op) -> int:
    return len(op.results[0].shape)


def _axes(op: Op) -> list[int]:
    return sorted(axis % _rank(op) for axis in op.attrs["axes"])


def _standardized(op: Op, x: Node, axes: list[int]) -> Node:
    return opset.mvn(x, integers(axes), True, op.attrs["epsilon"], "inside_sqrt")


def _scaled(op: Op, x: Node, gamma: Node, beta: Node) -> Node:
    x = opset.multiply(x, gamma) if op.attrs["scale"] else x
    return opset.add(x, beta) if op.attrs["center"] else x


def _layer_norm(op: Op, x: Node, gamma: Node, beta: Node) -> Node:
    return _scaled(op, _standardized(op, x, _axes(op)), gamma, beta)


def _by_channel(op: Op, weights: Node) -> Node:
    shape = [1, -1, *[1] * (_rank(op) - 2)]
    return opset.reshape(weights, integers(shape), special_zero=False)


def _instance_norm(op: Op, x: Node, gamma: Node, beta: Node) -> Node:
    normal = _standardized(op, x, _axes(op))
    return _scaled(op, normal, _by_channel(op, gamma), _by_channel(op, beta))


def _group_norm(op: Op, x: Node, gamma: Node, beta: Node) -> Node:
    groups, epsilon = op.attrs["num_groups"], op.attrs["epsilon"]
    return opset.group_normalization(x, gamma, beta, groups, epsilon)


def _rms_norm(op: Op, x: Node, weights: Node) -> Node:
    dtype = op.results[0].dtype
    mean = opset.reduce_mean(opset.multiply(x, x), integers(_axes(op)), keep_dims=True)
    root = opset.sqrt(opset.add(mean, scalar(op.attrs["epsilon"], dtype)))
    return opset.multiply(opset.divide(x, root), weights)


def _batch_norm(op: Op, x: Node, *rest: Node) -> list[Node]:
    """All three results, since no pattern can end in one of them; the statistics stay."""
    gamma, beta, mean, variance = rest
    normal = opset.batch_norm_inference(x, gamma, beta, mean, variance, op.attrs["epsilon"])
    return [normal, mean, variance]


def _channels_are_elsewhere(call: Call) -> bool:
    return bool(int(call.attrs.channel_axis) % call.args[0].ty.ndim != 1)


def _leaves_axes(call: Call) -> bool:
    rank = call.args[0].ty.ndim
    return sorted(int(axis) % rank for axis in call.attrs.axes) != list(range(2, rank))


def _axis_is_not_one(call: Call) -> bool:
    return bool(int(call.attrs.axis) % call.args[0].ty.ndim != 1)


def _trains(call: Call) -> bool:
    return bool(call.attrs.training)


def _is_bare(call: Call) -> bool:
    return not (call.attrs.scale and call.attrs.center)


_FLOATS = (dtypes(FLOAT), same_dtype)
_BY_CHANNEL = (
    *_FLOATS,
    unless(_channels_are_elsewhere, "OpenVINO has channels on axis 1"),
    unless(_leaves_axes, "does not normalize all axes after the channels, as OpenVINO does"),
)

TABLE: Table = {
    "relax.nn.layer_norm": Entry(_layer_norm, (*_FLOATS, trailing_axes), (3,)),
    "relax.nn.rms_norm": Entry(_rms_norm, (*_FLOATS, trailing_axes), (2,)),
    "relax.nn.instance_norm": Entry(_instance_norm, _BY_CHANNEL, (3,)),
    "relax.nn.group_norm": Entry(
        _group_norm, (*_BY_CHANNEL, unless(_is_bare, "is without scale or center")), (3,)
    ),
    "relax.nn.batch_norm": Entry(
        _batch_norm,
        (
            *_FLOATS,
            unless(_trains, "computes the statistics, in training mode"),
            unless(_axis_is_not_one, "OpenVINO has channels on axis 1"),
            unless(_is_bare, "is without scale or center"),
        ),
        (5,),
    ),
}
