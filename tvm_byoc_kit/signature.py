"""Names, shapes and dtypes of a model's inputs and outputs."""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tvm import IRModule

__all__ = ["TensorSpec", "dimension", "evaluate", "folded", "function_signature"]


@dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Parameters
    ----------
    name : str
    shape : tuple of int or str
        A string is a symbolic dimension; the same string means the same size.
    dtype : str
        NumPy's name, such as ``float32``.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"

    def to_dict(self) -> dict[str, Any]:
        """For manifests and ``--json``."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> TensorSpec:
        """The inverse of :meth:`to_dict`."""
        return cls(name=data["name"], shape=tuple(data["shape"]), dtype=data["dtype"])


def function_signature(
    mod: IRModule, entry: str, output_names: Sequence[str] | None = None
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs of the Relax function `entry`; a tuple result is flattened.

    Raises
    ------
    ModelError
        When there is no such function, an input is no tensor of known shape, or an output no tensor
        of known rank.
    """
    from tvm import relax

    names = {var.name_hint: var for var in mod.get_global_vars()}
    if entry not in names or not isinstance(mod[names[entry]], relax.Function):
        raise ModelError(
            f"the module has no Relax function `{entry}`; it has: {', '.join(names) or 'none'}"
        )
    function = mod[names[entry]]
    inputs = _distinct([_spec(var.name, var.ty) for var in function.params])
    # The result's declared type has no sizes that are known only after the run; the body's has.
    types = _flatten(function.body.body.ty)
    if output_names is None or len(output_names) != len(types):
        output_names = ["output"] if len(types) == 1 else [f"output_{i}" for i in range(len(types))]
    outputs = tuple(
        _spec(name, _with_sizes(ty, index))
        for index, (name, ty) in enumerate(zip(output_names, types, strict=True))
    )
    return inputs, outputs


def _flatten(ty: Any) -> list[Any]:
    from tvm.ir import TupleType

    if not isinstance(ty, TupleType):
        return [ty]
    return [leaf for member in ty.fields for leaf in _flatten(member)]


def _with_sizes(ty: Any, index: int) -> Any:
    """`ty` with a name for each size, where the rank is known and no size is."""
    from tvm import relax, tirx

    if not isinstance(ty, relax.TensorType) or ty.shape is not None or ty.ndim < 1:
        return ty
    sizes = [tirx.Var(f"output{index}_size{axis}", "int64") for axis in range(ty.ndim)]
    return relax.TensorType(sizes, ty.dtype)


def _spec(name: str, ty: Any) -> TensorSpec:
    from tvm import relax

    if not isinstance(ty, relax.TensorType) or ty.shape is None or ty.dtype is None:
        raise ModelError(
            f"`{name}` is {ty}; expected a tensor whose rank and dtype are known. Annotate the "
            "function's parameters and result with R.Tensor((...), dtype)"
        )
    return TensorSpec(name=name, shape=tuple(map(dimension, ty.shape)), dtype=str(ty.dtype))


def dimension(dim: Any) -> int | str:
    """A dimension of a Relax shape; a symbolic one as text, such as ``n`` or ``n * 2``."""
    if hasattr(dim, "value"):
        return int(dim.value)
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(dim))


_T = TypeVar("_T")


def folded(dim: str, leaf: Callable[[int | str], _T], combine: Callable[[str, _T, _T], _T]) -> _T:
    """What becomes of a dimension, such as ``(n + 1) // 2``, from its numbers and symbols up.

    `leaf` gets these; `combine` gets ``Add``, ``Sub``, ``Mult``, ``FloorDiv``, ``Mod``, ``max`` or
    ``min``, and what became of both sides.

    Raises
    ------
    ModelError
        When the dimension is more than arithmetic.
    """

    def value(node: ast.expr) -> _T:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return leaf(node.value)
        if isinstance(node, ast.Name):
            return leaf(node.id)
        if isinstance(node, ast.BinOp):
            return combine(type(node.op).__name__, value(node.left), value(node.right))
        if isinstance(node, ast.Call) and len(node.args) > 1 and not node.keywords:
            function = functools.partial(combine, ast.unparse(node.func))
            return functools.reduce(function, map(value, node.args))
        raise ModelError(f"the dimension `{dim}` is more than arithmetic on sizes")

    return value(ast.parse(dim, mode="eval").body)


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "max": max,
    "min": min,
}


def evaluate(dim: int | str, sizes: Mapping[str, int]) -> int | None:
    """The size of `dim` where its symbols have the given `sizes`.

    Returns
    -------
    int or None
        None when a symbol has no size, or the expression is more than arithmetic.
    """
    if isinstance(dim, int):
        return dim
    if dim in sizes:  # first, since a dimension may be called like a keyword of Python
        return sizes[dim]
    try:
        return folded(
            dim,
            lambda leaf: leaf if isinstance(leaf, int) else sizes[leaf],
            lambda operation, one, other: int(_ARITHMETIC[operation](one, other)),
        )
    except (KeyError, ModelError, SyntaxError, ZeroDivisionError):
        return None


def _distinct(specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """`specs` with a number after names that repeat: Relax allows what a dict of inputs cannot."""
    taken = {spec.name for spec in specs}
    seen: set[str] = set()
    named = []
    for spec in specs:
        name, number = spec.name, 1
        while name in seen or (number > 1 and name in taken):
            name, number = f"{spec.name}_{number}", number + 1
        seen.add(name)
        named.append(replace(spec, name=name))
    return tuple(named)
