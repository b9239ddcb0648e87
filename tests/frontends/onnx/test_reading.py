"""Weights in other files, and models too large for one protobuf message."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx import reading, simplification

FLOAT = TensorProto.FLOAT


@pytest.fixture
def external(make_onnx: Any, tmp_path: Path) -> Path:
    """A model whose weights lie beside it."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((3, 2000)).astype("f"), "shape": np.array([4, 1000])}
    nodes = [("MatMul", ["x", "w"], ["product"]), ("Reshape", ["product", "shape"], ["y"])]
    proto = make_onnx(nodes, ["x"], [("y", FLOAT, [4, 1000])], constants)
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin")
    return path


def test_weights_in_a_file_beside_the_model_are_read(external: Path, agree: Any) -> None:
    agree(external)


def test_a_shape_in_a_file_beside_the_model_is_read(external: Path) -> None:
    proto = onnx.load(external)
    path = external.with_name("other.onnx")
    onnx.save(proto, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    assert byoc.load_model(path).outputs[0].shape == (4, 1000)  # ONNX Runtime refuses this


def test_no_step_makes_one_message_of_a_model_with_external_weights(
    external: Path, agree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simplification, "_INLINE_BYTES", 1000)
    sizes: list[int] = []
    infer_shapes = onnx.shape_inference.infer_shapes

    def measured(model: onnx.ModelProto, **arguments: Any) -> onnx.ModelProto:
        sizes.append(model.ByteSize())
        return infer_shapes(model, **arguments)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", measured)
    agree(external, simplify=True)  # of the file itself, not of a copy with its weights
    assert 0 < max(sizes) < 2000


def test_a_large_model_that_had_to_be_changed_is_not_simplified(
    make_onnx: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simplification, "_INLINE_BYTES", 1000)
    nodes = [("Celu", ["x"], ["a"]), ("MatMul", ["a", "w"], ["y"])]
    proto = make_onnx(nodes, ["x"], ["y"], {"w": np.ones((3, 2000), "f")})
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin")
    with pytest.warns(UserWarning, match="not simplified: it is larger than 2 GB"):
        byoc.load_model(path, simplify=True)


def test_missing_and_short_weight_files_are_named_before_any_work(external: Path) -> None:
    weights = external.with_name("weights.bin")
    data = weights.read_bytes()
    weights.write_bytes(data[:1000])
    with pytest.raises(
        ModelError, match=r"'w' in weights\.bin, which has 1000 bytes where \d+ are"
    ):
        byoc.load_model(external)
    weights.unlink()
    with pytest.raises(ModelError, match=r"'w' in weights\.bin, which is not there: expected /"):
        byoc.load_model(external)


def test_weights_outside_of_the_model_s_folder_are_not_read(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    proto.graph.initializer[0].external_data[0].value = "../weights.bin"
    onnx.save(proto, external)
    with pytest.raises(ModelError, match="not in the model's folder"):
        byoc.load_model(external)


def test_a_proto_with_weights_elsewhere_asks_for_its_path(external: Path) -> None:
    proto = onnx.load(external, load_external_data=False)
    with pytest.raises(ModelError, match=r"give the path of the \.onnx file instead"):
        byoc.load_model(proto)


def test_the_structure_of_a_model_has_small_tensors_only(make_onnx: Any) -> None:
    constants = {"w": np.ones((3, 2000), "f"), "small": np.arange(3)}
    proto = make_onnx([("MatMul", ["x", "w"], ["y"])], ["x"], ["y"], constants)
    light = reading.structure_of(proto)
    assert light.ByteSize() < 1000
    assert [tensor.dims for tensor in light.graph.initializer] == [[3, 2000], [3]]
    assert light.graph.initializer[1] == proto.graph.initializer[1]
    assert reading.weight_bytes(light) == reading.weight_bytes(proto) == 24_024
