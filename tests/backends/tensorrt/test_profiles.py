"""Optimization profiles: from inputs' shapes to sizes of dimensions, and back to shapes."""

from __future__ import annotations

from typing import Any

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.profiles import (
    by_dimension,
    choose,
    input_shapes,
    open_shapes,
    parse_profiles,
    ranges_of,
)
from tvm_byoc_kit.errors import ModelError, OptionError

from .small_regions import dense, graph_of

BATCHES = ((1, 4), (8, 4), (32, 4))


def model(batch: int | str = "n") -> Any:
    return byoc.load_model(dense(batch))


def test_shapes_of_an_input_become_sizes_of_its_dimensions() -> None:
    assert by_dimension([{"x": BATCHES}], model()) == ({"n": (1, 8, 32)},)
    assert by_dimension([{"n": (1, 8, 32)}], model()) == ({"n": (1, 8, 32)},)


def test_a_static_model_needs_none_and_takes_what_fits() -> None:
    assert by_dimension((), model(2)) == ()
    assert by_dimension([{"x": ((2, 4),) * 3}], model(2)) == ()


def test_a_range_for_a_fixed_dimension_is_refused() -> None:
    with pytest.raises(OptionError, match=r"axis 0 of 'x' the sizes \(1, 8, 32\), and it is fixed"):
        by_dimension([{"x": BATCHES}], model(2))


def test_a_symbolic_dimension_without_sizes_says_what_to_give() -> None:
    for profiles in ((), [{"m": (1, 2, 3)}]):
        with pytest.raises(ModelError, match="dimension 'n' of input 'x: float32") as caught:
            by_dimension(profiles, model())
        assert '{"profiles": {"n": (1, 8, 32)}}' in str(caught.value)
        assert '--profile "n=1:8:32"' in str(caught.value)


def test_what_is_no_input_is_refused_with_the_inputs() -> None:
    with pytest.raises(OptionError, match="names 'y', which is no input; inputs: x"):
        by_dimension([{"y": BATCHES}], model())


def test_another_rank_is_refused() -> None:
    with pytest.raises(OptionError, match="3 dimension"):
        by_dimension([{"x": ((1, 4, 1), (8, 4, 1), (32, 4, 1))}], model())


def test_two_sizes_of_one_dimension_are_refused() -> None:
    with pytest.raises(OptionError, match="one range in a profile"):
        by_dimension([{"x": BATCHES, "n": (1, 2, 3)}], model())


def test_every_profile_needs_every_dimension(make_module: Any) -> None:
    from tvm import relax

    mod = make_module({"x": (("n", "m"), "float32")}, relax.op.nn.relu)
    loaded = byoc.load_model(mod)
    whole = {"n": (1, 2, 3), "m": (4, 5, 6)}
    assert by_dimension([whole, whole], loaded) == (whole, whole)
    with pytest.raises(ModelError, match="dimension 'm'"):
        by_dimension([whole, {"n": (1, 2, 3)}], loaded)


def test_a_region_takes_the_dimensions_that_it_has() -> None:
    graph = graph_of(dense())
    given = [{"n": (1, 8, 32), "m": (1, 1, 1)}]
    assert ranges_of(graph, given) == ({"n": (1, 8, 32)},)
    assert ranges_of(graph, [{"x": BATCHES}]) == ({"n": (1, 8, 32)},)
    assert ranges_of(graph_of(dense(2)), ()) == ({},)
    with pytest.raises(ModelError, match="of region `"):
        ranges_of(graph, ())


def test_expressions_have_the_ends_of_their_values() -> None:
    ranges = {"n": (1, 8, 32), "m": (2, 3, 4)}
    assert input_shapes(("n * 2", 5, "(n + 1) // 2"), ranges) == (
        (2, 5, 1),
        (16, 5, 4),
        (64, 5, 16),
    )
    # Falls where `m` grows.
    assert input_shapes(("n - m + 10",), ranges) == ((7,), (15,), (40,))


def test_the_first_profile_that_fits_is_chosen() -> None:
    profiles = ({"n": (1, 1, 4)}, {"n": (2, 8, 32)})
    assert [choose(profiles, {"n": size}) for size in (1, 4, 5, 32, 33)] == [0, 0, 1, 1, None]
    assert choose(({},), {}) == 0


def test_ranges_side_by_side_have_each_size_once() -> None:
    ends = ((1, 1), (2, 4), (5, 8), (9, 16))
    profiles = [{"n": (low, high, high)} for low, high in ends]
    found = [choose(profiles, {"n": size}) for size in range(1, 18)]
    assert found == [0, *[1] * 3, *[2] * 4, *[3] * 8, None]


def test_the_command_line_form_is_read() -> None:
    texts = ["x=1x3x8x8:2x3x8x8:4x3x8x8", "n=1:8:32", "x=8x3x8x8:8x3x8x8:9x3x8x8"]
    profiles = TensorRTOptions(profiles=parse_profiles(texts)).profiles
    shapes = ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))
    assert profiles == (
        {"x": shapes, "n": (1, 8, 32)},
        {"x": ((8, 3, 8, 8), (8, 3, 8, 8), (9, 3, 8, 8))},
    )


def test_a_name_may_have_signs_of_its_own() -> None:
    assert list(parse_profiles(["a=b:0=1:2:3"])[0]) == ["a=b:0"]


@pytest.mark.parametrize("text", ["x", "=1:2:3", "x=1:2", "x=1x:2:3", "x=1,3:2,3:3,3", "x=a:b:c"])
def test_another_form_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(OptionError, match="x=1x3x224x224:8x3x224x224:32x3x224x224"):
        parse_profiles([text])


def test_what_varies_is_open_and_the_rest_fixed() -> None:
    profiles = TensorRTOptions(
        profiles=[
            {"x:0": ((1, 3, 8), (2, 3, 8), (4, 3, 8)), "n": (1, 2, 3)},
            {"x:0": ((8, 3, 9), (8, 3, 9), (8, 3, 9)), "1y": ((5,), (5,), (6,))},
        ]
    ).profiles
    assert open_shapes(profiles) == {"x:0": ["x_0_0", 3, "x_0_2"], "1y": ["_1y_0"]}
