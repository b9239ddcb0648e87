"""Which operators of a model can be imported, found before any work is done."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS
from tvm_byoc_kit.frontends.onnx.operators import importer_operators
from tvm_byoc_kit.frontends.onnx.rewrites import REWRITES
from tvm_byoc_kit.frontends.onnx.rewrites.functions import can_inline
from tvm_byoc_kit.frontends.onnx.structure import opset_of

__all__ = ["Unsupported", "check_operators", "unsupported_operators"]

_SHOWN_NODES = 5

_DOMAIN_REASONS = {
    "ai.onnx.ml": (
        "classical machine learning; TVM has tensor operators only. Convert the model to tensor "
        "operators (for scikit-learn: hummingbird-ml), or run this part outside"
    ),
    "com.microsoft": (
        "made by ONNX Runtime's own optimizer or quantizer, or by onnxsim's fusions. Use the model "
        "as it was before that, or export it again without them"
    ),
    "ai.onnx.training": "for training; export the model for inference",
    "ai.onnx.preview.training": "for training; export the model for inference",
}
_CUSTOM_REASON = (
    "a custom operator; only the operators of ONNX itself can be imported. Replace it by those, or "
    "add a function of this domain and name to the model (ModelProto.functions)"
)
_OPERATOR_REASONS = {
    "Loop": "TVM's importer has no loops. Export the model with the loop unrolled",
    "Scan": "TVM's importer has no loops. Export the model with the loop unrolled",
    **dict.fromkeys(
        (
            *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
            *("Multinomial", "Bernoulli"),
        ),
        "random numbers, which no reference could be compared with. Make them an input",
    ),
}


@dataclass(frozen=True)
class Unsupported:
    """Nodes of one operator that cannot be imported.

    Parameters
    ----------
    domain, operator : str
    nodes : tuple of str
        Names, with the graph or function they stand in where that is not the main graph.
    reason : str
        What the operator is, and what to do about it.
    """

    domain: str
    operator: str
    nodes: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        label = f"{self.domain}.{self.operator}" if self.domain else self.operator
        shown = ", ".join(self.nodes[:_SHOWN_NODES])
        hidden = len(self.nodes) - _SHOWN_NODES
        more = f" and {hidden} more" if hidden > 0 else ""
        count = f"{len(self.nodes)} node{'s' if len(self.nodes) != 1 else ''}"
        return f"{label} ({count}: {shown}{more}): {self.reason}"


def check_operators(model: onnx.ModelProto, origin: str) -> None:
    """Raise one ModelError that lists every operator that cannot be imported."""
    found = unsupported_operators(model)
    if not found:
        return
    total = sum(len(item.nodes) for item in found)
    raise ModelError(
        f"{origin} uses {len(found)} operator{'s' if len(found) != 1 else ''} in {total} "
        f"node{'s' if total != 1 else ''} that cannot be imported:\n"
        + "\n".join(f"  {item}" for item in found)
    )


def unsupported_operators(model: onnx.ModelProto) -> list[Unsupported]:
    """What neither the importer nor a rewrite takes, also in bodies and functions that are used."""
    opset = opset_of(model)
    reasons: dict[tuple[str, str], str] = {}
    nodes: dict[tuple[str, str], list[str]] = {}
    for node, where in _all_nodes(model):
        key = ("" if node.domain in MAIN_DOMAINS else node.domain, node.op_type)
        if key not in reasons:
            reasons[key] = _refusal(key, opset)
        if reasons[key]:
            name = node.name or f"the one that gives {next(iter(node.output), 'nothing')}"
            nodes.setdefault(key, []).append(f"{name} in {where}" if where else name)
    return [
        Unsupported(domain, operator, tuple(names), reasons[domain, operator])
        for (domain, operator), names in sorted(nodes.items())
    ]


def _all_nodes(model: onnx.ModelProto) -> Iterator[tuple[onnx.NodeProto, str]]:
    """Nodes that are run, with the body or function they stand in; calls of functions left out."""
    functions = {(f.domain, f.name): f for f in model.functions}
    called: list[tuple[str, str]] = []
    pending: list[tuple[onnx.NodeProto, str]] = [(node, "") for node in model.graph.node]
    position = 0
    while position < len(pending):
        node, where = pending[position]
        position += 1
        key = (node.domain, node.op_type)
        if key in functions:
            if key not in called:
                called.append(key)
                label = f"function {node.domain}.{node.op_type}"
                pending += [(inner, label) for inner in functions[key].node]
            continue
        yield node, where
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.type == attribute.GRAPH else attribute.graphs
            label = f"{attribute.name} of {node.op_type} '{node.name}'"
            pending += [(inner, label) for graph in graphs for inner in graph.node]


def _refusal(key: tuple[str, str], opset: int) -> str:
    """Why the operator cannot be imported; empty when it can."""
    domain, operator = key
    if key in _lowered():
        return ""
    if domain:
        return _DOMAIN_REASONS.get(domain, _CUSTOM_REASON)
    if not onnx.defs.has(operator):
        return f"no operator of ONNX (as of opset {onnx.defs.onnx_opset_version()})"
    if operator in importer_operators() or can_inline(operator, opset):
        return ""
    return _OPERATOR_REASONS.get(operator, "TVM's importer does not have it")


def _lowered() -> frozenset[tuple[str, str]]:
    return frozenset[tuple[str, str]]().union(*(rewrite.lowers for rewrite in REWRITES))
