"""Operators that ONNX itself defines by a function body, where TVM's converter is missing or wrong.

The model's own functions are inlined here too.
"""

from __future__ import annotations

import functools

import onnx
from onnx import TensorProto, helper, inliner

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, Scope, scopes
from tvm_byoc_kit.frontends.onnx.operators import importer_operators
from tvm_byoc_kit.frontends.onnx.reading import merge_structure, structure_of
from tvm_byoc_kit.frontends.onnx.shapes import infer_types

__all__ = ["can_inline", "inline_functions"]

# Operators whose converter in TVM is for another domain's operator of the same name.
_INSTEAD_OF_CONVERTERS = {"Attention"}
# Random: their bodies give other numbers than any reference.
_NEVER = {"Bernoulli"}


@functools.cache
def can_inline(operator: str, opset: int) -> bool:
    """Whether ONNX defines `operator` by a function body that may stand in a model of `opset`."""
    if operator in _NEVER:
        return False
    try:
        schema = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        return False
    versions = schema.function_opset_versions + schema.context_dependent_function_opset_versions
    return any(version <= opset for version in versions)


def inline_functions(model: onnx.ModelProto) -> int:
    """Inline the model's own functions, then those of ONNX that TVM needs; gives their count.

    Bodies of ONNX's functions may depend on the types of the inputs, and may use further
    functions.
    """
    count = _inline_local_functions(model)
    infer_types(model)
    while inlined := _inline_schema_functions(model):
        count += inlined
        infer_types(model)
    return count


def _inline_local_functions(model: onnx.ModelProto) -> int:
    """Put the bodies of the model's own functions in place of their calls."""
    if not model.functions:
        return 0
    names = {(function.domain, function.name) for function in model.functions}
    calls = sum(
        (node.domain, node.op_type) in names for s in scopes(model) for node in s.graph.node
    )
    try:
        light = inliner.inline_local_functions(structure_of(model), convert_version=True)
    except Exception as error:  # the inliner raises what its C++ throws
        raise ModelError(
            f"the functions of the model ({', '.join(f'{d}.{n}' for d, n in sorted(names))}) "
            f"cannot be inlined: {error}"
        ) from error
    merge_structure(model, light)
    return calls


def _inline_schema_functions(model: onnx.ModelProto) -> int:
    """Put the bodies that ONNX defines in place of what TVM does not convert, or not right."""
    wanted: set[str] = set()
    count = 0
    for scope in scopes(model):
        for node in scope.graph.node:
            if node.domain in MAIN_DOMAINS and _wants_body(node, scope):
                _write_defaults(node, scope.opset)
                wanted.add(node.op_type)
                count += 1
    if not wanted:
        return 0
    identifiers = [("", operator) for operator in sorted(wanted)]
    light = structure_of(model)
    _declare_all(light.graph)
    try:
        light = inliner.inline_selected_functions(light, identifiers, inline_schema_functions=True)
    except Exception as error:  # the inliner raises what its C++ throws
        raise ModelError(
            f"onnx cannot write out the function bodies of {', '.join(sorted(wanted))}: "
            f"{' '.join(str(error).split())[:300]}. Export the model without these operators"
        ) from error
    declared = [value for value in light.graph.value_info if value.name]
    del light.graph.value_info[:]
    light.graph.value_info.extend(declared)
    merge_structure(model, light)
    return count


def _declare_all(graph: onnx.GraphProto) -> None:
    """Give initializers, and inputs left out, the type that the inliner fails without."""
    for tensor in graph.initializer:
        graph.value_info.append(
            helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        )
    graph.value_info.append(helper.make_tensor_value_info("", TensorProto.FLOAT, None))


def _wants_body(node: onnx.NodeProto, scope: Scope) -> bool:
    needed = node.op_type not in importer_operators() or node.op_type in _INSTEAD_OF_CONVERTERS
    return needed and can_inline(node.op_type, scope.opset)


def _write_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Write out the attributes left out: onnx's inliner leaves them without value in the body."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in given and attribute.default_value.type:
            node.attribute.append(attribute.default_value)
