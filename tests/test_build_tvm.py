"""scripts/build_tvm.sh: its checks, each with what to do, the dry run, CMake's configure step."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "build_tvm.sh"
VERSION = "SETUPTOOLS_SCM_PRETEND_VERSION_FOR_APACHE_TVM"
FFI_VERSION = f"{VERSION}_FFI"

# Of the system; the rest of PATH is not seen, so that what is missing is missing everywhere.
SYSTEM = [
    "awk",
    "bash",
    "cat",
    "df",
    "dirname",
    "env",
    "git",
    "grep",
    "head",
    "mkdir",
    "nproc",
    "realpath",
    "sed",
    "sh",
    "sort",
]

Run = Callable[..., subprocess.CompletedProcess[str]]


def write(path: Path, text: str = "", *, executable: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    if executable:
        path.chmod(0o755)
    return path


def tool(path: Path, output: str) -> Path:
    return write(path, f"#!/bin/sh\necho '{output}'\n", executable=True)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What the script looks at of a source tree."""
    tree = tmp_path / "tvm"
    write(tree / "CMakeLists.txt", "project(tvm C CXX)\n")
    write(tree / "pyproject.toml", '  "apache-tvm-ffi>=0.1.13.post2",\n')
    ffi = tree / "3rdparty" / "tvm-ffi"
    for name in ("CMakeLists.txt", "3rdparty/libbacktrace/backtrace.h"):
        write(ffi / name)
    write(ffi / "3rdparty" / "dlpack" / "include" / "dlpack" / "dlpack.h")
    return tree


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Tools that say a version and do nothing."""
    folder = tmp_path / "bin"
    outputs = {
        "cmake": "cmake version 3.26.4",
        "ninja": "1.13",
        "nvcc": "nvcc",
        "llvm-config": "15.0.7",
        "c++": "",
    }
    for name, output in outputs.items():
        tool(folder / name, output)
    for name in SYSTEM:
        (folder / name).symlink_to(str(shutil.which(name)))
    return folder


@pytest.fixture
def run(source: Path, tools: Path, tmp_path: Path) -> Run:
    """Gives ``run(*arguments, **environment)``, with --source and --venv given."""

    def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        where = ("--source", source, "--venv", tmp_path / "venv")
        return subprocess.run(
            [SCRIPT, *map(str, (*where, *arguments))],
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "PATH": str(tools),
                "PYTHON": sys.executable,
                VERSION: "0.27.1",
                FFI_VERSION: "0.1.13",
                **environment,
            },
        )

    return call


def test_dry_run_prints_every_command_and_runs_none(run: Run, tmp_path: Path) -> None:
    done = run("--dry-run", "--jobs", 3)
    assert done.returncode == 0, done.stderr
    commands = [line for line in done.stdout.splitlines() if line.startswith("+ ")]
    assert commands[0].startswith("+ cmake -G Ninja")
    for option in ("USE_EXAMPLE_NPU_CODEGEN=ON", "USE_EXAMPLE_NPU_RUNTIME=ON", "llvm-config"):
        assert option in commands[0]
        assert option in commands[4], "the build has other options than the configure step"
    assert "CMAKE_BUILD_PARALLEL_LEVEL=3" in commands[4]
    assert commands[-1].endswith("tests/integration/test_custom_tvm.py")
    assert not (tmp_path / "venv").exists()


def test_options_after_two_dashes_go_to_cmake_once_and_win(run: Run) -> None:
    given = ("-DUSE_VULKAN=ON", "-DUSE_EXAMPLE_NPU_RUNTIME=OFF", "-DCMAKE_CXX_FLAGS=-O1 -w")
    done = run("--dry-run", "--", *given)
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines() if line.startswith("+ ")]
    configured = [word for word in commands[0] if word.startswith("-D")]
    assert set(given) <= set(configured)
    assert "-DUSE_EXAMPLE_NPU_RUNTIME=ON" not in configured
    # The same ones, each once: pip gives a build a list for what is named twice.
    built = [word for word in commands[4] if word.startswith("--config-settings=cmake.define.")]
    assert [f"-D{word.partition('.define.')[2]}" for word in built] == configured
    assert len({word.partition("=")[0] for word in configured}) == len(configured)


@pytest.mark.parametrize("option", ["USE_VULKAN=ON", "-DUSE_VULKAN", "-G", "-DUSE VULKAN=ON"])
def test_what_is_no_option_of_cmake_is_refused(run: Run, option: str) -> None:
    refused(run("--dry-run", "--", option), f"after --, {option}: expected -DNAME=VALUE")


def test_backends_that_are_asked_for_are_configured(run: Run, tmp_path: Path) -> None:
    home = tensorrt(tmp_path, 10)
    done = run("--dry-run", "--cuda", "--tensorrt", home, "--llvm", "OFF")
    assert done.returncode == 0, done.stderr
    wanted = {"USE_CUDA=ON", "USE_TENSORRT_CODEGEN=ON", f"USE_TENSORRT_RUNTIME={home}"}
    assert {f"-D{option}" for option in (*wanted, "USE_LLVM=OFF")} <= set(done.stdout.split())


def tensorrt(folder: Path, major: int) -> Path:
    home = folder / "TensorRT"
    write(home / "include" / "NvInfer.h")
    write(home / "include" / "NvInferVersion.h", f"#define TRT_MAJOR_ENTERPRISE {major}\n")
    write(home / "lib" / "libnvinfer.so")
    return home


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One line, which says all of these words."""
    assert done.returncode != 0
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("error: ")
    for word in words:
        assert word in line


def test_a_folder_that_is_no_tvm_is_refused(run: Run, source: Path) -> None:
    write(source / "CMakeLists.txt", "project(other)\n")
    refused(run("--dry-run"), "no source tree of Apache TVM", "git clone --recursive")


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("CMakeLists.txt", "3rdparty/tvm-ffi/CMakeLists.txt"),
        ("3rdparty/libbacktrace/backtrace.h", "libbacktrace"),
    ],
)
def test_missing_submodules_are_named_with_the_command(
    run: Run, source: Path, file: str, missing: str
) -> None:
    (source / "3rdparty" / "tvm-ffi" / file).unlink()
    refused(run("--dry-run"), missing, "submodule update --init --recursive 3rdparty/tvm-ffi")


def test_another_version_is_refused(run: Run) -> None:
    refused(run("--dry-run", **{VERSION: "0.28.0"}), "is TVM 0.28.0", "checkout")
    refused(run("--dry-run", **{VERSION: "0.270.0"}), "the kit works with 0.27")


def test_a_tree_that_does_not_say_its_version_is_refused(run: Run) -> None:
    refused(run("--dry-run", **{VERSION: ""}), "does not say its version", f"export {VERSION}=")


def test_a_tvm_ffi_that_does_not_say_its_version_is_refused(run: Run) -> None:
    """Its build would say so minutes later, in a Python traceback."""
    refused(
        run("--dry-run", **{FFI_VERSION: ""}),
        "3rdparty/tvm-ffi does not say its version",
        f"export {FFI_VERSION}=0.1.13.post2",
    )


def test_the_version_is_read_from_gits_tags(run: Run, source: Path) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    commands = (("init", "-q"), ("commit", "-qm", "x", "--allow-empty"), ("tag", "v0.27.dev0"))
    for command in commands:
        subprocess.run(["git", "-C", str(source), *identity, *command], check=True)
    # A release has names that its first development versions have not.
    refused(run("--dry-run", **{VERSION: ""}), "is TVM 0.27.dev0", "checkout")
    subprocess.run(["git", "-C", str(source), "tag", "v0.27.0"], check=True)
    done = run("--dry-run", **{VERSION: ""})
    assert done.stdout.startswith("TVM 0.27.0 in "), done.stderr


def test_an_old_cmake_is_refused_with_what_replaces_it(run: Run, tools: Path) -> None:
    tool(tools / "cmake", "cmake version 3.25.1")
    refused(run("--dry-run"), "cmake is 3.25.1", 'pip install "cmake>=3.26"')


@pytest.mark.parametrize(
    ("name", "add"),
    [
        ("cmake", 'pip install "cmake>=3.26"'),
        ("ninja", 'pip install "cmake>=3.26" ninja'),
        ("c++", "apt install"),
    ],
)
def test_a_missing_tool_is_named_with_what_adds_it(
    run: Run, tools: Path, name: str, add: str
) -> None:
    (tools / name).unlink()
    refused(run("--dry-run"), name.strip("+"), add)


def test_a_compiler_that_tvm_is_too_new_for_is_refused(run: Run, tools: Path) -> None:
    """clang 14, of Debian 12, fails in one file of hundreds."""
    write(tools / "clang++", "#!/bin/sh\nexit 1\n", executable=True)
    refused(run("--dry-run", CXX="clang++"), "clang++ does not compile", "CXX=g++ CC=gcc")
    chosen = run("--dry-run", "--", "-DCMAKE_CXX_COMPILER=c++", CXX="clang++")
    assert chosen.returncode == 0, chosen.stderr


def test_an_old_or_missing_llvm_is_refused(run: Run, tools: Path) -> None:
    tool(tools / "llvm-config", "14.0.6")
    refused(run("--dry-run"), "LLVM 14.0.6", "apt install llvm-15-dev")
    refused(run("--dry-run", "--llvm", "no-such-llvm"), "no-such-llvm does not run", "apt install")


def test_cuda_and_tensorrt_are_refused_where_they_are_not(
    run: Run, tools: Path, tmp_path: Path
) -> None:
    refused(run("--dry-run", "--cuda", "--tensorrt", tmp_path), "NvInfer.h", "unpack TensorRT 10")
    home = tensorrt(tmp_path, 11)
    refused(run("--dry-run", "--cuda", "--tensorrt", home), "has TensorRT 11", "for 10")
    refused(run("--dry-run", "--tensorrt", home), "--tensorrt needs --cuda")
    (tools / "nvcc").unlink()
    refused(run("--dry-run", "--cuda"), "nvcc not found", "cuda-downloads")


def test_an_environment_of_another_python_is_refused(run: Run, tmp_path: Path) -> None:
    write(tmp_path / "venv" / "pyvenv.cfg")
    tool(tmp_path / "venv" / "bin" / "python", "3.8")
    refused(run("--dry-run"), "has Python 3.8", "rm -r ", "PYTHON=/path/to/python")
    (tmp_path / "venv" / "bin" / "python").unlink()
    refused(run("--dry-run"), "has Python that does not run", "rm -r ")


def test_paths_with_spaces_are_refused(run: Run, source: Path, tmp_path: Path) -> None:
    """TVM's build would fail after minutes, in the install step of libbacktrace."""
    refused(run("--venv", tmp_path / "my venv"), "has spaces", "choose another --venv")
    refused(run("--source", source.rename(tmp_path / "my tvm")), "has spaces", "move it")


def test_a_place_that_cannot_hold_the_environment_is_refused(
    run: Run, tools: Path, tmp_path: Path
) -> None:
    in_the_way = write(tmp_path / "file")
    refused(run("--venv", in_the_way / "venv"), f"{in_the_way} cannot be written to", "--venv")
    (tools / "df").unlink()
    write(tools / "df", "#!/bin/sh\necho head\necho /dev/x 9000 8900 100 99% /\n", executable=True)
    refused(run("--dry-run"), "100 MB free", "choose another --venv")


def test_wrong_arguments_are_named(run: Run) -> None:
    refused(run("--sauce"), "unknown argument --sauce")
    refused(run("--jobs"), "--jobs needs a value")
    refused(run("--jobs", "many"), "--jobs many: expected a number")
    refused(run("--source", ""), "--source DIR is missing", "git clone --recursive")
    refused(run("--venv", ""), "--venv needs a value")


def test_help_is_the_head_of_the_script(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for option in ("--source DIR", "--dry-run", "-- -DNAME=VALUE", VERSION):
        assert option in done.stdout
    assert "#" not in done.stdout


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("CMake Error: x", "CMake Error: x"),
        ("CMake Error at a:2 (project):\n  No\n\n  compiler.\nMore.", "(project): No compiler. ("),
        ("CMake Error at a:2 (find):\n  No Vulkan.\nCall Stack:", "(find): No Vulkan. ("),
        ("error: subprocess-exited-with-error\n  a.cc:1: error: x", "a.cc:1: error: x"),
        ("  raise ValueError(message)\nValueError: no version", "ValueError: no version"),
    ],
)
def test_a_step_that_fails_gives_its_error_and_its_log(
    run: Run, tools: Path, tmp_path: Path, log: str, said: str
) -> None:
    asked = "[ $1 = --version ] && echo 'cmake version 4.0.0' && exit"
    script = f"#!/bin/sh\n{asked}\ncat << 'END'\n{log}\nEND\nexit 1\n"
    write(tools / "cmake", script, executable=True)
    refused(run("--configure-only"), "configuring failed: ", said, str(tmp_path / "venv" / "log"))


@pytest.mark.skipif("TVM_SOURCE" not in os.environ, reason="TVM_SOURCE names no source tree")
def test_the_source_tree_of_tvm_is_configured(tmp_path: Path) -> None:
    command = [SCRIPT, "--source", os.environ["TVM_SOURCE"], "--venv", tmp_path / "venv"]
    done = subprocess.run(
        [*map(str, command), "--llvm", "OFF", "--configure-only"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    cache = (tmp_path / "venv" / "configured" / "CMakeCache.txt").read_text(encoding="utf-8")
    assert "USE_EXAMPLE_NPU_RUNTIME" in cache
    log = (tmp_path / "venv" / "log" / "configuring.log").read_text(encoding="utf-8")
    assert "Build with Example NPU codegen" in log
    assert "Build with Example NPU runtime" in log


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_the_shell_scripts_are_clean() -> None:
    scripts = [*sorted((ROOT / "scripts").glob("*.sh")), ROOT / ".ci" / "run"]
    done = subprocess.run(
        ["shellcheck", "-x", *map(str, scripts)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
