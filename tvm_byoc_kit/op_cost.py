"""What an op costs: multiply-accumulates (MACs), elements and bytes.

MACs are counted as is usual for neural networks [1]_ [2]_: convolutions, matrix products and what
is made of them; a position in the padding counts like any other; elementwise ops, pooling and
normalization count as none, and so does what is computed by a TIR or external function.

References
----------
.. [1] torchvision counts so for the "GFLOPS" of its table of models:
       https://pytorch.org/vision/stable/models.html (ResNet-18 at 224: 1.81).
.. [2] torch.utils.flop_counter counts two floating-point operations for each of these MACs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import op_name, static_shape, static_sizes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.relax import Call

__all__ = ["MAC_OPS", "elements", "macs", "size_in_bytes", "total"]


def total(amounts: Iterable[int | None]) -> int | None:
    """The sum; None when one of them is not known."""
    known = list(amounts)
    return None if None in known else sum(amount or 0 for amount in known)


def elements(ty: Any) -> int | None:
    """Number of elements of a tensor of type `ty`; None when a symbolic dimension decides."""
    sizes = static_sizes(ty)
    return None if sizes is None else math.prod(sizes)


def size_in_bytes(ty: Any) -> int | None:
    """Size of a value of type `ty`, of all tensors of a tuple; None when a symbol decides.

    What is no tensor, such as a shape, takes none. Elements of less than a byte are packed.
    """
    from tvm import relax
    from tvm.runtime import DataType

    if isinstance(ty, relax.TupleType):
        return total(size_in_bytes(field) for field in ty.fields)
    if not isinstance(ty, relax.TensorType):
        return 0
    count, dtype = elements(ty), str(ty.dtype or "")
    if count is None or not dtype:
        return None
    bits = DataType(dtype).bits * DataType(dtype).lanes
    return (count * int(bits) + 7) // 8


def macs(call: Call) -> int | None:
    """Multiply-accumulates of a call of an operator.

    Returns
    -------
    int or None
        0 for an op that is not in `MAC_OPS`. None when a symbolic dimension decides, or, for
        ``attention_var_len``, the lengths that are given at run time.
    """
    count = MAC_OPS.get(op_name(call))
    return 0 if count is None else count(call)


def _convolution(call: Any) -> int | None:
    """Each element of the result takes one filter: its input channels times its window [1]_.

    With groups, a filter has only the input channels of its group.

    References
    ----------
    .. [1] ``torch.utils.flop_counter.conv_flop_count``.
    """
    results, filters = elements(call.ty), static_shape(call.args[1])
    if results is None or filters is None:
        return None
    return _per_channel(results, filters, call.attrs.kernel_layout, "O")


def _transposed_convolution(call: Any) -> int | None:
    """Each element of the data is spread over one filter: output channels times window [1]_.

    References
    ----------
    .. [1] ``torch.utils.flop_counter.conv_flop_count`` with ``transposed=True``.
    """
    data, filters = elements(call.args[0].ty), static_shape(call.args[1])
    if data is None or filters is None:
        return None
    return _per_channel(data, filters, call.attrs.kernel_layout, "I")


def _per_channel(times: int, filters: tuple[int, ...], layout: str, axis: str) -> int:
    """`times` the elements of one filter; `axis` tells filters apart (``OIHW4o`` has it twice)."""
    letters = [letter for letter in str(layout) if letter.isalpha()]
    window = [size for size, letter in zip(filters, letters, strict=True) if letter.upper() != axis]
    return times * math.prod(window)


def _matmul(call: Any) -> int | None:
    """Each element of the result is a dot product over the first operand's last axis [1]_.

    References
    ----------
    .. [1] ``numpy.matmul``, whose rules for vectors and broadcasting Relax follows.
    """
    results, left = elements(call.ty), static_shape(call.args[0])
    return None if results is None or left is None else results * left[-1]


def _outer(call: Any) -> int | None:
    """One product for each element of the result."""
    return elements(call.ty)


def _attention(call: Any) -> int | None:
    """Two matrix products for each head: queries by keys, and the weights by values [1]_.

    Operands are batch, sequence, heads, head dimension. A causal mask does not halve the count.

    References
    ----------
    .. [1] ``torch.utils.flop_counter.sdpa_flop_count``.
    """
    query, value = static_shape(call.args[0]), static_shape(call.args[2])
    if query is None or value is None:
        return None
    batch, queries, heads, depth = query
    return batch * heads * queries * value[1] * (depth + value[3])


def _attention_of_any_length(_: Any) -> None:
    """The lengths of the sequences are values of the operands."""


def _einsum(call: Any) -> int | None:
    """All operands but one are multiplied in, for each combination of all indices [1]_.

    References
    ----------
    .. [1] TVM's ``topi::einsum`` computes it in this one loop nest.
    """
    shapes = [static_sizes(ty) for ty in call.args[0].ty.fields]
    subscripts = str(call.attrs.subscripts).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for labels, shape in zip(subscripts, shapes, strict=True):
        if shape is None:
            return None
        for label, size in zip(_spelled_out(labels, len(shape)), shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return (len(shapes) - 1) * math.prod(sizes.values())


def _spelled_out(labels: str, rank: int) -> list[str]:
    """One label an axis; those of ``...`` are numbered from the last."""
    before, dots, after = labels.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(f"-{axis}" for axis in range(hidden, 0, -1)), *after]


MAC_OPS: dict[str, Callable[[Any], int | None]] = {
    "relax.nn.conv1d": _convolution,
    "relax.nn.conv2d": _convolution,
    "relax.nn.conv3d": _convolution,
    "relax.nn.conv1d_transpose": _transposed_convolution,
    "relax.nn.conv2d_transpose": _transposed_convolution,
    "relax.nn.conv3d_transpose": _transposed_convolution,
    "relax.matmul": _matmul,
    "relax.outer": _outer,
    "relax.einsum": _einsum,
    "relax.nn.attention": _attention,
    "relax.nn.attention_bias": _attention,
    "relax.nn.attention_var_len": _attention_of_any_length,
}
"""By operator, the function that counts for a call; ``require_mac`` means these."""
