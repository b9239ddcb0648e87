"""Optimization profiles: the sizes that an engine is built for, by symbolic dimension.

A user gives three shapes of an input, or three sizes of a dimension, in `TensorRTOptions.profiles`.
From there on it is always sizes of dimensions: these have one name throughout the model, so that
what was said of a model's inputs holds for every region of it.

There is no default. The range decides how much memory the engine takes and what it is fast at, and
a call outside it fails, so a symbolic dimension without a profile is an error that says what to
give.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.graph import evaluate

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.tensorrt.options import Profile
    from tvm_byoc_kit.graph import Dim, Graph
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.signature import TensorSpec

__all__ = [
    "Ranges",
    "by_dimension",
    "choose",
    "input_shapes",
    "open_shapes",
    "parse_profiles",
    "ranges_of",
]

#: Smallest, best and largest size of each symbolic dimension.
Ranges: TypeAlias = "dict[str, tuple[int, int, int]]"


def by_dimension(profiles: Sequence[Profile], model: ImportedModel) -> tuple[Ranges, ...]:
    """The profiles with the names of dimensions instead of those of the model's inputs.

    Raises
    ------
    OptionError
        For a profile of something that is no input, or that does not fit the input's shape.
    ModelError
        For a symbolic dimension of an input that no profile gives sizes.
    """
    inputs = {spec.name: spec for spec in model.inputs}
    needed = {
        dim: spec
        for spec in reversed(model.inputs)
        for dim in spec.shape
        if isinstance(dim, str) and dim.isidentifier()
    }
    named = [_by_dimension(profile, inputs) for profile in profiles]
    for ranges in named or [{}]:
        for dim, spec in needed.items():
            if dim not in ranges:
                raise _no_profile(dim, f"of input '{spec}'")
    return tuple(ranges for ranges in named if ranges)


def ranges_of(graph: Graph, profiles: Sequence[Profile]) -> tuple[Ranges, ...]:
    """For each profile the sizes of the region's symbolic dimensions; one empty one for none.

    Parameters
    ----------
    graph : Graph
    profiles : sequence of Profile
        By input of the region, or by dimension. Dimensions that the region has not are left out:
        they are another region's.

    Raises
    ------
    OptionError
        For a profile of an input that does not fit its shape.
    ModelError
        For a symbolic dimension that has no sizes in a profile.
    """
    if not graph.symbols:
        return ({},)
    inputs = {value.name: value for value in graph.inputs if value.dims is None}
    result = []
    for profile in profiles or [{}]:
        ranges = _by_dimension(profile, inputs)
        for dim in graph.symbols:
            if dim not in ranges:
                raise _no_profile(dim, f"of region `{graph.name}`")
        result.append({dim: ranges[dim] for dim in graph.symbols})
    return tuple(result)


def input_shapes(
    shape: Sequence[Dim], ranges: Ranges
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Smallest, best and largest shape of an input of `shape`.

    Of a dimension that is an expression, the smallest and largest value are among those at the
    ends of the ranges; that is so for all that shapes are computed with but a remainder.
    """
    ends = [dict(zip(ranges, sizes, strict=True)) for sizes in _corners(ranges)]
    best = {dim: sizes[1] for dim, sizes in ranges.items()}
    found = [[_size(dim, sizes) for sizes in ends] for dim in shape]
    return (
        tuple(min(sizes) for sizes in found),
        tuple(_size(dim, best) for dim in shape),
        tuple(max(sizes) for sizes in found),
    )


def choose(profiles: Sequence[Ranges], sizes: Mapping[str, int]) -> int | None:
    """Number of the first profile that `sizes` fit, or None."""
    for number, ranges in enumerate(profiles):
        if all(ranges[dim][0] <= sizes[dim] <= ranges[dim][2] for dim in ranges):
            return number
    return None


def _corners(ranges: Ranges) -> Iterable[tuple[int, ...]]:
    return itertools.product(*((smallest, largest) for smallest, _, largest in ranges.values()))


def _size(dim: Dim, sizes: Mapping[str, int]) -> int:
    size = evaluate(dim, sizes)
    if size is None:
        raise ModelError(f"the dimension `{dim}` of an input cannot be computed from {dict(sizes)}")
    return size


def _no_profile(dim: str, where: str) -> ModelError:
    return ModelError(
        f"the dimension '{dim}' {where} is symbolic, and TensorRT builds for a range of sizes: "
        "give the smallest, the best and the largest, "
        f'options={{"profiles": {{"{dim}": (1, 8, 32)}}}}, on the command line --profile '
        f'"{dim}=1:8:32"; or import the model with a fixed size'
    )


def _by_dimension(profile: Profile, inputs: Mapping[str, Any]) -> Ranges:
    """The profile with the dimensions of the inputs that it names."""
    ranges: Ranges = {}
    for name, sizes in profile.items():
        if name in inputs:
            given = _as_shapes(name, sizes, inputs[name])
        elif all(isinstance(size, int) for size in sizes):
            given = [(name, _triple(sizes))]
        else:
            raise OptionError(
                f"tensorrt option profiles names '{name}', which is no input; inputs: "
                f"{', '.join(inputs) or 'none'}"
            )
        for dim, triple in given:
            known = ranges.setdefault(dim, triple)
            if known != triple:
                raise OptionError(
                    f"tensorrt option profiles gives the dimension '{dim}' as {known} and, by "
                    f"'{name}', as {triple}; it has one range in a profile"
                )
    return ranges


def _triple(sizes: Sequence[Any]) -> tuple[int, int, int]:
    return (sizes[0], sizes[1], sizes[2])


def _as_shapes(name: str, sizes: Any, spec: TensorSpec) -> list[tuple[str, tuple[int, int, int]]]:
    """The named dimensions of an input with their sizes, out of three shapes."""
    shapes = [(size,) if isinstance(size, int) else size for size in sizes]
    if len(shapes[0]) != len(spec.shape):
        raise OptionError(
            f"tensorrt option profiles gives '{name}' {len(shapes[0])} dimension(s), expected "
            f"{len(spec.shape)}: {spec}"
        )
    found = []
    for axis, (dim, triple) in enumerate(zip(spec.shape, zip(*shapes, strict=True), strict=True)):
        if isinstance(dim, str) and dim.isidentifier():
            found.append((dim, triple))
        elif isinstance(dim, int) and set(triple) != {dim}:
            raise OptionError(
                f"tensorrt option profiles gives axis {axis} of '{name}' the sizes {triple}, and "
                f"it is fixed: {spec}; import the model with a name for this dimension, "
                f"shapes={{'{name}': (..., '{name}_{axis}', ...)}}, or give {dim} three times"
            )
    return found


# --- the command line -----------------------------------------------------------------------------

_FORM = "expected name=smallest:best:largest, such as x=1x3x224x224:8x3x224x224:32x3x224x224"


def parse_profiles(texts: Sequence[str]) -> tuple[Profile, ...]:
    """Profiles as the command line has them.

    Parameters
    ----------
    texts : sequence of str
        ``x=1x3x224x224:8x3x224x224:32x3x224x224``, or ``n=1:8:32`` for a dimension. A name that
        comes again begins the next profile.

    Raises
    ------
    OptionError
        For another form.
    """
    profiles: list[Profile] = []
    for text in texts:
        name, _, content = text.rpartition("=")
        parts = content.split(":")
        if not name or len(parts) != _BOUNDS or not all(map(_SHAPE.fullmatch, parts)):
            raise OptionError(f"--profile {text}: {_FORM}")
        shapes = [tuple(map(int, part.split("x"))) for part in parts]
        sizes: Any = [shape[0] for shape in shapes] if set(map(len, shapes)) == {1} else shapes
        if not profiles or name in profiles[-1]:
            profiles.append({})
        profiles[-1][name] = sizes
    return tuple(profiles)


_BOUNDS = 3  # smallest, best, largest
_SHAPE = re.compile(r"\d{1,9}(x\d{1,9})*")


def open_shapes(profiles: Sequence[Profile]) -> dict[str, list[int | str]]:
    """The shapes to import a model with, by input: what varies has a name, the rest is fixed."""
    given: dict[str, list[tuple[int, ...]]] = {}
    for profile in profiles:
        for name, shapes in profile.items():
            if isinstance(shapes[0], tuple):
                given.setdefault(name, []).extend(shapes)
    return {
        name: [
            sizes[0] if len(set(sizes)) == 1 else _identifier(f"{name}_{axis}")
            for axis, sizes in enumerate(zip(*shapes, strict=True))
        ]
        for name, shapes in given.items()
    }


def _identifier(text: str) -> str:
    word = re.sub(r"[^0-9a-zA-Z_]", "_", text)
    return f"_{word}" if word[0].isdigit() else word
