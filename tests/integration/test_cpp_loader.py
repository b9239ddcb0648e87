"""An exported artifact runs in a C++ program: no Python, no compiler, only TVM's runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tvm_byoc_kit import native

SOURCE = Path(__file__).resolve().parents[1] / "cpp"
INPUT_SHAPE = (1, 3, 8, 8)
WEIGHT_SHAPE = (4, 3, 3, 3)


def run(*command: str | Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **kwargs)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile ``run_artifact``."""
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        pytest.skip("no C++ compiler: install g++")
    if not shutil.which("cmake"):
        pytest.skip("cmake is missing: pip install cmake")
    build = tmp_path_factory.mktemp("run_artifact")
    choices = [f"-DTvmByocKit_DIR={native.cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    for command in (["-S", SOURCE, "-B", build, *choices], ["--build", build]):
        done = run("cmake", *command)
        assert done.returncode == 0, done.stdout + done.stderr
    return build / "run_artifact"


@pytest.fixture(scope="module")
def weight() -> np.ndarray:
    return np.random.default_rng(0).standard_normal(WEIGHT_SHAPE).astype("float32")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory, weight: np.ndarray) -> Path:
    """Export relu(conv2d(x, weight)), offloaded to the example NPU, by TVM's own calls alone."""
    import tvm
    import tvm.relax.backend.contrib.example_npu
    from tvm import relax
    from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

    status = native.load("example_npu")
    assert status, str(status)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(INPUT_SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(x, relax.const(weight), padding=(1, 1)))
            output = builder.emit_output(builder.emit(relax.op.nn.relu(conv)))
        builder.emit_func_output(output)
    passes = tvm.transform.Sequential(
        [
            relax.transform.FuseOpsByPattern(get_patterns_with_prefix("example_npu")),
            relax.transform.MergeCompositeFunctions(),
            relax.transform.RunCodegen(),
        ]
    )
    module = passes(builder.get())
    assert len(module.attrs["external_mods"]) == 1
    path = tmp_path_factory.mktemp("artifact") / "model.so"
    tvm.compile(module, "llvm").export_library(str(path))
    return path


def conv_relu(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute the reference: stride 1, padding 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.maximum(np.einsum("nchwij,ocij->nohw", windows, weight), 0)


def libraries(*, with_plugin: bool = True) -> list[Path]:
    import tvm.libinfo

    runtime = Path(tvm.libinfo.__file__).parent / "lib" / "libtvm_runtime.so"
    return [runtime, native.PLUGINS["example_npu"].library] if with_plugin else [runtime]


@pytest.fixture(scope="module")
def x_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("input") / "x.bin"
    np.random.default_rng(1).standard_normal(INPUT_SHAPE).astype("float32").tofile(path)
    return path


DIMS = ",".join(map(str, INPUT_SHAPE))


def test_artifact_runs_without_python_and_gives_the_right_numbers(
    program: Path, artifact: Path, weight: np.ndarray, x_file: Path
) -> None:
    done = run(program, artifact, x_file, DIMS, *libraries(), env={})
    assert done.returncode == 0, done.stderr
    x = np.fromfile(x_file, "float32").reshape(INPUT_SHAPE)
    expected = conv_relu(x, weight)
    actual = np.array(done.stdout.split(), "float32").reshape(expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    loaded = done.stderr
    assert "libbyoc_example_npu.so" in loaded
    assert "libpython" not in loaded
    assert "libtvm_compiler" not in loaded


def test_missing_plugin_is_an_error_that_names_the_loader(
    program: Path, artifact: Path, x_file: Path
) -> None:
    done = run(program, artifact, x_file, DIMS, *libraries(with_plugin=False), env={})
    assert done.returncode == 1
    assert "example_npu_json" in done.stderr


def test_input_of_another_shape_is_an_error(program: Path, artifact: Path, x_file: Path) -> None:
    done = run(program, artifact, x_file, "1,3,8,7", *libraries(), env={})
    assert done.returncode == 1
    assert "shape" in done.stderr.lower()


def test_file_that_is_no_library_is_an_error(program: Path, x_file: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.so"
    damaged.write_bytes(b"not a shared library")
    done = run(program, damaged, x_file, DIMS, *libraries(), env={})
    assert done.returncode == 1
    assert "damaged.so" in done.stderr


def test_an_artifact_of_several_builds_has_plain_functions(
    program: Path, weight: np.ndarray, x_file: Path, tmp_path: Path
) -> None:
    import torch

    import tvm_byoc_kit as byoc

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(torch.nn.functional.conv2d(x, torch.from_numpy(weight), padding=1))

    dim = torch.export.Dim("batch", min=1, max=16)
    example = torch.zeros(2, *INPUT_SHAPE[1:])
    model = byoc.load_model(Model().eval(), (example,), dynamic_shapes=({0: dim},))
    exe = byoc.compile(model, "example_npu", batch=byoc.Buckets(1, 4, fallback="symbolic"))
    assert exe.manifest.entry == "main"
    exe.export(tmp_path / "model.so")
    done = run(program, tmp_path / "model.so", x_file, DIMS, *libraries(), env={})
    assert done.returncode == 0, done.stderr
    expected = conv_relu(np.fromfile(x_file, "float32").reshape(INPUT_SHAPE), weight)
    actual = np.array(done.stdout.split(), "float32").reshape(expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
