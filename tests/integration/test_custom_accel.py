"""The running example of docs/python_backends.md, from the very text of the page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

PAGE = Path(__file__).parents[2] / "docs" / "python_backends.md"
BLOCKS = re.findall(
    r"^```python\n# (\w+\.py)[^\n]*\n(.*?)^```$",
    PAGE.read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the plugins are built for Linux only"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With each block of the page as the file that its first line names."""
    path = tmp_path_factory.mktemp("custom_accel")
    for name, code in BLOCKS:
        (path / name).write_text(code, encoding="utf-8")
    return path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def offloaded(folder: Path) -> str:
    """What the page's first script prints."""
    done = run(folder, "offload.py")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_block_has_a_file_name() -> None:
    assert [name for name, _ in BLOCKS] == [
        "custom_accel.py",
        "offload.py",
        "reload.py",
        "from_torch.py",
        "from_onnx.py",
    ]


def test_the_backend_is_under_forty_lines() -> None:
    (code,) = (code for name, code in BLOCKS if name == "custom_accel.py")
    assert len([line for line in code.splitlines() if line.strip()]) < 40


def test_conv2d_and_relu_are_one_composite_and_compute(offloaded: str) -> None:
    assert "2 of 2 ops offloaded in 1 region(s)" in offloaded
    assert "conv2d_relu" in offloaded


def test_the_artifact_runs_in_a_fresh_process(folder: Path, offloaded: str) -> None:
    assert offloaded
    done = run(folder, "reload.py")
    assert done.returncode == 0, done.stderr


def test_a_process_that_does_not_know_the_backend_is_told(folder: Path, offloaded: str) -> None:
    assert offloaded
    done = run(folder, "-c", "import tvm_byoc_kit as byoc; byoc.load('model.so')")
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "BackendUnavailable: backend 'custom_accel' has no runtime here" in last
    assert "byoc.register_backend" in last


def test_a_model_of_pytorch_runs_too(folder: Path) -> None:
    done = run(folder, "from_torch.py")
    assert done.returncode == 0, done.stderr
    assert "agrees with torch" in done.stdout


def test_a_model_of_onnx_runs_too(folder: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((8, 3, 3, 3), dtype="float32"),
        "b1": rng.standard_normal(8, dtype="float32"),
        "w2": rng.standard_normal((4, 8, 3, 3), dtype="float32"),
        "w3": rng.standard_normal((4, 4, 1, 1), dtype="float32"),  # of a residual connection
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "w1", "b1"], ["c1"], strides=[2, 2]),
            helper.make_node("Relu", ["c1"], ["r1"]),
            helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[0, 1, 2, 1]),
            helper.make_node("Relu", ["c2"], ["r2"]),
            helper.make_node("Conv", ["r2", "w3"], ["c3"]),
            helper.make_node("Add", ["c3", "r2"], ["s3"]),
            helper.make_node("Relu", ["s3"], ["r3"]),
            helper.make_node("GlobalAveragePool", ["r3"], ["features"]),
        ],
        "model",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [2, 3, 20, 20])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [2, 4, 1, 1])],
        [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "model.onnx")
    done = run(folder, "from_onnx.py")
    assert done.returncode == 0, done.stderr
    assert "2 x conv2d_bias_relu, conv2d_relu" in done.stdout
    assert "agrees with onnxruntime" in done.stdout
