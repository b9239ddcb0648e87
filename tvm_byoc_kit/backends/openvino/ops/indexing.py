"""Gathering and scattering by indices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.openvino.ops.table import Entry, tensor
from tvm_byoc_kit.backends.openvino.opset import element_type, integers, opset, scalar
from tvm_byoc_kit.backends.openvino.predicates import (
    ANY,
    FLOAT,
    INT,
    constant_numbers,
    dims,
    dtypes,
    unless,
)

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.ops.table import Predicate, Table
    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op

__all__ = ["TABLE"]


def _take(op: Op, x: Node, indices: Node) -> Node:
    axis = (op.attrs["axis"] or 0) % len(tensor(op).shape)  # None: data of one axis
    if op.attrs["mode"] == "clip":
        indices = _clipped(op, x, indices, axis)
    elif op.attrs["mode"] == "wrap":
        indices = _wrapped(op, indices, axis)
    return opset.gather(x, indices, integers(axis))


def _wrapped(op: Op, indices: Node, axis: int) -> Node:
    """The indices modulo the size; twice, since OpenVINO divides integers as ``float32``.

    What the first division leaves is so small that the second is exact.
    """
    dtype, size = tensor(op, 1).dtype, int(tensor(op).shape[axis])
    for _ in range(2):
        ratio = opset.divide(
            opset.convert(indices, element_type("float32")), scalar(size, "float32")
        )
        turns = opset.convert(opset.floor(ratio), element_type(dtype))
        indices = opset.subtract(indices, opset.multiply(turns, scalar(size, dtype)))
    return indices


def _clipped(op: Op, x: Node, indices: Node, axis: int) -> Node:
    dtype = tensor(op, 1).dtype
    size = opset.gather(opset.shape_of(x), integers(axis), integers(0))
    last = opset.convert_like(opset.subtract(size, integers(1)), indices)
    return opset.minimum(opset.maximum(indices, scalar(0, dtype)), last)


def _gather_elements(op: Op, x: Node, indices: Node) -> Node:
    return opset.gather_elements(x, indices, op.attrs["axis"] % len(tensor(op).shape))


def _gather_nd(op: Op, x: Node, indices: Node) -> Node:
    return opset.gather_nd(x, indices, op.attrs["batch_dims"])


_REDUCTIONS = {
    "update": "none",
    "add": "sum",
    "mul": "prod",
    "min": "min",
    "max": "max",
    "mean": "mean",
}
_ND_REDUCTIONS = {name: node for name, node in _REDUCTIONS.items() if name != "mean"}


def _scatter_elements(op: Op, x: Node, indices: Node, updates: Node) -> Node:
    axis = integers(op.attrs["axis"] % len(tensor(op).shape))
    reduction = _REDUCTIONS[op.attrs["reduction"]]
    return opset.scatter_elements_update(x, indices, updates, axis, reduction)


def _scatter_nd(op: Op, x: Node, indices: Node, updates: Node) -> Node:
    reduction = _ND_REDUCTIONS[op.attrs["reduction"]]
    return opset.scatter_nd_update(x, indices, updates, reduction)


def _index_tensor(_op: Op, x: Node, indices: tuple[Node, ...]) -> Node:
    """NumPy's ``x[i, j, …]``: the index tensors broadcast to each other."""
    total = indices[0]
    for index in indices[1:]:
        total = opset.add(total, index)
    shape = opset.shape_of(total)
    axis = integers(-1)
    columns = [opset.unsqueeze(opset.broadcast(index, shape), axis) for index in indices]
    return opset.gather_nd(x, opset.concat(columns, -1))


def _one_hot(op: Op, indices: Node, on: float, off: float) -> Node:
    dtype = op.results[0].dtype
    depth = integers(op.attrs["depth"])
    rank = len(op.results[0].shape)
    axis = op.attrs["axis"] % rank
    return opset.one_hot(indices, depth, scalar(on, dtype), scalar(off, dtype), axis)


_MOST_WRAPPED = 2**22  # a size of which float32 holds small multiples exactly


def _wraps_inexactly(call: Call) -> bool:
    size = dims(call.args[0])[int(call.attrs.axis or 0)]
    return str(call.attrs.mode) == "wrap" and (size is None or size > _MOST_WRAPPED)


def _reduces_integers(call: Call) -> bool:
    return str(call.attrs.reduction) != "update" and str(call.args[0].ty.dtype) not in FLOAT


def _reduction_is_other(table: dict[str, str]) -> Predicate:
    def check(call: Call) -> bool:
        return str(call.attrs.reduction) not in table

    return unless(check, f"the reduction is none of {', '.join(table)}")


def _index_dtypes_differ(call: Call) -> bool:
    return len({str(field.dtype) for field in call.args[1].ty.fields}) > 1


def _scattered(table: dict[str, str]) -> tuple[Predicate, ...]:
    return (
        dtypes(ANY),
        dtypes(INT, operand=1),
        _reduction_is_other(table),
        unless(_reduces_integers, "OpenVINO reduces integers as float32"),
    )


_GATHERED = (dtypes(ANY), dtypes(INT, operand=1))

TABLE: Table = {
    "relax.take": Entry(
        _take,
        (*_GATHERED, unless(_wraps_inexactly, "wraps around an axis of symbolic or great size")),
        (2,),
    ),
    "relax.gather_elements": Entry(_gather_elements, _GATHERED, (2,)),
    "relax.gather_nd": Entry(_gather_nd, _GATHERED, (2,)),
    "relax.scatter_elements": Entry(_scatter_elements, _scattered(_REDUCTIONS), (3,)),
    "relax.scatter_nd": Entry(_scatter_nd, _scattered(_ND_REDUCTIONS), (3,)),
    "relax.index_tensor": Entry(
        _index_tensor,
        (*_GATHERED, unless(_index_dtypes_differ, "the indices are of two dtypes")),
        (2,),
    ),
    "relax.one_hot": Entry(_one_hot, (dtypes(INT, operand=0), constant_numbers), (3,)),
}
