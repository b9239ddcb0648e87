"""The probes tell the truth about this machine, and their remedies are commands that work."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_byoc_kit import availability, cuda_driver, remedies, toolchain
from tvm_byoc_kit.availability import probe, probe_names
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.status import Status

FIXED = [name for name in probe_names() if "<" not in name]
FREE = ["codegen:tensorrt", "codegen:none", "runtime:none", "target:llvm", "target:none"]
NO_TORCH = "import sys; sys.modules['torch'] = None\n"  # tvm_ffi would import it, for seconds
ROOT = Path(__file__).resolve().parent.parent

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc to compile a library")


def script(path: Path, text: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def fresh(code: str, *arguments: str, **environment: str) -> str:
    """Run Python code in a fresh interpreter and return what it prints."""
    run = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd="/",  # not the checkout, which would hide the installed package
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def probe_elsewhere(name: str, **environment: str) -> Status:
    """Probe in a fresh interpreter that was started with these environment variables."""
    code = (
        f"{NO_TORCH}import dataclasses, json\n"
        "from tvm_byoc_kit.availability import probe\n"
        "print(json.dumps(dataclasses.asdict(probe(sys.argv[1]))))"
    )
    return Status(**json.loads(fresh(code, name, **environment)))


# --- every probe ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*FIXED, *FREE])
def test_a_probe_gives_a_version_or_a_reason_with_a_remedy(name: str) -> None:
    status = probe(name)
    assert bool(status) is status.ok
    if status:
        assert status.remedy == ""
    else:
        assert status.detail
        assert status.remedy
        assert status.remedy in str(status)


@pytest.mark.parametrize("name", ["", "tensorflow", "codegen", "codegen:", "device:npu", ":cuda"])
def test_an_unknown_probe_is_an_option_error_that_lists_the_known_ones(name: str) -> None:
    with pytest.raises(OptionError) as caught:
        probe(name)
    assert f"'{name}'" in str(caught.value)
    assert "onnxruntime" in str(caught.value)
    assert "codegen:<backend>" in str(caught.value)


def test_probing_packages_and_tools_imports_none_of_them() -> None:
    names = [name for name in FIXED if not name.startswith(("plugin:", "tvm-import", "device:"))]
    code = (
        "import sys\n"
        "from tvm_byoc_kit.availability import probe\n"
        f"for name in {names}: probe(name)\n"
        "print({'torch', 'onnx', 'onnxruntime', 'onnxsim', 'tensorrt', 'tvm', 'tvm_ffi', 'numpy'}"
        " & set(sys.modules))"
    )
    assert fresh(code) == "set()"


# --- Python packages -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["onnx", "onnxruntime", "tvm_ffi"])
def test_a_package_that_can_be_imported_is_found_with_its_own_version(name: str) -> None:
    module = pytest.importorskip(name)
    assert probe(name).detail == module.__version__


def test_a_package_that_cannot_be_imported_is_missing_and_an_extra_adds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "onnxsim", None)
    status = probe("onnxsim")
    assert not status
    assert "'onnxsim' is not installed" in status.detail
    assert re.fullmatch(r'pip install "[^"]+\[onnx\]"', status.remedy)


def test_a_folder_with_the_name_of_a_package_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "byoc_folder").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not availability._importable("byoc_folder")
    (tmp_path / "byoc_folder" / "__init__.py").touch()
    assert availability._importable("byoc_folder")


def test_every_extra_that_a_remedy_names_is_one_of_the_package() -> None:
    named = {
        match.group(1)
        for package in availability._PACKAGES.values()
        if (match := re.search(rf"(?:{remedies.KIT}|{ROOT})\[([\w-]+)\]", package.remedy()))
    }
    assert named == {"onnx", "openvino", "plot", "tensorrt", "tensorrt-rtx", "torch"}
    assert named <= _declared_extras()


def _declared_extras() -> set[str]:
    try:
        return set(importlib.metadata.metadata(remedies.KIT).get_all("Provides-Extra") or ())
    except importlib.metadata.PackageNotFoundError:
        section = (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2]
        return set(re.findall(r"^([\w-]+) = \[", section.partition("\n[")[0], flags=re.MULTILINE))


@pytest.mark.parametrize(
    ("packages", "driver", "detail"),
    [
        ({"tensorrt", "tensorrt_rtx"}, True, "tensorrt 3.0, builds for the GPU of this machine"),
        ({"tensorrt"}, False, "builds nothing here, without a GPU; build_at='first_run' works"),
        ({"tensorrt_rtx"}, False, "tensorrt-rtx 3.0, builds for other machines' GPUs"),
        ({"tensorrt_rtx"}, True, "tensorrt-rtx 3.0, builds for this GPU and others"),
        (set(), True, "'tensorrt' is not installed; the Python package 'tensorrt_rtx' is not"),
    ],
)
def test_what_builds_engines_is_told_with_what_it_builds_for(
    monkeypatch: pytest.MonkeyPatch, packages: set[str], driver: bool, detail: str
) -> None:
    monkeypatch.setattr(availability, "_importable", packages.__contains__)
    monkeypatch.setattr(availability, "_version", lambda *_names: "3.0")
    answer = cuda_driver.Driver("13.0", 1) if driver else "no driver"
    monkeypatch.setattr(cuda_driver, "ask", lambda: answer)
    status = probe("tensorrt-builder")
    assert bool(status) == bool(packages)
    assert detail in status.detail
    assert packages or "[tensorrt-rtx]" in status.remedy


# --- TVM -----------------------------------------------------------------------------------------


def test_tvm_is_found_with_its_version_and_the_libraries_of_its_wheel() -> None:
    tvm = pytest.importorskip("tvm")
    status = probe("tvm")
    assert status.detail.startswith(f"{tvm.__version__} (")
    library = Path(tvm.__file__).parent / "lib" / "libtvm_compiler.so"
    assert ("compiler" in status.detail) == library.is_file()


def test_a_tvm_of_another_release_is_refused_with_the_command_that_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(availability, "_version", lambda *_names: "0.26.0")
    status = probe("tvm")
    assert not status
    assert "0.26.0" in status.detail
    assert status.remedy == 'pip install "apache-tvm==0.27.*"'
    assert not probe("codegen:tensorrt")


def test_a_tvm_that_cannot_be_imported_is_reported_with_its_own_error(tmp_path: Path) -> None:
    broken = "raise RuntimeError('libLLVM is\\nmissing')"
    (tmp_path / "tvm").mkdir()
    (tmp_path / "tvm" / "__init__.py").write_text(broken, encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    for name in ("tvm-import", "codegen:tensorrt", "plugin:example_npu"):
        status = probe_elsewhere(name, PYTHONPATH=path)
        assert not status
        assert "libLLVM is missing" in status.detail


def test_runtime_only_mode_lacks_the_compilers_functions_and_the_remedy_says_why() -> None:
    status = probe_elsewhere("target:llvm", TVM_USE_RUNTIME_LIB="1")
    assert not status
    assert status.remedy == "unset TVM_USE_RUNTIME_LIB"
    assert probe("target:llvm")


def test_a_codegen_agrees_with_tvms_own_registry() -> None:
    tvm_ffi = pytest.importorskip("tvm_ffi")
    pytest.importorskip("tvm")
    for backend in ("tensorrt", "cutlass", "cublas", "cudnn", "nonesuch"):
        function = tvm_ffi.get_global_func(f"relax.ext.{backend}", allow_missing=True)
        assert bool(probe(f"codegen:{backend}")) == (function is not None)


def test_the_remedy_for_a_codegen_outside_the_wheel_is_a_build_of_the_same_tvm() -> None:
    status = probe("codegen:cublas")
    if status:
        pytest.skip("this TVM has cuBLAS' codegen")
    version = importlib.metadata.version("apache-tvm")
    assert f"build TVM {version} from source" in status.remedy
    assert "-DUSE_CUBLAS=ON" in status.remedy


def test_a_runtime_built_without_its_library_counts_as_missing() -> None:
    code = (
        f"{NO_TORCH}import tvm_ffi\n"
        "tvm_ffi.register_global_func('runtime.tensorrt_runtime_create', lambda: None)\n"
        "tvm_ffi.register_global_func('relax.is_tensorrt_runtime_enabled', lambda: ENABLED)\n"
        "from tvm_byoc_kit.availability import probe\n"
        "print(probe('runtime:runtime.tensorrt_runtime_create').ok)"
    )
    if probe("runtime:runtime.tensorrt_runtime_create"):
        pytest.skip("this TVM has TensorRT's runtime")
    for enabled in (False, True):
        assert fresh(code.replace("ENABLED", str(enabled))) == str(enabled)


# --- build tools ---------------------------------------------------------------------------------


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on PATH, empty."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    for variable in ("CXX", "CUDA_PATH", "CUDA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return directory


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "apt-get install g++"),
        ("dnf", "dnf install gcc-c++"),
        ("apk", "apk add g++"),
        ("none", "apt-get install g++"),
    ],
)
def test_a_missing_compiler_is_added_by_the_package_manager_that_is_here(
    empty_path: Path, manager: str, command: str
) -> None:
    script(empty_path / manager, "")
    status = probe("compiler")
    assert not status
    assert "g++, c++, clang++" in status.detail
    assert status.remedy == command


def test_the_compiler_is_found_with_its_version(empty_path: Path) -> None:
    compiler = script(empty_path / "clang++", "echo 'Debian clang version 19.1.7 (3)'")
    assert probe("compiler").detail == f"{compiler} 19.1.7"


def test_cxx_decides_which_compiler_is_used(
    empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(empty_path / "g++", "echo 'g++ 12.2.0'")
    mine = script(empty_path / "my-c++", "echo 'my-c++ 1.5'")
    monkeypatch.setenv("CXX", "my-c++ -m64")
    assert probe("compiler").detail == f"{mine} 1.5"
    monkeypatch.setenv("CXX", "absent-c++")
    status = probe("compiler")
    assert not status
    assert "absent-c++" in status.detail
    assert status.remedy == "unset CXX"
    monkeypatch.setenv("CXX", "'")
    assert probe("compiler").detail == "$CXX is ''', which is not found"


def test_a_compiler_that_does_not_run_counts_as_missing(empty_path: Path) -> None:
    script(empty_path / "g++", "exit 1")
    assert "does not run" in probe("compiler").detail


def test_a_cmake_too_old_for_the_build_counts_as_missing(empty_path: Path) -> None:
    script(empty_path / "cmake", "echo 'cmake version 3.18.4'")
    status = probe("cmake")
    assert not status
    assert "3.18.4, older than 3.20" in status.detail
    script(empty_path / "cmake", "echo 'cmake version 3.20.0'")
    assert probe("cmake")


def test_the_oldest_cmake_is_the_one_that_the_build_asks_for() -> None:
    lists = ROOT / "cmake" / "CMakeLists.txt"
    if not lists.is_file():
        pytest.skip("the tests do not stand beside the sources")
    needed = ".".join(map(str, availability._CMAKE_MINIMUM))
    assert f"cmake_minimum_required(VERSION {needed})" in lists.read_text()


def test_a_package_that_is_half_installed_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "__init__.py").write_text("raise ImportError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    assert probe("package:half.inner").detail == "the Python package 'half.inner' is not installed"


NVCC = "echo 'Cuda compilation tools, release 13.0, V13.0.88'; echo sm_80"


def test_nvcc_on_path_is_found_with_its_release(empty_path: Path) -> None:
    nvcc = script(empty_path / "nvcc", NVCC)
    assert probe("cuda-toolkit").detail == f"CUDA 13.0 ({nvcc})"


@pytest.mark.parametrize("variable", ["CUDA_PATH", "CUDA_HOME"])
def test_the_toolkit_that_a_variable_names_goes_before_the_one_on_path(
    variable: str, empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(empty_path / "nvcc", NVCC)
    nvcc = script(tmp_path / "cuda" / "bin" / "nvcc", NVCC.replace("13.0", "12.8"))
    monkeypatch.setenv(variable, str(tmp_path / "cuda"))
    assert probe("cuda-toolkit").detail == f"CUDA 12.8 ({nvcc})"


def test_an_nvcc_that_does_not_run_counts_as_missing(empty_path: Path) -> None:
    nvcc = script(empty_path / "nvcc", "echo one line\necho 'nvcc fatal : no licence'\nexit 3")
    status = probe("cuda-toolkit")
    assert not status
    assert status.detail == f"{nvcc} fails with exit code 3: nvcc fatal : no licence"


def test_an_nvcc_that_tells_nothing_counts_as_missing(empty_path: Path) -> None:
    nvcc = script(empty_path / "nvcc", "echo hello")
    assert probe("cuda-toolkit").detail.startswith(f"{nvcc} tells neither")


@pytest.mark.parametrize("variable", ["CUDA_PATH", "CUDA_HOME"])
def test_a_variable_that_leads_to_no_nvcc_is_told_beside_the_one_that_is_taken(
    variable: str, empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = script(empty_path / "nvcc", NVCC)
    monkeypatch.setenv(variable, str(tmp_path / "other"))
    wrong = f"(${variable} is {tmp_path / 'other'}, which has no bin/nvcc)"
    assert probe("cuda-toolkit").detail == f"CUDA 13.0 ({nvcc}) {wrong}"
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: None)
    assert probe("cuda-toolkit").detail.startswith(f"nvcc is not found {wrong}: ")


def test_without_nvcc_the_remedy_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "find_nvcc", lambda: None)
    status = probe("cuda-toolkit")
    assert not status
    assert status.detail.startswith("nvcc is not found: an artifact gets CUDA source")
    assert status.remedy.startswith("pip install ")
    assert status.remedy.endswith('[cuda]"')


def test_the_cutlass_headers_are_those_that_tvm_itself_would_use() -> None:
    build = pytest.importorskip("tvm.contrib.cutlass.build")
    try:
        include = Path(build._get_cutlass_path(), "include").resolve()
    except AssertionError:
        assert not probe("cutlass-headers")
        return
    version = (include / "cutlass" / "version.h").read_text()
    major = re.search(r"CUTLASS_MAJOR (\d+)", version)
    assert major
    detail = probe("cutlass-headers").detail
    assert detail.startswith(f"{major.group(1)}.")
    assert Path(detail.partition("(")[2].rstrip(")")).resolve() == include


# --- the CUDA driver, by libraries that pretend to be one ----------------------------------------


def driver(directory: Path, init: str, count: int = 0) -> str:
    """Compile a libcuda.so.1 whose cuInit runs a statement; return its directory."""
    source = f"""
    #include <stdlib.h>
    int cuInit(unsigned flags) {{ {init}; }}
    int cuDeviceGetCount(int* count) {{ *count = {count}; return 0; }}
    int cuDriverGetVersion(int* version) {{ *version = 13000; return 0; }}
    int cuDeviceGet(int* device, int number) {{ *device = number; return 0; }}
    int cuDeviceGetAttribute(int* value, int attribute, int device) {{
      *value = attribute == 75 ? 9 : 0; return 0;
    }}
    """
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(directory / "libcuda.so.1")]
    subprocess.run(command, input=source, text=True, check=True)
    return str(directory)


@needs_gcc
def test_a_driver_with_gpus_is_found_with_its_cuda_version(tmp_path: Path) -> None:
    status = probe_elsewhere("cuda-driver", LD_LIBRARY_PATH=driver(tmp_path, "return 0", 2))
    assert status.detail == "CUDA 13.0, 2 GPU(s)"


@needs_gcc
@pytest.mark.parametrize(
    ("init", "reason"),
    [
        ("return 100", "sees no GPU"),
        ("return 0", "sees no GPU"),
        ("return 34", "stub"),
        ("return 803", "different versions"),
        ("return 12345", "CUDA error 12345"),
        ("abort()", "fails when it is used"),
        ("return *(volatile int*)0", "fails when it is used"),
    ],
)
def test_a_driver_that_fails_or_crashes_is_reported_and_the_process_lives(
    tmp_path: Path, init: str, reason: str
) -> None:
    for name in ("cuda-driver", "device:cuda"):
        status = probe_elsewhere(name, LD_LIBRARY_PATH=driver(tmp_path, init))
        assert not status
        assert reason in status.detail
        assert status.remedy


@needs_gcc
@pytest.mark.parametrize(
    ("environment", "reason", "remedy"),
    [
        # A driver of three functions is not enough for TVM's library, which says what it lacks.
        ({}, "CUDA runtime library cannot be loaded: ", ""),
        ({"TVM_USE_RUNTIME_LIB": "1"}, "runtime-only mode", "unset TVM_USE_RUNTIME_LIB"),
        (
            {"TVM_DEVICE_BACKEND_AUTOLOAD": "0"},
            "TVM_DEVICE_BACKEND_AUTOLOAD=0",
            "unset TVM_DEVICE_BACKEND_AUTOLOAD",
        ),
    ],
)
def test_a_cuda_runtime_that_tvm_left_out_silently_is_reported_with_the_reason(
    tmp_path: Path, environment: dict[str, str], reason: str, remedy: str
) -> None:
    library = driver(tmp_path, "return 0", 1)
    status = probe_elsewhere("device:cuda", LD_LIBRARY_PATH=library, **environment)
    assert not status
    assert reason in status.detail
    assert status.remedy
    assert remedy in status.remedy


def test_the_driver_remedy_depends_on_whether_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_driver, "_PCI", tmp_path)
    assert "machine with an NVIDIA GPU" in availability._driver_remedy()
    (tmp_path / "0000:01:00.0").mkdir()
    (tmp_path / "0000:01:00.0" / "vendor").write_text("0x10de\n")
    assert "driver" in availability._driver_remedy()


# --- the command that builds the kit again -------------------------------------------------------


class _Installed:
    """What pip recorded about the kit's installation (PEP 610)."""

    def __init__(self, record: dict[str, object] | None) -> None:
        self.record = record

    def read_text(self, _name: str) -> str | None:
        return json.dumps(self.record) if self.record is not None else None


@pytest.mark.parametrize(
    ("record", "source"),
    [
        (None, "--no-binary tvm-byoc-kit tvm-byoc-kit"),
        ({"url": f"file://{ROOT}", "dir_info": {}}, str(ROOT)),
        (
            {"url": "file:///nowhere/at/all", "dir_info": {}},
            "--no-binary tvm-byoc-kit tvm-byoc-kit",
        ),
        ({"url": f"file://{ROOT}/kit.whl"}, "--no-binary tvm-byoc-kit tvm-byoc-kit"),
        ({"url": "https://a.org/kit-0.1.tar.gz"}, "https://a.org/kit-0.1.tar.gz"),
        (
            {"url": "https://a.org/kit", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "git+https://a.org/kit@abc",
        ),
    ],
)
def test_the_kit_is_rebuilt_from_where_it_was_installed_from(
    monkeypatch: pytest.MonkeyPatch, record: dict[str, object] | None, source: str
) -> None:
    monkeypatch.setattr(remedies, "_distribution", lambda: _Installed(record))
    monkeypatch.setattr(toolchain, "find_cxx", lambda: "/usr/bin/g++")
    assert remedies.kit_rebuild() == (
        f"pip install --force-reinstall --no-deps --no-cache-dir {source}"
    )


def test_the_rebuild_installs_a_compiler_first_where_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "find_cxx", lambda: None)
    assert remedies.kit_rebuild().startswith(f"{remedies.cxx_compiler()} && pip install")
