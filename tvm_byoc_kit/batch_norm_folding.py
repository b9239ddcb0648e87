"""Batch normalization at inference: into the weights before it, or as multiply and add.

With the moving statistics, ``batch_norm(x) = x * scale + shift`` per channel, where
``scale = gamma / sqrt(variance + epsilon)`` and ``shift = beta - mean * scale`` (Ioffe and Szegedy,
2015, algorithm 2). After a convolution or matmul with constant weights, ``scale`` goes into these.
TVM's ``FoldBatchnormToConv2D`` does that for 2-D convolutions with OIHW weights and NCHW data whose
result goes nowhere else and gets no bias; it ignores ``center``, ``scale`` and ``axis``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.rewriting import Scope, array_of, constant_of, op_name, rewrite_calls

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from tvm import IRModule

__all__ = ["fold_batch_norm"]

BATCH_NORM = "relax.nn.batch_norm"


def fold_batch_norm(
    mod: IRModule,
    keep: Callable[[Any], bool] = lambda _call: False,
    notes: Counter[str] | None = None,
) -> IRModule:
    """Fold each batch normalization into what it follows; decompose those that follow nothing.

    Parameters
    ----------
    mod : tvm.IRModule
    keep : callable, optional
        Whether to leave a call that cannot be folded as it is, as for a backend that takes it.
    notes : collections.Counter, optional
        Takes the calls that stayed, and why.

    Notes
    -----
    A call in training mode normalizes by the batch at hand; it is left alone.
    """

    def rule(call: Any, original: Any, scope: Scope) -> Any:
        if call.attrs.training:
            scope.notes["batch_norm in training mode stays"] += 1
            return None
        coefficients = _coefficients(call)
        result = None if coefficients is None else _fold(call, original, coefficients, scope)
        if result is None and keep(call):
            scope.notes["batch_norm stays: the backend takes it"] += 1
            return None
        if result is None:
            result = _decompose(call, coefficients, scope)
        return None if result is None else _as_tuple(result, call, scope)

    return rewrite_calls(mod, {BATCH_NORM: rule}, notes)


@dataclass(frozen=True)
class _Coefficients:
    """``x * scale + shift``, one of each per channel, in double precision."""

    scale: np.ndarray
    shift: np.ndarray


def _coefficients(call: Any) -> _Coefficients | None:
    """Of a call whose parameters are constant."""
    arrays = [array_of(parameter) for parameter in call.args[1:5]]
    if any(array is None or array.dtype.kind != "f" for array in arrays):
        return None
    gamma, beta, mean, variance = (np.asarray(array, np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        scale = 1.0 / np.sqrt(variance + float(call.attrs.epsilon))
        scale = scale * gamma if call.attrs.scale else scale
        shift = (beta if call.attrs.center else 0.0) - mean * scale
    return _Coefficients(scale, shift)


def _as_tuple(result: Any, call: Any, scope: Scope) -> Any:
    """As batch_norm gives it: the result, and the moving statistics unchanged."""
    from tvm import relax

    return relax.Tuple([scope.emit(result), call.args[3], call.args[4]])


# --- Into the weights ---------------------------------------------------------------------------


def _fold(call: Any, original: Any, coefficients: _Coefficients, scope: Scope) -> Any:
    found = _producer(call.args[0], original.args[0], scope)
    rank = len(getattr(call.args[0].ty.shape, "values", None) or ())
    if found is None or not rank:
        return None
    mac, bias = found
    axis, channels = int(call.attrs.axis) % rank, coefficients.scale.size
    if axis != _channel_axis(mac, rank):
        return None
    scaled = _scaled_weight(mac, coefficients.scale, scope)
    shift: np.ndarray | None = coefficients.shift
    if bias is not None:
        shift = _shifted(bias, coefficients, rank, axis)
    if scaled is None or shift is None:
        return None
    from tvm import relax

    replaced = relax.Call(mac.op, [mac.args[0], constant_of(scaled)], mac.attrs, mac.ty_args)
    shape = [channels if dim == axis else 1 for dim in range(rank)]
    addend = constant_of(shift.astype(_dtype(call.args[0])).reshape(shape))
    return relax.op.add(scope.emit(replaced), addend)


def _producer(data: Any, original: Any, scope: Scope) -> tuple[Any, np.ndarray | None] | None:
    """The convolution or matmul behind `data`, and the constant added to it, if any.

    None when there is no such call, or its result is read elsewhere too: the unscaled one would
    still be needed.
    """
    bias = None
    if not scope.is_used_once(original):
        return None
    producer, original = scope.value(data), scope.original(original)
    if op_name(producer) == "relax.add" and op_name(original) == "relax.add":
        constant = 1 if array_of(scope.value(producer.args[1])) is not None else 0
        bias = array_of(scope.value(producer.args[constant]))
        if bias is None or not scope.is_used_once(original.args[1 - constant]):
            return None
        producer = scope.value(producer.args[1 - constant])
    return (producer, bias) if op_name(producer) in _SCALE else None


def _scaled_weight(mac: Any, scale: np.ndarray, scope: Scope) -> np.ndarray | None:
    weight = array_of(scope.value(mac.args[1]))
    if weight is None or weight.dtype.kind != "f":
        return None
    scaled = _SCALE[op_name(mac)](mac, weight, scale)
    return None if scaled is None else np.ascontiguousarray(scaled.astype(weight.dtype))


def _shifted(
    bias: np.ndarray, coefficients: _Coefficients, rank: int, axis: int
) -> np.ndarray | None:
    """The shift after a bias; None when that is not one value per channel."""
    shape = (1,) * (rank - bias.ndim) + bias.shape
    if len(shape) != rank or any(n != 1 for dim, n in enumerate(shape) if dim != axis):
        return None
    per_channel = np.asarray(bias.reshape(-1), np.float64)
    return np.asarray(coefficients.shift + per_channel * coefficients.scale)


def _dtype(tensor: Any) -> str:
    return str(tensor.ty.dtype)


def _channel_axis(mac: Any, rank: int) -> int | None:
    """Where the output channels are in the result; None for blocked layouts."""
    if op_name(mac) == "relax.matmul":
        return rank - 1
    layout = str(mac.attrs.out_layout or mac.attrs.data_layout)
    return layout.index("C") if layout.isalpha() and len(layout) == rank else None


def _scale_convolution(mac: Any, weight: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    layout = str(mac.attrs.kernel_layout)
    if not layout.isalpha() or len(layout) != weight.ndim:
        return None
    shape = [scale.size if letter == "O" else 1 for letter in layout]
    return np.asarray(weight * scale.reshape(shape))


def _scale_transposed(mac: Any, weight: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    """Weights of a group give that group's outputs: I is split by groups, O is within one."""
    layout, groups = str(mac.attrs.kernel_layout), int(mac.attrs.groups)
    if not layout.isalpha() or len(layout) != weight.ndim:
        return None
    order = [layout.index("I"), layout.index("O")]
    order += [axis for axis in range(weight.ndim) if axis not in order]
    grouped = weight.transpose(order)
    inputs, outputs, *window = grouped.shape
    grouped = grouped.reshape(groups, inputs // groups, outputs, *window)
    factor = scale.reshape(groups, 1, outputs, *(1 for _ in window))
    scaled = np.asarray(grouped * factor).reshape(inputs, outputs, *window)
    return np.asarray(scaled.transpose(np.argsort(order)))


def _scale_matmul(_mac: Any, weight: np.ndarray, scale: np.ndarray) -> np.ndarray | None:
    return np.asarray(weight * scale) if weight.ndim > 1 else None


_SCALE: dict[str, Callable[[Any, np.ndarray, np.ndarray], np.ndarray | None]] = {
    "relax.nn.conv1d": _scale_convolution,
    "relax.nn.conv2d": _scale_convolution,
    "relax.nn.conv3d": _scale_convolution,
    "relax.nn.conv1d_transpose": _scale_transposed,
    "relax.nn.conv2d_transpose": _scale_transposed,
    "relax.nn.conv3d_transpose": _scale_transposed,
    "relax.matmul": _scale_matmul,
}


# --- As a multiplication and an addition --------------------------------------------------------


def _decompose(call: Any, coefficients: _Coefficients | None, scope: Scope) -> Any:
    from tvm import relax

    shape = getattr(call.args[0].ty.shape, "values", None)
    if shape is None:
        scope.notes["batch_norm of unknown rank stays"] += 1
        return None
    axis = int(call.attrs.axis) % len(shape)
    around = [dim for dim in range(len(shape)) if dim != axis]
    if coefficients is not None:
        dtype = _dtype(call.args[0])
        scale, shift = (
            constant_of(np.expand_dims(values.astype(dtype), around))
            for values in (coefficients.scale, coefficients.shift)
        )
    else:
        scale, shift = (
            scope.emit(relax.op.expand_dims(values, around)) for values in _computed(call, scope)
        )
    return relax.op.add(scope.emit(relax.op.multiply(call.args[0], scale)), shift)


def _computed(call: Any, scope: Scope) -> tuple[Any, Any]:
    """Scale and shift where the parameters are known at run time only."""
    from tvm import relax

    _, gamma, beta, mean, variance = call.args
    epsilon = relax.const(float(call.attrs.epsilon), _dtype(variance))
    scale = scope.emit(relax.op.rsqrt(scope.emit(relax.op.add(variance, epsilon))))
    if call.attrs.scale:
        scale = scope.emit(relax.op.multiply(scale, gamma))
    shift = scope.emit(relax.op.negative(scope.emit(relax.op.multiply(mean, scale))))
    if call.attrs.center:
        shift = scope.emit(relax.op.add(shift, beta))
    return scale, shift
