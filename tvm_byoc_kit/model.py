"""An imported model: the module, its signature, and a reference to compare with."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from tvm_byoc_kit import native
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.rewriting import host_functions
from tvm_byoc_kit.signature import TensorSpec, function_signature

if TYPE_CHECKING:
    import numpy as np
    from tvm import IRModule

    from tvm_byoc_kit.prepare_report import PrepareReport

__all__ = ["ImportedModel", "Reference", "as_model", "kind_of", "load_model"]


@dataclass(frozen=True)
class Reference:
    """The model's original framework, to compare results with.

    Parameters
    ----------
    name : str
        ``onnxruntime`` or ``torch``.
    run : callable
        Takes arrays by input name, gives arrays by output name.
    """

    name: str
    run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class ImportedModel:
    """A model as Relax, with names for its inputs and outputs.

    Parameters
    ----------
    mod : tvm.IRModule
        The module; parameters of ONNX and PyTorch models are constants in it.
    inputs, outputs : tuple of TensorSpec
        Names, shapes and dtypes, in calling order.
    source : str
        ``onnx``, ``torch`` or ``relax``.
    entry : str
        The Relax function to run.
    origin : str
        The file or class it came from.
    reference : Reference, optional
        Runs the model in its original framework.
    report : PrepareReport, optional
        What was done to the module since it was imported.
    unprepared : tvm.IRModule, optional
        The module before `prepare`.
    """

    mod: IRModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    source: str
    entry: str = "main"
    origin: str = ""
    reference: Reference | None = None
    report: PrepareReport | None = None
    unprepared: IRModule | None = None


def load_model(
    model: Any,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    simplify: Literal["auto"] | bool = "auto",
    entry: str | None = None,
) -> ImportedModel:
    """Import a model into Relax: ``load_model(path, shapes)``, ``load_model(module, inputs)``.

    For ONNX the second and third places are `shapes` and `simplify`, for PyTorch `example_inputs`
    and `dynamic_shapes`; each can be given by name, too.

    Parameters
    ----------
    model : str, os.PathLike, onnx.ModelProto, torch.nn.Module, ExportedProgram or tvm.IRModule
        A path names an ONNX file, or an ExportedProgram saved as ``.pt2``.
    example_inputs : sequence of torch.Tensor, optional
        For an ``nn.Module``: the inputs it is traced with.
    shapes : mapping of input name to shape, optional
        For ONNX: shapes of the inputs that are dynamic in the file; a string is the name of a
        dimension that stays open, the same string the same size: ``{"x": ("batch", 3, 224, 224)}``.
    simplify : "auto" or bool
        For ONNX: whether onnxsim simplifies the model first. It runs in another process, its result
        is compared with the original in ONNX Runtime, and what fails is imported as it was, with a
        warning. ``auto``: where both packages are installed, all shapes are fixed, the weights
        are below 512 MiB, and something that depends on shapes is left that the kit's own folding
        does not compute, or TVM does not take the model as it is.
    dynamic_shapes : optional
        For an ``nn.Module``: passed to ``torch.export.export``.
    entry : str, optional
        For an IRModule: the function to run; by default ``main``, or the only Relax function.

    Raises
    ------
    ModelError
        When the model is of no such kind or cannot be imported, or an argument does not apply.
    """
    kind = kind_of(model)
    if kind == "onnx" and isinstance(example_inputs, Mapping):  # load_model(path, shapes, ...)
        shapes, example_inputs = example_inputs, None
    if kind == "onnx" and isinstance(dynamic_shapes, (bool, str)):  # load_model(path, shapes, True)
        simplify, dynamic_shapes = cast("Literal['auto'] | bool", dynamic_shapes), None
    _check_arguments(
        kind,
        example_inputs=example_inputs,
        shapes=shapes or None,
        simplify=None if simplify == "auto" else simplify,
        dynamic_shapes=dynamic_shapes,
        entry=entry,
    )
    if isinstance(model, ImportedModel):
        return model
    if native.is_runtime_only():
        raise ModelError(
            "this process has TVM's runtime alone, which imports and compiles no model; start it "
            "without TVM_USE_RUNTIME_LIB=1"
        )
    if kind == "relax":
        return _from_relax(model, entry)
    if kind == "onnx":
        from tvm_byoc_kit.frontends.onnx import import_onnx

        return import_onnx(model, shapes, simplify)
    from tvm_byoc_kit.frontends.torch import import_torch

    return import_torch(model, example_inputs, dynamic_shapes)


# What load_model's arguments apply to.
_ARGUMENTS = {
    "relax": ("entry",),
    "onnx": ("shapes", "simplify"),
    "torch": ("example_inputs", "dynamic_shapes"),
    "imported": (),
}


def _check_arguments(kind: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None and name not in _ARGUMENTS[kind]:
            owner = next(owner for owner, names in _ARGUMENTS.items() if name in names)
            raise ModelError(f"`{name}` is for {owner} models; this one is {kind}")


def as_model(model: Any) -> ImportedModel:
    """`model` itself, or a plain IRModule as a model; what every later stage accepts."""
    return load_model(model)


def kind_of(model: Any) -> str:
    """``onnx``, ``torch``, ``relax`` or ``imported``: what `load_model` takes `model` for.

    Raises
    ------
    ModelError
        When it is nothing of these.
    """
    if isinstance(model, ImportedModel):
        return "imported"
    if isinstance(model, (str, os.PathLike)):
        return "torch" if os.fspath(model).endswith(".pt2") else "onnx"
    names = {f"{cls.__module__.split('.')[0]}.{cls.__name__}" for cls in type(model).__mro__}
    for name, kind in _KINDS.items():
        if name in names:
            return kind
    raise ModelError(
        f"cannot load a {type(model).__name__}; expected the path of an ONNX or .pt2 file, an "
        "onnx.ModelProto, a torch.nn.Module with example_inputs, a torch ExportedProgram or a "
        "tvm.IRModule"
    )


_KINDS = {
    "tvm.IRModule": "relax",
    "onnx.ModelProto": "onnx",
    "torch.Module": "torch",
    "torch.ExportedProgram": "torch",
}


def _from_relax(mod: IRModule, entry: str | None) -> ImportedModel:
    name = entry or _find_entry(mod)
    inputs, outputs = function_signature(mod, name)
    return ImportedModel(mod=mod, inputs=inputs, outputs=outputs, source="relax", entry=name)


def _find_entry(mod: IRModule) -> str:
    names = [str(var.name_hint) for var, _ in host_functions(mod)]
    if "main" in names:
        return "main"
    if len(names) == 1:
        return names[0]
    found = ", ".join(names) or "none"
    raise ModelError(
        f"the module has no function `main` and its Relax functions are: {found}; name the one to "
        "run with load_model(mod, entry=...)"
    )
