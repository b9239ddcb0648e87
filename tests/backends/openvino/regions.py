"""Regions of one operator, run through OpenVINO without TVM's compiler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
from tvm import relax

from tvm_byoc_kit.backends.openvino import BACKEND
from tvm_byoc_kit.backends.openvino.conversion import codegen
from tvm_byoc_kit.backends.openvino.executor import Executor
from tvm_byoc_kit.graph import Graph, evaluate, read_graph
from tvm_byoc_kit.partitioning import partition

if TYPE_CHECKING:
    from collections.abc import Callable

Spec = tuple[Sequence[Any], str]


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
                fields = [builder.emit(relax.TupleGetItem(result, i)) for i in range(len(result.ty.fields))]
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


def graph_of(mod: tvm.IRModule) -> Graph:
    """The one region of a module."""
    (region,) = regions_of(mod)
    return read_graph(region)


def run(
    make: Callable[..., Any],
    *arrays: np.ndarray,
    shapes: Sequence[Sequence[Any]] | None = None,
    options: dict[str, Any] | None = None,
) -> np.ndarray | list[np.ndarray]:
    """What OpenVINO gives for one operator; `shapes` may make dimensions symbolic."""
    given = [array.shape for array in arrays] if shapes is None else shapes
    dtypes = [str(array.dtype) for array in arrays]
    graph = graph_of(module_of(make, *zip(given, dtypes, strict=True)))
    outputs = run_graph(graph, arrays, options)
    return outputs[0] if len(outputs) == 1 else outputs


def run_graph(
    graph: Graph, arrays: Sequence[np.ndarray], options: dict[str, Any] | None = None
) -> list[np.ndarray]:
    executor = Executor(codegen(graph, options or {}))
    tensors = [value for value in graph.inputs if value.dims is None]
    by_name = dict(zip((value.name for value in tensors), arrays, strict=True))
    sizes: dict[str, int] = {}
    for value in tensors:
        for dim, size in zip(value.shape, by_name[value.name].shape, strict=True):
            if isinstance(dim, str):
                sizes[dim] = size
    arguments: list[Any] = [
        by_name[value.name]
        if value.dims is None
        else tuple(evaluate(dim, sizes) for dim in value.dims)
        for value in graph.inputs
    ]
    outputs = [
        np.full([evaluate(dim, sizes) for dim in value.shape], 77, value.dtype)
        for value in graph.outputs
    ]
    executor(*[a if isinstance(a, tuple) else a.copy() for a in arguments], *outputs)
    return outputs


def refusal_of(make: Callable[..., Any], *inputs: Spec) -> str:
    """Why OpenVINO does not take the last call of `make`; empty when it does."""
    from tvm_byoc_kit.backends.openvino import refusal
    from tvm_byoc_kit.rewriting import bindings_of, op_name

    mod = module_of(make, *inputs)
    calls = [b.value for b in bindings_of(mod["main"]) if op_name(b.value)]
    return refusal(calls[-1]) or ""
