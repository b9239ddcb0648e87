"""Models in 8 bits, calibrated and quantized ones: through the oracle, and as engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt.network import Network
from tvm_byoc_kit.errors import ModelError

from .engines import CAPABILITIES, reported
from .harness import Subject, vendor

Array = np.ndarray


class Convnet(nn.Module):
    """A residual block between two products."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.last = nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(y) + y)
        return self.last(y.mean((2, 3)))


@dataclass(frozen=True)
class Layer:
    """A layer of an engine, with the types of what it reads and of the constants in it."""

    kind: str
    reads: tuple[str, ...]
    constants: tuple[str, ...]


def layers(network: Network, capability: int) -> list[Layer]:
    """Of the engine that the builder makes, as it reports them while it does."""
    trt, builder = vendor().module, network.builder
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    config.num_compute_capabilities = 1
    config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability}"), 0)
    with reported() as lines:
        plan = builder.build_serialized_network(network.network, config)
    assert plan is not None
    text = "\n".join(message for _, message in lines)
    found = re.findall(
        r"^Name: .*LayerType: (\w+), Inputs: (.*), Constants: (.*), Outputs:", text, re.M
    )
    return [Layer(kind, _types(reads), _types(constants)) for kind, reads, constants in found]


def _types(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"Datatype: (\w+)", text))


def in_bytes(found: Sequence[Layer], kind: str) -> int:
    """How many layers of a kind there are, all of which read nothing but bytes."""
    chosen = [layer for layer in found if layer.kind == kind]
    assert all(set(layer.reads) == {"Int8"} and "Int8" in layer.constants for layer in chosen)
    return len(chosen)


@pytest.fixture(scope="module")
def images() -> Array:
    return np.random.default_rng(0).standard_normal((6, 3, 12, 12), dtype=np.float32)


@pytest.fixture(scope="module")
def calibrated(images: Array) -> byoc.CalibratedModel:
    torch.manual_seed(0)
    model = byoc.load_model(Convnet().eval(), (torch.zeros(1, 3, 12, 12),))
    return byoc.calibrate(model, images)


def test_a_calibrated_model_is_one_region(calibrated: byoc.CalibratedModel) -> None:
    coverage = byoc.partition(calibrated, "tensorrt").coverage
    assert [entry.op for entry in coverage.ops if entry.region is None] == []
    assert len(coverage.regions) == 1
    composites = [entry.composite for entry in coverage.ops if entry.op == "relax.nn.conv2d"]
    assert composites == ["tensorrt.nn.conv2d_of_bytes"] * 2


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_its_network_agrees_with_the_host_build(
    calibrated: byoc.CalibratedModel, images: Array, precision: str
) -> None:
    """Which `test_calibration` holds against PyTorch's fake quantization."""
    subject = Subject.of_model(calibrated)
    (got,) = subject.run(subject.network(precision), [images[:1]])
    expected = byoc.compile(calibrated, "llvm")(images[:1])
    step = max(item.scale for item in calibrated.calibration.ranges)
    # Half precision moves some elements to the neighbouring byte.
    within = 1e-4 if precision == "int8" else step / 2
    np.testing.assert_allclose(got, expected, rtol=0, atol=within)


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_the_engine_multiplies_bytes(
    calibrated: byoc.CalibratedModel, capability: int, precision: str
) -> None:
    found = layers(Subject.of_model(calibrated).network(precision), capability)
    assert in_bytes(found, "correlation") == 2
    assert in_bytes(found, "gemm") == 1


def test_the_engine_of_the_model_before_multiplies_floats() -> None:
    model = byoc.load_model(Convnet().eval(), (torch.zeros(1, 3, 12, 12),))
    found = layers(Subject.of_model(model).network(), 89)
    assert not any("Int8" in layer.reads for layer in found)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_a_calibrated_model_builds_and_tells_its_options(
    calibrated: byoc.CalibratedModel, precision: str
) -> None:
    options = {"precision": precision, "compute_capabilities": 89, "vendor": "tensorrt_rtx"}
    exe = byoc.compile(calibrated, "tensorrt", target="llvm", options=options)
    assert exe.manifest.options["precision"] == precision


def test_8_bits_are_refused_where_nothing_is_quantized() -> None:
    model = byoc.load_model(Convnet().eval(), (torch.zeros(1, 3, 12, 12),))
    options = {"precision": "int8", "vendor": "tensorrt_rtx"}
    with pytest.raises(ModelError, match=r"this one has none; byoc\.calibrate"):
        byoc.compile(model, "tensorrt", target="llvm", options=options)


# --- Models that come with QuantizeLinear and DequantizeLinear ---------------------------------


def exported(dtype: Any, zero: int) -> onnx.ModelProto:
    """A convolution and a Gemm as exporters write them: pairs, weights and biases in integers."""
    rng = np.random.default_rng(3)
    constants = {
        "scale": np.float32(0.03),
        "zero": np.array(zero, dtype),
        "w": rng.integers(-127, 128, (8, 3, 3, 3)).astype(np.int8),
        "w_scale": rng.random(8, np.float32) / 100 + np.float32(0.002),
        "zeros": np.zeros(8, np.int8),
        "b": rng.integers(-500, 500, 8).astype(np.int32),
        "b_zeros": np.zeros(8, np.int32),
        "g": rng.integers(-127, 128, (5, 8)).astype(np.int8),
        "g_scale": np.float32(0.004),
        "g_zero": np.int8(0),
    }
    constants["b_scale"] = constants["scale"] * constants["w_scale"]
    make = helper.make_node
    nodes = [
        make("QuantizeLinear", ["x", "scale", "zero"], ["x_q"]),
        make("DequantizeLinear", ["x_q", "scale", "zero"], ["x_d"]),
        make("DequantizeLinear", ["w", "w_scale", "zeros"], ["w_d"], axis=0),
        make("DequantizeLinear", ["b", "b_scale", "b_zeros"], ["b_d"], axis=0),
        make("Conv", ["x_d", "w_d", "b_d"], ["c"], pads=[1, 1, 1, 1]),
        make("Relu", ["c"], ["r"]),
        make("GlobalAveragePool", ["r"], ["p"]),
        make("Flatten", ["p"], ["f"]),
        make("QuantizeLinear", ["f", "scale", "zero"], ["f_q"]),
        make("DequantizeLinear", ["f_q", "scale", "zero"], ["f_d"]),
        make("DequantizeLinear", ["g", "g_scale", "g_zero"], ["g_d"]),
        make("Gemm", ["f_d", "g_d"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnxruntime_result(model: onnx.ModelProto, x: Array) -> Array:
    """Without fusing: each op as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (result,) = session.run(None, {"x": x})
    return np.asarray(result)


@pytest.mark.parametrize(
    ("dtype", "zero", "bytes_"),
    [(np.int8, 0, True), (np.uint8, 128, True), (np.uint8, 113, False), (np.int8, -9, False)],
    ids=["int8", "uint8 around 128", "uint8 around 113", "int8 around -9"],
)
def test_quantized_onnx_models_are_one_region_with_the_numbers_of_onnxruntime(
    dtype: Any, zero: int, bytes_: bool
) -> None:
    model = exported(dtype, zero)
    x = np.random.default_rng(4).standard_normal((1, 3, 8, 8), dtype=np.float32)
    subject = Subject.of_model(model)
    network = subject.network("int8")
    (got,) = subject.run(network, [x])
    # An element half way between two bytes may be rounded to either.
    expected = onnxruntime_result(model, x)
    np.testing.assert_allclose(got, expected, rtol=0, atol=0.03 * 127 * 0.004 * 1.01)
    found = layers(network, 89)
    if bytes_:
        assert (in_bytes(found, "correlation"), in_bytes(found, "gemm")) == (1, 1)
    else:
        assert not any(layer.reads == ("Int8",) for layer in found)
