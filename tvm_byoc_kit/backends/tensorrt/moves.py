"""What TensorRT cannot run of the ops that move data, and where symbolic sizes go too far.

Sizes that are known at run time only are computed from the shape of the operand. A reshape finds
one more of them from the number of elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.operands import equal, shape, static, text
from tvm_byoc_kit.rewriting import array_of

if TYPE_CHECKING:
    from tvm.relax import Call

    from tvm_byoc_kit.predicates import Predicate

__all__ = ["PREDICATES"]


def _new_dimensions(call: Call) -> str | None:
    source, target = shape(call.args[0]), shape(call)
    new = [
        dim for dim in target if static(dim) is None and not any(equal(dim, old) for old in source)
    ]
    if len(new) > 1:
        return (
            f"{text(source)} to {text(target)}; "
            "TensorRT finds one dimension that the operand has not"
        )
    return None


# --- Slices -------------------------------------------------------------------------------------


def _split(call: Call) -> str | None:
    axis, sizes = int(call.attrs.axis), shape(call.args[0])
    if static(sizes[axis]) is None:
        return f"axis {axis} of {text(sizes)}; TensorRT slices a fixed size"
    return None


def _computed_bounds(call: Call) -> str | None:
    """The tuples are fixed ones; what is in them may yet be a variable."""
    for name, arg in zip(("axes", "begin", "end", "strides"), call.args[1:], strict=False):
        if any(static(bound) is None for bound in arg.fields):
            return f"{name} is computed; TensorRT has fixed numbers"
    return None


def _slices(call: Call) -> list[tuple[int, int, int, int]]:
    """Axis, begin, end and stride."""
    rows = [[int(number.value) for number in arg.fields] for arg in call.args[1:]]
    axes, begin, end, *strides = rows
    ones = [1] * len(axes)
    return list(zip(axes, begin, end, *(strides or [ones]), strict=True))


def _sliced_symbol(call: Call) -> str | None:
    """Relax itself derives the wrong size for these."""
    sizes = shape(call.args[0])
    for axis, begin, end, stride in _slices(call):
        if static(sizes[axis]) is not None:
            continue
        where = f"axis {axis} of {text(sizes)}"
        if stride < 0:
            return f"{where} backwards; expected a fixed size"
        if call.attrs.assume_inbound:
            return f"{where} with assume_inbound; expected a fixed size"
        if (end <= begin and (begin < 0) == (end < 0)) or not end:
            return f"{where} from {begin} to {end} has no elements; TensorRT has one or more"
    return None


def _sliced_beyond(call: Call) -> str | None:
    """With `assume_inbound` the bounds are taken for good, wherever they are."""
    sizes, result = shape(call.args[0]), shape(call)
    for axis, *bounds in _slices(call):
        size = static(sizes[axis])
        count = None if size is None else len(range(*slice(*bounds).indices(size)))
        if count is not None and count != static(result[axis]):
            return (
                f"{text([result[axis]])} elements of axis {axis} of {text(sizes)}; "
                f"TensorRT has {count} there"
            )
    return None


def _repeated_symbol(call: Call) -> str | None:
    sizes = shape(call.args[0])
    axis = call.attrs.axis
    if any(static(size) is None for size in (sizes if axis is None else [sizes[int(axis)]])):
        return f"along {text(sizes)}; TensorRT repeats a fixed size"
    return None


def _squeezed_symbol(call: Call) -> str | None:
    """Relax takes a symbol that is named for 1."""
    sizes = shape(call.args[0])
    named = [sizes[int(axis)] for axis in call.attrs.axis or ()]
    if any(static(size) is None for size in named):
        return f"{text(named)} of {text(sizes)}; TensorRT takes out ones"
    return None


def _broadcast_to_symbol(call: Call) -> str | None:
    """A size that the operand has not may be that of no tensor in the region."""
    source, target = shape(call.args[0]), shape(call)
    raised = (1,) * (len(target) - len(source)) + source
    for old, new in zip(raised, target, strict=True):
        strange = static(new) is None and not any(equal(new, size) for size in source)
        if strange or (static(old) is None and not equal(old, new)):
            return f"{text(source)} to {text(target)}; expected fixed sizes, or the operand's own"
    return None


_PAD_MODES = ("constant", "reflect", "replicate", "circular")


def _pad_mode(call: Call) -> str | None:
    mode = call.attrs.pad_mode
    if mode not in _PAD_MODES:
        return f"pad_mode is {mode}; TensorRT has {', '.join(_PAD_MODES)}"
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
                f"{wide} elements of {call.attrs.pad_mode} padding at an axis of "
                f"{text([size])}; expected at most its own"
            )
    return None


# --- Gathers ------------------------------------------------------------------------------------


_INDEX_MODES = ("fast", "clip", "wrap")


def _index_bounds(call: Call) -> str | None:
    """Beyond the tensor TensorRT gives 0: what Relax clips or wraps is calculated before."""
    mode = getattr(call.attrs, "mode", "fast")
    if mode not in _INDEX_MODES:
        return f"mode is {mode}; expected {', '.join(_INDEX_MODES)}"
    sizes = shape(call.args[0])
    at = int(call.attrs.axis or 0) % len(sizes)
    size = static(sizes[at])
    indices = array_of(call.args[1])
    if indices is None or mode != "fast":
        return None
    if indices.min() < 0 or (size is not None and indices.max() >= size):
        return (
            f"indices from {indices.min()} to {indices.max()} at an axis of "
            f"{text(sizes[at : at + 1])}; TensorRT has 0 to size - 1"
        )
    return None


def _other_sizes(call: Call) -> str | None:
    data, indices = shape(call.args[0]), shape(call.args[1])
    axis = int(call.attrs.axis) % len(data)
    for i, (one, other) in enumerate(zip(data, indices, strict=True)):
        if i != axis and not equal(one, other):
            return (
                f"{text(indices)} indices for {text(data)} along axis {axis}; "
                "TensorRT has the same sizes at the other axes"
            )
    return None


def _batched_positions(call: Call) -> str | None:
    batch = int(call.attrs.batch_dims)
    if batch > 1:
        return f"batch_dims is {batch}; TensorRT has 0 and 1"
    if static(shape(call.args[1])[-1]) is None:
        return "positions of unknown length; TensorRT has a fixed one"
    return None


def _position_bounds(call: Call) -> str | None:
    positions, sizes = array_of(call.args[1]), shape(call.args[0])[int(call.attrs.batch_dims) :]
    if positions is None:
        return None
    for axis in range(positions.shape[-1]):
        found, size = positions[..., axis], static(sizes[axis])
        if found.min() < 0 or (size is not None and found.max() >= size):
            return (
                f"positions from {found.min()} to {found.max()} at an axis of "
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
        return f"to {[str(i) for i in final]}; TensorRT has permutations of axes"
    return None


_MOST_SPLIT = 6  # two dimensions are added, and nvinfer1::Dims::MAX_DIMS is 8


def _many_pixels(call: Call) -> str | None:
    rank = len(shape(call.args[0]))
    if rank > _MOST_SPLIT:
        return (
            f"operand 0 has {rank} dimensions; TensorRT has up to {_MOST_SPLIT}, "
            "two of which it splits"
        )
    return None


#: What is asked of the calls of each op, in this order.
PREDICATES: Mapping[str, Sequence[Predicate]] = {
    **{f"relax.{name}": (_new_dimensions,) for name in ("reshape", "flatten", "nn.batch_flatten")},
    "relax.split": (_split,),
    "relax.strided_slice": (_computed_bounds, _sliced_symbol, _sliced_beyond),
    "relax.broadcast_to": (_broadcast_to_symbol,),
    "relax.repeat": (_repeated_symbol,),
    "relax.squeeze": (_squeezed_symbol,),
    "relax.nn.pad": (_pad_mode, _wide_pad),
    "relax.take": (_index_bounds,),
    "relax.gather_elements": (_index_bounds, _other_sizes),
    "relax.gather_nd": (_batched_positions, _position_bounds),
    "relax.layout_transform": (_no_permutation,),
    "relax.nn.pixel_shuffle": (_many_pixels,),
}
