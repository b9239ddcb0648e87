"""What code needs of processor and GPU, and the refusals where it is missing."""

from __future__ import annotations

import platform
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm

import tvm_byoc_kit as byoc
from tvm_byoc_kit import cuda_driver, machine
from tvm_byoc_kit.artifact import write_artifact
from tvm_byoc_kit.cuda_driver import Driver
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable
from tvm_byoc_kit.machine import cpu_features, missing_cpu_features, why_not_on_gpu

x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="CPU features are told apart on x86-64 only"
)
# What Intel's manual says of Skylake-SP, as far as it is more than its forerunner's.
SKYLAKE = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
HASWELL = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2"}


def needs(**target: Any) -> set[str]:
    return set(cpu_features(tvm.target.Target({"kind": "llvm", **target})))


@pytest.fixture
def old_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine says of itself what an x86-64 of 2006 does."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu mmx sse sse2 pni ssse3 cx16\n\n" * 2)
    monkeypatch.setattr(machine, "_CPUINFO", cpuinfo)


# The processor


def test_the_default_target_runs_on_every_processor() -> None:
    assert needs() == set()


@x86
def test_a_named_processor_is_taken_at_its_word() -> None:
    assert needs(mcpu="skylake-avx512") >= SKYLAKE | HASWELL
    haswell = needs(mcpu="haswell")
    assert haswell >= HASWELL
    assert not haswell & SKYLAKE


@x86
def test_single_features_are_added_and_taken_away() -> None:
    assert needs(mattr=["+avx2", "+fma"]) >= {"avx2", "fma", "avx"}
    assert needs(mattr=["+sse3"]) == {"sse3"}
    assert "avx512bw" not in needs(mcpu="skylake-avx512", mattr=["-avx512bw"])


@x86
def test_the_host_of_a_gpu_target_counts() -> None:
    host = {"kind": "llvm", "mcpu": "haswell"}
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_80", "host": host})
    assert set(cpu_features(target)) >= HASWELL


@x86
def test_every_feature_is_found_under_the_name_that_linux_gives_it() -> None:
    """LLVM asks the processor itself; both must agree on what the table has."""
    detected = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    has = {str(name) for name, there in detected.items() if there} & machine._X86_FLAGS.keys()
    assert len(has) > 5
    assert missing_cpu_features(sorted(has)) == ()


@x86
@pytest.mark.usefixtures("old_processor")
def test_what_the_processor_lacks_is_named() -> None:
    assert missing_cpu_features(["avx2", "cx16", "sse3", "sse4.1"]) == ("avx2", "sse4.1")


def test_nothing_is_missed_where_the_system_does_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "nothing")
    assert missing_cpu_features(["avx2"]) == ()


@x86
def test_an_artifact_for_a_newer_processor_is_refused_on_an_older_one(
    two_outputs: tvm.IRModule, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = tmp_path / "m.so"
    exe = byoc.compile(two_outputs, "llvm", target={"kind": "llvm", "mcpu": "haswell"})
    assert set(exe.manifest.cpu) >= HASWELL
    exe.export(path)
    if not missing_cpu_features(exe.manifest.cpu):
        x, y = np.ones((2, 4), "float32"), np.ones((2, 3), "float32")
        np.testing.assert_allclose(byoc.load(path)(x, y)[1], np.tanh(y), rtol=1e-5)
    request.getfixturevalue("old_processor")
    with pytest.raises(ArtifactError, match=r"a processor with avx, avx2, .*has not; build it for"):
        byoc.load(path)


# The GPU


@pytest.mark.parametrize(
    ("code", "sm", "runs"),
    [
        ("sm_90", 90, True),
        ("sm_86", 89, True),
        ("sm_80", 90, False),
        ("sm_89", 86, False),
        ("sm_100", 103, True),
        ("sm_100", 120, False),
        ("sm_90a", 90, True),
        ("sm_100a", 103, False),
        ("sm_100f", 103, True),
        ("", 90, True),
        ("sm_90", None, True),
    ],
)
def test_compiled_gpu_code_runs_on_its_own_generation(
    monkeypatch: pytest.MonkeyPatch, code: str, sm: int | None, runs: bool
) -> None:
    monkeypatch.setattr(cuda_driver, "ask", lambda: Driver("13.0", 1, sm))
    held = {"machine_code": [code] if code else []}
    assert (why_not_on_gpu(held) is None) == runs


def cuda_artifact(path: Path, exe: byoc.Executable, code: str) -> Path:
    """What says that it holds GPU code, and has none."""
    target = '{"kind":"cuda","arch":"sm_90"}'
    manifest = replace(
        exe.manifest, backend="cuda", target=target, device_code={"machine_code": [code]}
    )
    write_artifact(path, manifest, lambda place: Path(place).write_bytes(b"no library"))
    return path


def test_an_artifact_for_another_gpu_is_refused(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "ask", lambda: Driver("13.0", 1, 75))
    path = cuda_artifact(tmp_path / "m.so", host_exe, "sm_90")
    with pytest.raises(ArtifactError, match="code for sm_90, the GPU here is sm_75; build it for"):
        byoc.load(path)


def test_an_artifact_for_a_gpu_is_refused_where_there_is_none(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "ask", lambda: "the driver sees no GPU")
    path = cuda_artifact(tmp_path / "m.so", host_exe, "sm_90")
    with pytest.raises(BackendUnavailable, match="'cuda' has no device here: the driver sees no"):
        byoc.load(path)


def test_the_driver_compiles_ptx_for_later_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_driver, "ask", lambda: Driver("13.0", 1, 120))
    assert why_not_on_gpu({"machine_code": ["sm_90"]})
    assert why_not_on_gpu({"machine_code": ["sm_90"], "ptx": ["sm_90"]}) is None
    assert why_not_on_gpu({"machine_code": [], "source": True}) is None


def test_the_driver_is_asked_for_the_architecture(tmp_path: Path, run_python: Any) -> None:
    if not byoc.probe("compiler"):
        pytest.skip("needs a C compiler")
    source = """
    int cuInit(unsigned flags) { return 0; }
    int cuDeviceGetCount(int* count) { *count = 1; return 0; }
    int cuDriverGetVersion(int* version) { *version = 12040; return 0; }
    int cuDeviceGet(int* device, int number) { *device = 7 + number; return 0; }
    int cuDeviceGetAttribute(int* value, int attribute, int device) {
      *value = device != 7 ? 0 : attribute == 75 ? 12 : attribute == 76 ? 1 : 0;
      return 0;
    }
    """
    library = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    script = "from tvm_byoc_kit import cuda_driver; print(cuda_driver.ask())"
    done = run_python(script, LD_LIBRARY_PATH=str(tmp_path))
    assert done.stdout.strip() == "Driver(cuda='12.4', gpus=1, sm=121)", done.stderr
