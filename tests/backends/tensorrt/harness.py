"""From a module to the network of its one region, and to what the oracle makes of that.

`Subject` is a module that was partitioned for TensorRT; `Subject.network` builds its network in a
precision, `Subject.run` interprets one. What a result must be is the caller's to say: PyTorch,
ONNX Runtime or NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.tensorrt import BACKEND
from tvm_byoc_kit.backends.tensorrt.network import Network, build_network
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.vendor import Vendor, find_vendor
from tvm_byoc_kit.graph import Graph, evaluate, read_graph

from .oracle import interpret, to_numpy, to_torch

PRECISIONS = ("fp32", "fp16", "bf16")
# Relative to the largest magnitude of the expected values, or absolute where that is below 1: a sum
# of many terms may cancel.
TOLERANCES = {"fp32": 5e-6, "fp16": 2e-3, "bf16": 1e-2}
# Of tensors that the model itself has narrow.
_OF_DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def vendor() -> Vendor:
    """The one that builds without a GPU."""
    return find_vendor("tensorrt_rtx")


@dataclass(frozen=True)
class Error:
    """The largest difference of an output.

    Parameters
    ----------
    absolute : float
    relative : float
        To the largest expected magnitude.
    """

    absolute: float = 0.0
    relative: float = 0.0


class Regions:
    """A partitioned module, whose ``main`` only calls regions for TensorRT.

    Parameters
    ----------
    mod : tvm.IRModule
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod = mod
        self.graphs: dict[str, Graph] = {
            name.name_hint: read_graph(function)
            for name, function in mod.functions.items()
            if isinstance(function, relax.Function)
            and function.attrs
            and "Codegen" in function.attrs
        }

    def networks(self, precision: str = "fp32") -> dict[str, Network]:
        """New ones, by region."""
        options = TensorRTOptions(precision=precision)
        return {
            name: build_network(graph, vendor(), options) for name, graph in self.graphs.items()
        }

    def outputs(
        self, networks: Mapping[str, Network], arrays: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Those of ``main``, where a region gives what the oracle says."""
        main = self.mod["main"]
        env: dict[Any, Any] = dict(zip(main.params, arrays, strict=True))
        for block in main.body.blocks:
            for binding in block.bindings:
                env[binding.var] = self._value(networks, binding.value, env)
        found = self._value(networks, main.body.body, env)
        return list(found) if isinstance(found, tuple) else [found]

    def _value(self, networks: Mapping[str, Network], expr: Any, env: Mapping[Any, Any]) -> Any:
        if isinstance(expr, relax.Tuple):
            return tuple(self._value(networks, field, env) for field in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self._value(networks, expr.tuple_value, env)[expr.index]
        if isinstance(expr, relax.Call):
            name = expr.op.name_hint
            return self._interpreted(networks[name], self.graphs[name], expr, env)
        return env[expr]

    @staticmethod
    def _interpreted(network: Network, graph: Graph, call: Any, env: Mapping[Any, Any]) -> Any:
        feeds = {binding.name: env[call.args[binding.argument]] for binding in network.inputs}
        found = interpret(vendor().module, network.network, feeds)
        sizes = symbol_sizes(graph, [env.get(arg) for arg in call.args])
        for binding in network.outputs:
            expected = tuple(evaluate(dim, sizes) for dim in binding.value.shape)
            array = found[binding.name]
            assert (array.shape, array.dtype.name) == (expected, binding.value.dtype)
        outputs = tuple(found[binding.name] for binding in network.outputs)
        return outputs if isinstance(call.ty, tvm.ir.TupleType) else outputs[0]


class Subject(Regions):
    """A module whose operators all went into one region, which is called once.

    Parameters
    ----------
    parts : byoc.Partitioned
    """

    def __init__(self, parts: Any) -> None:
        left = [f"{entry.op}: {entry.reason}" for entry in parts.coverage.ops if not entry.region]
        assert left == []
        super().__init__(parts.mod)
        assert len(self.graphs) == 1, f"{len(self.graphs)} regions"
        ((self.region, self.graph),) = self.graphs.items()
        bindings = [b for block in self.mod["main"].body.blocks for b in block.bindings]
        assert sum(isinstance(binding.value, relax.Call) for binding in bindings) == 1

    @classmethod
    def of_module(cls, mod: tvm.IRModule) -> Subject:
        """As it is, without preparation."""
        return cls(byoc.partition(mod, BACKEND, prepare=False))

    @classmethod
    def of_model(cls, model: Any) -> Subject:
        """Prepared first, as a user's model is."""
        return cls(byoc.partition(model, "tensorrt"))

    def network(self, precision: str = "fp32") -> Network:
        """A new one."""
        return self.networks(precision)[self.region]

    def run(self, network: Network, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of ``main``, with `network` for the region."""
        return self.outputs({self.region: network}, arrays)


def symbol_sizes(graph: Graph, arrays: Sequence[np.ndarray | None]) -> dict[str, int]:
    """The sizes of a region's symbols where its inputs are `arrays`; None is for a shape.

    A symbol that only a shape parameter has is not among them.
    """
    sizes: dict[str, int] = {}
    for value, array in zip(graph.inputs, arrays, strict=True):
        if array is not None:
            pairs = zip(value.shape, array.shape, strict=True)
            sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    return sizes


def compare(
    found: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    precision: str = "fp32",
    within: float | None = None,
) -> Error:
    """Every output, by the tolerance of the narrower of its dtype and `precision`."""
    assert len(found) == len(expected)
    worst = Error()
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if other.dtype.name not in _OF_DTYPES:
            np.testing.assert_array_equal(one, other)
            continue
        own = TOLERANCES[_OF_DTYPES[other.dtype.name]]
        allowed = within or max(own, TOLERANCES[precision])
        error = _difference(one.astype(np.float64), other.astype(np.float64))
        assert error.relative <= allowed, f"{error}, allowed {allowed}"
        worst = max(worst, error, key=lambda e: e.relative)
    return worst


def _difference(one: np.ndarray, other: np.ndarray) -> Error:
    finite = np.isfinite(other)
    # What is infinite or no number must be the same; what is finite may differ a little.
    np.testing.assert_array_equal(one[~finite], other[~finite])
    if not finite.any():
        return Error()
    absolute = float(np.abs(one[finite] - other[finite]).max())
    return Error(absolute, absolute / max(1.0, float(np.abs(other[finite]).max())))


def arrays_of(values: Any) -> list[np.ndarray]:
    """What a reference gives, a tensor of PyTorch's or several, as arrays."""
    members = values if isinstance(values, (list, tuple)) else [values]
    return [to_numpy(m.detach()) if isinstance(m, torch.Tensor) else np.asarray(m) for m in members]


def wide(array: np.ndarray) -> torch.Tensor:
    """For a reference: floating point in 32 bits."""
    narrow = array.dtype in (np.float16, ml_dtypes.bfloat16)
    return to_torch(array.astype(np.float32) if narrow else array)
