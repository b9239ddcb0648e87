"""Kernels of CUTLASS as parameters of its templates, and which of them there are to choose from.

The shapes of tiles are those of TVM's own generator (``tvm.contrib.cutlass.gen_tensor_op``), whose
lists come from CUTLASS's library. What is around them is the kit's:

- sums are kept in float32, where upstream's have the dtype of the result;
- each operand has its own alignment, where upstream's is the least of all;
- bfloat16, for which upstream has no name, takes the tiles of float16: both have the same
  instruction and size;
- what lies at odd addresses (alignment 1) takes two stages, since the instruction that copies to
  shared memory in the background, which three and more are made with, moves no less than 4 bytes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ModelError

if TYPE_CHECKING:
    from tvm_byoc_kit.backends.cutlass.problems import Epilogue, Problem, Size

__all__ = ["ALIGNMENTS", "BYTES", "SHARED_BYTES", "Kernel", "Tile", "alignment", "candidates"]

#: Of an element.
BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
#: Elements that may be loaded at once: 16 bytes and less.
ALIGNMENTS = {"float16": (8, 4, 2, 1), "bfloat16": (8, 4, 2, 1), "float32": (4, 2, 1)}

#: Shared memory that one thread block may have, by architecture [1]_.
#:
#: .. [1] CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
SHARED_BYTES = {
    75: 64 << 10,
    80: 163 << 10,
    86: 99 << 10,
    87: 163 << 10,
    88: 99 << 10,  # not published; what the smallest of its time have
    89: 99 << 10,
    90: 227 << 10,
    100: 227 << 10,
    103: 227 << 10,
    110: 227 << 10,
    120: 99 << 10,
    121: 99 << 10,
}

_TENSOR_CORES_OF_80 = 80
_TENSOR_CORES_OF_75 = 75
_FEW_CHANNELS = 4
_BACKGROUND_BYTES = 4  # that the instruction for it moves at least


@dataclass(frozen=True)
class Tile:
    """How a product is cut up.

    Parameters
    ----------
    m, n, k : int
        Of a thread block, at a time.
    stages : int
        Pieces of the operands in shared memory at once.
    warps : tuple of int
        Of a thread block, along each axis.
    instruction : tuple of int
        The matrix product that the tensor core does at once.
    arch : int
        The least that has the instruction.
    operator : str
        CUTLASS's name of the arithmetic.
    """

    m: int
    n: int
    k: int
    stages: int
    warps: tuple[int, int, int]
    instruction: tuple[int, int, int]
    arch: int
    operator: str

    @property
    def threads(self) -> int:
        """Of a thread block."""
        return 32 * self.warps[0] * self.warps[1] * self.warps[2]

    def shared_bytes(self, dtype: str) -> int:
        """Shared memory that a thread block takes."""
        return self.stages * (self.m + self.n) * self.k * BYTES[dtype]

    @property
    def in_background(self) -> bool:
        """Whether operands are copied to shared memory in the background, which takes 3 stages."""
        return self.stages > 2  # noqa: PLR2004

    def __str__(self) -> str:
        return f"{self.m}x{self.n}_{self.k}x{self.stages}"


@dataclass(frozen=True)
class Kernel:
    """All that the source of a kernel depends on.

    Parameters
    ----------
    kind : str
        ``gemm`` or ``conv2d``.
    dtype, result : str
    transposed : bool
    alignments : tuple of int
        Elements of the left operand, the right one and the result that are moved at once.
    tile : Tile
    activation, binary, unary : str
        As in `Epilogue`; a kernel without `binary` has no residual.
    few_channels : bool
        Whether a convolution's steps go along window and channels as one; else each place of the
        window takes steps of its own, which images of three colours fill by a tenth.
    """

    kind: str
    dtype: str
    result: str
    transposed: bool
    alignments: tuple[int, int, int]
    tile: Tile
    activation: str
    binary: str
    unary: str
    few_channels: bool = False


def alignment(dtype: str, size: Size) -> int:
    """Elements that may be moved at once along an axis of `size`; 1 for an unknown one."""
    return next(n for n in ALIGNMENTS[dtype] if (isinstance(size, int) and size % n == 0) or n == 1)


def candidates(problem: Problem, architectures: tuple[int, ...], float32: str) -> list[Kernel]:
    """The kernels that compute `problem` on every one of `architectures`.

    Parameters
    ----------
    problem : Gemm or Conv2d
    architectures : tuple of int
        Such as 80 and 90.
    float32 : str
        As in `CutlassOptions`.

    Raises
    ------
    ModelError
        When there is none.
    """
    alignments = _alignments(problem)
    least, room = min(architectures), min(SHARED_BYTES[arch] for arch in architectures)
    found = [
        tile
        for tile in tiles(problem.dtype, least >= _TENSOR_CORES_OF_80, float32)
        if tile.shared_bytes(problem.dtype) <= room
        and tile.in_background != (least < _TENSOR_CORES_OF_80 or _is_odd(problem, alignments))
    ]
    if not found:
        raise ModelError(
            f"CUTLASS has no kernel of {problem.dtype} for sm_{least}, whose tensor cores know "
            "float16; choose a target of sm_80 or above, or convert the model to float16"
        )
    return [_kernel(problem, alignments, tile) for tile in found]


def _is_odd(problem: Problem, alignments: tuple[int, int, int]) -> bool:
    """Whether operands are moved by less than goes in the background."""
    return min(alignments[:2]) * BYTES[problem.dtype] < _BACKGROUND_BYTES


def _alignments(problem: Problem) -> tuple[int, int, int]:
    from tvm_byoc_kit.backends.cutlass.problems import Gemm

    if isinstance(problem, Gemm):
        along = (problem.k, problem.k if problem.transposed else problem.n, problem.n)
    else:
        along = (problem.c, problem.c, problem.k)
    dtypes = (problem.dtype, problem.dtype, problem.result)
    first, second, third = (alignment(d, size) for d, size in zip(dtypes, along, strict=True))
    return first, second, third


def _kernel(problem: Problem, alignments: tuple[int, int, int], tile: Tile) -> Kernel:
    epilogue: Epilogue = problem.epilogue
    return Kernel(
        kind=type(problem).__name__.lower(),
        dtype=problem.dtype,
        result=problem.result,
        transposed=getattr(problem, "transposed", False),
        alignments=alignments,
        tile=tile,
        activation=epilogue.activation,
        binary=epilogue.binary,
        unary=epilogue.unary,
        few_channels=getattr(problem, "c", _FEW_CHANNELS + 1) <= _FEW_CHANNELS,
    )


@functools.cache
def tiles(dtype: str, is_80: bool, float32: str) -> tuple[Tile, ...]:
    """The tiles of a dtype, of upstream's lists, smallest first."""
    if is_80:
        found = [*_upstream(_TENSOR_CORES_OF_80, dtype, float32), *_two_stages(dtype)]
    else:
        found = list(_upstream(_TENSOR_CORES_OF_75, dtype, float32)) if dtype == "float16" else []
    order = sorted(set(found), key=lambda t: (t.m * t.n, t.m, t.k, t.stages, t.warps))
    return tuple(order)


def _two_stages(dtype: str) -> list[Tile]:
    """Upstream's tiles of two stages, with the instruction of sm_80; float32 is never odd."""
    if dtype == "float32":
        return []
    tile80 = _upstream(_TENSOR_CORES_OF_80, dtype, "")[0]
    return [
        replace(tile, instruction=tile80.instruction, arch=tile80.arch)
        for tile in _upstream(_TENSOR_CORES_OF_75, "float16", "")
    ]


def _upstream(arch: int, dtype: str, float32: str) -> list[Tile]:
    """What upstream's generator for `arch` lists."""
    from tvm.contrib.cutlass.gen_tensor_op import GENERATOR_FUNC_TABLE

    name = "float32" if dtype == "float32" else "float16"
    listed: list[Any] = []

    def take(descriptions: list[Any], *_: Any) -> list[Any]:
        listed.extend(descriptions)
        return []

    GENERATOR_FUNC_TABLE[arch](
        name, name, name, take, lambda _: True, float32 == "3xtf32", accumlator_dtype="float32"
    )
    return [_tile(tile) for tile in listed if tile.minimum_compute_capability == arch]


def _tile(tile: Any) -> Tile:
    """A ``TileDescription`` of upstream's."""
    from tvm.contrib.cutlass.library import MathOperationTag

    m, n, k = tile.threadblock_shape
    instruction = tile.math_instruction
    return Tile(
        m=m,
        n=n,
        k=k,
        stages=tile.stages,
        warps=tuple(tile.warp_count),
        instruction=tuple(instruction.instruction_shape),
        arch=tile.minimum_compute_capability,
        operator=MathOperationTag[instruction.math_operation],
    )
