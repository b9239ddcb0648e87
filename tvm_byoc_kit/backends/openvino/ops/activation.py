"""Activations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, same
from tvm_byoc_kit.backends.openvino.opset import integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import BYTE, FLOAT, INT, dtypes, same_dtype

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.openvino.ops.table import Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]

# Where exp(x) is so far above 1 that log(1 + exp(x)) is x, in float32.
_SOFTPLUS_IS_LINEAR = 20.0


def _leaky_relu(op: Op, x: Node) -> Node:
    return opset.prelu(
        x, opset.unsqueeze(scalar(op.attrs["alpha"], op.results[0].dtype), integers(0))
    )


def _prelu(op: Op, x: Node, slope: Node) -> Node:
    """The slopes belong to one axis, OpenVINO's to axis 1 unless they have the rank of the data."""
    rank = len(op.results[0].shape)
    shape = [1] * rank
    shape[op.attrs["axis"] % rank] = -1
    return opset.prelu(x, opset.reshape(slope, integers(shape), special_zero=False))


def _selu(op: Op, x: Node) -> Node:
    dtype = op.results[0].dtype
    return opset.selu(x, scalar(1.6732632423543772, dtype), scalar(1.0507009873554805, dtype))


def _softplus(op: Op, x: Node) -> Node:
    dtype, beta, threshold = op.results[0].dtype, op.attrs["beta"], op.attrs["threshold"]
    scaled = x if beta == 1 else opset.multiply(x, scalar(beta, dtype))
    curve = opset.softplus(scaled)
    curve = curve if beta == 1 else opset.divide(curve, scalar(beta, dtype))
    if threshold >= _SOFTPLUS_IS_LINEAR:
        return curve
    return opset.select(opset.greater(scaled, scalar(threshold, dtype)), x, curve)


def _softmax(op: Op, x: Node) -> Node:
    return opset.softmax(x, op.attrs["axis"] % len(op.results[0].shape))


def _log_softmax(op: Op, x: Node) -> Node:
    return opset.log_softmax(x, op.attrs["axis"] % len(op.results[0].shape))


_FLOATS = (dtypes(FLOAT), same_dtype)

TABLE: Table = {
    "relax.nn.relu": Entry(same("relu"), (dtypes(FLOAT | INT | BYTE), same_dtype)),
    "relax.nn.silu": Entry(lambda op, x: opset.swish(x, scalar(1, op.results[0].dtype)), _FLOATS),
    "relax.nn.gelu": Entry(lambda _op, x: opset.gelu(x, "erf"), _FLOATS),
    "relax.nn.gelu_tanh": Entry(lambda _op, x: opset.gelu(x, "tanh"), _FLOATS),
    "relax.nn.leakyrelu": Entry(_leaky_relu, _FLOATS),
    "relax.nn.prelu": Entry(_prelu, _FLOATS, (2,)),
    "relax.nn.selu": Entry(_selu, _FLOATS),
    "relax.nn.softplus": Entry(_softplus, _FLOATS),
    "relax.nn.softmax": Entry(_softmax, _FLOATS),
    "relax.nn.log_softmax": Entry(_log_softmax, _FLOATS),
}
