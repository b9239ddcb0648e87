"""Which kernel computes a problem fastest, told without a GPU.

TVM's own profiler compiles every candidate and runs it. Where there is no GPU this stands in: an
estimate, in clock cycles, of what a kernel takes on each architecture, after the usual model of a
tiled product [1]_:

- a thread block's step along k takes a little more than the longest of: the arithmetic at the rate
  of the tensor cores; shared memory, that each warp reads its own operands from, which favours
  large warps; the level-2 cache, that the block's operands come from, which favours large tiles;
  and the latency of memory over the stages that are loaded ahead;
- as many thread blocks run at once as shared memory and registers have room for; the last wave is
  as long as it has blocks (quantisation), which favours small tiles for small problems;
- sums over k may be cut into parts (split-k) where there are fewer tiles than multiprocessors. The
  parts are added one after the other, each with a trip through the result, in the result's dtype;
- the whole takes no less than reading the operands and writing the result.

The numbers of each GPU are from its data sheet, the rates of shared memory, cache and latency are
round ones. Equal estimates are told apart by size and name, so that the choice is always the same.
**None of it was measured on a GPU**; with one, the option ``measure`` does.

References
----------
.. [1] CUTLASS, "Efficient GEMM in CUDA": https://docs.nvidia.com/cutlass (threadblock
       rasterization, parallelized reductions, occupancy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.cutlass.kernels import BYTES, SHARED_BYTES, Kernel, candidates
from tvm_byoc_kit.backends.cutlass.problems import Gemm

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.cutlass.problems import Problem, Size

__all__ = ["GPUS", "Choice", "Gpu", "choose", "estimate", "rank"]


@dataclass(frozen=True)
class Gpu:
    """A GPU of an architecture.

    Parameters
    ----------
    name : str
    multiprocessors : int
    macs : int
        Multiply-accumulates of float16 with sums in float32, a cycle and multiprocessor.
    bandwidth : float
        Bytes from memory a cycle and multiprocessor.
    """

    name: str
    multiprocessors: int
    macs: int
    bandwidth: float


#: By architecture, the GPU that is thought of. Others of it differ in the number of
#: multiprocessors above all.
GPUS = {
    75: Gpu("T4", 40, 512, 5.0),
    80: Gpu("A100", 108, 1024, 10.2),
    86: Gpu("A10", 72, 256, 5.0),
    87: Gpu("Jetson AGX Orin", 16, 1024, 9.9),
    88: Gpu("not published", 16, 1024, 9.9),
    89: Gpu("L40S", 142, 512, 2.5),
    90: Gpu("H100", 132, 1024, 14.3),  # of the instructions of sm_80: half of its own wgmma's
    100: Gpu("B200", 148, 1024, 29.0),
    103: Gpu("B300", 148, 1024, 29.0),
    110: Gpu("Jetson AGX Thor", 20, 1024, 8.7),
    120: Gpu("RTX 5090", 170, 512, 4.4),
    121: Gpu("GB10", 48, 512, 2.3),
}

_RATES = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.5}  # tf32
_PASSES = {"cutlass::arch::OpMultiplyAddFastF32": 3}  # products that one of float32 is made of
_SHARED_RATE = 128  # bytes a cycle and multiprocessor
_CACHE_RATE = 40  # bytes a cycle and multiprocessor, from the level-2 cache
_LATENCY = 600  # cycles until memory answers
_OVERLAP = 3  # exponent: infinite where all goes on at once, 1 where nothing does
_LAUNCH = 2000  # cycles before the first and after the last step of a thread block
_WORKSPACE = 4000  # cycles for memory that is asked for and cleared
_HAND_OVER = 1500  # cycles until the next part of a sum may go on
_REGISTERS = 65536
_THREADS = 1536
_OTHER_REGISTERS = 64  # of a thread, beside the sums
_SPLITS = (1, 2, 3, 4, 6, 8)
_STEPS_OF_A_PART = 4  # at least
_UNKNOWN = 2048  # what a size that is not known is taken for


@dataclass(frozen=True)
class Choice:
    """A kernel, and how it is launched.

    Parameters
    ----------
    kernel : Kernel
    split_k : int
    cycles : float
        The estimate, of all architectures together.
    """

    kernel: Kernel
    split_k: int
    cycles: float


def choose(problem: Problem, architectures: tuple[int, ...], float32: str = "tf32") -> Choice:
    """The best of `rank`."""
    return rank(problem, architectures, float32)[0]


def rank(problem: Problem, architectures: tuple[int, ...], float32: str = "tf32") -> list[Choice]:
    """Each kernel with its best split-k, the least estimate over all `architectures` first.

    Raises
    ------
    ModelError
        When no kernel computes `problem` on all of them.
    """
    kernels = candidates(problem, architectures, float32)
    return sorted((_best_split(problem, k, architectures) for k in kernels), key=_order)


def _best_split(problem: Problem, kernel: Kernel, architectures: tuple[int, ...]) -> Choice:
    choices = (
        Choice(kernel, split, sum(estimate(problem, kernel, split, arch) for arch in architectures))
        for split in _splits(problem, kernel, architectures)
    )
    return min(choices, key=_order)


def _order(choice: Choice) -> tuple[float, int, str]:
    return choice.cycles, choice.split_k, str(choice.kernel.tile)


def estimate(problem: Problem, kernel: Kernel, split_k: int, arch: int) -> float:
    """Cycles that `kernel` takes for `problem` on a GPU of `arch`."""
    gpu, tile = GPUS[arch], kernel.tile
    blocks = _tiles(problem, kernel) * split_k
    steps = _steps(problem, kernel, split_k)
    at_once = _occupancy(kernel, arch)
    out = tile.m * tile.n * BYTES[kernel.result] / _CACHE_RATE

    def wave(blocks_each: int) -> float:
        return steps * _step(kernel, gpu, blocks_each) + blocks_each * out + _LAUNCH

    waves, rest = divmod(blocks, gpu.multiprocessors * at_once)
    cycles = waves * wave(at_once)
    cycles += wave(math.ceil(rest / gpu.multiprocessors)) if rest else 0
    if split_k > 1:
        cycles += _WORKSPACE + (split_k - 1) * (2 * out + _HAND_OVER)
    traffic = _bytes(problem) / (gpu.bandwidth * gpu.multiprocessors)
    return max(cycles, traffic) + 0.01 * cycles


def _step(kernel: Kernel, gpu: Gpu, blocks: int) -> float:
    """Cycles of one step along k, of `blocks` thread blocks on one multiprocessor."""
    tile, size = kernel.tile, BYTES[kernel.dtype]
    passes = _PASSES.get(tile.operator, 1)
    busy = min(1.0, blocks * tile.threads / 128)  # of four tensor cores, one warp has one
    rate = gpu.macs * _RATES[kernel.dtype] * busy
    arithmetic = blocks * tile.m * tile.n * tile.k * passes / rate
    warp_m, warp_n = tile.m / tile.warps[0], tile.n / tile.warps[1]
    read = (warp_m + warp_n) * tile.warps[0] * tile.warps[1] * tile.k * size
    loaded = (tile.m + tile.n) * tile.k * size
    narrow = 8 / min(8, *(a * size // 2 for a in kernel.alignments[:2]))  # loads of few bytes
    parts = (
        arithmetic,
        blocks * (read + loaded) / _SHARED_RATE,
        blocks * loaded * narrow / _CACHE_RATE,
        _LATENCY / (tile.stages - 1),
    )
    return float(sum(part**_OVERLAP for part in parts) ** (1 / _OVERLAP))


def _occupancy(kernel: Kernel, arch: int) -> int:
    """Thread blocks that fit on one multiprocessor at once; one always does."""
    tile = kernel.tile
    sums = tile.m * tile.n / tile.threads
    by_registers = _REGISTERS // int(tile.threads * min(255, sums + _OTHER_REGISTERS))
    by_memory = SHARED_BYTES[arch] // tile.shared_bytes(kernel.dtype)
    return max(1, min(by_registers, by_memory, _THREADS // tile.threads))


def _splits(problem: Problem, kernel: Kernel, architectures: tuple[int, ...]) -> tuple[int, ...]:
    """Parts that the sums may be cut into.

    No batch has any, nor a residual. Of a convolution the channels are cut, not the window.
    """
    whole = (isinstance(problem, Gemm) and problem.batch != 1) or kernel.few_channels
    if whole or kernel.binary:
        return (1,)
    idle = _tiles(problem, kernel) < min(GPUS[arch].multiprocessors for arch in architectures)
    most = _steps(problem, kernel, 1) // _STEPS_OF_A_PART if idle else 1
    along = problem.k if isinstance(problem, Gemm) else problem.c
    most = min(most, math.ceil(along / kernel.tile.k))
    return tuple(split for split in _SPLITS if split <= max(1, most))


def _tiles(problem: Problem, kernel: Kernel) -> int:
    """Thread blocks without split-k."""
    m, n, batch = _sizes(problem)
    return math.ceil(m / kernel.tile.m) * math.ceil(n / kernel.tile.n) * batch


def _sizes(problem: Problem) -> tuple[int, int, int]:
    """Rows, columns and batch of the product that a problem is."""
    if isinstance(problem, Gemm):
        return _known(problem.m), _known(problem.n), _known(problem.batch)
    return problem.n * problem.p * problem.q, problem.k, 1


def _steps(problem: Problem, kernel: Kernel, split_k: int) -> int:
    """Steps along k of one part; a convolution makes those of its channels for each place."""
    if isinstance(problem, Gemm):
        places, along = 1, problem.k
    elif kernel.few_channels:
        places, along = 1, problem.r * problem.s * problem.c
    else:
        places, along = problem.r * problem.s, problem.c
    return places * math.ceil(math.ceil(along / split_k) / kernel.tile.k)


def _bytes(problem: Problem) -> int:
    """Operands and result, once."""
    size, out = BYTES[problem.dtype], BYTES[problem.result]
    m, n, batch = _sizes(problem)
    if isinstance(problem, Gemm):
        return batch * ((m + n) * problem.k * size + m * n * out)
    data = problem.n * problem.h * problem.w * problem.c
    return (data + problem.k * problem.r * problem.s * problem.c) * size + m * n * out


def _known(size: Size) -> int:
    return size if isinstance(size, int) else _UNKNOWN
