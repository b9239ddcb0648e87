"""Models in 16 bits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend, get_backend
from tvm_byoc_kit.constant_folding import fold_constants
from tvm_byoc_kit.errors import ModelError, OptionError, reason
from tvm_byoc_kit.partitioning import as_prepared

if TYPE_CHECKING:
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["half_precision"]


def half_precision(model: Any, backend: str | Backend) -> ImportedModel:
    """The model in float16, prepared for `backend`; inputs and outputs keep their dtypes.

    TVM's ``ToMixedPrecision`` decides which operators compute in 16 bits. Products are summed in 32
    bits: by a backend's kernels, or where TVM writes them all, by a result of 32 bits.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
        In float32.
    backend : str or Backend
        What it will be built for.

    Raises
    ------
    OptionError
        For a backend with an option of its own for that.
    ModelError
        When TVM cannot convert the model.
    """
    from tvm import transform
    from tvm.relax import transform as relax_transform

    chosen = get_backend(backend)
    if "precision" in getattr(chosen.options, "__dataclass_fields__", ()):
        raise OptionError(
            f"backend '{chosen.name}' computes in 16 bits by itself: build with "
            "options={'precision': 'fp16'}"
        )
    imported = as_prepared(model, chosen, None)
    sums = "float16" if chosen.patterns else "float32"
    try:
        mod = relax_transform.ToMixedPrecision(sums)(imported.mod)
        mod = fold_constants(mod, Counter())
        tidy = (
            relax_transform.CanonicalizeBindings(),
            relax_transform.DeadCodeElimination([imported.entry]),
        )
        mod = transform.Sequential(tidy)(mod)
    except Exception as error:  # TVM raises many types
        where = imported.origin or "the module"
        raise ModelError(f"TVM cannot convert {where} to float16: {reason(error)}") from error
    return replace(imported, mod=mod)
