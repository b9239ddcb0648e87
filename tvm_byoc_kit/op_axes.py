"""Where an op takes each axis of its operands: the table behind `row_independence`.

A rule says of every axis of every operand on which axis of the result its entries are, each at its
own place and computed from nothing else along that axis; None where the op combines entries or
moves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm_byoc_kit.rewriting import op_name, permutation_of

__all__ = ["Axes", "axes_of"]

#: By axis of an operand: the axis of the result, or None.
Places = tuple["int | None", ...]


@dataclass(frozen=True)
class Axes:
    """What an op does with the axes of its operands.

    Parameters
    ----------
    places : tuple of Places
        For each tensor among the operands, members of tuples included.
    broadcasts : bool
        Whether an operand with size 1 on an axis serves all entries of the others.
    results : int or None
        How many results hold such axes, the first ones; the rest is computed from the other
        operands alone. None: all.
    """

    places: tuple[Places, ...]
    broadcasts: bool = False
    results: int | None = None


Rule = Callable[[Any, Sequence[int]], "Axes | None"]


def axes_of(call: Any, ranks: Sequence[int]) -> Axes | None:
    """What the op of `call` does with axes; None for what the kit does not know.

    Parameters
    ----------
    call : relax.Call
    ranks : sequence of int
        Of its tensor operands, members of tuples included.
    """
    rule = _RULES.get(op_name(call).removeprefix("relax."))
    return rule(call, ranks) if rule else None


# --- Rules that many ops share ------------------------------------------------------------------


def _elementwise(_call: Any, ranks: Sequence[int]) -> Axes:
    """Operands are aligned at their last axes."""
    most = max(ranks)
    return Axes(tuple(tuple(range(most - rank, most)) for rank in ranks), broadcasts=True)


def _except(axes: Sequence[int], rank: int) -> Places:
    """All axes stay where they are but `axes`, along which entries meet."""
    met = {axis % rank for axis in axes} if rank else set()
    return tuple(None if axis in met else axis for axis in range(rank))


def _along_axis(call: Any, ranks: Sequence[int]) -> Axes:
    """Along ``axis`` entries meet; without one, all do."""
    axis = call.attrs.axis
    if axis is None:
        return _mixed(call, ranks)
    return Axes(tuple(_except([int(axis)], rank) for rank in ranks))


def _mixed(_call: Any, ranks: Sequence[int]) -> Axes:
    return Axes(tuple((None,) * rank for rank in ranks))


def _reduction(call: Any, ranks: Sequence[int]) -> Axes:
    axes = _ints(call.attrs.axis)
    if axes is None:
        return _mixed(call, ranks)
    kept = _except(axes, ranks[0])
    return Axes((kept if call.attrs.keepdims else _renumbered(kept),))


def _renumbered(places: Places) -> Places:
    """The axes that stay, counted anew."""
    kept = [place for place in places if place is not None]
    return tuple(None if place is None else kept.index(place) for place in places)


def _normalization(call: Any, ranks: Sequence[int]) -> Axes:
    """Statistics over ``axes``; scale and shift, for each channel, hold no rows."""
    met = (
        *(_ints(call.attrs.axes) or ()),
        *(_ints(getattr(call.attrs, "channel_axis", None)) or ()),
    )
    return _first_only(_except(met, ranks[0]), ranks)


def _first_only(places: Places, ranks: Sequence[int]) -> Axes:
    return Axes((places, *((None,) * rank for rank in ranks[1:])))


def _by_layout(kept: str) -> Rule:
    """Only the axes named by the letters `kept` stay apart."""

    def rule(call: Any, ranks: Sequence[int]) -> Axes:
        attrs = call.attrs
        layout = str(getattr(attrs, "data_layout", "") or attrs.layout)
        source = _letters(layout)
        target = _letters(str(getattr(attrs, "out_layout", "") or layout))
        places = tuple(target.index(letter) if letter in kept else None for letter in source)
        return _first_only(places, ranks)

    return rule


def _letters(layout: str) -> list[str]:
    return [letter for letter in layout if letter.isalpha()]


def _leading(count: int) -> Rule:
    """The first `count` axes (from the end if negative: all but so many) of all operands stay."""

    def rule(_call: Any, ranks: Sequence[int]) -> Axes:
        return Axes(tuple(_except(range(rank)[count:], rank) for rank in ranks))

    return rule


# --- Rules of single ops ------------------------------------------------------------------------


def _batch_norm(call: Any, ranks: Sequence[int]) -> Axes:
    rank, channel = ranks[0], int(call.attrs.axis)
    others = [axis for axis in range(rank) if axis != channel % rank]
    met = [channel, *(others if call.attrs.training else [])]
    axes = _first_only(_except(met, rank), ranks)
    return Axes(axes.places, results=1)


def _matmul(_call: Any, ranks: Sequence[int]) -> Axes:
    left, right = ranks
    batch = max(left, right, 2) - 2  # axes before the last two of the result
    row_axes = 1 if left > 1 else 0
    first = (*range(batch - max(left - 2, 0), batch), *([batch] * row_axes), None)
    second = (
        *range(batch - max(right - 2, 0), batch),
        None,
        *([batch + row_axes] if right > 1 else []),
    )
    return Axes((first, second), broadcasts=True)


def _einsum(call: Any, ranks: Sequence[int]) -> Axes | None:
    text = str(call.attrs.subscripts).replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if not arrow or "." in text or [len(term) for term in terms] != list(ranks):
        return None
    places = tuple(
        tuple(output.index(letter) if letter in output else None for letter in term)
        for term in terms
    )
    return Axes(places, broadcasts=True)


def _permute_dims(call: Any, ranks: Sequence[int]) -> Axes:
    order = permutation_of(call)
    return Axes((tuple(order.index(axis) for axis in range(ranks[0])),))


def _stack(call: Any, ranks: Sequence[int]) -> Axes:
    axis = int(call.attrs.axis) % (ranks[0] + 1)
    return Axes(tuple(tuple(i + (i >= axis) for i in range(rank)) for rank in ranks))


def _one_hot(call: Any, ranks: Sequence[int]) -> Axes:
    axis = int(call.attrs.axis) % (ranks[0] + 1)
    return _first_only(tuple(i + (i >= axis) for i in range(ranks[0])), ranks)


def _take(call: Any, ranks: Sequence[int]) -> Axes:
    data, indices = ranks
    if call.attrs.axis is None:
        return Axes(((None,) * data, tuple(range(indices))))
    axis = int(call.attrs.axis) % data
    before = range(axis)
    after = range(axis + indices, data + indices - 1)
    return Axes(((*before, None, *after), tuple(range(axis, axis + indices))))


def _gather_nd(call: Any, ranks: Sequence[int]) -> Axes | None:
    data, indices = ranks
    addressed = getattr(call.args[1].ty.shape[-1], "value", None)
    if addressed is None:
        return None
    batch, number = int(call.attrs.batch_dims), int(addressed)
    after = range(indices - 1, indices - 1 + data - batch - number)
    return Axes(
        ((*range(batch), *[None] * number, *after), (*range(indices - 1), None)),
    )


def _index_tensor(_call: Any, ranks: Sequence[int]) -> Axes:
    data, *indices = ranks
    most = max(indices)
    after = range(most, most + data - len(indices))
    aligned = (tuple(range(most - rank, most)) for rank in indices)
    return Axes((((None,) * len(indices) + tuple(after)), *aligned), broadcasts=True)


def _pad(call: Any, ranks: Sequence[int]) -> Axes:
    widths = _ints(call.attrs.pad_width) or ()
    padded = [axis for axis in range(ranks[0]) if any(widths[2 * axis : 2 * axis + 2])]
    return _first_only(_except(padded, ranks[0]), ranks)


def _tile(call: Any, ranks: Sequence[int]) -> Axes:
    rank = ranks[0]
    repeats = _ints(call.attrs.repeats) or ()
    result = max(rank, len(repeats))
    padded = [1] * (result - len(repeats)) + list(repeats)
    shift = result - rank
    return Axes((tuple(i + shift if padded[i + shift] == 1 else None for i in range(rank)),))


def _per_channel(call: Any, ranks: Sequence[int]) -> Axes:
    """Elementwise; the other operands hold a number for each channel, or for all."""
    if max(ranks[1:]) == 0:
        return _first_elementwise(call, ranks)
    return _first_only(_except([int(call.attrs.axis)], ranks[0]), ranks)


def _first_elementwise(_call: Any, ranks: Sequence[int]) -> Axes:
    return _first_only(tuple(range(ranks[0])), ranks)


def _triangle(_call: Any, ranks: Sequence[int]) -> Axes:
    return Axes((_except([-2, -1], ranks[0]),))


def _outer(_call: Any, _ranks: Sequence[int]) -> Axes:
    return Axes(((0,), (1,)))


def _attention(call: Any, ranks: Sequence[int]) -> Axes:
    """Of ``(batch, sequence, head, depth)``; a bias is ``(batch, head, query, key)``."""
    by_place = (call.attrs.causal_mask, call.attrs.window_size) != (None, None)
    query = None if by_place else 1
    key = (0, None, None, None)
    bias = ((0, None, query, None)[-rank:] for rank in ranks[3:])
    return Axes(((0, query, None, None), key, key, *bias), broadcasts=True)


def _reverse_sequence(call: Any, ranks: Sequence[int]) -> Axes:
    batch = int(call.attrs.batch_axis) % ranks[0]
    return Axes((_except([int(call.attrs.seq_axis)], ranks[0]), (batch,)))


def _ints(values: Any) -> tuple[int, ...] | None:
    """An attribute that is None, a number or an array of numbers."""
    if values is None:
        return None
    if isinstance(values, int) or hasattr(values, "value"):
        return (int(values),)
    return tuple(int(value) for value in values)


_TABLE: tuple[tuple[Rule, str], ...] = (
    (
        _elementwise,
        """
        abs acos acosh asin asinh astype atan atanh bitwise_not ceil clip cos cosh erf exp floor
        isfinite isinf isnan log logical_not negative round rsqrt sigmoid sign sin sinh sqrt square
        tan tanh trunc nn.dropout nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu
        nn.softplus builtin.stop_lift_params hint_on_device to_vdevice wrap_param

        add atan2 bitwise_and bitwise_or bitwise_xor divide equal floor_divide floor_mod greater
        greater_equal left_shift less less_equal log_add_exp logical_and logical_or logical_xor
        maximum minimum mod multiply not_equal power right_shift subtract ewise_fma where
        """,
    ),
    (
        _along_axis,
        """
        argsort concat cumprod cumsum flip gather_elements repeat scatter_elements sort split topk
        nn.log_softmax nn.softmax
        """,
    ),
    (_reduction, "argmax argmin max mean median min prod std sum variance"),
    (_normalization, "nn.group_norm nn.instance_norm nn.layer_norm nn.rms_norm"),
    (_batch_norm, "nn.batch_norm"),
    (
        _by_layout("N"),
        """
        nn.conv1d nn.conv1d_transpose nn.conv2d nn.conv2d_transpose nn.conv3d nn.conv3d_transpose
        """,
    ),
    (
        _by_layout("NC"),
        """
        nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d
        nn.avg_pool2d nn.avg_pool3d nn.max_pool1d nn.max_pool2d nn.max_pool3d image.resize2d
        image.resize3d
        """,
    ),
    (_leading(1), "image.affine_grid image.grid_sample"),
    (_leading(-3), "nn.pixel_shuffle"),
    (_per_channel, "dequantize nn.prelu quantize"),
    (_first_elementwise, "bucketize"),
    (_triangle, "tril triu"),
    (_attention, "nn.attention nn.attention_bias"),
    (_matmul, "matmul"),
    (_einsum, "einsum"),
    (_outer, "outer"),
    (_permute_dims, "permute_dims"),
    (_stack, "stack"),
    (_one_hot, "one_hot"),
    (_take, "take"),
    (_gather_nd, "gather_nd"),
    (_index_tensor, "index_tensor"),
    (_pad, "nn.pad"),
    (_tile, "tile"),
    (_reverse_sequence, "reverse_sequence"),
)

_RULES = {name: rule for rule, names in _TABLE for name in names.split()}
