"""From an ``nn.Module``, an ExportedProgram or a ``.pt2`` file to an ImportedModel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.model import ImportedModel, Reference
from tvm_byoc_kit.negative_indices import normalize_negative_indices
from tvm_byoc_kit.preparation import tidy
from tvm_byoc_kit.signature import function_signature

if TYPE_CHECKING:
    from collections.abc import Sequence


def import_torch(
    source: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any
) -> ImportedModel:
    """Import an ``nn.Module`` (traced with `example_inputs`), an ExportedProgram or a .pt2 file.

    The exported graph is decomposed into the ops that have a converter, screened for what cannot
    be imported, given the casts that PyTorch's type promotion implies, and translated node by
    node; each node's type must come out as PyTorch says.

    Raises
    ------
    ModelError
        When torch is not installed, example inputs are missing, or export or import fails.
    """
    missing = probe("torch")
    if not missing:
        raise ModelError(f"PyTorch models need torch: {missing.remedy}")
    from tvm_byoc_kit.frontends.torch.decompositions import decompose
    from tvm_byoc_kit.frontends.torch.exporting import export
    from tvm_byoc_kit.frontends.torch.interface import Interface
    from tvm_byoc_kit.frontends.torch.promotion import insert_casts
    from tvm_byoc_kit.frontends.torch.screening import screen
    from tvm_byoc_kit.frontends.torch.translation import translate

    program, origin = export(source, example_inputs, dynamic_shapes)
    interface = Interface.of(program, origin)
    lowered = decompose(program, origin)
    screen(lowered, origin)
    interface.keep_tensors_only(lowered)
    insert_casts(lowered.graph_module)
    mod = translate(lowered, origin, unwrap=len(interface.outputs) == 1)
    # Before constants are folded, so that nothing is folded from a wrong element; and after, since
    # an index may turn out to be constant.
    mod, report = tidy(normalize_negative_indices(mod))
    mod = normalize_negative_indices(mod)
    inputs, outputs = function_signature(mod, "main", interface.outputs)
    return ImportedModel(
        mod,
        inputs,
        outputs,
        source="torch",
        origin=origin,
        reference=Reference("torch", interface.runner(program)),
        report=report,
    )
