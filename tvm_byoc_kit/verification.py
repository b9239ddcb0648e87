"""Verify: a built model against its original framework, or against another build."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.comparison import OutputCheck, Tolerance, compare_output, worst_of
from tvm_byoc_kit.errors import InputError, ModelError, OptionError
from tvm_byoc_kit.model import ImportedModel, Reference, kind_of, load_model
from tvm_byoc_kit.sample_inputs import generated, given

if TYPE_CHECKING:
    from tvm_byoc_kit.runtime import Executable

__all__ = ["CaseCheck", "Verification", "outputs_of", "verify"]


@dataclass(frozen=True)
class CaseCheck:
    """How every output compares with one set of inputs.

    Parameters
    ----------
    name : str
        ``random 0``, ``zeros``, the path of an archive.
    outputs : tuple of OutputCheck
    """

    name: str
    outputs: tuple[OutputCheck, ...]

    def __bool__(self) -> bool:
        return all(output.ok for output in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        outputs = [output.to_dict() for output in self.outputs]
        return {"name": self.name, "ok": bool(self), "outputs": outputs}


@dataclass(frozen=True)
class Verification:
    """Truthy when every output agrees with the reference in every case.

    Parameters
    ----------
    reference : str
    outputs : tuple of OutputCheck
        Of each output the case in which it is worst.
    cases : tuple of CaseCheck
        All of them, in the order in which they ran.
    """

    reference: str
    outputs: tuple[OutputCheck, ...]
    cases: tuple[CaseCheck, ...] = ()

    def __bool__(self) -> bool:
        return all(output.ok for output in self.outputs)

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the reference itself gives NaN, which agrees with NaN alone."""
        places: dict[str, list[str]] = {}
        for case in self.cases:
            for output in case.outputs:
                if output.nan[1]:
                    place = f"{output.nan[1]} element(s) of {output.name} in case {case.name}"
                    places.setdefault(output.name, []).append(place)
        return tuple(
            f"{self.reference} gives NaN in {first}"
            + (f", and in {len(others)} more case(s)" if others else "")
            for first, *others in places.values()
        )

    def __str__(self) -> str:
        verdict = "agrees" if self else "DIFFERS"
        several = len(self.cases) > 1
        wrong = sum(not case for case in self.cases)
        count = f" in {wrong if wrong else 'all'} of {len(self.cases)} cases" if several else ""
        lines = [f"{verdict} with {self.reference}{count}"]
        for out in self.outputs:
            lines.append(f"  {out.name} ({out.dtype}): {out}")
            if not out.ok:
                lines.append(f"    {out.details()}")
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``, which has no infinity: an infinite measure is None."""
        return {
            "ok": bool(self),
            "reference": self.reference,
            "outputs": [output.to_dict() for output in self.outputs],
            "cases": [case.to_dict() for case in self.cases],
            "notes": list(self.notes),
        }


def verify(
    exe: Executable,
    reference: Any = "auto",
    *,
    inputs: Any = None,
    cases: str | Sequence[str] | None = None,
    samples: int = 1,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    tolerance: Tolerance | None = None,
    seed: int = 0,
) -> Verification:
    """Compare `exe` with a reference on the same inputs.

    Parameters
    ----------
    exe : Executable
    reference : str, callable, Executable, ImportedModel, or what `load_model` takes alone
        ``auto``: the framework that the model came from (ONNX Runtime or PyTorch), and TVM's host
        build of the same module where there is none; ``tvm``: that host build; ``onnxruntime`` and
        ``torch`` insist on the framework. A callable takes and gives arrays by name. An Executable,
        or the path of an artifact (``.so``), is run on the same inputs.
    inputs : mapping of name to array, path of an ``.npz`` file, or sequence of these, optional
        Each is a case.
    cases : str or sequence of str, optional
        Inputs that are made: ``random`` (standard normal floats, integers from 0 to 9), ``zeros``,
        ``ones``, ``negative``, ``tiny`` (denormal floats too), ``large`` (floats whose squares are
        finite), all of these but the first as ``edge``, and ``nan`` and ``infinity``, which TVM's
        host code is known to treat in its own way. None: ``random`` where no `inputs` are given.
    samples : int
        How many random ones.
    sizes : mapping of str to int or sequence of int, optional
        Of open dimensions; every case is made for every combination. Where none is given, 2, or
        a size that can be run.
    tolerance : Tolerance, optional
        By default the one of `comparison.TOLERANCES` for each output's dtype.
    seed : int
        Of the random inputs.

    Raises
    ------
    ModelError
        When the reference asked for is not there.
    InputError
        When `inputs` do not fit, or cannot be read.
    OptionError
        For a case, or a dimension, that there is not.
    """
    chosen = _resolve(exe, reference)
    own = given(inputs) if inputs is not None else ()
    wanted = cases if cases is not None else ("random",) if inputs is None else ()
    chosen_sizes = {**exe.manifest.variants.example_sizes(), **(sizes or {})}
    made = generated(exe.inputs, wanted, samples=samples, sizes=chosen_sizes, seed=seed)
    checks = []
    for name, arrays in itertools.chain(own, made):
        try:
            got = exe.run(arrays)  # first, since it checks the inputs
        except (InputError, ModelError) as error:
            raise type(error)(f"case {name}: {error}") from error
        expected = outputs_of(chosen, arrays, got)
        outputs = [compare_output(out, got[out], expected[out], tolerance, name) for out in got]
        checks.append(CaseCheck(name, tuple(outputs)))
    if not checks:
        raise OptionError("there is no case to run; give inputs, or cases such as 'random'")
    if len(checks) == 1:
        checks = [CaseCheck(checks[0].name, tuple(replace(o, case="") for o in checks[0].outputs))]
    worst = zip(*(case.outputs for case in checks), strict=True)
    return Verification(chosen.name, tuple(map(worst_of, worst)), tuple(checks))


def outputs_of(
    reference: Reference, arrays: Mapping[str, Any], wanted: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What `reference` gives for `arrays`.

    Raises
    ------
    ModelError
        When that is no mapping, or an output of those that are `wanted` is not among it.
    """
    expected = _expected(reference, arrays)
    missing = [name for name in wanted if name not in expected]
    if missing:
        raise ModelError(
            f"the reference {reference.name} gives no output {', '.join(missing)}; it gives "
            f"{', '.join(map(str, expected)) or 'none'}"
        )
    return expected


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


def _resolve(exe: Executable, reference: Any) -> Reference:
    other = _other_build(reference)
    if other is not None:
        return other
    model = exe.model
    if callable(reference) and not hasattr(reference, "state_dict"):
        return Reference("the given function", reference)
    if reference not in ("auto", "tvm", "onnxruntime", "torch"):
        if isinstance(reference, str) and not reference.endswith((".onnx", ".pt2")):
            raise OptionError(
                f"unknown reference '{reference}'; expected auto, tvm, onnxruntime, torch, a model "
                "file (.onnx or .pt2), a model, an artifact (.so), an Executable, or a function "
                "from arrays to arrays"
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


def _other_build(reference: Any) -> Reference | None:
    """What runs another artifact or Executable; None where `reference` is neither."""
    from tvm_byoc_kit.runtime import Executable, load

    if isinstance(reference, Executable):
        return Reference(f"the other build, for {reference.manifest.backend}", reference.run)
    if isinstance(reference, (str, os.PathLike)) and os.fspath(reference).endswith(".so"):
        return Reference(os.fspath(reference), load(reference).run)
    return None


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
