"""A third-party model as it ships: Google's file-type classifier, from the wheel of ``magika``."""

from __future__ import annotations

import importlib.metadata
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_byoc_kit as byoc

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
onnxsim = pytest.importorskip("onnxsim")

needs_npu = pytest.mark.byoc("example_npu", step="runtime")

SHAPES = {"bytes": [1, 2048]}  # int32; the batch is symbolic in the file
HALF = 1024  # bytes from each end of a file
PADDING = 256  # one past the largest byte
# The outputs are probabilities. TVM's host build differs from ONNX Runtime by up to 2e-6, the
# softmax of two close logits magnifying what float32 sums in another order leave.
ATOL = 2e-5


def magika_file(suffix: str) -> Path:
    """The only file of the package that ends with `suffix`, found without importing it."""
    try:
        files = importlib.metadata.files("magika") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package magika is not installed: pip install magika")
    (found,) = (Path(str(file.locate())) for file in files if str(file).endswith(suffix))
    return found


@pytest.fixture(scope="module")
def original() -> Any:
    return onnx.load(magika_file("model.onnx"))


@pytest.fixture(scope="module")
def labels() -> list[str]:
    config = json.loads(magika_file("config.min.json").read_text(encoding="utf-8"))
    return list(config["target_labels_space"])


@pytest.fixture(scope="module")
def parts(original: Any) -> byoc.Partition:
    simplified, ok = onnxsim.simplify(original, overwrite_input_shapes=SHAPES)
    assert ok
    return byoc.partition(byoc.load_model(simplified, shapes=SHAPES), "example_npu")


@pytest.fixture(scope="module")
def exe(parts: byoc.Partition) -> byoc.Executable:
    return byoc.build(parts)


@pytest.fixture(scope="module")
def reference(original: Any) -> Any:
    """The file as it ships, so that a fault of the simplifier shows too."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        original.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def features(content: bytes) -> np.ndarray:
    """What the classifier sees of a file: both ends without white space, padded to 1024 each."""
    first, last = content.lstrip()[:HALF], content.rstrip()[-HALF:]
    row = np.full(2 * HALF, PADDING, dtype=np.int32)
    row[: len(first)] = np.frombuffer(first, np.uint8)
    row[2 * HALF - len(last) :] = np.frombuffer(last, np.uint8)
    return row[None]


def zip_archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"notes/{number}.txt", f"note {number}\n" * number)
    return buffer.getvalue()


def json_text() -> bytes:
    rows = [{"id": number, "name": f"row {number}", "ok": number % 3 == 0} for number in range(90)]
    return json.dumps(rows, indent=1).encode()


# Contents whose type is beyond doubt, by the label for it.
CONTENTS = {"python": Path(__file__).read_bytes(), "json": json_text(), "zip": zip_archive()}


def test_simplified_model_keeps_its_signature(parts: byoc.Partition) -> None:
    assert parts.model.inputs == (byoc.TensorSpec("bytes", (1, 2048), "int32"),)
    assert parts.model.outputs == (byoc.TensorSpec("target_label", (1, 214), "float32"),)


def test_every_op_with_multiplications_by_weights_is_offloaded(parts: byoc.Partition) -> None:
    heavy = {"relax.matmul": 2, "relax.nn.conv2d": 1}
    offloaded = [op.op for op in parts.coverage.ops if op.region is not None]
    assert {name: offloaded.count(name) for name in heavy} == heavy
    assert not heavy.keys() & parts.coverage.host_ops.keys()


@needs_npu
@pytest.mark.parametrize("label", CONTENTS)
def test_real_files_get_their_label_and_the_probabilities_of_onnxruntime(
    exe: byoc.Executable, reference: Any, labels: list[str], label: str
) -> None:
    inputs = {"bytes": features(CONTENTS[label])}
    (expected,) = reference.run(["target_label"], inputs)
    got = exe.run(inputs)["target_label"]
    assert labels[int(got.argmax())] == label
    np.testing.assert_allclose(got, expected, rtol=0, atol=ATOL)


@needs_npu
@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_get_the_probabilities_of_onnxruntime(
    exe: byoc.Executable, reference: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = {"bytes": rng.integers(0, PADDING + 1, size=(1, 2048), dtype=np.int32)}
    (expected,) = reference.run(["target_label"], inputs)
    np.testing.assert_allclose(exe.run(inputs)["target_label"], expected, rtol=0, atol=ATOL)


@needs_npu
def test_exported_model_gives_the_same_probabilities(exe: byoc.Executable, tmp_path: Path) -> None:
    inputs = {"bytes": features(CONTENTS["python"])}
    exe.export(tmp_path / "magika.so")
    reloaded = byoc.load(tmp_path / "magika.so")
    np.testing.assert_array_equal(
        reloaded.run(inputs)["target_label"], exe.run(inputs)["target_label"]
    )
