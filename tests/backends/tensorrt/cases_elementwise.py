"""Cases of what computes element by element: functions, arithmetic, comparisons, choices, casts."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tvm import relax

from .case import Case, Cases, Input, b, const, f, i, t, weights

op, nn = relax.op, relax.op.nn


def function(name: str) -> Any:
    """An operator of Relax by its pattern's name."""
    return getattr(nn, name[3:]) if name.startswith("nn.") else getattr(op, name)


_HALVES = Input((3, 7), values=(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.25, -0.75, 3.0))
_SPECIAL = Input((2, 3), values=(1.0, float("nan"), float("inf"), -float("inf"), 0.0, -2.0))
_ONCE = ("fp32",)

# Domain, and what it is.
_FUNCTIONS: dict[str, tuple[float, float, Any]] = {
    "abs": (-2, 2, torch.abs),
    "acos": (-0.9, 0.9, torch.acos),
    "acosh": (1.1, 4, torch.acosh),
    "asin": (-0.9, 0.9, torch.asin),
    "asinh": (-4, 4, torch.asinh),
    "atan": (-4, 4, torch.atan),
    "atanh": (-0.9, 0.9, torch.atanh),
    "ceil": (-4, 4, torch.ceil),
    "cos": (-4, 4, torch.cos),
    "cosh": (-2, 2, torch.cosh),
    "erf": (-2, 2, torch.erf),
    "exp": (-2, 2, torch.exp),
    "floor": (-4, 4, torch.floor),
    "log": (0.1, 4, torch.log),
    "negative": (-2, 2, torch.neg),
    "nn.gelu": (-3, 3, functional.gelu),
    "nn.gelu_tanh": (-3, 3, lambda x: functional.gelu(x, approximate="tanh")),
    "nn.relu": (-2, 2, torch.relu),
    "nn.selu": (-3, 3, functional.selu),
    "nn.silu": (-4, 4, functional.silu),
    "rsqrt": (0.1, 4, torch.rsqrt),
    "sigmoid": (-4, 4, torch.sigmoid),
    "sign": (-2, 2, torch.sign),
    "sin": (-4, 4, torch.sin),
    "sinh": (-2, 2, torch.sinh),
    "sqrt": (0, 4, torch.sqrt),
    "square": (-2, 2, torch.square),
    "tan": (-1, 1, torch.tan),
    "tanh": (-2, 2, torch.tanh),
}
_OF_INTEGERS = {"abs": torch.abs, "negative": torch.neg, "square": torch.square, "sign": torch.sign}


def _functions() -> Cases:
    cases: Cases = {
        name: {
            "dynamic": Case(function(name), of, (f("n", 3, 7, low=low, high=high),)),
            "half": Case(
                function(name), of, (f(2, 9, low=low, high=high, dtype="float16"),), _ONCE
            ),
        }
        for name, (low, high, of) in _FUNCTIONS.items()
    }
    for name, of in (_OF_INTEGERS | {"nn.relu": torch.relu}).items():
        cases[name] = {**cases[name], "integers": Case(function(name), of, (i(2, 9),), _ONCE)}
    cases["exp"] = {**cases["exp"], "scalar": Case(op.exp, torch.exp, (f(),))}
    cases["round"] = {"halves": Case(op.round, torch.round, (_HALVES,))}
    for name in ("isnan", "isinf", "isfinite"):
        cases[name] = {"special": Case(function(name), getattr(torch, name), (_SPECIAL,))}
    return cases


ALPHA = weights(4, seed=7)

_ACTIVATIONS: Cases = {
    "nn.leakyrelu": {
        "slope": Case(
            lambda x: nn.leakyrelu(x, 0.3), lambda x: functional.leaky_relu(x, 0.3), (f("n", 5),)
        ),
    },
    "nn.softplus": {
        "sharp, with a threshold": Case(
            lambda x: nn.softplus(x, 3.0, 2.0),
            lambda x: functional.softplus(x, 3, 2),
            (f("n", 40, low=-3, high=3),),
        ),
        "far above the threshold": Case(
            nn.softplus,
            functional.softplus,
            (f(2, 40, low=-90, high=90),),
        ),
    },
    "nn.prelu": {
        "channels": Case(
            lambda x: nn.prelu(x, const(ALPHA), 1),
            lambda x: functional.prelu(x, t(ALPHA)),
            (f("n", 4, 3, 5),),
        ),
        "last axis": Case(
            lambda x: nn.prelu(x, const(ALPHA), 2),
            lambda x: torch.where(x > 0, x, x * t(ALPHA)),
            (f(3, 4, 4),),
        ),
        "an input's slope": Case(
            lambda x, a: nn.prelu(x, a, 1),
            lambda x, a: torch.where(x > 0, x, x * a[:, None]),
            (f(2, 4, 4), f(4)),
        ),
    },
    "clip": {
        "bounds": Case(
            lambda x: op.clip(x, -0.5, 1.25), lambda x: x.clamp(-0.5, 1.25), (f("n", 3, 7),)
        ),
        "integers": Case(lambda x: op.clip(x, -3, 5), lambda x: x.clamp(-3, 5), (i(4, 9),), _ONCE),
        "halves": Case(
            lambda x: op.clip(x, 0, 6),
            lambda x: x.clamp(0, 6),
            (f(4, 9, low=-9, high=9, dtype="float16"),),
            _ONCE,
        ),
        "one bound": Case(
            lambda x: op.clip(x, 0.5, float("inf")), lambda x: x.clamp(min=0.5), (f(4, 9),)
        ),
    },
}

_BINARY: dict[str, Any] = {
    "add": torch.add,
    "divide": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "multiply": torch.mul,
    "power": torch.pow,
    "subtract": torch.sub,
}
ROW = weights(5, seed=3, low=0.5, high=2)
INTEGERS = np.array([[3, -2, 7, 1, -5]], "int64")


def _arithmetic() -> Cases:
    cases: Cases = {}
    for name, of in _BINARY.items():
        relay = getattr(op, name)
        low = 0.25 if name == "power" else -2
        x = f("n", 4, 5, low=low)
        cases[name] = {
            "other rank": Case(relay, of, (x, f(4, 1, low=0.5))),
            "both stretched": Case(relay, of, (f("n", 1, 5, low=low), f(1, 4, 1, low=0.5))),
            "constant behind": Case(
                lambda x, relay=relay: relay(x, const(ROW)), lambda x, of=of: of(x, t(ROW)), (x,)
            ),
            "constant before": Case(
                lambda x, relay=relay: relay(const(ROW), x),
                lambda x, of=of: of(t(ROW), x),
                (f(3, 4, 5, low=0.25),),
            ),
            "scalar": Case(
                lambda x, relay=relay: relay(x, const(np.float32(1.5))),
                lambda x, of=of: of(x, torch.tensor(1.5)),
                (x,),
            ),
            "bfloat16": Case(
                relay,
                of,
                (f(4, 5, low=0.5, dtype="bfloat16"), f(5, low=0.5, dtype="bfloat16")),
                _ONCE,
            ),
        }
        if name not in ("divide", "power"):
            cases[name]["integers"] = Case(
                lambda x, relay=relay: relay(x, const(INTEGERS)),
                lambda x, of=of: of(x, t(INTEGERS)),
                (i("n", 5, dtype="int64"),),
                _ONCE,
            )
    return cases


_COMPARISONS: dict[str, Any] = {
    "equal": torch.eq,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
    "not_equal": torch.ne,
}
_LOGIC: dict[str, Any] = {
    "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or,
    "bitwise_xor": torch.bitwise_xor,
    "logical_and": torch.logical_and,
    "logical_or": torch.logical_or,
    "logical_xor": torch.logical_xor,
}


def _comparisons() -> Cases:
    nan = float("nan")
    some = Input((6,), values=(1.0, nan, -1.0, 2.0, nan, 3.0))
    other = Input((3, 1), values=(1.0, 2.0, nan))
    cases: Cases = {
        name: {
            "numbers": Case(getattr(op, name), of, (some, other)),
            "integers": Case(getattr(op, name), of, (i("n", 30, high=-6), i(30, high=-6)), _ONCE),
        }
        for name, of in _COMPARISONS.items()
    }
    for name in ("equal", "not_equal"):
        of, relay = _COMPARISONS[name], getattr(op, name)
        cases[name] = {**cases[name], "truth": Case(relay, of, (b(9), b(4, 1)), _ONCE)}
    for name, of in _LOGIC.items():
        cases[name] = {"stretched": Case(getattr(op, name), of, (b("n", 3, 1), b(5)))}
    for name in ("bitwise_not", "logical_not"):
        cases[name] = {"some": Case(getattr(op, name), torch.logical_not, (b("n", 9),))}
    cases["where"] = {
        "other ranks": Case(op.where, torch.where, (b("n", 1, 5), f(4, 1), f(5))),
        "constants": Case(
            lambda c, x: op.where(c, x, const(ROW)),
            lambda c, x: torch.where(c, x, t(ROW)),
            (b(4, 1), f("n", 4, 5)),
        ),
        "integers": Case(op.where, torch.where, (b(2, 5), i(2, 1), i(5)), _ONCE),
    }
    return cases


def _cast(dtype: str) -> Any:
    return lambda x: op.astype(x, dtype)


_CASTS: Cases = {
    "astype": {
        "to integers": Case(_cast("int32"), lambda x: x.trunc(), (f("n", 9, low=-5, high=5),)),
        "to long integers": Case(_cast("int64"), lambda x: x.trunc(), (f(4, 9, low=-5, high=5),)),
        "from integers": Case(_cast("float32"), lambda x: x.float(), (i("n", 9),)),
        "from bytes": Case(
            _cast("float32"), lambda x: x.float(), (i(4, 9, low=0, high=255, dtype="uint8"),)
        ),
        "from truth": Case(_cast("float32"), lambda x: x.float(), (b(4, 9),)),
        "truth to integers": Case(_cast("int64"), lambda x: x.long(), (b(4, 9),)),
        "to truth": Case(_cast("bool"), lambda x: x != 0, (i("n", 9, low=-1, high=2),)),
        "numbers to truth": Case(
            _cast("bool"), lambda x: x != 0, (Input((5,), values=(0.0, 0.25, -0.25, 1.0, -0.0)),)
        ),
        "narrower": Case(_cast("float16"), lambda x: x, (f(4, 9),)),
        "wider": Case(_cast("float32"), lambda x: x, (f("n", 9, dtype="float16"),)),
        "to bfloat16": Case(_cast("bfloat16"), lambda x: x, (f(4, 9),)),
        "shorter": Case(_cast("int32"), lambda x: x.int(), (i(4, 9, dtype="int64"),)),
    }
}

CASES: Cases = {**_functions(), **_ACTIVATIONS, **_arithmetic(), **_comparisons(), **_CASTS}
