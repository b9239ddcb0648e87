#!/usr/bin/env python3
"""What it takes to build models in 16 bits for GPUs, on a machine that has none.

Each model is imported from PyTorch and from ONNX and built for the backends `cuda` and `cutlass`,
the latter twice, first with an empty cache of kernels. Seconds are of the CPU, of this process and
its compilers; nothing is run.

Examples: python scripts/bench_gpu_builds.py --write
          python scripts/bench_gpu_builds.py --only encoder --target h100
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_check_plan import make_torch_model

import tvm_byoc_kit as byoc

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "cuda.md"
MARKS = ("<!-- by scripts/bench_gpu_builds.py -->\n", "<!-- end -->\n")
MODELS = {"resnet18": "ResNet-18", "encoder": "BERT-like, 4 layers of 256"}
BACKENDS = ("cuda", "cutlass")


@dataclass(frozen=True)
class Built:
    """One artifact, and what it took."""

    offloaded: str
    seconds: tuple[float, ...]
    code: byoc.DeviceCode
    bytes: int
    notes: tuple[str, ...]


def models(name: str, work: Path) -> dict[str, Any]:
    """The model by what it is imported from."""
    import torch

    module, example = make_torch_model(name)
    file = work / f"{name}.onnx"
    torch.onnx.export(module, (example,), file, dynamo=False, opset_version=17)
    return {"PyTorch": byoc.load_model(module, (example,)), "ONNX": byoc.load_model(file)}


def cpu_seconds() -> float:
    """Of this process and the children that have ended."""
    usage = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in usage)


def build(model: Any, backend: str, target: str, work: Path) -> Built:
    """Build twice where kernels are cached, else once."""
    os.environ["TVM_BYOC_KERNEL_CACHE"] = tempfile.mkdtemp(dir=work)
    parts = byoc.partition(byoc.half_precision(model, backend), backend)
    seconds, file = [], work / "model.so"
    for _ in range(2 if backend == "cutlass" else 1):
        start = cpu_seconds()
        exe = byoc.build(parts, target)
        exe.export(file)
        seconds.append(cpu_seconds() - start)
    coverage = parts.coverage
    share = f"{len(coverage.regions)} regions, {coverage.macs_share:.0%}"
    notes = tuple(exe.manifest.device_code.get("notes", ()))
    held = byoc.device_code(file)
    return Built(share, tuple(seconds), held, file.stat().st_size, notes)


def row(name: str, source: str, backend: str, built: Built) -> str:
    """Its line of the table."""
    cells = [
        MODELS[name],
        source,
        f"`{backend}`",
        built.offloaded if backend == "cutlass" else "",
        ", then ".join(f"{seconds:.0f}" for seconds in built.seconds),
        f"{built.bytes / 1e6:.1f}",
        str(built.code),
        "; ".join(built.notes),
    ]
    return f"| {' | '.join(cells)} |"


HEAD = """\
| model, float16 | from | backend | offloaded, MACs | CPU seconds | MB | the file holds | notes |
|---|---|---|---|---|---|---|---|"""


def write(text: str) -> None:
    """Put the table between the marks on the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


def main() -> None:
    """Print the table, and write it if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=MODELS, help="this model alone")
    parser.add_argument("--target", default="a100,h100")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.relative_to(ROOT)}")
    options = parser.parse_args()
    if options.write and options.only:
        parser.error("--write is for all models, and goes not with --only")
    warnings.simplefilter("ignore")  # what a build had to do without is among the notes
    lines = [HEAD]
    print(HEAD)
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        for name in [options.only] if options.only else MODELS:
            for source, model in models(name, Path(work)).items():
                for backend in BACKENDS:
                    built = build(model, backend, options.target, Path(work))
                    lines.append(row(name, source, backend, built))
                    print(lines[-1], flush=True)
    if options.write:
        write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
