"""Einsum of two operands as a MatMul, which backends and the proof of independent rows know.

TVM's importer writes a loop for it that no pattern matches.
"""

from __future__ import annotations

import re

import onnx
from onnx import TensorProto

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    attributes_of,
    replaces,
)
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter

__all__ = ["rewrite"]

_FORM = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]*)")


@replaces("Einsum")
def rewrite(node: onnx.NodeProto, scope: Scope, new: Replacement) -> bool:
    """Replace every Einsum that is a product of matrices."""
    form = _FORM.fullmatch(attributes_of(node)["equation"].decode().replace(" ", ""))
    if form is None:
        return False
    first, second, result = form.groups()
    letters = set(first + second)
    alone = set(first) ^ set(second)
    repeats = any(len(set(term)) != len(term) for term in form.groups())
    if repeats or not set(result) <= letters or not alone <= set(result):
        return False
    emit = Emitter(new, scope.opset, TensorProto.UNDEFINED)
    _write(emit, node, (first, second, result))
    return True


def _write(emit: Emitter, node: onnx.NodeProto, terms: tuple[str, str, str]) -> None:
    first, second, result = terms
    batch = [letter for letter in result if letter in first and letter in second]
    summed = "".join(letter for letter in first if letter not in result)
    # Of the letters in one operand alone the last is the matrix's, others are axes before it.
    *more_rows, row = [letter for letter in result if letter not in second] or [""]
    *more_columns, column = [letter for letter in result if letter not in first] or [""]
    before = [*batch, *more_rows, *more_columns]
    if not summed:
        pairs = zip(node.input, (first, second), strict=True)
        factors = (_arranged(emit, x, term, [*result]) for x, term in pairs)
        emit("Mul", *factors, output=node.output[0])
        return
    left = _arranged(emit, node.input[0], first, [*before, row, summed])
    if len(summed) > 1:
        right = _arranged(emit, node.input[1], second, [*before, column, summed])
        right = _transposed(emit, right, [*range(len(before)), len(before) + 1, len(before)])
    else:
        right = _arranged(emit, node.input[1], second, [*before, summed, column])
    product = emit("MatMul", left, right)
    if not column:
        product = emit.squeeze(product, len(before) + 1)
    if not row:
        product = emit.squeeze(product, len(before))
    made = "".join([*before, row, column])
    _transposed(emit, product, [made.index(letter) for letter in result], node.output[0])


def _arranged(emit: Emitter, x: str, term: str, axes: list[str]) -> str:
    """`x` with an axis for each of `axes`: the letters that it joins, the last one's, or none."""
    order = [letter for letter in "".join(axes) if letter in term]
    x = _transposed(emit, x, [term.index(letter) for letter in order])
    if len(axes[-1]) > 1:
        x = emit.reshape(x, [0] * (len(order) - len(axes[-1])) + [-1])
    missing = [not set(letters) & set(term) for letters in axes]
    leading = min(missing.index(False), max(len(axes) - 2, 0))  # those are broadcast
    for axis in range(leading, len(axes)):
        if missing[axis]:
            x = emit.unsqueeze(x, axis - leading)
    return x


def _transposed(emit: Emitter, x: str, perm: list[int], output: str | None = None) -> str:
    if perm != sorted(perm):
        return emit("Transpose", x, output=output, perm=perm)
    return x if output is None else emit("Identity", x, output=output)
