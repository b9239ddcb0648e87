"""Finding the vendor's package, and hearing what it says."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tvm_byoc_kit.backends.tensorrt import vendor
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor
from tvm_byoc_kit.errors import BackendUnavailable, OptionError

from .small_regions import rtx


class Logger:
    """Of a package that pretends."""

    WARNING = 2


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What can be imported: a version, or an error."""
    here: dict[str, Any] = {}

    def load(name: str) -> Any:
        found = here.get(name, ModuleNotFoundError(f"No module named '{name}'"))
        if isinstance(found, Exception):
            raise found
        return SimpleNamespace(__version__=found, ILogger=Logger)

    monkeypatch.setattr(importlib, "import_module", load)
    vendor._vendor.cache_clear()
    yield here
    vendor._vendor.cache_clear()


@pytest.mark.parametrize("version", ["10.0.1", "10.13.3.9", "11.4.0.1"])
def test_tensorrt_10_and_11_come_first(packages: dict[str, Any], version: str) -> None:
    packages.update(tensorrt=version, tensorrt_rtx="1.7.1.116")
    found = find_vendor()
    assert (found.name, found.release, found.is_rtx) == ("tensorrt", version, False)
    assert ".".join(map(str, found.version)) == ".".join(version.split(".")[:3])
    assert find_vendor("tensorrt_rtx").is_rtx


@pytest.mark.parametrize("problem", ["8.6.1", "12.0", OSError("libnvinfer.so.10: cannot open")])
def test_what_cannot_be_used_is_passed_over(packages: dict[str, Any], problem: Any) -> None:
    packages.update(tensorrt=problem, tensorrt_rtx="1.7.1.116")
    assert find_vendor().name == "tensorrt_rtx"
    said = str(problem) if isinstance(problem, Exception) else f"version {problem} is installed"
    with pytest.raises(BackendUnavailable, match=said):
        find_vendor("tensorrt")


def test_nothing_at_all_is_one_error_with_both_remedies(packages: dict[str, Any]) -> None:
    assert packages == {}
    with pytest.raises(BackendUnavailable, match="No module named 'tensorrt'") as caught:
        find_vendor()
    assert "[tensorrt]" in caught.value.remedy
    assert "[tensorrt-rtx]" in caught.value.remedy
    assert caught.value.step == "codegen"


def test_another_name_is_refused() -> None:
    with pytest.raises(OptionError, match="vendor='trt'"):
        find_vendor("trt")


def test_it_is_the_same_object_at_every_call() -> None:
    assert find_vendor("tensorrt_rtx") is rtx()


def refused_layer() -> None:
    """A convolution of a vector, of which TensorRT says so only to its logger."""
    found = rtx()
    network = found.module.Builder(found.logger).create_network(0)
    x = network.add_input("x", found.module.float32, (4,))
    layer = network.add_convolution_nd(x, 2, (3, 3), found.module.Weights())
    with pytest.raises((RuntimeError, ValueError)):
        tuple(layer.get_output(0).shape)


def test_errors_are_heard_in_one_line() -> None:
    with rtx().messages() as log:
        refused_layer()
    assert log.errors
    assert "\n" not in log.errors


def test_an_error_is_there_once_and_that_of_a_missing_driver_never() -> None:
    log = vendor.Log()
    for text in ("a\n  b", "a b", "[checkMacros.cpp::catchCudaError::250] no driver", "c"):
        log.add(text)
    assert log.errors == "a b; c"


def test_each_thread_hears_its_own_and_all_hear_the_vendors_threads() -> None:
    heard: dict[str, str] = {}
    ready = threading.Barrier(2)

    def collect(name: str) -> None:
        with rtx().messages() as log:
            ready.wait()
            vendor._deliver(name)
            ready.wait()
            ready.wait()
            heard[name] = log.errors

    other = threading.Thread(target=collect, args=("other",))
    other.start()
    with rtx().messages() as log:
        ready.wait()
        vendor._deliver("main")
        ready.wait()
        worker = threading.Thread(target=vendor._deliver, args=("vendor's",))
        worker.start()
        worker.join()
        ready.wait()
        heard["main"] = log.errors
    other.join()
    assert heard == {"main": "main; vendor's", "other": "other; vendor's"}
    assert vendor._COLLECTING == {}


def test_a_block_within_a_block_hears_alone() -> None:
    with rtx().messages() as outer:
        with rtx().messages() as inner:
            vendor._deliver("inner")
        vendor._deliver("outer")
    assert (outer.errors, inner.errors) == ("outer", "inner")
