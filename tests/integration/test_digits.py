"""The shipped classifier: what its files hold, and the example NPU against ONNX Runtime."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tvm_byoc_kit as byoc

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

DATA = Path(str(files("tvm_byoc_kit"))) / "data"
SCRIPT = Path(__file__).parents[2] / "scripts" / "train_digits.py"
# Logits reach 30 and are sums of up to 512 products in another order: float32 leaves about 1e-5.
ATOL = 1e-4


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    """Held-out images as the model's inputs, one a call: [360, 1, 1, 8, 8]."""
    with np.load(DATA / "digits_test.npz") as held_out:
        return held_out["images"].reshape(-1, 1, 1, 8, 8).astype(np.float32) / np.float32(16)


@pytest.fixture(scope="module")
def labels() -> np.ndarray:
    with np.load(DATA / "digits_test.npz") as held_out:
        return held_out["labels"]


@pytest.fixture(scope="module")
def expected(images: np.ndarray) -> np.ndarray:
    return onnxruntime_logits(DATA / "digits.onnx", images)


@pytest.fixture(scope="module")
def parts() -> byoc.Partition:
    return byoc.partition(byoc.load_model(DATA / "digits.onnx"), "example_npu")


@pytest.fixture(scope="module")
def got(parts: byoc.Partition, images: np.ndarray) -> np.ndarray:
    exe = byoc.build(parts)
    return np.concatenate([exe.run({"image": image})["logits"] for image in images])


def onnxruntime_logits(model: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(["logits"], {"image": image})[0] for image in images])


def accuracy(logits: np.ndarray, labels: np.ndarray) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


def training_script() -> ModuleType:
    for package in ("sklearn", "torch"):
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("train_digits", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def signature(values: Any) -> list[tuple[str, int, list[int]]]:
    return [
        (
            value.name,
            value.type.tensor_type.elem_type,
            [dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in values
    ]


def test_model_file_has_one_image_in_and_ten_logits_out() -> None:
    model = onnx.load(DATA / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert signature(model.graph.input) == [("image", onnx.TensorProto.FLOAT, [1, 1, 8, 8])]
    assert signature(model.graph.output) == [("logits", onnx.TensorProto.FLOAT, [1, 10])]
    assert sum(np.prod(weight.dims) for weight in model.graph.initializer) == 38_282


def test_held_out_file_has_all_ten_digits_as_bytes(labels: np.ndarray) -> None:
    with np.load(DATA / "digits_test.npz") as held_out:
        assert held_out["images"].shape == (360, 8, 8)
        assert held_out["images"].dtype == np.uint8
        assert held_out["images"].max() == 16
    assert labels.dtype == np.uint8
    assert np.bincount(labels).min() >= 34  # 36 of each, more or less


def test_files_are_small_enough_to_ship() -> None:
    assert (DATA / "digits.onnx").stat().st_size < 200_000
    assert (DATA / "digits_test.npz").stat().st_size < 20_000


def test_held_out_images_are_the_ones_the_script_does_not_train_on(labels: np.ndarray) -> None:
    train_x, test_x, _, test_y = training_script().load_split()
    with np.load(DATA / "digits_test.npz") as held_out:
        np.testing.assert_array_equal(held_out["images"], test_x)
    np.testing.assert_array_equal(labels, test_y)
    trained_on = {image.tobytes() for image in train_x}
    assert not any(image.tobytes() in trained_on for image in test_x)


def test_training_again_gives_the_shipped_accuracy(
    tmp_path: Path, images: np.ndarray, labels: np.ndarray, expected: np.ndarray
) -> None:
    training_script()  # skips where its packages are missing
    subprocess.run([sys.executable, SCRIPT, "--output", tmp_path], check=True)
    again = accuracy(onnxruntime_logits(tmp_path / "digits.onnx", images), labels)
    # The same to the bit with the same torch on the same processor, else one image or two apart.
    assert again == pytest.approx(accuracy(expected, labels), abs=2 / len(labels))


def test_held_out_accuracy_in_onnxruntime_is_at_least_97_percent(
    expected: np.ndarray, labels: np.ndarray
) -> None:
    assert accuracy(expected, labels) >= 0.97


def test_every_op_is_offloaded_in_one_region_with_bias_and_activation_fused(
    parts: byoc.Partition,
) -> None:
    coverage = parts.coverage
    assert coverage.offloaded == coverage.total
    (region,) = coverage.regions
    composites = Counter(region.composites)
    assert composites["example_npu.conv2d_bias_relu"] == 2
    assert composites["example_npu.max_pool2d"] == 1
    assert composites["example_npu.matmul_bias_relu"] == 1
    assert composites["example_npu.matmul_bias"] == 1


@pytest.mark.byoc("example_npu", step="runtime")
def test_example_npu_gives_the_logits_of_onnxruntime(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=0, atol=ATOL)


@pytest.mark.byoc("example_npu", step="runtime")
def test_example_npu_has_the_accuracy_of_onnxruntime(
    got: np.ndarray, expected: np.ndarray, labels: np.ndarray
) -> None:
    np.testing.assert_array_equal(got.argmax(axis=1), expected.argmax(axis=1))
    assert accuracy(got, labels) == accuracy(expected, labels)
