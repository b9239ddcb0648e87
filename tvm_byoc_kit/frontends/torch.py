"""PyTorch modules through `torch.export` and TVM's importer, with PyTorch as their reference."""

from __future__ import annotations

import functools
import os
import zipfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.model import ImportedModel, Reference
from tvm_byoc_kit.preparation import prepare
from tvm_byoc_kit.signature import function_signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np


def import_torch(
    source: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any
) -> ImportedModel:
    """Import an ``nn.Module`` (traced with `example_inputs`), an ExportedProgram or a .pt2 file.

    Raises
    ------
    ModelError
        When torch is not installed, example inputs are missing, or export or import fails.
    """
    missing = probe("torch")
    if not missing:
        raise ModelError(f"PyTorch models need torch: {missing.remedy}")
    program, origin = _export(source, example_inputs, dynamic_shapes)
    mod = prepare(_convert(program, origin))
    ins, outs = function_signature(mod, "main")
    run = functools.partial(
        _run_torch, program.module(), [i.name for i in ins], [o.name for o in outs]
    )
    return ImportedModel(
        mod, ins, outs, source="torch", origin=origin, reference=Reference("torch", run)
    )


def _export(
    source: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any
) -> tuple[Any, str]:
    import torch

    if isinstance(source, torch.export.ExportedProgram):
        return source, "ExportedProgram"
    if isinstance(source, (str, os.PathLike)):
        return _read(Path(source)), str(source)
    name = type(source).__name__
    if example_inputs is None:
        raise ModelError(
            f"{name} is a torch.nn.Module; give the inputs it is traced with: "
            "load_model(module, (torch.randn(1, 3, 224, 224),))"
        )
    inputs = example_inputs if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    try:
        with torch.no_grad(), _inference_mode(source):
            exported = torch.export.export(source, tuple(inputs), dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises many unrelated types
        raise ModelError(f"torch.export cannot trace {name}: {_last_line(error)}") from error
    return exported, name


def _read(path: Path) -> Any:
    import torch

    if not path.is_file():
        raise ModelError(f"no such model file: {path}")
    if not zipfile.is_zipfile(path):  # torch would log a traceback of its own
        raise ModelError(f"{path} is not an ExportedProgram: it is no archive, or truncated")
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many unrelated types
        raise ModelError(
            f"{path} is not an ExportedProgram: {_last_line(error)}; write it with "
            "torch.export.save(torch.export.export(module, inputs), path)"
        ) from error


@contextmanager
def _inference_mode(module: Any) -> Iterator[None]:
    """Switch dropout and batch normalization to inference, and back afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def _convert(program: Any, origin: str) -> Any:
    from tvm.relax.frontend.torch import from_exported_program

    single = len(program.graph_signature.user_outputs) == 1
    try:
        return from_exported_program(program, unwrap_unit_return_tuple=single)
    except Exception as error:  # the importer raises whatever its converters do
        raise ModelError(f"TVM cannot import {origin}: {_last_line(error)}") from error


def _run_torch(
    module: Any, inputs: list[str], outputs: list[str], values: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    import torch
    from torch.utils._pytree import tree_leaves

    missing = [name for name in inputs if name not in values]
    if missing:
        raise ModelError(f"the torch model has inputs that are not given: {', '.join(missing)}")
    try:
        with torch.no_grad():
            results = module(*(torch.from_numpy(values[name]) for name in inputs))
    except Exception as error:  # torch raises many unrelated types
        raise ModelError(f"PyTorch cannot run the model: {_last_line(error)}") from error
    flat = [results] if isinstance(results, torch.Tensor) else tree_leaves(results)
    return {name: result.numpy() for name, result in zip(outputs, flat, strict=True)}


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"
