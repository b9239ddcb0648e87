"""Representative data as the calls of a model that it makes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.errors import InputError
from tvm_byoc_kit.input_checks import misnamed

if TYPE_CHECKING:
    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["calls_of"]

Array = np.ndarray[Any, np.dtype[Any]]

# How many samples a call gets where the model leaves it open.
_SAMPLES = 8


def calls_of(data: Any, specs: Sequence[TensorSpec]) -> Iterator[dict[str, Any]]:
    """The inputs of one call after the other; the caller checks what iterables give.

    Parameters
    ----------
    data : str, os.PathLike, mapping, array, or iterable
        The path of an ``.npz`` file, or a mapping, with an array for each input, cut along its
        first axis; an array alone, for a model with one input; or an iterable of single calls, each
        a mapping of names to arrays, or an array. What iterables give is not kept.
    specs : sequence of TensorSpec
        Of the model's inputs.

    Raises
    ------
    InputError
        When the data cannot be read, or is not of that form.
    """
    if isinstance(data, (str, os.PathLike)):
        data = _read(data)
    if isinstance(data, Mapping):
        return _cut(data, specs)
    if hasattr(data, "__array__") or hasattr(data, "__dlpack__"):
        return _cut(_named(data, specs), specs)
    if not isinstance(data, Iterable):
        raise InputError(
            f"calibration data is a {type(data).__name__}; expected an iterable of inputs, a dict "
            "from input name to array, an array, or the path of an .npz file"
        )
    return (dict(item) if isinstance(item, Mapping) else _named(item, specs) for item in data)


def _read(path: str | os.PathLike[str]) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise InputError(
                    f"{path} holds one array without a name; save the inputs with np.savez, or "
                    "give np.load(path)"
                )
            return {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise InputError(f"calibration data {path} cannot be read as .npz: {error}") from error


def _named(array: Any, specs: Sequence[TensorSpec]) -> dict[str, Any]:
    if len(specs) != 1:
        names = ", ".join(spec.name for spec in specs)
        raise InputError(
            f"calibration data is an array, and the model has {len(specs)} inputs; give a dict: "
            f"{names}"
        )
    return {specs[0].name: array}


def _cut(arrays: Mapping[str, Any], specs: Sequence[TensorSpec]) -> Iterator[dict[str, Any]]:
    """The calls that stacked arrays are enough for, what is left over not."""
    if wrong := misnamed(specs, arrays):
        expected = "; ".join(map(str, specs))
        raise InputError(f"calibration data does not fit ({wrong}); expected {expected}")
    pieces = {spec.name: _pieces(spec, np.asarray(arrays[spec.name])) for spec in specs}
    numbers = {name: len(items) for name, items in pieces.items()}
    if len(set(numbers.values())) > 1:
        said = ", ".join(f"{name} for {number}" for name, number in numbers.items())
        raise InputError(
            f"calibration data is enough for different numbers of calls: {said}; the arrays are "
            "cut along their first axis"
        )
    return (dict(zip(pieces, items, strict=True)) for items in zip(*pieces.values(), strict=True))


def _pieces(spec: TensorSpec, array: Array) -> Sequence[Array]:
    if array.ndim == len(spec.shape) + 1:  # calls, stacked
        return list(array)
    if array.ndim != len(spec.shape) or not array.ndim:
        raise InputError(
            f"calibration data for input '{spec.name}' has shape {array.shape}, expected {spec}, "
            "several of these along the first axis, or stacked"
        )
    size = spec.shape[0]
    if isinstance(size, str):
        return [array[start : start + _SAMPLES] for start in range(0, len(array), _SAMPLES)]
    if 0 < len(array) < size:
        raise InputError(
            f"calibration data for input '{spec.name}' has {len(array)} along the first axis, and "
            f"a call needs {size}: {spec}"
        )
    return [array[start : start + size] for start in range(0, len(array) - size + 1, size)]
