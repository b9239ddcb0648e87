"""ONNX models through TVM's importer, with ONNX Runtime as their reference."""

from __future__ import annotations

import functools
import os
from numbers import Integral
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.model import ImportedModel, Reference
from tvm_byoc_kit.preparation import prepare
from tvm_byoc_kit.signature import function_signature

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx


def import_onnx(
    source: str | os.PathLike[str] | onnx.ModelProto, shapes: Mapping[str, Sequence[int]] | None
) -> ImportedModel:
    """Import an ONNX file or ModelProto; `shapes` fixes the shapes of dynamic inputs.

    Raises
    ------
    ModelError
        When onnx is not installed, the file cannot be read, `shapes` does not fit the model's
        inputs, or TVM's importer fails.
    """
    missing = probe("onnx")
    if not missing:
        raise ModelError(f"ONNX models need the onnx package: {missing.remedy}")
    proto, origin = _read(source)
    shape_dict = _checked_shapes(proto, shapes or {})
    mod = prepare(_convert(proto, shape_dict, origin))
    outputs = [value.name for value in proto.graph.output]
    ins, outs = function_signature(mod, "main", outputs)
    run = functools.partial(_OnnxRuntime(proto, origin), [spec.name for spec in ins], outputs)
    reference = Reference("onnxruntime", run) if probe("onnxruntime") else None
    return ImportedModel(mod, ins, outs, source="onnx", origin=origin, reference=reference)


def _read(source: str | os.PathLike[str] | onnx.ModelProto) -> tuple[onnx.ModelProto, str]:
    import onnx

    if isinstance(source, onnx.ModelProto):
        return source, source.graph.name
    path = os.fspath(source)
    try:
        proto = onnx.load(path)
    except FileNotFoundError:
        raise ModelError(f"no such model file: {path}") from None
    except Exception as error:  # protobuf's DecodeError and onnx's own have no common base
        raise ModelError(f"{path} is not an ONNX model: {error}") from error
    if not proto.graph.node:
        raise ModelError(f"{path} is not an ONNX model: it has no nodes")
    return proto, path


def _checked_shapes(
    proto: onnx.ModelProto, shapes: Mapping[str, Sequence[int]]
) -> dict[str, list[int]]:
    initializers = {tensor.name for tensor in proto.graph.initializer}
    declared = {
        value.name: value.type.tensor_type.shape.dim
        for value in proto.graph.input
        if value.name not in initializers
    }
    for name, shape in shapes.items():
        if name not in declared:
            raise ModelError(
                f"shapes names '{name}', which is no input of the model; inputs: "
                f"{', '.join(declared)}"
            )
        _check_shape(f"shapes['{name}'] = {list(shape)}", shape, declared[name])
    return {name: [int(size) for size in shape] for name, shape in shapes.items()}


def _check_shape(where: str, shape: Sequence[int], declared: Sequence[Any]) -> None:
    if len(shape) != len(declared):
        raise ModelError(f"{where} has rank {len(shape)}, the input has rank {len(declared)}")
    for axis, (size, dim) in enumerate(zip(shape, declared, strict=True)):
        if not isinstance(size, Integral) or size < 1:
            raise ModelError(f"{where}: axis {axis} is {size!r}, expected an integer >= 1")
        if dim.HasField("dim_value") and size != dim.dim_value:
            raise ModelError(
                f"{where}: axis {axis} is {size}, the model has it fixed to {dim.dim_value}"
            )


def _convert(proto: onnx.ModelProto, shapes: dict[str, list[int]], origin: str) -> Any:
    from tvm.relax.frontend.onnx import from_onnx

    try:
        return from_onnx(
            proto, shape_dict=shapes, keep_params_in_input=False, sanitize_input_names=False
        )
    except Exception as error:  # the importer raises whatever its converters do
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)
        raise ModelError(
            f"TVM cannot import {origin or 'the ONNX model'}: {type(error).__name__}: {reason}. "
            "Simplifying it with fixed input shapes may help: python -m onnxsim in.onnx out.onnx "
            "--overwrite-input-shape name:1,3,224,224"
        ) from error


class _OnnxRuntime:
    """Runs the original model; the session is made at the first run."""

    def __init__(self, proto: onnx.ModelProto, origin: str) -> None:
        self._proto = proto
        self._origin = origin or "the model"

    @functools.cached_property
    def _session(self) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(
            self._proto.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def __call__(
        self, inputs: list[str], outputs: list[str], values: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        given = {name: values[name] for name in inputs if name in values}
        try:
            results = self._session.run(outputs, given)
        except Exception as error:  # onnxruntime's errors have no public base
            raise ModelError(f"ONNX Runtime cannot run {self._origin}: {error}") from error
        return dict(zip(outputs, results, strict=True))
