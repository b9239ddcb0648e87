"""Cases of convolutions and pools over channels that are last, and of windows that are uneven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax

from .case import Case, Cases, Input, const, f, t, weights
from .references import convolution, pool, transposed

nn = relax.op.nn
_LAST = {1: "NWC", 2: "NHWC", 3: "NDHWC"}


def first(x: torch.Tensor) -> torch.Tensor:
    """Channels before the axes that a window moves over."""
    return x.movedim(-1, 1)


def last(x: torch.Tensor) -> torch.Tensor:
    """And behind them again."""
    return x.movedim(1, -1)


def convolved(
    name: str, of: Callable[..., Any], kernel_layout: str, x: Input, **attributes: Any
) -> Case:
    """Channels last; the kernel has five outputs, three inputs and the windows 2, 3 and 1."""
    dims = len(attributes["strides"])
    spatial = "DHW"[-dims:]
    extent = dict(zip(spatial, (2, 3, 1), strict=False)) | {"O": 5, "I": 3}
    kernel = weights(*(extent[axis] for axis in kernel_layout))
    order = ("IO" if "transpose" in name else "OI") + spatial
    ordered = np.transpose(kernel, [kernel_layout.index(axis) for axis in order])
    layouts = {"data_layout": _LAST[dims], "kernel_layout": kernel_layout}
    return Case(
        lambda x: getattr(nn, name)(x, const(kernel), **attributes, **layouts),
        lambda x: last(of(first(x), t(ordered), **attributes)),
        (x,),
    )


def pooled(
    kind: str,
    x: Input,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    **modes: bool,
) -> Case:
    """Channels last."""
    dims = len(window)
    relay = getattr(nn, f"{kind}_pool{dims}d")
    modes = {"count_include_pad": False, **modes}
    return Case(
        lambda x: relay(x, window, strides=strides, padding=padding, layout=_LAST[dims], **modes),
        lambda x: last(pool(first(x), kind, window, strides, padding, **modes)),
        (x,),
    )


def counted(
    x: Input, window: Sequence[int], strides: Sequence[int], padding: Sequence[int]
) -> Case:
    """A last window that is not filled, where padding counts and what is beyond it does not."""
    dims = len(window)
    modes = {"ceil_mode": True, "count_include_pad": True}
    relay = getattr(nn, f"avg_pool{dims}d")
    return Case(
        lambda x: relay(x, window, strides=strides, padding=padding, **modes),
        lambda x: pool(x, "avg", window, strides, padding, **modes),
        (x,),
    )


def adaptive(x: Input, target: tuple[int, ...], *, channels_last: bool = False) -> Case:
    dims = len(target)
    relay = getattr(nn, f"adaptive_avg_pool{dims}d")
    of = getattr(torch.nn.functional, f"adaptive_avg_pool{dims}d")
    if channels_last:
        return Case(
            lambda x: relay(x, target, layout=_LAST[dims]),
            lambda x: last(of(first(x), target)),
            (x,),
        )
    return Case(lambda x: relay(x, target), lambda x: of(x, target), (x,))


CASES: Cases = {
    "nn.conv1d": {
        "channels last": convolved(
            "conv1d",
            convolution,
            "WIO",
            f("n", 9, 3),
            strides=(2,),
            padding=(2, 1),
            dilation=(2,),
            groups=1,
        )
    },
    "nn.conv2d": {
        f"channels last, {layout}": convolved(
            "conv2d",
            convolution,
            layout,
            f("n", "h", 7, 3),
            strides=(1, 2),
            padding=(1, 0, 2, 3),
            dilation=(2, 1),
            groups=1,
        )
        for layout in ("HWIO", "OHWI", "IWHO")
    }
    | {
        "result with channels last": Case(
            lambda x: nn.conv2d(x, const(weights(5, 3, 2, 3)), out_layout="NHWC"),
            lambda x: last(torch.nn.functional.conv2d(x, t(weights(5, 3, 2, 3)))),
            (f("n", 3, 5, 6),),
        )
    },
    "nn.conv3d": {
        "channels last": convolved(
            "conv3d",
            convolution,
            "DHWIO",
            f("n", 5, 6, 7, 3),
            strides=(1, 2, 3),
            padding=(1, 0, 2, 0, 3, 1),
            dilation=(1, 2, 1),
            groups=1,
        )
    },
    "nn.conv1d_transpose": {
        "channels last": convolved(
            "conv1d_transpose",
            transposed,
            "WIO",
            f("n", 5, 3),
            strides=(2,),
            padding=(0, 1),
            output_padding=(1,),
            groups=1,
        )
    },
    "nn.conv2d_transpose": {
        "channels last": convolved(
            "conv2d_transpose",
            transposed,
            "HWOI",
            f("n", 4, 5, 3),
            strides=(1, 2),
            padding=(0, 2, 1, 1),
            output_padding=(0, 1),
            groups=1,
        )
    },
    "nn.max_pool1d": {"channels last": pooled("max", f("n", 9, 3), (3,), (2,), (2, 1))},
    "nn.max_pool2d": {
        "channels last": pooled(
            "max", f("n", "h", 7, 3), (3, 2), (2, 1), (1, 0, 1, 1), ceil_mode=True
        )
    },
    "nn.max_pool3d": {
        "channels last": pooled("max", f(2, 5, 6, 7, 3), (2, 3, 1), (1, 2, 3), (1, 0, 0, 0, 2, 0))
    },
    "nn.avg_pool1d": {
        "padding counts, rounded up": counted(f("n", 2, 8), (3,), (2,), (1, 1)),
        "no padding to count, rounded up": counted(f("n", 2, "h"), (3,), (2,), (0, 0)),
    },
    "nn.avg_pool2d": {
        "channels last": pooled(
            "avg",
            f("n", 8, 9, 3),
            (3, 4),
            (2, 3),
            (1, 0, 0, 2),
            ceil_mode=True,
            count_include_pad=True,
        ),
        "padding counts, rounded up": counted(f("n", 2, 8, 9), (3, 4), (2, 3), (1, 0, 0, 2)),
    },
    "nn.avg_pool3d": {
        "padding counts, rounded up": counted(f(1, 2, 8, 7, 6), (3, 2, 3), (2,) * 3, (1,) * 6)
    },
    "nn.adaptive_avg_pool1d": {"uneven windows": adaptive(f("n", 3, 7), (3,))},
    "nn.adaptive_avg_pool2d": {
        "uneven windows": adaptive(f("n", 3, 7, 8), (3, 5)),
        "more than there are": adaptive(f("n", 3, 5, 4), (7, 9)),
        "everything of a symbol": adaptive(f("n", 3, "h", 8), (1, 5)),
        "channels last": adaptive(f("n", 7, 6, 3), (7, 4), channels_last=True),
    },
    "nn.adaptive_avg_pool3d": {"uneven windows": adaptive(f(1, 3, 7, 4, 5), (3, 1, 4))},
}
