"""Whole models in float16: what is offloaded, and their numbers with regions that are emulated.

TVM computes the host's part on the CPU, and `emulator` each region from its generated sources, so
that layouts, the order of arguments and what is fused are checked as they are in a model.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tvm
import tvm_ffi
from torch import nn
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native
from tvm_byoc_kit.backends.cutlass.codegen import plan
from tvm_byoc_kit.backends.cutlass.sources import kernel_name, kernel_source, region_source
from tvm_byoc_kit.graph import Graph, read_graph

from . import emulator

SCRIPTS = Path(__file__).parents[3] / "scripts"
CODEGEN = "relax.ext.cutlass"


def resnet() -> tuple[nn.Module, torch.Tensor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(SCRIPTS)
        patch.setenv("TVM_NUM_THREADS", "1")
        network = importlib.import_module("bench_simulator").resnet18()
    return network, torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def bert() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return encoder.eval(), torch.randn(1, 16, 64)


MODELS = {"ResNet-18": resnet, "BERT-like encoder": bert}


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, torch.Tensor, Any]:
    """A network, its input, and its partition in float16."""
    network, given = MODELS[request.param]()
    model = byoc.half_precision(byoc.load_model(network, (given,)), "cutlass")
    return network, given, byoc.partition(model, "cutlass")


@pytest.fixture
def emulated() -> Iterator[list[str]]:
    """Regions are computed by the emulator; gives their names as they are called."""
    native.load("core")
    theirs = tvm_ffi.get_global_func(CODEGEN)
    called: list[str] = []

    def codegen(functions: Sequence[Any], _options: Any, _names: Any) -> list[Any]:
        for (planned,) in plan([read_graph(function) for function in functions], ("sm_80",)):
            register(*planned)
        return []

    def register(graph: Graph, problem: Any, choice: Any) -> None:
        function = region_source(graph, problem, choice.kernel, choice.split_k)
        kernel = kernel_source(choice.kernel)

        def call(*tensors: Any) -> None:
            called.append(graph.name)
            *given, result = map(torch.from_dlpack, tensors)
            computed = emulator.run(function, kernel, [np.asarray(x) for x in given])
            result.copy_(torch.tensor(computed).reshape(result.shape))

        tvm_ffi.register_global_func(graph.name, call, override=True)

    tvm_ffi.register_global_func(CODEGEN, codegen, override=True)
    yield called
    tvm_ffi.register_global_func(CODEGEN, theirs, override=True)


def test_every_product_is_offloaded(case: Any) -> None:
    coverage = case[2].coverage
    products = [entry for entry in coverage.ops if entry.op in ("relax.matmul", "relax.nn.conv2d")]
    assert len(products) >= 12
    assert [entry.name for entry in products if entry.region is None] == []


def test_what_follows_a_product_is_offloaded_with_it(case: Any) -> None:
    found = {name for region in case[2].coverage.regions for name in region.composites}
    wanted = {
        "cutlass.conv2d_bias_relu": "cutlass.conv2d_bias_residual_add_relu",
        "cutlass.matmul_bias": "cutlass.matmul_bias_reshape_gelu",
    }
    assert any({first, second} <= found for first, second in wanted.items())


def test_regions_share_few_kernels(case: Any) -> None:
    parts = case[2]
    regions = {region.name.partition("#")[0] for region in parts.coverage.regions}
    planned = plan([read_graph(parts.mod[name]) for name in sorted(regions)], ("sm_80", "sm_90"))
    kernels = {kernel_name(choice.kernel) for ((_, _, choice),) in planned}
    assert len(kernels) <= 6
    assert 2 * len(kernels) < len(regions)


def test_the_numbers_are_pytorchs(case: Any, emulated: list[str]) -> None:
    network, given, parts = case
    mod = relax.transform.RunCodegen()(parts.mod)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    result = vm["main"](tvm.runtime.tensor(given.numpy()))
    with torch.no_grad():
        expected = network(given).numpy()
    assert len(emulated) == len(parts.coverage.regions)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(result.numpy() / scale, expected / scale, atol=5e-3)
