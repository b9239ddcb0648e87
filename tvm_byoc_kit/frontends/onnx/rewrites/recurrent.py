"""LSTM, GRU and RNN, which TVM's importer lacks: written out step by step.

The input is projected for all steps and directions by one MatMul. A step then takes its slice,
adds the recurrent MatMul and applies the gates (see recurrent_cells.py), both directions at once
where they have the same activations. Nothing is written for an output that nobody reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx

from tvm_byoc_kit.frontends.onnx.graph_tools import (
    Replacement,
    Scope,
    replace_nodes,
    scopes,
)
from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter
from tvm_byoc_kit.frontends.onnx.rewrites.quantization import Quantized, dynamic_matmul
from tvm_byoc_kit.frontends.onnx.rewrites.recurrent_cells import Cell, State
from tvm_byoc_kit.frontends.onnx.rewrites.recurrent_nodes import OPERATORS, Recurrent, parse

__all__ = ["LOWERS", "rewrite_recurrent"]

LOWERS = frozenset(OPERATORS)


def rewrite_recurrent(model: onnx.ModelProto) -> int:
    """Replace every LSTM, GRU and RNN; gives how many there were.

    Raises
    ------
    ModelError
        For a sequence length that is not known, and for attributes outside the standard.
    """
    inputs = list(model.graph.input)
    read = {output.name for scope in scopes(model) for output in scope.graph.output}
    read.update(name for scope in scopes(model) for node in scope.graph.node for name in node.input)
    read.discard("")  # an input left out

    def lower(node: onnx.NodeProto, scope: Scope, replacement: Replacement) -> bool:
        if (node.domain, node.op_type) not in OPERATORS:
            return False
        recurrent = parse(node, scope, inputs)
        emit = Emitter(replacement, scope.opset, recurrent.dtype)
        outputs = [name if name in read else None for name in node.output]
        _write(emit, recurrent, outputs)
        return True

    return replace_nodes(model, lower)


def _write(emit: Emitter, node: Recurrent, outputs: list[str | None]) -> None:
    """Write the outputs Y, Y_h and Y_c, those that are not None."""
    if node.batch_first:
        node = _sequence_first(emit, node)
    wanted = bool(outputs) and outputs[0] is not None
    runs = [_run(emit, part, wanted) for part in _parts(emit, node)]
    for index, name in enumerate(outputs):
        if name is None:
            continue
        values = [run[index] for run in runs]
        value = values[0] if len(values) == 1 else emit("Concat", *values, axis=int(index == 0))
        if node.batch_first:
            emit("Transpose", value, output=name, perm=[2, 0, 1, 3] if index == 0 else [1, 0, 2])
        else:
            emit("Identity", value, output=name)


def _sequence_first(emit: Emitter, node: Recurrent) -> Recurrent:
    return replace(
        node,
        x=emit("Transpose", node.x, perm=[1, 0, 2]),
        initial=tuple(name and emit("Transpose", name, perm=[1, 0, 2]) for name in node.initial),
    )


def _parts(emit: Emitter, node: Recurrent) -> list[Recurrent]:
    """The node itself, or each of its directions alone where they need it.

    That is where activations differ, and where each direction has its own quantization.
    """
    if len(set(node.activations)) == 1 and not isinstance(node.weights, Quantized):
        return [node]
    return [_direction(emit, node, index) for index in range(len(node.reverse))]


def _direction(emit: Emitter, node: Recurrent, index: int) -> Recurrent:
    def take(name: str) -> str:
        return emit("Gather", name, emit.constant([index]), axis=0)

    def take_weights(weights: str | Quantized) -> str | Quantized:
        if isinstance(weights, str):
            return take(weights)
        zero_point = weights.zero_point and take(weights.zero_point)
        return Quantized(take(weights.value), take(weights.scale), zero_point)

    return replace(
        node,
        reverse=(node.reverse[index],),
        activations=(node.activations[index],),
        weights=take_weights(node.weights),
        recurrent_weights=take_weights(node.recurrent_weights),
        bias=node.bias and take(node.bias),
        initial=tuple(name and take(name) for name in node.initial),
        peepholes=node.peepholes and take(node.peepholes),
    )


def _run(emit: Emitter, node: Recurrent, wanted: bool) -> list[str]:
    """Unroll; gives the sequence of hidden states (empty unless `wanted`) and the last states."""
    cell, input_bias = _cell(emit, node)
    projected = _project(emit, node, input_bias)
    steps, count = node.steps, len(node.reverse)
    inputs = list(zip(*(emit.slices(part, steps, count) for part in projected), strict=True))
    mask = None if node.lengths is None else _mask(emit, node, node.lengths)
    within = [] if mask is None else emit.slices(mask, steps, count)
    state = node.initial
    hidden = []
    for step in range(steps):
        after = node.kind.step(cell, inputs[step], state)
        state = _hold(emit, within[step], after, state) if within else after
        hidden.append(str(state[0]))
    if node.lengths is not None:
        state = _zero_if_empty(emit, node.lengths, state)
    sequence = _sequence(emit, node, hidden, mask) if wanted else ""
    return [sequence, *map(str, state)]


def _project(emit: Emitter, node: Recurrent, bias: str | None) -> list[str]:
    """The inputs of all steps times the weights, ``[T * D, B, gates * H]`` for each part.

    Steps of the reverse direction are in the order in which they are taken.
    """
    width = node.kind.gates * node.hidden
    count = len(node.reverse)
    product = _input_product(emit, node)
    parts = emit.split(emit.add(product, bias), [width] * count, axis=2)
    directions = [
        _flipped(emit, node, part) if reverse else part
        for part, reverse in zip(parts, node.reverse, strict=True)
    ]
    joined = directions[0]
    if count > 1:
        joined = emit.concat([emit.unsqueeze(part, axis=1) for part in directions], axis=1)
        joined = emit.reshape(joined, [node.steps * count, -1, width])
    return emit.split(joined, [gates * node.hidden for gates in node.kind.inputs], axis=2)


def _input_product(emit: Emitter, node: Recurrent) -> str:
    if isinstance(node.weights, Quantized):
        return dynamic_matmul(emit, node.x, _matrix(emit, node, node.weights))
    weights = emit("Transpose", node.weights, perm=[2, 0, 1])
    return emit("MatMul", node.x, emit.reshape(weights, [0, -1]))


def _matrix(emit: Emitter, node: Recurrent, weights: Quantized) -> Quantized:
    """The quantized weights of one direction, without the dimension of the directions."""
    return Quantized(
        emit.reshape(weights.value, [-1, node.kind.gates * node.hidden]),
        emit.reshape(weights.scale, [-1]),
        weights.zero_point and emit.reshape(weights.zero_point, [-1]),
    )


def _flipped(emit: Emitter, node: Recurrent, value: str) -> str:
    return emit("Gather", value, emit.constant(np.arange(node.steps)[::-1]), axis=0)


def _cell(emit: Emitter, node: Recurrent) -> tuple[Cell, str | None]:
    """What the steps need, and the bias of the projected input, ``[D * gates * H]``."""
    input_bias, hidden_bias = _biases(emit, node)
    cell = Cell(
        emit=emit,
        hidden=node.hidden,
        activations=node.activations[0],
        clip=node.clip,
        recurrent=_recurrent_products(emit, node),
        linear_before_reset=node.linear_before_reset,
        bias=hidden_bias,
        peepholes=_peepholes(emit, node),
        input_forget=node.input_forget,
    )
    return cell, input_bias


def _recurrent_products(emit: Emitter, node: Recurrent) -> tuple[Callable[[str], str], ...]:
    if isinstance(node.recurrent_weights, Quantized):
        matrix = _matrix(emit, node, node.recurrent_weights)
        return (functools.partial(dynamic_matmul, emit, weights=matrix),)
    hidden, gates = node.hidden, node.kind.gates
    weights = emit("Transpose", node.recurrent_weights, perm=[0, 2, 1])
    if len(node.reverse) == 1:
        weights = emit.reshape(weights, [hidden, gates * hidden])
    parts = (gates,) if node.linear_before_reset else node.kind.inputs
    matrices = emit.split(weights, [part * hidden for part in parts], axis=-1)
    return tuple(functools.partial(emit.matmul, matrix=matrix) for matrix in matrices)


def _biases(emit: Emitter, node: Recurrent) -> tuple[str | None, str | None]:
    """The bias of the projected input, and the one that the reset gate of a GRU works on."""
    if node.bias is None:
        return None, None
    hidden, gates = node.hidden, node.kind.gates
    input_bias, recurrent_bias = emit.split(node.bias, [gates * hidden] * 2, axis=1)
    if not node.linear_before_reset:
        return emit.reshape(emit("Add", input_bias, recurrent_bias), [-1]), None
    to_gates, to_hidden = emit.split(recurrent_bias, [2 * hidden, hidden], axis=1)
    of_gates, of_hidden = emit.split(input_bias, [2 * hidden, hidden], axis=1)
    added = emit("Concat", emit("Add", of_gates, to_gates), of_hidden, axis=1)
    return emit.reshape(added, [-1]), emit.unsqueeze(to_hidden, axis=1)


def _peepholes(emit: Emitter, node: Recurrent) -> tuple[str, ...]:
    if node.peepholes is None:
        return ()
    return tuple(emit.split(emit.unsqueeze(node.peepholes, axis=1), [node.hidden] * 3, axis=2))


def _mask(emit: Emitter, node: Recurrent, lengths: str) -> str:
    """Which steps are within each sequence, ``bool[T * D, B, 1]``, in the order they are taken."""
    order = np.arange(node.steps, dtype=np.int32)
    taken = np.stack([order[::-1] if reverse else order for reverse in node.reverse], axis=1)
    within = emit("Less", emit.constant(taken.reshape(-1, 1), np.int32), lengths)
    return emit.unsqueeze(within, axis=2)


def _hold(emit: Emitter, within: str, after: State, before: State) -> State:
    """The state `after` where the step is within the sequence, else still that `before`."""
    return tuple(
        emit("Where", within, str(new), emit.scalar(0) if old is None else old)
        for new, old in zip(after, before, strict=True)
    )


def _zero_if_empty(emit: Emitter, lengths: str, state: State) -> State:
    """The last state, but zero (as in ONNX Runtime) for a sequence of length zero."""
    some = emit("Greater", lengths, emit.constant(0, np.int32))
    some = emit.unsqueeze(some, axis=1)  # bool[B, 1], over [D, B, H]
    return tuple(emit("Where", some, str(value), emit.scalar(0)) for value in state)


def _sequence(emit: Emitter, node: Recurrent, hidden: list[str], mask: str | None) -> str:
    """The hidden states of all steps, ``[T, D, B, H]``; zero after a sequence's end."""
    count = len(node.reverse)
    joined = emit.concat(hidden, axis=0)
    if mask is not None:
        joined = emit("Where", mask, joined, emit.scalar(0))
    value = emit.reshape(joined, [node.steps, count, -1, node.hidden])
    directions = [
        _flipped(emit, node, part) if reverse else part
        for part, reverse in zip(emit.split(value, [1] * count, axis=1), node.reverse, strict=True)
    ]
    return emit.concat(directions, axis=1)
