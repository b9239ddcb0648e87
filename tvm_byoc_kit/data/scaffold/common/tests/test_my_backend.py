"""The kernels against ONNX Runtime; each check runs a region, none runs on the host."""

import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm_byoc_kit as byoc

NAME = "my_backend"
DATA = Path(str(files("tvm_byoc_kit"))) / "data"

# Inputs, and the ONNX nodes that make `y` of them.
CASES = {
    "conv2d": (
        "float[2,3,9,8] x, float[4,3,3,2] w",
        "y = Conv<strides=[2,1], pads=[1,0,2,1]>(x, w)",
    ),
    "conv2d_bias_relu": (
        "float[1,3,6,6] x, float[4,3,3,3] w, float[4] b",
        "c = Conv(x, w, b) y = Relu(c)",
    ),
    "residual": ("float[1,3,5,5] x, float[3,3,1,1] w", "c = Conv(x, w) y = Add(x, c)"),
    "matmul_bias": (
        "float[5,7] x, float[7,3] w, float[3] b",
        "m = MatMul(x, w) y = Add(m, b)",
    ),
    "max_pool2d": (
        "float[1,2,7,7] x",
        "y = MaxPool<kernel_shape=[3,2], strides=[2,2], pads=[1,0,1,1]>(x)",
    ),
    "add": ("float[2,1,4] x, float[3,1] z", "y = Add(x, z)"),
    "add_scalar": ("float[2,3] x, float z", "y = Add(z, x)"),
    "flatten": ("float[2,3,4] x", "r = Relu(x) y = Flatten(r)"),
}


def load(inputs, nodes):
    head = '<ir_version: 9, opset_import: ["" : 17]>'
    text = f"{head} g ({inputs}) => (float y) {{ {nodes} }}"
    model = onnx.parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")  # ONNX infers it
    return byoc.load_model(model)


@pytest.mark.parametrize("name", CASES)
def test_ops_agree_with_onnxruntime(name):
    parts = byoc.partition(load(*CASES[name]), NAME)
    assert parts.coverage.offloaded == parts.coverage.total, str(parts.coverage)
    check = byoc.verify(byoc.build(parts), "onnxruntime")
    assert check, str(check)


def test_what_is_refused_stays_on_the_host_with_the_reason():
    inputs = "float[1,4,5,5] x, float[4,1,3,3] w"
    parts = byoc.partition(load(inputs, "y = Conv<group=4>(x, w)"), NAME)
    assert f"groups is 4; {NAME} has 1" in str(parts.coverage)
    assert byoc.verify(byoc.build(parts), "onnxruntime")


def test_bfloat16_cuts_the_factors():
    x, w = np.random.default_rng(0).standard_normal((2, 8, 8), dtype=np.float32)
    cut_x, cut_w = ((v.view("u4") >> 16 << 16).view("f4") for v in (x, w))
    model = load("float[8,8] x, float[8,8] w", "y = MatMul(x, w)")
    exe = byoc.compile(model, NAME, options={"precision": "bfloat16"})
    got = exe.run({"x": x, "w": w})["y"]
    np.testing.assert_allclose(got, cut_x.astype("f8") @ cut_w, rtol=1e-5, atol=1e-5)
    assert np.abs(got - x @ w).max() > 1e-3


def test_an_unknown_precision_is_refused():
    with pytest.raises(byoc.OptionError, match="expected one of float32, bfloat16"):
        byoc.compile(load(*CASES["add"]), NAME, options={"precision": "int4"})


def test_digits_are_read_as_well_as_by_onnxruntime(tmp_path):
    model = DATA / "digits.onnx"
    parts = byoc.partition(model, NAME)
    assert parts.coverage.macs_share == 1
    exe = byoc.build(parts)
    with np.load(DATA / "digits_test.npz") as held_out:
        images = held_out["images"].reshape(-1, 1, 1, 8, 8).astype(np.float32) / 16
        labels = held_out["labels"]
    session = onnxruntime.InferenceSession(model)
    expected = np.concatenate([session.run(None, {"image": i})[0] for i in images])
    got = np.concatenate([exe.run({"image": i})["logits"] for i in images])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)
    right = got.argmax(axis=1) == labels
    print(f"accuracy {right.mean():.2%}, {parts.coverage.macs_share:.0%} of the MACs")
    assert right.sum() == (expected.argmax(axis=1) == labels).sum()

    exe.export(tmp_path / "digits.so")  # and again in a fresh process
    again = [sys.executable, "-m", "tvm_byoc_kit.cli", "verify", tmp_path / "digits.so"]
    subprocess.run([*again, "--reference", model], check=True)
