"""Softplus and Mish without the digits that ``log(1 + exp(x))`` loses for negative x.

``log(1 + z) = log(u) z / (u - 1)`` with ``u = 1 + z`` as rounded, and z where u is 1 (Goldberg,
What Every Computer Scientist Should Know About Floating-Point Arithmetic, theorem 4).
``tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2)`` for ``e = exp(x)``; from a limit on, that is 1 in
the type at hand, and above it e would overflow.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from tvm_byoc_kit.frontends.onnx.graph_tools import Replacement, Scope, replaces

__all__ = ["rewrite"]

# exp(limit) ** 2 is in range, and 2 / exp(limit) ** 2 below half a unit in the last place of 1.
_LIMITS = {TensorProto.FLOAT: 20.0, TensorProto.DOUBLE: 40.0, TensorProto.FLOAT16: 5.0}


@replaces("Softplus", "Mish")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every Softplus and Mish of a float type that TVM computes in."""
    dtype = scope.dtype(node.input[0])
    if dtype not in _LIMITS:
        return False
    if node.op_type == "Mish":
        _write_mish(node, new, dtype)
    else:
        _write_softplus(node, new, dtype)
    return True


def _write_softplus(node: onnx.NodeProto, new: Replacement, dtype: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    zero, one = new.constant(0, kind), new.constant(1, kind)
    x = node.input[0]
    z = new.add("Exp", [new.add("Neg", [new.add("Abs", [x])])])
    u = new.add("Add", [one, z])
    is_one = new.add("Equal", [u, one])
    rounded = new.add("Where", [is_one, one, new.add("Sub", [u, one])])
    quotient = new.add("Div", [new.add("Mul", [new.add("Log", [u]), z]), rounded])
    log1p = new.add("Where", [is_one, z, quotient])
    positive = new.add("Where", [new.add("Less", [x, zero]), zero, x])
    new.add("Add", [positive, log1p], node.output[0])


def _write_mish(node: onnx.NodeProto, new: Replacement, dtype: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    limit, two = new.constant(_LIMITS[dtype], kind), new.constant(2, kind)
    x = node.input[0]
    below = new.add("Where", [new.add("Greater", [x, limit]), limit, x])
    power = new.add("Exp", [below])
    product = new.add("Mul", [power, new.add("Add", [power, two])])
    ratio = new.add("Div", [product, new.add("Add", [product, two])])
    new.add("Mul", [x, ratio], node.output[0])
