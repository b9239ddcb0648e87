"""Real engines without a GPU, by TensorRT-RTX, and what can be read back of them.

Nobody can open a plan where there is no driver. What can be seen is what the builder reports of the
graph that it compiles (each layer, and each dimension as the range that the profile makes of it),
and what stands in the plan: the header, and the names of inputs and outputs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tvm_byoc_kit.backends.tensorrt.network import Network
from tvm_byoc_kit.graph import evaluate

from .harness import vendor

CAPABILITIES = (89, 120)
Ranges = Mapping[str, tuple[int, int, int]]
Range = tuple[int, int]


@dataclass
class Node:
    """A layer as the builder reports it: the range of each dimension of each output."""

    kind: str
    name: str
    outputs: list[list[Range]] = field(default_factory=list)


@dataclass(frozen=True)
class Engine:
    """A plan, and the graph that the builder made it of."""

    plan: bytes
    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        magic, size = self.plan[:4], struct.unpack_from("<Q", self.plan, 16)[0]
        # The size is that of what follows this header.
        assert magic in (b"vtrt", b"ftrt")
        assert 0 < size <= len(self.plan)


def build(network: Network, ranges: Ranges, capabilities: Sequence[int] = CAPABILITIES) -> Engine:
    """Build it; `ranges` has smallest, best and largest size of each symbol.

    Raises
    ------
    AssertionError
        With what the builder says where it gives no plan.
    """
    trt, builder = vendor().module, network.builder
    config = builder.create_builder_config()
    config.num_compute_capabilities = len(capabilities)
    for place, capability in enumerate(capabilities):
        config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability}"), place)
    if any(not binding.value.is_static for binding in network.inputs):
        config.add_optimization_profile(_profile(network, ranges))
    with reported() as lines:
        plan = builder.build_serialized_network(network.network, config)
    errors = [text for severity, text in lines if severity in ("ERROR", "INTERNAL_ERROR")]
    assert plan is not None, "\n".join(errors)
    return Engine(bytes(plan), tuple(_nodes([text for _, text in lines])))


def _profile(network: Network, ranges: Ranges) -> Any:
    profile = network.builder.create_optimization_profile()
    for binding in network.inputs:
        shapes = [
            tuple(
                evaluate(dim, {name: triple[i] for name, triple in ranges.items()})
                for dim in binding.value.shape
            )
            for i in range(3)
        ]
        profile.set_shape(binding.name, *shapes)
    return profile


@contextmanager
def reported() -> Iterator[list[tuple[str, str]]]:
    """Everything that the vendor says, with its severity; the kit leaves out what is no news."""
    lines: list[tuple[str, str]] = []
    logger = type(vendor().logger)
    own = logger.log

    def log(self: Any, severity: Any, message: str) -> None:
        lines.append((severity.name, message))
        own(self, severity, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logger, "log", log)
        yield lines


_NODE = re.compile(r"([A-Z][A-Z_0-9]+) (\S.*)")
_SIZES = re.compile(r"\s+(?:\[(\d+),(\d+)\]|(\d+))\t")


def _nodes(lines: Sequence[str]) -> Iterator[Node]:
    """The part of the report from GRAPH NODES on."""
    start = lines.index("GRAPH NODES") if "GRAPH NODES" in lines else len(lines)
    node: Node | None = None
    of_output = False
    for line in lines[start + 1 :]:
        if not line.startswith(" "):
            found = _NODE.fullmatch(line)
            if node is not None:
                yield node
            if found is None:
                return
            node = Node(*found.groups())
        elif node is not None and line.startswith("    Output"):
            of_output = True
            node.outputs.append([])
        elif line.startswith("    Input"):
            of_output = False
        elif node is not None and of_output and (sizes := _SIZES.match(line)):
            low, high, fixed = sizes.groups()
            node.outputs[-1].append((int(fixed or low), int(fixed or high)))


def check(engine: Engine, network: Network, ranges: Ranges) -> None:
    """That the builder saw all layers, and the shapes that Relax says, over the whole profile."""
    raw = network.network
    layers = {raw.get_layer(i).name for i in range(raw.num_layers)}
    seen = {node.name: node for node in engine.nodes}
    # Constants become weights of others; what is left was in the network under the same name, or
    # brings a size that the host has calculated to a layer that reads it as a number.
    assert {name for name, node in seen.items() if node.kind != "SHAPE_HOST_TO_DEVICE"} <= layers
    for binding in (*network.inputs, *network.outputs):
        assert binding.name.encode() in engine.plan
    for binding in network.outputs:
        producer = _producer(raw, binding.name)
        node = seen[producer]
        assert node.outputs[0] == [_range(dim, ranges) for dim in binding.value.shape]


def _producer(raw: Any, name: str) -> str:
    """The layer that gives a tensor."""
    for layer in map(raw.get_layer, range(raw.num_layers)):
        if any(layer.get_output(i).name == name for i in range(layer.num_outputs)):
            return str(layer.name)
    raise AssertionError(f"no layer gives {name}")


def _range(dim: Any, ranges: Ranges) -> Range:
    """Smallest and largest; shapes of the cases grow with their symbols."""
    low, _, high = ({name: triple[i] for name, triple in ranges.items()} for i in range(3))
    return evaluate(dim, low), evaluate(dim, high)
