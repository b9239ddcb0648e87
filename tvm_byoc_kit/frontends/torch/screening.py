"""What cannot be imported, found before any work is done, and reported all at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch.export.graph_signature import OutputKind

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.torch.converters import supported_ops
from tvm_byoc_kit.frontends.torch.decompositions import graph_modules

if TYPE_CHECKING:
    from collections.abc import Iterator


def screen(program: torch.export.ExportedProgram, origin: str) -> None:
    """Refuse `program` when anything in it has no meaning in the imported module.

    Raises
    ------
    ModelError
        With every reason, how often it occurs, and the module path and line of the first place.
    """
    _check_state(program, origin)
    found: dict[str, list[torch.fx.Node]] = {}
    for module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            for reason in _reasons(node):
                found.setdefault(reason, []).append(node)
    if not found:
        return
    lines = [
        f"  {reason}: {len(nodes)} time{'s' if len(nodes) > 1 else ''}, {_places(nodes)}"
        for reason, nodes in sorted(found.items())
    ]
    raise ModelError(f"TVM cannot import {origin}:\n" + "\n".join(lines))


def place(node: torch.fx.Node) -> str:
    """Where `node` comes from: the path of its module, and the line of Python."""
    path = _module_path(node)
    line = _source_line(node)
    return " ".join(
        part for part in (f"in {path}" if path else "", f"at {line}" if line else "") if part
    ) or (f"node {node.name}")


def _places(nodes: list[torch.fx.Node]) -> str:
    shown = list(dict.fromkeys(place(node) for node in nodes))
    more = f" and {len(shown) - _SHOWN} other places" if len(shown) > _SHOWN else ""
    return "; ".join(shown[:_SHOWN]) + more


_SHOWN = 3


def _module_path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    if not stack:
        return ""
    path, kind = list(stack.values())[-1]
    path = re.sub(r"^L\['self'\]\.?", "", path)
    name = str(getattr(kind, "__name__", kind)).rsplit(".", maxsplit=1)[-1]
    return f"{path} ({name})" if path else name


def _source_line(node: torch.fx.Node) -> str:
    trace = node.meta.get("stack_trace") or ""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', trace)
    own = [frame for frame in frames if "site-packages/torch/" not in frame[0]] or frames
    if not own:
        return ""
    file, line, code = own[-1]
    return f"{file}:{line} `{code.strip()}`"


def _reasons(node: torch.fx.Node) -> Iterator[str]:
    if node.op not in ("placeholder", "call_function"):
        return
    values = node.meta.get("val")
    for value in values if isinstance(values, (tuple, list)) else [values]:
        yield from _type_reasons(value)
    if node.op == "placeholder":
        return
    name = node.target.__name__
    packet = name.split(".", maxsplit=1)[0]
    if packet in RANDOM:
        yield f"aten.{name} draws random numbers, which cannot be compared; give them as an input"
    elif packet in ("_local_scalar_dense", "item"):
        yield (
            "a tensor's value is read into Python, by item() or as an index; index with a tensor "
            "of rank 1, as in x[i.reshape(1)]"
        )
    elif _is_data_dependent(values) and not any(
        _is_data_dependent(argument.meta.get("val")) for argument in node.all_input_nodes
    ):
        yield (
            f"aten.{name} gives a shape that depends on the values of its inputs; use torch.where "
            "or a fixed size"
        )
    elif name not in supported_ops() and not _is_data_dependent(values):
        yield f"aten.{name} has no converter"


def _type_reasons(value: Any) -> Iterator[str]:
    if not isinstance(value, torch.Tensor):
        return
    if value.dtype not in DTYPES:
        yield f"tensors of {value.dtype} are not supported"
    if value.layout is not torch.strided:
        yield f"tensors of layout {value.layout} are not supported"


DTYPES = frozenset(
    getattr(torch, name)
    for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
        "float64",
    )
)  # fmt: skip
RANDOM = frozenset(
    [
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial",
        "native_dropout", "normal", "poisson", "rand", "rand_like", "randint", "randint_like",
        "randn", "randn_like", "randperm", "rrelu_with_noise", "uniform",
    ]
)  # fmt: skip


def _is_data_dependent(values: Any) -> bool:
    leaves = values if isinstance(values, (tuple, list)) else [values]
    sizes = [
        size
        for value in leaves
        for size in (value.shape if isinstance(value, torch.Tensor) else [value])
        if isinstance(size, torch.SymInt)
    ]
    return any(
        re.fullmatch(r"u\d+", str(symbol))
        for size in sizes
        for symbol in getattr(size.node.expr, "free_symbols", ())
    )


def _check_state(program: torch.export.ExportedProgram, origin: str) -> None:
    changed = [
        spec.target
        for spec in program.graph_signature.output_specs
        if spec.kind
        in (OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None))
    ]
    if changed:
        raise ModelError(
            f"{origin} changes its own state when it runs: {', '.join(map(str, changed))}; a built "
            "model keeps none. Export it in eval() mode, or make the state an input and an output"
        )
