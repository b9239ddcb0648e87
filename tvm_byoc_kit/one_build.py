"""One of the builds that `compile` makes of a model whose sizes stay open."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.buckets import Buckets, Profile
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.input_checks import checked_inputs, symbol_sizes
from tvm_byoc_kit.model import load_model
from tvm_byoc_kit.open_dimensions import named_sizes, shapes_for
from tvm_byoc_kit.specialization import bound

if TYPE_CHECKING:
    from tvm_byoc_kit.model import ImportedModel

__all__ = ["one_build"]


def one_build(
    model: Any,
    batch: int | Buckets | Profile | None,
    sizes: Mapping[str, Any] | None,
    arrays: Mapping[str, Any] | None,
) -> tuple[ImportedModel, dict[str, Any]]:
    """The model of the build which calls with `arrays` run, or else calls with the sizes given.

    Parameters
    ----------
    model : what `load_model` takes alone
    batch, sizes
        As of `compile`; a number is the size of a build of its own as `batch`, and that of the
        calls in `sizes`.
    arrays : mapping of name to array, optional

    Returns
    -------
    ImportedModel
        With the sizes fixed that are so in that build.
    dict
        The sizes of calls, for what stays open.

    Raises
    ------
    ModelError
        When it is an artifact.
    OptionError
        When it is not said which of several builds, or when such calls have none of their own.
    """
    if isinstance(model, (str, os.PathLike)) and os.fspath(model).endswith(".so"):
        raise ModelError(
            f"{model} is an artifact, in which no op is left to look into; give the model that it "
            "was built from, with the same options"
        )
    along_axis_0 = Buckets(batch, pad=False) if isinstance(batch, int) else batch
    imported = load_model(model, shapes=shapes_for(model, along_axis_0, sizes))
    given = dict(sizes or {})
    builds = {name: of for name, of in given.items() if isinstance(of, (Buckets, Profile))}
    calls = {name: size for name, size in given.items() if name not in builds}
    named = named_sizes(imported, along_axis_0, builds)
    if not named:
        return imported, calls
    if arrays is not None:
        shapes = [array.shape for array in checked_inputs(imported.inputs, arrays)]
        calls = symbol_sizes(imported.inputs, shapes)
    for name in named.keys() - calls.keys():
        calls[name] = _only_size(name, named[name])
    buckets = {name: of for name, of in named.items() if isinstance(of, Buckets)}
    others = [name for name, of in buckets.items() if calls[name] not in of.sizes]
    if others and any(of.fallback for of in buckets.values()):
        return imported, calls
    for name in others:
        raise OptionError(
            f"inputs with {name}={calls[name]} have no build of their own: there is one for "
            f"{', '.join(map(str, buckets[name].sizes))}; give inputs of such a size"
        )
    fixed = {name: calls.pop(name) for name in buckets}
    return bound(imported, fixed), calls


def _only_size(name: str, of: Buckets | Profile) -> int:
    if isinstance(of, Profile):
        return of.opt
    if len(of.sizes) > 1:
        sizes = ", ".join(map(str, of.sizes))
        raise OptionError(
            f"Buckets({sizes}) are several builds, and bisect looks into one: give inputs of its "
            f"size, or one size: batch={of.sizes[0]} along axis 0, else sizes="
            f"{{{name!r}: Buckets({of.sizes[0]})}}"
        )
    return of.sizes[0]
