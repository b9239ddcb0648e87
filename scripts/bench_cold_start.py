#!/usr/bin/env python3
"""What a process that runs an artifact spends before its first result, stage by stage.

Each artifact runs in fresh processes, in some of which TVM has been imported before; all of them
take turns, and the figures are medians.

Examples: python scripts/bench_cold_start.py --write
          python scripts/bench_cold_start.py --only digits --rounds 3
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import bench

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "artifacts.md"
MARKS = ("<!-- by scripts/bench_cold_start.py -->\n", "<!-- end -->\n")
BACKENDS = ("llvm", "example_npu", "openvino")
MODELS = ("digits", "ResNet-18")
MODES = {"runtime alone": "tvm_ffi", "whole": "tvm"}  # what is imported before `byoc.load`
SETTINGS = {"TVM_NUM_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "0"}
STAGES = ("Python", "kit", "manifest", "NumPy", "TVM", "load", "first run")
AFTERWARDS = ("second run", "checksum")

CHILD = """
import time
marks = [("Python", 0.0, time.process_time())]
def mark(name, since):
    now = time.process_time()
    marks.append((name, since, now))
    return now
now = marks[0][2]
import sys
import tvm_byoc_kit as byoc
byoc.load
now = mark("kit", now)
manifest = byoc.read_manifest(sys.argv[1])
now = mark("manifest", now)
import numpy as np
now = mark("NumPy", now)
import importlib
from tvm_byoc_kit.native import without_torch
with without_torch():
    importlib.import_module(sys.argv[2])
now = mark("TVM", now)
exe = byoc.load(sys.argv[1])
now = mark("load", now)
assert ("tvm" in sys.modules) == (sys.argv[2] == "tvm")
inputs = {spec.name: np.ones(spec.shape, spec.dtype) for spec in exe.inputs}
now = time.process_time()
exe.run(inputs)
now = mark("first run", now)
exe.run(inputs)
now = mark("second run", now)
from pathlib import Path
from tvm_byoc_kit.artifact import sha256
assert sha256(Path(sys.argv[1]), manifest.library["size"]) == manifest.library["sha256"]
mark("checksum", now)
import json
print(json.dumps({name: end - start for name, start, end in marks}))
"""


def make_artifacts(names: Sequence[str], folder: Path) -> dict[tuple[str, str], Path]:
    """The artifact of each model and backend."""
    import tvm_byoc_kit as byoc

    artifacts = {}
    for name in names:
        source = ROOT / "tvm_byoc_kit" / "data" / "digits.onnx"
        if name != "digits":
            source = folder / "model.onnx"
            bench.export(name, folder)
        model = byoc.load_model(source)
        for backend in BACKENDS:
            path = artifacts[name, backend] = folder / f"{name}_{backend}.so"
            byoc.compile(model, backend).export(path)
    return artifacts


def run_once(path: Path, package: str) -> dict[str, float]:
    """CPU seconds of the stages in a fresh process that imports `package` itself."""
    environment = {**os.environ, **SETTINGS, "PYTHONPYCACHEPREFIX": str(path.parent)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-c", CHILD, str(path), package]
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=path.parent
    )
    stages: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return stages


def measure(
    artifacts: dict[tuple[str, str], Path], rounds: int
) -> dict[tuple[str, str, str], dict[str, float]]:
    """Medians by model, backend and mode."""
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for path in artifacts.values():
        run_once(path, "tvm")  # so that all is compiled to bytecode, and in the system's cache
    for _ in range(rounds):
        for (model, backend), path in artifacts.items():
            for mode, package in MODES.items():
                found.setdefault((model, backend, mode), []).append(run_once(path, package))
    return {
        key: {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        for key, runs in found.items()
    }


def table(
    medians: dict[tuple[str, str, str], dict[str, float]], artifacts: dict[tuple[str, str], Path]
) -> str:
    """As Markdown; a row for each artifact and mode."""
    columns = ["artifact", "MB", "of TVM", *STAGES, "to the first result", "second run", "SHA-256"]
    rows = [columns, ["---", *["---:"] * (len(columns) - 1)]]
    for (model, backend, mode), times in medians.items():
        size = artifacts[model, backend].stat().st_size / 1e6
        milliseconds = [f"{1e3 * times[stage]:.0f}" for stage in STAGES]
        total = sum(times[stage] for stage in STAGES)
        last = [f"{1e3 * times[stage]:.1f}" for stage in AFTERWARDS]
        head = [f"{model}, {backend}", f"{size:.1f}", mode]
        rows.append([*head, *milliseconds, f"**{1e3 * total:.0f}**", *last])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def write(text: str) -> None:
    """Put the table between the marks of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    if options.write and options.only:
        parser.error("--write is for all models, and goes not with --only")
    with tempfile.TemporaryDirectory(prefix="byoc-bench-") as folder:
        names = (options.only,) if options.only else MODELS
        artifacts = make_artifacts(names, Path(folder))
        medians = measure(artifacts, options.rounds)
        text = table(medians, artifacts)
    packages = ("apache-tvm", "openvino", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    python = ".".join(map(str, sys.version_info[:3]))
    text = f"CPU milliseconds, medians of {options.rounds}; Python {python}, {versions}.\n\n{text}"
    print(text)
    if options.write:
        write(text)


if __name__ == "__main__":
    main()
