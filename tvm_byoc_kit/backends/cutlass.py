"""NVIDIA CUTLASS: upstream's patterns and rewriting, with reasons for what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backend import Backend
from tvm_byoc_kit.backends.cuda_predicates import is_sized
from tvm_byoc_kit.backends.cutlass_predicates import missing_attention_headers, refusal
from tvm_byoc_kit.backends.upstream import allocate_workspace, upstream_patterns
from tvm_byoc_kit.fusing import fuse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tvm import IRModule
    from tvm.ir import Expr
    from tvm.relax import Function
    from tvm.relax.dpl import DFPattern
    from tvm.relax.transform import FusionPattern

    Rewriter = Callable[[Expr, Mapping[DFPattern, Expr]], Expr]

_MODULE = "tvm.relax.backend.cuda.cutlass"


def partitioner(mod: IRModule, patterns: list[FusionPattern]) -> IRModule:
    """What upstream's `partition_for_cutlass` does, with `patterns`."""
    from tvm.relax.backend.cuda.cutlass import annotate_workspace

    fused = fuse(rewrite_attention(mod), patterns, bind_constants=False)
    return allocate_workspace(fused, annotate_workspace)


def rewrite_attention(mod: IRModule) -> IRModule:
    """Upstream's rewriting of matmul, softmax, matmul to attention, where CUTLASS takes that.

    Where it does not, the two products stay what CUTLASS may take one by one.
    """
    from tvm import relax
    from tvm.ir import IRModule

    if not _takes_attention():
        return mod
    functions = {
        var: _rewritten(function) if isinstance(function, relax.Function) else function
        for var, function in mod.functions_items()
    }
    return IRModule(functions, attrs=mod.attrs, global_infos=mod.global_infos)


def _takes_attention() -> bool:
    """Whether any attention is accepted: to rewrite takes time, and fails in TVM 0.27 for some."""
    from tvm.ir import PrimType

    return not missing_attention_headers() and is_sized(PrimType("float16"))


def _rewritten(function: Function) -> Function:
    from tvm.relax.dpl import rewrite_call

    result = function
    for pattern, rewriter in _rewrites():
        result = rewrite_call(pattern, rewriter, result)
        if _holds_refused_attention(result):
            return function
    return result


def _rewrites() -> list[tuple[DFPattern, Rewriter]]:
    """Upstream's, multi-query attention first, in its order."""
    from tvm.relax.backend.cuda.cutlass import attention_rewrite_patterns
    from tvm.relax.backend.patterns import make_attention_rewrite_pattern

    multi_query = make_attention_rewrite_pattern(
        "BSNH", "BSNH", with_bias=False, with_cast=True, with_kv_repeat=True
    )
    return [multi_query, *attention_rewrite_patterns()]


def _holds_refused_attention(function: Function) -> bool:
    from tvm import relax
    from tvm.ir import Op

    refused: list[bool] = []

    def look(expr: Expr) -> None:
        is_op = isinstance(expr, relax.Call) and isinstance(expr.op, Op)
        if is_op and expr.op.name.startswith("relax.nn.attention"):
            refused.append(refusal(expr) is not None)

    relax.analysis.post_order_visit(function, look)
    return any(refused)


BACKEND = Backend(
    name="cutlass",
    summary="NVIDIA CUTLASS kernels",
    patterns=upstream_patterns(_MODULE, "cutlass."),
    refusal=refusal,
    partitioner=partitioner,
    bind_constants=False,
    annotate_codegen=True,
    requires={
        "partition": ("tvm",),
        "codegen": ("codegen:cutlass", "cuda-toolkit"),
        "device": ("device:cuda",),
    },
    target="cuda",
    layout={"relax.nn.conv2d": ("NHWC", "OHWI")},
)
