"""Upstream's two passes, `FuseOpsByPattern` and `MergeCompositeFunctions`, in linear time.

TVM looks for an equal function whenever it makes one, by a hash that leaves out what constants
contain (apache-tvm 0.27: ``StructuralHashIgnoreNDarray`` in ``src/relax/ir/block_builder.cc``). All
products by weights of one shape collide, and are compared each with each, in every pass over the
module. So where constants become part of the functions, each function has an attribute that depends
on them while the passes run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm import IRModule
    from tvm.relax.transform import FusionPattern, PatternCheckContext

__all__ = ["fuse", "fuse_and_merge"]

_MARK = "byoc_constants"


def fuse(
    mod: IRModule,
    patterns: Sequence[FusionPattern],
    bind_constants: bool,
    functions: list[str] | None = None,
) -> IRModule:
    """Every match a region of its own; upstream's pass takes any module.

    Parameters
    ----------
    mod : tvm.IRModule
    patterns : sequence of FusionPattern
    bind_constants : bool
    functions : list of str, optional
        Where to look for matches; by default everywhere.
    """
    from tvm.relax.transform import FuseOpsByPattern

    chosen = _marked(patterns, bind_constants)
    fuse_ops = FuseOpsByPattern(
        chosen, bind_constants, annotate_codegen=True, entry_functions=functions
    )
    fused = fuse_ops(mod)
    return _unmarked(fused) if bind_constants else fused


def fuse_and_merge(
    mod: IRModule, patterns: Sequence[FusionPattern], bind_constants: bool
) -> IRModule:
    """Neighbouring matches one region; upstream's pass takes one plain function called ``main``."""
    from tvm.relax.transform import FuseOpsByPattern, MergeCompositeFunctions

    chosen = _marked(patterns, bind_constants)
    merged = MergeCompositeFunctions()(FuseOpsByPattern(chosen, bind_constants)(mod))
    return _unmarked(merged) if bind_constants else merged


def _marked(patterns: Sequence[FusionPattern], bind_constants: bool) -> list[FusionPattern]:
    return [_mark(pattern) for pattern in patterns] if bind_constants else list(patterns)


def _mark(pattern: FusionPattern) -> FusionPattern:
    """`pattern`, whose composite functions get an attribute that depends on their constants.

    Equal constants give equal marks, so TVM shares functions as it would without.
    """
    from tvm.relax.transform import FusionPattern

    latest = ""

    def check(context: PatternCheckContext) -> bool:
        nonlocal latest
        if pattern.check is not None and not pattern.check(context):
            return False
        latest = _constants(context)
        return True

    def attributes(annotated: Any) -> dict[str, Any]:  # called right after `check`, by the pass
        own = dict(pattern.attrs_getter(annotated)) if pattern.attrs_getter is not None else {}
        return own | ({_MARK: latest} if latest else {})

    return FusionPattern(
        pattern.name, pattern.pattern, pattern.annotation_patterns, check, attributes
    )


def _constants(context: PatternCheckContext) -> str:
    """Fingerprints of the constants of a match; empty when it has none."""
    found = [
        fingerprint(arg)
        for value in context.matched_bindings.values()
        for arg in getattr(value, "args", ())
    ]
    return ",".join(sorted(str(mark) for mark in found if mark is not None))


def _unmarked(mod: IRModule) -> IRModule:
    """`mod` without the marks, which stand on the composites in its regions."""
    from tvm import IRModule, relax

    functions = {
        var: _without_marks(function)
        if isinstance(function, relax.Function) and function.attrs and "Codegen" in function.attrs
        else function
        for var, function in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _without_marks(region: Any) -> Any:
    from tvm import relax
    from tvm.relax.expr import _update_type

    blocks = [
        type(block)([_without_mark(binding) for binding in block.bindings], block.span)
        for block in region.body.blocks
    ]
    body = relax.SeqExpr(blocks, region.body.body, region.body.span)
    _update_type(body, region.body.ty)
    return relax.Function(
        region.params, body, region.ret_ty, region.is_pure, region.attrs, region.span
    )


def _without_mark(binding: Any) -> Any:
    from tvm import relax

    value = binding.value
    if not isinstance(value, relax.Function):
        return binding
    return relax.VarBinding(binding.var, value.without_attr(_MARK), binding.span)
