"""The codegen: a region becomes an engine, or what an engine is built from, as bytes."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.engine import (
    build_engine,
    local_gpu,
    target_capabilities,
)
from tvm_byoc_kit.backends.tensorrt.engine_cache import EngineCache, default_directory, make_key
from tvm_byoc_kit.backends.tensorrt.graph_bytes import pack_graph
from tvm_byoc_kit.backends.tensorrt.network import build_network
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.payload import Header, Port, pack, unpack
from tvm_byoc_kit.backends.tensorrt.profiles import ranges_of
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor
from tvm_byoc_kit.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tvm_byoc_kit.backends.tensorrt.engine import Engine
    from tvm_byoc_kit.backends.tensorrt.network import Binding
    from tvm_byoc_kit.backends.tensorrt.vendor import Vendor
    from tvm_byoc_kit.graph import Graph

__all__ = ["codegen", "engine_payload"]


def codegen(graph: Graph, options: Mapping[str, Any]) -> bytes:
    """The payload of a region.

    Parameters
    ----------
    graph : Graph
    options : mapping
        The fields of :class:`TensorRTOptions`; what is missing has its default.

    Raises
    ------
    ModelError
        Naming the region, the op and what the vendor says against it.
    OptionError
        For options that cannot be had.
    BackendUnavailable
        When there is no vendor package, or it cannot build here.
    """
    chosen = TensorRTOptions(**options)
    if chosen.build_at == "first_run":
        return _graph_payload(graph, chosen)
    vendor = find_vendor(chosen.vendor)
    return engine_payload(graph, vendor, chosen)


def engine_payload(graph: Graph, vendor: Vendor, options: TensorRTOptions) -> bytes:
    """The payload with an engine in it, from the cache where it was built before.

    Parameters
    ----------
    graph : Graph
    vendor : Vendor
    options : TensorRTOptions

    Raises
    ------
    ModelError, OptionError, BackendUnavailable
        As `codegen`.
    """
    capabilities = target_capabilities(vendor, options)
    cache = _cache(options)
    key = ""
    if cache is not None:
        profiles = ranges_of(graph, options.profiles)
        gpu = "" if vendor.is_rtx else local_gpu()
        key = make_key(graph, vendor, options, capabilities, profiles, gpu=gpu)
        if (known := cache.get(key)) is not None:
            header, plan, weights = unpack(known)
            ours = replace(header, region=graph.name, options=asdict(options))
            return pack(ours, plan, bytes(weights))
    engine = build_engine(graph, vendor, options, capabilities)
    header = replace(_header(graph, vendor, options, engine, capabilities), key=key)
    payload = pack(header, engine.plan, pack_graph(graph) if options.strip_weights else b"")
    if cache is not None:
        cache.put(key, payload)
    return payload


def _cache(options: TensorRTOptions) -> EngineCache | None:
    chosen: Any = options.engine_cache
    if chosen is None and options.build_at == "first_run":
        chosen = default_directory()
    return EngineCache(chosen, options.engine_cache_bytes) if chosen else None


def _header(
    graph: Graph,
    vendor: Vendor,
    options: TensorRTOptions,
    engine: Engine,
    capabilities: tuple[int, ...],
) -> Header:
    return Header(
        region=graph.name,
        vendor=vendor.name,
        release=vendor.release,
        capabilities=capabilities,
        and_later=options.hardware_compatibility == "ampere_plus",
        version_compatible=options.version_compatible,
        inputs=tuple(_ports(engine.inputs)),
        outputs=tuple(_ports(engine.outputs)),
        symbols=dict(graph.symbols),
        profiles=engine.profiles,
        arguments=_arguments(graph),
        options=asdict(options),
    )


def _graph_payload(graph: Graph, options: TensorRTOptions) -> bytes:
    """The payload of a region that is built where it runs; what can be checked here is checked."""
    ranges_of(graph, options.profiles)
    with contextlib.suppress(BackendUnavailable):
        build_network(graph, find_vendor(options.vendor), options)
    header = Header(
        region=graph.name,
        vendor=options.vendor or "",
        symbols=dict(graph.symbols),
        arguments=_arguments(graph),
        options=asdict(options),
    )
    return pack(header, graph=pack_graph(graph))


def _ports(bindings: Iterable[Binding]) -> Iterable[Port]:
    for binding in bindings:
        value = binding.value
        yield Port(binding.name, binding.argument, value.dtype, value.shape)


def _arguments(graph: Graph) -> int:
    return len(graph.inputs) + len(graph.outputs)
