"""What one entry of the operator table is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Op, Value

    Predicate = Callable[[Call], str | None]
    Converter = Callable[..., Node | list[Node]]

__all__ = ["Entry", "Table", "same", "tensor"]


@dataclass(frozen=True)
class Entry:
    """How one Relax operator becomes OpenVINO nodes.

    Parameters
    ----------
    convert : callable
        Gets the :class:`~tvm_byoc_kit.graph.Op` and its operands: a node for a tensor, a node of
        ``i64[rank]`` for a shape, a tuple of nodes for a tuple, numbers as they are. Gives one node
        for each result.
    predicates : tuple of callable
        Asked in their order; the first reason counts.
    operands : tuple of int
        How many operands the operator may have.
    """

    convert: Converter
    predicates: tuple[Predicate, ...]
    operands: tuple[int, ...] = (1,)


Table = dict[str, Entry]


def same(name: str) -> Converter:
    """A converter to the OpenVINO operator `name`: of the same operands, without attributes."""

    def convert(_op: Op, *operands: Any) -> Node:
        from tvm_byoc_kit.backends.openvino.opset import opset

        return getattr(opset, name)(*operands)

    return convert


def tensor(op: Op, number: int = 0) -> Value:
    """The tensor that is one of the operands of `op`."""
    return cast("Value", op.operands[number])
