"""The rewrites that bring an ONNX graph into the form that TVM imports, and imports right.

A rewrite has the signature of :data:`Rewrite`: it changes the model in place and gives the number
of nodes it replaced. It may count on value_info having been filled by shape inference, and
must keep the names of graph inputs and outputs. What it cannot do right, it refuses with a
ModelError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["REWRITES", "Rewrite"]


@dataclass(frozen=True)
class Rewrite:
    """One entry of the table.

    Parameters
    ----------
    name : str
        For messages and reports.
    apply : callable
        Changes the model in place; gives the number of nodes replaced.
    lowers : frozenset of (str, str)
        Domain (empty for ONNX's own) and operator of what the importer lacks and this rewrite
        removes or refuses, so that the scan lets it pass.
    """

    name: str
    apply: Callable[[onnx.ModelProto], int]
    lowers: frozenset[tuple[str, str]] = frozenset()


# In the order they run; shapes are inferred anew after each one that replaced something.
REWRITES: tuple[Rewrite, ...] = ()
