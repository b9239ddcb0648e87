"""From a region of the model to the bytes that the artifact stores: here, JSON."""

import json

import tvm_byoc_kit as byoc
from tvm_byoc_kit.graph import Value

from .runtime import KERNELS


def codegen(graph, options):
    for op in graph.ops:
        if op.name not in KERNELS:
            raise byoc.ModelError(
                f"my_backend/patterns.py takes {op.name}, which KERNELS in "
                "my_backend/runtime.py does not have; add a kernel"
            )
    program = {
        "precision": options["precision"],
        "names": [value.name for value in (*graph.inputs, *graph.constants)],
        "ops": [
            {
                "op": op.name,
                "reads": [value.name for value in tensors(op.operands)],
                "writes": op.results[0].name,
                "shape": op.results[0].shape,
                "attrs": dict(op.attrs),
            }
            for op in graph.ops
        ],
        "outputs": [value.name for value in graph.outputs],
    }
    return byoc.Payload(json.dumps(program).encode(), graph.constants)


def tensors(operands):
    """The tensors among the operands, also those of a tuple, such as concat's."""
    for operand in operands:
        if isinstance(operand, Value):
            yield operand
        elif isinstance(operand, tuple):
            yield from tensors(operand)
