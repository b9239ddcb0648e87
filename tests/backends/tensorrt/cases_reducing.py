"""Cases of reductions, norms, softmax, running sums, products and attention."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from tvm import relax

from .case import Case, Cases, b, const, f, i, t, weights

op, nn = relax.op, relax.op.nn

_ONCE = ("fp32",)


def _product(x: torch.Tensor, axes: Any, keep: bool) -> torch.Tensor:
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = x.prod(axis, keepdim=keep)
    return x


_REDUCTIONS: dict[str, Any] = {
    "max": torch.amax,
    "mean": torch.mean,
    "min": torch.amin,
    "prod": _product,
    "std": lambda x, axes, keep: torch.std(x, axes, correction=0, keepdim=keep),
    "sum": torch.sum,
    "variance": lambda x, axes, keep: torch.var(x, axes, correction=0, keepdim=keep),
}


def _reductions() -> Cases:
    cases: Cases = {}
    for name, of in _REDUCTIONS.items():
        relay = getattr(op, name)

        def case(x: Any, axes: Any, keep: bool, of: Any = of, relay: Any = relay) -> Case:
            over = axes if axes is not None else tuple(range(len(x.shape)))
            precisions = ("fp32", "fp16", "bf16") if "float" in x.dtype else _ONCE
            return Case(
                lambda x: relay(x, axes, keep), lambda x: of(x, over, keep), (x,), precisions
            )

        x = f("n", 3, 4, 5)
        cases[name] = {
            "one axis": case(x, [2], keep=False),
            "last axes": case(x, [-1, 1], keep=True),
            "batch": case(x, [0, 3], keep=False),
            "a cube": case(f(3, 3, 3), [1], keep=False),
            "everything": case(x, None, keep=False),
            "half": case(f(3, 9, dtype="float16"), [1], keep=False),
        }
        if name in ("max", "min", "prod", "sum"):
            cases[name]["integers"] = case(i("n", 3, 4, dtype="int64"), [1], keep=True)
    return cases


G, B2 = weights(4, 5, seed=1), weights(4, 5, seed=2)
CHANNELS = [weights(4, seed=seed, low=0.5, high=2) for seed in range(4)]


def _batch_norm(axis: int, **attributes: Any) -> Any:
    return lambda x: relax.TupleGetItem(
        nn.batch_norm(x, *map(const, CHANNELS), axis, training=False, **attributes), 0
    )


def _normalized(axis: int, epsilon: float, scale: bool = True, center: bool = True) -> Any:
    def reference(x: torch.Tensor) -> torch.Tensor:
        gain, bias, mean, variance = map(t, CHANNELS)
        y = functional.batch_norm(
            x.movedim(axis, 1),
            mean,
            variance,
            gain if scale else None,
            bias if center else None,
            eps=epsilon,
        )
        return y.movedim(1, axis)

    return reference


_NORMS: Cases = {
    "nn.softmax": {
        "middle axis": Case(
            lambda x: nn.softmax(x, 1), lambda x: torch.softmax(x, 1), (f("n", 3, 4, 5),)
        ),
        "last axis": Case(
            lambda x: nn.softmax(x, -1),
            lambda x: torch.softmax(x, -1),
            (f("n", 5, low=-9, high=9),),
        ),
        "a vector": Case(lambda x: nn.softmax(x, 0), lambda x: torch.softmax(x, 0), (f(5),)),
        "first axis": Case(
            lambda x: nn.softmax(x, 0), lambda x: torch.softmax(x, 0), (f("n", 3, 4, 5, 2),)
        ),
    },
    "nn.log_softmax": {
        "middle axis": Case(
            lambda x: nn.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), (f("n", 3, 4),)
        ),
        # Where softmax is 0 and its logarithm minus infinity.
        "far apart": Case(
            nn.log_softmax, lambda x: torch.log_softmax(x, -1), (f(3, 6, low=-200, high=200),)
        ),
    },
    "nn.layer_norm": {
        "two axes": Case(
            lambda x: nn.layer_norm(x, const(G), const(B2), [1, 2], 0.1),
            lambda x: functional.layer_norm(x, (4, 5), t(G), t(B2), 0.1),
            (f("n", 4, 5),),
        ),
        "last axis": Case(
            lambda x: nn.layer_norm(x, const(G[0]), const(B2[0]), [-1], 0.5),
            lambda x: functional.layer_norm(x, (5,), t(G[0]), t(B2[0]), 0.5),
            (f("n", "m", 5),),
        ),
        "first axes": Case(
            lambda x: nn.layer_norm(x, const(G), const(B2), [0, 1], 0.1),
            lambda x: functional.layer_norm(x.permute(2, 0, 1), (4, 5), t(G), t(B2), 0.1).permute(
                1, 2, 0
            ),
            (f(4, 5, "n"),),
        ),
        "inputs": Case(
            lambda x, g, b: nn.layer_norm(x, g, b, [-1]),
            lambda x, g, b: functional.layer_norm(x, (5,), g, b),
            (f("n", 5), f(5), f(5)),
        ),
    },
    "nn.rms_norm": {
        "last axis": Case(
            lambda x: nn.rms_norm(x, const(G[0]), [-1], 0.1),
            lambda x: functional.rms_norm(x, (5,), t(G[0]), 0.1),
            (f("n", 3, 5),),
        ),
        "two axes": Case(
            lambda x: nn.rms_norm(x, const(G), [1, 2], 0.5),
            lambda x: functional.rms_norm(x, (4, 5), t(G), 0.5),
            (f("n", 4, 5),),
        ),
    },
    "nn.batch_norm": {
        "inputs": Case(
            lambda x, *given: relax.TupleGetItem(
                nn.batch_norm(x, *given, 1, epsilon=0.2, training=False), 0
            ),
            lambda x, gain, bias, mean, variance: functional.batch_norm(
                x, mean, variance, gain, bias, eps=0.2
            ),
            (f("n", 4, 5), f(4), f(4), f(4), f(4, low=0.5)),
        ),
        "channels": Case(_batch_norm(1, epsilon=0.1), _normalized(1, 0.1), (f("n", 4, "h", "w"),)),
        "last axis": Case(_batch_norm(2, epsilon=0.3), _normalized(2, 0.3), (f("n", 4, 4),)),
        "without scale": Case(
            _batch_norm(1, epsilon=0.1, scale=False),
            _normalized(1, 0.1, scale=False),
            (f(2, 4, 5),),
        ),
        "without center": Case(
            _batch_norm(1, epsilon=0.1, center=False),
            _normalized(1, 0.1, center=False),
            (f(2, 4, 5),),
        ),
        "rank 2": Case(_batch_norm(1, epsilon=0.1), _normalized(1, 0.1), (f("n", 4),)),
    },
    "nn.group_norm": {
        "two groups": Case(
            lambda x: nn.group_norm(x, *map(const, CHANNELS[:2]), 2, 1, [2, 3], 0.1),
            lambda x: functional.group_norm(x, 2, *map(t, CHANNELS[:2]), 0.1),
            (f("n", 4, 5, 3),),
        ),
        "channels last": Case(
            lambda x: nn.group_norm(x, *map(const, CHANNELS[:2]), 2, 3, [1, 2], 0.1),
            lambda x: functional.group_norm(x.movedim(3, 1), 2, *map(t, CHANNELS[:2]), 0.1).movedim(
                1, 3
            ),
            (f("n", 5, "h", 4),),
        ),
        "each channel": Case(
            lambda x: nn.group_norm(x, *map(const, CHANNELS[:2]), 4, 1, [2], 0.5),
            lambda x: functional.group_norm(x, 4, *map(t, CHANNELS[:2]), 0.5),
            (f("n", 4, 5),),
        ),
    },
    "nn.instance_norm": {
        "channels last": Case(
            lambda x: nn.instance_norm(x, *map(const, CHANNELS[:2]), 2, [1], 0.2),
            lambda x: (
                functional.instance_norm(
                    x.mT, weight=t(CHANNELS[0]), bias=t(CHANNELS[1]), eps=0.2
                ).mT
            ),
            (f("n", 6, 4),),
        ),
        "planes": Case(
            lambda x: nn.instance_norm(x, *map(const, CHANNELS[:2]), 1, [2, 3], 0.1),
            lambda x: functional.instance_norm(
                x, weight=t(CHANNELS[0]), bias=t(CHANNELS[1]), eps=0.1
            ),
            (f("n", 4, 5, 6),),
        ),
        "dynamic planes": Case(
            lambda x: nn.instance_norm(x, *map(const, CHANNELS[:2]), 1, [2, 3], 0.3),
            lambda x: functional.instance_norm(
                x, weight=t(CHANNELS[0]), bias=t(CHANNELS[1]), eps=0.3
            ),
            (f("n", 4, "h", "w"),),
        ),
    },
}

_SUMS: Cases = {
    "cumsum": {
        "everything": Case(op.cumsum, lambda x: x.flatten().cumsum(0), (f("n", 3),)),
        "axis": Case(lambda x: op.cumsum(x, 1), lambda x: x.cumsum(1), (f("n", 5, 3),)),
        "without the element": Case(
            lambda x: op.cumsum(x, -1, exclusive=True), lambda x: x.cumsum(2) - x, (f("n", 2, 5),)
        ),
        "integers": Case(lambda x: op.cumsum(x, 0), lambda x: x.cumsum(0), (i(4, 5),), _ONCE),
        "truth": Case(lambda x: op.cumsum(x, 1, "int32"), lambda x: x.cumsum(1), (b(4, 9),), _ONCE),
        "a vector": Case(op.cumsum, lambda x: x.cumsum(0), (i(7, dtype="int64"),), _ONCE),
    }
}

M = weights(5, 6, seed=4)


def product(a: Any, b: Any) -> Case:
    return Case(op.matmul, torch.matmul, (a, b))


_PRODUCTS: Cases = {
    "nn.batch_matmul": {
        "matrices": product(f("n", 5), f(5, 6)),
        "batches": product(f("n", 3, 4, 5), f("n", 3, 5, 6)),
        "stretched batches": product(f("n", 1, 4, 5), f(3, 5, 2)),
        "matrix and vector": product(f("n", 3, 5), f(5)),
        "vector and matrix": product(f(4), f("n", 4, 5)),
        "vectors": product(f(5), f(5)),
        "a constant": Case(lambda x: op.matmul(x, const(M)), lambda x: x @ t(M), (f("n", 3, 5),)),
        "a constant before": Case(
            lambda x: op.matmul(const(M), x), lambda x: t(M) @ x, (f("n", 6, 3),)
        ),
        "widened": Case(
            lambda a, b: op.matmul(a, b, out_dtype="float32"),
            torch.matmul,
            (f("n", 5, dtype="float16"), f(5, 6, dtype="float16")),
            _ONCE,
        ),
    }
}


def _attention(scale: float | None) -> Any:
    """Of PyTorch, which has the heads before the length."""

    def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: Any = None) -> Any:
        parts = (part.transpose(1, 2) for part in (q, k, v))
        found = functional.scaled_dot_product_attention(*parts, attn_mask=bias, scale=scale)
        return found.transpose(1, 2)

    return reference


def _scaled(relay: Any, scale: float | None) -> Any:
    from tvm.tirx import FloatImm

    given = None if scale is None else FloatImm("float32", scale)
    return lambda *operands: relay(*operands, scale=given)


_ATTENTION: Cases = {
    "nn.attention": {
        "symbolic heads": Case(
            _scaled(nn.attention, 0.4),
            _attention(0.4),
            (f("n", 4, "m", 8), f("n", 6, "m", 8), f("n", 6, "m", 5)),
        ),
        "scale of its own": Case(
            _scaled(nn.attention, 0.7),
            _attention(0.7),
            (f("n", 4, 2, 8), f("n", 6, 2, 8), f("n", 6, 2, 5)),
        ),
        "causal": Case(
            lambda q, k, v: nn.attention(q, k, v, causal_mask="TopLeft"),
            lambda q, k, v: functional.scaled_dot_product_attention(
                *(part.transpose(1, 2) for part in (q, k, v)), is_causal=True
            ).transpose(1, 2),
            (f("n", 4, 2, 8), f("n", 6, 2, 8), f("n", 6, 2, 5)),
        ),
        "causal from the end": Case(
            lambda q, k, v: nn.attention(q, k, v, causal_mask="BottomRight"),
            lambda q, k, v: functional.scaled_dot_product_attention(
                *(part.transpose(1, 2) for part in (q, k, v)),
                attn_mask=torch.ones(4, 6, dtype=torch.bool).tril(2),
            ).transpose(1, 2),
            (f("n", 4, 2, 8), f("n", 6, 2, 8), f("n", 6, 2, 5)),
        ),
        "dynamic lengths": Case(
            _scaled(nn.attention, None),
            _attention(None),
            (f("n", "m", 3, 4), f("n", "h", 3, 4), f("n", "h", 3, 4)),
        ),
    },
    "nn.attention_bias": {
        "each head": Case(
            _scaled(nn.attention_bias, None),
            _attention(None),
            (f("n", 4, 2, 8), f("n", 6, 2, 8), f("n", 6, 2, 5), f("n", 2, 4, 6, high=4)),
        ),
        "one for all": Case(
            _scaled(nn.attention_bias, 0.3),
            _attention(0.3),
            (f(2, 4, 3, 8), f(2, 6, 3, 8), f(2, 6, 3, 8), f(1, 1, 4, 6, high=4)),
        ),
    },
}

CASES: Cases = {**_reductions(), **_NORMS, **_SUMS, **_PRODUCTS, **_ATTENTION}
