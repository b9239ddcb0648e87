"""Targets that are no GPU of NVIDIA's."""

from __future__ import annotations

from typing import Any

import pytest
from tvm.target import Target

from tvm_byoc_kit import other_targets
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.other_targets import make_target
from tvm_byoc_kit.status import Status


@pytest.mark.parametrize("target", ["llvm", "c", {"kind": "llvm"}, Target("llvm")], ids=str)
def test_processors_are_what_every_tvm_builds_for(target: Any) -> None:
    assert make_target(target).kind.name == Target(target).kind.name


@pytest.mark.parametrize(
    ("target", "option"),
    {
        "rocm": "USE_ROCM",
        "hip": "USE_ROCM",
        '{"kind": "rocm"}': "USE_ROCM",
        "vulkan": "USE_VULKAN",
        "opencl": "USE_OPENCL",
        "metal": "USE_METAL",
    }.items(),
)
def test_what_the_wheel_was_built_without_is_told_with_the_option_of_tvm(
    target: str, option: str
) -> None:
    with pytest.raises(OptionError, match=rf"target {target!r}: .*built without.*-D{option}=ON"):
        make_target(target)


@pytest.mark.parametrize("target", ["hexagon", "webgpu", "nvptx", "composite"])
def test_other_kinds_that_cannot_run_here_are_refused(target: str) -> None:
    with pytest.raises(OptionError, match=f"target '{target}': the global function .* is not"):
        make_target(target)


def test_a_tvm_of_ones_own_may_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_targets, "probe", lambda name: Status(name, ok=True, detail=""))
    assert make_target("opencl").kind.name == "opencl"


@pytest.mark.parametrize(
    ("target", "hint"),
    [("lvm", "llvm"), ("RTX4O90", "rtx4090"), ("sm_90aa", "sm_90"), ("vulcan", "vulkan")],
)
def test_a_name_that_is_nearly_one_gets_a_hint(target: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"'{target}' \(did you mean '{hint}'\?\)"):
        make_target(target)


@pytest.mark.parametrize(
    "target", ["", " ", "{", "llvm -mcpu=x", {"kind": "llvm", "no": 1}, 3, b"c"]
)
def test_what_is_no_target_is_one_error(target: Any) -> None:
    with pytest.raises(OptionError, match=r"unknown target .*expected 'llvm'"):
        make_target(target)


@pytest.mark.parametrize(
    "target", ["llvmm -mcpu=x", '{"kind": "llvm", "mcup": "haswell"}', {"kind": "llvm", "no": 1}]
)
def test_what_is_clearly_no_gpu_is_told_without_their_list(target: Any) -> None:
    with pytest.raises(OptionError, match=r"a GPU such as 'a100'$") as told:
        make_target(target)
    assert "creation from string failed" not in str(told.value)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ({"kind": "llvm", "mcpu": "haswel"}, "haswell"),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n22"}, "neoverse-n2"),
    ],
)
def test_a_processor_that_llvm_does_not_know_is_refused(target: Any, hint: str) -> None:
    # TVM says so on stderr, and builds for any processor.
    with pytest.raises(OptionError, match=rf"no processor .*did you mean '{hint}'.* for mcpu"):
        make_target(target)
    target["mcpu"] = hint
    assert make_target(target).attrs["mcpu"] == hint
