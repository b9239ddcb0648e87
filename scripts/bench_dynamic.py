#!/usr/bin/env python3
"""Ways of leaving the batch open: time by batch, padding, size of the artifact, time to compile.

Two small models with random weights, from PyTorch, on three backends. All builds of a model for a
backend are in one process and take turns at each batch. What the page says of which way is the
fastest is made of the figures; nothing of it is written by hand.

Examples: python scripts/bench_dynamic.py            print the tables
          python scripts/bench_dynamic.py --write    write them into docs/dynamic_sizes.md
          python scripts/bench_dynamic.py --only openvino --json
"""

from __future__ import annotations

import os

# Read when TVM starts: each side has one thread, so that CPU time is the time of a call.
os.environ |= {"TVM_NUM_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "0"}

import argparse
import importlib.metadata
import itertools
import json
import statistics
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_torch_models import convolution
from torch import nn

import tvm_byoc_kit as byoc
from tvm_byoc_kit import Buckets, Profile
from tvm_byoc_kit.backends.example_npu_schedule import schedules

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dynamic_sizes.md"
START, END = "<!-- figures -->", "<!-- end of figures -->"

BATCHES = (1, 2, 3, 4, 6, 8, 11, 16, 17, 24, 32)
SIZES = (1, 4, 8, 16)
SCHEMES: dict[str, Buckets | Profile | None] = {
    "symbolic": None,
    "buckets": Buckets(*SIZES),
    "combined": Buckets(*SIZES, fallback="symbolic"),
    "profile": Profile(1, 8, 32),
}
OPTIONS: dict[str, dict[str, Any] | None] = {
    "openvino": {"threads": 1},
    "example_npu": None,
    "llvm": None,
}
ENTRY = "main"  # of the build that leaves the batch open
ROUNDS, SECONDS = 11, 0.004  # samples of each side at a batch, and the least that one takes
TOLERANCE = 1e-4  # of the largest difference
MARGIN = 0.05  # a way has to be faster by so much to be named before one with fewer builds

# ------------------------------------------------------------------ the models


class Block(nn.Module):
    """Two convolutions, and a shortcut around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *convolution(inputs, outputs, 3, stride),
            nn.ReLU(),
            *convolution(outputs, outputs, 3),
        )
        self.shortcut = nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block of a ResNet-18."""
        return torch.relu(self.body(x) + self.shortcut(x))


def convnet() -> nn.Module:
    """Three blocks, as in ResNet-18, and a classifier of 10 classes."""
    return nn.Sequential(
        *convolution(3, 16, 3),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


class Encoder(nn.Module):
    """Embeddings, two encoder layers, the first token pooled."""

    WORDS, TOKENS, WIDTH, HEADS, LAYERS = 500, 16, 64, 4, 2

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(self.WORDS, self.WIDTH)
        self.positions = nn.Parameter(torch.randn(1, self.TOKENS, self.WIDTH))
        layer = nn.TransformerEncoderLayer(
            self.WIDTH, self.HEADS, 4 * self.WIDTH, batch_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, self.LAYERS, enable_nested_tensor=False)
        self.pooler = nn.Sequential(nn.Linear(self.WIDTH, self.WIDTH), nn.Tanh())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """As of BERT."""
        return self.pooler(self.encoder(self.words(tokens) + self.positions)[:, 0])


@dataclass(frozen=True)
class Case:
    """A model of the tables.

    Parameters
    ----------
    name, what : str
    make : callable
    example : callable
        Gives an input of so many rows.
    """

    name: str
    what: str
    make: Callable[[], nn.Module]
    example: Callable[[int], torch.Tensor]


CASES = (
    Case(
        "convnet",
        "three blocks of ResNet-18 with 16 to 64 channels, 16 x 16",
        convnet,
        lambda rows: torch.randn(rows, 3, 16, 16),
    ),
    Case(
        "BERT-like",
        "two layers of 64, 16 tokens",
        Encoder,
        lambda rows: torch.randint(0, Encoder.WORDS, (rows, Encoder.TOKENS)),
    ),
)

# ------------------------------------------------------------------ measuring


@dataclass
class Scheme:
    """What was measured of one way.

    Parameters
    ----------
    name : str
    builds : int
        In the artifact.
    seconds : float
        CPU time of `byoc.compile`, measuring costs included.
    megabytes : float
        Of the artifact.
    times : mapping of batch to float
        Median CPU seconds of a call.
    padding : mapping of batch to float
        Rows of padding by rows that were run.
    cycles : mapping of batch to int
        On the example NPU: of all calls, by its cost model.
    plans : mapping of batch to str
        Which build ran.
    """

    name: str
    builds: int
    seconds: float
    megabytes: float
    times: dict[int, float] = field(default_factory=dict)
    padding: dict[int, float] = field(default_factory=dict)
    cycles: dict[int, int] = field(default_factory=dict)
    plans: dict[int, str] = field(default_factory=dict)


@dataclass
class Outcome:
    """All ways for one model on one backend."""

    case: str
    backend: str
    schemes: list[Scheme]
    difference: float


def measure(case: Case, backend: str) -> Outcome:
    """Build and run all ways."""
    torch.manual_seed(0)
    module = case.make().eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    model = byoc.load_model(module, (case.example(3),), ({0: batch},))
    names = [name for name in SCHEMES if name != "profile" or backend == "openvino"]
    built = {name: build(model, backend, name) for name in names}
    worst = 0.0
    for rows in BATCHES:
        example = case.example(rows)
        inputs = {model.inputs[0].name: example.numpy()}
        with torch.inference_mode():
            worst = max(worst, *(error(exe, inputs, module(example)) for _, exe in built.values()))
        describe(built, case, rows)
        for name, seconds in times(built, inputs).items():
            built[name][0].times[rows] = seconds
    return Outcome(case.name, backend, [scheme for scheme, _ in built.values()], worst)


def build(model: Any, backend: str, name: str) -> tuple[Scheme, byoc.Executable]:
    """One way, and what it takes to make it."""
    start = time.process_time()
    exe = byoc.compile(model, backend, batch=SCHEMES[name], options=OPTIONS[backend])
    seconds = time.process_time() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        exe.export(path)
        size = path.stat().st_size
    builds = len(exe.manifest.variants.builds) if exe.manifest.variants else 1
    return Scheme(name, builds, seconds, size / 1e6), exe


def error(exe: byoc.Executable, inputs: Mapping[str, np.ndarray], expected: Any) -> float:
    """The largest difference, by the largest magnitude."""
    (actual,) = exe.run(inputs).values()
    reference = expected.numpy()
    return float(np.abs(actual - reference).max() / np.abs(reference).max())


Built = Mapping[str, "tuple[Scheme, byoc.Executable]"]


def describe(built: Built, case: Case, rows: int) -> None:
    """Which builds run, with how much padding, and what the example NPU's cost model says."""
    for scheme, exe in built.values():
        dimension = exe.inputs[0].shape[0]
        steps = exe.plan({dimension: rows}).steps
        run = sum(step.sizes[dimension] for step in steps)
        scheme.padding[rows] = sum(step.padded for step in steps) / run
        sizes = [f"{step.sizes[dimension]}{'*' * (step.entry == ENTRY)}" for step in steps]
        scheme.plans[rows] = " + ".join(
            size if number == 1 else f"{number} x {size}" for size, number in Counter(sizes).items()
        )
        if exe.manifest.backend == "example_npu":
            symbolic = built["symbolic"][1]
            scheme.cycles[rows] = sum(
                fixed_cycles(exe, step.entry)
                if step.entry != ENTRY
                else open_cycles(symbolic, case, step.sizes[dimension])
                for step in steps
            )


def fixed_cycles(exe: byoc.Executable, entry: str) -> int:
    """Of the regions of a build whose size is fixed; their names end as its own does."""
    end = entry.removeprefix(ENTRY)
    return sum(s.cycles for s in schedules(exe) if s.symbol.endswith(end))


def open_cycles(symbolic: byoc.Executable, case: Case, rows: int) -> int:
    """Of the regions of the build with the batch open, which are scheduled when they run."""
    symbolic.run({symbolic.inputs[0].name: case.example(rows).numpy()})
    return sum(schedule.cycles for schedule in schedules(symbolic))


def times(built: Built, inputs: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Median CPU seconds of a call of each, by turns."""
    samples: dict[str, list[float]] = {name: [] for name in built}
    calls = {name: count(exe, inputs) for name, (_, exe) in built.items()}
    order = list(built)
    for number in range(ROUNDS):
        for name in order if number % 2 else order[::-1]:
            exe = built[name][1]
            start = time.process_time()
            for _ in range(calls[name]):
                exe.run(inputs)
            samples[name].append((time.process_time() - start) / calls[name])
    return {name: statistics.median(taken) for name, taken in samples.items()}


def count(exe: byoc.Executable, inputs: Mapping[str, np.ndarray]) -> int:
    """How many calls a sample has."""
    exe.run(inputs)
    start = time.process_time()
    exe.run(inputs)
    return max(1, min(50, int(SECONDS / max(time.process_time() - start, 1e-6))))


# ------------------------------------------------------------------ the page


INTRODUCTION = """\
Written by `python scripts/bench_dynamic.py --write` with {versions}. Models with random weights:
{models}. Buckets are {sizes}; `combined` has the open build too; `profile`, 1 to 32, is
that open build with its bounds checked, and is shown for OpenVINO. Times are CPU time of a call
with one thread, medians of
{rounds} samples, the ways by turns in one process; the columns after the first are ratios to
`symbolic`. *Runs* are the sizes that a call was made of, with a star where the open build ran, and
*padding* is the share of rows that were not asked for. The time to compile is CPU time without the
import of the model, the measuring of costs included. The largest difference from PyTorch, by the
largest magnitude, was {difference:.0e}."""

CYCLES = """\
The times above are of its simulator on the CPU, and so are the costs that decide in `combined`. By
its cost model (example_npu_cost_model.md) the regions of a call take these cycles:"""


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def time_table(outcome: Outcome) -> str:
    """A row for each batch: time of the symbolic build, ratios to it, plans and padding."""
    symbolic, *others = outcome.schemes
    columns = ["batch", "symbolic, ms"]
    for scheme in others:
        columns += [scheme.name]
        columns += [f"{scheme.name} runs", "padding"] if scheme.builds > 1 else []
    rows = []
    for batch in BATCHES:
        row = [str(batch), f"{symbolic.times[batch] * 1e3:.3g}"]
        for scheme in others:
            row.append(f"{scheme.times[batch] / symbolic.times[batch]:.2f}")
            if scheme.builds > 1:
                row += [scheme.plans[batch], f"{scheme.padding[batch]:.0%}"]
        rows.append(row)
    return table(columns, rows)


def cycle_table(outcomes: Sequence[Outcome]) -> str:
    """Cycles of the example NPU by its cost model."""
    sides = [(o, s) for o in outcomes for s in o.schemes if s.cycles]
    columns = ["batch", *(f"{o.case}, {s.name}" for o, s in sides)]
    rows = [[str(b), *(f"{s.cycles[b]:,}" for _, s in sides)] for b in BATCHES]
    return table(columns, rows)


def artifact_table(outcomes: Sequence[Outcome]) -> str:
    """A row for each artifact."""
    rows = [
        [
            outcome.case,
            outcome.backend,
            scheme.name,
            str(scheme.builds),
            f"{scheme.megabytes:.2f}",
            f"{scheme.megabytes / outcome.schemes[0].megabytes:.2f}",
            f"{scheme.seconds:.1f}",
        ]
        for outcome in outcomes
        for scheme in outcome.schemes
    ]
    columns = ["model", "backend", "way", "builds", "artifact, MB", "of symbolic", "compile, s"]
    return table(columns, rows)


def fastest(outcome: Outcome, batch: int) -> str:
    """The way with the fewest builds among those within `MARGIN` of the least time."""
    least = min(scheme.times[batch] for scheme in outcome.schemes)
    near = [s for s in outcome.schemes if s.times[batch] <= least * (1 + MARGIN)]
    return min(near, key=lambda scheme: scheme.builds).name


def fastest_ranges(outcome: Outcome) -> str:
    """Such as ``1-4: buckets; 5-32: symbolic``."""
    groups = itertools.groupby(BATCHES, lambda batch: fastest(outcome, batch))
    return "; ".join(f"{span(list(batches))}: {name}" for name, batches in groups)


def winners(outcomes: Sequence[Outcome]) -> str:
    """A row for each model and backend: ranges of batches, and the fastest way there."""
    rows = [
        [
            outcome.case,
            outcome.backend,
            fastest_ranges(outcome),
            ", ".join(f"{s.name} {gain(outcome, s):.2f}" for s in outcome.schemes[1:]),
        ]
        for outcome in outcomes
    ]
    columns = ["model", "backend", "fastest at batch", "time of symbolic, geometric mean"]
    return table(columns, rows)


def gain(outcome: Outcome, scheme: Scheme) -> float:
    """Of the time of symbolic, over all batches."""
    ratios = [scheme.times[b] / outcome.schemes[0].times[b] for b in BATCHES]
    return statistics.geometric_mean(ratios)


def span(batches: Sequence[int]) -> str:
    """Such as ``4-8``."""
    first, last = batches[0], batches[-1]
    return str(first) if first == last else f"{first}-{last}"


def figures(outcomes: Sequence[Outcome]) -> str:
    """All tables, between their marks."""
    packages = ("apache-tvm", "openvino", "torch")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    sizes = ", ".join(map(str, SIZES))
    introduction = INTRODUCTION.format(
        versions=versions,
        models="; ".join(f"{case.name}, {case.what}" for case in CASES),
        sizes=sizes,
        rounds=ROUNDS,
        difference=max(outcome.difference for outcome in outcomes),
    )
    parts = [
        START,
        introduction,
        "### Which way is the fastest",
        f"By more than {MARGIN:.0%}; where several are that close, the one with the fewest builds.",
        winners(outcomes),
        "### Artifacts",
        artifact_table(outcomes),
    ]
    for outcome in outcomes:
        parts += [f"### {outcome.case} on {outcome.backend}", time_table(outcome)]
    if any(scheme.cycles for outcome in outcomes for scheme in outcome.schemes):
        parts += ["### The example NPU's cycles", CYCLES, cycle_table(outcomes)]
    return "\n\n".join([*parts, END])


def replaced(page: str, text: str) -> str:
    """`page` with `text` where its figures were."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return before + text + after


def outcomes_of(only: Sequence[str]) -> Iterator[Outcome]:
    """Of every model on every backend that is here."""
    for case, backend in itertools.product(CASES, OPTIONS):
        if only and not any(text in (case.name, backend) for text in only):
            continue
        if not byoc.get_backend(backend).check():
            print(f"{backend}: {byoc.get_backend(backend).check()}", file=sys.stderr)
            continue
        yield measure(case, backend)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", metavar="NAME", help="a model or a backend (repeatable)")
    add("--json", action="store_true", help="the results as JSON on standard output")
    add("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}; needs all backends")
    options = parser.parse_args(arguments)
    if options.write and options.only:
        parser.error("--write is for all models and backends, and goes not with --only")
    warnings.simplefilter("ignore")
    outcomes = list(outcomes_of(options.only or []))
    text = figures(outcomes)
    print(json.dumps([asdict(o) for o in outcomes], indent=1) if options.json else text)
    if options.write:
        PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return int(any(outcome.difference > TOLERANCE for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
