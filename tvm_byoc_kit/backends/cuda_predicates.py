"""Predicates that the backends of NVIDIA's libraries share: cuBLAS, cuDNN, CUTLASS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.operands import (
    dtype,
    equal,
    named_tensors,
    shape,
    size,
    static,
    text,
)
from tvm_byoc_kit.rewriting import op_name, permutation_of

if TYPE_CHECKING:
    from tvm.relax import Call

__all__ = [
    "batch_text",
    "is_channel_vector",
    "is_sized",
    "low_rank",
    "other_transposition",
    "reads",
    "refused_dtypes",
    "symbolic_convolution",
    "symbolic_reduction",
    "unknown_shape",
    "unsized_workspace",
]

_MATRIX = 2  # dimensions


def unknown_shape(call: Call) -> str | None:
    """Upstream's checks read every shape, and fail where there is none."""
    for name, ty in named_tensors(call):
        if ty.ndim < 0 or ty.shape is None or not hasattr(ty.shape, "values"):
            return f"the shape of {name} is unknown"
        if ty.dtype is None:
            return f"the dtype of {name} is unknown"
    return None


def low_rank(call: Call) -> str | None:
    """Upstream takes vectors, whose second to last dimension its codegen then reads."""
    for i, arg in enumerate(call.args):
        if len(shape(arg)) < _MATRIX:
            return f"operand {i} is {text(shape(arg))}; expected a matrix or more"
    return None


def symbolic_reduction(call: Call) -> str | None:
    """Kernels are chosen by the length of the sums."""
    depth = shape(call.args[0])[-1]
    if static(depth) is None:
        return f"the reduction axis is `{text([depth])}`; expected a fixed size"
    return None


def symbolic_convolution(call: Call) -> str | None:
    """Kernels are chosen by the sizes of a convolution."""
    for name, expr in (("data", call.args[0]), ("weight", call.args[1]), ("result", call)):
        if size(shape(expr)) is None:
            return f"the {name} is {text(shape(expr))}; expected fixed sizes"
    return None


def other_transposition(call: Call) -> str | None:
    """Upstream's transposed patterns take any permutation for one of the last two axes."""
    rank, found = len(shape(call.args[0])), permutation_of(call)
    expected = [*range(rank - 2), rank - 1, rank - 2]
    if rank < _MATRIX or found != expected:
        return (
            f"the axes of {text(shape(call.args[0]))} become {found}; only the "
            "last two may change places"
        )
    return None


def batch_text(dims: tuple[object, ...]) -> str:
    """The leading dimensions of a matrix, for messages."""
    return text(dims) if dims else "none"


def reads(call: Call, operator: str) -> bool:
    """Whether an operand is the result of `operator`: a bias is asked about only with its product.

    A sum elsewhere is kept from no pattern by its sizes, and no other sizes would help it.
    """
    return any(op_name(arg) == operator for arg in call.args)


def is_channel_vector(dims: tuple[object, ...], channels: object) -> bool:
    """Whether there is one value for each of `channels`, along the last axis."""
    return bool(dims) and equal(dims[-1], channels) and size(dims[:-1]) == 1


def _listed(table: dict[tuple[str, str], tuple[str, ...]]) -> str:
    """The combinations of a table from operand dtypes to result dtypes, for messages."""
    return ", ".join(f"{a} x {b} to {' or '.join(out)}" for (a, b), out in table.items())


def refused_dtypes(call: Call, table: dict[tuple[str, str], tuple[str, ...]]) -> str | None:
    """Whether `table` has the operands' dtypes, and for them the result's."""
    left, right, result = dtype(call.args[0]), dtype(call.args[1]), dtype(call)
    if result in table.get((left, right), ()):
        return None
    return f"{left} x {right} to {result}; expected {_listed(table)}"


def unsized_workspace(call: Call) -> str | None:
    """Upstream's pass must find out how many bytes of workspace attention needs."""
    if is_sized(call.ty.dtype):
        return None
    return (
        f"this TVM's annotate_workspace cannot look up {dtype(call)} "
        "(KeyError), without which attention has no workspace"
    )


def is_sized(dtype: object) -> bool:
    """Whether upstream's pass finds the size of a dtype.

    It looks it up in a dict of names; in TVM 0.27 a dtype equals its name without having its hash,
    so that the pass ends in ``KeyError: 'T.float16'``.
    """
    return dtype in dict.fromkeys(("float16", "float32"))
