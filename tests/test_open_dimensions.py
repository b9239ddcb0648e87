"""Which dimension sizes are given for, what may be done along it, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.open_dimensions import along, in_ranges, named_sizes
from tvm_byoc_kit.variants import OpenDimension

Make = Callable[..., Any]
BUCKETS = byoc.Buckets(1, 4)


def loaded(make_module: Make, shapes: dict[str, Any], body: Any = None) -> byoc.ImportedModel:
    params = {name: (shape, "float32") for name, shape in shapes.items()}
    return byoc.load_model(make_module(params, body or (lambda *xs: [op.nn.relu(x) for x in xs])))


def exported(lowest: int, highest: int) -> byoc.ImportedModel:
    batch = torch.export.Dim("batch", min=lowest, max=highest)
    return byoc.load_model(torch.nn.ReLU(), (torch.zeros(4, 3),), ({0: batch},))


# Which dimension


def test_the_batch_is_the_dimension_on_axis_0(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", "seq"), "y": ("n", 3)})
    assert named_sizes(model, BUCKETS, {"seq": byoc.Profile(1, 8, 16)}) == {
        "n": BUCKETS,
        "seq": byoc.Profile(1, 8, 16),
    }


def test_an_input_with_a_fixed_axis_0_has_no_part_in_the_batch(make_module: Make) -> None:
    model = loaded(make_module, {"scale": (1, 3), "x": ("n", 3), "number": ()})
    assert named_sizes(model, BUCKETS, None) == {"n": BUCKETS}


def test_the_batch_needs_an_open_axis_0(make_module: Make) -> None:
    model = loaded(make_module, {"x": (2, "n"), "y": (3,)})
    hint = r"axis 0 is open, .* x: \[2, n\]; .* 'n' is on axis 1 of x: give sizes=(\{.*\}) instead"
    with pytest.raises(ModelError, match=hint) as caught:
        named_sizes(model, byoc.Buckets(1, 4, fallback="symbolic"), None)
    found = re.search(hint, str(caught.value))
    assert found is not None
    sizes = eval(found[1], {"Buckets": byoc.Buckets})  # noqa: S307 - what the user is told to write
    assert named_sizes(model, None, sizes) == {"n": byoc.Buckets(1, 4, fallback="symbolic")}


def test_an_onnx_batch_on_another_axis_is_pointed_at() -> None:
    with pytest.raises(
        ModelError, match=r"'n' is on axis 1 of x: give sizes=\{'n': Buckets\(1, 4\)\}"
    ):
        byoc.compile(_relu([2, "n"]), "llvm", batch=BUCKETS)


def test_the_remedy_is_that_of_the_models_frontend(onnx_proto: onnx.ModelProto) -> None:
    traced = byoc.load_model(torch.nn.ReLU(), (torch.zeros(4, 3),))
    with pytest.raises(ModelError, match=r"dynamic_shapes=\(\{0: torch.export.Dim\('batch'\)\},\)"):
        byoc.compile(traced, "llvm", batch=BUCKETS)
    with pytest.raises(ModelError, match=r"shapes=\{'input.1': \('batch', 4\)\}"):
        byoc.compile(byoc.load_model(onnx_proto), "llvm", batch=BUCKETS)


def test_different_dimensions_on_axis_0_are_no_batch(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3), "y": ("m", 3)})
    with pytest.raises(ModelError, match=r"\(x: n, y: m\).*sizes=\{'n': \.\.\., 'm': \.\.\.\}"):
        named_sizes(model, BUCKETS, None)


def test_a_multiple_of_the_batch_on_axis_0_is_of_the_same_batch() -> None:
    class Pairs(torch.nn.Module):
        def forward(self, x: torch.Tensor, pairs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.relu(), pairs + 1, (pairs.reshape(-1, 2) @ x.new_ones(2, 1)) * x

    rows = torch.export.Dim("rows", min=1, max=64)
    given = (torch.randn(2, 3), torch.randn(4))
    model = byoc.load_model(Pairs(), given, ({0: rows}, {0: 2 * rows}))
    exe = byoc.compile(model, "llvm", batch=BUCKETS)
    for count in (1, 3, 9):
        inputs = torch.randn(count, 3), torch.randn(2 * count)
        for got, expected in zip(exe(*inputs), Pairs()(*inputs), strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_sizes_that_are_no_mapping_are_refused(make_module: Make) -> None:
    with pytest.raises(OptionError, match=r"sizes is 3; expected a mapping, \{'seq'"):
        byoc.compile(make_module({"x": (("n",), "float32")}, op.nn.relu), "llvm", sizes=3)  # type: ignore[arg-type]


def test_a_name_that_is_no_open_dimension_is_refused(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", "seq")})
    with pytest.raises(ModelError, match=r"'sec' \(did you mean 'seq'\?\); open are: n, seq"):
        named_sizes(model, None, {"sec": BUCKETS})


def test_sizes_given_twice_are_refused(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3)})
    with pytest.raises(OptionError, match="both give sizes for 'n'"):
        named_sizes(model, BUCKETS, {"n": BUCKETS})


@pytest.mark.parametrize("given", [4, (1, 4), "1,4"])
def test_what_is_no_buckets_is_refused(make_module: Make, given: Any) -> None:
    with pytest.raises(OptionError, match=r"expected byoc.Buckets\(1, 4, 8\) or byoc.Profile"):
        byoc.compile(make_module({"x": (("n",), "float32")}, op.nn.relu), "llvm", batch=given)


@pytest.mark.parametrize("given", [byoc.Buckets(1, 4), byoc.Buckets(4, 32), byoc.Profile(1, 4, 8)])
def test_sizes_that_torch_exported_not_for_are_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="the model was exported for 2 to 16"):
        named_sizes(exported(2, 16), given, None)


# What may be done


def test_independent_rows_are_padded_and_split(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", "seq")})
    assert along(model, "n", BUCKETS, False) == OpenDimension(pad=True, split=True)
    assert along(model, "seq", BUCKETS, False) == OpenDimension(pad=True, largest=4)


def test_the_open_build_takes_the_sizes_that_the_model_says() -> None:
    model = exported(2, 16)
    name = model.inputs[0].shape[0]
    buckets = byoc.Buckets(4, 8, fallback="symbolic")
    expected = OpenDimension(pad=True, split=True, smallest=2, largest=16)
    assert along(model, str(name), buckets, True) == expected


def test_without_padding_nothing_is_split(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3)})
    exact = byoc.Buckets(1, 4, pad=False)
    assert along(model, "n", exact, False) == OpenDimension(largest=4)


def test_a_profile_has_its_bounds(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3)})
    expected = OpenDimension(smallest=2, largest=8)
    assert along(model, "n", byoc.Profile(2, 4, 8), True) == expected
    assert in_ranges(model, "n", byoc.Profile(2, 4, 8)) == expected


def test_dependent_rows_are_refused_with_the_reason(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3)}, lambda x: op.subtract(x, op.mean(x, 0, True)))
    with pytest.raises(ModelError, match=r"along 'n' cannot be padded: .*mean.*pad=False"):
        along(model, "n", BUCKETS, False)
    assert not along(model, "n", byoc.Buckets(1, 4, pad=False), False).pad


def test_ranges_of_dependent_rows_are_not_split(make_module: Make) -> None:
    model = loaded(make_module, {"x": ("n", 3)}, lambda x: op.subtract(x, op.mean(x, 0, True)))
    assert in_ranges(model, "n", BUCKETS) == OpenDimension(largest=4)
    assert in_ranges(loaded(make_module, {"x": ("n", 3)}), "n", BUCKETS).split


@pytest.mark.parametrize("pad", [{}, {"y": 0}, {"z": 0}])
def test_a_mask_is_an_input_with_the_dimension(make_module: Make, pad: dict[str, float]) -> None:
    model = loaded(make_module, {"x": ("n", "seq"), "y": ("n", 3)})
    with pytest.raises(OptionError, match=r"the inputs that mask what is padded, of x, each"):
        along(model, "seq", byoc.Buckets(4, 8, pad=pad), False)


# ONNX files


def test_the_batch_of_an_onnx_file_stays_open(
    dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(dynamic_onnx_proto, tmp_path / "model.onnx")
    exe = byoc.compile(tmp_path / "model.onnx", "llvm", batch=byoc.Buckets(2, 4))
    assert [build.sizes for build in exe.manifest.variants.builds] == [{"batch": 2}, {"batch": 4}]
    assert byoc.verify(exe)


@pytest.mark.parametrize("dims", [["", "seq"], ["no-name", "seq"]])
def test_an_onnx_batch_without_a_usable_name_is_called_batch(dims: list[str]) -> None:
    model = _relu([dim or None for dim in dims])
    exe = byoc.compile(model, "llvm", batch=BUCKETS, sizes={"seq": byoc.Profile(1, 4, 8)})
    assert list(exe.manifest.variants.dimensions) == ["seq", "batch"]
    x = np.array([[-1, 2]], np.float32)
    np.testing.assert_array_equal(exe(x), [[0, 2]])


def test_an_onnx_dimension_without_sizes_has_to_be_given() -> None:
    demand = (
        r"does not fix the shape of x float32\[batch, seq\].*shapes=\{'x': \('batch', 128\)\}\), "
        r"or sizes=\{'seq': Buckets\(32, 64, 128\)\}\. "
        r"On the command line: --shape x:batch,128, or --bucket seq=32,64,128$"
    )
    with pytest.raises(ModelError, match=demand):
        byoc.compile(_relu(["batch", "seq"]), "llvm", batch=BUCKETS)


def _relu(dims: list[int | str | None]) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", *map(_one, values))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _one(value: Any) -> list[Any]:
    return [value]
