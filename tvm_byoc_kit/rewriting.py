"""Rewriting a module's calls, one op at a time: what the kit's own passes have in common."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from tvm import IRModule

__all__ = [
    "Rule",
    "Scope",
    "array_of",
    "bindings_of",
    "bytes_of_constants",
    "constant_of",
    "fingerprint",
    "host_functions",
    "is_relax_function",
    "is_tensor_constant",
    "known_sizes",
    "op_name",
    "permutation_of",
    "read_variables",
    "rewrite_calls",
    "same_shape",
    "static_shape",
    "static_sizes",
]


class Scope(Protocol):
    """What a rule may ask about the function that its call stands in."""

    mod: IRModule
    notes: Counter[str]
    """What a rule reports, such as why it left a call alone, with how often."""

    def value(self, expr: Any) -> Any:
        """The expression behind a variable, through any number of variables."""

    def emit(self, expr: Any) -> Any:
        """A variable bound to `expr`, before the call's own binding."""

    def normalized(self, expr: Any) -> Any:
        """`expr` with its type inferred."""

    def is_used_once(self, expr: Any) -> bool:
        """Whether `expr`, of the function before rewriting, is read in one place."""

    def original(self, expr: Any) -> Any:
        """The expression behind a variable of the function before rewriting."""


# Gets the call with its arguments rewritten, the same call as it was, and the scope; gives what
# takes the call's place, or None to keep it.
Rule = Callable[[Any, Any, Scope], Any]


def rewrite_calls(
    mod: IRModule, rules: Mapping[str, Rule], notes: Counter[str] | None = None
) -> IRModule:
    """Apply `rules`, by op name, to every call in every host function, branches of ``If`` included.

    Variables that are bound to constants and shapes are replaced by these where they are read.

    Parameters
    ----------
    mod : tvm.IRModule
    rules : mapping of op name to rule
    notes : collections.Counter, optional
        Takes what rules report.

    Returns
    -------
    tvm.IRModule
        `mod` itself is not changed.
    """
    from tvm import relax

    from tvm_byoc_kit import _call_rewriter

    notes = Counter() if notes is None else notes
    builder = relax.BlockBuilder(mod)
    for var, function in host_functions(mod):
        rewritten = _call_rewriter.CallRewriter(mod, function, rules, notes).visit_expr(function)
        if not rewritten.same_as(function):
            builder.update_func(var, rewritten)
    return builder.get()


def bytes_of_constants(mod: IRModule) -> int:
    """What the constants of the Relax functions have in bytes, each counted once."""
    from tvm import relax

    found: set[Any] = set()
    for function in filter(is_relax_function, mod.functions.values()):
        relax.analysis.post_order_visit(function, found.add)
    return sum(array.nbytes for array in map(array_of, found) if array is not None)


def is_relax_function(function: Any) -> bool:
    """Whether a function of a module is one of Relax, and not, for example, of TIR."""
    from tvm import relax

    return isinstance(function, relax.Function)


def host_functions(mod: IRModule) -> list[tuple[Any, Any]]:
    """The Relax functions of `mod` that belong to no backend, with their variables."""
    marks = {"Codegen", "Composite", "Primitive"}
    return [
        (var, function)
        for var, function in mod.functions_items()
        if is_relax_function(function)
        and not (function.attrs and marks & set(function.attrs.keys()))
    ]


def bindings_of(expr: Any) -> Iterator[Any]:
    """The bindings of a function or its body in their order, branches of ``If`` included."""
    from tvm import relax

    if isinstance(expr, relax.Function):
        expr = expr.body
    if not isinstance(expr, relax.SeqExpr):
        return
    for block in expr.blocks:
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_of(value.true_branch)
                yield from bindings_of(value.false_branch)
            elif isinstance(value, relax.Function):
                yield from bindings_of(value)
            yield binding


def read_variables(function: Any) -> Counter[Any]:
    """The variables that `function` reads, each with the number of expressions that read it."""
    from tvm import relax

    reads: Counter[Any] = Counter()

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Var):
            reads[expr] += 1

    for binding in bindings_of(function):
        for part in _own_parts(binding.value):
            relax.analysis.post_order_visit(part, look)
    relax.analysis.post_order_visit(function.body.body, look)
    return reads


def _own_parts(value: Any) -> list[Any]:
    """What a binding reads beside the bindings inside it, which `bindings_of` gives too."""
    from tvm import relax

    if isinstance(value, relax.If):
        return [value.cond, value.true_branch.body, value.false_branch.body]
    return [value.body.body] if isinstance(value, relax.Function) else [value]


def op_name(expr: Any) -> str:
    """The operator that `expr` calls; empty when it is no call of one."""
    from tvm import relax
    from tvm.ir import Op

    if isinstance(expr, relax.Call) and isinstance(expr.op, Op):
        return str(expr.op.name)
    return ""


def permutation_of(call: Any) -> list[int]:
    """The axes that a call of ``permute_dims`` puts in order, none of them negative."""
    rank, axes = int(call.args[0].ty.ndim), call.attrs.axes
    return [int(axis) % rank for axis in axes] if axes is not None else list(range(rank))[::-1]


def static_shape(expr: Any) -> tuple[int, ...] | None:
    """The shape of a tensor; None when it is symbolic or unknown, or `expr` is no tensor."""
    return static_sizes(expr.ty)


def static_sizes(ty: Any) -> tuple[int, ...] | None:
    """The shape of a tensor's type; None when it is symbolic or unknown, or `ty` is another."""
    return known_sizes(getattr(getattr(ty, "shape", None), "values", None))


def known_sizes(dims: Iterable[Any] | None) -> tuple[int, ...] | None:
    """Dimensions as numbers; None when one is symbolic, or there are none to know."""
    sizes = [getattr(dim, "value", None) for dim in dims] if dims is not None else [None]
    return None if None in sizes else tuple(int(size or 0) for size in sizes)


def same_shape(first: Any, second: Any) -> bool:
    """Whether two tensors have the same known shape; symbols count when they are the same."""
    from tvm_ffi import structural_equal

    one, other = (getattr(expr.ty, "shape", None) for expr in (first, second))
    if not hasattr(one, "values") or not hasattr(other, "values"):
        return False
    return bool(structural_equal(one, other))


def constant_of(array: np.ndarray) -> Any:
    """The constant with the data and the dtype of `array`.

    Left to itself, ``relax.const`` narrows int64 to int32 and float64 to float32.
    """
    from tvm import relax

    return relax.const(array, str(array.dtype))


def is_tensor_constant(expr: Any) -> bool:
    """Whether `expr` is a constant that holds a tensor, its ``value``."""
    from tvm.ir import GenericConst
    from tvm.runtime import Tensor

    return isinstance(expr, GenericConst) and isinstance(expr.value, Tensor)


# NumPy's own dtypes; constants of others (bfloat16, float8) are left to TVM.
_NUMPY_DTYPES = frozenset(
    {"bool", "float16", "float32", "float64"}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


def array_of(expr: Any) -> np.ndarray | None:
    """The data of a constant, without a copy; None for what is no constant of NumPy's dtypes.

    The array must not be written to: it is the constant's own memory.
    """
    import numpy as np

    if not is_tensor_constant(expr) or str(expr.value.dtype) not in _NUMPY_DTYPES:
        return None
    return np.from_dlpack(expr.value)


_SAMPLES = 64


def fingerprint(expr: Any) -> int | None:
    """A hash of what a constant contains, from samples; None where `array_of` has no data.

    Equal constants have equal fingerprints; different ones nearly always have different ones.
    """
    array = array_of(expr)
    if array is None:
        return None
    elements = array.reshape(-1)
    samples = elements[:: max(1, elements.size // _SAMPLES)].tobytes()
    return zlib.crc32(f"{array.dtype}{array.shape}".encode(), zlib.crc32(samples))
