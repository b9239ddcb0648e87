"""The quickstart: the four steps on the tutorial's module and on a trained model, checked.

Every number is compared with something that is not the example NPU: NumPy for the tutorial's
module; ONNX Runtime, or TVM's own CPU code where that is missing, for the model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backend import STEPS, Backend
from tvm_byoc_kit.backends import example_npu_schedule as npu_schedule
from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.status import Status

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console
    from tvm import IRModule

__all__ = [
    "BackendState",
    "DigitsResult",
    "ModelRun",
    "QuickstartResult",
    "TutorialResult",
    "quickstart",
]

NPU = "example_npu"
DATA = Path(__file__).parent / "data"
# Absolute, for sums of 27 products (tutorial) and 512 products (digits) of numbers around 1 that
# are added in another order than the reference's: float32 leaves up to about 1e-5.
TOLERANCE = 1e-4
MAX_PIXEL = np.float32(16.0)  # the network was trained on 0..1


@dataclass(frozen=True)
class TutorialResult:
    """``conv2d`` and ``relu`` of TVM's tutorial through the four steps; truthy when right.

    Parameters
    ----------
    module : str
        The partitioned module, as TVMScript.
    ops_offloaded, ops_total, regions : int
        What the partition gave to the example NPU.
    output_shape : tuple of int, optional
        None when the example NPU cannot run here.
    max_abs : float, optional
        Largest absolute difference to NumPy.
    """

    module: str
    ops_offloaded: int
    ops_total: int
    regions: int
    output_shape: tuple[int, ...] | None = None
    max_abs: float | None = None

    def __bool__(self) -> bool:
        return self.max_abs is not None and self.max_abs <= TOLERANCE


@dataclass(frozen=True)
class ModelRun:
    """One way to run the model over the held-out images; truthy when it agrees.

    Parameters
    ----------
    name : str
        What ran it.
    accuracy : float
        Share of the images whose largest logit is their label.
    max_abs : float
        Largest absolute difference of a logit to the reference's.
    disagreements : int
        Images for which another label is predicted than by the reference.
    ms_per_image : float
        Wall time of one call in milliseconds.
    """

    name: str
    accuracy: float
    max_abs: float
    disagreements: int
    ms_per_image: float

    def __bool__(self) -> bool:
        return self.disagreements == 0 and self.max_abs <= TOLERANCE


@dataclass(frozen=True)
class DigitsResult:
    """The shipped classifier on its held-out images; truthy when all runs agree.

    Parameters
    ----------
    images : int
        Number of held-out images.
    reference : str
        What the runs are compared with, the first of `runs`.
    runs : tuple of ModelRun
        The reference, TVM's CPU code, the example NPU, and that reloaded in a fresh process.
    ops_offloaded, ops_total, regions : int
        What the partition gave to the example NPU.
    schedules : tuple of Schedule
        What the example NPU decided, a region each; empty when it cannot run here.
    artifact_bytes : int, optional
        Size of the exported model; None when the example NPU cannot run here.
    artifact, trace : str, optional
        The exported model and the Chrome trace, when a folder to keep them in was given.
    """

    images: int
    reference: str
    runs: tuple[ModelRun, ...]
    ops_offloaded: int
    ops_total: int
    regions: int
    schedules: tuple[npu_schedule.Schedule, ...] = ()
    artifact_bytes: int | None = None
    artifact: str | None = None
    trace: str | None = None

    def __bool__(self) -> bool:
        return self.artifact_bytes is not None and all(self.runs)


@dataclass(frozen=True)
class BackendState:
    """How far one backend gets on this machine.

    Parameters
    ----------
    name, summary : str
        As in the registry.
    steps : tuple of str
        The steps that can be done, in order.
    missing : Status, optional
        What the next step lacks, and the command that adds it.
    """

    name: str
    summary: str
    steps: tuple[str, ...]
    missing: Status | None


@dataclass(frozen=True)
class QuickstartResult:
    """Everything the quickstart found; truthy when all of it ran and agreed.

    Parameters
    ----------
    tutorial : TutorialResult
        Part (a).
    digits : DigitsResult, optional
        Part (b); None when the model could not be imported.
    backends : tuple of BackendState
        Part (c).
    unavailable : tuple of Status
        What kept a part from running, with the command that adds it.
    seconds : float
        Wall time of the whole.
    """

    tutorial: TutorialResult
    digits: DigitsResult | None
    backends: tuple[BackendState, ...]
    unavailable: tuple[Status, ...]
    seconds: float

    def __bool__(self) -> bool:
        return not self.unavailable and bool(self.tutorial) and bool(self.digits)

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain data, for JSON."""
        return {"ok": bool(self), **asdict(self)}


def quickstart(
    console: Console | None = None, output: str | os.PathLike[str] | None = None
) -> QuickstartResult:
    """Run the quickstart, printing each part as soon as it is done.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to print; None prints nothing.
    output : path, optional
        Folder that keeps the exported model and its trace; by default they go at the end.

    Returns
    -------
    QuickstartResult
    """
    start = time.perf_counter()
    show = _Printer(console)
    with show.progress("Partitioning, building and running the tutorial's module"):
        tutorial = _run_tutorial()
    show.tutorial(tutorial)
    onnx = byoc.probe("onnx")
    digits = None
    if onnx:
        with show.progress("Importing, building and running the digits classifier"):
            digits = _run_digits(output)
        show.digits(digits)
    with show.progress("Looking at the backends"):
        backends = tuple(_state(backend) for backend in byoc.list_backends())
        needed = (byoc.get_backend(NPU).check("device"), onnx)
    show.backends(backends)
    result = QuickstartResult(
        tutorial=tutorial,
        digits=digits,
        backends=backends,
        unavailable=tuple(status for status in needed if not status),
        seconds=round(time.perf_counter() - start, 2),
    )
    show.verdict(result)
    return result


# --- (a) the tutorial's module --------------------------------------------------------------------


def _run_tutorial() -> TutorialResult:
    parts = byoc.partition(_conv_relu(), NPU)
    result = TutorialResult(
        module=parts.mod.script(show_meta=False),
        ops_offloaded=parts.coverage.offloaded,
        ops_total=parts.coverage.total,
        regions=len(parts.coverage.regions),
    )
    if not parts.backend.check("device"):
        return result
    rng = np.random.default_rng(0)
    data = rng.standard_normal((1, 3, 32, 32), dtype=np.float32)
    weight = rng.standard_normal((16, 3, 3, 3), dtype=np.float32)
    got = byoc.build(parts)(data, weight)
    difference = np.abs(got - _conv_relu_in_numpy(data, weight))
    return replace(result, output_shape=got.shape, max_abs=float(difference.max()))


def _conv_relu() -> IRModule:
    """Make the module of TVM's tutorial "Bring Your Own Codegen"."""
    from tvm import relax

    data = relax.Var("data", relax.TensorType((1, 3, 32, 32), "float32"))
    weight = relax.Var("weight", relax.TensorType((16, 3, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, weight]):
        with builder.dataflow():
            conv = builder.emit(relax.op.nn.conv2d(data, weight))
            out = builder.emit_output(relax.op.nn.relu(conv))
        builder.emit_func_output(out)
    return builder.get()


def _conv_relu_in_numpy(data: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    windows = np.lib.stride_tricks.sliding_window_view(data, weight.shape[2:], axis=(2, 3))
    conv: NDArray[Any] = np.einsum("nchwyx,ocyx->nohw", windows, weight, dtype=np.float64)
    return conv.clip(min=0.0)


# --- (b) the digits classifier --------------------------------------------------------------------


class _Outcome(NamedTuple):
    logits: NDArray[Any]
    ms_per_image: float


def _run_digits(output: str | os.PathLike[str] | None) -> DigitsResult:
    images, labels = _held_out()
    model = byoc.load_model(DATA / "digits.onnx")
    outcomes = {}
    if model.reference is not None:
        run = model.reference.run
        outcomes["ONNX Runtime"] = _predict(lambda image: run({"image": image})["logits"], images)
    outcomes["TVM on the CPU"] = _predict(byoc.compile(model, "llvm"), images)
    parts = byoc.partition(model, NPU)
    result = DigitsResult(
        images=len(images),
        reference=next(iter(outcomes)),
        runs=_compare(outcomes, labels),
        ops_offloaded=parts.coverage.offloaded,
        ops_total=parts.coverage.total,
        regions=len(parts.coverage.regions),
    )
    if not parts.backend.check("device"):
        return result
    exe = byoc.build(parts)
    outcomes["example NPU"] = _predict(exe, images)
    with _folder(output) as folder:
        artifact, trace = Path(folder, "digits.so"), Path(folder, "digits_trace.json")
        exe.export(artifact)
        outcomes["the same, reloaded"] = _predict_in_fresh_process(artifact, images)
        schedules = npu_schedule.schedules(exe)
        npu_schedule.write_chrome_trace(trace, schedules)
        return replace(
            result,
            runs=_compare(outcomes, labels),
            schedules=schedules,
            artifact_bytes=artifact.stat().st_size,
            artifact=str(artifact) if output is not None else None,
            trace=str(trace) if output is not None else None,
        )


def _held_out() -> tuple[NDArray[Any], NDArray[Any]]:
    """Return inputs [n, 1, 1, 8, 8], one call each, and labels [n]."""
    with np.load(DATA / "digits_test.npz") as held_out:
        images, labels = held_out["images"], held_out["labels"]
    return images[:, None, None].astype(np.float32) / MAX_PIXEL, labels


def _predict(run: Callable[[NDArray[Any]], NDArray[Any]], images: NDArray[Any]) -> _Outcome:
    run(images[0])  # makes the session or the virtual machine
    start = time.perf_counter()
    logits = np.concatenate([run(image) for image in images])
    return _Outcome(logits, (time.perf_counter() - start) * 1e3 / len(images))


# All that a program needs which uses the exported model.
_FRESH_PROCESS = """
import sys, time
import numpy as np
import tvm_byoc_kit as byoc
artifact, images_file, logits_file = sys.argv[1:]
images = np.load(images_file)
model = byoc.load(artifact)
model(images[0])
start = time.perf_counter()
logits = np.concatenate([model(image) for image in images])
print((time.perf_counter() - start) * 1e3 / len(images))
np.save(logits_file, logits)
"""


def _predict_in_fresh_process(artifact: Path, images: NDArray[Any]) -> _Outcome:
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder:
        images_file, logits_file = Path(folder, "images.npy"), Path(folder, "logits.npy")
        np.save(images_file, images)
        done = subprocess.run(
            [sys.executable, "-c", _FRESH_PROCESS, artifact, images_file, logits_file],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise ArtifactError(
                f"the exported model failed in a fresh process: {reason}. `tvm-byoc doctor` shows "
                "whether the example NPU's runtime is loaded by a plain `import tvm`"
            )
        return _Outcome(np.load(logits_file), float(done.stdout.split()[-1]))


def _compare(outcomes: dict[str, _Outcome], labels: NDArray[Any]) -> tuple[ModelRun, ...]:
    """Measure each outcome against the first."""
    reference = next(iter(outcomes.values())).logits
    best = reference.argmax(axis=1)
    return tuple(
        ModelRun(
            name=name,
            accuracy=float((logits.argmax(axis=1) == labels).mean()),
            max_abs=float(np.abs(logits - reference).max()),
            disagreements=int((logits.argmax(axis=1) != best).sum()),
            ms_per_image=round(ms_per_image, 4),
        )
        for name, (logits, ms_per_image) in outcomes.items()
    )


def _folder(output: str | os.PathLike[str] | None) -> AbstractContextManager[Any]:
    if output is None:
        return tempfile.TemporaryDirectory()
    Path(output).mkdir(parents=True, exist_ok=True)
    return nullcontext(output)


# --- (c) the backends -----------------------------------------------------------------------------


def _state(backend: Backend) -> BackendState:
    steps: list[str] = []
    for step in STEPS:
        status = backend.check(step)
        if not status:
            return BackendState(backend.name, backend.summary, tuple(steps), status)
        steps.append(step)
    return BackendState(backend.name, backend.summary, tuple(steps), None)


# --- printing -------------------------------------------------------------------------------------

_NUMBERS = frozenset({"accuracy", "max abs difference", "same labels", "ms/image"})


class _Printer:
    """Prints the parts; piped, the same without colours and progress."""

    def __init__(self, console: Console | None) -> None:
        from rich.console import Console

        self._console = console or Console(quiet=True)

    def progress(self, what: str) -> AbstractContextManager[Any]:
        return self._console.status(f"{what} …")

    def tutorial(self, result: TutorialResult) -> None:
        self._title("(a) The tutorial's conv2d + relu, partitioned for the example NPU")
        self._line(result.module.rstrip())
        self._line()
        self._offloaded(result.ops_offloaded, result.ops_total, result.regions)
        if result.max_abs is not None:
            shape = "x".join(map(str, result.output_shape or ()))
            self._line(
                f"Output {shape}, largest difference to NumPy "
                f"{result.max_abs:.1e}: {_verdict(bool(result))}"
            )

    def digits(self, result: DigitsResult) -> None:
        self._title(f"(b) A trained digits classifier (ONNX) on {result.images} held-out images")
        self._offloaded(result.ops_offloaded, result.ops_total, result.regions)
        self._table(
            ("", "accuracy", "max abs difference", "same labels", "ms/image"),
            [
                (
                    run.name,
                    f"{run.accuracy:.2%}",
                    "reference" if run.name == result.reference else f"{run.max_abs:.1e}",
                    f"{result.images - run.disagreements} of {result.images}",
                    f"{run.ms_per_image:.3f}",
                )
                for run in result.runs
            ],
        )
        if result.reference != "ONNX Runtime":
            self._line("ONNX Runtime is not installed, so TVM's own CPU code is the reference.")
        if result.artifact_bytes is None:
            return
        for schedule in result.schedules:
            self._console.print(npu_schedule.summary(schedule))
        self._line(
            f"Exported ({result.artifact_bytes / 1024:.0f} KiB), reloaded in a fresh process: "
            f"{_verdict(bool(result))}"
        )
        for path in filter(None, (result.artifact, result.trace)):
            self._line(f"    {path}")

    def backends(self, states: tuple[BackendState, ...]) -> None:
        self._title("(c) Backends, and how far each gets on this machine")
        self._table(
            ("backend", *STEPS, "what it is"),
            [
                (
                    state.name,
                    *("yes" if step in state.steps else "-" for step in STEPS),
                    state.summary,
                )
                for state in states
            ],
        )
        for state in states:
            if state.missing is not None:
                self._line(f"{state.name}: {state.missing.detail}")
                self._line(f"    {state.missing.remedy}", style="cyan")

    def verdict(self, result: QuickstartResult) -> None:
        self._line()
        for status in result.unavailable:
            self._line(f"Did not run: {status.detail}", style="red")
            self._line(f"    {status.remedy}", style="cyan")
        summary = "Everything ran and agreed" if result else "Not everything ran and agreed"
        self._line(
            f"{summary} ({result.seconds:.1f} s).", style="bold green" if result else "bold red"
        )

    def _title(self, text: str) -> None:
        self._line()
        self._line(text, style="bold")
        self._line()

    def _offloaded(self, offloaded: int, total: int, regions: int) -> None:
        plural = "" if regions == 1 else "s"
        self._line(f"{offloaded} of {total} ops offloaded in {regions} region{plural}")

    def _table(self, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table

        table = Table(*header, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for column in table.columns:
            column.justify = "right" if column.header in _NUMBERS else "left"
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def _line(self, text: str = "", style: str | None = None) -> None:
        # Never wrapped: modules and commands are there to be copied.
        self._console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _verdict(ok: bool) -> str:
    return "agrees" if ok else f"DIFFERS by more than {TOLERANCE:g}"
