"""Targets by the names of GPUs."""

from __future__ import annotations

import platform
from types import SimpleNamespace
from typing import Any

import pytest
from tvm.target import Target

import tvm_byoc_kit as byoc
from tvm_byoc_kit import cuda_targets
from tvm_byoc_kit.cuda_targets import find_cuda_target, runs_on
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.status import Status


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Status("device:cuda", ok=False, detail="no NVIDIA driver", remedy="add one")
    monkeypatch.setattr(cuda_targets, "probe", lambda _name: missing)


# By NVIDIA's list of compute capabilities.
@pytest.mark.parametrize(
    ("target", "arch"),
    {
        "v100": "sm_70",
        "t4": "sm_75",
        "a100": "sm_80",
        "a10": "sm_86",
        "rtx3090": "sm_86",
        "NVIDIA GeForce RTX 4090": "sm_89",
        "NVIDIA GeForce RTX 4070 SUPER": "sm_89",
        "NVIDIA GeForce RTX 3080 Laptop GPU": "sm_86",
        "NVIDIA RTX 6000 Ada Generation": "sm_89",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition": "sm_120",
        "Tesla V100-SXM2-16GB": "sm_70",
        "NVIDIA A100-SXM4-80GB": "sm_80",
        "NVIDIA A100 80GB PCIe": "sm_80",
        "NVIDIA H100 80GB HBM3": "sm_90",
        "NVIDIA H100 NVL": "sm_90",
        "SM_90": "sm_90",
        "l4": "sm_89",
        "L40S": "sm_89",
        "h100": "sm_90",
        "h200": "sm_90",
        "b200": "sm_100",
        "rtx-5090": "sm_120",
        "sm_90": "sm_90",
        "90": "sm_90",
        "sm_90a": "sm_90a",
        "nvidia/nvidia-a100": "sm_80",
        "nvidia/geforce-rtx-4090": "sm_89",
    }.items(),
)
def test_a_name_is_the_architecture_of_that_gpu(target: str, arch: str) -> None:
    found = find_cuda_target(target)
    assert found is not None
    assert found.architectures == (arch,)
    assert found.target.attrs["arch"] == arch


def test_the_limits_that_schedules_read_are_there() -> None:
    found = find_cuda_target("h100")
    assert found is not None
    attrs = found.target.attrs
    assert int(attrs["max_threads_per_block"]) == 1024
    assert int(attrs["max_shared_memory_per_block"]) == 48 * 1024
    assert int(attrs["registers_per_block"]) == 65536
    assert int(attrs["thread_warp_size"]) == 32


def test_tvms_tag_of_an_h100_keeps_its_tensor_cores() -> None:
    """With sm_90a, as the tag says, TVM's schedules would leave them alone."""
    assert Target("nvidia/nvidia-h100").attrs["arch"] == "sm_90a"
    found = find_cuda_target("nvidia/nvidia-h100")
    assert found is not None
    assert found.architectures == ("sm_90",)


@pytest.mark.parametrize(
    "target",
    [
        {"kind": "cuda", "arch": "sm_80"},
        '{"kind": "cuda", "arch": "sm_80"}',
        {"kind": "cuda", "model": "a100"},
        Target({"kind": "cuda", "arch": "sm_80"}),
    ],
    ids=["dict", "json", "model", "Target"],
)
def test_other_forms_of_a_target_are_taken(target: Any) -> None:
    found = find_cuda_target(target)
    assert found is not None
    assert found.architectures == ("sm_80",)


def test_what_a_target_says_of_itself_stays() -> None:
    given = {"kind": "cuda", "arch": "sm_80", "max_shared_memory_per_block": 1000}
    found = find_cuda_target(given)
    assert found is not None
    assert int(found.target.attrs["max_shared_memory_per_block"]) == 1000


@pytest.mark.parametrize("targets", ["h100,a100,sm_90", ["h100", "a100"], ("a100", "sm_90")])
def test_several_are_compiled_for_all_and_scheduled_for_the_oldest(targets: Any) -> None:
    found = find_cuda_target(targets)
    assert found is not None
    assert found.architectures == ("sm_80", "sm_90")
    assert found.target.attrs["arch"] == "sm_80"


@pytest.mark.parametrize("target", ["llvm", "c", {"kind": "llvm"}, Target("llvm"), "a1000"])
def test_what_is_no_gpu_of_nvidia_is_left_to_tvm(target: Any) -> None:
    assert find_cuda_target(target) is None


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    "target",
    [
        "cuda",
        {"kind": "cuda"},
        {"kind": "cuda", "model": "a1000"},
        {"kind": "cuda", "arch": "sm_12"},
        Target("cuda"),
        "sm_50",
        "nvidia/tesla-k80",
        ["a100", "llvm"],
    ],
    ids=str,
)
def test_an_architecture_that_is_missing_or_unknown_is_refused_with_the_list(target: Any) -> None:
    with pytest.raises(OptionError, match=r"sm_80 \(a100, a30, a800\)"):
        find_cuda_target(target)


def test_a_name_that_is_nearly_one_gets_a_hint() -> None:
    with pytest.raises(OptionError, match="did you mean 'a100'"):
        find_cuda_target({"kind": "cuda", "model": "a1000"})


def test_a_bare_cuda_is_the_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm

    monkeypatch.setattr(cuda_targets, "probe", lambda name: Status(name, ok=True, detail=""))
    monkeypatch.setattr(tvm, "cuda", lambda _index: SimpleNamespace(compute_version="8.6"))
    found = find_cuda_target("cuda")
    assert found is not None
    assert found.architectures == ("sm_86",)


@pytest.mark.parametrize("target", ["orin", "thor", "gh200", "nvidia/jetson-agx-orin-32gb"])
def test_modules_with_a_cpu_of_arm_are_built_for_there(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(OptionError, match="build it there"):
        find_cuda_target(target)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert find_cuda_target(target) is not None


def test_an_unknown_name_is_refused_by_build_with_the_list(make_module: Any) -> None:
    from tvm import relax

    mod = make_module({"x": ((4,), "float32")}, relax.op.nn.relu)
    with pytest.raises(OptionError, match=r"unknown target 'a1000' .*'a100'.*sm_80 \(a100, a30,"):
        byoc.build(mod, "a1000")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (["a100", "a10o"], r"names 'a10o' \(did you mean 'a10'\?\)"),
        ("a100,foo", "names 'foo', and several targets"),
        ("a100,", "names '', and several targets"),
        ([], "names nothing"),
        ("sm_89a", "there is no sm_89a, the suffix a is of sm_90 and later; expected sm_89"),
        ("90f", "the suffix f is of sm_100 and later; expected sm_90"),
    ],
)
def test_what_is_wrong_with_a_target_is_named(target: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        find_cuda_target(target)


@pytest.mark.parametrize(
    ("architectures", "sm", "runs"),
    [
        (("sm_80",), 80, True),
        (("sm_80",), 89, True),  # a later minor version
        (("sm_86",), 80, False),
        (("sm_86",), 87, False),  # Orin is a Tegra
        (("sm_87",), 89, False),
        (("sm_80",), 90, False),
        (("sm_80", "sm_90"), 90, True),
        (("sm_90a",), 90, True),
        (("sm_100a",), 103, False),
        (("sm_100f",), 103, True),
        (("sm_120",), 121, True),
    ],
)
def test_machine_code_runs_on_later_minor_versions(
    architectures: tuple[str, ...], sm: int, runs: bool
) -> None:
    assert runs_on(architectures, sm) is runs
