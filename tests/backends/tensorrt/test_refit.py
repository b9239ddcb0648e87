"""Weights that are put back into an engine: which the vendor gets, from a network that is real."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_byoc_kit.backends.tensorrt.network import build_network
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.refit import put_weights
from tvm_byoc_kit.backends.tensorrt.vendor import Vendor
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.graph import Graph

from .small_regions import graph_of, rtx

KERNEL = np.random.default_rng(0).standard_normal((2, 3, 3, 3), dtype=np.float32)
BIAS = np.random.default_rng(1).standard_normal((1, 2, 1, 1), dtype=np.float32)


@pytest.fixture(scope="module")
def graph(make_module: Any) -> Graph:
    """A convolution and a sum."""

    def body(x: Any) -> tvm.relax.Expr:
        return relax.op.add(relax.op.nn.conv2d(x, relax.const(KERNEL)), relax.const(BIAS))

    return graph_of(make_module({"x": ((1, 3, 8, 8), "float32")}, body))


class Refitter:
    """Lacks what it is told to, and notes what it gets."""

    missing: tuple[list[str], list[Any]] = ([], [])
    got: dict[tuple[str, str], np.ndarray]
    refuses = ""

    def __init__(self, engine: str, logger: Any) -> None:
        assert engine == "engine"
        assert logger is rtx().logger
        Refitter.got = {}

    def get_missing(self) -> tuple[list[str], list[Any]]:
        return self.missing

    def set_weights(self, layer: str, role: Any, weights: Any) -> bool:
        array = weights if isinstance(weights, np.ndarray) else weights.numpy()
        self.got[layer, role.name] = np.array(array)
        return self.refuses != "weights"

    def refit_cuda_engine(self) -> bool:
        return self.refuses != "refit"


@pytest.fixture
def vendor(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Vendor:
    """Lacks every weight of the network."""
    real = rtx()
    roles = real.module.WeightsRole
    network = build_network(graph, real, TensorRTOptions()).network
    layers = [network.get_layer(number) for number in range(network.num_layers)]
    names = {str(layer.type).rpartition(".")[2]: layer.name for layer in layers}
    lacking = [(names["CONVOLUTION"], roles.KERNEL), (names["CONSTANT"], roles.CONSTANT)]
    monkeypatch.setattr(Refitter, "missing", tuple(map(list, zip(*lacking, strict=True))))
    monkeypatch.setattr(Refitter, "refuses", "")
    module = SimpleNamespace(**{**vars(real.module), "Refitter": Refitter})
    return Vendor(real.name, module, real.version, real.release, real.logger)


def test_every_missing_weight_is_given_by_layer_and_role(graph: Graph, vendor: Vendor) -> None:
    put_weights("engine", graph, vendor, TensorRTOptions())
    found = {role: array for (_, role), array in Refitter.got.items()}
    assert set(found) == {"KERNEL", "CONSTANT"}
    assert np.array_equal(found["KERNEL"].reshape(-1), KERNEL.reshape(-1))
    assert np.array_equal(found["CONSTANT"].reshape(-1), BIAS.reshape(-1))


@pytest.mark.parametrize(
    ("refuses", "message"), [("weights", "refuses the weights of"), ("refit", "weights of .* back")]
)
def test_what_the_vendor_refuses_is_an_error(
    graph: Graph, vendor: Vendor, monkeypatch: pytest.MonkeyPatch, refuses: str, message: str
) -> None:
    monkeypatch.setattr(Refitter, "refuses", refuses)
    with pytest.raises(ModelError, match=message):
        put_weights("engine", graph, vendor, TensorRTOptions())


def test_a_role_that_is_not_known_is_named(
    graph: Graph, vendor: Vendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, _ = Refitter.missing
    role = rtx().module.WeightsRole.SHIFT
    monkeypatch.setattr(Refitter, "missing", (names[:1], [role]))
    with pytest.raises(ModelError, match=r"lacks weights of layer .*, as shift"):
        put_weights("engine", graph, vendor, TensorRTOptions())
