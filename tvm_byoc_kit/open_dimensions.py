"""Which open dimension of a model the sizes are for, and what may be done along it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.buckets import Buckets, Profile
from tvm_byoc_kit.errors import ModelError, OptionError, did_you_mean
from tvm_byoc_kit.model import kind_of
from tvm_byoc_kit.row_independence import why_dependent
from tvm_byoc_kit.variants import OpenDimension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm_byoc_kit.buckets import Sizes
    from tvm_byoc_kit.model import ImportedModel

__all__ = [
    "along",
    "batch_dimension",
    "in_ranges",
    "named_sizes",
    "shapes_for",
    "smallest_size",
]


def shapes_for(
    model: Any,
    batch: Buckets | Profile | None,
    sizes: Sizes | None,
    given: Mapping[str, Sequence[int | str]] | None = None,
) -> dict[str, Sequence[int | str]]:
    """The `shapes` to load a model with, if it is ONNX, so that what is given sizes stays open.

    Those `given` are among them as they are.

    Raises
    ------
    ModelError
        When other dimensions are open, too, or none that is the batch.
    """
    names, shapes = _by_name(sizes).keys(), dict(given or {})
    if (batch is None and not names) or kind_of(model) != "onnx":
        return shapes
    from tvm_byoc_kit.frontends.onnx import open_shapes

    opened = open_shapes(model, names, batch is not None, shapes)
    if batch is not None and not shapes and opened:
        _require_batch(opened, batch, "")
    return opened | shapes


def _by_name(sizes: Sizes | None) -> Sizes:
    if not isinstance(sizes, (Mapping, type(None))):
        raise OptionError(f"sizes is {sizes!r}; expected a mapping, {{'seq': Buckets(32, 64)}}")
    return sizes or {}


def named_sizes(
    model: ImportedModel, batch: Buckets | Profile | None, sizes: Sizes | None
) -> dict[str, Buckets | Profile]:
    """What `compile` was given, by the names that the model's dimensions have.

    Raises
    ------
    ModelError
        When the inputs have no such dimension, or none that is the batch.
    OptionError
        For sizes that are given twice, that are no `Buckets` or `Profile`, or that the model does
        not take.
    """
    named = dict(_by_name(sizes))
    if batch is not None:
        name = batch_dimension(model, batch)
        if name in named:
            raise OptionError(
                f"batch= and sizes= both give sizes for '{name}'; leave one of them out"
            )
        named[name] = batch
    known = _open_dimensions(model)
    for name, given in named.items():
        if not isinstance(given, (Buckets, Profile)):
            raise OptionError(
                f"the sizes of '{name}' are {given!r}; expected byoc.Buckets(1, 4, 8) or "
                "byoc.Profile(1, 8, 32)"
            )
        if name not in known:
            raise ModelError(_unknown(name, known, model))
        _check_bounds(model, name, given)
    return named


def batch_dimension(model: ImportedModel, batch: Buckets | Profile) -> str:
    """The name of the dimension on axis 0 of the inputs, where it is open and no product.

    `batch` is what it is to get, for the message.

    Raises
    ------
    ModelError
        When all inputs have a fixed axis 0, or there are several names.
    """
    shapes = {spec.name: spec.shape for spec in model.inputs}
    _require_batch(shapes, batch, _remedy(model))
    leading = {name: shape[0] for name, shape in shapes.items() if shape}
    names = {name: dim for name, dim in leading.items() if _is_name(dim)}
    if len(set(names.values())) > 1:
        found = ", ".join(f"{name}: {dim}" for name, dim in names.items())
        raise ModelError(
            f"the inputs have different dimensions on axis 0 ({found}), so none is the batch; name "
            "them: sizes={"
            + ", ".join(f"{dim!r}: ..." for dim in dict.fromkeys(names.values()))
            + "}"
        )
    return str(next(iter(names.values())))


def along(
    model: ImportedModel, name: str, given: Buckets | Profile, leaves_open: bool
) -> OpenDimension:
    """What may be done along the dimension `name` where each size in `given` is a build.

    `leaves_open`: whether there is a build too in which no size is fixed, which takes those sizes
    that the model says.

    Raises
    ------
    ModelError
        When padding is wanted, and rows along the dimension depend on each other.
    OptionError
        For a mask that is no input with that dimension.
    """
    if isinstance(given, Profile):
        return OpenDimension(smallest=given.min, largest=given.max)
    if given.pad is True:
        _require_independence(model, name)
    fill = dict(given.pad) if isinstance(given.pad, Mapping) else {}
    if isinstance(given.pad, Mapping):
        _check_masks(model, name, fill)
    bounds = _bounds(model, name)
    split = given.pad is True and _is_batch(model, name)
    return OpenDimension(
        pad=given.pad is not False,
        split=split,
        fill=fill,
        smallest=bounds.smallest if leaves_open else 1,
        largest=bounds.largest if split or given.fallback is not None else given.sizes[-1],
    )


def in_ranges(model: ImportedModel, name: str, given: Buckets | Profile) -> OpenDimension:
    """What may be done along the dimension `name` where one build takes every size in `given`."""
    if isinstance(given, Profile):
        return along(model, name, given, leaves_open=True)
    wanted = given.pad is True and _is_batch(model, name)
    split = wanted and why_dependent(model, name) is None
    smallest = smallest_size(model, name)
    return OpenDimension(split=split, smallest=smallest, largest=given.sizes[-1])


def smallest_size(model: ImportedModel, name: str) -> int:
    """Of the dimension `name`, as far as the model says."""
    return _bounds(model, name).smallest


def _is_batch(model: ImportedModel, name: str) -> bool:
    return {spec.shape[0] for spec in model.inputs if spec.shape and name in spec.shape} == {name}


def _require_independence(model: ImportedModel, name: str) -> None:
    why = why_dependent(model, name)
    if why is not None:
        raise ModelError(
            f"sizes along '{name}' cannot be padded: {why}. Give Buckets(..., pad=False, "
            'fallback="symbolic"), or, where an input masks what is padded, what it is filled '
            "with: pad={'attention_mask': 0}"
        )


def _check_masks(model: ImportedModel, name: str, fill: Mapping[str, float]) -> None:
    inputs = [spec.name for spec in model.inputs if name in spec.shape]
    if not fill or not set(fill) <= set(inputs):
        raise OptionError(
            f"pad={fill!r} along '{name}': expected the inputs that mask what is padded, of "
            f"{', '.join(inputs)}, each with the number that does so"
        )


@dataclass(frozen=True)
class _Bounds:
    smallest: int
    largest: int | None


def _bounds(model: ImportedModel, name: str) -> _Bounds:
    """What the model itself says of its sizes, as ``torch.export.Dim`` does."""
    attrs = model.mod[model.entry].attrs or {}
    lower, upper = (attrs.get(f"tir_var_{end}_bound") or {} for end in ("lower", "upper"))
    largest = upper.get(name)
    return _Bounds(max(1, int(lower.get(name, 1))), None if largest is None else int(largest))


def _check_bounds(model: ImportedModel, name: str, given: Buckets | Profile) -> None:
    bounds = _bounds(model, name)
    sizes = given.sizes if isinstance(given, Buckets) else (given.min, given.max)
    above = "" if bounds.largest is None else f" to {bounds.largest}"
    for size in sizes:
        if size < bounds.smallest or (bounds.largest is not None and size > bounds.largest):
            raise OptionError(
                f"size {size} of '{name}': the model was exported for {bounds.smallest}"
                f"{above or ' and more'}; leave it out, or export the model with "
                f"torch.export.Dim('{name}', min={min(sizes)}, max={max(sizes)})"
            )


def _open_dimensions(model: ImportedModel) -> tuple[str, ...]:
    dims = (dim for spec in model.inputs for dim in spec.shape)
    return tuple(dict.fromkeys(str(dim) for dim in dims if _is_name(dim)))


def _is_name(dim: int | str) -> bool:
    """Whether a dimension is open by itself, and not computed from others, as ``2 * n`` is."""
    return isinstance(dim, str) and dim.isidentifier()


def _unknown(name: str, known: tuple[str, ...], model: ImportedModel) -> str:
    found = f"open are: {', '.join(known)}" if known else f"none is open; {_remedy(model)}"
    return f"the model's inputs have no open dimension '{name}'{did_you_mean(name, known)}; {found}"


def _require_batch(
    shapes: Mapping[str, Sequence[int | str]], batch: Buckets | Profile, remedy: str
) -> None:
    """Refuses inputs of which none has an open axis 0, and says which other axes are open."""
    if any(_is_name(dim) for shape in shapes.values() for dim in shape[:1]):
        return
    others = {
        dim: f"'{dim}' is on axis {axis} of {name}: give sizes={{{dim!r}: {batch!r}}} instead"
        for name, shape in reversed(list(shapes.items()))
        for axis, dim in enumerate(shape)
        if _is_name(dim)
    }
    inputs = "; ".join(f"{name}: [{', '.join(map(str, shape))}]" for name, shape in shapes.items())
    raise ModelError(
        f"batch= is for a model whose axis 0 is open, and the inputs are {inputs}; "
        f"{' or '.join(others.values()) or remedy}"
    )


def _remedy(model: ImportedModel) -> str:
    """How to import the model with an open axis 0."""
    first = next((spec for spec in model.inputs if spec.shape), None)
    if model.source == "torch":
        return "load it with dynamic_shapes=({0: torch.export.Dim('batch')},)"
    if model.source == "onnx" and first is not None:
        shape = ("batch", *first.shape[1:])
        return f"load it with shapes={{{first.name!r}: {shape!r}}}"
    return 'annotate it with a symbol, such as R.Tensor(("batch", 3, 224, 224), "float32")'
