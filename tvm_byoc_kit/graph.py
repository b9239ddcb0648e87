"""A region as frozen dataclasses: what a codegen written in Python reads.

A region is one Relax function that a backend takes over. It calls composite functions, one for
each match of a pattern, and these call operators. Here the same is a list of `Call`, each with its
`Op`, over `Value` that have one name throughout the region: an op inside one composite refers to
the result of another directly. A codegen that has a kernel for each composite reads ``call.name``,
``call.inputs`` and ``call.results``; one that translates operator by operator reads ``graph.ops``.

Nothing of it is a TVM object. Tuples are flattened: a region, a call and an op have any number of
results, and an operand that is a tuple is a Python tuple of values. A symbolic dimension is a
string, an expression over `Graph.symbols` such as ``"n * 2"``, and :func:`evaluate` gives its size.

The C++ form of the same region is ``csrc/include/byoc/json_codegen.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.signature import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from tvm.relax import Function

__all__ = ["Call", "Dim", "Graph", "Op", "Operand", "Shape", "Value", "evaluate", "read_graph"]

# A size, or an expression over symbols: "n", "n * 2", "(n + 1) // 2", "max(n, 3)".
Dim: TypeAlias = int | str


@dataclass(frozen=True)
class Value:
    """A tensor that the region reads, computes or returns, or a shape that it is given.

    Parameters
    ----------
    name : str
        Unique in the region.
    shape : tuple of int or str
        A string is an expression over the region's symbols.
    dtype : str
        NumPy's name (``float32``), or TVM's for what NumPy has not (``bfloat16``).
    dims : tuple of int or str, optional
        For a shape parameter (``R.Shape``): the dimensions that it holds. The value itself is the
        vector of them, ``int64[rank]``, given at the call as a ``tvm_ffi.Shape``.
    data : numpy.ndarray, optional
        For a constant: its elements, read-only, not copied. They live as long as the array does.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    dims: tuple[Dim, ...] | None = None
    data: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def is_constant(self) -> bool:
        """Whether the elements are known when the region is compiled."""
        return self.data is not None

    @property
    def is_static(self) -> bool:
        """Whether every dimension is known when the region is compiled."""
        return all(isinstance(dim, int) for dim in self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Shape:
    """A shape that an op is given in place: ``R.shape([n * 2, 4])``.

    Parameters
    ----------
    dims : tuple of int or str
        As in `Value.dims`, so that a converter may read ``operand.dims`` of either.
    """

    dims: tuple[Dim, ...]


# What an op is applied to. Numbers, texts and None stand for operands that are no tensors.
Operand: TypeAlias = "Value | Shape | tuple[Operand, ...] | int | float | str | None"


@dataclass(frozen=True)
class Op:
    """A call of a Relax operator.

    Parameters
    ----------
    name : str
        Such as ``relax.nn.conv2d``.
    operands : tuple of operands
    attrs : mapping of str to value
        Every attribute, as ``None``, ``bool``, ``int``, ``float``, ``str``, or tuples of these;
        dtypes are names, an index map is its final indices over the initial ones: ``("i0", "i2",
        "i1")``. What is not set is None.
    results : tuple of Value
        Several for an op such as ``relax.split``.
    """

    name: str
    operands: tuple[Operand, ...]
    attrs: Mapping[str, Any]
    results: tuple[Value, ...]


@dataclass(frozen=True)
class Call:
    """A call of a composite function: one match of a pattern.

    Parameters
    ----------
    name : str
        Of the composite, which is the pattern's: ``custom_accel.conv2d_relu``.
    inputs : tuple of Value
        What the ops read from outside, constants too, in the order of the first use. A value that
        is read twice is here once; see `operands`.
    ops : tuple of Op
        In the order of execution.
    results : tuple of Value
        What the rest of the region may read.
    """

    name: str
    inputs: tuple[Value, ...]
    ops: tuple[Op, ...]
    results: tuple[Value, ...]

    @property
    def operands(self) -> tuple[Value, ...]:
        """What the ops read from outside, one for each time that it is read.

        In the order of execution, so that for a pattern their number and order is always the same:
        data, weights, addend for a convolution with an addend, also where that is the data again.
        """
        inside = {value for op in self.ops for value in op.results}
        read = (value for op in self.ops for value in _tensors(op.operands))
        return tuple(value for value in read if value not in inside)


@dataclass(frozen=True)
class Graph:
    """A region.

    Parameters
    ----------
    name : str
        Its global symbol, by which the host calls it.
    backend : str
    inputs : tuple of Value
        In the order of the call's arguments; shape parameters are among them.
    constants : tuple of Value
        In the order of the first use.
    calls : tuple of Call
        In the order of execution; a composite that is called twice is here twice.
    outputs : tuple of Value
        In the order of the call's output arguments. One may be an input or a constant.
    symbols : mapping of str to (int, int)
        Where the size of each symbol is found: the number of an input, and the axis of its shape
        or, for a shape parameter, the place in it.
    """

    name: str
    backend: str
    inputs: tuple[Value, ...]
    constants: tuple[Value, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Value, ...]
    symbols: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def ops(self) -> Iterator[Op]:
        """The ops of all calls, in the order of execution."""
        return (op for call in self.calls for op in call.ops)


def _tensors(operands: tuple[Operand, ...]) -> Iterator[Value]:
    for operand in operands:
        if isinstance(operand, Value):
            yield operand
        elif isinstance(operand, tuple):
            yield from _tensors(operand)


def read_graph(function: Function, constant_names: Mapping[Any, str] | None = None) -> Graph:
    """The region that `function` is.

    Parameters
    ----------
    function : tvm.relax.Function
        With the attributes ``Codegen`` and ``global_symbol``, as codegens get it.
    constant_names : mapping of TVM's constants to str, optional
        The names that RunCodegen gives them. None: they get names of their own.

    Raises
    ------
    ModelError
        Naming the region, the composite and what in it cannot be read: a shape or dtype that is
        unknown, an ``If``, a ``MatchCast``, a call of a function that is no composite.
    """
    from tvm_byoc_kit.region_reader import RegionReader

    return RegionReader(function, constant_names).read()
