"""Inputs to try a model with: random ones, edge values, and those of archives."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import InputError, OptionError
from tvm_byoc_kit.signature import evaluate

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.signature import TensorSpec

__all__ = ["CASES", "EDGE", "generated", "given", "random_inputs", "read_npz"]

Arrays = dict[str, Any]
Sizes = Mapping[str, int]
_OPEN_SIZE = 2
_INDEX_END = 10  # integers may be indices: what is below this, most models have


def random_inputs(
    specs: Sequence[TensorSpec], seed: int = 0, sizes: Sizes | None = None, case: str = "random"
) -> dict[str, np.ndarray]:
    """Inputs of the declared shapes and dtypes.

    Parameters
    ----------
    specs : sequence of TensorSpec
    seed : int
    sizes : mapping of str to int, optional
        Of open dimensions; 2 where none is given.
    case : str
        One of `CASES`. ``random``: standard normal floats, integers from 0 to 9, fair booleans.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    fill = CASES[case]
    values = {}
    for spec in specs:
        shape = tuple(_size(dim, sizes or {}) for dim in spec.shape)
        values[spec.name] = np.asarray(fill(rng, shape, spec.dtype)).astype(spec.dtype)
    return values


def _size(dim: int | str, sizes: Sizes) -> int:
    """`dim`, with 2 for each symbol without a size."""
    symbols = dict.fromkeys(re.findall(r"\w+", str(dim)), _OPEN_SIZE)
    size = evaluate(dim, symbols | dict(sizes))
    return _OPEN_SIZE if size is None else size


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _random(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    if _is_float(dtype):
        values: np.ndarray = rng.standard_normal(shape)
    else:
        values = rng.integers(0, 2 if dtype == "bool" else _INDEX_END, shape)
    return values


def _constant(value: int) -> _Fill:
    def fill(_rng: Any, shape: tuple[int, ...], _dtype: str) -> np.ndarray:
        import numpy as np

        return np.full(shape, value)

    return fill


def _negative(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    values = abs(_random(rng, shape, dtype))
    return -values if _is_float(dtype) or dtype == "int8" else values


def _tiny(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Between nothing and some of the least normal number, most of them denormal."""
    import numpy as np

    values = _random(rng, shape, dtype)
    if not _is_float(dtype):
        return values
    least = _limits(dtype)[0]
    return values * np.where(rng.integers(0, 2, shape), least, least / 16)


def _large(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Up to the fourth root of the largest float, so that squares and sums of them are finite.

    Bytes are the least and the largest there are; wider integers, which may be indices, 0 and 9.
    """
    import numpy as np

    low, high = 0.0, 1.0 if dtype == "bool" else _INDEX_END - 1.0
    if _is_float(dtype):
        high = _limits(dtype)[1] ** 0.25
        low = -high
    elif dtype in ("int8", "uint8"):
        low, high = float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    ends: np.ndarray = np.where(rng.integers(0, 2, shape), high, low)
    return ends * rng.uniform(0.5, 1.0, shape) if _is_float(dtype) else ends


def _limits(dtype: str) -> tuple[float, float]:
    """The least normal and the largest number of a float dtype."""
    import ml_dtypes
    import numpy as np

    info: Any = ml_dtypes.finfo(np.dtype(dtype))  # type: ignore[no-untyped-call]
    return float(info.smallest_normal), float(info.max)


def _with(*special: float) -> _Fill:
    def fill(rng: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        import numpy as np

        values = _random(rng, shape, dtype)
        if not _is_float(dtype):
            return values
        chosen = np.where(rng.random(shape) < 0.1, rng.choice(special, shape), values)  # noqa: PLR2004
        flat = chosen.reshape(-1)
        flat[: len(special)] = special[: flat.size]  # at least one of each, if it has the room
        return flat.reshape(shape)

    return fill


_Fill = Callable[[Any, tuple[int, ...], str], "np.ndarray"]

CASES: dict[str, _Fill] = {
    "random": _random,
    "zeros": _constant(0),
    "ones": _constant(1),
    "negative": _negative,
    "tiny": _tiny,
    "large": _large,
    "nan": _with(float("nan")),
    "infinity": _with(float("inf"), float("-inf")),
}
EDGE = ("zeros", "ones", "negative", "tiny", "large")
"""What the case ``edge`` stands for: NaN and infinity are not among them."""


def generated(
    specs: Sequence[TensorSpec],
    cases: str | Sequence[str],
    *,
    samples: int,
    sizes: Mapping[str, int | Sequence[int]],
    seed: int,
) -> Iterator[tuple[str, Arrays]]:
    """The names of the cases, and their inputs; parameters as for `verify`.

    Raises
    ------
    OptionError
        For a case or a dimension that there is not, or a number below 1.
    """
    names = _expanded(cases)
    _require_count("samples", samples, 1)
    _require_count("seed", seed, 0)
    for chosen in _combinations(specs, sizes):
        where = "".join(f", {name}={size}" for name, size in chosen.items())
        for name in names:
            for number in range(samples if name == "random" else 1):
                text = f"random {number}" if name == "random" else name
                yield text + where, random_inputs(specs, seed + number, chosen, name)


def _require_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or value < least:
        raise OptionError(f"{name}={value!r}: expected a whole number, {least} or more")


def _expanded(cases: str | Sequence[str]) -> list[str]:
    if not isinstance(cases, Iterable):
        raise OptionError(f"cases={cases!r}: expected a case, or a list of them")
    given_names = [cases] if isinstance(cases, str) else list(cases)
    for name in given_names:
        if name != "edge" and name not in CASES:
            raise OptionError(f"unknown case {name!r}; expected edge, {', '.join(CASES)}")
    expanded = [item for name in given_names for item in (EDGE if name == "edge" else (name,))]
    return list(dict.fromkeys(expanded))


def _combinations(
    specs: Sequence[TensorSpec], sizes: Mapping[str, int | Sequence[int]]
) -> Iterator[dict[str, int]]:
    dims = [dim for spec in specs for dim in spec.shape if isinstance(dim, str)]
    symbols = dict.fromkeys(symbol for dim in dims for symbol in re.findall(r"[^\W\d]\w*", dim))
    for name in sizes:
        if name not in symbols:
            known = ", ".join(symbols) or "none"
            raise OptionError(f"sizes name '{name}', which is no open dimension; there is {known}")
    lists = [_numbers(name, size) for name, size in sizes.items()]
    for chosen in itertools.product(*lists):
        yield dict(zip(sizes, chosen, strict=True))


def _numbers(name: str, size: Any) -> list[int]:
    """The sizes of one dimension."""
    numbers = list(size) if isinstance(size, Iterable) else [size]
    if not numbers or any(not isinstance(n, Integral) or n < 1 for n in numbers):
        raise OptionError(f"sizes of '{name}' are {size!r}; expected numbers from 1 on")
    return [int(number) for number in numbers]


def given(inputs: Any) -> Iterator[tuple[str, Arrays]]:
    """The names of the cases that a caller's own `inputs` are, and these; as for `verify`.

    Raises
    ------
    InputError
        When they are of another kind, or cannot be read.
    """
    items = [inputs] if isinstance(inputs, (Mapping, str, os.PathLike)) else inputs
    if not isinstance(items, Sequence) or not items:
        raise InputError(f"inputs are a {type(inputs).__name__}; {_EXPECTED}")
    for number, item in enumerate(items):
        if isinstance(item, Mapping):
            yield f"inputs {number}", dict(item)
        elif isinstance(item, (str, os.PathLike)):
            yield os.fspath(item), read_npz(item)
        else:
            raise InputError(f"inputs hold a {type(item).__name__}; {_EXPECTED}")


_EXPECTED = "expected a dict from name to array, the path of an .npz file, or a list of such"


def read_npz(path: str | os.PathLike[str], what: str = "inputs") -> dict[str, np.ndarray]:
    """The arrays of an archive by name.

    Raises
    ------
    InputError
        When it is none; the message begins with `what` it was given as.
    """
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # NumPy and zipfile raise many types on other files
        raise InputError(
            f"{what} {path} is no .npz archive of arrays ({error}); write it with "
            "numpy.savez(path, name=array)"
        ) from error
