"""Regions of one operator, run through OpenVINO without TVM's compiler, against PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from tvm_byoc_kit.backends.openvino import BACKEND, refusal
from tvm_byoc_kit.backends.openvino.conversion import codegen
from tvm_byoc_kit.backends.openvino.executor import Executor
from tvm_byoc_kit.graph import Graph, Value, evaluate, read_graph
from tvm_byoc_kit.partitioning import partition
from tvm_byoc_kit.payload import Payload
from tvm_byoc_kit.rewriting import bindings_of, op_name

if TYPE_CHECKING:
    from collections.abc import Callable

Spec = tuple[Sequence[Any], str]


# Relative to the largest magnitude, so that a sum of many terms may cancel.
TOLERANCES = {"float32": 2e-5, "float16": 4e-3}


def module_of(make: Callable[..., Any], *inputs: Spec) -> tvm.IRModule:
    """A module whose ``main`` is `make` applied to tensors of the given shapes and dtypes."""
    builder = relax.BlockBuilder()
    symbols: dict[str, Any] = {}

    def size(dim: Any) -> Any:
        return symbols.setdefault(dim, tvm.tirx.Var(dim, "int64")) if isinstance(dim, str) else dim

    variables = [
        relax.Var(f"x{i}", relax.TensorType([size(dim) for dim in shape], dtype))
        for i, (shape, dtype) in enumerate(inputs)
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit(make(*variables))
            if isinstance(result.ty, tvm.ir.TupleType):
                count = len(result.ty.fields)
                fields = [builder.emit(relax.TupleGetItem(result, i)) for i in range(count)]
                output = builder.emit_output(relax.Tuple(fields))
            else:
                output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()


def regions_of(mod: tvm.IRModule) -> list[relax.Function]:
    """The regions that partitioning for OpenVINO makes of a module."""
    made = partition(mod, BACKEND, prepare=False).mod
    return [
        function
        for function in made.functions.values()
        if isinstance(function, relax.Function) and function.attrs and "Codegen" in function.attrs
    ]


def executor_of(payload: Payload) -> Executor:
    """What runs a region, with the constants beside it as TVM would give them."""
    constants = [value.data.copy() for value in payload.constants if value.data is not None]
    return Executor(payload.data, constants)


def run_graph(
    graph: Graph, arrays: Sequence[np.ndarray], options: dict[str, Any] | None = None
) -> list[np.ndarray]:
    """The outputs of a region, through its payload."""
    executor = executor_of(codegen(graph, options or {}))
    sizes: dict[str, int] = {}
    given = iter(arrays)
    arguments: list[Any] = []
    for value in graph.inputs:
        arguments.append(value if value.dims is not None else next(given).copy())
        if value.dims is None:
            pairs = zip(value.shape, arguments[-1].shape, strict=True)
            sizes |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    arguments = [
        tuple(evaluate(dim, sizes) for dim in argument.dims or ())
        if isinstance(argument, Value)
        else argument
        for argument in arguments
    ]
    outputs = [
        np.full([evaluate(dim, sizes) for dim in value.shape], 77, value.dtype)
        for value in graph.outputs
    ]
    executor(*arguments, *outputs)
    return outputs


def as_list(value: Any) -> list[np.ndarray]:
    members = value if isinstance(value, (list, tuple)) else [value]
    return [np.asarray(member) for member in members]


def assert_same(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], within: float) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        if one.dtype.kind != "f":
            np.testing.assert_array_equal(one, other)
            continue
        finite = np.abs(other[np.isfinite(other)].astype(np.float64))
        absolute = within * max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=within, atol=absolute, equal_nan=True)


class Checks:
    """What a test asks about one operator."""

    @staticmethod
    def graph(make: Callable[..., Any], *inputs: Spec) -> Graph:
        """The region that OpenVINO makes of `make` applied to such tensors."""
        (region,) = regions_of(module_of(make, *inputs))
        return read_graph(region)

    executor = staticmethod(executor_of)

    def __call__(
        self,
        make: Callable[..., Any],
        reference: Callable[..., Any],
        *arrays: np.ndarray,
        shapes: Sequence[Sequence[Any]] | None = None,
        within: float | None = None,
    ) -> None:
        """`make` of Relax through OpenVINO is `reference` of PyTorch; `shapes` may have symbols."""
        given = [array.shape for array in arrays] if shapes is None else shapes
        specs = zip(given, [str(array.dtype) for array in arrays], strict=True)
        found = run_graph(self.graph(make, *specs), arrays)
        expected = as_list(reference(*[torch.from_numpy(np.array(array)) for array in arrays]))
        tolerance = within or TOLERANCES.get(str(expected[0].dtype), 0.0)
        assert_same(found, expected, tolerance)

    @staticmethod
    def refusal(make: Callable[..., Any], *inputs: Spec) -> str:
        """Why OpenVINO does not take the call that `make` makes; empty when it does."""
        mod = module_of(make, *inputs)
        calls = [b.value for b in bindings_of(mod["main"]) if op_name(b.value)]
        return refusal(calls[-1]) or ""


@pytest.fixture(scope="session")
def check() -> Checks:
    return Checks()


@pytest.fixture(scope="session")
def through_openvino() -> Callable[..., list[np.ndarray]]:
    """Gives ``run(graph, arrays, options=None)``."""
    return run_graph
