"""The casts that PyTorch's type promotion implies, written into the graph.

Relax's binary ops want one dtype, and its reductions and functions compute in the dtype that they
are given: a float16 sum of 4096 ones is 2048. PyTorch computes those in float32 and rounds once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from tvm_byoc_kit.frontends.torch.decompositions import graph_modules

if TYPE_CHECKING:
    from collections.abc import Callable

aten = torch.ops.aten


def insert_casts(root: fx.GraphModule) -> None:
    """Insert the casts into the graph of `root`, and into those of its branches, in place."""
    for module in graph_modules(root):
        for node in list(module.graph.nodes):
            wanted = _wanted(node)
            if wanted is not None:
                casts = _Casts(module.graph, node, wanted)
                node.args = fx.node.map_arg(node.args, casts)
                node.kwargs = fx.node.map_arg(node.kwargs, casts)
        module.recompile()


class _Casts:
    """Replaces an argument of `node` by its cast where it has another dtype than is wanted."""

    def __init__(
        self, graph: fx.Graph, node: fx.Node, wanted: Callable[[torch.Tensor], torch.dtype]
    ) -> None:
        self.graph, self.node, self.wanted = graph, node, wanted

    def __call__(self, argument: fx.Node) -> fx.Node:
        value = argument.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return argument
        dtype = self.wanted(value)
        if dtype == value.dtype:
            return argument
        with self.graph.inserting_before(self.node):
            cast = self.graph.call_function(
                aten._to_copy.default,  # noqa: SLF001 - PyTorch's name
                (argument,),
                {"dtype": dtype},
            )
        cast.meta = {**self.node.meta, "val": value.to(dtype)}
        return cast


def _wanted(node: fx.Node) -> Callable[[torch.Tensor], torch.dtype] | None:
    """From a tensor argument of `node` to the dtype it must have; None when nothing is to do."""
    result = node.meta.get("val")
    packet = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if node.op != "call_function" or not packet:
        return None
    if packet in COMPARING:
        common = _common_dtype(node)
        return None if common is None else (lambda _: common)
    if packet not in PROMOTING or not isinstance(result, torch.Tensor):
        return None if packet in AS_GIVEN else _computing
    computed = result.dtype if packet in AS_GIVEN else _computing_dtype(result.dtype)
    condition: Any = node.all_input_nodes[0].meta["val"] if packet == "where" else None

    def wanted(value: torch.Tensor) -> torch.dtype:
        return value.dtype if value is condition else computed

    return wanted


def _computing(value: torch.Tensor) -> torch.dtype:
    return _computing_dtype(value.dtype)


def _computing_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _common_dtype(node: fx.Node) -> torch.dtype | None:
    values = [arg.meta["val"] if isinstance(arg, fx.Node) else arg for arg in node.args[:2]]
    if not any(isinstance(value, torch.Tensor) for value in values):
        return None
    common = torch.result_type(*values)
    return torch.uint8 if common is torch.bool else common  # LLVM would get i1 to compare


COMPARING = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
# All tensor arguments are cast to the dtype of the result (or that it is computed in).
PROMOTING = COMPARING | frozenset(
    [
        "add", "sub", "mul", "div", "pow", "maximum", "minimum", "fmod", "remainder",
        "floor_divide", "atan2", "where", "cat", "stack", "clamp", "clamp_min", "clamp_max",
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift",
        "rsub", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp",
        "log", "log2", "log10", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan",
        "tanh", "sum", "prod", "mean", "cumsum", "cumprod", "addmm", "baddbmm", "mm", "bmm",
        "matmul",
    ]
)  # fmt: skip
# Ops that are exact, or rounded once, in the dtype that they are given, and those whose converter
# accumulates in float32 by itself; all others compute half and bfloat16 in float32.
AS_GIVEN = COMPARING | frozenset(
    [
        "abs", "add", "addmm", "alias", "amax", "amin", "arange", "argmax", "argmin", "argsort",
        "as_strided", "baddbmm", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or",
        "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_to", "cat", "ceil", "clamp",
        "clamp_max", "clamp_min", "clone", "constant_pad_nd", "contiguous", "convolution", "copy",
        "detach", "div", "embedding", "empty", "empty_like", "expand", "eye", "fill", "flip",
        "floor", "full", "full_like", "gather", "hardtanh", "index", "index_put", "index_select",
        "lift_fresh_copy", "logical_and", "logical_not", "logical_or", "logical_xor", "max",
        "max_pool2d_with_indices", "max_pool3d_with_indices", "maximum", "min", "minimum", "mm",
        "mul", "neg", "new_full", "new_ones", "new_zeros", "one_hot", "ones", "ones_like",
        "permute", "pixel_shuffle", "relu", "repeat", "reshape", "round", "scalar_tensor",
        "scatter", "select", "sign", "slice", "slice_scatter", "sort", "split",
        "split_with_sizes", "squeeze", "stack", "sub", "sym_size", "t", "tile", "topk",
        "transpose", "tril", "triu", "trunc", "unbind", "unsqueeze", "view", "where", "zeros",
        "zeros_like", "matmul", "_to_copy", "getitem",
    ]
)  # fmt: skip
