"""onnxsim is run where it may help, and its result is taken only where it is the same model."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx import simplification, simplify_child
from tvm_byoc_kit.status import Status

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64

SHAPED = [
    ("Shape", ["x"], ["shape"]),
    ("Gather", ["shape", "zero"], ["n"]),
    ("Unsqueeze", ["n", "first"], ["n1"]),
    ("Concat", ["n1", "rest"], ["wanted"], {"axis": 0}),
    ("Reshape", ["x", "wanted"], ["y"]),
]
CONSTANTS = {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1])}


@pytest.fixture(scope="module")
def shaped(make_onnx: Any) -> onnx.ModelProto:
    """A model with a shape to compute: five nodes of which onnxsim leaves one."""
    inputs, outputs = [("x", FLOAT, ["n", 3, 4])], [("y", FLOAT, ["n", 12])]
    return make_onnx(SHAPED, inputs, outputs, CONSTANTS)


def fake_child(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """Let the child process run `code`, which finds the request in `asked`."""
    child = folder / "child.py"
    prelude = "import json, os, sys, time\nasked = json.load(open(sys.argv[1]))\n"
    child.write_text(prelude + code, encoding="utf-8")
    monkeypatch.setattr(simplification, "_CHILD", child)


def test_onnxsim_simplifies_in_another_process_and_the_result_is_taken(
    shaped: onnx.ModelProto, agree: Any, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(shaped, path)
    loaded = "onnxsim" in sys.modules  # by another test
    model = agree(path, shapes={"x": (2, 3, 4)}, simplify=True)
    assert model.inputs[0].shape == (2, 3, 4)
    assert ("onnxsim" in sys.modules) == loaded


ANSWER = "json.dump({'refusal': %r}, open(asked['answer'], 'w'))\n"
COPY = "import shutil; shutil.copy(asked['original'], asked['simplified'])\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("os.kill(os.getpid(), 11)", "onnxsim was killed by SIGSEGV"),
        ("time.sleep(60)", "onnxsim took more than 0.5 s"),
        ("sys.exit(3)", "onnxsim's process ended with status 3: no output"),
        ("raise ValueError('must be topologically sorted')", "must be topologically sorted"),
        (ANSWER % "output 'y' of onnxsim's result has other values", "'y' .* has other values"),
        (ANSWER % "", "onnxsim's result cannot be read"),
        ("open(asked['simplified'], 'wb').write(b'x')\n" + ANSWER % "", "cannot be read"),
    ],
)
def test_what_goes_wrong_costs_one_warning(
    shaped: onnx.ModelProto,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    code: str,
    reason: str,
) -> None:
    fake_child(monkeypatch, tmp_path, code)
    monkeypatch.setattr(simplification, "TIMEOUT_S", 0.5 if "sleep" in code else 600.0)
    with pytest.warns(UserWarning, match=f"imported as it is, not simplified: .*{reason}") as seen:
        model = byoc.load_model(shaped, shapes={"x": (2, 3, 4)}, simplify=True)
    assert [item.category for item in seen].count(UserWarning) == 1
    assert byoc.verify(byoc.compile(model, "llvm"))


EDIT = """
import onnx
model = onnx.load(asked['original'])
{}
onnx.save(model, asked['simplified'])
"""


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ("model.graph.node[0].domain = 'com.microsoft'", r"onnxsim made .*com\.microsoft\.Shape"),
        ("model.graph.input[0].name = 'z'", "onnxsim changed the model's inputs"),
        ("model.graph.output[0].name = 'n1'", "onnxsim changed the model's outputs"),
        ("del model.graph.node[0]", "onnxsim's result is broken: .*'shape', which nothing writes"),
    ],
)
def test_a_result_that_is_another_model_is_not_taken(
    shaped: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, edit: str, reason: str
) -> None:
    fake_child(monkeypatch, tmp_path, EDIT.format(edit) + ANSWER % "")
    with pytest.warns(UserWarning, match=reason):
        byoc.load_model(shaped, shapes={"x": (2, 3, 4)}, simplify=True)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ([("Relu", ["x"], ["y"])], ""),
        ([("Neg", ["x"], ["y"])], "output 'y' of onnxsim's result has other values"),
        ([("Unsqueeze", ["x", "axis"], ["y"])], r"is float32\[1, 2, 3\] instead of float32\[2, 3"),
        ([("Cast", ["x"], ["y"], {"to": TensorProto.DOUBLE})], "is float64.* instead of float32"),
        ([("Det", ["x"], ["y"])], "ONNX Runtime cannot (load|run) onnxsim's result"),
    ],
)
def test_the_comparison_sees_values_shapes_and_types(
    make_onnx: Any, tmp_path: Path, other: list[Any], expected: str
) -> None:
    paths = [str(tmp_path / name) for name in ("original.onnx", "simplified.onnx")]
    onnx.save(make_onnx([("Relu", ["x"], ["y"])], ["x"], ["y"]), paths[0])
    dtype = TensorProto.DOUBLE if other[0][0] == "Cast" else FLOAT
    outputs = [("y", dtype, None)]
    onnx.save(make_onnx(other, ["x"], outputs, {"axis": np.array([0])}), paths[1])
    got = simplify_child.compare(*paths, {"x": [2, 3]})
    assert re.search(expected or "^$", got)


def test_inputs_that_random_numbers_do_not_fit_are_compared_on_others(
    make_onnx: Any, tmp_path: Path
) -> None:
    proto = make_onnx(
        [("Gather", ["w", "i"], ["y"])], [("i", INT64, [3])], ["y"], {"w": np.ones((2, 5), "f")}
    )
    path = str(tmp_path / "model.onnx")
    onnx.save(proto, path)
    assert simplify_child.compare(path, path, {"i": [3]}) == ""


def test_what_the_kit_folds_itself_starts_no_process(
    shaped: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_child(monkeypatch, tmp_path, "sys.exit(3)")
    byoc.load_model(shaped, shapes={"x": (2, 3, 4)})
    byoc.load_model(shaped, shapes={"x": ("n", 3, 4)})


@pytest.mark.parametrize("size", [simplification.AUTO_BYTES, 0])
def test_auto_tries_again_what_could_not_be_imported(
    make_onnx: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int
) -> None:
    fake_child(monkeypatch, tmp_path, ANSWER % "the child was asked")
    monkeypatch.setattr(simplification, "AUTO_BYTES", size)
    nodes = [("Relu", ["x"], ["a"]), ("Transpose", ["a"], ["y"], {"perm": [0, 5]})]
    proto = make_onnx(nodes, ["x"], ["y"], {"unused": np.ones(3)})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ModelError, match="the Transpose"):
            byoc.load_model(proto)
    asked = [str(item.message) for item in warned if "the child was asked" in str(item.message)]
    assert len(asked) == (1 if size else 0)


@pytest.mark.parametrize("choice", ["yes", None, 2])
def test_another_choice_is_refused(shaped: onnx.ModelProto, choice: Any) -> None:
    with pytest.raises(ModelError, match="expected 'auto', True or False"):
        byoc.load_model(shaped, shapes={"x": (2, 3, 4)}, simplify=choice)


def test_without_onnxsim_auto_imports_and_true_says_what_to_install(
    shaped: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Status:
        return Status(name, ok=name != "onnxsim", detail="", remedy="pip install onnxsim")

    monkeypatch.setattr(simplification, "probe", missing)
    byoc.load_model(shaped, shapes={"x": (2, 3, 4)})
    with pytest.raises(ModelError, match="pip install onnxsim"):
        byoc.load_model(shaped, shapes={"x": (2, 3, 4)}, simplify=True)
