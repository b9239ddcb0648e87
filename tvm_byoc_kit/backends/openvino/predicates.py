"""Why OpenVINO's CPU plugin cannot run a call: small functions, composed in the operator table.

What each one refuses was found by running it: the plugin computes 64-bit integers in 32 bits,
saturates 8-bit arithmetic, and divides, compares and reduces integers as ``float32``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.operands import named_tensors, static

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
    "has_symbolic_axis",
    "known_tensors",
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


def dims(expr: Any) -> list[int | None]:
    """The sizes of a tensor of known rank; None for one that is symbolic."""
    return [static(dim) for dim in expr.ty.shape.values]


def has_symbolic_axis(call: Call) -> bool:
    """Whether the size of the attribute ``axis`` of the first operand is symbolic."""
    return dims(call.args[0])[int(call.attrs.axis)] is None


# --- What holds for every operator ---------------------------------------------------------------


def known_tensors(call: Call) -> str | None:
    """Ranks, dtypes and shapes are known, and no tensor is empty."""
    for name, ty in named_tensors(call):
        if not hasattr(ty.shape, "values"):
            return f"the shape of {name} is unknown"
        if str(ty.dtype) not in ANY:
            return f"{name} is {ty.dtype}; OpenVINO has {', '.join(sorted(ANY))}"
        if any(static(dim) == 0 for dim in ty.shape.values):
            return f"{name} is empty"
    return None


def constant_numbers(call: Call) -> str | None:
    """Numbers that are no tensors are known when the region is compiled."""
    from tvm import relax
    from tvm.ir import PrimType

    for i, argument in enumerate(call.args):
        members = argument.fields if isinstance(argument, relax.Tuple) else [argument]
        for member in members:
            if isinstance(member.ty, PrimType) and not hasattr(member, "value"):
                return f"operand {i} is known only when the model runs"
    return None


def narrow_constants(call: Call) -> str | None:
    """Constants of 64-bit integers fit into 32 bits, in which OpenVINO computes."""
    from tvm_byoc_kit.backends.openvino.integers import fit_32_bits
    from tvm_byoc_kit.rewriting import array_of

    for i, argument in enumerate(call.args):
        data = array_of(argument) if str(getattr(argument.ty, "dtype", "")) == "int64" else None
        if data is not None and not fit_32_bits(data):
            return f"operand {i} exceeds 32 bits, in which OpenVINO computes"
    return None


# --- What an operator's entry chooses from -------------------------------------------------------


def dtypes(allowed: frozenset[str], why: str = "", *, operand: int | None = None) -> Predicate:
    """Every tensor that is read, or one operand, has one of the `allowed` dtypes."""

    def check(call: Call) -> str | None:
        for name, ty in named_tensors(call):
            asked = name != "result" if operand is None else name == f"operand {operand}"
            if asked and str(ty.dtype) not in allowed:
                taken = why or f"taken are {', '.join(sorted(allowed))}"
                return f"{name} is {ty.dtype}; {taken}"
        return None

    return check


def same_dtype(call: Call) -> str | None:
    """OpenVINO does not promote: operands are all of one dtype, and so is the result."""
    found = sorted({str(ty.dtype) for _, ty in named_tensors(call)})
    if len(found) > 1:
        return f"computes {' and '.join(found)} together; OpenVINO takes one dtype"
    return None


def plain_layouts(*attributes: str) -> Predicate:
    """Layouts are permutations of axes, none of them split into chunks."""

    def check(call: Call) -> str | None:
        for attribute in attributes:
            layout = getattr(call.attrs, attribute)
            if not str(layout).isalpha() or len(set(layout.upper())) != len(layout):
                return f"{attribute} {layout} splits an axis into chunks"
        return None

    return check


def static_operand(number: int) -> Predicate:
    """The shape of one operand is known when the region is compiled."""

    def check(call: Call) -> str | None:
        if None in dims(call.args[number]):
            return f"the shape of operand {number} is symbolic"
        return None

    return check


def static_result(call: Call) -> str | None:
    """The shapes of the results are known when the region is compiled."""
    results = [ty for name, ty in named_tensors(call) if name == "result"]
    symbolic = any(static(dim) is None for ty in results for dim in ty.shape.values)
    return "the shape of the result is symbolic" if symbolic else None


def trailing_axes(call: Call) -> str | None:
    """The attribute ``axes`` names the last axes, so that weights broadcast as they are."""
    rank = call.args[0].ty.ndim
    axes = sorted(int(axis) % rank for axis in call.attrs.axes)
    if axes != list(range(rank - len(axes), rank)):
        return f"normalizes axes {axes} of {rank}; OpenVINO's form takes the last ones"
    return None


def unless(holds: Callable[[Call], bool], why: str) -> Predicate:
    """Refuse what `holds` is true of, with a reason."""

    def check(call: Call) -> str | None:
        return f"{why}" if holds(call) else None

    return check
