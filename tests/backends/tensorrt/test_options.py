"""TensorRTOptions: what is taken, in which form it is kept, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.errors import OptionError

SHAPES = ((1, 3, 8, 8), (2, 3, 8, 8), (4, 3, 8, 8))


def test_defaults_are_exact_and_static() -> None:
    options = TensorRTOptions()
    assert options.precision == "fp32"
    assert options.tf32 is False
    assert options.profiles == ()
    assert options.build_at == "compile"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"x": SHAPES}, ({"x": SHAPES},)),
        ({"x": [list(shape) for shape in SHAPES]}, ({"x": SHAPES},)),
        ({"n": (1, 8, 32)}, ({"n": (1, 8, 32)},)),
        ([{"n": [1, 1, 1]}, {"n": [2, 4, 8]}], ({"n": (1, 1, 1)}, {"n": (2, 4, 8)})),
        ({}, ()),
        ((), ()),
    ],
)
def test_profiles_are_kept_as_a_tuple_of_mappings(given: Any, kept: Any) -> None:
    assert TensorRTOptions(profiles=given).profiles == kept


def test_options_survive_json() -> None:
    options = TensorRTOptions(
        profiles=[{"x": SHAPES}, {"n": (1, 2, 3)}], compute_capabilities=[120, 89, 89]
    )
    assert TensorRTOptions(**json.loads(json.dumps(vars(options)))) == options


def test_compute_capabilities_are_in_order_and_there_once() -> None:
    assert TensorRTOptions(compute_capabilities=[120, 89, 120]).compute_capabilities == (89, 120)
    assert TensorRTOptions(compute_capabilities=89).compute_capabilities == (89,)


def test_paths_are_kept_as_texts() -> None:
    options = TensorRTOptions(timing_cache=Path("a/b"), engine_cache=Path("c"))
    assert (options.timing_cache, options.engine_cache) == ("a/b", "c")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("precision", "float16", "one of fp32, fp16, bf16, int8"),
        ("precision", None, "one of fp32"),
        ("tf32", 1, "True or False"),
        ("workspace_bytes", -1, "bytes, 0 or more"),
        ("workspace_bytes", 1.5, "bytes, 0 or more"),
        ("workspace_bytes", True, "bytes, 0 or more"),
        ("workspace_bytes", 2**63, "bytes, 0 or more"),
        ("hardware_compatibility", "ampere", "none, ampere_plus"),
        ("optimization_level", 6, "0, 1, 2, 3, 4, 5"),
        ("optimization_level", True, "0, 1, 2, 3, 4, 5"),
        ("build_at", "load", "compile, first_run"),
        ("vendor", "trt", "tensorrt, tensorrt_rtx"),
        ("timing_cache", None, "a path"),
        ("engine_cache", 3, "a path"),
        ("compute_capabilities", "89", "numbers such as 89"),
        ("compute_capabilities", [8.9], "numbers such as 89"),
        ("compute_capabilities", [9], "numbers such as 89"),
        ("compute_capabilities", [True], "numbers such as 89"),
        ("profiles", "x", "a mapping of names"),
        ("profiles", [3], "a mapping of names"),
        ("profiles", [{}], "a mapping of names"),
        ("profiles", {"x": (1, 2)}, "smallest, best and largest"),
        ("profiles", {"x": "123"}, "smallest, best and largest"),
        ("profiles", {"x": (1, (2,), 3)}, "smallest, best and largest"),
        ("profiles", {"x": ((1, 2), (1, 2), (1, 2, 3))}, "of one rank"),
        ("profiles", {"x": ((1, -2), (1, 2), (1, 2))}, "of one rank"),
        ("profiles", {"n": (4, 2, 8)}, "4, 2, 8 are not"),
        ("profiles", {"x": ((1, 3), (1, 2), (1, 3))}, "3, 2, 3 are not"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(OptionError, match=re.escape(message)) as caught:
        TensorRTOptions(**{name: value})
    assert f"tensorrt option {name}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_the_backend_takes_them_as_a_dict_too() -> None:
    backend = byoc.get_backend("tensorrt")
    assert backend.make_options({"precision": "fp16"})["precision"] == "fp16"
    with pytest.raises(OptionError, match=r"no option 'precison' .did you mean 'precision'"):
        backend.make_options({"precison": "fp16"})


def test_every_option_is_documented() -> None:
    documented = re.findall(r"^    (\w+) : ", TensorRTOptions.__doc__ or "", re.MULTILINE)
    assert documented == list(TensorRTOptions.__dataclass_fields__)
