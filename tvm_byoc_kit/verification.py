"""Verify: a built model against its original framework."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import ModelError, OptionError
from tvm_byoc_kit.model import ImportedModel, Reference, kind_of, load_model
from tvm_byoc_kit.signature import evaluate

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.runtime import Executable
    from tvm_byoc_kit.signature import TensorSpec

__all__ = [
    "TOLERANCES",
    "OutputCheck",
    "Tolerance",
    "Verification",
    "compare_output",
    "random_inputs",
    "verify",
]


@dataclass(frozen=True)
class Tolerance:
    """An element agrees when ``|got - expected| <= atol * scale + rtol * |expected|``.

    ``scale`` is the largest magnitude of the expected output, at least 1: rounding errors of a
    long sum follow the size of its terms, not of the one element they end in.
    """

    rtol: float
    atol: float


# A sum of n products in another order differs by about sqrt(n) roundings: 2**-24 for float32 and
# 2**-11 for float16 with n up to some thousands. Integers that come from rounding may differ by 1.
TOLERANCES = {
    "float64": Tolerance(rtol=1e-9, atol=1e-9),
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float16": Tolerance(rtol=1e-2, atol=5e-3),
    "bfloat16": Tolerance(rtol=5e-2, atol=2e-2),
    "int8": Tolerance(rtol=0.0, atol=0.0),
}
_EXACT = Tolerance(rtol=0.0, atol=0.0)


@dataclass(frozen=True)
class OutputCheck:
    """How one output compares.

    Parameters
    ----------
    name, dtype : str
    max_abs : float
        Largest absolute difference.
    max_rel : float
        Largest difference relative to the expected element's magnitude, where that is not 0.
    snr_db : float
        Signal-to-noise ratio, ``10 log10(sum(expected^2) / sum((got - expected)^2))``; infinite
        when equal.
    tolerance : Tolerance
    ok : bool
    """

    name: str
    dtype: str
    max_abs: float
    max_rel: float
    snr_db: float
    tolerance: Tolerance
    ok: bool


@dataclass(frozen=True)
class Verification:
    """Truthy when every output agrees with the reference."""

    reference: str
    outputs: tuple[OutputCheck, ...]

    def __bool__(self) -> bool:
        return all(output.ok for output in self.outputs)

    def __str__(self) -> str:
        verdict = "agrees" if self else "DIFFERS"
        lines = [f"{verdict} with {self.reference}"]
        lines += [
            f"  {out.name} ({out.dtype}): max abs {out.max_abs:.3g}, max rel {out.max_rel:.3g}, "
            f"SNR {out.snr_db:.1f} dB, {'ok' if out.ok else 'not within'} "
            f"rtol {out.tolerance.rtol:g} atol {out.tolerance.atol:g}"
            for out in self.outputs
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, which has no infinity: an infinite measure is None."""
        outputs = [
            {name: _finite(value) for name, value in vars(out).items()}
            | {"tolerance": vars(out.tolerance)}
            for out in self.outputs
        ]
        return {"ok": bool(self), "reference": self.reference, "outputs": outputs}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verify(
    exe: Executable,
    reference: Any = "auto",
    *,
    inputs: Mapping[str, Any] | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
) -> Verification:
    """Compare one run of `exe` with a reference on the same inputs.

    Parameters
    ----------
    exe : Executable
    reference : str, callable, ImportedModel, or anything that `load_model` takes alone
        ``auto``: the framework that the model came from (ONNX Runtime or PyTorch), and TVM's host
        build of the same module where there is none; ``tvm``: that host build; ``onnxruntime`` and
        ``torch`` insist on the framework. A callable takes and gives arrays by name.
    inputs : mapping of name to array, optional
        By default standard normal floats, and integers from 0 to 9, of the declared shapes.
    tolerance : Tolerance, optional
        By default the one of :data:`TOLERANCES` for each output's dtype.
    seed : int
        Of the random inputs.

    Raises
    ------
    ModelError
        When the reference asked for is not there.
    """
    arrays = dict(inputs) if inputs is not None else random_inputs(exe.inputs, seed)
    chosen = _resolve(exe, reference)
    got = exe.run(arrays)  # first, since it checks the inputs
    expected = _expected(chosen, arrays)
    missing = [name for name in got if name not in expected]
    if missing:
        raise ModelError(
            f"the reference {chosen.name} gives no output {', '.join(missing)}; it gives "
            f"{', '.join(map(str, expected)) or 'none'}"
        )
    checks = tuple(compare_output(name, got[name], expected[name], tolerance) for name in got)
    return Verification(chosen.name, checks)


def _expected(reference: Reference, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    import numpy as np

    # Copies: a reference that works in place must not change what the caller holds.
    results = reference.run({name: np.array(value) for name, value in arrays.items()})
    if not isinstance(results, Mapping):
        raise ModelError(
            f"{reference.name} gave a {type(results).__name__}; expected a dict from output name "
            "to array"
        )
    return results


def random_inputs(specs: tuple[TensorSpec, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Standard normal floats, integers from 0 to 9 and fair booleans; symbolic dimensions are 2."""
    import numpy as np

    rng = np.random.default_rng(seed)
    values = {}
    for spec in specs:
        shape = tuple(_size(dim) for dim in spec.shape)
        if spec.dtype.startswith(("float", "bfloat")):
            value: np.ndarray = rng.standard_normal(shape)
        else:
            value = rng.integers(0, 2 if spec.dtype == "bool" else 10, shape)
        values[spec.name] = np.asarray(value).astype(spec.dtype)
    return values


def _size(dim: int | str) -> int:
    """`dim` with 2 for each symbol."""
    size = evaluate(dim, dict.fromkeys(re.findall(r"\w+", str(dim)), 2))
    return 2 if size is None else size


def _resolve(exe: Executable, reference: Any) -> Reference:
    model = exe.model
    if callable(reference) and not hasattr(reference, "state_dict"):
        return Reference("the given function", reference)
    if reference not in ("auto", "tvm", "onnxruntime", "torch"):
        if isinstance(reference, str) and not reference.endswith((".onnx", ".pt2")):
            raise OptionError(
                f"unknown reference '{reference}'; expected auto, tvm, onnxruntime, torch, a model "
                "file (.onnx or .pt2), a model, or a function from arrays to arrays"
            )
        if kind_of(reference) == "onnx" and probe("onnxruntime"):
            from tvm_byoc_kit.frontends.onnx import onnx_reference

            return onnx_reference(reference)  # without import, which would need shapes
        model, reference = load_model(reference), "auto"
    if model is None:
        raise ModelError(
            "an artifact does not carry its original model; give it: "
            "verify(exe, reference='model.onnx'), or --reference model.onnx"
        )
    own = model.reference
    if reference in ("onnxruntime", "torch") and (own is None or own.name != reference):
        raise ModelError(
            f"the model came from {model.source} and has "
            f"{f'the reference {own.name}' if own else 'no reference'}, not {reference}; "
            "use reference='auto'"
        )
    if own is not None and reference != "tvm":
        return own
    return _host_build(model)


def _host_build(model: ImportedModel) -> Reference:
    from tvm_byoc_kit.building import compile as compile_model
    from tvm_byoc_kit.building import region_backends

    # The module before `prepare`, as it is: what `prepare` did is to be checked too.
    original = replace(model, mod=model.unprepared or model.mod)
    if region_backends(original.mod):  # built again, its regions would be compared with themselves
        raise ModelError(
            "the model was given partitioned, so there is no host build of it; give the module "
            "from before: verify(exe, reference=module)"
        )
    return Reference("TVM's host build", compile_model(original, "llvm", prepare=False).run)


def compare_output(
    name: str, got: np.ndarray, expected: Any, tolerance: Tolerance | None = None
) -> OutputCheck:
    """Compare one output with what is expected of it; `tolerance` as in `verify`.

    Raises
    ------
    ModelError
        When shape or dtype differ.
    """
    import numpy as np

    expected = np.asarray(expected)
    allowed = tolerance or TOLERANCES.get(str(expected.dtype), _EXACT)
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise ModelError(
            f"output '{name}' is {got.dtype}{list(got.shape)}, the reference gives "
            f"{expected.dtype}{list(expected.shape)}"
        )
    x, y = got.astype(np.float64), expected.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))  # equal infinities and NaNs agree
    with np.errstate(invalid="ignore"):
        difference = np.where(same, 0.0, np.abs(x - y))
    difference = np.where(np.isnan(difference), np.inf, difference)
    if expected.dtype.kind in "iu":  # float64 does not hold every 64-bit integer
        difference = np.where(got == expected, 0.0, np.maximum(difference, 1.0))
    finite = np.abs(y[np.isfinite(y)])
    scale = max(1.0, float(finite.max(initial=0.0)))
    limit = allowed.atol * scale + allowed.rtol * np.where(np.isfinite(y), np.abs(y), 0.0)
    noise, signal = float(np.square(difference).sum()), float(np.square(finite).sum())
    with np.errstate(invalid="ignore"):
        relative = np.divide(difference, np.abs(y), out=np.zeros_like(difference), where=y != 0)
    relative = np.where(np.isnan(relative), difference, relative)  # of infinities and NaNs
    return OutputCheck(
        name=name,
        dtype=str(expected.dtype),
        max_abs=float(difference.max(initial=0.0)),
        max_rel=float(relative.max(initial=0.0)),
        snr_db=_decibel(signal, noise),
        tolerance=allowed,
        ok=bool((difference <= limit).all()),
    )


def _decibel(signal: float, noise: float) -> float:
    if noise == 0.0:
        return math.inf
    if signal == 0.0 or math.isinf(noise):
        return -math.inf
    return 10.0 * math.log10(signal / noise)
