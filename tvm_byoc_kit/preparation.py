"""Preparation: the passes between the import of a model and its partition, in their order.

What a backend's patterns find depends on what they are shown: a batch normalization between two
convolutions, a broadcast that does nothing, or a bias written as the reshape of a constant keeps
neighbouring matches from becoming one region. `PASSES` is the whole pipeline.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.backend import Backend, get_backend
from tvm_byoc_kit.batch_norm_folding import fold_batch_norm
from tvm_byoc_kit.constant_folding import fold_constants
from tvm_byoc_kit.errors import OptionError, reason
from tvm_byoc_kit.model import ImportedModel, as_model
from tvm_byoc_kit.prepare_report import PassReport, PrepareReport, count_ops
from tvm_byoc_kit.quantized_pairs import symmetric_pairs
from tvm_byoc_kit.signature import function_signature
from tvm_byoc_kit.simplification import remove_dropout, simplify, sink_permutations

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["PASSES", "Pass", "Settings", "bind_sizes", "prepare", "tidy"]


@dataclass(frozen=True)
class Settings:
    """What the passes depend on beside the module."""

    entry: str
    backend: Backend | None = None
    symbols: Mapping[str, int] | None = None
    keep_bytes: bool = False  # of weights, for a backend that computes in 8 bits


Run = Callable[["IRModule", Settings, "Counter[str]"], "IRModule"]


@dataclass(frozen=True)
class Pass:
    """One step of the pipeline.

    Parameters
    ----------
    name : str
    run : callable
        Gets the module, the settings, and a counter for notes; gives a new module.
    at_import : bool
        Whether frontends run it as well: cheap, and of use to every backend.
    """

    name: str
    run: Run
    at_import: bool = False


def prepare(
    model: Any,
    backend: str | Backend | None = None,
    *,
    symbols: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Bring a model into the form in which a backend takes the most of it.

    Parameters
    ----------
    model : ImportedModel, tvm.IRModule, or anything that `load_model` takes alone
        Not changed. Batch normalization not in training mode, and dropout, become what they are at
        inference.
    backend : str or Backend, optional
        Its patterns decide which batch normalizations stay whole, its ``layout`` which layouts
        convolutions get. None: for no backend in particular.
    symbols : mapping of str to int, optional
        Sizes for symbolic dimensions of the inputs, by name.

    Returns
    -------
    ImportedModel
        Its ``report`` says what each pass did, its ``unprepared`` is the module as it was. Inputs
        and outputs keep their names and order; bound dimensions are numbers.

    Raises
    ------
    OptionError
        When `symbols` names no symbolic dimension of the inputs, or gives no positive size.
    """
    imported = as_model(model)
    chosen = None if backend is None else get_backend(backend)
    _check_symbols(imported, symbols or {})
    keep_bytes = chosen is not None and chosen.signed_bytes
    settings = Settings(imported.entry, chosen, symbols, keep_bytes)
    mod, passes = _run(imported.mod, PASSES, settings)
    earlier = imported.report.passes if imported.report else ()
    at_import = tuple(item for item in earlier if item.at_import)
    report = PrepareReport((*at_import, *passes), chosen.name if chosen else None)
    inputs, outputs = _signature(mod, imported)
    return replace(
        imported,
        mod=mod,
        inputs=inputs,
        outputs=outputs,
        report=report,
        unprepared=imported.unprepared or imported.mod,
    )


def bind_sizes(model: ImportedModel, sizes: Mapping[str, int]) -> ImportedModel:
    """`model` with numbers in the place of symbolic dimensions; nothing else is done to it.

    What it was prepared for is forgotten, since more can be folded where sizes are known.
    """
    mod = _bound(model.mod, model.entry, sizes)
    inputs, outputs = _signature(mod, model)
    report = replace(model.report, backend=None) if model.report else None
    return replace(model, mod=mod, inputs=inputs, outputs=outputs, report=report)


def tidy(mod: IRModule, entry: str = "main") -> tuple[IRModule, PrepareReport]:
    """The passes that frontends run on what they import: those of `PASSES` with ``at_import``.

    Parameters
    ----------
    mod : tvm.IRModule
        With the weights as constants.
    entry : str
        The function to run.
    """
    chosen = tuple(item for item in PASSES if item.at_import)
    # Whether weights stay bytes is known when there is a backend; bytes can still become floats.
    mod, passes = _run(mod, chosen, Settings(entry, keep_bytes=True))
    return mod, PrepareReport(tuple(replace(item, at_import=True) for item in passes))


def _run(
    mod: IRModule, passes: tuple[Pass, ...], settings: Settings
) -> tuple[IRModule, tuple[PassReport, ...]]:
    reports = []
    before = count_ops(mod)
    for item in passes:
        notes: Counter[str] = Counter()
        start = time.process_time()
        skipped = ""
        try:
            mod = item.run(mod, settings, notes)
        except Exception as error:  # noqa: BLE001 - TVM may raise anything; `mod` is as before
            skipped = f"{type(error).__name__}: {reason(error)}"
        seconds = time.process_time() - start
        after = count_ops(mod)
        lines = tuple(note if n == 1 else f"{note}, {n} times" for note, n in notes.items())
        reports.append(PassReport(item.name, before, after, seconds, lines, skipped))
        before = after
    return mod, tuple(reports)


def _signature(mod: IRModule, model: ImportedModel) -> tuple[Any, Any]:
    """The signature of the prepared module under the model's own names."""
    names = [spec.name for spec in model.outputs]
    inputs, outputs = function_signature(mod, model.entry, names)
    return (
        tuple(replace(new, name=old.name) for new, old in zip(inputs, model.inputs, strict=True)),
        tuple(replace(new, name=old.name) for new, old in zip(outputs, model.outputs, strict=True)),
    )


def _check_symbols(model: ImportedModel, symbols: Mapping[str, int]) -> None:
    known = _symbols_of(model.mod, model.entry) if symbols else {}
    for name, size in symbols.items():
        if name not in known:
            raise OptionError(
                f"symbols names '{name}', which is no symbolic dimension of the inputs; there "
                f"are: {', '.join(known) or 'none'}"
            )
        if type(size) is not int or size < 1:
            raise OptionError(f"symbols['{name}'] = {size!r}: expected an integer >= 1")


def _symbols_of(mod: IRModule, entry: str) -> dict[str, Any]:
    from tvm import relax

    found = relax.analysis.defined_symbolic_vars(mod[entry])
    return {var.name: var for var in found}


# --- The passes ---------------------------------------------------------------------------------


def _bind_symbols(mod: IRModule, settings: Settings, _notes: Counter[str]) -> IRModule:
    return _bound(mod, settings.entry, settings.symbols) if settings.symbols else mod


def _bound(mod: IRModule, entry: str, sizes: Mapping[str, int]) -> IRModule:
    from tvm.relax.transform import BindSymbolicVars

    known = _symbols_of(mod, entry)
    return BindSymbolicVars({known[name]: size for name, size in sizes.items()}, entry)(mod)


def _tvm(name: str, *arguments: Any) -> Run:
    """A pass of TVM's."""

    def run(mod: IRModule, _settings: Settings, _notes: Counter[str]) -> IRModule:
        from tvm.relax import transform

        return getattr(transform, name)(*arguments)(mod)

    return run


def _dead_code(mod: IRModule, settings: Settings, _notes: Counter[str]) -> IRModule:
    from tvm.relax.transform import DeadCodeElimination

    return DeadCodeElimination([settings.entry])(mod)


def _cleaned(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    """Without the aliases and the dead calls that a rewrite leaves behind."""
    return _dead_code(_tvm("CanonicalizeBindings")(mod, settings, notes), settings, notes)


def _cleaning(run: Run) -> Run:
    return lambda mod, settings, notes: _cleaned(run(mod, settings, notes), settings, notes)


def _fold_constants(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    folded = fold_constants(mod, notes, keep_bytes=settings.keep_bytes)
    return _cleaned(folded, settings, notes)


def _quantized_pairs(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    if settings.backend is None or not settings.backend.signed_bytes:
        return mod
    return _cleaned(symmetric_pairs(mod, notes), settings, notes)


def _fold_batch_norm(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    def keep(call: Any) -> bool:
        return settings.backend is not None and _takes(settings.backend, call)

    return _cleaned(fold_batch_norm(mod, keep, notes), settings, notes)


def _takes(backend: Backend, call: Any) -> bool:
    """Whether a pattern of `backend` matches `call` on its own."""
    from tvm import relax
    from tvm.relax.transform import FuseOpsByPattern

    patterns = backend.guarded_patterns()
    if not patterns:
        return False
    builder = relax.BlockBuilder()
    data = relax.Var("data", call.args[0].ty)
    others = [relax.Var(f"p{i}", argument.ty) for i, argument in enumerate(call.args[1:])]
    with builder.function("main", [data, *others]):
        with builder.dataflow():
            made = relax.Call(call.op, [data, *others], call.attrs, call.ty_args)
            result = builder.emit_output(made)
        builder.emit_func_output(result)
    matched = FuseOpsByPattern(patterns, bind_constants=False)(builder.get())
    return any(f.attrs and "Composite" in f.attrs for f in matched.functions.values())


_ROUNDS = 4  # of rules that make room for others; more than any chain seen in a model needs


def _simplify(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    for _ in range(_ROUNDS):
        before = count_ops(mod)
        mod = _cleaned(simplify(mod, notes), settings, notes)
        if count_ops(mod) == before:
            break
    return mod


def _convert_layout(mod: IRModule, settings: Settings, notes: Counter[str]) -> IRModule:
    layout = settings.backend.layout if settings.backend else None
    # Without such an op there is nothing to gain, and TVM's pass has failed on transformers.
    if not layout or not layout.keys() & count_ops(mod).keys():
        return mod
    convert = _tvm("ConvertLayout", {op: list(layouts) for op, layouts in layout.items()})
    mod = _fold_constants(convert(mod, settings, notes), settings, notes)
    for _ in range(_ROUNDS):
        before = count_ops(mod)["relax.permute_dims"]
        mod = _simplify(_cleaned(sink_permutations(mod), settings, notes), settings, notes)
        if count_ops(mod)["relax.permute_dims"] == before:
            break
    return _fold_constants(mod, settings, notes)


PASSES: tuple[Pass, ...] = (
    Pass("bind_symbols", _bind_symbols),  # first: what is static can be folded and simplified
    # Nothing is offloaded outside; TVM's importers write no block for a function with an `If`.
    Pass("dataflow", _tvm("ConvertToDataflow", 1), at_import=True),
    # Patterns see through no alias or tuple.
    Pass("canonicalize", _tvm("CanonicalizeBindings"), at_import=True),
    Pass("dead_code", _dead_code, at_import=True),  # a dead op splits a region like a live one
    Pass("fold_constants", _fold_constants, at_import=True),  # weights are constants from here on
    Pass("quantized_pairs", _quantized_pairs),
    Pass(
        "remove_dropout",
        _cleaning(lambda mod, _settings, notes: remove_dropout(mod, notes)),
        at_import=True,
    ),
    Pass("fold_batch_norm", _fold_batch_norm),
    Pass("simplify", _simplify),
    Pass("fold_again", _fold_constants),  # of what the two passes before have made constant
    Pass("common_subexpressions", _cleaning(_tvm("EliminateCommonSubexpr"))),
    Pass("convert_layout", _convert_layout),
    Pass("normalize", _tvm("Normalize"), at_import=True),
)
