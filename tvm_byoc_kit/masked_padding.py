"""Whether a model masks what is padded, as `Buckets` were told: that is tried, not proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tvm_byoc_kit.buckets import Buckets
from tvm_byoc_kit.comparison import compare_output
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.open_dimensions import smallest_size
from tvm_byoc_kit.sample_inputs import random_inputs
from tvm_byoc_kit.signature import evaluate

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.buckets import Profile, Sizes
    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.signature import TensorSpec

    Arrays = dict[str, np.ndarray]
    Run = Callable[[Mapping[str, int], Arrays], Arrays]

__all__ = ["try_masking"]


def try_masking(
    model: ImportedModel, sizes: Sizes, name: str, fill: Mapping[str, float], run: Run
) -> None:
    """Run some inputs as they are, and padded with garbage; the results must be the same.

    Parameters
    ----------
    model : ImportedModel
        With the dimensions open.
    sizes : mapping of name to Buckets or Profile
    name : str
        The dimension that is padded.
    fill : mapping of input name to number
        The inputs that are said to mask what is padded, with what they are filled with there.
    run : callable
        Gets the sizes of a build, none for one that takes any, and inputs; gives the outputs.

    Raises
    ------
    ModelError
        When an output differs.
    """
    padded = {dim: _typical(given) for dim, given in sizes.items()}
    small = padded | {name: max(smallest_size(model, name), padded[name] * 2 // 3)}
    if small[name] >= padded[name]:  # nothing is padded to the smallest size
        return
    inputs = random_inputs(model.inputs, 0, small)
    expected = run({}, inputs)
    fixed = {dim: padded[dim] for dim, given in sizes.items() if isinstance(given, Buckets)}
    for seed in (1, 2):
        garbage = random_inputs(model.inputs, seed, padded)
        results = run(fixed, _padded(inputs, garbage, fill))
        for spec in model.outputs:
            got = _cut(results[spec.name], spec, small)
            check = compare_output(spec.name, got, expected[spec.name])
            if not check.ok:
                raise ModelError(
                    f"output '{spec.name}' changes by {check.max_abs:.3g} where '{name}' is padded "
                    f"from {small[name]} to {padded[name]}, so what is padded is not masked; give "
                    'pad=False with fallback="symbolic", or other masks'
                )


def _typical(given: Buckets | Profile) -> int:
    return given.sizes[-1] if isinstance(given, Buckets) else given.opt


def _padded(inputs: Arrays, garbage: Arrays, fill: Mapping[str, float]) -> Arrays:
    for name, value in inputs.items():
        if name in fill:
            garbage[name][...] = fill[name]
        garbage[name][tuple(map(slice, value.shape))] = value
    return garbage


def _cut(array: np.ndarray, spec: TensorSpec, sizes: Mapping[str, int]) -> np.ndarray:
    return array[tuple(slice(evaluate(dim, sizes)) for dim in spec.shape)]
