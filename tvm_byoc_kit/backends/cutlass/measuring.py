"""Where there is a GPU: the best-ranked kernels are run on it, and the fastest is taken.

TVM's own profiler cannot be compiled with the wheel: its programs include CUTLASS's utilities. Here
the candidates become functions of regions, as in an artifact, and TVM's timer calls them. It was
never run on a GPU.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tvm_byoc_kit.availability import probe

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.cutlass.problems import Problem
    from tvm_byoc_kit.backends.cutlass.ranking import Choice
    from tvm_byoc_kit.graph import Graph

    Planned = tuple[Graph, Problem, Choice]

__all__ = ["fastest"]

_CALLS, _REPEATS = 20, 5


def fastest(
    candidates: Sequence[Sequence[Planned]], compile_all: Callable[[Sequence[Planned]], bytes]
) -> list[Planned]:
    """Of the candidates for each region, the one that takes the least time on this GPU.

    Parameters
    ----------
    candidates : sequence of sequences of (Graph, Problem, Choice)
        The best-ranked first, which is taken for a region of unknown sizes.
    compile_all : callable
        Gives the object of such functions.

    Raises
    ------
    BackendUnavailable
        When there is no GPU that TVM can use.
    """
    probe("device:cuda").require("cutlass", "device")
    named = [
        (replace(graph, name=f"candidate_{region}_{number}"), problem, choice)
        for region, some in enumerate(candidates)
        for number, (graph, problem, choice) in enumerate(some)
        if _is_static(graph)
    ]
    seconds = _measure(named, compile_all(named)) if named else {}
    return [
        some[min(range(len(some)), key=lambda n: seconds.get(f"candidate_{region}_{n}", 0.0))]
        for region, some in enumerate(candidates)
    ]


def _is_static(graph: Graph) -> bool:
    return all(value.is_static for value in (*graph.inputs, *graph.outputs))


def _measure(named: Sequence[Planned], data: bytes) -> dict[str, float]:
    """Seconds of each function, by name."""
    import tvm_ffi
    from tvm.support import cc

    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        made, library = Path(work, "candidates.o"), Path(work, "candidates.so")
        made.write_bytes(data)
        cc.create_shared(str(library), [str(made)])
        loaded = tvm_ffi.load_module(str(library))
        return {graph.name: _seconds(loaded, graph) for graph, _, _ in named}


def _seconds(library: Any, graph: Graph) -> float:
    import tvm

    device = tvm.cuda(0)
    tensors = [
        tvm.runtime.empty(cast("tuple[int, ...]", value.shape), value.dtype, device)
        for value in (*graph.inputs, *graph.outputs)
    ]
    timer = library.time_evaluator(graph.name, device, number=_CALLS, repeat=_REPEATS)
    return float(timer(*tensors).median)
