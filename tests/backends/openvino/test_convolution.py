"""Convolutions, pools and resizing, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F  # noqa: N812 - what everybody calls it
from tvm.relax import op

pytestmark = pytest.mark.byoc("openvino")

RNG = np.random.default_rng(14)
SIZES = {1: (9,), 2: (7, 9), 3: (5, 6, 7)}
GEOMETRIES = [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 2)]


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RNG.normal(size=shape).astype(dtype)


def of_rank(name: str, rank: int) -> Callable[..., Any]:
    return getattr(op.nn, name.format(rank))


def last_to_first(rank: int) -> tuple[int, ...]:
    return (0, rank + 1, *range(1, rank + 1))


def first_to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank + 2), 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_convolution(check: Any, rank: int, groups: int, geometry: tuple[int, int, int]) -> None:
    strides, padding, dilation = geometry
    check(
        lambda x, w: of_rank("conv{}d", rank)(x, w, strides, padding, dilation, groups),
        lambda x, w: getattr(F, f"conv{rank}d")(x, w, None, strides, padding, dilation, groups),
        floats(2, 4, *SIZES[rank]),
        floats(8, 4 // groups, *(3,) * rank),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("geometry", [(1, 0, 1, 0), (2, 1, 1, 1), (1, 2, 2, 0), (3, 1, 2, 2)])
def test_transposed_convolution(
    check: Any, rank: int, groups: int, geometry: tuple[int, int, int, int]
) -> None:
    strides, padding, dilation, extra = geometry
    check(
        lambda x, w: of_rank("conv{}d_transpose", rank)(
            x,
            w,
            strides=(strides,) * rank,
            padding=(padding,) * (2 * rank),
            output_padding=(extra,) * rank,
            dilation=(dilation,) * rank,
            groups=groups,
        ),
        lambda x, w: getattr(F, f"conv_transpose{rank}d")(
            x, w, None, strides, padding, extra, groups, dilation
        ),
        floats(2, 4, *SIZES[rank]),
        floats(4, 8 // groups, *(3,) * rank),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_convolution_with_channels_last(check: Any, rank: int) -> None:
    axes = "DHW"[-rank:]
    check(
        lambda x, w: of_rank("conv{}d", rank)(
            x, w, padding=1, groups=2, data_layout=f"N{axes}C", kernel_layout=f"{axes}IO"
        ),
        lambda x, w: getattr(F, f"conv{rank}d")(
            x.permute(last_to_first(rank)),
            w.permute(rank + 1, rank, *range(rank)),
            padding=1,
            groups=2,
        ).permute(first_to_last(rank)),
        floats(2, *SIZES[rank], 4),
        floats(*(3,) * rank, 2, 8),
    )


def test_convolution_pads_each_side_for_itself(check: Any) -> None:
    check(
        lambda x, w: op.nn.conv2d(x, w, padding=(1, 0, 2, 1)),
        lambda x, w: F.conv2d(F.pad(x, (0, 1, 1, 2)), w),
        floats(1, 3, 6, 6),
        floats(4, 3, 3, 3),
    )


def test_convolution_in_half_precision(check: Any) -> None:
    check(
        lambda x, w: op.nn.conv2d(x, w, padding=1),
        lambda x, w: F.conv2d(x.float(), w.float(), padding=1).half(),
        floats(1, 3, 6, 6, dtype="float16"),
        floats(4, 3, 3, 3, dtype="float16"),
    )


def test_convolution_of_symbolic_size(check: Any) -> None:
    check(
        lambda x, w: op.nn.conv2d(x, w, strides=2, padding=1),
        lambda x, w: F.conv2d(x, w, stride=2, padding=1),
        floats(2, 3, 6, 7),
        floats(4, 3, 3, 3),
        shapes=[("n", 3, "h", "w"), (4, 3, 3, 3)],
    )


def test_convolution_of_bytes_is_refused(check: Any) -> None:
    inputs = ((1, 3, 6, 6), "int8"), ((4, 3, 3, 3), "int8")
    assert "is int8" in check.refusal(lambda x, w: op.nn.conv2d(x, w, out_dtype="int32"), *inputs)


def test_layouts_in_chunks_are_refused(check: Any) -> None:
    inputs = ((1, 1, 6, 6, 4), "float32"), ((1, 1, 3, 3, 4, 4), "float32")
    reason = check.refusal(
        lambda x, w: op.nn.conv2d(x, w, data_layout="NCHW4c", kernel_layout="OIHW4i4o"), *inputs
    )
    assert "splits an axis into chunks" in reason


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_convolution(check: Any, data: st.DataObject) -> None:
    draw = data.draw
    rank, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 3]))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    sizes = draw(st.lists(st.integers(5, 8), min_size=rank, max_size=rank))
    strides, padding, dilation = (
        draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))
        for low, high in ((1, 3), (0, 2), (1, 2))
    )
    check(
        lambda x, w: of_rank("conv{}d", rank)(x, w, strides, padding * 2, dilation, groups),
        lambda x, w: getattr(F, f"conv{rank}d")(x, w, None, strides, padding, dilation, groups),
        floats(draw(st.integers(1, 2)), groups * 2, *sizes),
        floats(groups * draw(st.integers(1, 2)), 2, *kernel),
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_pool_is_that_of_pytorch_or_refused(check: Any, data: st.DataObject) -> None:
    draw = data.draw
    rank, ceil, count = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.booleans())
    kind = draw(st.sampled_from(["max", "avg"]))
    pool = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 4), min_size=rank, max_size=rank))
    padding = [draw(st.integers(0, size // 2)) for size in pool]
    sizes = draw(st.lists(st.integers(4, 9), min_size=rank, max_size=rank))
    rest = {"count_include_pad": count} if kind == "avg" else {}

    def make(x: Any) -> Any:
        return of_rank(kind + "_pool{}d", rank)(
            x, pool, strides, padding * 2, ceil_mode=ceil, **rest
        )

    def reference(x: torch.Tensor) -> torch.Tensor:
        function = getattr(F, f"{kind}_pool{rank}d")
        return function(x, pool, strides, padding, ceil_mode=ceil, **rest)

    if check.refusal(make, ((2, 3, *sizes), "float32")):
        assert ceil
    else:
        check(make, reference, floats(2, 3, *sizes))


def test_pools_that_openvino_counts_otherwise_are_refused(check: Any) -> None:
    x = ((1, 3, 5, 6), "float32")
    assert "may lie in the padding" in check.refusal(
        lambda x: op.nn.max_pool2d(x, (2, 2), (3, 3), (1, 1), ceil_mode=True), x
    )
    assert "a window that is cut off" in check.refusal(
        lambda x: op.nn.avg_pool2d(
            x, (3, 3), (2, 2), (1, 1), ceil_mode=True, count_include_pad=True
        ),
        x,
    )
    assert "averages a dilated window" in check.refusal(
        lambda x: op.nn.avg_pool2d(x, (2, 2), dilation=(2, 2)), x
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_dilated_maximum(check: Any, rank: int) -> None:
    check(
        lambda x: of_rank("max_pool{}d", rank)(x, (2,) * rank, dilation=(2,) * rank),
        lambda x: getattr(F, f"max_pool{rank}d")(x, 2, 1, 0, 2),
        floats(2, 3, *SIZES[rank]),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 2), (3, 4, 5)])
def test_adaptive_average(check: Any, rank: int, sizes: tuple[int, ...]) -> None:
    check(
        lambda x: of_rank("adaptive_avg_pool{}d", rank)(x, sizes[-rank:]),
        lambda x: getattr(F, f"adaptive_avg_pool{rank}d")(x, sizes[-rank:]),
        floats(2, 3, *SIZES[rank]),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools_with_channels_last(check: Any, rank: int) -> None:
    layout = f"N{'DHW'[-rank:]}C"
    x = floats(2, *SIZES[rank], 3)

    def channels_last(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: function(x.permute(last_to_first(rank)), 2).permute(first_to_last(rank))

    check(
        lambda x: of_rank("max_pool{}d", rank)(x, (2,) * rank, (2,) * rank, layout=layout),
        channels_last(getattr(F, f"max_pool{rank}d")),
        x,
    )
    check(
        lambda x: of_rank("adaptive_avg_pool{}d", rank)(x, (2,) * rank, layout=layout),
        channels_last(getattr(F, f"adaptive_avg_pool{rank}d")),
        x,
    )


def test_pools_of_symbolic_size(check: Any) -> None:
    x, shapes = floats(2, 3, 6, 7), [("n", 3, "h", "w")]
    check(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
        lambda x: F.max_pool2d(x, 3, 2, 1),
        x,
        shapes=shapes,
    )
    check(
        lambda x: op.nn.adaptive_avg_pool2d(x, (2, 2)),
        lambda x: F.adaptive_avg_pool2d(x, 2),
        x,
        shapes=shapes,
    )


RESIZES = {
    "bilinear": ("linear", "half_pixel", "", {"mode": "bilinear", "align_corners": False}),
    "bilinear of corners": (
        *("linear", "align_corners", ""),
        {"mode": "bilinear", "align_corners": True},
    ),
    "nearest": ("nearest_neighbor", "asymmetric", "floor", {"mode": "nearest"}),
    "nearest exact": ("nearest_neighbor", "half_pixel", "round", {"mode": "nearest-exact"}),
    "bicubic": ("cubic", "half_pixel", "", {"mode": "bicubic", "align_corners": False}),
    "bicubic of corners": (
        *("cubic", "align_corners", ""),
        {"mode": "bicubic", "align_corners": True},
    ),
}


@pytest.mark.parametrize("name", RESIZES)
@pytest.mark.parametrize("size", [(10, 12), (7, 4), (5, 6), (3, 11)])
def test_resizing(check: Any, name: str, size: tuple[int, int]) -> None:
    method, coordinates, rounding, rest = RESIZES[name]
    check(
        lambda x: op.image.resize2d(
            x,
            size,
            layout="NCHW",
            method=method,
            coordinate_transformation_mode=coordinates,
            rounding_method=rounding,
            cubic_alpha=-0.75,
        ),
        lambda x: F.interpolate(x, size, **rest),
        floats(2, 3, 5, 6),
    )
