"""ONNX models: what is imported, under which names, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError

FLOAT = TensorProto.FLOAT


def session(proto: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def one_node(op: str, inputs: int = 1, **attributes: object) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(inputs)]
    domain = str(attributes.pop("domain", ""))
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], f"the_{op}", domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in names],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


OPEN_BATCH = {"input.1": ("batch", 4)}


def test_names_shapes_and_origin_are_those_of_the_file(
    dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "classifier.onnx"
    onnx.save(dynamic_onnx_proto, path)
    model = byoc.load_model(path, shapes=OPEN_BATCH)
    assert [str(spec) for spec in model.inputs] == ["input.1: float32[batch, 4]"]
    assert [str(spec) for spec in model.outputs] == [
        "probs:0: float32[batch, 3]",
        "logits: float32[batch, 3]",
    ]
    assert model.origin == str(path)


@pytest.mark.parametrize("batch", [1, 5])
def test_a_dynamic_batch_agrees_with_onnx_runtime(
    dynamic_onnx_proto: onnx.ModelProto, batch: int
) -> None:
    x = np.random.default_rng(0).standard_normal((batch, 4), dtype=np.float32)
    model = byoc.load_model(dynamic_onnx_proto, shapes=OPEN_BATCH)
    got = byoc.compile(model, "llvm").run({"input.1": x})
    expected = session(dynamic_onnx_proto).run(["probs:0", "logits"], {"input.1": x})
    assert list(got) == ["probs:0", "logits"]
    for mine, theirs in zip(got.values(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_the_reference_is_onnx_runtime(onnx_proto: onnx.ModelProto) -> None:
    reference = byoc.load_model(onnx_proto).reference
    assert reference is not None
    assert reference.name == "onnxruntime"
    x = np.ones((2, 4), np.float32)
    got = reference.run({"input.1": x})
    expected = session(onnx_proto).run(["logits"], {"input.1": x})[0]
    np.testing.assert_array_equal(got["logits"], expected)


def test_shapes_fix_what_is_dynamic(dynamic_onnx_proto: onnx.ModelProto) -> None:
    model = byoc.load_model(dynamic_onnx_proto, shapes={"input.1": (7, 4)})
    assert model.inputs[0].shape == (7, 4)
    assert model.outputs[0].shape == (7, 3)


def test_minus_one_and_question_marks_are_dimensions_left_open(onnx_proto: onnx.ModelProto) -> None:
    proto = onnx.ModelProto.FromString(onnx_proto.SerializeToString())
    first, second = proto.graph.input[0].type.tensor_type.shape.dim
    first.dim_value, second.dim_param = -1, "?"  # as Paddle's exporter writes them
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "?"
    model = byoc.load_model(proto, shapes={"input.1": (2, 4)})
    assert model.inputs[0].shape == (2, 4)
    with pytest.raises(ModelError, match=r"does not fix the shape of input\.1"):
        byoc.load_model(proto)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"input": (1, 4)},
            r"'input', which is no input of the model; inputs: input\.1 float32\[batch, 4\]",
        ),
        ({"fc.weight": (4, 3)}, "'fc.weight', which is no input"),
        ({"input.1": (1, 4, 1)}, r"shapes\['input\.1'\] = \[1, 4, 1\] has rank 3.*rank 2"),
        ({"input.1": ()}, "has rank 0"),
        ({"input.1": (1, 5)}, r"input\.1.*5.*4"),
        ({"input.1": (-1, 4)}, r"input\.1.*-1"),
        ({"input.1": (1.5, 4)}, r"input\.1.*1\.5"),
        ({"input.1": ("a b", 4)}, r"input\.1.*'a b'.*letters, digits and underscores"),
        ({"input.1": ("n", "m")}, r"axis 1 is 'm', the model has it fixed to 4"),
        ({"input.1": (True, 4)}, r"input\.1.*True"),
        ({"input.1": "n4"}, r"shapes\['input\.1'\] is 'n4'; expected a tuple"),
        ({"input.1": 3}, r"shapes\['input\.1'\] is 3; expected a tuple"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    dynamic_onnx_proto: onnx.ModelProto, shapes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        byoc.load_model(dynamic_onnx_proto, shapes=shapes)


def write_text(path: Path) -> None:
    path.write_text("not a model, but text\n" * 20)


def write_nothing(path: Path) -> None:
    path.write_bytes(b"")


def write_zeros(path: Path) -> None:
    path.write_bytes(bytes(1000))


def write_directory(path: Path) -> None:
    path.mkdir()


def write_graphless(path: Path) -> None:
    path.write_bytes(onnx.ModelProto(ir_version=9).SerializeToString())


@pytest.mark.parametrize(
    "write", [write_text, write_nothing, write_zeros, write_directory, write_graphless]
)
def test_a_file_that_is_no_model_is_named(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "model.onnx"
    write(path)
    with pytest.raises(ModelError, match=r"model\.onnx is not an ONNX model"):
        byoc.load_model(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no such model file: .*nothing\.onnx"):
        byoc.load_model(tmp_path / "nothing.onnx")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_file_is_one_error(onnx_path: Path, tmp_path: Path, share: float) -> None:
    data = onnx_path.read_bytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelError, match=r"model\.onnx"):
        byoc.load_model(path)


def test_an_operator_that_tvm_lacks_is_named() -> None:
    with pytest.raises(ModelError, match=r"somebody\.NoSuchOp \(1 node: the_NoSuchOp\): a custom"):
        byoc.load_model(one_node("NoSuchOp", domain="somebody"))


def test_an_invalid_graph_is_one_error() -> None:
    with pytest.raises(ModelError, match="cannot import"):
        byoc.load_model(one_node("MatMul", 2))  # [2, 3] @ [2, 3]


def test_weights_kept_in_a_file_beside_the_model_are_found(
    onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.ModelProto.FromString(onnx_proto.SerializeToString()),
        path,
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    x = np.ones((2, 4), np.float32)
    model = byoc.load_model(path)
    assert model.reference is not None
    expected = session(onnx_proto).run(["logits"], {"input.1": x})[0]
    np.testing.assert_array_equal(model.reference.run({"input.1": x})["logits"], expected)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        byoc.load_model(path)


def test_an_initializer_that_is_listed_as_input_is_no_input(onnx_proto: onnx.ModelProto) -> None:
    proto = onnx.ModelProto.FromString(onnx_proto.SerializeToString())
    for tensor in proto.graph.initializer:
        proto.graph.input.append(helper.make_tensor_value_info(tensor.name, FLOAT, tensor.dims))
    assert [spec.name for spec in byoc.load_model(proto).inputs] == ["input.1"]


def test_an_unused_input_stays_an_input(onnx_proto: onnx.ModelProto) -> None:
    proto = onnx.ModelProto.FromString(onnx_proto.SerializeToString())
    proto.graph.input.append(helper.make_tensor_value_info("unused", FLOAT, [2]))
    exe = byoc.compile(proto, "llvm")
    assert [spec.name for spec in exe.inputs] == ["input.1", "unused"]
    assert byoc.verify(exe)


def test_the_model_given_is_not_changed(onnx_proto: onnx.ModelProto) -> None:
    before = onnx_proto.SerializeToString()
    byoc.load_model(onnx_proto, shapes={"input.1": (2, 4)})
    assert onnx_proto.SerializeToString() == before


def test_a_model_of_constants_alone_runs() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["c"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", FLOAT, [2, 3])],
        [numpy_helper.from_array(value, "c")],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    exe = byoc.compile(proto, "llvm")
    assert exe.inputs == ()
    np.testing.assert_array_equal(exe(), value)
