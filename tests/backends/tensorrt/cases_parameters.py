"""Cases of parameters that are no constants, and of those that have symbolic sizes."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional
from tvm import relax

from .case import Case, Cases, Input, const, f, t, weights

op, nn = relax.op, relax.op.nn
_VARIANCE = f("m", low=0.5, high=2)


def _batch_norm(x: Input, axis: int, *, scale: bool = True, center: bool = True) -> Case:
    """Every parameter is an input."""

    def of(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        shape = [-1 if i == axis else 1 for i in range(x.dim())]
        gamma, beta, mean, variance = (p.reshape(shape) for p in parameters)
        y = (x - mean) / torch.sqrt(variance + 0.1)
        y = y * gamma if scale else y
        return y + beta if center else y

    def relay(x: relax.Var, *parameters: relax.Var) -> relax.Expr:
        modes = {"axis": axis, "epsilon": 0.1, "scale": scale, "center": center, "training": False}
        return nn.batch_norm(x, *parameters, **modes)[0]

    return Case(relay, of, (x, f("m"), f("m"), f("m"), _VARIANCE))


def _causal(mask: str, queries: int, keys: int) -> Case:
    """The mask as PyTorch takes it: what a query sees."""
    seen = np.tri(queries, keys, keys - queries if mask == "BottomRight" else 0, dtype=bool)

    def of(*parts: torch.Tensor) -> torch.Tensor:
        heads = (part.transpose(1, 2) for part in parts)
        return functional.scaled_dot_product_attention(*heads, attn_mask=t(seen)).transpose(1, 2)

    return Case(
        lambda q, k, v: nn.attention(q, k, v, causal_mask=mask),
        of,
        (f("n", queries, "h", 8), f("n", keys, "h", 8), f("n", keys, "h", 5)),
    )


CASES: Cases = {
    "nn.batch_norm": {
        "computed parameters": _batch_norm(f("n", "m", 3), 1),
        "computed parameters without scale": _batch_norm(f(2, 3, "m"), 2, scale=False),
        "computed parameters without center": _batch_norm(f("m", 3), 0, center=False),
    },
    "nn.layer_norm": {
        "parameters of a symbol": Case(
            lambda x, g, b: nn.layer_norm(x, g, b, [1], 0.1),
            lambda x, g, b: functional.layer_norm(x, g.shape, g, b, 0.1),
            (f("n", "m"), f("m"), f("m")),
        ),
        "a vector": Case(
            lambda x: nn.layer_norm(x, const(weights(5)), const(weights(5, seed=6)), [0], 0.1),
            lambda x: functional.layer_norm(x, (5,), t(weights(5)), t(weights(5, seed=6)), 0.1),
            (f(5),),
        ),
    },
    "nn.rms_norm": {
        "a parameter of a symbol": Case(
            lambda x, g: nn.rms_norm(x, g, [1], 0.1),
            lambda x, g: functional.rms_norm(x, g.shape, g, 0.1),
            (f("n", "m"), f("m")),
        ),
    },
    "nn.instance_norm": {
        "parameters of a symbol": Case(
            lambda x, g, b: nn.instance_norm(x, g, b, 2, [1], 0.1),
            lambda x, g, b: functional.instance_norm(x.mT, weight=g, bias=b, eps=0.1).mT,
            (f("n", 5, "m"), f("m"), f("m")),
        ),
    },
    "nn.group_norm": {
        "computed parameters, one of two axes": Case(
            lambda x, g, b: nn.group_norm(x, g, b, 2, 1, [3], 0.1),
            lambda x, g, b: (
                functional.group_norm(x.movedim(2, 1).flatten(0, 1), 2, g, b, 0.1)
                .unflatten(0, (x.shape[0], x.shape[2]))
                .movedim(1, 2)
            ),
            (f("n", 4, "h", 5), f(4), f(4)),
        ),
    },
    "nn.prelu": {
        "a slope of a symbol": Case(
            lambda x, a: nn.prelu(x, a, 1),
            lambda x, a: torch.where(x > 0, x, x * a[:, None]),
            (f("n", "m", 3), f("m")),
        ),
    },
    "nn.attention": {
        "causal from the last": _causal("BottomRight", 4, 6),
        "causal, more queries": _causal("TopLeft", 6, 4),
    },
    "nn.conv2d_transpose": {
        "of bfloat16": Case(
            lambda x: nn.conv2d_transpose(x, const(weights(3, 2, 2, 3), "bfloat16"), strides=2),
            lambda x: functional.conv_transpose2d(x, t(weights(3, 2, 2, 3)), stride=2),
            (f("n", 3, 4, 5, dtype="bfloat16"),),
            ("fp32",),
        ),
    },
    "nn.batch_matmul": {
        "ranks apart over symbols": Case(op.matmul, torch.matmul, (f("n", "m"), f(2, 3, "m", "h"))),
        "a vector by symbols": Case(op.matmul, torch.matmul, (f("m"), f("n", "m", "h"))),
    },
}
