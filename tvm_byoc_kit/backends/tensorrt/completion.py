"""Options with all that the model and the machine decide, so that the manifest tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.compat import require_quantized
from tvm_byoc_kit.backends.tensorrt.engine import check_options, target_capabilities
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.profiles import by_dimension
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor

if TYPE_CHECKING:
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["complete_options"]


def complete_options(options: dict[str, Any], model: ImportedModel) -> dict[str, Any]:
    """All options, the profiles by dimension, and what engines that are built now are for.

    Parameters
    ----------
    options : dict
        Fields of `TensorRTOptions`.
    model : ImportedModel

    Raises
    ------
    OptionError
        For a profile that does not fit the model, or an option that the vendor does not have.
    ModelError
        For a symbolic dimension without a profile, or 8 bits where nothing is quantized.
    BackendUnavailable
        When nothing here can build the engine.
    """
    chosen = TensorRTOptions(**options)
    require_quantized(chosen.precision, [model.mod[model.entry]])
    found = {**vars(chosen), "profiles": by_dimension(chosen.profiles, model)}
    if chosen.build_at == "compile":
        vendor = find_vendor(chosen.vendor)
        check_options(vendor, chosen)
        found["vendor"] = vendor.name
        found["compute_capabilities"] = target_capabilities(vendor, chosen)
    return found
