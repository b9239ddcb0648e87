"""C++: a kernel from its parameters, and the functions of regions that launch kernels.

A kernel knows no sizes, so that it is compiled once for all regions, and models, that choose it;
nvcc takes most of a build. The functions of regions hold the sizes and need no nvcc.

Upstream's host code is not used: it gives a convolution's residual and a batch's bias other steps
than the tensors have, knows no split-k for matrix products, no bfloat16 and no 3xTF32, and takes
its workspace from a header that is not in TVM's wheel.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.cutlass.problems import Gemm, times

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from tvm_byoc_kit.backends.cutlass.kernels import Kernel
    from tvm_byoc_kit.backends.cutlass.problems import Conv2d, Epilogue, Problem, Size
    from tvm_byoc_kit.graph import Graph

__all__ = [
    "HEADERS",
    "kernel_name",
    "kernel_source",
    "region_source",
    "regions_source",
    "unit_sources",
]

#: Folder of the headers that the sources include.
HEADERS = Path(__file__).parent / "device"

_ELEMENTS = {
    "float16": ("cutlass::half_t", "f16"),
    "bfloat16": ("cutlass::bfloat16_t", "bf16"),
    "float32": ("float", "f32"),
}
_LAYOUTS = {False: "cutlass::layout::RowMajor", True: "cutlass::layout::ColumnMajor"}
_NAMESPACE = "byoc::cutlass_kernels"
_PROBLEMS = {"gemm": "Gemm", "conv2d": "Conv2d"}
_ITERATORS = {False: "kOptimized", True: "kFewChannels"}
_KERNELS_OF_A_FILE = 16
_THREAD = "cutlass::epilogue::thread::"
# By activation: what a kernel without a residual does to sums and source.
_LINEAR = {
    "": f"{_THREAD}LinearCombination",
    "relu": f"{_THREAD}LinearCombinationRelu",
    "gelu": f"{_THREAD}LinearCombinationGELU",
    "silu": f"{_THREAD}LinearCombinationSilu",
}
# With a residual: functions, and what combines.
_FUNCTIONS = {
    "": f"{_THREAD}Identity",
    "relu": f"{_THREAD}ReLu",
    "gelu": f"{_THREAD}GELU",
    "silu": f"{_THREAD}SiLu",
}
_COMBINE = {"add": "cutlass::plus", "multiply": "cutlass::multiplies"}


def kernel_name(kernel: Kernel) -> str:
    """The function's name: what it does, and a digest of its source, so that no two share it."""
    return f"{_short_name(kernel)}_{hashlib.sha256(_body(kernel).encode()).hexdigest()[:12]}"


def _short_name(kernel: Kernel) -> str:
    alignments = "align" + "_".join(map(str, kernel.alignments))
    parts = ("byoc", kernel.kind, _ELEMENTS[kernel.dtype][1], str(kernel.tile), alignments)
    return "_".join(filter(None, (*parts, kernel.activation, kernel.binary, kernel.unary)))


def kernel_source(kernel: Kernel) -> str:
    """One function for nvcc, called `kernel_name`."""
    name, run = kernel_name(kernel), "Residual" if kernel.binary else "Linear"
    return f"""
namespace of_{name} {{
{_body(kernel)}
}}
extern "C" const char* {name}(
    const {_NAMESPACE}::{_PROBLEMS[kernel.kind]}& problem, void* stream) {{
  return {_NAMESPACE}::{run}<of_{name}::Operation>(problem, stream);
}}
"""


def unit_sources(kernels: Collection[Kernel]) -> dict[str, str]:
    """What nvcc compiles, by name: files of several kernels each.

    CUTLASS's headers take most of the time, so that a file of all kernels of a kind takes little
    longer than one of a single kernel.
    """
    sources: dict[str, str] = {}
    for kind in _PROBLEMS:
        texts = sorted({kernel_source(kernel) for kernel in kernels if kernel.kind == kind})
        for number, first in enumerate(range(0, len(texts), _KERNELS_OF_A_FILE)):
            some = texts[first : first + _KERNELS_OF_A_FILE]
            sources[f"{kind}_{number}"] = f'#include "{kind}.h"\n' + "".join(some)
    return sources


def _body(kernel: Kernel) -> str:
    make = _gemm if kernel.kind == "gemm" else _conv2d
    return f"using Epilogue = {_epilogue(kernel)};\n\n{make(kernel)}"


def _epilogue(kernel: Kernel) -> str:
    result, width = _ELEMENTS[kernel.result][0], kernel.alignments[2]
    if not kernel.binary:
        return _template(_LINEAR[kernel.activation], result, str(width), "float", "float")
    return _template(
        f"{_THREAD}LinearCombinationResidualBlock",
        *(result, "float", "float", result, str(width)),
        *(_FUNCTIONS[kernel.activation], _COMBINE[kernel.binary], _FUNCTIONS[kernel.unary]),
    )


def _gemm(kernel: Kernel) -> str:
    broadcast = "WithBroadcast" if kernel.binary else ""
    operation = _template(
        f"cutlass::gemm::device::GemmUniversal{broadcast}",
        *_operands(kernel, _LAYOUTS[False], _LAYOUTS[kernel.transposed], _LAYOUTS[False]),
        *_shapes(kernel),
        *("Epilogue", "cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>"),
        *map(str, (kernel.tile.stages, *kernel.alignments[:2])),
        kernel.tile.operator,
    )
    return f"using Operation = {operation};"


def _conv2d(kernel: Kernel) -> str:
    broadcast, layout = "WithBroadcast" if kernel.binary else "", "cutlass::layout::TensorNHWC"
    conv = _template(
        f"cutlass::conv::kernel::DefaultConv2dFprop{broadcast}",
        *_operands(kernel, layout, layout, layout),
        *_shapes(kernel),
        *("Epilogue", "cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>"),
        *(str(kernel.tile.stages), kernel.tile.operator),
        f"cutlass::conv::IteratorAlgorithm::{_ITERATORS[kernel.few_channels]}",
        "cutlass::conv::StrideSupport::kStrided",
        *map(str, kernel.alignments[:2]),
    )
    device = "cutlass::conv::device::ImplicitGemmConvolution"
    return f"using Operation = {device}<\n    typename {conv}::Kernel>;"


def _operands(kernel: Kernel, a: str, b: str, d: str) -> tuple[str, ...]:
    element, result = _ELEMENTS[kernel.dtype][0], _ELEMENTS[kernel.result][0]
    return (element, a, element, b, result, d, "float")


def _shapes(kernel: Kernel) -> tuple[str, ...]:
    tile = kernel.tile
    block = (tile.m, tile.n, tile.k)
    warp = tuple(size // warps for size, warps in zip(block, tile.warps, strict=True))
    shapes = (
        f"cutlass::gemm::GemmShape<{m}, {n}, {k}>" for m, n, k in (block, warp, tile.instruction)
    )
    return ("cutlass::arch::OpClassTensorOp", f"cutlass::arch::Sm{tile.arch}", *shapes)


def _template(name: str, *arguments: str) -> str:
    return f"{name}<\n    {(',' + chr(10) + '    ').join(arguments)}>"


def regions_source(regions: Sequence[str], kernels: Sequence[Kernel]) -> str:
    """What the C++ compiler compiles: the functions of all regions, from `region_source`."""
    declared = [
        f'extern "C" const char* {kernel_name(kernel)}(\n'
        f"    const {_NAMESPACE}::{_PROBLEMS[kernel.kind]}& problem, void* stream);\n"
        for kernel in kernels
    ]
    return '#include "region.h"\n\n' + "\n".join([*declared, *regions])


def region_source(graph: Graph, problem: Problem, kernel: Kernel, split_k: int) -> str:
    """The function of a region, which TVM calls by the region's name."""
    types = ["tvm::ffi::Shape" if value.dims is not None else "DLTensor*" for value in graph.inputs]
    parameters = "".join(f"{kind} a{number}, " for number, kind in enumerate(types))
    fields = _gemm_fields(problem) if isinstance(problem, Gemm) else _conv2d_fields(problem)
    lines = [*_operand_fields(problem), *fields, f"split_k = {split_k}"]
    assignments = "".join(f"  problem.{line};\n" for line in lines)
    kind, name = f"{_NAMESPACE}::{_PROBLEMS[kernel.kind]}", kernel_name(kernel)
    return f"""static void Run_{graph.name}({parameters}DLTensor* d) {{
  {kind} problem;
{assignments}  {_NAMESPACE}::Run<{kind}>({name}, "{name}", problem, d);
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC({graph.name}, Run_{graph.name});
"""


def _operand_fields(problem: Problem) -> Iterator[str]:
    epilogue: Epilogue = problem.epilogue
    source = epilogue.bias if epilogue.residual is None else epilogue.residual
    vector = None if epilogue.residual is None else epilogue.bias
    named = {"a": problem.a, "b": problem.b, "source": source, "vector": vector}
    for name, number in named.items():
        if number is not None:
            yield f"{name} = {_NAMESPACE}::Data(a{number})"
    yield f"d = {_NAMESPACE}::Data(d)"
    yield f"beta = {0 if source is None else 1}"


def _whole_source(epilogue: Epilogue) -> bool:
    return epilogue.whole_bias if epilogue.residual is None else epilogue.whole_residual


def _gemm_fields(problem: Gemm) -> Iterator[str]:
    m, n, k = problem.m, problem.n, problem.k
    whole = _whole_source(problem.epilogue)
    yield from _assign(m=m, n=n, k=k, batch=problem.batch)
    yield from _assign(lda=k, ldb=k if problem.transposed else n, ldc=n if whole else 0, ldd=n)
    step_d = times((m, n))
    yield from _assign(
        step_a=0 if problem.shared_a else times((m, k)),
        step_b=times((k, n)),
        step_c=step_d if whole else 0,
        step_d=step_d,
    )


def _conv2d_fields(problem: Conv2d) -> Iterator[str]:
    yield from _assign(**{name: getattr(problem, name) for name in "nhwckrspq"})
    for name, pair in (
        ("pad", problem.padding),
        ("stride", problem.strides),
        ("dilation", problem.dilation),
    ):
        yield from _assign(**{f"{name}_h": pair[0], f"{name}_w": pair[1]})
    yield f"whole_source = {str(_whole_source(problem.epilogue)).lower()}"


def _assign(**fields: Size) -> Iterator[str]:
    return (f"{name} = {value}" for name, value in fields.items())
