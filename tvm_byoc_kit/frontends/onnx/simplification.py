"""Simplification by onnxsim: in a child process, and only where the result is the same model.

With ``simplify="auto"`` a model is simplified when onnxsim and onnxruntime are installed, every
input shape is fixed, the weights are below :data:`AUTO_BYTES`, and either something is left that
depends on shapes and that the kit's own folding (rewrites/fold.py) does not compute, or
TVM does not take the model as it is. What onnxsim cannot do costs a warning and no more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import onnx

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.graph_tools import scopes
from tvm_byoc_kit.frontends.onnx.reading import ModelSource, weight_bytes
from tvm_byoc_kit.frontends.onnx.rewrites.constants import rewrite as write_constants
from tvm_byoc_kit.frontends.onnx.rewrites.fold import rewrite as fold
from tvm_byoc_kit.frontends.onnx.scan import unsupported_operators
from tvm_byoc_kit.frontends.onnx.shapes import Shape, is_static
from tvm_byoc_kit.frontends.onnx.structure import check_structure

__all__ = ["AUTO_BYTES", "TIMEOUT_S", "Simplifier", "Simplify"]

Simplify = Literal["auto"] | bool

AUTO_BYTES = 512 * 2**20
TIMEOUT_S = 300.0
# What protobuf can write in one piece, with room for the graph.
_INLINE_BYTES = 2**31 - 2**24

_CHILD = Path(__file__).with_name("simplify_child.py")
# Sizes and conditions, some of which onnxsim finds out where the kit's own folding does not.
_FOLDABLE = {"Shape", "Size", "If", "Loop", "ConstantOfShape", "Range", "NonZero", "EyeLike"}


class Simplifier:
    """Decides about simplification, and does it.

    Parameters
    ----------
    choice : "auto", True or False
        True simplifies without regard to size and use, and also with open dimensions.

    Raises
    ------
    ModelError
        When `choice` is something else, or True and onnxsim or onnxruntime is not installed.
    """

    def __init__(self, choice: Simplify) -> None:
        if choice not in ("auto", True, False):
            raise ModelError(f"simplify is {choice!r}; expected 'auto', True or False")
        self._choice = choice
        missing = [status for status in map(probe, ("onnxsim", "onnxruntime")) if not status]
        if missing and choice is True:
            remedies = "; ".join(status.remedy for status in missing)
            raise ModelError(
                f"simplify=True needs onnxsim, and onnxruntime to check it: {remedies}"
            )
        self._possible = choice is not False and not missing

    def wants(self, source: ModelSource, shapes: Mapping[str, Shape]) -> bool:
        """Whether to simplify before the import is tried; folds what the kit can fold first."""
        if not self._possible or self._choice is True:
            return self._possible
        return self._fits(source, shapes) and _folds_more(source)

    def may_help(self, source: ModelSource, shapes: Mapping[str, Shape]) -> bool:
        """Whether to simplify a model that could not be imported as it is."""
        several = len(source.proto.graph.node) > 1
        return self._possible and several and self._fits(source, shapes)

    def _fits(self, source: ModelSource, shapes: Mapping[str, Shape]) -> bool:
        return is_static(shapes) and weight_bytes(source.proto) <= AUTO_BYTES

    def run(self, source: ModelSource, shapes: Mapping[str, Shape], *, edited: bool) -> bool:
        """Replace `source.proto` by what onnxsim makes of it, or leave it and warn why.

        Parameters
        ----------
        source : ModelSource
        shapes : mapping of name to shape
            Of every input.
        edited : bool
            Whether `source.proto` is another model than the one that `source.path` holds.

        Returns
        -------
        bool
            Whether it was replaced.
        """
        with tempfile.TemporaryDirectory(prefix="tvm_byoc_kit_") as folder:
            refusal = _simplify(source, shapes, Path(folder), edited=edited)
        if refusal:
            warnings.warn(
                f"{source.name} is imported as it is, not simplified: {refusal}", stacklevel=2
            )
        return not refusal


def _folds_more(source: ModelSource) -> bool:
    """Whether something that depends on shapes is left after the kit's own folding."""
    write_constants(source.proto)
    fold(source.proto)
    return any(
        node.op_type in _FOLDABLE for scope in scopes(source.proto) for node in scope.graph.node
    )


def _simplify(
    source: ModelSource, shapes: Mapping[str, Shape], folder: Path, *, edited: bool
) -> str:
    """The reason why the result was not taken; empty when `source.proto` is now simplified."""
    original, refusal = _file_of(source, folder, edited=edited)
    if refusal:
        return refusal
    simplified, answer, request = (
        folder / name for name in ("simplified.onnx", "answer.json", "request.json")
    )
    asked = {
        "original": str(original),
        "simplified": str(simplified),
        "answer": str(answer),
        "shapes": {name: shape for name, shape in shapes.items() if is_static({name: shape})},
        "compare": is_static(shapes),
    }
    request.write_text(json.dumps(asked), encoding="utf-8")
    refusal = _run(request, answer)
    if refusal:
        return refusal
    try:
        result = onnx.load(simplified)
    except Exception as error:  # noqa: BLE001  as in reading.read
        return f"onnxsim's result cannot be read: {error}"
    return _accept(source, result)


def _file_of(source: ModelSource, folder: Path, *, edited: bool) -> tuple[Path, str]:
    """A file with the model: the user's own where it is unchanged, so that nothing is copied."""
    if source.path is not None and not edited:
        return source.path.resolve(), ""
    if weight_bytes(source.proto) > _INLINE_BYTES:
        return folder, "it is larger than 2 GB and had to be changed first"
    source.load_weights()
    path = folder / "original.onnx"
    onnx.save(source.proto, path)
    return path, ""


def _run(request: Path, answer: Path) -> str:
    command = [sys.executable, str(_CHILD), str(request)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            cwd=request.parent,
        )
    except subprocess.TimeoutExpired:
        return f"onnxsim took more than {TIMEOUT_S:g} s"
    if done.returncode < 0:
        return f"onnxsim was killed by {_signal_name(-done.returncode)}"
    if done.returncode or not answer.is_file():
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        return f"onnxsim's process ended with status {done.returncode}: {last}"
    refusal: str = json.loads(answer.read_text(encoding="utf-8"))["refusal"]
    return refusal


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _accept(source: ModelSource, result: onnx.ModelProto) -> str:
    before, after = source.proto.graph, result.graph
    for field in ("input", "output"):
        kept = [value.name for value in getattr(after, field)]
        initializers = {tensor.name for tensor in before.initializer}
        own = [value.name for value in getattr(before, field) if value.name not in initializers]
        if [name for name in kept if name not in initializers] != own:
            return f"onnxsim changed the model's {field}s"
    if new := unsupported_operators(result):
        return f"onnxsim made what cannot be imported: {new[0]}"
    try:
        check_structure(result)
    except ModelError as error:
        return f"onnxsim's result is broken: {error}"
    source.proto = result
    return ""
