"""What the payload module adds to a call, and how often it copies the payload.

Run it as ``python scripts/bench_payload.py``; it needs the plugin ``core`` only.
"""

from __future__ import annotations

import statistics
import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native

CALLS = 20_000
ROUNDS = 15
MEGABYTE = 1 << 20
PAYLOAD = 256 * MEGABYTE


def microseconds(call: Callable[[], Any]) -> float:
    """Median over rounds of the time of one call."""
    times = timeit.repeat(call, number=CALLS, repeat=ROUNDS)
    return statistics.median(times) / CALLS * 1e6


def resident() -> int:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * 4096 // MEGABYTE


def peak_growth(action: Callable[[], Any]) -> tuple[int, int, Any]:
    """Megabytes that `action` needs at its peak, and keeps; and what it gives."""
    before = resident()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the last peak
    result = action()
    status = Path("/proc/self/status").read_text(encoding="utf-8").split("VmHWM:")[1]
    return int(status.split()[0]) // 1024 - before, resident() - before, result


def call_costs() -> None:
    """An executor in C++ that does nothing, alone and behind the module; one in Python too."""
    x, out = (tvm.runtime.tensor(np.zeros(4, "float32")) for _ in range(2))
    create = tvm_ffi.get_global_func("byoc.payload.create")
    nothing = tvm_ffi.get_global_func("ffi.Array")  # makes an array of its two arguments
    alone = microseconds(lambda: nothing(x, out))
    for name, executor in (("C++", nothing), ("Python", lambda x, out: None)):  # noqa: ARG005
        backend = f"bench_{name.replace('+', 'p')}"
        tvm_ffi.register_global_func(f"byoc.runtime.{backend}", lambda *_, e=executor: e)
        region = create(backend, "", "region", b"", [])["region"]
        region(x, out)
        behind = microseconds(lambda region=region: region(x, out))
        print(f"executor in {name}: {behind:.2f} µs a call, {behind - alone:+.2f} to C++ alone")


def copies() -> None:
    """Memory when a payload is made, exported and loaded."""
    payload = np.random.default_rng(0).bytes(PAYLOAD)
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(out)
    mod = builder.finalize()
    backend = byoc.register_backend(
        byoc.Backend(
            "bench_keeper",
            "a large payload",
            [("relu", ["relax.nn.relu"])],
            codegen=lambda graph, options: payload,  # noqa: ARG005
            runtime=lambda payload, constants: lambda x, out: None,  # noqa: ARG005
        )
    )
    array = np.zeros(4, "float32")
    byoc.compile(mod, "llvm")(array)  # what TVM needs for itself
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        steps: list[tuple[str, Callable[[Any], Any]]] = [
            ("build", lambda _: byoc.compile(mod, backend)),
            ("export", lambda exe: exe.export(path)),
            ("load", lambda _: byoc.load(path)),
            ("first call", lambda exe: exe(array)),
        ]
        given: Any = None
        for name, step in steps:
            peak, kept, given = peak_growth(lambda step=step, given=given: step(given))
            sizes = [f"{megabytes * MEGABYTE / PAYLOAD:+.2f}" for megabytes in (peak, kept)]
            print(f"{name}: {sizes[0]} payloads at the peak, {sizes[1]} kept")
        print(f"artifact: {path.stat().st_size / PAYLOAD:.2f} payloads")


if __name__ == "__main__":
    status = native.load("core")
    if not status:
        raise SystemExit(str(status))
    call_costs()
    copies()
