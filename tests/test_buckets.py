"""What may be said of a dimension's sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import OptionError


def test_sizes_are_kept_once_each_and_in_order() -> None:
    assert byoc.Buckets(8, 1, 4, 8).sizes == (1, 4, 8)


def test_sizes_of_numpy_are_sizes() -> None:
    assert byoc.Buckets(*np.array([4, 1])) == byoc.Buckets(1, 4)
    assert type(byoc.Profile(*np.array([1, 4, 8])).opt) is int


def test_equal_buckets_are_equal() -> None:
    assert byoc.Buckets(4, 1) == byoc.Buckets(1, 4)
    assert byoc.Buckets(1, 4) != byoc.Buckets(1, 4, fallback="symbolic")


@pytest.mark.parametrize("sizes", [(), (0,), (-1, 4), (1.5,), (True,), ("4",), ([1, 4],)])
def test_what_is_no_size_is_refused(sizes: Any) -> None:
    with pytest.raises(OptionError, match=r"expected sizes of at least 1, such as Buckets\(1, 4"):
        byoc.Buckets(*sizes)


def test_an_unknown_fallback_is_refused() -> None:
    with pytest.raises(OptionError, match="fallback is 'dynamic'; expected None or 'symbolic'"):
        byoc.Buckets(1, fallback="dynamic")  # type: ignore[arg-type]


@pytest.mark.parametrize("pad", [None, 0, "mask", ["mask"]])
def test_another_kind_of_padding_is_refused(pad: Any) -> None:
    with pytest.raises(OptionError, match="expected True, False, or what the inputs that mask"):
        byoc.Buckets(1, pad=pad)


@pytest.mark.parametrize("sizes", [(0, 1, 2), (4, 2, 8), (1, 8, 4), (1, 2.0, 4), (True, 2, 4)])
def test_a_profile_has_three_sizes_in_order(sizes: Any) -> None:
    with pytest.raises(OptionError, match="expected the smallest, best and largest size in order"):
        byoc.Profile(*sizes)
