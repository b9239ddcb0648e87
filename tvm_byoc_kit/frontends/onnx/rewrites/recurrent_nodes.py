"""What an LSTM, GRU or RNN node says, read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import MAIN_DOMAINS, Scope, describe
from tvm_byoc_kit.frontends.onnx.rewrites.quantization import Quantized
from tvm_byoc_kit.frontends.onnx.rewrites.recurrent_cells import (
    ACTIVATIONS,
    KINDS,
    Activation,
    Kind,
    State,
)

__all__ = ["OPERATORS", "Recurrent", "parse"]


@dataclass(frozen=True)
class Recurrent:
    """What a node says, checked; inputs that are absent or have no effect are None."""

    kind: Kind
    scope: Scope
    dtype: int
    steps: int
    hidden: int
    reverse: tuple[bool, ...]
    activations: tuple[tuple[Activation, ...], ...]
    clip: float | None
    batch_first: bool
    input_forget: bool
    linear_before_reset: bool
    x: str
    weights: str | Quantized
    recurrent_weights: str | Quantized
    bias: str | None
    lengths: str | None
    initial: State
    peepholes: str | None


OPERATORS = {
    **{(domain, name): kind for name, kind in KINDS.items() for domain in MAIN_DOMAINS},
    ("com.microsoft", "DynamicQuantizeLSTM"): KINDS["LSTM"],
}

_INPUTS = (
    *("x", "weights", "recurrent", "bias", "lengths", "initial_h", "initial_c", "peepholes"),
    *("weights_scale", "weights_zero_point", "recurrent_scale", "recurrent_zero_point"),
)

_REVERSE = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


# The first opset with Where, and with Less for integers.
_HAS_WHERE = 9


def parse(node: onnx.NodeProto, scope: Scope, graph_inputs: list[onnx.ValueInfoProto]) -> Recurrent:
    """Read a node; `graph_inputs` are those of the model, for the remedy of a dynamic shape.

    Raises
    ------
    ModelError
        For a sequence length that is not known, and for what the standard does not have.
    """
    kind = OPERATORS[node.domain, node.op_type]
    given: dict[str, str | None] = dict.fromkeys(_INPUTS)
    given.update({name: value or None for name, value in zip(_INPUTS, node.input, strict=False)})
    said = {attr.name: onnx.helper.get_attribute_value(attr) for attr in node.attribute}
    direction = said.get("direction", b"forward").decode().lower()
    if direction not in _REVERSE:
        raise _refusal(node, scope, f"has the direction '{direction}'", "use one of the standard")
    batch_first = bool(said.get("layout", 0))
    steps = _steps(node, scope, 1 if batch_first else 0, graph_inputs)
    reverse = _REVERSE[direction]
    return Recurrent(
        kind=kind,
        scope=scope,
        dtype=_dtype(node, scope),
        steps=steps,
        hidden=_hidden(node, scope, said),
        reverse=reverse,
        activations=_activations(node, scope, said, len(reverse)),
        clip=said.get("clip") or None,
        batch_first=batch_first,
        input_forget=bool(said.get("input_forget", 0)),
        linear_before_reset=bool(said.get("linear_before_reset", 0)),
        x=node.input[0],
        weights=_weights(given, "weights"),
        recurrent_weights=_weights(given, "recurrent"),
        bias=_unless_zero(given["bias"], scope),
        lengths=_unless_full(node, given["lengths"], scope, steps),
        initial=tuple(
            _unless_zero(given[name], scope) for name in ("initial_h", "initial_c")[: kind.states]
        ),
        peepholes=_unless_zero(given["peepholes"], scope),
    )


def _weights(given: Mapping[str, str | None], name: str) -> str | Quantized:
    value, scale = given[name], given[f"{name}_scale"]
    if scale is None:
        return str(value)
    return Quantized(str(value), scale, given[f"{name}_zero_point"])


def _steps(
    node: onnx.NodeProto, scope: Scope, axis: int, graph_inputs: list[onnx.ValueInfoProto]
) -> int:
    shape = scope.shape(node.input[0])
    steps = shape[axis] if shape and len(shape) > axis else None
    if isinstance(steps, int) and steps > 0:
        return steps
    if steps == 0:
        raise _refusal(node, scope, "has a sequence of length 0", "give it at least one step")
    what = f"dimension {axis} of '{node.input[0]}'" + (f", '{steps}'," if steps else "")
    raise _refusal(
        node,
        scope,
        f"is unrolled over its sequence, but {what} is not fixed",
        _fix_shapes(graph_inputs),
    )


def _fix_shapes(graph_inputs: list[onnx.ValueInfoProto]) -> str:
    dims = {value.name: list(value.type.tensor_type.shape.dim) for value in graph_inputs}
    dynamic = [
        f"{name!r}: ({', '.join(str(dim.dim_value or dim.dim_param or '?') for dim in sizes)})"
        for name, sizes in dims.items()
        if not all(dim.dim_value for dim in sizes)
    ]
    if not dynamic:
        return "its length is computed at run time; make it constant in the exported model"
    return f"fix the shapes of the inputs: shapes={{{', '.join(dynamic)}}}, with numbers"


def _hidden(node: onnx.NodeProto, scope: Scope, said: dict[str, Any]) -> int:
    shape = scope.shape(node.input[2])
    hidden = said.get("hidden_size") or (shape[-1] if shape else None)
    if not isinstance(hidden, int):
        raise _refusal(node, scope, "has no known hidden size", "set its hidden_size attribute")
    return hidden


def _dtype(node: onnx.NodeProto, scope: Scope) -> int:
    candidates = (node.input[0], *node.input[3:4])  # weights may be quantized
    dtype = next(filter(None, map(scope.dtype, candidates)), None)
    return dtype or onnx.TensorProto.FLOAT


def _activations(
    node: onnx.NodeProto, scope: Scope, said: dict[str, Any], directions: int
) -> tuple[tuple[Activation, ...], ...]:
    defaults = OPERATORS[node.domain, node.op_type].activations
    names = [name.decode() for name in said.get("activations", ())] or [*defaults] * directions
    if len(names) < len(defaults) * directions:
        raise _refusal(
            node,
            scope,
            f"names {len(names)} activations",
            f"it needs {len(defaults)} for each of {directions} directions",
        )
    rest = {which: iter(said.get(f"activation_{which}", ())) for which in ("alpha", "beta")}
    chosen = [_activation(node, scope, name, rest) for name in names[: len(defaults) * directions]]
    return tuple(tuple(chosen[i : i + len(defaults)]) for i in range(0, len(chosen), len(defaults)))


def _activation(
    node: onnx.NodeProto, scope: Scope, name: str, rest: dict[str, Iterator[float]]
) -> Activation:
    """The activation `name`, with its parameters taken off `rest`."""
    kind = _STANDARD_NAMES.get(name.lower())
    if kind is None:
        known = ", ".join(ACTIVATIONS)
        raise _refusal(node, scope, f"has the activation '{name}'", f"use one of {known}")
    parameters = []
    for which, default in ACTIVATIONS[kind].parameters.items():
        value = next(rest[which], default)
        if value is None:
            raise _refusal(
                node,
                scope,
                f"has the activation '{name}' without {which}",
                f"set its activation_{which}; the standard and ONNX Runtime have no common default",
            )
        parameters.append((which, value))
    return Activation(kind, tuple(parameters))


_STANDARD_NAMES = {name.lower(): name for name in ACTIVATIONS}


def _unless_zero(name: str | None, scope: Scope) -> str | None:
    value = scope.constant(name) if name is not None else None
    return name if value is None or np.any(value) else None


def _unless_full(node: onnx.NodeProto, name: str | None, scope: Scope, steps: int) -> str | None:
    if name is None:
        return None
    value = scope.constant(name)
    if value is not None and np.all(value >= steps):
        return None
    if scope.opset < _HAS_WHERE:
        raise _refusal(
            node, scope, "has sequence_lens", "convert it to opset 9 or newer, which has Where"
        )
    return name


def _refusal(node: onnx.NodeProto, scope: Scope, what: str, remedy: str) -> ModelError:
    return ModelError(f"{describe(node, scope)} {what}: {remedy}")
