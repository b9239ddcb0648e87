"""Builds for GPUs where there may be none: what the file holds, what a crash leads to."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import device_build, device_compile, toolchain
from tvm_byoc_kit.cuda_toolkit import CudaToolkit, find_toolkit
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable, ModelError, OptionError

needs_toolkit = pytest.mark.skipif(
    not byoc.probe("cuda-toolkit"), reason=byoc.probe("cuda-toolkit").detail
)
needs_cuda = pytest.mark.skipif(
    not byoc.get_backend("cuda").check("codegen"), reason="this TVM cannot compile for CUDA"
)
pytestmark = needs_cuda


@pytest.fixture
def relu(make_module: Any) -> tvm.IRModule:
    return make_module({"x": ((4, 8), "float32")}, relax.op.nn.relu)


@pytest.fixture
def without_toolkit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_build, "find_toolkit", lambda: "nvcc is not found")


@needs_toolkit
def test_the_artifact_holds_machine_code_of_every_architecture_and_no_source(
    relu: tvm.IRModule, tmp_path: Path
) -> None:
    exe = byoc.compile(relu, "cuda", target=["h100", "a100"])
    exe.export(tmp_path / "model.so")
    code = byoc.device_code(tmp_path / "model.so")
    assert code == byoc.DeviceCode(machine_code=("sm_80", "sm_90"))
    manifest = byoc.read_manifest(tmp_path / "model.so")
    assert manifest.device_code["machine_code"] == ["sm_80", "sm_90"]
    assert manifest.device_code["notes"] == []


@needs_toolkit
def test_the_stub_of_the_driver_is_in_no_process_but_the_child(relu: tvm.IRModule) -> None:
    if byoc.probe("cuda-driver"):
        pytest.skip("there is a driver, so no stub is loaded")
    byoc.compile(relu, "cuda", target="a100")
    assert "stubs/libcuda" not in Path("/proc/self/maps").read_text()
    assert not byoc.probe("cuda-driver")


@pytest.mark.usefixtures("without_toolkit")
def test_without_a_toolkit_the_kernels_are_source_and_the_manifest_says_so(
    relu: tvm.IRModule, tmp_path: Path
) -> None:
    parts = byoc.partition(relu, "cuda")
    with pytest.warns(UserWarning, match="kept as CUDA source") as warned:
        exe = byoc.build(parts, "a100")
    (warning,) = (item for item in warned if item.category is UserWarning)
    assert warning.filename == __file__  # the command line shows those of its own calls
    exe.export(tmp_path / "model.so")
    assert byoc.device_code(tmp_path / "model.so") == byoc.DeviceCode(source=True)
    (note,) = byoc.read_manifest(tmp_path / "model.so").device_code["notes"]
    assert "needs nvcc or NVRTC" in note


@needs_toolkit
@pytest.mark.parametrize(
    ("missing", "reason"), [("_find_driver", "neither a driver nor"), ("_find_cudart", "libcudart")]
)
def test_what_else_machine_code_needs_is_named(
    missing: str, reason: str, relu: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_compile, missing, lambda *_: None)
    with pytest.warns(UserWarning, match=reason):
        exe = byoc.compile(relu, "cuda", target="a100")
    assert exe.manifest.device_code["source"]


@needs_toolkit
def test_an_architecture_that_the_toolkit_does_not_know_is_refused(relu: tvm.IRModule) -> None:
    toolkit = find_toolkit()
    assert isinstance(toolkit, CudaToolkit)
    if "sm_70" in toolkit.architectures:
        pytest.skip("this toolkit is older than CUDA 13")
    with pytest.raises(ModelError, match=r"makes no code for sm_70, only for .*sm_80"):
        byoc.compile(relu, "cuda", target="v100")


@needs_toolkit
def test_kernels_of_a_backend_that_the_target_cannot_run_are_refused(relu: tvm.IRModule) -> None:
    options = {"architectures": ("sm_80",)}
    with pytest.raises(OptionError, match="would not run on sm_90, which the target names"):
        byoc.compile(relu, "cutlass", target="a100,h100", options=options)
    assert byoc.compile(relu, "cutlass", target="a10", options=options)


def test_what_was_built_cannot_run_without_a_gpu(relu: tvm.IRModule, tmp_path: Path) -> None:
    if byoc.probe("device:cuda"):
        pytest.skip("there is a GPU")
    exe = byoc.compile(relu, "cuda", target="a100")
    exe.export(tmp_path / "model.so")
    for use in (lambda: exe(np.zeros((4, 8), "float32")), lambda: byoc.load(tmp_path / "model.so")):
        with pytest.raises(BackendUnavailable) as caught:
            use()
        assert caught.value.step == "device"


@pytest.mark.usefixtures("without_toolkit")
def test_a_crash_is_met_by_a_build_without_tensor_cores(
    relu: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash_first(job: device_compile.Job, report: Any) -> None:
        if job.tensor_cores:
            report("scheduling", 0, 1, "function matmul")
            ctypes.string_at(0)
        compile_module(job, report)

    compile_module = device_compile.compile_module
    monkeypatch.setattr(device_compile, "compile_module", crash_first)
    with pytest.warns(UserWarning, match="without TVM's schedules for tensor cores"):
        exe = byoc.compile(relu, "cuda", target="a100")
    exe.export(tmp_path / "model.so")
    note = byoc.read_manifest(tmp_path / "model.so").device_code["notes"][-1]
    assert "function matmul: the process was ended by SIGSEGV" in note


def test_a_crash_every_time_is_an_error_that_names_the_function(
    relu: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_job: device_compile.Job, report: Any) -> None:
        report("scheduling", 0, 1, "function odd")
        ctypes.string_at(0)

    monkeypatch.setattr(device_compile, "compile_module", crash)
    with pytest.raises(ModelError, match=r"function odd: .*SIGSEGV.*exclude_ops"):
        byoc.compile(relu, "cuda", target="a100")


@needs_toolkit
@pytest.mark.slow
def test_products_that_tvm_crashes_on_are_compiled_all_the_same(make_module: Any) -> None:
    """More than 64 in every direction, where TVM schedules for tensor cores."""
    mod = make_module(
        {name: ((80, 80), dtype) for name, dtype in (("x", "float16"), ("y", "int8"))},
        lambda x, y: (relax.op.matmul(x, x), relax.op.matmul(y, y, out_dtype="int32")),
    )
    exe = byoc.compile(mod, "cuda", target="a100")
    assert exe.manifest.device_code["machine_code"] == ("sm_80",)


def test_without_a_compiler_nothing_is_built_for_gpus(
    relu: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "find_cxx", lambda: None)
    with pytest.raises(BackendUnavailable) as caught:
        byoc.compile(relu, "cuda", target="a100")
    assert caught.value.step == "codegen"


def test_the_code_of_a_file_without_any_is_empty(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"\x50\xed\x55\xba not a fat binary")
    assert not byoc.device_code(tmp_path / "other")
    (tmp_path / "empty").touch()
    assert not byoc.device_code(tmp_path / "empty")
    with pytest.raises(ArtifactError, match="no such file"):
        byoc.device_code(tmp_path / "absent")


@pytest.mark.parametrize(
    ("source", "by_tvm"),
    [
        ("__launch_bounds__(1024) matmul_kernel(half* x)", True),
        ("main_kernel_1(half* x)", True),
        ("__launch_bounds__(112) __myl_Conv_0xf8cf(half* x)", False),
        ("_gemm_mha_v2_0xd29c(half* x)", False),
    ],
)
def test_source_of_tensorrts_engines_is_not_taken_for_tvms(
    tmp_path: Path, source: str, *, by_tvm: bool
) -> None:
    (tmp_path / "a").write_text(f'extern "C" __global__ void {source}')
    assert byoc.device_code(tmp_path / "a").source == by_tvm


@needs_toolkit
def test_ptx_and_suffixes_are_told_apart(tmp_path: Path) -> None:
    toolkit = find_toolkit()
    assert isinstance(toolkit, CudaToolkit)
    source = tmp_path / "a.cu"
    source.write_text("__global__ void f(int *x) { *x = 1; }\n")
    options = [
        *toolkit.code_options(["sm_80", "sm_90a"]),
        "-gencode=arch=compute_90,code=compute_90",
    ]
    toolkit.run(["-fatbin", *options, str(source), "-o", str(tmp_path / "a.fatbin")])
    code = byoc.device_code(tmp_path / "a.fatbin")
    assert code == byoc.DeviceCode(machine_code=("sm_80", "sm_90a"), ptx=("sm_90",))


@needs_toolkit
def test_errors_of_nvcc_are_told(tmp_path: Path) -> None:
    toolkit = find_toolkit()
    assert isinstance(toolkit, CudaToolkit)
    (tmp_path / "a.cu").write_text("__global__ void f() { nonsense; }\n")
    with pytest.raises(ModelError, match="nonsense"):
        toolkit.run(["-c", str(tmp_path / "a.cu"), "-o", os.devnull])


@needs_toolkit
def test_an_nvcc_that_fails_for_its_own_reasons_is_named_with_what_it_says(
    relu: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = find_toolkit()
    assert isinstance(toolkit, CudaToolkit)
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        "#!/bin/sh\necho in.cu\necho 'h.h(9): error: unsupported GNU version'\nexit 2\n"
    )
    nvcc.chmod(0o755)
    broken = dataclasses.replace(toolkit, nvcc=str(nvcc))
    monkeypatch.setattr(device_build, "find_toolkit", lambda: broken)
    said = r"nvcc fails with exit code 2: h\.h\(9\): error: unsupported GNU version\. Another CUDA"
    with pytest.raises(ModelError, match=said):
        byoc.compile(relu, "cuda", target="a100")


def test_the_command_line_compiles_for_gpus_by_name(tmp_path: Path) -> None:
    digits = Path(byoc.__file__).parent / "data" / "digits.onnx"
    command = ["compile", str(digits), "--backend", "cuda", "--output", str(tmp_path / "a.so")]
    run = subprocess.run(
        [sys.executable, "-m", "tvm_byoc_kit.cli", *command, "--target", "cuda"],
        capture_output=True,
        text=True,
        check=False,
    )
    if not byoc.probe("device:cuda"):
        assert run.returncode
        assert "sm_80 (a100, a30, a800)" in run.stderr
