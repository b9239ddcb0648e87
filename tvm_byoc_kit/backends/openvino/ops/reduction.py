"""Reductions, sums along an axis, searches, sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, tensor
from tvm_byoc_kit.backends.openvino.opset import element_type, integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    ANY,
    BYTE,
    FLOAT,
    INT,
    dtypes,
    has_symbolic_axis,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Converter, Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _rank(op: Op) -> int:
    return len(tensor(op).shape)


def _axis_list(op: Op) -> list[int]:
    axes, rank = op.attrs["axis"], _rank(op)
    return list(range(rank)) if axes is None else sorted(axis % rank for axis in axes)


def _axes(op: Op) -> Node:
    return integers(_axis_list(op))


def _reduced(name: str) -> Converter:
    def convert(op: Op, x: Node) -> Node:
        return getattr(opset, name)(x, _axes(op), op.attrs["keepdims"])

    return convert


def _sum(op: Op, x: Node) -> Node:
    """Of integers by the running sum, which OpenVINO computes in integers, unlike the sum."""
    if op.results[0].dtype not in INT:
        return _reduced("reduce_sum")(op, x)
    axes = _axis_list(op)
    for axis in axes:
        running = opset.cum_sum(x, integers(axis))
        x = opset.gather(running, integers([-1]), integers(axis))
    return x if op.attrs["keepdims"] else opset.squeeze(x, integers(axes))


_HALF = 65536


def _extreme(name: str) -> Converter:
    """The largest or smallest; of integers by their upper bits, then by what is left.

    OpenVINO reduces as ``float32``. The upper bits may be one off, which keeps the order; these
    and the rest are small enough for ``float32``.
    """

    def convert(op: Op, x: Node) -> Node:
        dtype = op.results[0].dtype
        if dtype not in INT:
            return _reduced(name)(op, x)
        reduce, axes = getattr(opset, name), _axes(op)
        half, rough = scalar(_HALF, dtype), opset.convert(x, element_type("float32"))
        upper = opset.floor(opset.divide(rough, scalar(_HALF, "float32")))
        chosen = reduce(upper, axes, keep_dims=True)
        rest = opset.subtract(x, opset.multiply(opset.convert(upper, element_type(dtype)), half))
        out = scalar(-2 * _HALF if name == "reduce_max" else 2 * _HALF, dtype)
        rest = reduce(opset.select(opset.equal(upper, chosen), rest, out), axes, keep_dims=True)
        found = opset.add(opset.multiply(opset.convert(chosen, element_type(dtype)), half), rest)
        return found if op.attrs["keepdims"] else opset.squeeze(found, axes)

    return convert


def _variance(op: Op, x: Node) -> Node:
    axes = _axes(op)
    deviation = opset.subtract(x, opset.reduce_mean(x, axes, keep_dims=True))
    return opset.reduce_mean(opset.multiply(deviation, deviation), axes, op.attrs["keepdims"])


def _flat(x: Node) -> Node:
    return opset.reshape(x, integers([-1]), special_zero=False)


def _cumulative_sum(op: Op, x: Node) -> Node:
    axis = op.attrs["axis"]
    x, axis = (_flat(x), 0) if axis is None else (x, axis % _rank(op))
    x = opset.convert(x, element_type(op.results[0].dtype))
    return opset.cum_sum(x, integers(axis), exclusive=bool(op.attrs["exclusive"]))


def _top(x: Node, count: int, axis: int, mode: str) -> tuple[Node, Node]:
    """Values and ``int64`` places of the first `count`, sorted; of equal ones the first counts."""
    found = opset.topk(x, integers(count), axis, mode, "value", "i64", stable=True)
    return found.output(0), found.output(1)


def _extreme_place(mode: str) -> Converter:
    def convert(op: Op, x: Node) -> Node:
        axis, keep = op.attrs["axis"], op.attrs["keepdims"]
        if axis is not None:
            _, places = _top(x, 1, axis % _rank(op), mode)
            return places if keep else opset.squeeze(places, integers([axis % _rank(op)]))
        _, places = _top(_flat(x), 1, 0, mode)
        shape = [1] * _rank(op) if keep else []
        return opset.reshape(places, integers(shape), special_zero=False)

    return convert


def _top_k(op: Op, x: Node) -> list[Node]:
    axis = op.attrs["axis"] % _rank(op)
    count = op.attrs["k"] if op.attrs["k"] >= 1 else _size(op, axis)
    values, places = _top(x, count, axis, "max" if op.attrs["largest"] else "min")
    kind = op.attrs["ret_type"]
    chosen = {"both": [values, places], "values": [values], "indices": [places]}[kind]
    if kind != "values":
        chosen[-1] = opset.convert(chosen[-1], element_type(op.results[-1].dtype))
    return chosen


def _size(op: Op, axis: int) -> int:
    return int(tensor(op).shape[axis])


def _sorted(op: Op, x: Node) -> tuple[Node, Node]:
    axis = op.attrs["axis"] % _rank(op)
    return _top(x, _size(op, axis), axis, "max" if op.attrs["descending"] else "min")


def _argsort(op: Op, x: Node) -> Node:
    return opset.convert(_sorted(op, x)[1], element_type(op.results[0].dtype))


def _reduces_nothing(call: Call) -> bool:
    return call.attrs.axis is not None and len(call.attrs.axis) == 0


def _takes_all_of_symbolic_axis(call: Call) -> bool:
    return int(call.attrs.k) < 1 and has_symbolic_axis(call)


_SOME_AXIS = unless(_reduces_nothing, "reduces no axis")
_REDUCED = (dtypes(FLOAT, "OpenVINO reduces integers as float32"), _SOME_AXIS)
_SUMMED = (dtypes(FLOAT | INT, "OpenVINO saturates integers of 8 bits"), _SOME_AXIS)
_ORDERED = dtypes(FLOAT | INT | BYTE)
_SORTED = (_ORDERED, unless(has_symbolic_axis, "the size of the sorted axis is symbolic"))

TABLE: Table = {
    "relax.sum": Entry(_sum, _SUMMED),
    "relax.mean": Entry(_reduced("reduce_mean"), _REDUCED),
    "relax.prod": Entry(_reduced("reduce_prod"), _REDUCED),
    "relax.max": Entry(_extreme("reduce_max"), (_ORDERED, _SOME_AXIS)),
    "relax.min": Entry(_extreme("reduce_min"), (_ORDERED, _SOME_AXIS)),
    "relax.variance": Entry(_variance, _REDUCED),
    "relax.std": Entry(lambda op, x: opset.sqrt(_variance(op, x)), _REDUCED),
    "relax.cumsum": Entry(_cumulative_sum, (dtypes(ANY - BYTE),)),
    "relax.argmax": Entry(_extreme_place("max"), (_ORDERED,)),
    "relax.argmin": Entry(_extreme_place("min"), (_ORDERED,)),
    "relax.topk": Entry(
        _top_k,
        (_ORDERED, unless(_takes_all_of_symbolic_axis, "takes all of an axis of symbolic size")),
    ),
    "relax.sort": Entry(lambda op, x: _sorted(op, x)[0], _SORTED),
    "relax.argsort": Entry(_argsort, _SORTED),
}
