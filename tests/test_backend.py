"""The backends known by name, and what each step of them needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from tvm_byoc_kit import backend as backend_module
from tvm_byoc_kit.backend import STEPS, Backend, get_backend, list_backends
from tvm_byoc_kit.backends.example_npu import ExampleNPUOptions
from tvm_byoc_kit.errors import BackendUnavailable, ByocError, OptionError
from tvm_byoc_kit.status import Status

BUILTIN = ("example_npu", "openvino", "tensorrt", "cutlass", "cublas", "cudnn", "cuda", "llvm")
VENDOR = Backend(name="vendor", summary="somebody's accelerator")
NO_BACKEND = "a string"


def offer(monkeypatch: pytest.MonkeyPatch, **points: str) -> None:
    """Pretend that packages with these entry points are installed."""
    found = [EntryPoint(name, value, "tvm_byoc_kit.backends") for name, value in points.items()]
    monkeypatch.setattr(backend_module, "entry_points", lambda **_: found)


def answer(monkeypatch: pytest.MonkeyPatch, probe: Callable[[str], Status]) -> None:
    monkeypatch.setattr(backend_module, "probe", probe)


def test_the_backends_of_the_first_day_are_known() -> None:
    backends = list_backends()
    assert tuple(backend.name for backend in backends)[: len(BUILTIN)] == BUILTIN
    assert all(backend.summary for backend in backends)


def test_a_backend_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_backend("llvm").name = "other"


def test_a_backend_object_is_taken_as_it_is() -> None:
    assert get_backend(VENDOR) is VENDOR


def test_unknown_name_lists_the_known_and_suggests_the_closest() -> None:
    with pytest.raises(OptionError, match=r"'tensorrrt' \(did you mean 'tensorrt'\?\)") as caught:
        get_backend("tensorrrt")
    assert all(name in str(caught.value) for name in BUILTIN)


@pytest.mark.parametrize("name", [None, 3, "", "os", "../llvm", "llvm.BACKEND", ("llvm",)])
def test_what_is_no_name_of_a_backend_is_refused(name: object) -> None:
    with pytest.raises(OptionError, match="known: example_npu"):
        get_backend(name)  # type: ignore[arg-type]


def test_an_installed_package_adds_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, vendor=f"{__name__}:VENDOR")
    monkeypatch.setattr(EntryPoint, "load", lambda _: VENDOR)
    assert get_backend("vendor") is VENDOR
    assert list_backends()[-1] is VENDOR


def test_an_installed_package_does_not_replace_a_backend_of_the_kit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = get_backend("llvm")
    offer(monkeypatch, llvm="vendor:BACKEND")
    assert get_backend("llvm") is before
    assert [backend.name for backend in list_backends()] == list(BUILTIN)


def test_an_entry_point_has_the_name_of_its_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, vendor="tvm_byoc_kit.backends.llvm:BACKEND")
    with pytest.raises(OptionError, match=r"entry point 'vendor'.*gives backend 'llvm'.*one name"):
        get_backend("vendor")


def test_an_entry_point_that_is_no_backend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, vendor="os:sep")
    with pytest.raises(OptionError, match=r"entry point 'vendor'.*is not a Backend"):
        get_backend("vendor")


def test_a_package_that_does_not_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, vendor="no_such_package_at_all:BACKEND")
    with pytest.raises(OptionError, match=r"'vendor'.*no_such_package_at_all"):
        get_backend("vendor")


def test_a_broken_package_does_not_hide_the_other_backends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, vendor="no_such_package_at_all:BACKEND")
    with pytest.warns(UserWarning, match="no_such_package_at_all"):
        names = [backend.name for backend in list_backends()]
    assert names == list(BUILTIN)


@pytest.mark.parametrize("missing", STEPS)
def test_a_step_needs_what_the_steps_before_it_need(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    backend = dataclasses.replace(VENDOR, requires={step: (f"probe-{step}",) for step in STEPS})
    answer(
        monkeypatch,
        lambda name: Status(name, name != f"probe-{missing}", "not here", "install it"),
    )
    reached = STEPS.index(missing)
    assert all(backend.check(step) for step in STEPS[:reached])
    for step in STEPS[reached:]:
        status = backend.check(step)
        assert not status
        assert status.name == f"probe-{missing}"
        with pytest.raises(BackendUnavailable, match=r"not here.*install it") as caught:
            backend.require(step)
        assert caught.value.step == step


def test_probes_after_the_first_that_fails_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = dataclasses.replace(VENDOR, requires={"codegen": ("first", "second")})
    asked = []

    def probe(name: str) -> Status:
        asked.append(name)
        return Status(name, ok=False, detail="missing", remedy="add it")

    answer(monkeypatch, probe)
    assert backend.check("runtime").name == "first"
    assert asked == ["first"]


def test_unknown_step_is_refused() -> None:
    with pytest.raises(OptionError, match=r"unknown step 'run'.*partition, codegen"):
        VENDOR.check("run")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", BUILTIN)
def test_every_probe_of_a_backend_exists_and_says_what_to_do(name: str) -> None:
    backend = get_backend(name)
    assert backend.check("partition"), "partition works with the stock wheel"
    for step in STEPS:
        status = backend.check(step)
        assert status.detail
        assert bool(status) != bool(status.remedy)


def test_no_options_are_no_options() -> None:
    assert VENDOR.make_options(None) == {}
    assert get_backend("example_npu").make_options(None) == {}


def test_options_given_as_dict_or_dataclass_are_the_same() -> None:
    backend = get_backend("example_npu")
    from_dict = backend.make_options({"mode": "record", "l1_bytes": 1024})
    assert from_dict == backend.make_options(ExampleNPUOptions(mode="record", l1_bytes=1024))
    assert from_dict["power_mode"] == "balanced"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"power_mod": "balanced"}, r"no option 'power_mod' \(did you mean 'power_mode'\?\)"),
        ({3: 4}, "no option '3'"),
        ({"power_mode": "fast"}, "power_mode='fast': expected one of high_performance, balanced"),
        ({"mode": ["record"]}, r"mode=\['record'\]: expected one of simulate, record"),
        ({"l1_bytes": 0}, "l1_bytes=0: expected an integer >= 1"),
        ({"l1_bytes": -1}, "l1_bytes=-1"),
        ({"l1_bytes": 2**31}, "l1_bytes=2147483648: expected an integer >= 1 and <= 2147483647"),
        ({"l1_access_cycles": 2**64}, "l1_access_cycles=18446744073709551616"),
        ({"l1_bytes": 1.5}, "l1_bytes=1.5"),
        ({"l1_bytes": True}, "l1_bytes=True"),
        ({"l1_bytes": "4096"}, "l1_bytes='4096'"),
        ("record", "must be a dict or a ExampleNPUOptions, not str"),
        ([("mode", "record")], "not list"),
    ],
)
def test_wrong_options_are_one_error_that_names_them(options: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        get_backend("example_npu").make_options(options)


def test_access_cycles_may_be_zero() -> None:
    options = get_backend("example_npu").make_options({"l3_access_cycles": 0})
    assert options["l3_access_cycles"] == 0


def test_a_backend_without_options_says_so() -> None:
    with pytest.raises(OptionError, match="'llvm' has no options"):
        get_backend("llvm").make_options({"mode": "record"})


def test_every_error_is_a_byoc_error() -> None:
    with pytest.raises(ByocError):
        get_backend("nothing")
