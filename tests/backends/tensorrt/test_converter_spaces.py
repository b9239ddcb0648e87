"""Attributes drawn at random: convolutions, pools, reductions, slices, pads, broadcasts, orders.

What a draw makes that the predicates refuse is no case; all others have to agree with PyTorch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional
from tvm import relax

from tvm_byoc_kit.backends.tensorrt import BACKEND

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

from .case import Case, Input, const, f, t, weights
from .references import convolution, pool, transposed

op, nn = relax.op, relax.op.nn

drawn = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),  # many a case is refused, see `check`
)
Draw = Any


def check(case: Case) -> None:
    """Of what TensorRT is given."""
    call = case.module()["main"].body.blocks[0].bindings[0].value
    assert BACKEND.refusal is not None
    assume(BACKEND.refusal(call) is None)
    case.check()


def several(count: int, low: int, high: int) -> Any:
    return st.tuples(*[st.integers(low, high)] * count)


@st.composite
def convolutions(draw: Draw, turned: bool = False) -> Case:
    dims, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 1, 2, 3]))
    sizes = draw(several(dims, 3, 7 if dims < 3 else 4))
    window = draw(several(dims, 1, 3))
    attributes: dict[str, Any] = {
        "strides": draw(several(dims, 1, 3)),
        "padding": draw(several(2 * dims, 0, 2)),
        "groups": groups,
    }
    if turned:
        attributes["output_padding"] = draw(several(dims, 0, 2))
        kernel = (2 * groups, draw(st.integers(1, 2)), *window)
    else:
        attributes["dilation"] = draw(several(dims, 1, 2))
        kernel = (groups * draw(st.integers(1, 2)), 2, *window)
    x = f(draw(st.sampled_from([1, 2, "n"])), 2 * groups, *sizes)
    w = weights(*kernel)
    relay = getattr(nn, f"conv{dims}d{'_transpose' if turned else ''}")
    of = transposed if turned else convolution
    begin, end = attributes["padding"][:dims], attributes["padding"][dims:]
    if turned:
        steps, more = attributes["strides"], attributes["output_padding"]
        assume(all(extra < step for extra, step in zip(more, steps, strict=True)))
        full = [(n - 1) * step + k for n, step, k in zip(sizes, steps, window, strict=True)]
        kept = [n + e - b - a for n, e, b, a in zip(full, more, begin, end, strict=True)]
    else:
        spans = [(k - 1) * d + 1 for k, d in zip(window, attributes["dilation"], strict=True)]
        kept = [n + b + a - s + 1 for n, b, a, s in zip(sizes, begin, end, spans, strict=True)]
    assume(min(kept) > 0)
    return Case(
        lambda x: relay(x, const(w), **attributes), lambda x: of(x, t(w), **attributes), (x,)
    )


@given(case=convolutions())
@drawn
def test_convolutions(case: Case) -> None:
    check(case)


@given(case=convolutions(turned=True))
@drawn
def test_transposed_convolutions(case: Case) -> None:
    check(case)


@st.composite
def pools(draw: Draw) -> Case:
    dims, kind = draw(st.integers(1, 3)), draw(st.sampled_from(["max", "avg"]))
    window, strides = draw(several(dims, 1, 4)), draw(several(dims, 1, 3))
    padding = draw(several(2 * dims, 0, 2))
    modes = {"ceil_mode": draw(st.booleans()), "count_include_pad": draw(st.booleans())}
    sizes = draw(several(dims, 3, 8 if dims < 3 else 4))
    room = [
        n + before + behind - width
        for n, before, behind, width in zip(
            sizes, padding[:dims], padding[dims:], window, strict=True
        )
    ]
    assume(min(room) >= 0)
    relay = getattr(nn, f"{kind}_pool{dims}d")
    return Case(
        lambda x: relay(x, window, strides=strides, padding=padding, **modes),
        lambda x: pool(x, kind, window, strides, padding, **modes),
        (f(draw(st.sampled_from([1, "n"])), 2, *sizes),),
    )


@given(case=pools())
@settings(drawn, max_examples=80)
def test_pools(case: Case) -> None:
    check(case)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(data=st.data(), shape=SHAPES, keep=st.booleans())
@drawn
def test_reductions(data: Draw, shape: tuple[int, ...], keep: bool) -> None:
    name = data.draw(st.sampled_from(["sum", "mean", "max", "min", "variance"]))
    rank = len(shape)
    over = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True))
    axes = [axis - rank * data.draw(st.booleans()) for axis in over]
    of = {
        "max": torch.amax,
        "min": torch.amin,
        "variance": lambda x, axes, keep: torch.var(x, axes, correction=0, keepdim=keep),
    }.get(name) or getattr(torch, name)
    relay = getattr(op, name)
    check(Case(lambda x: relay(x, axes, keep), lambda x: of(x, over, keep), (f(*shape),)))


@given(data=st.data(), shape=SHAPES)
@settings(drawn, max_examples=80)
def test_slices(data: Draw, shape: tuple[int, ...]) -> None:
    axes = data.draw(st.lists(st.integers(0, len(shape) - 1), min_size=1, unique=True))
    bounds = st.integers(-6, 6)
    steps = st.sampled_from([1, 1, 2, 3, -1, -2])
    ranges = [slice(data.draw(bounds), data.draw(bounds), data.draw(steps)) for _ in axes]
    at = [slice(None)] * len(shape)
    for axis, part in zip(axes, ranges, strict=True):
        at[axis] = part
    assume(np.zeros(shape)[tuple(at)].size)
    begin, end, strides = ([getattr(r, n) for r in ranges] for n in ("start", "stop", "step"))
    check(
        Case(
            lambda x: op.strided_slice(x, axes, begin, end, strides),
            lambda x: x.numpy()[tuple(at)],
            (f(*shape),),
        )
    )


@given(data=st.data(), sizes=several(2, 2, 5))
@drawn
def test_pads(data: Draw, sizes: tuple[int, int]) -> None:
    mode = data.draw(st.sampled_from(["constant", "reflect", "replicate", "circular"]))
    widths = [
        data.draw(st.integers(0, 6 if mode in ("constant", "replicate") else 1)) for _ in "1234"
    ]
    top, bottom, left, right = widths
    value = {"value": 1.5} if mode == "constant" else {}
    check(
        Case(
            lambda x: nn.pad(x, (0, 0, 0, 0, *widths), mode, 1.5),
            lambda x: functional.pad(x, (left, right, top, bottom), mode, **value),
            (f("n", 2, *sizes),),
        )
    )


@st.composite
def broadcast(draw: Draw) -> tuple[tuple[int, ...], ...]:
    """Two or three shapes of one result."""
    full = draw(SHAPES)
    shapes = []
    for _ in range(draw(st.integers(2, 3))):
        kept = draw(st.integers(0, len(full)))
        shapes.append(
            tuple(size if draw(st.booleans()) else 1 for size in full[len(full) - kept :])
        )
    return tuple(shapes)


@given(shapes=broadcast(), name=st.sampled_from(["add", "subtract", "maximum", "less"]))
@drawn
def test_broadcasts(shapes: tuple[tuple[int, ...], ...], name: str) -> None:
    of = {"less": torch.lt, "maximum": torch.maximum}.get(name) or getattr(torch, name)
    if len(shapes) == 2:
        check(Case(getattr(op, name), of, tuple(f(*shape) for shape in shapes)))
    else:
        given = (Input(shapes[0], "bool"), *(f(*shape) for shape in shapes[1:]))
        check(Case(op.where, torch.where, given))


@given(data=st.data(), shape=SHAPES)
@drawn
def test_orders_and_shapes(data: Draw, shape: tuple[int, ...]) -> None:
    order = data.draw(st.permutations(range(len(shape))))
    check(Case(lambda x: op.permute_dims(x, order), lambda x: x.permute(*order), (f(*shape),)))
    count = math.prod(shape)
    divisor = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    target = (divisor, count // divisor)
    check(Case(lambda x: op.reshape(x, target), lambda x: x.reshape(target), (f(*shape),)))
