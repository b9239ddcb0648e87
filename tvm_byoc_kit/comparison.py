"""How one output compares with what is expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ModelError, OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

__all__ = [
    "TOLERANCES",
    "Element",
    "OutputCheck",
    "Tolerance",
    "compare_output",
    "plain",
    "worst_of",
]


@dataclass(frozen=True)
class Tolerance:
    """An element agrees when ``|got - expected| <= atol * scale + rtol * |expected|``.

    ``scale`` is the largest magnitude of the expected output, at least 1: rounding errors of a
    long sum follow the size of its terms, not of the one element they end in. What a mask has put
    in the place of elements (-10000, -1e9) does not count; it would hide what the others are.
    """

    rtol: float
    atol: float


# A sum of n products in another order differs by about sqrt(n) roundings: 2**-24 for float32 and
# 2**-11 for float16 with n up to some thousands. Integers are exact.
TOLERANCES = {
    "float64": Tolerance(rtol=1e-9, atol=1e-9),
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float16": Tolerance(rtol=1e-2, atol=5e-3),
    "bfloat16": Tolerance(rtol=5e-2, atol=2e-2),
}
_EXACT = Tolerance(rtol=0.0, atol=0.0)


@dataclass(frozen=True)
class Element:
    """One element of an output: where it is, and both values."""

    index: tuple[int, ...]
    got: float
    expected: float

    def __str__(self) -> str:
        return f"{list(self.index)}: got {self.got:.6g}, expected {self.expected:.6g}"


@dataclass(frozen=True)
class OutputCheck:
    """How one output compares.

    Parameters
    ----------
    name, dtype : str
    max_abs : float
        Largest absolute difference.
    max_rel : float
        Largest difference relative to the expected element's magnitude, where that is not 0.
    snr_db : float
        Signal-to-noise ratio, ``10 log10(sum(expected^2) / sum((got - expected)^2))``; infinite
        when equal.
    tolerance : Tolerance
    ok : bool
    cosine : float
        Of the angle between both, as vectors of what is finite in both; 1 when equal.
    outside : float
        Share of the elements that do not agree.
    worst : Element or None
        The one that is furthest outside the tolerance, or nearest to that; None when the output is
        empty.
    nan, infinite : (int, int)
        How many elements are that: of the output, and of what is expected.
    case : str
        With which inputs; empty where there is only one case.
    """

    name: str
    dtype: str
    max_abs: float
    max_rel: float
    snr_db: float
    tolerance: Tolerance
    ok: bool
    cosine: float = 1.0
    outside: float = 0.0
    worst: Element | None = None
    nan: tuple[int, int] = (0, 0)
    infinite: tuple[int, int] = (0, 0)
    case: str = ""

    def __str__(self) -> str:
        """The measures, in one line."""
        line = (
            f"max abs {self.max_abs:.3g}, max rel {self.max_rel:.3g}, SNR {self.snr_db:.1f} dB, "
            f"{'ok' if self.ok else 'not within'} "
            f"rtol {self.tolerance.rtol:g} atol {self.tolerance.atol:g}"
        )
        return f"{line}, worst case: {self.case}" if self.case else line

    def details(self) -> str:
        """What else is known of an output that differs, in one line."""
        parts = [f"{100 * self.outside:.3g} % of the elements outside", f"cosine {self.cosine:.6f}"]
        if self.worst is not None:
            parts.insert(0, f"worst at {self.worst}")
        return "; ".join([*parts, *self.not_finite])

    @property
    def not_finite(self) -> tuple[str, ...]:
        """How many elements are NaN, and how many infinite, of both sides, where any are."""
        return tuple(
            f"{got} {what}, expected {expected}"
            for what, (got, expected) in (("NaN", self.nan), ("infinite", self.infinite))
            if got or expected
        )

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, which has no infinity and no NaN: they are None."""
        facts: dict[str, Any] = plain(vars(self))
        return facts


def plain(value: Any) -> Any:
    """`value` as JSON has it: dataclasses as dicts, and None for what is not finite."""
    if hasattr(value, "__dataclass_fields__"):
        value = vars(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def worst_of(checks: Iterable[OutputCheck]) -> OutputCheck:
    """The one with the most elements outside; of equals the one with the least SNR."""
    return min(checks, key=lambda check: (check.ok, -check.outside, check.snr_db, -check.max_abs))


def compare_output(
    name: str,
    got: np.ndarray,
    expected: Any,
    tolerance: Tolerance | None = None,
    case: str = "",
) -> OutputCheck:
    """Compare one output with what is expected of it; `tolerance` as in `verify`.

    Raises
    ------
    ModelError
        When shape or dtype differ.
    OptionError
        When `tolerance` is none.
    """
    import numpy as np

    if tolerance is not None and not isinstance(tolerance, Tolerance):
        raise OptionError(f"tolerance={tolerance!r}: expected a Tolerance(rtol=..., atol=...)")
    expected = np.asarray(expected)
    allowed = tolerance or TOLERANCES.get(str(expected.dtype), _EXACT)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ModelError(
            f"output '{name}' is {got.dtype}{list(got.shape)}, the reference gives "
            f"{expected.dtype}{list(expected.shape)}"
        )
    x, y = got.astype(np.float64), expected.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))  # equal infinities and NaNs agree
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(x - y))
    difference = np.where(np.isnan(difference), np.inf, difference)
    if expected.dtype.kind in "iu":  # float64 does not hold every 64-bit integer
        difference = np.where(got == expected, 0.0, np.maximum(difference, 1.0))
    finite = np.abs(y[np.isfinite(y)])
    limit = allowed.atol * _scale(finite) + allowed.rtol * np.where(np.isfinite(y), np.abs(y), 0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        noise, signal = float(np.square(difference).sum()), float(np.square(finite).sum())
        relative = np.divide(difference, np.abs(y), out=np.zeros_like(difference), where=y != 0)
    relative = np.where(np.isnan(relative), difference, relative)  # of infinities and NaNs
    outside = difference > limit
    return OutputCheck(
        name=name,
        dtype=str(expected.dtype),
        max_abs=float(difference.max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        snr_db=_decibel(signal, noise),
        tolerance=allowed,
        ok=not outside.any(),
        cosine=_cosine(x, y),
        outside=float(outside.mean()) if outside.size else 0.0,
        worst=_worst(x, y, difference - limit),
        nan=(int(np.isnan(x).sum()), int(np.isnan(y).sum())),
        infinite=(int(np.isinf(x).sum()), int(np.isinf(y).sum())),
        case=case,
    )


_MASK = 9e3  # the least that masks add: some of half precision add 10000
_APART = 1e-3


def _scale(magnitudes: np.ndarray) -> float:
    """The largest, or 1; without those of a mask: alike, several, and far above all others."""
    largest = float(magnitudes.max(initial=0.0))
    others = magnitudes[magnitudes < _APART * largest]
    masked = magnitudes[magnitudes >= _APART * largest]
    is_mask = largest > _MASK and masked.size > 1 and masked.min() > (1 - 2 * _APART) * largest
    return max(1.0, float(others.max()) if is_mask and others.any() else largest)


def _decibel(signal: float, noise: float) -> float:
    if noise == 0.0:
        return math.inf
    if signal == 0.0 or math.isinf(noise):
        return -math.inf
    return 10.0 * math.log10(signal / noise)


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    import numpy as np

    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite], y[finite]
    # Scaled, so that squares do not overflow.
    largest = [float(np.abs(values).max(initial=0.0)) for values in (x, y)]
    if 0.0 in largest:
        return float(largest[0] == largest[1])
    x, y = x / largest[0], y / largest[1]
    return float((x * y).sum() / math.sqrt(float(np.square(x).sum()) * float(np.square(y).sum())))


def _worst(x: np.ndarray, y: np.ndarray, excess: np.ndarray) -> Element | None:
    import numpy as np

    if not excess.size:
        return None
    index = tuple(int(axis) for axis in np.unravel_index(int(excess.argmax()), excess.shape))
    return Element(index, float(x[index]), float(y[index]))
