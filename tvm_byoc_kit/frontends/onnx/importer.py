"""ONNX models through TVM's importer, with ONNX Runtime as their reference."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.model import ImportedModel, Reference
from tvm_byoc_kit.negative_indices import normalize_negative_indices
from tvm_byoc_kit.preparation import tidy
from tvm_byoc_kit.signature import function_signature

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from tvm_byoc_kit.frontends.onnx.simplification import Simplify


def import_onnx(
    source: str | os.PathLike[str] | onnx.ModelProto,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    simplify: Simplify = "auto",
) -> ImportedModel:
    """Import an ONNX file or ModelProto; see :func:`tvm_byoc_kit.load_model` for the arguments.

    Raises
    ------
    ModelError
        When onnx is not installed, the model cannot be read or uses what cannot be imported,
        or `shapes` does not fit its inputs.
    """
    missing = probe("onnx")
    if not missing:
        raise ModelError(f"ONNX models need the onnx package: {missing.remedy}")
    from tvm_byoc_kit.frontends.onnx.pipeline import import_module  # imports onnx

    model, mod, outputs = import_module(source, shapes or {}, simplify)
    mod, report = tidy(normalize_negative_indices(mod))
    ins, outs = function_signature(mod, "main", outputs)
    runtime = _OnnxRuntime(model.original, model.name)
    run = functools.partial(runtime, [spec.name for spec in ins], outputs)
    return ImportedModel(
        mod,
        ins,
        outs,
        source="onnx",
        origin=str(model.path or model.proto.graph.name),
        reference=Reference("onnxruntime", run) if probe("onnxruntime") else None,
        report=report,
    )


def open_shapes(
    source: str | os.PathLike[str] | onnx.ModelProto,
    names: Collection[str],
    batch: bool,
    given: Collection[str] = (),
) -> dict[str, Sequence[int | str]]:
    """The `shapes` with which dimensions stay open: those of these `names`, and the `batch`.

    Inputs `given` otherwise are left out.

    Raises
    ------
    ModelError
        When the model cannot be read, or an input has other open dimensions, too.
    """
    if not probe("onnx"):
        return {}
    from tvm_byoc_kit.frontends.onnx.reading import read
    from tvm_byoc_kit.frontends.onnx.shapes import opened_shapes

    return dict(opened_shapes(read(source).proto, names, batch, given))


def onnx_reference(source: str | os.PathLike[str] | onnx.ModelProto) -> Reference:
    """The model in ONNX Runtime, to compare with; it is not imported into TVM.

    Raises
    ------
    ModelError
        When the model cannot be read.
    """
    from tvm_byoc_kit.frontends.onnx.reading import read
    from tvm_byoc_kit.frontends.onnx.structure import model_inputs

    model = read(source)
    inputs = [value.name for value in model_inputs(model.proto.graph)]
    outputs = [value.name for value in model.proto.graph.output]
    runtime = _OnnxRuntime(model.original, model.name)
    return Reference("onnxruntime", functools.partial(runtime, inputs, outputs))


class _OnnxRuntime:
    """Runs the original model; the session is made at the first run, from the file where one is."""

    def __init__(self, model: os.PathLike[str] | onnx.ModelProto, name: str) -> None:
        self._model = model
        self._name = name

    @functools.cached_property
    def _session(self) -> Any:
        import onnxruntime

        if isinstance(self._model, os.PathLike):
            data: str | bytes = os.fspath(self._model)
        else:
            data = self._model.SerializeToString()
        return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

    def __call__(
        self, inputs: list[str], outputs: list[str], values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        given = {name: values[name] for name in inputs if name in values}
        try:
            results = self._session.run(outputs, given)
        except Exception as error:  # onnxruntime's errors have no public base
            raise ModelError(f"ONNX Runtime cannot run {self._name}: {error}") from error
        return dict(zip(outputs, results, strict=True))
