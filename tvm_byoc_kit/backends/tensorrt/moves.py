"""What TensorRT cannot run of the ops that move data, and where symbolic sizes go too far.

A reshape of TensorRT keeps a dynamic dimension in its place, or finds one that moved from the
number of elements. Two that moved it cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.operands import equal, shape, static, text
from tvm_byoc_kit.rewriting import array_of

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES"]


def _moved(source: Sequence[Any], target: Sequence[Any]) -> list[Any]:
    """The symbolic dimensions of `target` that `source` has not in the same place."""
    return [
        new
        for old, new in zip_longest(source, target)
        if new is not None and static(new) is None and (old is None or not equal(old, new))
    ]


def _moved_dimensions(call: Call) -> str | None:
    source, target = shape(call.args[0]), shape(call)
    if len(_moved(source, target)) > 1:
        return (
            f"{call.op.name}: {text(source)} to {text(target)}; "
            "TensorRT has one dynamic dimension that moves"
        )
    return None


def _raised_operand(call: Call) -> str | None:
    """Operands of TensorRT's layers have the same rank: a reshape adds leading ones."""
    from tvm import relax

    operands = [arg for arg in call.args if isinstance(arg.ty, relax.TensorType)]
    rank = max(len(shape(arg)) for arg in operands)
    for i, arg in enumerate(operands):
        sizes = shape(arg)
        if len(_moved(sizes, (1,) * (rank - len(sizes)) + sizes)) > 1:
            return (
                f"{call.op.name}: operand {i}, {text(sizes)}, is raised to rank {rank}; "
                "TensorRT has one dynamic dimension that moves"
            )
    return None


def _stacked(call: Call) -> str | None:
    part = call.args[0].fields[0]
    axis = int(call.attrs.axis or 0) % len(shape(call))
    sizes = shape(part)
    if len(_moved(sizes, (*sizes[:axis], 1, *sizes[axis:]))) > 1:
        return (
            f"{call.op.name}: {text(sizes)} along a new axis {axis}; "
            "TensorRT has one dynamic dimension that moves"
        )
    return None


def _flattened(call: Call) -> str | None:
    if call.attrs.axis is None and len(shape(call.args[0])) > 1:
        return f"{call.op.name}: without an axis; TensorRT has one"
    return None


# --- Slices -------------------------------------------------------------------------------------


def _split(call: Call) -> str | None:
    axis, sizes = int(call.attrs.axis), shape(call.args[0])
    if static(sizes[axis]) is None:
        return f"{call.op.name}: axis {axis} of {text(sizes)}; TensorRT slices a fixed size"
    return None


def _computed_bounds(call: Call) -> str | None:
    """The tuples are fixed ones; what is in them may yet be a variable."""
    for name, arg in zip(("axes", "begin", "end", "strides"), call.args[1:], strict=False):
        if any(static(bound) is None for bound in arg.fields):
            return f"{call.op.name}: {name} is computed; TensorRT has fixed numbers"
    return None


def _sliced_symbol(call: Call) -> str | None:
    sizes = shape(call.args[0])
    for axis in (int(axis.value) for axis in call.args[1].fields):
        if static(sizes[axis]) is None:
            return f"{call.op.name}: axis {axis} of {text(sizes)}; TensorRT slices a fixed size"
    return None


def _resized_symbol(call: Call) -> str | None:
    """The slice's size on such an axis would have to be computed from the input's."""
    source, target = shape(call.args[0]), shape(call)
    source = (1,) * (len(target) - len(source)) + source
    for old, new in zip(source, target, strict=True):
        if (static(old) is None or static(new) is None) and not equal(old, new):
            return (
                f"{call.op.name}: {text(source)} to {text(target)}; "
                "only dimensions of fixed size may change"
            )
    return None


def _flipped_symbol(call: Call) -> str | None:
    size = shape(call.args[0])[int(call.attrs.axis)]
    if static(size) is None:
        return f"{call.op.name}: over `{size}`; TensorRT steps back from a fixed end"
    return None


def _broadcast_to_symbol(call: Call) -> str | None:
    """The shape is an operand that does not reach the composite's function."""
    if any(static(size) is None for size in shape(call)):
        return f"{call.op.name}: to {text(shape(call))}; expected fixed sizes"
    return None


_PAD_MODES = ("constant", "reflect", "replicate", "circular")


def _pad_mode(call: Call) -> str | None:
    mode = call.attrs.pad_mode
    if mode not in _PAD_MODES:
        return f"{call.op.name}: pad_mode is {mode}; TensorRT has {', '.join(_PAD_MODES)}"
    return None


def _wide_pad(call: Call) -> str | None:
    """Once around a tensor, and once mirrored, is what PyTorch, ONNX and Relax agree upon."""
    widths = [int(width) for width in call.attrs.pad_width]
    for axis, size in enumerate(shape(call.args[0])):
        most = {"reflect": -1, "circular": 0}.get(call.attrs.pad_mode)
        length = static(size)
        wide = max(widths[2 * axis : 2 * axis + 2])
        if most is not None and wide and (length is None or wide > length + most):
            return (
                f"{call.op.name}: {wide} elements of {call.attrs.pad_mode} padding at an axis of "
                f"{text([size])}; expected at most its own"
            )
    return None


# --- Gathers ------------------------------------------------------------------------------------


def _index_bounds(call: Call) -> str | None:
    """Where Relax would clip or wrap an index, or read beyond the tensor, TensorRT gives 0."""
    sizes = shape(call.args[0])
    at = int(call.attrs.axis or 0) % len(sizes)
    size = static(sizes[at])
    indices = array_of(call.args[1])
    mode = getattr(call.attrs, "mode", "fast")
    if indices is None:
        if mode != "fast":
            return f"{call.op.name}: mode is {mode}; TensorRT has no such check of indices"
        return None
    if indices.min() < 0 or (size is not None and indices.max() >= size):
        return (
            f"{call.op.name}: indices from {indices.min()} to {indices.max()} at an axis of "
            f"{text(sizes[at : at + 1])}; TensorRT has 0 to size - 1"
        )
    return None


def _other_sizes(call: Call) -> str | None:
    data, indices = shape(call.args[0]), shape(call.args[1])
    axis = int(call.attrs.axis) % len(data)
    for i, (one, other) in enumerate(zip(data, indices, strict=True)):
        if i != axis and not equal(one, other):
            return (
                f"{call.op.name}: {text(indices)} indices for {text(data)} along axis {axis}; "
                "TensorRT has the same sizes at the other axes"
            )
    return None


def _batched_positions(call: Call) -> str | None:
    batch = int(call.attrs.batch_dims)
    if batch > 1:
        return f"{call.op.name}: batch_dims is {batch}; TensorRT has 0 and 1"
    if static(shape(call.args[1])[-1]) is None:
        return f"{call.op.name}: positions of unknown length; TensorRT has a fixed one"
    return None


def _position_bounds(call: Call) -> str | None:
    positions, sizes = array_of(call.args[1]), shape(call.args[0])[int(call.attrs.batch_dims) :]
    if positions is None:
        return None
    for axis in range(positions.shape[-1]):
        found, size = positions[..., axis], static(sizes[axis])
        if found.min() < 0 or (size is not None and found.max() >= size):
            return (
                f"{call.op.name}: positions from {found.min()} to {found.max()} at an axis of "
                f"{text(sizes[axis : axis + 1])}; TensorRT has 0 to size - 1"
            )
    return None


# --- Permutations -------------------------------------------------------------------------------


def _no_permutation(call: Call) -> str | None:
    index_map = call.attrs.index_map
    initial, final = list(index_map.initial_indices), list(index_map.final_indices)
    if len(final) != len(initial) or not all(
        sum(index.same_as(axis) for index in final) == 1 for axis in initial
    ):
        return f"{call.op.name}: to {[str(i) for i in final]}; TensorRT has permutations of axes"
    return None


def _dynamic_pixels(call: Call) -> str | None:
    if any(static(size) is None for size in shape(call.args[0])[-3:]):
        return (
            f"{call.op.name}: {text(shape(call.args[0]))}; only leading dimensions may be "
            "symbolic: TensorRT reshapes the others"
        )
    return None


def _cumulative_dtype(call: Call) -> str | None:
    if call.attrs.dtype and str(call.attrs.dtype) != str(call.args[0].ty.dtype):
        return (
            f"{call.op.name}: sums {call.args[0].ty.dtype} as {call.attrs.dtype}; "
            "TensorRT has one dtype"
        )
    return None


_RESHAPES = ("reshape", "flatten", "nn.batch_flatten", "expand_dims", "squeeze")
_BROADCASTING = (
    "add subtract multiply divide power maximum minimum equal not_equal less less_equal greater "
    "greater_equal logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor where "
    "matmul"
)

#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, Sequence[Predicate]] = {
    **{f"relax.{name}": (_moved_dimensions,) for name in _RESHAPES},
    **{f"relax.{name}": (_raised_operand,) for name in _BROADCASTING.split()},
    "relax.stack": (_stacked,),
    "relax.split": (_split,),
    "relax.strided_slice": (_computed_bounds, _sliced_symbol),
    "relax.broadcast_to": (_broadcast_to_symbol,),
    "relax.tile": (_resized_symbol,),
    "relax.repeat": (_flattened, _resized_symbol),
    "relax.flip": (_flipped_symbol,),
    "relax.nn.pad": (_pad_mode, _wide_pad, _resized_symbol),
    "relax.take": (_index_bounds,),
    "relax.gather_elements": (_index_bounds, _other_sizes),
    "relax.gather_nd": (_batched_positions, _position_bounds),
    "relax.layout_transform": (_no_permutation,),
    "relax.nn.pixel_shuffle": (_dynamic_pixels,),
    "relax.cumsum": (_flattened, _cumulative_dtype),
}
