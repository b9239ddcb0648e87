"""Putting weights into an engine that was built without them.

Never run on a GPU by this project. The weights are those of the network, which is made again from
the region: the vendor names what is missing by layer and role.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backends.tensorrt.network import build_network
from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.vendor import Vendor
    from tvm_byoc_kit.graph import Graph

__all__ = ["put_weights"]

# The layer's class and attribute, by role and kind of layer.
_PLACES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("KERNEL", "CONVOLUTION"): ("IConvolutionLayer", "kernel"),
    ("BIAS", "CONVOLUTION"): ("IConvolutionLayer", "bias"),
    ("KERNEL", "DECONVOLUTION"): ("IDeconvolutionLayer", "kernel"),
    ("BIAS", "DECONVOLUTION"): ("IDeconvolutionLayer", "bias"),
    ("CONSTANT", "CONSTANT"): ("IConstantLayer", "weights"),
    ("SHIFT", "SCALE"): ("IScaleLayer", "shift"),
    ("SCALE", "SCALE"): ("IScaleLayer", "scale"),
}


def put_weights(engine: Any, graph: Graph, vendor: Vendor, options: TensorRTOptions) -> None:
    """Give `engine` every weight that it lacks.

    Parameters
    ----------
    engine : ICudaEngine
    graph : Graph
        That it was built from.
    vendor : Vendor
    options : TensorRTOptions
        That it was built with.

    Raises
    ------
    ModelError
        When the vendor does not take them.
    """
    network = build_network(graph, vendor, options)
    layers = {layer.name: layer for layer in _layers(network.network)}
    with vendor.messages() as log:
        refitter = vendor.module.Refitter(engine, vendor.logger)
        for name, role in zip(*refitter.get_missing(), strict=True):
            weights = _weights(vendor.module, layers[name], role)
            if not refitter.set_weights(name, role, weights):
                raise ModelError(f"{vendor} refuses the weights of {name}: {log.errors}")
        if not refitter.refit_cuda_engine():
            raise ModelError(f"{vendor} cannot put the weights of {graph.name} back: {log.errors}")


def _layers(network: Any) -> list[Any]:
    return [network.get_layer(number) for number in range(network.num_layers)]


def _weights(module: Any, layer: Any, role: Any) -> Any:
    kind = str(layer.type).rpartition(".")[2]
    place = _PLACES.get((role.name, kind))
    if place is None:
        raise ModelError(f"the engine lacks weights of layer {layer.name}, as {role.name.lower()}")
    cls, attribute = place
    layer.__class__ = getattr(module, cls)  # the API gives a plain ILayer
    return getattr(layer, attribute)
