"""What one entry of the table of converters is, and the decorator that makes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backends.tensorrt.network import Tensor

    Function: TypeAlias = Callable[..., Tensor | np.ndarray | tuple[Any, ...]]

__all__ = ["BF16", "CONVERTERS", "NARROW", "Converter", "converter"]

#: For `converter`: dtypes that an operator is not computed in, but in float32.
NARROW = frozenset({"float16", "bfloat16"})
BF16 = frozenset({"bfloat16"})


@dataclass(frozen=True)
class Converter:
    """How one Relax operator becomes layers.

    Parameters
    ----------
    convert : callable
        Gets the `NetworkBuilder`, the :class:`~tvm_byoc_kit.graph.Op` and its operands: a tensor,
        an array for a constant, a :class:`~tvm_byoc_kit.graph.Shape`, a tuple of these, or numbers
        as they are. Gives a tensor or an array for each result; several as a tuple.
    widened : frozenset of str
        Operands of these dtypes are cast to float32 before, and results back to them after.
    """

    convert: Function
    widened: frozenset[str] = frozenset()


CONVERTERS: dict[str, Converter] = {}


def converter(*names: str, widened: frozenset[str] = frozenset()) -> Callable[[Function], Function]:
    """Enter a function into the table as the converter of the operators `names`.

    Raises
    ------
    ValueError
        For an operator that has a converter.
    """

    def enter(function: Function) -> Function:
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"{name} has a converter: {CONVERTERS[name].convert.__name__}")
            CONVERTERS[name] = Converter(function, widened)
        return function

    return enter
