"""What a region asks of a kernel, read from its graph: a matrix product or a convolution.

Sizes are numbers where they are known, and else C++ over the function's arguments ``a0``, ``a1`` …
and ``d``, the result, such as ``a0->shape[1] * 4``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.graph import Value

if TYPE_CHECKING:
    from tvm_byoc_kit.graph import Dim, Graph, Op

__all__ = ["Conv2d", "Epilogue", "Gemm", "Problem", "Size", "read_problem", "times"]

Size: TypeAlias = "int | str"

_ACTIVATIONS = {"relax.nn.relu": "relu", "relax.nn.gelu": "gelu", "relax.nn.silu": "silu"}
_BINARY = {"relax.add": "add", "relax.multiply": "multiply"}


@dataclass(frozen=True)
class Epilogue:
    """What follows the product.

    Parameters
    ----------
    bias : int, optional
        The number of the argument that is added first.
    whole_bias : bool
        Whether the bias is of the result's shape; else it is one value for each column or channel.
    activation : str
        ``relu``, ``gelu``, ``silu``, or empty.
    residual : int, optional
        The number of the argument that is combined with that.
    whole_residual : bool
        As for the bias.
    binary : str
        How the residual is combined: ``add`` or ``multiply``.
    unary : str
        What follows: ``relu``, or empty.
    """

    bias: int | None = None
    whole_bias: bool = False
    activation: str = ""
    residual: int | None = None
    whole_residual: bool = False
    binary: str = ""
    unary: str = ""


@dataclass(frozen=True)
class Gemm:
    """A product of matrices, or of a batch of them.

    Parameters
    ----------
    dtype, result : str
        Of both operands, and of the result.
    a, b : int
        Numbers of the arguments.
    m, n, k : int or str
    batch : int or str
        1 where the right operand is one matrix: the rows of all left ones then make one product.
    transposed : bool
        Whether the right operand lies in memory as ``n`` rows of ``k``.
    shared_a : bool
        Whether all of the batch have the one left operand.
    epilogue : Epilogue
    """

    dtype: str
    result: str
    a: int
    b: int
    m: Size
    n: Size
    k: int
    batch: Size
    transposed: bool
    shared_a: bool
    epilogue: Epilogue


@dataclass(frozen=True)
class Conv2d:
    """A convolution of NHWC data by OHWI weights.

    Parameters
    ----------
    dtype, result : str
    a, b : int
        Numbers of the arguments: data and weights.
    n, h, w, c, k, r, s, p, q : int
        Batch, data, filters, windows and result, as CUTLASS names them.
    padding, strides, dilation : tuple of int
        Of height and width; padding at the beginning, the rest follows from the result's size.
    epilogue : Epilogue
    """

    dtype: str
    result: str
    a: int
    b: int
    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    p: int
    q: int
    padding: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    epilogue: Epilogue


Problem: TypeAlias = "Gemm | Conv2d"


def read_problem(graph: Graph) -> Problem:
    """What the one match of a region computes.

    Raises
    ------
    ModelError
        For a region of several matches, with constants in it, or with an op that no kernel has.
    """
    if len(graph.calls) != 1 or graph.constants:
        found = f"{len(graph.calls)} matches and {len(graph.constants)} constants"
        raise ModelError(
            f"region '{graph.name}' holds {found}; a kernel of CUTLASS is one match and takes "
            "weights as arguments: partition with annotate_codegen=True and bind_constants=False, "
            "which are the defaults for 'cutlass'"
        )
    ops = graph.calls[0].ops
    root = next((i for i, op in enumerate(ops) if op.name in _ROOTS), None)
    if root is None:
        raise _unknown(graph, ops[0])
    epilogue = _read_epilogue(graph, ops[root], ops[root + 1 :])
    return _ROOTS[ops[root].name](graph, ops[:root], ops[root], epilogue)


def times(sizes: Iterable[Size]) -> Size:
    """The product of sizes."""
    known, unknown = 1, []
    for size in sizes:
        if isinstance(size, int):
            known *= size
        else:
            unknown.append(size)
    if not unknown:
        return known
    return " * ".join(([str(known)] if known != 1 else []) + unknown)


def _gemm(graph: Graph, before: tuple[Op, ...], op: Op, epilogue: Epilogue) -> Gemm:
    left, right = (_tensor(operand) for operand in op.operands)
    result = op.results[0]
    batched = times(right.shape[:-2]) != 1
    rows, batch = (left.shape[-2:-1], right.shape[:-2]) if batched else (left.shape[:-1], ())
    (weight,) = [_tensor(inner.operands[0]) for inner in before] or [right]
    return Gemm(
        dtype=left.dtype,
        result=result.dtype,
        a=graph.inputs.index(left),
        b=graph.inputs.index(weight),
        m=times(_cpp(graph, rows)),
        n=_cpp(graph, right.shape[-1:])[0],
        k=cast("int", left.shape[-1]),
        batch=times(_cpp(graph, batch)),
        transposed=bool(before),
        shared_a=batched and times(left.shape[:-2]) == 1,
        epilogue=epilogue,
    )


def _conv2d(graph: Graph, _: tuple[Op, ...], op: Op, epilogue: Epilogue) -> Conv2d:
    data, weight = (_tensor(operand) for operand in op.operands)
    sizes: Any = (*data.shape, *weight.shape[:3], *op.results[0].shape[1:3])
    return Conv2d(
        dtype=data.dtype,
        result=op.results[0].dtype,
        a=graph.inputs.index(data),
        b=graph.inputs.index(weight),
        **dict(zip("nhwckrspq", sizes, strict=True)),
        padding=op.attrs["padding"][:2],
        strides=op.attrs["strides"],
        dilation=op.attrs["dilation"],
        epilogue=epilogue,
    )


_ROOTS: dict[str, Callable[[Graph, tuple[Op, ...], Op, Epilogue], Problem]] = {
    "relax.matmul": _gemm,
    "relax.nn.conv2d": _conv2d,
}


def _read_epilogue(graph: Graph, root: Op, ops: tuple[Op, ...]) -> Epilogue:
    """The ops after the product, each of which takes what the one before it gave."""
    fields: dict[str, Any] = {}
    value = root.results[0]
    for op in ops:
        if op.name in _ACTIVATIONS:
            fields["unary" if "binary" in fields else "activation"] = _ACTIVATIONS[op.name]
        elif op.name in _BINARY:
            other = next(_tensor(x) for x in op.operands if x is not value)
            is_bias = value is root.results[0] and op.name == "relax.add"
            name = "bias" if is_bias else "residual"
            fields[name] = graph.inputs.index(other)
            fields[f"whole_{name}"] = _is_whole(other)
            if not is_bias:
                fields["binary"] = _BINARY[op.name]
        elif op.name != "relax.reshape":  # which changes nothing in memory
            raise _unknown(graph, op)
        value = op.results[0]
    return Epilogue(**fields)


def _is_whole(addend: Value) -> bool:
    """Whether it is one value for each element, and not for each of the last axis."""
    return times(addend.shape[:-1]) != 1


def _tensor(operand: Any) -> Value:
    if not isinstance(operand, Value):
        raise ModelError(f"expected a tensor for a kernel of CUTLASS, found {operand!r}")
    return operand


def _unknown(graph: Graph, op: Op) -> ModelError:
    known = ", ".join([*_ROOTS, *_BINARY, *_ACTIVATIONS])
    return ModelError(f"region '{graph.name}' computes {op.name}; kernels have: {known}")


def _cpp(graph: Graph, dims: Iterable[Dim]) -> list[Size]:
    """Dimensions as C++ that reads the region's arguments."""
    return [dim if isinstance(dim, int) else f"({_expression(graph, dim)})" for dim in dims]


def _expression(graph: Graph, dim: str) -> str:
    def place(match: re.Match[str]) -> str:
        name = match.group()
        if name not in graph.symbols:
            return f"std::{name}<int64_t>"  # max and min
        number, axis = graph.symbols[name]
        of_shape = graph.inputs[number].dims is not None
        return f"a{number}[{axis}]" if of_shape else f"a{number}->shape[{axis}]"

    return re.sub(r"[A-Za-z_]\w*", place, dim).replace("//", "/")
