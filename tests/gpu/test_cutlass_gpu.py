"""CUTLASS on a GPU: every case that the oracle in NumPy checks, now by the kernels themselves.

``pytest -m gpu`` on a machine with an NVIDIA GPU and nvcc; elsewhere skipped, with the reason. All
cases are compiled into one library first, or come out of the kernel cache.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_byoc_kit as byoc
from tests.backends.cutlass.library import build_library
from tests.backends.cutlass.test_sources import (
    CASES,
    case_module,
    difference,
    expected,
    inputs,
    region_inputs,
)

pytestmark = [pytest.mark.gpu, pytest.mark.byoc("cutlass", step="device")]

NAMES = {name: f"case{number}" for number, name in enumerate(CASES)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The cases' regions, for this GPU."""
    arch = "sm_" + tvm.cuda(0).compute_version.replace(".", "")
    known = [name for name, case in CASES.items() if arch != "sm_75" or case.dtype == "float16"]
    mods = {NAMES[name]: case_module(CASES[name]) for name in known}
    path = tmp_path_factory.mktemp("cutlass") / "cases.so"
    return build_library(path, mods, architectures=arch, float32="3xtf32")


def run(library: Any, name: str) -> np.ndarray:
    """The result of a case's region."""
    case, function = CASES[name], NAMES[name]
    if not library.implements_function(function):
        pytest.skip(f"this GPU's tensor cores do not compute {case.dtype}")
    result = tvm.runtime.empty(expected(case).shape, case.result or case.dtype, tvm.cuda(0))
    given = [tvm.runtime.tensor(x, tvm.cuda(0)) for x in region_inputs(case)]
    library[function](*given, result)
    array: np.ndarray = result.numpy()
    return array


@pytest.mark.parametrize("name", CASES)
def test_kernels_compute_what_pytorch_does(library: Any, name: str) -> None:
    assert difference(CASES[name], run(library, name)) <= 1


def test_split_sums_are_the_same_each_time(library: Any) -> None:
    first = run(library, "long sums")
    for _ in range(20):
        np.testing.assert_array_equal(run(library, "long sums"), first)


def test_several_threads_may_call_one_region(library: Any) -> None:
    expected, found = run(library, "bias and gelu"), []

    def call() -> None:
        found.extend(run(library, "bias and gelu") for _ in range(20))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    for result in found:
        np.testing.assert_array_equal(result, expected)


def test_a_model_runs_with_its_other_ops_on_the_gpu_too() -> None:
    case = CASES["conv2d with bias and silu"]
    exe = byoc.compile(case_module(case), "cutlass", target="cuda")
    given = inputs(case)
    result = exe(*given.values())
    assert difference(case, np.asarray(result)) <= 1
