#!/usr/bin/env python3
"""The OpenVINO backend against ONNX Runtime, OpenVINO's own API and TVM, on standard models.

Models with random weights, made by PyTorch and exported to ONNX, and two real ones from
scripts/real_models.py. Every side gets the same ONNX file and inputs. Each model and number of
threads has a process of its own, in which the sides run by turns (byoc.bench); setup and memory are
measured with each side alone in a process.

Examples: python scripts/bench.py --write
          python scripts/bench.py --only convnet --threads 1 --json
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import real_models

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
BACKEND = "openvino"
AGAINST = ("onnxruntime", "openvino", "tvm")
SIDES = (f"byoc:{BACKEND}", *AGAINST)

# ------------------------------------------------------------------ the models


@dataclass(frozen=True)
class Case:
    """One model of the table.

    Parameters
    ----------
    name, what : str
        Of the row.
    real : str
        Name in `real_models`; empty for those that PyTorch makes.
    """

    name: str
    what: str
    real: str = ""


CASES = (
    Case("ResNet-18", "224 x 224"),
    Case("ResNet-50", "224 x 224"),
    Case("MobileNetV2", "224 x 224"),
    Case("BERT-like", "4 layers of 256, 128 tokens"),
    Case("convnet", "2 convolutions, 32 x 32"),
    Case("PP-OCRv4 rec", "text recogniser, 48 x 160", real="rapidocr rec"),
    Case("MiniLM-L3", "text encoder, 32 tokens", real="paraphrase-MiniLM-L3"),
)


def make_torch_model(name: str) -> tuple[Any, Any]:
    """The module, ready for inference, and an input."""
    import bench_preparation
    import torch
    from bench_simulator import resnet18
    from bench_torch_models import BertLike, resnet50

    image = torch.randn(1, 3, 224, 224)
    makers: dict[str, tuple[Callable[[], Any], Any]] = {
        "ResNet-18": (resnet18, image),
        "ResNet-50": (resnet50, image),
        "MobileNetV2": (bench_preparation.mobilenet_v2, image),
        "BERT-like": (BertLike, torch.randint(0, 1000, (1, 128))),
        "convnet": (bench_preparation.convnet, torch.randn(1, 3, 32, 32)),
    }
    torch.manual_seed(0)
    make, example = makers[name]
    return make().eval(), example


def export(name: str, folder: Path) -> None:
    """The child process that has torch: write the model's ONNX file and its inputs."""
    import torch

    model, example = make_torch_model(name)
    torch.onnx.export(
        model,
        (example,),
        folder / "model.onnx",
        dynamo=False,  # the other exporter needs one more package
        opset_version=17,
        input_names=["input"],
        output_names=["output"],
    )
    np.savez(folder / "inputs.npz", input=example.numpy())


def fetch(case: Case, folder: Path) -> None:
    """The file of a real model, and inputs."""
    model = next(model for model in real_models.MODELS if model.name == case.real)
    path = real_models.model_file(model, real_models.default_cache())
    (folder / "model.onnx").write_bytes(path.read_bytes())
    rng = np.random.default_rng(0)
    inputs = {name: make(rng, shape) for name, (make, shape) in model.inputs.items()}
    np.savez(folder / "inputs.npz", **inputs)


def read_inputs(folder: Path) -> dict[str, np.ndarray]:
    """What `export` or `fetch` wrote."""
    with np.load(folder / "inputs.npz") as archive:
        return {name: archive[name] for name in archive.files}


# ------------------------------------------------------------------ child processes


def measure(folder: Path, threads: int, rounds: int) -> dict[str, Any]:
    """All sides by turns."""
    import tvm_byoc_kit as byoc

    inputs = read_inputs(folder)
    return byoc.bench(
        folder / "model.onnx",
        BACKEND,
        against=AGAINST,
        threads=threads,
        rounds=rounds,
        inputs=inputs,
        shapes={name: value.shape for name, value in inputs.items()},
    ).to_dict()


def weigh(folder: Path, side: str) -> dict[str, Any]:
    """One side alone: how long it takes to get ready, and the memory it takes."""
    from tvm_byoc_kit.contenders import Job, find_maker
    from tvm_byoc_kit.model import load_model
    from tvm_byoc_kit.process_memory import measure_memory

    maker = find_maker(side)
    for module in maker.modules:
        importlib.import_module(module)
    inputs = read_inputs(folder)
    shapes = {name: value.shape for name, value in inputs.items()}
    with measure_memory() as memory:
        start = time.process_time()
        model = folder / "model.onnx"
        imported = load_model(model, shapes=shapes)
        importing = time.process_time() - start
        start = time.process_time()
        contender = maker(Job(model, imported, inputs, 1))
        contender.call()
        setup = time.process_time() - start
        if maker.imports:
            setup += importing
        for _ in range(3):
            contender.call()
    return {"setup_s": setup, "held": memory.held, "peak": memory.peak}


def build_artifact(folder: Path) -> dict[str, Any]:
    """Export an artifact, and tell its size."""
    import tvm_byoc_kit as byoc

    inputs = read_inputs(folder)
    shapes = {name: value.shape for name, value in inputs.items()}
    model = byoc.load_model(folder / "model.onnx", shapes=shapes)
    byoc.compile(model, BACKEND, options={"threads": 1}).export(folder / "model.so")
    return {"bytes": (folder / "model.so").stat().st_size}


def child(*arguments: object) -> dict[str, Any]:
    """What one of the functions above gives in a process of its own."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    environment = {**os.environ, "TVM_NUM_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "0"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def serve(what: str, folder: str, *rest: str) -> None:
    """The child process: do what `child` was asked for, print the answer."""
    from tvm_byoc_kit.native import without_torch

    path = Path(folder)
    if what == "export":
        export(rest[0], path)
        print("{}")
        return
    with without_torch():
        import tvm  # noqa: F401 - the first import decides whether torch comes along
    answers: dict[str, Callable[[], dict[str, Any]]] = {
        "measure": lambda: measure(path, int(rest[0]), int(rest[1])),
        "weigh": lambda: weigh(path, rest[0]),
        "artifact": lambda: build_artifact(path),
    }
    print(json.dumps(answers[what]()))


# ------------------------------------------------------------------ the table


def run_case(case: Case, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one model."""
    if case.real:
        fetch(case, folder)
    else:
        child("export", folder, case.name)
    facts: dict[str, Any] = {"name": case.name, "what": case.what, "reports": []}
    for threads in options.threads:
        report = child("measure", folder, threads, options.rounds)
        facts["reports"].append(report)
        print(line(case.name, report), file=sys.stderr, flush=True)
    facts["weights"] = {side: child("weigh", folder, side) for side in SIDES}
    facts["artifact_bytes"] = child("artifact", folder)["bytes"]
    return facts


def line(name: str, report: dict[str, Any]) -> str:
    """One result on the terminal."""
    sides = {side["name"]: side for side in report["sides"]}
    own = sides.pop(f"byoc:{BACKEND}")
    ratios = ", ".join(f"{s['cpu_ratio']['median']:.3f} of {n}" for n, s in sides.items())
    return (
        f"{name}, {report['threads']} thread(s): CPU {own['cpu_ms']['median']:.3f} ms, {ratios}; "
        f"wall {own['wall_ms']['median']:.3f} ms; {report['ops_offloaded']} of "
        f"{report['ops_total']} ops in {report['regions']} region(s); "
        f"{'ok' if report['ok'] else 'WRONG NUMBERS'}"
    )


_MEGA = 1e6


def time_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each model and number of threads."""
    rows = []
    for facts in results:
        for report in facts["reports"]:
            sides = {side["name"]: side for side in report["sides"]}
            own = sides[SIDES[0]]
            rows.append(
                [
                    f"{facts['name']} ({facts['what']})",
                    str(report["threads"]),
                    f"{report['ops_offloaded']} of {report['ops_total']} in {report['regions']}",
                    _milliseconds(own["cpu_ms"]),
                    *(_ratio(sides[name]["cpu_ratio"]) for name in AGAINST),
                    _milliseconds(own["wall_ms"]),
                    f"{sides['onnxruntime']['wall_ratio']['median']:.2f}",
                    f"{own['max_abs']:.1e}",
                ]
            )
    return rows


def _milliseconds(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3g}"


def _ratio(spread: dict[str, float]) -> str:
    return f"{spread['median']:.3f} [{spread['lower']:.3f} {spread['upper']:.3f}]"


def weight_rows(results: Sequence[dict[str, Any]]) -> list[list[str]]:
    """A row for each model."""
    return [
        [
            facts["name"],
            *(f"{facts['weights'][side]['setup_s']:.2f}" for side in SIDES),
            *(f"{facts['weights'][side]['peak'] / _MEGA:.0f}" for side in SIDES),
            *(f"{facts['weights'][side]['held'] / _MEGA:.0f}" for side in SIDES),
            f"{facts['artifact_bytes'] / _MEGA:.1f}",
        ]
        for facts in results
    ]


PAGE_TEXT = """\
# Benchmarks

Written by `python scripts/bench.py --write` with {versions}, on {machine}.

ResNet-18, ResNet-50, MobileNetV2, the BERT-like encoder and the convnet have random weights and are
exported from PyTorch; the last two are real models. All sides get the same ONNX file, batch 1,
float32. `tvm` is what `tvm.compile(mod, "llvm")` gives, `openvino` OpenVINO's own Python API
without TVM, with performance hint `LATENCY` and inference precision `f32`, as the backend has them;
the backend does not pin threads to cores, OpenVINO by itself does. Every side has the same number
of threads. {executor}

## Time of a call

Arrays in, arrays out: `exe.run(inputs)` against `session.run(None, inputs)` and
`request.infer(inputs)`. The sides take turns in one process, in an order that changes; a sample is
the mean over 50 ms, and the figures are medians of {rounds} samples, with quartiles in brackets.
Ratios are the backend's time over the other's, round by round: below 1 the backend is faster. CPU
time is that of all threads of the process.

{times}

## Getting ready, and memory

CPU seconds from the ONNX file to the first result, and megabytes that the process takes more than
before (the most, and what it keeps after some calls); one side in a process, the libraries imported
before. Those that start from the imported model (`byoc:openvino`, `tvm`) hold that model and its
weights too, which a process that runs an exported artifact does not. The artifact is the `.so`.

{weights}

How long an exported artifact takes from the start of a process to its first result is in
[artifacts.md](artifacts.md#cold-start).
"""

TIME_COLUMNS = (
    *("model", "threads", "ops in regions", "CPU ms", "of onnxruntime", "of openvino", "of tvm"),
    *("wall ms", "wall of onnxruntime", "largest difference"),
)
WEIGHT_COLUMNS = (
    "model",
    *(f"{what} {side}" for what in ("s", "peak MB", "kept MB") for side in SIDES),
    "artifact MB",
)


def page(results: Sequence[dict[str, Any]], rounds: int) -> str:
    """docs/benchmarks.md."""
    from tvm_byoc_kit import plugin_build

    packages = ("apache-tvm", "openvino", "onnxruntime")
    native = bool(plugin_build.inspect(BACKEND))
    executor = "C++ (`tvm-byoc build-plugin openvino`)" if native else "Python"
    return PAGE_TEXT.format(
        versions=", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages),
        machine=results[0]["reports"][0]["machine"],
        executor=f"The backend's executor is the one in {executor}.",
        rounds=rounds,
        times=_table(TIME_COLUMNS, time_rows(results)),
        weights=_table(WEIGHT_COLUMNS, weight_rows(results)),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 when a side gave other numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", metavar="TEXT", help="models whose name has TEXT (repeatable)")
    add("--threads", action="append", type=int, metavar="N", help="repeatable (1 and 2)")
    add("--rounds", type=int, default=20, metavar="N", help="samples of each side (20)")
    add("--json", action="store_true", help="the results as JSON on standard output")
    add("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}; needs all models")
    add("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        serve(*options.child)
        return 0
    if options.write and options.only:
        parser.error("--write is for all models, and goes not with --only")
    options.threads = options.threads or [1, 2]
    chosen = [c for c in CASES if not options.only or any(t in c.name for t in options.only)]
    results = []
    for case in chosen:
        with tempfile.TemporaryDirectory(prefix="byoc-bench-") as folder:
            results.append(run_case(case, Path(folder), options))
    if options.json:
        print(json.dumps(results, indent=1))
    if options.write:
        PAGE.write_text(page(results, options.rounds), encoding="utf-8")
    return int(not all(report["ok"] for facts in results for report in facts["reports"]))


if __name__ == "__main__":
    sys.exit(main())
