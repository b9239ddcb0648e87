"""The rewrites that bring an ONNX graph into the form that TVM imports, and imports right.

A rewrite has the signature of :attr:`Rewrite.apply`: it changes the model in place and gives the
number of nodes it replaced. It may count on value_info having been filled by shape inference, and
must keep the names of graph inputs and outputs. What it cannot do right, it refuses with a
ModelError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_byoc_kit.frontends.onnx import known_wrong
from tvm_byoc_kit.frontends.onnx.rewrites import (
    branches,
    cast_like,
    clip,
    constants,
    conv_transpose,
    dropout,
    einsum,
    exact,
    expand,
    fold,
    layer_normalization,
    limits,
    mod,
    nms_scores,
    non_max_suppression,
    one_hot,
    pad,
    power,
    quantized,
    recurrent,
    reductions,
    resize,
    rms_normalization,
    roi_align,
    row_numbers,
    softplus,
    space_to_depth,
)
from tvm_byoc_kit.frontends.onnx.shapes import infer_types

if TYPE_CHECKING:
    import onnx
    from tvm import IRModule

__all__ = ["REWRITES", "Rewrite", "apply_rewrites", "finish_import"]


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
    after_import : callable, optional
        Takes and gives the imported module, where `apply` has replaced something.
    """

    name: str
    apply: Callable[[onnx.ModelProto], int]
    lowers: frozenset[tuple[str, str]] = frozenset()
    after_import: Callable[[IRModule], IRModule] | None = None


# In the order they run; shapes are inferred anew after each one that replaced something.
REWRITES: tuple[Rewrite, ...] = (
    Rewrite("constants", constants.rewrite),
    Rewrite("cast like", cast_like.rewrite),
    Rewrite("fold", fold.rewrite),
    Rewrite("row numbers", row_numbers.rewrite),
    Rewrite("branches", branches.rewrite),
    Rewrite("recurrent", recurrent.rewrite_recurrent, recurrent.LOWERS),
    Rewrite("quantized", quantized.rewrite_quantized, quantized.LOWERS),
    Rewrite("dropout", dropout.rewrite),
    Rewrite("einsum", einsum.rewrite),
    Rewrite("limits", limits.rewrite),
    Rewrite("scores", nms_scores.rewrite),
    Rewrite("exact", exact.rewrite),
    Rewrite("expand", expand.rewrite),
    Rewrite("clip", clip.rewrite, after_import=clip.gather),
    Rewrite("conv transpose", conv_transpose.rewrite),
    Rewrite("layer normalization", layer_normalization.rewrite),
    Rewrite("mod", mod.rewrite),
    Rewrite("non max suppression", non_max_suppression.rewrite),
    Rewrite("one hot", one_hot.rewrite),
    Rewrite("pad", pad.rewrite, after_import=pad.to_relax),
    Rewrite("power", power.rewrite),
    Rewrite("reductions", reductions.rewrite),
    Rewrite("resize", resize.rewrite),
    Rewrite("rms normalization", rms_normalization.rewrite),
    Rewrite("roi align", roi_align.rewrite),
    Rewrite("softplus", softplus.rewrite),
    Rewrite("space to depth", space_to_depth.rewrite),
    Rewrite("known wrong", known_wrong.refuse),
)


def apply_rewrites(model: onnx.ModelProto) -> list[Rewrite]:
    """Run every rewrite; gives those that replaced something."""
    infer_types(model)
    used = []
    for rewrite in REWRITES:
        if rewrite.apply(model):
            infer_types(model)
            used.append(rewrite)
    return used


def finish_import(mod: IRModule, used: list[Rewrite]) -> IRModule:
    """Run on the imported module what the rewrites `used` have to do there."""
    for rewrite in used:
        if rewrite.after_import is not None:
            mod = rewrite.after_import(mod)
    return mod
