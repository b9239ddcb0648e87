"""What is said of an artifact's builds, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tvm_byoc_kit.variants import OpenDimension, Variants

__all__ = ["variant_facts"]


def variant_facts(variants: Variants) -> Iterator[tuple[str, str]]:
    """Names of facts, and these: the sizes that have a build, all others, what calls take."""
    fixed = [build for build in variants.builds if build.sizes]
    if fixed:
        yield "fast at", "; ".join(_sizes(build.sizes) for build in fixed)
    for name, dimension in variants.dimensions.items():
        others = any(name not in build.sizes for build in variants.builds)
        yield f"sizes of {name}", _range(dimension, open_build=others)
    for cost in variants.costs:
        yield "measured", f"{_sizes(cost.sizes)}: {cost.seconds * 1e3:.3g} ms, {cost.entry}"


def _range(dimension: OpenDimension, *, open_build: bool) -> str:
    """Which sizes a call may have, and how those are run that no build is for."""
    if not (open_build or dimension.pad):
        return "those of the builds alone"
    least = str(dimension.smallest)
    facts = [f"{least} to {dimension.largest}" if dimension.largest else f"{least} and more"]
    facts += ["a build for any"] if open_build else []
    facts += ["padded to a build's"] if dimension.pad else []
    facts += ["shared out among calls"] if dimension.split else []
    return ", ".join(facts)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={number}" for name, number in sizes.items())
