"""Indexing by tensors: PyTorch's rules in terms of one `take` or one `scatter_elements`.

Indexed axes are moved to the front and flattened into one, which the index tensors address
together.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from tvm import relax

if TYPE_CHECKING:
    from torch import fx


def convert_index(importer: Any, node: fx.Node) -> Any:
    """``aten.index.Tensor``.

    In the result the axes of the index stand where the indexed axes did when these are neighbours,
    and else in front.
    """
    data, indices = importer.retrieve_args(node)
    plan = _Plan.of(importer, data, indices)
    emit = importer.block_builder.emit
    if len(plan.axes) == 1:
        return relax.op.take(data, plan.indices[0], axis=plan.axes[0])
    flat = plan.flattened(data)
    taken = emit(relax.op.take(flat, plan.position(), axis=0))
    shape = [*plan.index_shape, *plan.rest_shape]
    taken = emit(relax.op.reshape(taken, shape))
    if not plan.are_neighbours:
        return taken
    rank, before = len(plan.index_shape), plan.axes[0]
    order = [
        *range(rank, rank + before),
        *range(rank),
        *range(rank + before, rank + len(plan.rest_shape)),
    ]
    return relax.op.permute_dims(taken, order)


def convert_index_put(importer: Any, node: fx.Node) -> Any:
    """``aten.index_put``; where an element is addressed twice, PyTorch promises neither value."""
    data, indices, values, *rest = importer.retrieve_args(node)
    accumulate = bool(rest and rest[0]) or bool(node.kwargs.get("accumulate", False))
    plan = _Plan.of(importer, data, indices)
    emit = importer.block_builder.emit
    count, width = prod(plan.index_shape), prod(plan.rest_shape)
    values = plan.spread(values)
    values = emit(relax.op.reshape(values, [count, width]))
    position = emit(relax.op.reshape(plan.position(), [count, 1]))
    position = emit(relax.op.broadcast_to(position, [count, width]))
    flat = emit(relax.op.reshape(plan.flattened(data), [prod(plan.indexed_shape), width]))
    scattered = emit(
        relax.op.scatter_elements(
            flat, position, values, axis=0, reduction="add" if accumulate else "update"
        )
    )
    moved = emit(relax.op.reshape(scattered, [*plan.indexed_shape, *plan.rest_shape]))
    back = [plan.order.index(axis) for axis in range(len(plan.order))]
    return relax.op.permute_dims(moved, back)


@dataclass(frozen=True)
class _Plan:
    """How index tensors address a tensor's axes."""

    importer: Any
    axes: list[int]
    indices: list[Any]
    index_shape: list[int]
    indexed_shape: list[int]
    rest_shape: list[int]
    order: list[int]
    """The indexed axes, then the others."""

    @classmethod
    def of(cls, importer: Any, data: Any, indices: Any) -> _Plan:
        axes = [axis for axis, index in enumerate(indices) if index is not None]
        given = [indices[axis] for axis in axes]
        if any(str(index.ty.dtype.dtype) == "bool" for index in given):
            raise NotImplementedError(
                "the number of elements that a mask selects is not known before the run; use "
                "torch.where"
            )
        shape = _sizes(data)
        others = [axis for axis in range(len(shape)) if axis not in axes]
        return cls(
            importer=importer,
            axes=axes,
            indices=given,
            index_shape=_broadcast([_sizes(index) for index in given]),
            indexed_shape=[shape[axis] for axis in axes],
            rest_shape=[shape[axis] for axis in others],
            order=[*axes, *others],
        )

    @property
    def are_neighbours(self) -> bool:
        return self.axes == list(range(self.axes[0], self.axes[-1] + 1))

    def flattened(self, data: Any) -> Any:
        emit = self.importer.block_builder.emit
        if self.order != sorted(self.order):
            data = emit(relax.op.permute_dims(data, self.order))
        return emit(relax.op.reshape(data, [prod(self.indexed_shape), *self.rest_shape]))

    def position(self) -> Any:
        """Of the addressed elements, in the flattened axes."""
        emit = self.importer.block_builder.emit
        position = None
        for index, size in zip(self.indices, self.indexed_shape, strict=True):
            index = self._from_the_end(emit(relax.op.astype(index, "int64")), size)  # noqa: PLW2901
            if position is None:
                position = index
            else:
                position = emit(relax.op.multiply(position, self._scalar(size)))
                position = emit(relax.op.add(position, index))
        return position

    def _from_the_end(self, index: Any, size: Any) -> Any:
        emit = self.importer.block_builder.emit
        is_negative = emit(relax.op.less(index, relax.const(0, "int64")))
        shifted = emit(relax.op.add(index, self._scalar(size)))
        return emit(relax.op.where(is_negative, shifted, index))

    def _scalar(self, size: Any) -> Any:
        """A size as a tensor of rank 0, also where it is a symbol."""
        if isinstance(size, int):
            return relax.const(size, "int64")
        emit = self.importer.block_builder.emit
        return emit(relax.op.reshape(emit(relax.op.shape_to_tensor(relax.ShapeExpr([size]))), ()))

    def spread(self, values: Any) -> Any:
        """`values` in the shape that the indexing gives, with the index's axes in front."""
        emit = self.importer.block_builder.emit
        rank = len(self.index_shape)
        if not self.are_neighbours:
            return emit(relax.op.broadcast_to(values, [*self.index_shape, *self.rest_shape]))
        before = self.axes[0]
        shape = [*self.rest_shape[:before], *self.index_shape, *self.rest_shape[before:]]
        values = emit(relax.op.broadcast_to(values, shape))
        order = [*range(before, before + rank), *range(before), *range(before + rank, len(shape))]
        return emit(relax.op.permute_dims(values, order))


def _sizes(tensor: Any) -> list[Any]:
    """Sizes of the axes: numbers, and symbols where they are not known."""
    return [getattr(dim, "value", dim) for dim in tensor.ty.shape]


def _broadcast(shapes: list[list[Any]]) -> list[Any]:
    rank = max(map(len, shapes))
    aligned = [[1] * (rank - len(shape)) + shape for shape in shapes]
    return [
        next((size for size in sizes if not (isinstance(size, int) and size == 1)), 1)
        for sizes in zip(*aligned, strict=True)
    ]
