"""Small models that several test files share; each is built once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import backend, plugin_build

Array = np.ndarray
MakeModule = Callable[..., tvm.IRModule]
RunPython = Callable[..., subprocess.CompletedProcess[str]]
LinesRun = Callable[[Callable[[], object]], int]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """PyTorch's weights and inputs are the same in every run, whatever ran before."""
    torch = sys.modules.get("torch")  # `tvm` imports it where it is installed
    if torch is not None:
        torch.manual_seed(0)


def _shape(dims: Sequence[int | str], symbols: dict[str, Any]) -> list[Any]:
    return [
        symbols.setdefault(dim, tvm.tirx.Var(dim, "int64")) if isinstance(dim, str) else dim
        for dim in dims
    ]


@pytest.fixture(scope="session")
def make_module() -> MakeModule:
    """Gives ``make(params, body, name="main", into=None)``.

    ``params`` maps names to ``(shape, dtype)``, strings in a shape are symbolic dimensions;
    ``body`` gets the variables and gives the result, one expression or a tuple of several.
    """

    def make(
        params: Mapping[str, tuple[Sequence[int | str], str]],
        body: Callable[..., Any],
        name: str = "main",
        into: tvm.IRModule | None = None,
    ) -> tvm.IRModule:
        builder = relax.BlockBuilder(into)
        symbols: dict[str, Any] = {}
        variables = [
            relax.Var(param, relax.TensorType(_shape(dims, symbols), dtype))
            for param, (dims, dtype) in params.items()
        ]
        with builder.function(name, variables):
            with builder.dataflow():
                result = builder.emit_output(builder.normalize(_emit(builder, body(*variables))))
            builder.emit_func_output(result)
        return builder.finalize()

    def _emit(builder: relax.BlockBuilder, result: Any) -> Any:
        if isinstance(result, (tuple, list)):
            return relax.Tuple([builder.emit(item) for item in result])
        return result

    return make


@pytest.fixture
def forget_backends() -> Iterator[None]:
    """Forget the backends that a test registers."""
    before = dict(backend.REGISTERED)
    yield
    backend.REGISTERED.clear()
    backend.REGISTERED.update(before)


@pytest.fixture
def conv_relu(make_module: MakeModule) -> tvm.IRModule:
    """The tutorial's convolution and ReLU, with the weights bound, as TensorRT wants them."""
    weights = np.random.default_rng(1).standard_normal((16, 3, 3, 3), dtype=np.float32)
    shapes = {"data": ((1, 3, 32, 32), "float32"), "weight": ((16, 3, 3, 3), "float32")}
    mod = make_module(shapes, lambda x, w: relax.op.nn.relu(relax.op.nn.conv2d(x, w)))
    return relax.transform.BindParams("main", {"weight": weights})(mod)


@pytest.fixture(scope="session")
def weights() -> Array:
    """A float32[4, 3] matrix."""
    return np.random.default_rng(5).standard_normal((4, 3), dtype=np.float32)


@pytest.fixture(scope="session")
def two_outputs(make_module: MakeModule, weights: Array) -> tvm.IRModule:
    """``(x[n, 4], y[n, 3]) -> (relu(x @ weights + y), tanh(y))``."""

    def body(x: Any, y: Any) -> Any:
        total = relax.op.add(relax.op.matmul(x, relax.const(weights)), y)
        return relax.op.nn.relu(total), relax.op.tanh(y)

    return make_module({"x": (("n", 4), "float32"), "y": (("n", 3), "float32")}, body)


@pytest.fixture(scope="session")
def two_outputs_numpy(weights: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The same in NumPy."""
    return lambda x, y: (np.maximum(x @ weights + y, 0), np.tanh(y))


@pytest.fixture(scope="session")
def host_exe(two_outputs: tvm.IRModule) -> byoc.Executable:
    """`two_outputs`, built for the host alone."""
    return byoc.compile(two_outputs, "llvm")


@pytest.fixture(scope="session")
def npu_exe(two_outputs: tvm.IRModule) -> byoc.Executable:
    """`two_outputs`, built for the example NPU; for tests with the marker."""
    return byoc.compile(two_outputs, "example_npu")


@pytest.fixture(scope="session")
def host_artifact(host_exe: byoc.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`host_exe`, exported; tests that change it work on a copy."""
    path = tmp_path_factory.mktemp("host") / "model.so"
    host_exe.export(path)
    return path


@pytest.fixture(scope="session")
def npu_artifact(npu_exe: byoc.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`npu_exe`, exported; for tests with the marker."""
    path = tmp_path_factory.mktemp("npu") / "model.so"
    npu_exe.export(path)
    return path


def _classifier(batch: int | str) -> onnx.ModelProto:
    rng = np.random.default_rng(7)
    constants = {
        "fc.weight": rng.standard_normal((4, 3), dtype=np.float32),
        "fc.bias": rng.standard_normal(3, dtype=np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["input.1", "fc.weight"], ["/fc/MatMul_output_0"], "/fc/mm"),
            helper.make_node("Add", ["/fc/MatMul_output_0", "fc.bias"], ["logits"], "/fc/add"),
            helper.make_node("Relu", ["logits"], ["/relu"], "/relu"),
            helper.make_node("Softmax", ["/relu"], ["probs:0"], "/softmax", axis=-1),
        ],
        "classifier",
        [helper.make_tensor_value_info("input.1", TensorProto.FLOAT, [batch, 4])],
        [
            helper.make_tensor_value_info("probs:0", TensorProto.FLOAT, [batch, 3]),
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 3]),
        ],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="session")
def onnx_proto() -> onnx.ModelProto:
    """A classifier of two rows, names as exporters write them, and two outputs."""
    return _classifier(2)


@pytest.fixture(scope="session")
def dynamic_onnx_proto() -> onnx.ModelProto:
    """The same with a dynamic batch."""
    return _classifier("batch")


@pytest.fixture(scope="session")
def onnx_path(onnx_proto: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`onnx_proto` in a file."""
    path = tmp_path_factory.mktemp("onnx") / "classifier.onnx"
    onnx.save(onnx_proto, path)
    return path


@pytest.fixture(scope="session")
def run_python(tmp_path_factory: pytest.TempPathFactory) -> RunPython:
    """Gives ``run(script, *arguments, **environment)``: a fresh interpreter.

    Outside the checkout, whose package would hide the installed one.
    """
    directory = tmp_path_factory.mktemp("run")

    def run(script: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-c", script, *map(str, arguments)],
            capture_output=True,
            text=True,
            check=False,
            cwd=directory,
            env={**os.environ, "COLUMNS": "200", **environment},
        )

    return run


@pytest.fixture(scope="session")
def lines_run() -> LinesRun:
    """Gives ``lines_run(call)``: how many lines of Python `call` runs, its cost on any machine."""

    def run(call: Callable[[], object]) -> int:
        count = 0

        def trace(_frame: object, event: str, _argument: object) -> Any:
            nonlocal count
            count += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            call()
        finally:
            sys.settrace(before)
        return count

    return run


@pytest.fixture(scope="session")
def openvino_plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the OpenVINO plugin, built for the tests; skips where it cannot be built."""
    for needed in ("openvino", "cmake", "compiler", "plugin:core"):
        status = byoc.probe(needed)
        if not status:
            pytest.skip(str(status))
    folder = tmp_path_factory.mktemp("plugin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugin_build, "_places", lambda _plugin: (folder, folder))
        plugin_build.build_plugin("openvino")
    return folder
