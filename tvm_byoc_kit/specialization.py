"""The builds of a model whose sizes stay open, as one partition that holds them all."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tvm_byoc_kit.buckets import Buckets
from tvm_byoc_kit.errors import ModelError, OptionError, reason
from tvm_byoc_kit.merging import Merger
from tvm_byoc_kit.open_dimensions import along, in_ranges
from tvm_byoc_kit.partitioning import Partition
from tvm_byoc_kit.preparation import bind_sizes
from tvm_byoc_kit.variants import Variant, Variants

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.buckets import Profile, Sizes
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["Specialization", "bound", "specialize"]

_T = TypeVar("_T")

_MOST = 64  # builds of an artifact, or ranges of a region: each costs a compilation


@dataclass(frozen=True)
class Specialization:
    """A model for several sizes.

    Parameters
    ----------
    model : ImportedModel
        With the dimensions open.
    sizes : mapping of name to Buckets or Profile
    partition : Partition
        With the functions of all builds.
    variants : Variants
        The first is the build that leaves all open, where there is one.
    parts : tuple of Partition
        Of each build alone, in the same order.
    profiles : tuple of mappings
        What the backend's option of that name gets, where one build takes all sizes in ranges.
    """

    model: ImportedModel
    sizes: Sizes
    partition: Partition
    variants: Variants
    parts: tuple[Partition, ...]
    profiles: tuple[dict[str, tuple[int, int, int]], ...] = ()


def specialize(
    model: ImportedModel,
    backend: Backend,
    sizes: Sizes,
    partition: Callable[[ImportedModel], Partition],
) -> Specialization:
    """What is to be built for `backend` so that `model` is fast at these sizes.

    Parameters
    ----------
    model : ImportedModel
        With the dimensions open that `sizes` names.
    backend : Backend
    sizes : mapping of name to Buckets or Profile
    partition : callable
        Prepares and partitions a model.

    Raises
    ------
    OptionError
        For more combinations than an artifact shall hold.
    ModelError
        When the model cannot be padded as wanted, or does not take a size.
    """
    if backend.profiles:
        return _in_ranges(model, sizes, partition)
    builds = _combinations(sizes)
    leaves_open = {} in builds
    dimensions = {name: along(model, name, given, leaves_open) for name, given in sizes.items()}
    parts = tuple(partition(bound(model, fixed)) for fixed in builds)
    merger = Merger()
    variants = []
    for fixed, part in zip(builds, parts, strict=True):
        names = merger.add(part.mod, "".join(f"_{dim}_{size}" for dim, size in fixed.items()))
        variants.append(Variant(names[model.entry], fixed))
    original = parts[0].model if leaves_open else model
    merged = replace(parts[0], mod=merger.module(), model=original)
    return Specialization(model, sizes, merged, Variants(tuple(variants), dimensions), parts)


def _in_ranges(
    model: ImportedModel, sizes: Sizes, partition: Callable[[ImportedModel], Partition]
) -> Specialization:
    """One build, for which each combination of the buckets is a range that ends there."""
    dimensions = {name: in_ranges(model, name, given) for name, given in sizes.items()}
    profiles = _products({name: _ranges(given) for name, given in sizes.items()}, sizes)
    part = partition(model)
    variants = Variants((Variant(model.entry),), dimensions)
    return Specialization(model, sizes, part, variants, (part,), tuple(profiles))


def _ranges(given: Buckets | Profile) -> list[tuple[int, int, int]]:
    if not isinstance(given, Buckets):
        return [(given.min, given.opt, given.max)]
    before = (0, *given.sizes)
    return [(low + 1, size, size) for low, size in zip(before, given.sizes, strict=False)]


def _combinations(sizes: Sizes) -> list[dict[str, int]]:
    """What is fixed in each build; the first may be the one in which nothing is."""
    buckets = {name: given for name, given in sizes.items() if isinstance(given, Buckets)}
    fixed = list(_products({name: given.sizes for name, given in buckets.items()}, sizes))
    leaves_open = any(given.fallback is not None for given in buckets.values())
    return [{}, *fixed] if leaves_open else fixed


def _products(choices: Mapping[str, Sequence[_T]], sizes: Sizes) -> list[dict[str, _T]]:
    number = math.prod(map(len, choices.values()))
    if number > _MOST:
        raise OptionError(
            f"{', '.join(f'{name}: {given}' for name, given in sizes.items())} are {number} "
            f"combinations, and an artifact holds at most {_MOST}; give fewer sizes, or a Profile "
            "for one of the dimensions"
        )
    rows = itertools.product(*choices.values())
    return [dict(zip(choices, row, strict=True)) for row in rows]


def bound(model: ImportedModel, fixed: Mapping[str, int]) -> ImportedModel:
    """`model` with these sizes fixed.

    Raises
    ------
    ModelError
        When it does not take them.
    """
    if not fixed:
        return model
    try:
        return bind_sizes(model, fixed)
    except Exception as error:  # TVM raises many types
        given = ", ".join(f"{name}={size}" for name, size in fixed.items())
        raise ModelError(
            f"{model.origin or 'the model'} does not take {given}: {reason(error)}; leave that "
            "size out"
        ) from error
