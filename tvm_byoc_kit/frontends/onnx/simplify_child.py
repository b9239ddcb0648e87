"""Runs onnxsim, and compares its result with the original in ONNX Runtime, in a process of its own.

``python simplify_child.py request.json``; the request names the files, see
:mod:`tvm_byoc_kit.frontends.onnx.simplification`. This file imports nothing of the kit and no TVM.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Passes that make operators of ONNX Runtime's own domain.
_CONTRIB_FUSIONS = ("fuse_attention", "fuse_gqa")

# Rounding differs where onnxsim folds batch normalization or merges products.
_TOLERANCES = {"float64": (1e-6, 1e-8), "float32": (1e-3, 1e-4), "float16": (2e-2, 1e-2)}


def main(request: dict[str, Any]) -> str:
    """Simplify; gives the reason why the result must not be used, or nothing."""
    import onnxsim

    original, simplified = request["original"], request["simplified"]
    shapes = request["shapes"]
    try:
        _, valid = onnxsim.simplify(
            original,
            overwrite_input_shapes=shapes or None,
            output_path=simplified,
            skipped_optimizers=list(_CONTRIB_FUSIONS),
        )
    except Exception as error:  # noqa: BLE001  onnxsim raises what its C++ throws
        return f"onnxsim failed: {_first_line(error)}"
    if not valid:
        return "onnxsim's result is no valid model"
    return compare(original, simplified, shapes) if request["compare"] else ""


def compare(original: str, simplified: str, shapes: dict[str, list[int]]) -> str:
    """How the two models differ on the first kind of input that the original accepts."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    try:
        before = onnxruntime.InferenceSession(original, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001  onnxruntime's errors have no public base
        return f"ONNX Runtime cannot load the original to compare with: {_first_line(error)}"
    try:
        after = onnxruntime.InferenceSession(simplified, providers=["CPUExecutionProvider"])
    except Exception as error:  # noqa: BLE001
        return f"ONNX Runtime cannot load onnxsim's result: {_first_line(error)}"
    refusal = ""
    for kind in ("random", "ones", "zeros"):
        values = {
            spec.name: _array(spec, shapes.get(spec.name, spec.shape), kind)
            for spec in before.get_inputs()
        }
        try:
            expected = before.run(None, values)
        except Exception as error:  # noqa: BLE001
            refusal = f"ONNX Runtime cannot run the original to compare with: {_first_line(error)}"
            continue
        try:
            kept = {spec.name for spec in after.get_inputs()}
            got = after.run(None, {name: value for name, value in values.items() if name in kept})
        except Exception as error:  # noqa: BLE001
            return f"ONNX Runtime cannot run onnxsim's result: {_first_line(error)}"
        names = [spec.name for spec in before.get_outputs()]
        return _difference(names, expected, got)
    return refusal


def _array(spec: Any, shape: list[Any], kind: str) -> Any:
    import numpy as np

    dtype = np.dtype(_DTYPES.get(spec.type, "float32"))
    if kind != "random":
        return (np.ones if kind == "ones" else np.zeros)(shape, dtype)
    rng = np.random.default_rng(0)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype.kind == "b" else 10, shape).astype(dtype)


_DTYPES = {
    "tensor(float16)": "float16",
    "tensor(double)": "float64",
    "tensor(bool)": "bool",
    **{
        f"tensor({sign}int{bits})": f"{sign}int{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


def _difference(names: list[str], expected: list[Any], got: list[Any]) -> str:
    import numpy as np

    if len(expected) != len(got):
        return f"onnxsim's result has {len(got)} outputs instead of {len(expected)}"
    for name, old, new in zip(names, expected, got, strict=True):
        if not (isinstance(old, np.ndarray) and isinstance(new, np.ndarray)):
            return f"output '{name}' is no tensor, so it is not compared"
        if old.shape != new.shape or old.dtype != new.dtype:
            return (
                f"output '{name}' of onnxsim's result is {new.dtype}{list(new.shape)} instead of "
                f"{old.dtype}{list(old.shape)}"
            )
        if old.dtype.kind not in "f":
            equal = np.array_equal(old, new)
        else:
            rtol, atol = _TOLERANCES[str(old.dtype)]
            finite = np.abs(old[np.isfinite(old)])
            scale = max(1.0, float(finite.max(initial=0.0)))
            equal = np.allclose(new, old, rtol=rtol, atol=atol * scale, equal_nan=True)
        if not equal:
            return f"output '{name}' of onnxsim's result has other values"
    return ""


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules are not meant to be found by their short names
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(asked["answer"]).write_text(json.dumps({"refusal": main(asked)}), encoding="utf-8")
