"""What generated sources compute, in NumPy: an oracle for a machine without a GPU.

It reads the C++ text alone: of a kernel, the arguments of CUTLASS's templates; of a region, the
sizes, steps and operands that it assigns. Operands are flat memory, read at the leading dimensions
and steps that the text gives, as a kernel would; what CUTLASS asks of alignments is asserted. Rules
of CUTLASS that it follows are those of its headers (``gemm_universal.h``, ``implicit_gemm_…h``,
``linear_combination_residual_block.h``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray

DTYPES: Mapping[str, Any] = {
    "cutlass::half_t": np.float16,
    "cutlass::bfloat16_t": ml_dtypes.bfloat16,
    "float": np.float32,
}
ERF = np.vectorize(math.erf, otypes=[np.float32])
FUNCTIONS = {
    "": lambda x: x,
    "Identity": lambda x: x,
    "ReLu": lambda x: np.maximum(x, 0),
    "GELU": lambda x: 0.5 * x * (1 + ERF(x / np.sqrt(np.float32(2)))),
    "SiLu": lambda x: x / (1 + np.exp(-x)),
}
LINEAR = {"Relu": "ReLu", "GELU": "GELU", "Silu": "SiLu", "": ""}
COMBINE = {"cutlass::plus": np.add, "cutlass::multiplies": np.multiply}


@dataclass(frozen=True)
class Template:
    """A template of C++ with its arguments, which are templates too."""

    name: str
    arguments: tuple[Template, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(argument.name) for argument in self.arguments)


def parse(text: str) -> Template:
    text = " ".join(text.split()).removeprefix("typename ").removesuffix("::Kernel")
    name, bracket, rest = text.partition("<")
    if not bracket:
        return Template(text.strip(), ())
    depth, start, inside = 0, 0, rest.strip().removesuffix(">")
    parts = []
    for place, letter in enumerate(inside):
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(inside[start:place])
            start = place + 1
    return Template(name.strip(), tuple(map(parse, [*parts, inside[start:]])))


@dataclass(frozen=True)
class Kernel:
    """The arguments of the templates of a kernel, in CUTLASS's order."""

    operation: Template
    epilogue: Template
    entry: str

    @classmethod
    def read(cls, source: str) -> Kernel:
        aliases = dict(re.findall(r"using (\w+) = ([^;]+);", source))
        operation = parse(aliases["Operation"])
        if operation.name.endswith("ImplicitGemmConvolution"):
            (operation,) = operation.arguments
        (entry,) = re.findall(r"cutlass_kernels::(Linear|Residual)<\w+::Operation>", source)
        return cls(operation, parse(aliases["Epilogue"]), entry)

    @property
    def names(self) -> list[str]:
        return [argument.name for argument in self.operation.arguments]

    @property
    def is_gemm(self) -> bool:
        return "gemm::device::GemmUniversal" in self.operation.name

    @property
    def elements(self) -> tuple[Any, Any, Any]:
        a, _, b, _, d, _, accumulator = self.names[:7]
        assert accumulator == "float"
        return DTYPES[a], DTYPES[b], DTYPES[d]

    @property
    def layouts(self) -> tuple[str, ...]:
        return tuple(self.names[i].rpartition("::")[2] for i in (1, 3, 5))

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return tuple(argument.numbers for argument in self.operation.arguments[9:12])

    @property
    def stages(self) -> int:
        return int(self.names[14])

    @property
    def alignments(self) -> tuple[int, int, int]:
        a, b = self.names[15:17] if self.is_gemm else self.names[18:20]
        width = 4 if self.entry == "Residual" else 1
        return int(a), int(b), int(self.epilogue.arguments[width].name)

    def finish(self, sums: Array, source: Array, vector: Array | None, beta: float) -> Array:
        """What the epilogue makes of the sums; `source` and `vector` are of their shape."""
        name = self.epilogue.name.rpartition("::")[2]
        assert ("Residual" in name) == (self.entry == "Residual")
        assert ("WithBroadcast" in self.operation.name) == (self.entry == "Residual")
        if self.entry == "Linear":
            assert vector is None
            return FUNCTIONS[LINEAR[name.removeprefix("LinearCombination")]](sums + beta * source)
        activation, binary, unary = (x.name for x in self.epilogue.arguments[5:8])
        assert vector is not None
        combined = COMBINE[binary](_function(activation)(sums + vector), beta * source)
        return _function(unary)(combined)

    def check(self) -> None:
        """What CUTLASS asserts when it is compiled, and a GPU when it is launched."""
        block, warp, instruction = self.shapes
        assert all(
            b % w == 0 and w % i == 0 for b, w, i in zip(block, warp, instruction, strict=True)
        )
        size_a, size_b, size_d = (np.dtype(element).itemsize for element in self.elements)
        a, b, d = self.alignments
        assert max(a * size_a, b * size_b, d * size_d) <= 16
        assert self.stages == 2 or min(a * size_a, b * size_b) >= 4  # cp.async
        assert self.stages * block[2] * (block[0] + block[1]) * size_a <= 227 << 10


def _function(name: str) -> Any:
    return FUNCTIONS[name.rpartition("::")[2]]


def run(region: str, kernel_source: str, arguments: Sequence[Any]) -> Array:
    """The result of a region; `arguments` are arrays, or tuples for what is given as shapes."""
    kernel = Kernel.read(kernel_source)
    kernel.check()
    names = re.findall(r"(?:DLTensor\*|tvm::ffi::Shape) (\w+)", region.partition("{")[0])
    given = dict(zip(names[:-1], arguments, strict=True))
    problem = _problem(region, given)
    types = re.findall(r"cutlass_kernels::(Gemm|Conv2d) problem;", region)
    assert types == ["Gemm" if kernel.is_gemm else "Conv2d"]
    return (_gemm if kernel.is_gemm else _conv2d)(kernel, problem)


def _problem(region: str, given: Mapping[str, Any]) -> SimpleNamespace:
    """What is assigned, over the defaults of problem.h."""
    fields: dict[str, Any] = {"source": None, "vector": None}
    scope = {
        name: SimpleNamespace(shape=x.shape) if isinstance(x, np.ndarray) else x
        for name, x in given.items()
    }
    for name, text in re.findall(r"problem\.(\w+) = (.+);", region):
        if data := re.fullmatch(r"byoc::cutlass_kernels::Data\((\w+)\)", text):
            if data.group(1) != "d":
                fields[name] = given[data.group(1)].reshape(-1)
            continue
        python = text.replace("->", ".").replace("/", "//").replace("std::", "")
        python = python.replace("<int64_t>", "").replace("true", "True").replace("false", "False")
        fields[name] = eval(python, {"max": max, "min": min, **scope})  # noqa: S307 - own text
    return SimpleNamespace(**fields)


def _matrix(flat: Array, layout: str, sizes: tuple[int, int, int], ld: int, step: int) -> Array:
    """A batch of matrices as CUTLASS reads them, float32."""
    batch, rows, columns = sizes
    inner = {"RowMajor": (ld, 1), "ColumnMajor": (1, ld)}[layout]
    last = (batch - 1) * step + (rows - 1) * inner[0] + (columns - 1) * inner[1]
    assert last < flat.size, "read behind the end"
    strides = tuple(stride * flat.itemsize for stride in (step, *inner))
    return as_strided(flat, sizes, strides).astype(np.float32)


def _gemm(kernel: Kernel, p: SimpleNamespace) -> Array:
    assert p.split_k == 1 or (p.batch == 1 and kernel.entry == "Linear")
    along = (p.k, p.k if kernel.layouts[1] == "ColumnMajor" else p.n, p.n)
    assert not any(size % a for size, a in zip(along, kernel.alignments, strict=True))
    element_a, element_b, element_d = kernel.elements
    assert (p.a.dtype, p.b.dtype) == (element_a, element_b)
    a = _matrix(p.a, kernel.layouts[0], (p.batch, p.m, p.k), p.lda, p.step_a)
    b = _matrix(p.b, kernel.layouts[1], (p.batch, p.k, p.n), p.ldb, p.step_b)
    source, vector = np.zeros((1, 1, 1), np.float32), None
    if p.source is not None:
        assert p.source.dtype == element_d
        source = _matrix(p.source, kernel.layouts[2], (p.batch, p.m, p.n), p.ldc, p.step_c)
    if p.vector is not None:
        assert p.vector.size == p.n
        vector = p.vector.astype(np.float32)
    result = kernel.finish(a @ b, source, vector, p.beta).astype(element_d)
    assert kernel.layouts[2] == "RowMajor"
    assert (p.ldd, p.step_d) == (p.n, p.m * p.n), "the result is not packed"
    return result.reshape(-1)


def _conv2d(kernel: Kernel, p: SimpleNamespace) -> Array:
    assert kernel.layouts == ("TensorNHWC",) * 3
    few = kernel.names[16].endswith("kFewChannels")
    assert few or kernel.names[16].endswith("kOptimized")
    assert few == (p.c <= 4)
    assert p.split_k <= (1 if few else math.ceil(p.c / kernel.shapes[0][2]))
    along = (p.c, p.c, p.k)
    assert not any(size % a for size, a in zip(along, kernel.alignments, strict=True))
    element_a, element_b, element_d = kernel.elements
    assert (p.a.dtype, p.b.dtype) == (element_a, element_b)
    data = p.a.reshape(p.n, p.h, p.w, p.c).astype(np.float32)
    weight = p.b.reshape(p.k, p.r, p.s, p.c).astype(np.float32)
    sums = np.zeros((p.n, p.p, p.q, p.k), np.float32)
    for r, s in np.ndindex(p.r, p.s):  # cross-correlation; zeros outside of the data
        rows = np.arange(p.p) * p.stride_h - p.pad_h + r * p.dilation_h
        columns = np.arange(p.q) * p.stride_w - p.pad_w + s * p.dilation_w
        inside = np.ix_((rows >= 0) & (rows < p.h), (columns >= 0) & (columns < p.w))
        seen = np.zeros((p.n, p.p, p.q, p.c), np.float32)
        picked = data[:, rows.clip(0, p.h - 1)][:, :, columns.clip(0, p.w - 1)]
        seen[(slice(None), *inside)] = picked[(slice(None), *inside)]
        sums += seen @ weight[:, r, s].T
    source, vector = np.zeros(1, np.float32), None
    if p.source is not None:
        assert p.source.dtype == element_d
        shape = sums.shape if p.whole_source else (p.k,)
        source = p.source.reshape(shape).astype(np.float32)
    if p.vector is not None:
        vector = p.vector.reshape(p.k).astype(np.float32)
    return kernel.finish(sums, source, vector, p.beta).astype(element_d).reshape(-1)
