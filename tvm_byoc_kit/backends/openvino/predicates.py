"""Why OpenVINO's CPU plugin cannot run a call: small functions, composed in the operator table.

What each one refuses was found by running it: the plugin computes 64-bit integers in 32 bits,
saturates 8-bit arithmetic, and divides, compares and reduces integers as ``float32``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.relax import Call

    Predicate = Callable[[Call], str | None]

__all__ = [
    "ANY",
    "BOOL",
    "BYTE",
    "FLOAT",
    "INT",
    "constant_numbers",
    "dims",
    "dtypes",
    "known_tensors",
    "literal_tuples",
    "narrow_constants",
    "plain_layouts",
    "same_dtype",
    "static_operand",
    "static_result",
    "trailing_axes",
    "unless",
]

FLOAT = frozenset({"float16", "float32"})
INT = frozenset({"int32", "int64"})
BYTE = frozenset({"int8", "uint8"})
BOOL = frozenset({"bool"})
ANY = FLOAT | INT | BYTE | BOOL


def _members(expr_or_type: Any) -> Iterator[Any]:
    """The types of the tensors in a type, tuples flattened."""
    from tvm import relax
    from tvm.ir import TupleType

    if isinstance(expr_or_type, TupleType):
        for member in expr_or_type.fields:
            yield from _members(member)
    elif isinstance(expr_or_type, relax.TensorType):
        yield expr_or_type


def _named_tensors(call: Call) -> Iterator[tuple[str, Any]]:
    """The types of the tensors that `call` reads and writes, named for messages."""
    for i, argument in enumerate(call.args):
        for member in _members(argument.ty):
            yield f"operand {i}", member
    for member in _members(call.ty):
        yield "the result", member


def dims(expr: Any) -> list[int | None]:
    """The sizes of a tensor of known rank; None for one that is symbolic."""
    return [_size(dim) for dim in expr.ty.shape.values]


def _size(dim: Any) -> int | None:
    value = getattr(dim, "value", None)
    return None if value is None else int(value)


# --- What holds for every operator ---------------------------------------------------------------


def known_tensors(call: Call) -> str | None:
    """Ranks, dtypes and shapes are known, and no tensor is empty."""
    for name, ty in _named_tensors(call):
        if not hasattr(ty.shape, "values"):
            return f"{call.op.name}: the shape of {name} is unknown"
        if str(ty.dtype) not in ANY:
            return f"{call.op.name}: {name} is {ty.dtype}; OpenVINO has {', '.join(sorted(ANY))}"
        if any(_size(dim) == 0 for dim in ty.shape.values):
            return f"{call.op.name}: {name} is empty"
    return None


def literal_tuples(call: Call) -> str | None:
    """Tuples are written where they are used, so that their members are tensors of the region."""
    from tvm import relax
    from tvm.ir import TupleType

    for i, argument in enumerate(call.args):
        if isinstance(argument.ty, TupleType) and not isinstance(argument, relax.Tuple):
            return f"{call.op.name}: operand {i} is a tuple computed elsewhere, such as a split's"
    return None


def constant_numbers(call: Call) -> str | None:
    """Numbers that are no tensors are known when the region is compiled."""
    from tvm import relax
    from tvm.ir import PrimType

    for i, argument in enumerate(call.args):
        members = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        for member in members:
            if isinstance(member.ty, PrimType) and not hasattr(member, "value"):
                return f"{call.op.name}: operand {i} is known only when the model runs"
    return None


def narrow_constants(call: Call) -> str | None:
    """Constants of 64-bit integers fit into 32 bits, in which OpenVINO computes."""
    from tvm_byoc_kit.backends.openvino.integers import fit_32_bits
    from tvm_byoc_kit.rewriting import array_of

    for i, argument in enumerate(call.args):
        data = array_of(argument) if str(getattr(argument.ty, "dtype", "")) == "int64" else None
        if data is not None and not fit_32_bits(data):
            return f"{call.op.name}: operand {i} exceeds 32 bits, in which OpenVINO computes"
    return None


# --- What an operator's entry chooses from -------------------------------------------------------


def dtypes(allowed: frozenset[str], why: str = "", *, operand: int | None = None) -> Predicate:
    """Every tensor that is read, or one operand, has one of the `allowed` dtypes."""

    def check(call: Call) -> str | None:
        for i, argument in enumerate(call.args):
            if operand is not None and i != operand:
                continue
            for member in _members(argument.ty):
                if str(member.dtype) not in allowed:
                    reason = why or f"taken are {', '.join(sorted(allowed))}"
                    return f"{call.op.name}: operand {i} is {member.dtype}; {reason}"
        return None

    return check


def same_dtype(call: Call) -> str | None:
    """OpenVINO does not promote: operands are all of one dtype, and so is the result."""
    found = sorted({str(ty.dtype) for _, ty in _named_tensors(call)})
    if len(found) > 1:
        return f"{call.op.name}: computes {' and '.join(found)} together; OpenVINO takes one dtype"
    return None


def plain_layouts(*attributes: str) -> Predicate:
    """Layouts are permutations of axes, none of them split into chunks."""

    def check(call: Call) -> str | None:
        for attribute in attributes:
            layout = getattr(call.attrs, attribute)
            if not str(layout).isalpha() or len(set(layout.upper())) != len(layout):
                return f"{call.op.name}: {attribute} {layout} splits an axis into chunks"
        return None

    return check


def static_operand(number: int) -> Predicate:
    """The shape of one operand is known when the region is compiled."""

    def check(call: Call) -> str | None:
        if None in dims(call.args[number]):
            return f"{call.op.name}: the shape of operand {number} is symbolic"
        return None

    return check


def static_result(call: Call) -> str | None:
    """The shapes of the results are known when the region is compiled."""
    if any(_size(dim) is None for ty in _members(call.ty) for dim in ty.shape.values):
        return f"{call.op.name}: the shape of the result is symbolic"
    return None


def trailing_axes(call: Call) -> str | None:
    """The attribute ``axes`` names the last axes, so that weights broadcast as they are."""
    rank = call.args[0].ty.ndim
    axes = sorted(int(axis) % rank for axis in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return (
            f"{call.op.name}: normalizes axes {axes} of {rank}; OpenVINO's form takes the last ones"
        )
    return None


def unless(holds: Callable[[Call], bool], why: str) -> Predicate:
    """Refuse what `holds` is true of, with a reason."""

    def check(call: Call) -> str | None:
        return f"{call.op.name}: {why}" if holds(call) else None

    return check
