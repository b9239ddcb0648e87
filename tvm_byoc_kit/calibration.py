"""Calibration: from a model in floating point and representative data to one in 8 bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tvm_byoc_kit.building import compile as compile_model
from tvm_byoc_kit.building import region_backends
from tvm_byoc_kit.calibration_data import calls_of
from tvm_byoc_kit.comparison import plain
from tvm_byoc_kit.errors import InputError, ModelError, OptionError
from tvm_byoc_kit.model import ImportedModel, as_model
from tvm_byoc_kit.preparation import prepare
from tvm_byoc_kit.quantizing import (
    LARGEST,
    LEAST_SCALE,
    insert_quantization,
    plan_quantization,
)
from tvm_byoc_kit.signature import TensorSpec
from tvm_byoc_kit.value_ranges import THRESHOLDS, RangeCollector

if TYPE_CHECKING:
    from tvm import IRModule

    from tvm_byoc_kit.quantizing import Plan
    from tvm_byoc_kit.runtime import Executable

__all__ = ["Agreement", "CalibratedModel", "CalibrationReport", "TensorRange", "calibrate"]

Arrays = dict[str, Any]
Metric = Callable[[Mapping[str, np.ndarray]], float]


@dataclass(frozen=True)
class TensorRange:
    """What was seen of a tensor, and what became of it.

    Parameters
    ----------
    name : str
        Of the op and its operand that were the first to read it, such as ``conv2d_0.data``.
    low, high : float
        Extremes over the calibration data.
    threshold : float
        The largest magnitude that is not clipped.
    scale : float
        ``threshold / 127``: what a step of the byte stands for.
    """

    name: str
    low: float
    high: float
    threshold: float
    scale: float


@dataclass(frozen=True)
class Agreement:
    """How close an output is to that of the reference, over all calls that were measured.

    Parameters
    ----------
    name : str
    cosine : float
        Of the angle between both, as vectors; 1 when equal.
    snr_db : float
        ``10 log10(sum(reference^2) / sum((output - reference)^2))``; infinite when equal.
    max_abs : float
        Largest difference of an element.
    """

    name: str
    cosine: float
    snr_db: float
    max_abs: float

    def __str__(self) -> str:
        return f"cosine {self.cosine:.6f}, SNR {self.snr_db:.1f} dB, max abs {self.max_abs:.3g}"


@dataclass(frozen=True)
class CalibrationReport:
    """What `calibrate` did, and what it cost in accuracy.

    Parameters
    ----------
    method : str
    calls : int
        Of calibration data.
    ops : mapping of str to str
        What is computed in 8 bits: names, with their operators.
    ranges : tuple of TensorRange
        Of the activations.
    weights : int
        How many constants are stored as bytes.
    reference : str
        What the outputs are compared with.
    measured_on : str
        Which data that was done on.
    before, after : tuple of Agreement
        Of the model in floating point, and of the quantized one, on TVM's host build, with the
        reference.
    metric : (float, float), optional
        The given metric, of both.
    """

    method: str
    calls: int
    ops: Mapping[str, str]
    ranges: tuple[TensorRange, ...]
    weights: int
    reference: str
    measured_on: str
    before: tuple[Agreement, ...]
    after: tuple[Agreement, ...]
    metric: tuple[float, float] | None = None

    def __str__(self) -> str:
        lines = [
            (
                f"{len(self.ops)} ops in 8 bits, {len(self.ranges)} activations and {self.weights} "
                f"weights quantized; method {self.method}, {self.calls} calls"
            ),
            f"compared with {self.reference}, on {self.measured_on}:",
        ]
        for before, after in zip(self.before, self.after, strict=True):
            lines += [f"  {before.name} before: {before}", f"  {before.name} after:  {after}"]
        if self.metric is not None:
            lines.append(f"  metric before: {self.metric[0]:g}, after: {self.metric[1]:g}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON, which has no infinity: an infinite measure is None."""
        facts: dict[str, Any] = plain(self)
        return facts


@dataclass(frozen=True)
class CalibratedModel(ImportedModel):
    """A model with quantize and dequantize ops, for `partition`, `compile` and every other stage.

    It has no ``reference``: `verify` compares a build with TVM's host build of the quantized model,
    from which a backend differs by a step here and there; how far that is from the model in
    floating point is said in the report.

    Parameters
    ----------
    calibration : CalibrationReport, optional
    """

    calibration: CalibrationReport | None = None


def calibrate(
    model: Any,
    data: Any,
    method: str = "minmax",
    *,
    percentile: float = 99.99,
    exclude: Collection[str] = (),
    held_out: Any = None,
    metric: Metric | None = None,
    measured: int = 32,
    backend: str = "llvm",
) -> CalibratedModel:
    """Quantize convolutions and matrix products to 8 bits, after a look at representative data.

    The model runs on this machine; the ranges of what convolutions and products read, and of what
    is added to a convolution's result, become the scales of quantize and dequantize ops before
    them. Activations have one symmetric scale, weights one for each output channel. Only
    histograms are kept of activations, so that memory does not grow with the data.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
        Not changed. It is prepared first, so that batch normalization is part of the weights.
    data : iterable, mapping, array, str or os.PathLike
        Some dozens to hundreds of typical inputs: an iterable of inputs by name, one item a call
        (an array will do for a model with one input); or a mapping, or the path of an ``.npz``
        file, with an array for each input, cut along the first axis into calls of the model's
        size; what is left over at the end is not used.
    method : {"minmax", "entropy", "percentile"}
        Where activations are clipped. ``minmax``: nowhere. ``entropy``: where a histogram of 128
        levels tells the least less than one of 2048 bins (Kullback-Leibler divergence; Migacz, GTC
        2017). ``percentile``: above the magnitude that `percentile` percent of the elements do not
        exceed. Where a few outliers are far away, the latter two have finer steps for the rest.
    percentile : float
        For that method; above 0, up to 100.
    exclude : collection of str
        What stays in floating point: operators (``relax.matmul``), or ops by the names that the
        report gives them (``conv2d_0``).
    held_out : optional
        As `data`: what the accuracy is measured on. None: on the calibration data.
    metric : callable, optional
        Gets the outputs of all measured calls by name, joined along the first axis; gives a number,
        such as a rate of correct answers.
    measured : int
        How many calls of the calibration data to measure on, where there is no `held_out`.
    backend : str
        What runs the data: ``llvm`` is everywhere, ``openvino`` is many times faster.

    Returns
    -------
    CalibratedModel
        Its ``calibration`` is the report, with the accuracy before and after.

    Raises
    ------
    OptionError
        For an unknown method, a percentile out of range, or an exclusion of what is not there.
    InputError
        For no data, or inputs of another name, shape or dtype than the model's.
    ModelError
        When the model has nothing to quantize, is partitioned already, or computes NaN or infinity.
    """
    _check_options(method, percentile, measured)
    imported = as_model(model)
    if region_backends(imported.mod):
        raise ModelError("the model is partitioned already; calibrate it before `partition`")
    prepared = prepare(imported)
    plain = _without_dataflow(prepared.mod)
    plan = plan_quantization(plain[prepared.entry], exclude)
    if not plan.ops:
        raise ModelError(
            f"{prepared.origin or 'the model'} has no convolution and no matrix product in float32 "
            "or float16 to quantize, or all of them are excluded or quantized already"
        )
    observer = _Observer(prepared, plain, plan, backend)
    seen = observer.collect(data, measured if held_out is None else 0)
    ranges = tuple(_range(name, collector, method, percentile) for name, collector in seen.items())
    scales = {item.name: item.scale for item in ranges}
    quantized = replace(
        prepared,
        mod=_into_dataflow(insert_quantization(plain, plan, scales)),
        reference=None,
        report=imported.report,
        unprepared=None,
    )
    comparison = _Comparison(prepared, compile_model(quantized, backend, prepare=False), metric)
    for inputs, outputs in (
        observer.kept if held_out is None else observer.run(held_out, "held-out")
    ):
        comparison.add(inputs, outputs)
    report = CalibrationReport(
        method=method if method != "percentile" else f"percentile {percentile:g}",
        calls=observer.calls,
        ops=plan.ops,
        ranges=ranges,
        weights=len(plan.weights),
        reference=comparison.reference,
        measured_on=comparison.measured_on("calibration" if held_out is None else "held-out"),
        before=comparison.agreements("before"),
        after=comparison.agreements("after"),
        metric=comparison.metric(),
    )
    return CalibratedModel(**vars(quantized), calibration=report)


def _check_options(method: str, percentile: float, measured: int) -> None:
    if method not in THRESHOLDS:
        raise OptionError(f"method={method!r}: expected one of {', '.join(THRESHOLDS)}")
    if not 0 < percentile <= 100:  # noqa: PLR2004 - percent
        raise OptionError(f"percentile={percentile!r}: expected a number above 0, up to 100")
    if measured < 1:
        raise OptionError(f"measured={measured!r}: expected 1 or more")


def _without_dataflow(mod: IRModule) -> IRModule:
    """`mod` with plain variables, which a function can return from anywhere."""
    from tvm.relax.transform import ToNonDataflow

    return ToNonDataflow()(mod)


def _into_dataflow(mod: IRModule) -> IRModule:
    from tvm.relax.transform import CanonicalizeBindings, ConvertToDataflow, Normalize

    return Normalize()(CanonicalizeBindings()(ConvertToDataflow(min_size=1)(mod)))


def _range(name: str, seen: RangeCollector, method: str, percentile: float) -> TensorRange:
    threshold = THRESHOLDS[method](seen, percentile)
    scale = float(np.float32(threshold / LARGEST))
    if scale < LEAST_SCALE:  # always zero, or as good as zero: every scale is right
        scale = 1.0
    return TensorRange(name, seen.low, seen.high, threshold, scale)


class _Observer:
    """The model in floating point, which also gives the tensors of a plan."""

    def __init__(self, model: ImportedModel, mod: IRModule, plan: Plan, backend: str) -> None:
        self._model = model
        self._names = {f"the tensor {name}": name for name in plan.tensors}
        specs = [
            TensorSpec(shown, (), str(tensor.ty.dtype))
            for shown, tensor in zip(self._names, plan.tensors.values(), strict=True)
        ]
        watched = replace(
            model,
            mod=_into_dataflow(_returning(mod, model.entry, list(plan.tensors.values()))),
            outputs=(*model.outputs, *specs),
        )
        self._exe: Executable = compile_model(watched, backend, prepare=False)
        self.calls = 0
        self.kept: list[tuple[Arrays, Arrays]] = []

    def run(self, data: Any, what: str, seen: Mapping[str, RangeCollector] | None = None) -> _Runs:
        """Inputs and outputs of one call after the other; `what` the data is, for messages.

        Raises
        ------
        InputError
            When there is none, or one does not fit.
        ModelError
            When a tensor is NaN or infinite.
        """
        number = -1
        for number, inputs in enumerate(calls_of(data, self._model.inputs)):
            try:
                results = self._exe.run(inputs)
            except InputError as error:
                raise InputError(f"call {number} of the {what} data: {error}") from error
            for shown, name in self._names.items():
                values = results.pop(shown)
                if seen is not None:
                    _collect(seen[name], values, f"{name} in call {number} of the {what} data")
            yield dict(inputs), results
        if number < 0:
            raise InputError(
                f"the {what} data is empty, or used up already, as a generator is; give at least "
                "one set of inputs"
            )

    def collect(self, data: Any, keep: int) -> dict[str, RangeCollector]:
        """Run all of `data`; the first `keep` calls are kept."""
        seen = {name: RangeCollector() for name in self._names.values()}
        for inputs, outputs in self.run(data, "calibration", seen):
            self.calls += 1
            if len(self.kept) < keep:
                copies = {name: np.array(value) for name, value in inputs.items()}
                self.kept.append((copies, outputs))
        return seen


_Runs = Iterator[tuple[Arrays, Arrays]]


def _collect(collector: RangeCollector, values: np.ndarray, where: str) -> None:
    try:
        collector.add(values)
    except ValueError as error:
        raise ModelError(
            f"the tensor {where} has an element that is {error}, and so no range; look at that "
            "input, or at the model in floating point"
        ) from error


def _returning(mod: IRModule, entry: str, tensors: list[Any]) -> IRModule:
    """`mod` whose function `entry` gives `tensors` as well."""
    import tvm
    from tvm import relax

    function = mod[entry]
    body = function.body
    result = relax.Tuple([body.body, relax.Tuple(tensors)])
    # Sizes that are known only inside may not stand in the type of the result.
    kinds = [relax.TensorType(None, tensor.ty.dtype, ndim=tensor.ty.ndim) for tensor in tensors]
    made = relax.Function(
        function.params,
        relax.SeqExpr(body.blocks, result),
        tvm.ir.TupleType([function.ret_ty, tvm.ir.TupleType(kinds)]),
        function.is_pure,
        function.attrs,
    )
    builder = relax.BlockBuilder(mod)
    builder.update_func(mod.get_global_var(entry), made)
    return builder.get()


class _Sums:
    """What an `Agreement` is computed from, call by call."""

    def __init__(self) -> None:
        self._products = np.zeros(3)  # expected * expected, got * got, expected * got
        self._noise = self._largest = 0.0

    def add(self, got: Any, expected: Any) -> None:
        x, y = (np.asarray(array, np.float64).reshape(-1) for array in (got, expected))
        self._products += y @ y, x @ x, x @ y
        difference = x - y
        self._noise += float(difference @ difference)
        self._largest = max(self._largest, float(np.abs(difference).max(initial=0.0)))

    def agreement(self, name: str) -> Agreement:
        expected, got, both = (float(value) for value in self._products)
        length = math.sqrt(expected * got)
        cosine = 1.0 if self._noise == 0 else both / length if length else 0.0
        snr = math.inf
        if self._noise:
            snr = 10 * math.log10(expected / self._noise) if expected else -math.inf
        return Agreement(name, min(cosine, 1.0), snr, self._largest)


class _Comparison:
    """The model before and after, both against the framework that it came from, where there is one.

    Parameters
    ----------
    model : ImportedModel
        Before.
    exe : Executable
        After.
    metric : callable, optional
    """

    def __init__(self, model: ImportedModel, exe: Executable, metric: Metric | None) -> None:
        self._model = model
        self._exe = exe
        self._metric = metric
        names = [spec.name for spec in model.outputs]
        self._sums = {side: {name: _Sums() for name in names} for side in ("before", "after")}
        self._outputs: dict[str, list[Arrays]] = {"before": [], "after": []}
        self._calls = 0

    @property
    def reference(self) -> str:
        """Its name."""
        own = self._model.reference
        return own.name if own is not None else "the model in floating point"

    def add(self, inputs: Arrays, before: Arrays) -> None:
        """Take one call."""
        sides = {"before": before, "after": self._exe.run(inputs)}
        own = self._model.reference
        expected = before if own is None else own.run(inputs)
        for side, outputs in sides.items():
            for name, sums in self._sums[side].items():
                sums.add(outputs[name], expected[name])
            if self._metric is not None:
                self._outputs[side].append(outputs)
        self._calls += 1

    def measured_on(self, data: str) -> str:
        """Which data that was."""
        seen = ", which it was calibrated with" if data == "calibration" else ""
        return f"{self._calls} call{'s' if self._calls > 1 else ''} of the {data} data{seen}"

    def agreements(self, side: str) -> tuple[Agreement, ...]:
        """Of each output."""
        return tuple(sums.agreement(name) for name, sums in self._sums[side].items())

    def metric(self) -> tuple[float, float] | None:
        """Before, and after."""
        if self._metric is None:
            return None
        before, after = (
            float(self._metric(_joined(self._outputs[side]))) for side in ("before", "after")
        )
        return before, after


def _joined(calls: Iterable[Arrays]) -> dict[str, np.ndarray]:
    rows = list(calls)
    return {
        name: np.concatenate([np.atleast_1d(outputs[name]) for outputs in rows]) for name in rows[0]
    }
