"""CPU time of partitioning and reading the coverage, against the length of a chain of ops.

    python scripts/bench_partition.py [--backend BACKEND ...] [SIZE ...]

The chain has a matmul in every five ops, each with its own weights; in the second kind every tenth
op stays on the host, so that there are many regions. Times are CPU seconds of the process, the
least of three runs; the last column is the growth of the time, divided by that of the chain: 1.0 is
linear.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

import tvm_byoc_kit as byoc

SIZES = (500, 1000, 2000, 5000)
LIMIT = 10.0  # CPU seconds for the longest
REPEAT = 3

STEPS: tuple[Callable[[Any, Any], Any], ...] = (
    relax.op.matmul,
    relax.op.add,
    lambda x, _: relax.op.nn.relu(x),
    lambda x, _: relax.op.tanh(x),
    lambda x, _: relax.op.multiply(x, x),
)


def chain(length: int, host_every: int = 0) -> tvm.IRModule:
    """`length` ops on float32[8, 8]; each `host_every`-th is one that no backend takes."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value: Any = x
            for number in range(length):
                weight = relax.const(rng.standard_normal((8, 8), dtype="float32"))
                if host_every and number % host_every == host_every - 1:
                    value = builder.emit(relax.op.tril(value))
                else:
                    value = builder.emit(STEPS[number % len(STEPS)](value, weight))
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    return builder.finalize()


def measure(mod: tvm.IRModule, backend: str) -> tuple[float, float, byoc.Coverage]:
    """CPU seconds of partition and of coverage, the least of some runs, and the coverage."""
    results = []
    for _ in range(REPEAT):
        start = time.process_time()
        parts = byoc.partition(mod, backend)
        middle = time.process_time()
        coverage = parts.coverage
        results.append((middle - start, time.process_time() - middle, coverage))
    return min(results, key=lambda result: result[0] + result[1])


def main() -> None:
    """Print a table; exit with an error when the longest chain takes too long."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES, metavar="SIZE")
    parser.add_argument("--backend", nargs="+", default=["example_npu", "tensorrt"])
    arguments = parser.parse_args()
    slowest = 0.0
    print("backend       host ops      ops  regions  partition  coverage   total  growth")
    for backend in arguments.backend:
        for host_every in (0, 10):
            before: tuple[int, float] | None = None
            for size in arguments.sizes:
                split, read, coverage = measure(chain(size, host_every), backend)
                total = split + read
                growth = (total / before[1]) / (size / before[0]) if before else None
                print(
                    f"{backend:<13} {coverage.total - coverage.offloaded:8} {size:8} "
                    f"{len(coverage.regions):8} {split:10.2f} {read:9.2f} {total:7.2f}  "
                    f"{'' if growth is None else format(growth, '6.2f')}",
                    flush=True,
                )
                before, slowest = (size, total), max(slowest, total)
    if slowest > LIMIT:
        raise SystemExit(f"{slowest:.1f} CPU seconds: more than {LIMIT}")


if __name__ == "__main__":
    main()
