"""TensorRT on a GPU: upstream's tutorial as it stands there, and the same through the kit.

``pytest -m gpu`` on a machine with an NVIDIA GPU and TensorRT; elsewhere skipped, with the reason.
The tolerances of the first part are the tutorial's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
from tvm.relax.transform import RunCodegen

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native

pytestmark = [pytest.mark.gpu, pytest.mark.byoc("tensorrt", step="device")]

Array = np.ndarray
OPTIONS = "relax.ext.tensorrt.options"
RunPython = Callable[..., Any]


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """As after `import tvm` where the kit is installed."""
    assert native.load("core")


# --- The tutorial: convolution and ReLU ----------------------------------------------------------


@pytest.fixture(scope="module")
def data() -> Array:
    return np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)


def run_on_gpu(executable: Any, *arrays: Array) -> Any:
    device = tvm.cuda(0)
    vm = relax.VirtualMachine(executable, device)
    result = vm["main"](*(tvm.runtime.tensor(array, device) for array in arrays))
    return result.numpy() if hasattr(result, "numpy") else result[0].numpy()


def run_on_cpu(mod: tvm.IRModule, *arrays: Array) -> Array:
    executable = relax.build(relax.transform.LegalizeOps()(mod), "llvm")
    vm = relax.VirtualMachine(executable, tvm.cpu())
    return vm["main"](*map(tvm.runtime.tensor, arrays)).numpy()


def test_upstream_finds_tensorrt() -> None:
    assert tvm.get_global_func("relax.ext.tensorrt", True) is not None
    enabled = tvm.get_global_func("relax.is_tensorrt_runtime_enabled", True)
    assert enabled is not None
    assert enabled()


def test_conv_relu_agrees_with_the_cpu(conv_relu: tvm.IRModule, data: Array) -> None:
    with tvm.transform.PassContext(opt_level=3):
        executable = relax.build(RunCodegen()(partition_for_tensorrt(conv_relu)), "cuda")
    expected = run_on_cpu(conv_relu, data)
    np.testing.assert_allclose(run_on_gpu(executable, data), expected, rtol=1e-2, atol=1e-2)


def test_half_precision_by_the_pass_option_agrees_within_its_tolerance(
    conv_relu: tvm.IRModule, data: Array
) -> None:
    with tvm.transform.PassContext(opt_level=3, config={OPTIONS: {"use_fp16": True}}):
        executable = relax.build(RunCodegen()(partition_for_tensorrt(conv_relu)), "cuda")
    got, expected = run_on_gpu(executable, data), run_on_cpu(conv_relu, data)
    np.testing.assert_allclose(got, expected, rtol=5e-2, atol=5e-2)
    assert not np.array_equal(got, expected)


# --- The tutorial: a PyTorch model, exported and loaded again -------------------------------------

LOAD = """
import sys
sys.modules["torch"] = None  # is not needed
import numpy as np, tvm
from tvm import relax
from tvm_byoc_kit.native import load
assert load("core")
library, data, expected = sys.argv[1:]
device = tvm.cuda(0)
vm = relax.VirtualMachine(tvm.runtime.load_module(library), device)
got = vm["main"](tvm.runtime.tensor(np.load(data), device))[0].numpy()
np.testing.assert_allclose(got, np.load(expected), rtol=1e-2, atol=1e-2)
"""


def small_conv_net() -> Any:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()]
    return nn.Sequential(*layers).eval()


def test_a_pytorch_model_is_exported_and_runs_again_in_another_process(
    data: Array, tmp_path: Path, run_python: RunPython
) -> None:
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    model, example = small_conv_net(), torch.from_numpy(data)
    with torch.no_grad():
        expected = model(example).numpy()
        exported = torch.export.export(model, (example,))
    mod = partition_for_tensorrt(from_exported_program(exported))
    with tvm.transform.PassContext(opt_level=3):
        executable = relax.build(RunCodegen()(mod), "cuda")
    np.testing.assert_allclose(run_on_gpu(executable, data), expected, rtol=1e-2, atol=1e-2)

    library = tmp_path / "deployed.so"
    executable.export_library(str(library))
    loaded = tvm.runtime.load_module(str(library))
    np.testing.assert_allclose(run_on_gpu(loaded, data), expected, rtol=1e-2, atol=1e-2)
    for name, array in (("data", data), ("expected", expected)):
        np.save(tmp_path / f"{name}.npy", array)
    done = run_python(LOAD, library, tmp_path / "data.npy", tmp_path / "expected.npy")
    assert done.returncode == 0, done.stderr


# --- The same through the kit ---------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cuda", "llvm"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp16", 5e-2)])
def test_the_kit_agrees_with_pytorch_from_memory_of_either_kind(
    data: Array, tmp_path: Path, target: str, precision: str, tolerance: float
) -> None:
    torch = pytest.importorskip("torch")
    model = byoc.load_model(small_conv_net(), (torch.from_numpy(data),))
    exe = byoc.compile(model, "tensorrt", target=target, options={"precision": precision})
    allowed = byoc.Tolerance(rtol=tolerance, atol=tolerance)
    assert byoc.verify(exe, tolerance=allowed)
    exe.export(tmp_path / "model.so")
    inputs = {exe.inputs[0].name: data}
    (got,), (again,) = (
        runner.run(inputs).values() for runner in (exe, byoc.load(tmp_path / "model.so"))
    )
    np.testing.assert_array_equal(got, again)


def test_one_engine_serves_every_batch_of_its_profile() -> None:
    torch = pytest.importorskip("torch")
    net = small_conv_net()
    shapes = {"input": {0: torch.export.Dim("batch")}}
    model = byoc.load_model(net, (torch.zeros(2, 3, 32, 32),), shapes)
    profiles = {"input": tuple((batch, 3, 32, 32) for batch in (1, 8, 32))}
    exe = byoc.compile(model, "tensorrt", target="cuda", options={"profiles": profiles})
    for batch in (1, 8, 32, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 3, 32, 32), dtype=np.float32)
        expected = net(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(exe(x), expected, rtol=1e-2, atol=1e-2)


def test_threads_get_the_results_of_their_own_inputs(data: Array) -> None:
    torch = pytest.importorskip("torch")
    net = small_conv_net()
    model = byoc.load_model(net, (torch.from_numpy(data),))
    exe = byoc.compile(model, "tensorrt", target="cuda")
    inputs = [data * (i + 1) for i in range(4)]
    found: list[Any] = [None] * 4

    def work(number: int) -> None:
        for _ in range(20):
            found[number] = exe(inputs[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x, got in zip(inputs, found, strict=True):
        expected = net(torch.from_numpy(x)).detach().numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_a_calibrated_model_agrees_with_its_host_build(data: Array, precision: str) -> None:
    torch = pytest.importorskip("torch")
    model = byoc.load_model(small_conv_net(), (torch.from_numpy(data),))
    calibrated = byoc.calibrate(model, [data, data / 2])
    exe = byoc.compile(calibrated, "tensorrt", target="cuda", options={"precision": precision})
    # An element that another order of a sum rounds to the neighbouring byte is off by a step.
    step = max(item.scale for item in calibrated.calibration.ranges)
    assert byoc.verify(exe, "tvm", inputs={"input": data}, tolerance=byoc.Tolerance(0.0, 2 * step))
