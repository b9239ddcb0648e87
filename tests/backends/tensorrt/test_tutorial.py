"""Upstream's tutorial, call by call, with the oracle in the place of the GPU.

What the artifact holds is the region, as with ``build_at="first_run"``; ``tests/gpu`` has the same
sequence on a GPU. The tolerances are the tutorial's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
from tvm.relax.transform import RunCodegen

from tvm_byoc_kit import native, python_codegen
from tvm_byoc_kit.backends.tensorrt import BACKEND
from tvm_byoc_kit.backends.tensorrt import codegen as codegen_module
from tvm_byoc_kit.backends.tensorrt.graph_bytes import unpack_graph
from tvm_byoc_kit.backends.tensorrt.network import build_network
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.payload import unpack

from .harness import vendor
from .oracle import interpret

Array = np.ndarray
KEY = "relax.ext.tensorrt.options"
RUNTIME = "byoc.runtime.tensorrt"


def oracle_runtime(payload: bytes, _constants: Sequence[Any]) -> Callable[..., None]:
    header, _, graph = unpack(payload)
    options = TensorRTOptions(**header.options)
    network = build_network(unpack_graph(graph), vendor(), options)

    def execute(*tensors: Any) -> None:
        arrays = [torch.from_dlpack(tensor) for tensor in tensors]
        feeds = {binding.name: arrays[binding.argument].numpy() for binding in network.inputs}
        found = interpret(vendor().module, network.network, feeds)
        for binding in network.outputs:
            arrays[binding.argument].copy_(torch.from_numpy(found[binding.name]))

    return execute


Build = Callable[[tvm.IRModule], Any]


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Iterator[Build]:
    """``relax.build(RunCodegen()(mod), "cuda")`` of the tutorial, for this machine."""
    assert native.load("core")

    def codegen(graph: Any, options: Any) -> bytes:
        chosen = TensorRTOptions(**{**options, "build_at": "first_run"})
        return codegen_module._graph_payload(graph, chosen)

    monkeypatch.setattr(codegen_module, "codegen", codegen)

    def built(mod: tvm.IRModule) -> Any:
        executable = relax.build(RunCodegen()(mod), "llvm")
        steps = {"partition": ("tvm",), "codegen": (), "runtime": ()}
        pretended = replace(BACKEND, runtime=oracle_runtime, requires=steps)
        monkeypatch.setitem(python_codegen._PROVIDED, "tensorrt", pretended)
        return executable

    known = tvm_ffi.get_global_func(RUNTIME, allow_missing=True)
    yield built
    if known is None:  # other tests find the machine as it is
        tvm_ffi.registry.remove_global_func(RUNTIME)


@pytest.fixture(scope="module")
def data() -> Array:
    return np.random.default_rng(0).standard_normal((1, 3, 32, 32), dtype=np.float32)


def run(executable: Any, array: Array) -> Any:
    return relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(array))


def test_conv_relu_agrees_with_the_cpu(conv_relu: tvm.IRModule, data: Array, build: Build) -> None:
    with tvm.transform.PassContext(opt_level=3):
        executable = build(partition_for_tensorrt(conv_relu))
    expected = run(relax.build(relax.transform.LegalizeOps()(conv_relu), "llvm"), data).numpy()
    got = run(executable, data).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_half_precision_is_another_result_within_its_tolerance(
    conv_relu: tvm.IRModule, data: Array, build: Build
) -> None:
    with tvm.transform.PassContext(opt_level=3, config={KEY: {"use_fp16": True}}):
        executable = build(partition_for_tensorrt(conv_relu))
    expected = run(relax.build(relax.transform.LegalizeOps()(conv_relu), "llvm"), data).numpy()
    got = run(executable, data).numpy()
    np.testing.assert_allclose(got, expected, rtol=5e-2, atol=5e-2)
    assert np.abs(got - expected).max() > 1e-4


def test_a_pytorch_model_is_exported_and_loaded_again(
    data: Array, build: Build, tmp_path: Path
) -> None:
    from tvm.relax.frontend.torch import from_exported_program

    torch.manual_seed(0)
    nn = torch.nn
    layers = [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3), nn.ReLU()]
    model, example = nn.Sequential(*layers).eval(), torch.from_numpy(data)
    with torch.no_grad():
        expected = model(example).numpy()
        exported = torch.export.export(model, (example,))
    mod = partition_for_tensorrt(from_exported_program(exported))
    with tvm.transform.PassContext(opt_level=3):
        executable = build(mod)
    np.testing.assert_allclose(run(executable, data)[0].numpy(), expected, rtol=1e-4, atol=1e-4)

    library = str(tmp_path / "deployed_trt.so")
    executable.export_library(library)
    loaded = tvm.runtime.load_module(library)
    np.testing.assert_allclose(run(loaded, data)[0].numpy(), expected, rtol=1e-4, atol=1e-4)
