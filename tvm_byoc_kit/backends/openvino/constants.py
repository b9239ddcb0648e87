"""Large constants, which TVM stores beside the payload, once for all regions that read them.

The model in the payload has a parameter in the place of each, behind its own ones. An executor
puts a constant on TVM's memory there before the model is compiled, so that OpenVINO sees what the
codegen made and folds, packs and quantizes it as ever.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tvm_byoc_kit.backends.openvino.opset import Node
    from tvm_byoc_kit.graph import Value

__all__ = ["put_back", "take_out"]

# Bytes. A constant beside the payload costs its name, three times, and a node of the model. What
# OpenVINO must know to infer a shape, such as axes and bounds, is far smaller, and has to be in the
# model when it is read.
_SMALLEST = 1024


def take_out(model: Any, constants: Iterable[tuple[Value, Node]]) -> tuple[Value, ...]:
    """Make parameters of the large ones among the `constants` of a model.

    Returns
    -------
    tuple of Value
        What the new parameters stand for, in their order; of equal ones the first.
    """
    from tvm_byoc_kit.backends.openvino.opset import opset

    places: dict[Any, Any] = {}
    taken = []
    for value, node in constants:
        data = value.data
        if data is None or data.nbytes < _SMALLEST or not node.output(0).get_target_inputs():
            continue
        content = (value.dtype, value.shape, hashlib.sha256(data.data).digest())
        if content not in places:
            places[content] = opset.parameter(list(data.shape), node.get_element_type())
            taken.append(value)
        node.output(0).replace(places[content].output(0))
    model.add_parameters(list(places.values()))
    return tuple(taken)


def put_back(model: Any, tensors: Sequence[Any]) -> None:
    """Put constants that share the memory of `tensors` in the place of the last parameters."""
    from openvino.op import Constant

    parameters = model.get_parameters()
    places = parameters[len(parameters) - len(tensors) :]
    for parameter, tensor in zip(places, tensors, strict=True):
        parameter.output(0).replace(Constant(tensor, shared_memory=True).output(0))
        model.remove_parameter(parameter)
