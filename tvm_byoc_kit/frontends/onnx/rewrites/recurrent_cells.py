"""One time step of LSTM, GRU and RNN in plain ONNX operators, and the activations they may use.

All directions of a node take a step together: a state is ``[D, B, H]`` for `D` directions, a
batch of `B` and `H` hidden units, and a state of None is all zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tvm_byoc_kit.frontends.onnx.rewrites.emitter import Emitter

__all__ = ["ACTIVATIONS", "KINDS", "Activation", "Cell", "Kind", "State"]

State = tuple["str | None", ...]


def _affine(emit: Emitter, x: str, alpha: float, beta: float) -> str:
    return emit("Add", emit("Mul", x, emit.scalar(alpha)), emit.scalar(beta))


def _scaled_tanh(emit: Emitter, x: str, alpha: float, beta: float) -> str:
    return emit("Mul", emit("Tanh", emit("Mul", x, emit.scalar(beta))), emit.scalar(alpha))


def _thresholded_relu(emit: Emitter, x: str, alpha: float) -> str:
    above = emit("Greater", x, emit.scalar(alpha))
    return emit("Mul", x, emit("Cast", above, to=emit.dtype))


def _operator(op: str) -> Callable[..., str]:
    return lambda emit, x, **parameters: emit(op, x, **parameters)


@dataclass(frozen=True)
class ActivationKind:
    """An activation of the standard: how it is written, and its parameters with their defaults.

    A default of None: the standard has none, or ONNX Runtime takes another (of zero).
    """

    write: Callable[..., str]
    parameters: Mapping[str, float | None] = field(default_factory=dict)


ACTIVATIONS = {
    "Relu": ActivationKind(_operator("Relu")),
    "Tanh": ActivationKind(_operator("Tanh")),
    "Sigmoid": ActivationKind(_operator("Sigmoid")),
    "Softsign": ActivationKind(_operator("Softsign")),
    "Softplus": ActivationKind(_operator("Softplus")),
    "LeakyRelu": ActivationKind(_operator("LeakyRelu"), {"alpha": 0.01}),
    "Elu": ActivationKind(_operator("Elu"), {"alpha": 1.0}),
    "HardSigmoid": ActivationKind(_operator("HardSigmoid"), {"alpha": 0.2, "beta": 0.5}),
    "Affine": ActivationKind(_affine, {"alpha": None, "beta": None}),
    "ScaledTanh": ActivationKind(_scaled_tanh, {"alpha": None, "beta": None}),
    "ThresholdedRelu": ActivationKind(_thresholded_relu, {"alpha": None}),
}


@dataclass(frozen=True)
class Activation:
    """A name of :data:`ACTIVATIONS` with its parameters."""

    kind: str
    parameters: tuple[tuple[str, float], ...] = ()

    def __call__(self, emit: Emitter, x: str) -> str:
        """Write it; gives the result's name."""
        return ACTIVATIONS[self.kind].write(emit, x, **dict(self.parameters))


@dataclass(frozen=True)
class Cell:
    """What a step needs, the same at all of them.

    Parameters
    ----------
    emit : Emitter
    hidden : int
        Hidden units.
    activations : tuple of Activation
        As many as the operator has, for one direction.
    clip : float or None
        Limit of what goes into an activation.
    recurrent : tuple of callable
        Multiply a state by the recurrent weights; GRU's are in two parts unless
        `linear_before_reset` is set.
    linear_before_reset : bool
        GRU: the reset gate works on the product, not on the state.
    bias : str or None
        GRU with `linear_before_reset`: the hidden gate's recurrent bias.
    peepholes : tuple of str
        LSTM: of the input, output and forget gate, or empty.
    input_forget : bool
        LSTM: the forget gate is one minus the input gate.
    """

    emit: Emitter
    hidden: int
    activations: tuple[Activation, ...]
    clip: float | None
    recurrent: tuple[Callable[[str], str], ...]
    linear_before_reset: bool = False
    bias: str | None = None
    peepholes: tuple[str, ...] = ()
    input_forget: bool = False

    def recur(self, x: str, state: str | None, part: int = 0) -> str:
        """`x` plus the state times the recurrent weights."""
        product = None if state is None else self.recurrent[part](state)
        return self.emit.add(x, product)

    def activate(self, index: int, x: str) -> str:
        """The clipped `x` through the activation."""
        return self.activations[index](self.emit, self.emit.clip(x, self.clip))


def _lstm_step(cell: Cell, inputs: tuple[str, ...], state: State) -> State:
    emit, (hidden, memory) = cell.emit, state
    gates = cell.recur(inputs[0], hidden)
    if cell.peepholes or cell.input_forget:
        memory, into_output = _lstm_memory_by_gate(cell, gates, memory)
        output = cell.activate(0, into_output)
    else:
        into_gates, into_cell = emit.split(gates, [3 * cell.hidden, cell.hidden], axis=2)
        given, output, kept = emit.split(cell.activate(0, into_gates), [cell.hidden] * 3, axis=2)
        memory = _updated(emit, kept, memory, emit("Mul", given, cell.activate(1, into_cell)))
    return emit("Mul", output, cell.activations[2](emit, memory)), memory


def _lstm_memory_by_gate(cell: Cell, gates: str, memory: str | None) -> tuple[str, str]:
    """The new memory, and what goes into the output gate."""
    emit = cell.emit
    into_input, into_output, into_forget, into_cell = emit.split(gates, [cell.hidden] * 4, axis=2)
    given = cell.activate(0, _peep(cell, 0, into_input, memory))
    if cell.input_forget:
        kept = emit("Sub", emit.scalar(1), given)
    else:
        kept = cell.activate(0, _peep(cell, 2, into_forget, memory))
    added = emit("Mul", given, cell.activate(1, into_cell))
    updated = _updated(emit, kept, memory, added)
    return updated, _peep(cell, 1, into_output, updated)


def _peep(cell: Cell, gate: int, x: str, memory: str | None) -> str:
    if not cell.peepholes or memory is None:
        return x
    return cell.emit("Add", x, cell.emit("Mul", cell.peepholes[gate], memory))


def _updated(emit: Emitter, kept: str, memory: str | None, added: str) -> str:
    return emit.add(added, None if memory is None else emit("Mul", kept, memory))


def _gru_step(cell: Cell, inputs: tuple[str, ...], state: State) -> State:
    emit, (hidden,) = cell.emit, state
    candidate_of = _gru_reset_after if cell.linear_before_reset else _gru_reset_before
    update, candidate = candidate_of(cell, inputs, hidden)
    if hidden is None:
        return (emit("Sub", candidate, emit("Mul", update, candidate)),)
    kept = emit("Mul", update, emit("Sub", hidden, candidate))
    return (emit("Add", candidate, kept),)


def _gru_reset_after(cell: Cell, inputs: tuple[str, ...], hidden: str | None) -> tuple[str, str]:
    emit, (into_gates, into_hidden) = cell.emit, inputs
    recurrent = cell.bias
    if hidden is not None:
        product = cell.recurrent[0](hidden)
        to_gates, to_hidden = emit.split(product, [2 * cell.hidden, cell.hidden], axis=2)
        into_gates = emit("Add", into_gates, to_gates)
        recurrent = emit.add(to_hidden, cell.bias)
    update, reset = emit.split(cell.activate(0, into_gates), [cell.hidden] * 2, axis=2)
    if recurrent is not None:
        into_hidden = emit("Add", into_hidden, emit("Mul", reset, recurrent))
    return update, cell.activate(1, into_hidden)


def _gru_reset_before(cell: Cell, inputs: tuple[str, ...], hidden: str | None) -> tuple[str, str]:
    emit = cell.emit
    gates = cell.activate(0, cell.recur(inputs[0], hidden, part=0))
    update, reset = emit.split(gates, [cell.hidden] * 2, axis=2)
    kept = None if hidden is None else emit("Mul", reset, hidden)
    return update, cell.activate(1, cell.recur(inputs[1], kept, part=1))


def _rnn_step(cell: Cell, inputs: tuple[str, ...], state: State) -> State:
    return (cell.activate(0, cell.recur(inputs[0], state[0])),)


@dataclass(frozen=True)
class Kind:
    """One of the three operators.

    Parameters
    ----------
    step : callable
        Gives the state after a step from the cell, the projected inputs and the state before.
    activations : tuple of str
        The default ones of one direction.
    inputs : tuple of int
        Gates in each part of the projected input.
    states : int
        How many states there are.
    """

    step: Callable[[Cell, tuple[str, ...], State], State]
    activations: tuple[str, ...]
    inputs: tuple[int, ...]
    states: int

    @property
    def gates(self) -> int:
        """Gates of one direction."""
        return sum(self.inputs)


KINDS = {
    "LSTM": Kind(_lstm_step, ("Sigmoid", "Tanh", "Tanh"), (4,), 2),
    "GRU": Kind(_gru_step, ("Sigmoid", "Tanh"), (2, 1), 1),
    "RNN": Kind(_rnn_step, ("Tanh",), (1,), 1),
}
