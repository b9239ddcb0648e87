"""torch.export, with its errors in one line."""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
import zipfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def export(
    source: Any, example_inputs: Sequence[Any] | None, dynamic_shapes: Any
) -> tuple[torch.export.ExportedProgram, str]:
    """The exported program of `source`, and what to call it in messages.

    Parameters
    ----------
    source : torch.nn.Module, torch.export.ExportedProgram, str or os.PathLike
    example_inputs : sequence, mapping or torch.Tensor, optional
        Positional arguments; or, as a mapping, keyword arguments.
    dynamic_shapes : optional
        As torch.export takes it.

    Raises
    ------
    ModelError
        When the module cannot be traced, the file not be read, or arguments do not apply.
    """
    if isinstance(source, (torch.export.ExportedProgram, str, os.PathLike)):
        is_file = not isinstance(source, torch.export.ExportedProgram)
        origin = str(source) if is_file else "ExportedProgram"
        for name, value in (("example_inputs", example_inputs), ("dynamic_shapes", dynamic_shapes)):
            if value is not None:
                raise ModelError(
                    f"{origin} is exported already; `{name}` applies to a torch.nn.Module only"
                )
        return (_read(Path(source)) if is_file else source), origin
    return _trace(source, example_inputs, dynamic_shapes), type(source).__name__


def _trace(module: Any, example_inputs: Any, dynamic_shapes: Any) -> torch.export.ExportedProgram:
    name = type(module).__name__
    if example_inputs is None:
        raise ModelError(
            f"{name} is a torch.nn.Module; give the inputs it is traced with: "
            "load_model(module, (torch.randn(1, 3, 224, 224),)), or by name as a dict"
        )
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    if isinstance(example_inputs, dict):
        kwargs = example_inputs
    elif isinstance(example_inputs, (tuple, list)):
        args = tuple(example_inputs)
    else:
        args = (example_inputs,)
    try:
        with torch.no_grad(), _inference_mode(module), quiet():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:  # torch.export raises many unrelated types
        raise ModelError(f"torch.export cannot trace {name}: {_distilled(error)}") from error


def _read(path: Path) -> torch.export.ExportedProgram:
    if not path.is_file():
        raise ModelError(f"no such model file: {path}")
    if not zipfile.is_zipfile(path):  # torch would log a traceback of its own
        raise ModelError(f"{path} is not an ExportedProgram: it is no archive, or truncated")
    try:
        return torch.export.load(path)
    except Exception as error:  # torch raises many unrelated types
        raise ModelError(
            f"{path} is not an ExportedProgram: {_distilled(error)}; write it with "
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


@contextmanager
def quiet() -> Iterator[None]:
    """Keep torch from writing failed graphs and warnings about itself; errors have it all."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    was_disabled, logger.disabled = logger.disabled, True
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.disabled = was_disabled


# What torch says in many lines, and what to do about it.
_REMEDIES = {
    r"data-dependent|GuardOnDataDependent|DataDependentOutput|Unbacked": (
        "its control flow or a shape depends on the values of tensors; compute both sides and "
        "choose with torch.where, use torch.cond, or move that part out of the model"
    ),
    r"Constraints violated|not all values of .* are valid": (
        "a dimension declared dynamic is fixed by the model; drop it from `dynamic_shapes`, or "
        "declare the range that torch suggests"
    ),
    r"dynamic_shapes": (
        "`dynamic_shapes` must have the structure of the inputs: a tuple with one entry for each, "
        "such as ({0: torch.export.Dim('batch')},)"
    ),
    r"numpy|\.item\(\)|tolist": (
        "keep the computation in torch ops: values that leave for Python or NumPy are not traced"
    ),
}


def _distilled(error: Exception) -> str:
    """One line of what torch said, the user's own line of code where torch names it, a remedy."""
    text = f"{type(error).__name__}: {error}"
    summary = _summary(error)
    line = re.search(r'File "([^"]+)", line (\d+), in (?!<)(\w+)', _user_part(text))
    where = f" (at {line[1]}:{line[2]}, in {line[3]})" if line else ""
    remedy = next((advice for pattern, advice in _REMEDIES.items() if re.search(pattern, text)), "")
    return f"{summary}{where}" + (f"; {remedy}" if remedy else "")


def _summary(error: Exception) -> str:
    """The first line that says what happened rather than where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = next(
        (line for line in lines if re.search("because|specialized|inferred", line)),
        lines[0] if lines else "",
    )
    return f"{type(error).__name__}: {first[:300]}"


def _user_part(text: str) -> str:
    """The last trace that is of the user's code: torch's own files are of no help."""
    places = re.findall(r'File "[^"]+", line \d+, in \S+', text)
    own = [place for place in places if "site-packages/torch/" not in place]
    return own[-1] if own else ""
