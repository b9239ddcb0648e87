"""The inputs' shapes: fixed by the file or the user, or open under a name that the user gave."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral

import onnx

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import scopes
from tvm_byoc_kit.frontends.onnx.reading import structure_of
from tvm_byoc_kit.frontends.onnx.structure import model_inputs, show_inputs, type_label

__all__ = ["Shape", "fix_shapes", "infer_types", "is_static", "opened_shapes", "write_shapes"]

Shape = tuple[int | str, ...]


def fix_shapes(
    model: onnx.ModelProto, shapes: Mapping[str, Sequence[int | str]], origin: str
) -> dict[str, Shape]:
    """Write `shapes` into the model's inputs; gives the shape of every input.

    A size given for a named dimension also holds where another input has the same name.

    Raises
    ------
    ModelError
        When `shapes` names no input or has another rank or size, or a dimension stays unknown.
    """
    inputs = {value.name: value for value in model_inputs(model.graph)}
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelError(
                f"shapes names '{name}', which is no input of the model; inputs: "
                f"{show_inputs(model.graph)}"
            )
        _check_shape(name, shape, inputs[name])
    sizes = _named_sizes(inputs, shapes)
    fixed = {name: _resolve(value, shapes.get(name), sizes) for name, value in inputs.items()}
    unknown = [inputs[name] for name, shape in fixed.items() if shape is None or None in shape]
    if unknown:
        raise ModelError(_demand(unknown, list(inputs.values()), origin))
    result = {
        name: tuple(dim for dim in shape or () if dim is not None) for name, shape in fixed.items()
    }
    write_shapes(model, result)
    return result


def opened_shapes(
    model: onnx.ModelProto, names: Collection[str], batch: bool, given: Collection[str]
) -> dict[str, Shape]:
    """Shapes of the inputs whose dimensions are fixed but for `names`, and axis 0 if `batch`.

    Those `given` otherwise are left out.

    Where axis 0 is open nowhere, the named dimensions of the others stay open, so that it can be
    said which of them the batch may be.

    Raises
    ------
    ModelError
        When an input has such a dimension, and another one of unknown size.
    """
    inputs = [value for value in model_inputs(model.graph) if value.name not in given]
    declared = [_declared(value) or [] for value in inputs]
    if batch and all(isinstance(dim, int) for dims in declared for dim in dims[:1]):
        usable = (dim for dims in declared for dim in dims if isinstance(dim, str))
        names = {*names, *(dim for dim in usable if dim.isidentifier())}
    opened = [
        [
            dim if isinstance(dim, int) or dim in names else _batch_name(dim, axis, batch)
            for axis, dim in enumerate(dims)
        ]
        for dims in declared
    ]
    partly = [
        (value, shape)
        for value, shape in zip(inputs, opened, strict=True)
        if None in shape and any(isinstance(dim, str) for dim in shape)
    ]
    if partly:
        raise ModelError(_demand_others(partly))
    return {
        value.name: tuple(dim for dim in shape if dim is not None)
        for value, shape in zip(inputs, opened, strict=True)
        if any(isinstance(dim, str) for dim in shape)
    }


def _demand_others(partly: Sequence[tuple[onnx.ValueInfoProto, Sequence[int | str | None]]]) -> str:
    filled = {
        value.name: _filled(shape, _example(value, symbolic=False)) for value, shape in partly
    }
    others = {
        dim
        for value, shape in partly
        for dim, known in zip(_declared(value) or (), shape, strict=True)
        if known is None and isinstance(dim, str) and dim.isidentifier()
    }
    named = ", ".join(f"{dim!r}: Buckets(32, 64, 128)" for dim in sorted(others))
    buckets = " ".join(f"--bucket {dim}=32,64,128" for dim in sorted(others))
    return (
        f"the model does not fix the shape of {', '.join(type_label(value) for value, _ in partly)}"
        f"; give the other sizes too: load_model(..., shapes={filled})"
        + (f", or sizes={{{named}}}" if others else "")
        + f". On the command line: {_options(filled)}"
        + (f", or {buckets}" if others else "")
    )


def _filled(shape: Sequence[int | str | None], example: Shape) -> Shape:
    return tuple(size if dim is None else dim for dim, size in zip(shape, example, strict=True))


def _batch_name(dim: str | None, axis: int, batch: bool) -> str | None:
    if axis or not batch:
        return None
    named = dim and dim.isidentifier() and not dim.startswith("unk__")  # tf2onnx has no names
    return str(dim) if named else "batch"


def write_shapes(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> None:
    """Give the inputs named in `shapes` these shapes."""
    for value in model.graph.input:
        if value.name in shapes:
            _write_shape(value, shapes[value.name])


def is_static(shapes: Mapping[str, Shape]) -> bool:
    """Whether no dimension is open."""
    return all(isinstance(dim, int) for shape in shapes.values() for dim in shape)


def _check_shape(name: str, shape: Sequence[int | str], value: onnx.ValueInfoProto) -> None:
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Sequence):
        raise ModelError(
            f"shapes['{name}'] is {shape!r}; expected a tuple of sizes, such as (1, 3, 224, 224)"
        )
    where = f"shapes['{name}'] = {list(shape)}"
    declared = _declared(value)
    if declared is not None and len(shape) != len(declared):
        raise ModelError(
            f"{where} has rank {len(shape)}, the input has rank {len(declared)}: "
            f"{type_label(value)}"
        )
    for axis, size in enumerate(shape):
        known = declared[axis] if declared is not None else None
        if isinstance(size, str):
            if not size.isidentifier():
                raise ModelError(
                    f"{where}: axis {axis} is {size!r}; the name of a dimension that stays open "
                    "is made of letters, digits and underscores"
                )
        elif not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise ModelError(
                f"{where}: axis {axis} is {size!r}, expected an integer >= 1, or a name"
            )
        if isinstance(known, int) and (isinstance(size, str) or size != known):
            raise ModelError(f"{where}: axis {axis} is {size!r}, the model has it fixed to {known}")


def _declared(value: onnx.ValueInfoProto) -> list[int | str | None] | None:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return None
    return [
        # Exporters of Paddle write -1 or "?" for an open dimension.
        dim.dim_value
        if dim.HasField("dim_value") and dim.dim_value >= 0
        else (dim.dim_param.strip("?") or None)
        for dim in tensor.shape.dim
    ]


def _named_sizes(
    inputs: Mapping[str, onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int | str]]
) -> dict[str, int | str]:
    """What `shapes` says about the file's named dimensions."""
    sizes: dict[str, int | str] = {}
    givers: dict[str, str] = {}
    for name, shape in shapes.items():
        for known, size in zip(_declared(inputs[name]) or (), shape, strict=False):
            if not isinstance(known, str):
                continue
            chosen = size if isinstance(size, str) else int(size)
            if sizes.setdefault(known, chosen) != chosen:
                raise ModelError(
                    f"shapes gives the dimension `{known}` as {sizes[known]!r} in "
                    f"'{givers[known]}' and as {chosen!r} in '{name}'; the model says they are "
                    f"equal. Inputs: {', '.join(map(type_label, inputs.values()))}"
                )
            givers.setdefault(known, name)
    return sizes


def _resolve(
    value: onnx.ValueInfoProto,
    shape: Sequence[int | str] | None,
    sizes: Mapping[str, int | str],
) -> list[int | str | None] | None:
    if shape is not None:
        return [size if isinstance(size, str) else int(size) for size in shape]
    declared = _declared(value)
    if declared is None:
        return None
    return [sizes.get(dim) if isinstance(dim, str) else dim for dim in declared]


def _demand(
    unknown: Sequence[onnx.ValueInfoProto], inputs: Sequence[onnx.ValueInfoProto], origin: str
) -> str:
    fixed, named = (
        ", ".join(f"{value.name!r}: {_example(value, symbolic)}" for value in unknown)
        for symbolic in (False, True)
    )
    others = len(inputs) - len(unknown)
    return (
        f"{origin} does not fix the shape of {', '.join(map(type_label, unknown))}"
        f"{f' (inputs with a fixed shape: {others})' if others else ''}. Give the sizes: "
        f"load_model(..., shapes={{{fixed}}}), or a name for each dimension that stays open: "
        f"shapes={{{named}}}. On the command line: "
        f"{_options({value.name: _example(value, symbolic=False) for value in unknown})}"
    )


def _example(value: onnx.ValueInfoProto, symbolic: bool) -> Shape:
    declared = _declared(value)
    if declared is None:
        return ("batch" if symbolic else 1, 3, 224, 224)
    size = {4: 224, 5: 32}.get(len(declared), 128)
    example: list[int | str] = []
    for axis, dim in enumerate(declared):
        if isinstance(dim, int):
            example.append(dim)
        elif symbolic:
            usable = isinstance(dim, str) and dim.isidentifier()
            example.append(str(dim) if usable else f"dim{axis}")
        else:
            example.append(1 if axis == 0 else size)
    return tuple(example)


def _options(shapes: Mapping[str, Shape]) -> str:
    return " ".join(f"--shape {name}:{','.join(map(str, shape))}" for name, shape in shapes.items())


def _write_shape(value: onnx.ValueInfoProto, shape: Shape) -> None:
    target = value.type.tensor_type.shape
    target.Clear()
    value.type.tensor_type.shape.SetInParent()
    for size in shape:
        if isinstance(size, str):
            target.dim.add(dim_param=size)
        else:
            target.dim.add(dim_value=size)


def infer_types(model: onnx.ModelProto) -> None:
    """Fill value_info, and the outputs' shapes, from the inputs' shapes and small constants.

    What the file says about values in between is dropped first: it may be of other input shapes.
    """
    light = structure_of(model)
    for scope in scopes(light):
        del scope.graph.value_info[:]
    for output in light.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True)
    except Exception:  # noqa: BLE001  a type error in the model: the conversion names the node
        return
    model.graph.value_info.extend(inferred.graph.value_info)
    for own, found in zip(model.graph.output, inferred.graph.output, strict=True):
        if found.type.tensor_type.HasField("shape"):
            own.type.CopyFrom(found.type)
    _copy_bodies(model.graph, inferred.graph)


def _copy_bodies(own: onnx.GraphProto, inferred: onnx.GraphProto) -> None:
    for mine, theirs in zip(own.node, inferred.node, strict=True):
        for attribute, source in zip(mine.attribute, theirs.attribute, strict=True):
            if attribute.type == attribute.GRAPH:
                attribute.g.CopyFrom(source.g)
