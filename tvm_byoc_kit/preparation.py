"""Preparation: what an imported module goes through before it is partitioned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.errors import ModelError, reason

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["prepare"]


def prepare(mod: IRModule) -> IRModule:
    """Compute what depends on weights alone, and drop what nothing reads.

    Importers write a bias as the reshape, and a transposed weight as the permutation, of a
    constant; and a dead op between two matches keeps them from becoming one region.

    Parameters
    ----------
    mod : tvm.IRModule
        With the weights as constants and ``main`` as the function to run.

    Raises
    ------
    ModelError
        When TVM cannot compute what depends on weights alone, for instance an empty slice of them.
    """
    from tvm.ir.transform import Sequential
    from tvm.relax import transform

    passes = [
        transform.FoldConstant(),
        transform.CanonicalizeBindings(),
        transform.DeadCodeElimination(),
    ]
    try:
        return Sequential(passes)(mod)
    except Exception as error:  # TVM raises InternalError, ValueError, TypeError …
        raise ModelError(f"TVM cannot simplify the imported model: {reason(error)}") from error
