"""The builds that one artifact holds, and what the manifest says of choosing among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

__all__ = ["Cost", "OpenDimension", "Variant", "Variants"]

T = TypeVar("T", "Variant", "OpenDimension", "Cost")


@dataclass(frozen=True)
class Variant:
    """One build of the model.

    Parameters
    ----------
    entry : str
        The function to run, which a program in C++ may call by this name: it takes the inputs at
        these sizes and gives the outputs.
    sizes : mapping of dimension to int
        What is fixed in it; empty for the build that leaves all open.
    """

    entry: str
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenDimension:
    """What may be done along a dimension of the inputs that no size is fixed for.

    Parameters
    ----------
    pad : bool
        Whether a call may be padded to a variant's size, and the results be cut.
    split : bool
        Whether a call may be split into several: the batch, whose rows are independent.
    fill : mapping of input name to number
        What these inputs are padded with; the others repeat their last row.
    smallest, largest : int or None
        The sizes that can be run at all; None: no bound.
    """

    pad: bool = False
    split: bool = False
    fill: Mapping[str, float] = field(default_factory=dict)
    smallest: int = 1
    largest: int | None = None


@dataclass(frozen=True)
class Cost:
    """Median seconds of a call of `entry` with the dimensions at `sizes`, as measured."""

    entry: str
    sizes: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Variants:
    """All builds of an artifact; an artifact of one build, with nothing to choose, has none.

    Parameters
    ----------
    builds : tuple of Variant
    dimensions : mapping of name to OpenDimension
    costs : tuple of Cost
        Measured where the artifact was built, or by `Executable.measure`; empty: not measured,
        and the least padding wins.
    """

    builds: tuple[Variant, ...] = ()
    dimensions: Mapping[str, OpenDimension] = field(default_factory=dict)
    costs: tuple[Cost, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.builds)

    def example_sizes(self) -> dict[str, int]:
        """Sizes that can be run: 2 along each dimension, where that is one of them."""
        return {name: self._example(name, item) for name, item in self.dimensions.items()}

    def _example(self, name: str, dimension: OpenDimension) -> int:
        fixed = [build.sizes[name] for build in self.builds if name in build.sizes]
        if len(fixed) == len(self.builds) and not dimension.pad:
            return fixed[0]
        return min(max(2, dimension.smallest), dimension.largest or 2)

    def to_dict(self) -> dict[str, Any]:
        """As the manifest holds it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Variants:
        """The inverse of :meth:`to_dict`.

        Raises
        ------
        KeyError, TypeError
            For a field that is missing or of another type.
        """
        if not isinstance(data["dimensions"], Mapping):
            raise TypeError(f"field `dimensions` is {data['dimensions']!r}")
        variants = cls(
            builds=tuple(_read(Variant, item) for item in data["builds"]),
            dimensions={
                name: _read(OpenDimension, item) for name, item in data["dimensions"].items()
            },
            costs=tuple(_read(Cost, item) for item in data["costs"]),
        )
        named = {name for build in variants.builds for name in build.sizes}
        named |= {name for cost in variants.costs for name in cost.sizes}
        if not named <= variants.dimensions.keys():
            raise KeyError(*sorted(named - variants.dimensions.keys()))
        return variants


def _read(cls: type[T], data: Mapping[str, Any]) -> T:
    values = {name: data[name] for name in cls.__dataclass_fields__}
    for name, value in values.items():
        if not _CHECKS[name](value):
            raise TypeError(f"field `{name}` of a {cls.__name__} is {value!r}")
    return cls(**values)


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


# What the fields of the classes above are, in JSON.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "entry": lambda value: isinstance(value, str),
    "sizes": lambda value: isinstance(value, dict) and all(map(_is_size, value.values())),
    "pad": lambda value: isinstance(value, bool),
    "split": lambda value: isinstance(value, bool),
    "fill": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
    "smallest": _is_size,
    "largest": lambda value: value is None or _is_size(value),
    "seconds": lambda value: _is_number(value) and 0 <= value < math.inf,
}
