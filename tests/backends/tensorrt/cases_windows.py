"""Cases of convolutions, pools and resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from tvm import relax

from .case import Case, Cases, Input, const, f, t, weights
from .references import convolution, onnx_node, pool, transposed

op, nn = relax.op, relax.op.nn


def conv(x: Input, kernel: tuple[int, ...], **attributes: Any) -> Case:
    """With all attributes of the operator, ``padding`` on each side."""
    relay = getattr(nn, f"conv{len(attributes['strides'])}d")
    w = weights(*kernel)
    return Case(
        lambda x: relay(x, const(w), **attributes),
        lambda x: convolution(x, t(w), **attributes),
        (x,),
    )


def deconv(x: Input, kernel: tuple[int, ...], **attributes: Any) -> Case:
    """The same of a transposed one."""
    relay = getattr(nn, f"conv{len(attributes['strides'])}d_transpose")
    w = weights(*kernel)
    return Case(
        lambda x: relay(x, const(w), **attributes),
        lambda x: transposed(x, t(w), **attributes),
        (x,),
    )


W = weights(4, 4, 3, 3)
LINE = weights(6, 4, 3)

_CONVOLUTIONS: Cases = {
    "nn.conv1d": {
        "all attributes": conv(
            f("n", 4, 16), (6, 2, 3), strides=(2,), padding=(2, 1), dilation=(3,), groups=2
        ),
        # Sums that TensorRT-RTX would fail to fuse.
        "one channel, and a number": Case(
            lambda x: op.add(nn.conv1d(x, const(LINE[:1])), const(np.float32([[[1.5]]]))),
            lambda x: functional.conv1d(x, t(LINE[:1])) + 1.5,
            (f("n", 4, 9),),
        ),
        "channels, and a number": Case(
            lambda x: op.subtract(nn.conv1d(x, const(LINE)), const(np.float32(1.5))),
            lambda x: functional.conv1d(x, t(LINE)) - 1.5,
            (f("n", 4, 9),),
        ),
        "dynamic length": conv(
            f("n", 4, "h"), (6, 4, 3), strides=(1,), padding=(0, 2), dilation=(1,), groups=1
        ),
    },
    "nn.conv2d": {
        "all attributes": conv(
            f("n", 4, 9, 12),
            (6, 2, 3, 2),
            strides=(2, 1),
            padding=(1, 0, 2, 3),
            dilation=(1, 2),
            groups=2,
        ),
        "dynamic": conv(
            f("n", 4, "h", "w"),
            (6, 4, 3, 5),
            strides=(1, 2),
            padding=(2, 1, 0, 1),
            dilation=(2, 1),
            groups=1,
        ),
        "depthwise": conv(
            f(2, 4, 7, 7),
            (8, 1, 3, 3),
            strides=(1, 1),
            padding=(1, 1, 1, 1),
            dilation=(1, 1),
            groups=4,
        ),
        "widened": Case(
            lambda x: nn.conv2d(x, const(W, "float16"), padding=1, out_dtype="float32"),
            lambda x: torch.nn.functional.conv2d(x, t(W), padding=1),
            (f("n", 4, 5, 6, dtype="float16"),),
            ("fp32",),
        ),
    },
    "nn.conv3d": {
        "all attributes": conv(
            f("n", 4, 6, 7, 8),
            (6, 2, 2, 3, 1),
            strides=(1, 2, 3),
            padding=(1, 0, 2, 0, 3, 1),
            dilation=(2, 1, 1),
            groups=2,
        ),
    },
    "nn.conv1d_transpose": {
        "all attributes": deconv(
            f("n", 4, 6), (4, 3, 4), strides=(3,), padding=(1, 2), output_padding=(2,), groups=2
        ),
    },
    "nn.conv2d_transpose": {
        "all attributes": deconv(
            f("n", 4, 5, 4),
            (4, 3, 4, 3),
            strides=(2, 3),
            padding=(1, 0, 2, 1),
            output_padding=(1, 1),
            groups=2,
        ),
        "dynamic": deconv(
            f("n", 4, "h", "w"),
            (4, 6, 3, 2),
            strides=(2, 1),
            padding=(0, 1, 1, 0),
            output_padding=(1, 0),
            groups=1,
        ),
    },
    "nn.conv3d_transpose": {
        "all attributes": deconv(
            f("n", 2, 3, 4, 3),
            (2, 3, 2, 3, 2),
            strides=(1, 2, 2),
            padding=(0, 1, 0, 0, 2, 1),
            output_padding=(0, 1, 1),
            groups=1,
        ),
    },
}


def pooled(
    x: Input,
    kind: str,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    **modes: bool,
) -> Case:
    relay = getattr(nn, f"{kind}_pool{len(window)}d")
    modes = {"count_include_pad": False, **modes}  # Relax's own default is another in 1-D and 3-D
    return Case(
        lambda x: relay(x, window, strides=strides, padding=padding, **modes),
        lambda x: pool(x, kind, window, strides, padding, **modes),
        (x,),
    )


def _pools() -> Cases:
    line, plane, volume = f("n", 3, 11), f("n", 3, 8, 11), f("n", 2, 5, 6, 7)
    cases: Cases = {}
    for kind in ("max", "avg"):
        cases[f"{kind}_pool1d"] = {
            "asymmetric": pooled(line, kind, (4,), (3,), (1, 2)),
            "rounded up": pooled(line, kind, (3,), (3,), (1, 1), ceil_mode=True),
        }
        cases[f"{kind}_pool2d"] = {
            "asymmetric": pooled(plane, kind, (3, 4), (1, 2), (0, 3, 2, 1)),
            "rounded up": pooled(plane, kind, (3, 2), (2, 3), (0, 1, 0, 0), ceil_mode=True),
            # The last window would begin in the padding: there is none.
            "rounded up into the padding": pooled(
                f(1, 2, 4, 5), kind, (2, 2), (2, 2), (1, 1, 1, 1), ceil_mode=True
            ),
            "dynamic": pooled(f("n", 3, "h", "w"), kind, (2, 3), (2, 1), (1, 0, 0, 2)),
            "dynamic, rounded up": pooled(
                f("n", 3, "h", "w"), kind, (3, 3), (2, 2), (1, 1, 0, 0), ceil_mode=True
            ),
        }
        cases[f"{kind}_pool3d"] = {
            "asymmetric": pooled(volume, kind, (2, 3, 4), (2, 1, 3), (1, 0, 2, 0, 2, 1)),
            "rounded up": pooled(volume, kind, (2, 2, 3), (2, 3, 3), (0,) * 6, ceil_mode=True),
        }
    counted = {"count_include_pad": True}
    cases["avg_pool1d"] = {
        **cases["avg_pool1d"],
        "padding counts": pooled(line, "avg", (4,), (3,), (1, 2), **counted),
    }
    cases["avg_pool2d"] = {
        **cases["avg_pool2d"],
        "padding counts": pooled(plane, "avg", (3, 4), (1, 2), (0, 3, 2, 1), **counted),
        "no padding to count": pooled(plane, "avg", (3, 4), (1, 2), (0, 0, 0, 0), **counted),
    }
    cases["avg_pool3d"] = {
        **cases["avg_pool3d"],
        "padding counts": pooled(
            volume, "avg", (2, 3, 4), (2, 1, 3), (1, 0, 2, 0, 2, 1), **counted
        ),
    }
    for dims, sizes, target in ((1, (12,), (4,)), (2, (6, 9), (2, 3)), (3, (4, 6, 8), (2, 1, 4))):
        relay = getattr(nn, f"adaptive_avg_pool{dims}d")
        of = getattr(torch.nn.functional, f"adaptive_avg_pool{dims}d")
        symbols = ("h", "w", "m")[:dims]
        cases[f"adaptive_avg_pool{dims}d"] = {
            "windows": Case(
                lambda x, relay=relay, target=target: relay(x, target),
                lambda x, of=of, target=target: of(x, target),
                (f("n", 3, *sizes),),
            ),
            "everything": Case(
                lambda x, relay=relay, dims=dims: relay(x, (1,) * dims),
                lambda x, of=of: of(x, 1),
                (f("n", 3, *symbols),),
            ),
        }
    return {f"nn.{name}": group for name, group in cases.items()}


def resized(x: Input, size: tuple[int, int], **attributes: Any) -> Case:
    """Against ONNX Runtime, whose names of the modes are slightly other ones."""
    method = attributes["method"]
    names = {
        "mode": {"nearest_neighbor": "nearest"}.get(method, method),
        "coordinate_transformation_mode": attributes["coordinate_transformation_mode"],
    }
    if method == "nearest_neighbor":
        names["nearest_mode"] = attributes["rounding_method"]
    if method == "cubic":
        names["cubic_coeff_a"] = attributes.get("cubic_alpha", -0.75)
        names["exclude_outside"] = attributes.get("cubic_exclude", 0)

    def reference(tensor: torch.Tensor) -> np.ndarray:
        sizes = np.array([*tensor.shape[:2], *size], np.int64)
        return onnx_node("Resize", [None, None, sizes], **names)(tensor)

    return Case(
        lambda x: op.image.resize2d(x, size, **attributes),
        reference,
        (x,),
    )


def _resizes() -> Cases:
    group: dict[str, Case] = {}
    down, up = (4, 9), (11, 13)
    for rounding in ("floor", "ceil", "round_prefer_ceil", "round_prefer_floor"):
        for transform in ("asymmetric", "half_pixel", "align_corners"):
            group[f"nearest, {rounding}, {transform}"] = resized(
                f("n", 2, 6, 6),
                down if transform == "asymmetric" else (12, 3),
                method="nearest_neighbor",
                rounding_method=rounding,
                coordinate_transformation_mode=transform,
            )
    for method in ("linear", "cubic"):
        for transform in ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"):
            for size in (down, up):
                group[f"{method}, {transform}, {size[0]}"] = resized(
                    f("n", 2, 7, 6), size, method=method, coordinate_transformation_mode=transform
                )
    half = {"coordinate_transformation_mode": "half_pixel"}
    group["cubic, other coefficient"] = resized(
        f(1, 2, 5, 6), up, method="cubic", cubic_alpha=-0.4, **half
    )
    group["cubic, nothing from outside"] = resized(
        f(1, 2, 5, 6), up, method="cubic", cubic_exclude=1, **half
    )
    group["one pixel"] = resized(
        f(1, 2, 5, 6),
        (1, 8),
        method="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )
    return {"image.resize2d": group}


CASES: Cases = {**_CONVOLUTIONS, **_pools(), **_resizes()}
