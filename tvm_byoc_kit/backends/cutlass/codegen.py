"""``relax.ext.cutlass``: regions to one object that is linked into the artifact.

A region is one match of a pattern. Its kernel is chosen (`ranking`), written (`sources`) and
compiled (`compiling`); regions that choose the same share it. TVM gets a static library, as from
its own codegen, which is not in its wheel: the class that it takes the source in
(``contrib.cutlass.CodegenResult``) is not either.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import remedies
from tvm_byoc_kit.backend import get_backend
from tvm_byoc_kit.backends.cutlass.compiling import KernelCache, compile_kernels, link_regions
from tvm_byoc_kit.backends.cutlass.measuring import fastest
from tvm_byoc_kit.backends.cutlass.options import CutlassOptions
from tvm_byoc_kit.backends.cutlass.problems import read_problem
from tvm_byoc_kit.backends.cutlass.ranking import Choice, rank
from tvm_byoc_kit.backends.cutlass.sources import (
    kernel_name,
    region_source,
    regions_source,
    unit_sources,
)
from tvm_byoc_kit.build_progress import showing
from tvm_byoc_kit.cuda_toolkit import CudaToolkit, find_toolkit
from tvm_byoc_kit.errors import BackendUnavailable, OptionError
from tvm_byoc_kit.graph import Graph, read_graph
from tvm_byoc_kit.python_codegen import plain, remembering

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.cutlass.problems import Problem

__all__ = ["compile_regions", "plan"]

Planned = tuple[Graph, "Problem", Choice]


def compile_regions(
    functions: Sequence[Any], options: Mapping[str, Any] | None, constant_names: Mapping[Any, str]
) -> list[Any]:
    """``relax.ext.cutlass``: what RunCodegen calls, with the target that is built for around it.

    Raises
    ------
    BackendUnavailable
        Without nvcc, or CUDA's runtime library for linking.
    OptionError
        When neither options nor target say which architecture to compile for.
    ModelError
        For a region that no kernel computes, or that nvcc fails on.
    """
    with remembering():
        chosen = CutlassOptions(**get_backend("cutlass").make_options(plain(options or {})))
        architectures = chosen.architectures or _target_architecture()
        graphs = [read_graph(function, constant_names) for function in functions]
        candidates = plan(graphs, architectures, chosen.float32, max(1, chosen.measure))

        def compile_all(planned: Sequence[Planned]) -> bytes:
            return _compile(planned, architectures, chosen)

        if chosen.measure:
            planned = fastest(candidates, compile_all)
        else:
            planned = [some[0] for some in candidates]
        return [_static_library(compile_all(planned), planned)]


def plan(
    graphs: Sequence[Graph], architectures: Sequence[str], float32: str = "tf32", most: int = 1
) -> list[list[Planned]]:
    """What each region computes, and with which kernels it may: the `most` best-ranked ones.

    Raises
    ------
    ModelError
        For a region that no kernel computes.
    """
    numbers = tuple(int(arch.removeprefix("sm_")) for arch in architectures)
    problems = [read_problem(graph) for graph in graphs]
    return [
        [(graph, problem, choice) for choice in rank(problem, numbers, float32)[:most]]
        for graph, problem in zip(graphs, problems, strict=True)
    ]


def _compile(planned: Sequence[Planned], architectures: Sequence[str], o: CutlassOptions) -> bytes:
    toolkit, runtime = _toolkit()
    kernels = {kernel_name(choice.kernel): choice.kernel for _, _, choice in planned}
    with showing("cutlass", wanted=o.progress) as display:
        objects = compile_kernels(
            unit_sources(kernels.values()),
            toolkit,
            architectures,
            jobs=o.jobs,
            cache=KernelCache(o.cache, o.cache_bytes) if o.cache != "" else None,
            report=lambda done, steps: display("nvcc", done, steps),
        )
    regions = [region_source(graph, problem, c.kernel, c.split_k) for graph, problem, c in planned]
    source = regions_source(regions, list(kernels.values()))
    return link_regions(source, _names(planned), list(objects.values()), runtime)


def _names(planned: Sequence[Planned]) -> list[str]:
    return [graph.name for graph, _, _ in planned]


def _static_library(data: bytes, planned: Sequence[Planned]) -> Any:
    """A module that TVM links into what it exports; it reads the file at once."""
    from tvm.runtime import load_static_library

    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        path = Path(work, "cutlass.o")
        path.write_bytes(data)
        return load_static_library(str(path), _names(planned))


def _toolkit() -> tuple[CudaToolkit, Path]:
    toolkit = find_toolkit()
    if isinstance(toolkit, str):
        raise BackendUnavailable("cutlass", "codegen", toolkit, remedies.kit_extra("cuda"))
    runtime = toolkit.find_library("libcudart_static.a")
    if runtime is None:
        reason = f"libcudart_static.a of {toolkit} is not found"
        raise BackendUnavailable("cutlass", "codegen", reason, remedies.kit_extra("cuda"))
    return toolkit, runtime


def _target_architecture() -> tuple[str, ...]:
    """The architecture of the target that stands around the codegen."""
    from tvm.target import Target

    target = Target.current(allow_none=True)
    arch = str(target.attrs.get("arch", "")) if target is not None else ""
    return CutlassOptions(architectures=(arch.rstrip("af"),)).architectures if arch else _unnamed()


def _unnamed() -> tuple[str, ...]:
    raise OptionError(
        "cutlass compiles for the GPU that is named: with target='a100', or the option "
        "architectures=('sm_80', 'sm_90')"
    )
