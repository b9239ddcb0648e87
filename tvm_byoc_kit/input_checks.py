"""Inputs are what the signature says, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import InputError
from tvm_byoc_kit.signature import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["checked_inputs", "misnamed", "symbol_sizes"]


def checked_inputs(specs: Sequence[TensorSpec], inputs: Mapping[str, Any]) -> list[np.ndarray]:
    """`inputs` as arrays in the order of `specs`, which they fit.

    Raises
    ------
    InputError
        When a name, shape or dtype does not fit.
    """
    if not isinstance(inputs, Mapping):
        raise InputError(
            f"inputs are a {type(inputs).__name__}; expected a dict from name to array: "
            f"{'; '.join(map(str, specs))}"
        )
    if wrong := misnamed(specs, inputs):
        names = ", ".join(spec.name for spec in specs)
        raise InputError(f"inputs do not fit ({wrong}); expected {names}")
    arrays = [_as_numpy(spec, inputs[spec.name]) for spec in specs]
    for spec, array in zip(specs, arrays, strict=True):
        _check_kind(spec, array)
    symbol_sizes(specs, [array.shape for array in arrays])
    return arrays


def misnamed(specs: Sequence[TensorSpec], given: Mapping[str, Any]) -> str:
    """Which inputs are missing in `given`, and which it has too many; empty when it fits."""
    names = [spec.name for spec in specs]
    found = {
        "missing": [name for name in names if name not in given],
        "unknown": [str(name) for name in given if name not in names],
    }
    return "; ".join(f"{what}: {', '.join(some)}" for what, some in found.items() if some)


def symbol_sizes(specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """The sizes of the symbolic dimensions in inputs of these `shapes`, ranks as in `specs`.

    Raises
    ------
    InputError
        When a size does not fit, or one symbol would have two.
    """
    symbols: dict[str, tuple[int, str]] = {}  # size, and the input that it comes from
    for spec, shape in zip(specs, shapes, strict=True):
        for dim, size in zip(spec.shape, shape, strict=True):
            if isinstance(dim, str) and dim.isidentifier():
                symbols.setdefault(dim, (size, spec.name))
    sizes = {name: size for name, (size, _) in symbols.items()}
    for spec, shape in zip(specs, shapes, strict=True):
        for axis, (dim, found) in enumerate(zip(spec.shape, shape, strict=True)):
            expected = evaluate(dim, sizes)
            if expected is None or found == expected:
                continue
            origin = f", as '{dim}' is in input '{symbols[dim][1]}'" if dim in symbols else ""
            raise InputError(
                f"input '{spec.name}' has shape {shape}, expected {spec}: axis {axis} must "
                f"be {expected}{origin}"
            )
    return sizes


def _check_kind(spec: TensorSpec, array: np.ndarray) -> None:
    if str(array.dtype) != spec.dtype:
        raise InputError(
            f"input '{spec.name}' is {array.dtype}, expected {spec.dtype}; convert it with "
            f'x.astype("{spec.dtype}")'
        )
    if len(array.shape) != len(spec.shape):
        raise InputError(
            f"input '{spec.name}' has shape {array.shape}, expected rank {len(spec.shape)}: {spec}"
        )


def _from_dlpack(spec: TensorSpec, value: Any) -> np.ndarray:
    """`value` as an array; NumPy itself reads no bfloat16, TVM does so through ml_dtypes."""
    import numpy as np

    if spec.dtype != "bfloat16":
        return np.from_dlpack(value)
    import tvm

    array: np.ndarray = tvm.runtime.from_dlpack(value).numpy()
    return array


def _as_numpy(spec: TensorSpec, value: Any) -> np.ndarray:
    import numpy as np

    if isinstance(value, (np.ndarray, np.generic)):
        return np.ascontiguousarray(value).reshape(np.shape(value))
    if not hasattr(value, "__dlpack__"):
        raise InputError(
            f"input '{spec.name}' is a {type(value).__name__}; expected a NumPy array or a DLPack "
            "tensor in CPU memory"
        )
    if hasattr(value, "resolve_neg"):
        value = value.resolve_neg()  # torch negates some views lazily, and exports them unnegated
    try:
        return np.ascontiguousarray(_from_dlpack(spec, value)).reshape(tuple(value.shape))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(
            f"input '{spec.name}' cannot be read through DLPack: {error}; give it as a NumPy array "
            "(for torch: x.detach().cpu().numpy())"
        ) from error
