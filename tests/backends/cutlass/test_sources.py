"""Generated sources: read back by an oracle in NumPy, and compared with PyTorch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.cutlass.codegen import plan
from tvm_byoc_kit.backends.cutlass.sources import kernel_source, region_source
from tvm_byoc_kit.graph import Graph, read_graph

from ..predicate_tools import module  # noqa: TID252 - what other backends are tested with
from . import emulator

functional = torch.nn.functional
NHWC = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
TORCH = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5}


@dataclass(frozen=True)
class Case:
    """A match in Relax, and the same in PyTorch, in float32."""

    shapes: Sequence[tuple[int | str, ...]]
    relaxed: Callable[..., Any]
    expected: Callable[..., torch.Tensor]
    dtype: str = "float16"
    result: str = ""
    sizes: dict[str, int] = field(default_factory=dict)
    architectures: tuple[str, ...] = ("sm_80",)


def swap(x: Any) -> Any:
    axes = list(range(x.ty.ndim))
    return op.permute_dims(x, [*axes[:-2], axes[-1], axes[-2]])


def conv(x: Any, w: Any, **attrs: Any) -> Any:
    return op.nn.conv2d(x, w, **NHWC, **attrs)


def torch_conv(x: torch.Tensor, w: torch.Tensor, **attrs: Any) -> torch.Tensor:
    x, w = x.permute(0, 3, 1, 2), w.permute(0, 3, 1, 2)
    return functional.conv2d(x, w, **attrs).permute(0, 2, 3, 1)


def conv_case(*others: tuple[int, ...], **given: Any) -> dict[str, Any]:
    return {"shapes": [(2, 9, 7, 8), (16, 3, 3, 8), *others], **given}


PLAIN = Case([(32, 24), (24, 16)], op.matmul, torch.matmul)
CASES = {
    "matmul": PLAIN,
    "matmul of bfloat16": Case([(32, 24), (24, 16)], op.matmul, torch.matmul, "bfloat16"),
    "matmul of float32": Case([(32, 24), (24, 16)], op.matmul, torch.matmul, "float32"),
    "matmul to float32": Case(
        [(32, 24), (24, 16)],
        lambda a, b: op.matmul(a, b, out_dtype="float32"),
        torch.matmul,
        result="float32",
    ),
    "matmul of odd sizes": Case([(5, 7), (7, 3)], op.matmul, torch.matmul),
    "matmul of odd bfloat16": Case([(5, 7), (7, 3)], op.matmul, torch.matmul, "bfloat16"),
    "matmul on sm_75": Case(
        [(32, 24), (24, 16)], op.matmul, torch.matmul, architectures=("sm_75",)
    ),
    "matmul on two GPUs": Case(
        [(32, 24), (24, 16)], op.matmul, torch.matmul, architectures=("sm_80", "sm_90")
    ),
    "long sums": Case([(16, 4096), (4096, 16)], op.matmul, torch.matmul),
    "transposed": Case(
        [(32, 24), (16, 24)], lambda a, b: op.matmul(a, swap(b)), lambda a, b: a @ b.mT
    ),
    "batch": Case([(3, 4, 8), (3, 8, 6)], op.matmul, torch.matmul),
    "batch of two axes": Case([(2, 3, 4, 8), (2, 3, 8, 6)], op.matmul, torch.matmul),
    "transposed batch": Case(
        [(3, 4, 8), (3, 6, 8)], lambda a, b: op.matmul(a, swap(b)), lambda a, b: a @ b.mT
    ),
    "batch by one matrix": Case([(3, 4, 8), (8, 6)], op.matmul, torch.matmul),
    "one matrix by a batch": Case([(4, 8), (3, 8, 6)], op.matmul, torch.matmul),
    "one of a batch of one": Case([(1, 4, 8), (3, 8, 6)], op.matmul, torch.matmul),
    "symbolic rows": Case([("n", 5, 8), (8, 6)], op.matmul, torch.matmul, sizes={"n": 3}),
    "symbolic batch": Case([("n", 5, 8), ("n", 8, 6)], op.matmul, torch.matmul, sizes={"n": 3}),
    "symbolic columns": Case([(5, 8), (8, "n")], op.matmul, torch.matmul, sizes={"n": 7}),
    "relu": Case(
        [(32, 24), (24, 16)], lambda a, b: op.nn.relu(op.matmul(a, b)), lambda a, b: (a @ b).relu()
    ),
    "bias": Case(
        [(32, 24), (24, 16), (16,)],
        lambda a, b, c: op.add(op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "bias that is a matrix": Case(
        [(32, 24), (24, 16), (32, 16)],
        lambda a, b, c: op.add(op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "bias of one row": Case(
        [(1, 24), (24, 16), (1, 16)],
        lambda a, b, c: op.add(op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "bias of a batch": Case(
        [(3, 4, 8), (3, 8, 6), (6,)],
        lambda a, b, c: op.add(op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "bias of the batch's shape": Case(
        [(3, 4, 8), (3, 8, 6), (3, 4, 6)],
        lambda a, b, c: op.add(op.matmul(a, b), c),
        lambda a, b, c: a @ b + c,
    ),
    "bias and relu": Case(
        [(32, 24), (24, 16), (16,)],
        lambda a, b, c: op.nn.relu(op.add(op.matmul(a, b), c)),
        lambda a, b, c: (a @ b + c).relu(),
    ),
    "bias and gelu": Case(
        [(2, 16, 24), (24, 16), (16,)],
        lambda a, b, c: op.nn.gelu(op.add(op.matmul(a, b), c)),
        lambda a, b, c: functional.gelu(a @ b + c),
    ),
    "bias and gelu of what is reshaped": Case(
        [(32, 24), (24, 16), (16,)],
        lambda a, b, c: op.nn.gelu(op.reshape(op.add(op.matmul(a, b), c), (2, 16, 16))),
        lambda a, b, c: functional.gelu(a @ b + c).reshape(2, 16, 16),
    ),
    "bias and silu, transposed": Case(
        [(32, 24), (16, 24), (16,)],
        lambda a, b, c: op.nn.silu(op.add(op.matmul(a, swap(b)), c)),
        lambda a, b, c: functional.silu(a @ b.mT + c),
    ),
    "residual": Case(
        [(32, 24), (24, 16), (16,), (32, 16)],
        lambda a, b, c, r: op.add(op.add(op.matmul(a, b), c), r),
        lambda a, b, c, r: a @ b + c + r,
    ),
    "residual of a batch": Case(
        [(3, 4, 8), (3, 8, 6), (6,), (3, 4, 6)],
        lambda a, b, c, r: op.nn.relu(op.add(op.add(op.matmul(a, b), c), r)),
        lambda a, b, c, r: (a @ b + c + r).relu(),
    ),
    "residual that is a factor": Case(
        [(32, 24), (24, 16), (16,), (32, 16)],
        lambda a, b, c, r: op.multiply(r, op.nn.gelu(op.add(op.matmul(a, b), c))),
        lambda a, b, c, r: functional.gelu(a @ b + c) * r,
    ),
    "residual that is a vector": Case(
        [(32, 24), (24, 16), (16,), (16,)],
        lambda a, b, c, r: op.multiply(op.nn.silu(op.add(op.matmul(a, b), c)), r),
        lambda a, b, c, r: functional.silu(a @ b + c) * r,
    ),
    "conv2d": Case(
        **conv_case(
            relaxed=lambda x, w: conv(x, w, padding=1),
            expected=lambda x, w: torch_conv(x, w, padding=1),
        )
    ),
    "conv2d of all attributes": Case(
        **conv_case(
            relaxed=lambda x, w: conv(x, w, padding=(2, 1), strides=(2, 1), dilation=(1, 2)),
            expected=lambda x, w: torch_conv(x, w, padding=(2, 1), stride=(2, 1), dilation=(1, 2)),
        )
    ),
    "conv2d with one-sided padding": Case(
        **conv_case(
            relaxed=lambda x, w: conv(x, w, padding=(0, 1, 2, 0)),
            expected=lambda x, w: torch_conv(functional.pad(x, (0, 0, 1, 0, 0, 2)), w),
        )
    ),
    "conv2d of three channels": Case([(1, 9, 7, 3), (16, 5, 3, 3)], conv, torch_conv),
    "conv2d of float32": Case(**conv_case(relaxed=conv, expected=torch_conv, dtype="float32")),
    "conv2d with bias and silu": Case(
        **conv_case(
            (1, 1, 1, 16),
            relaxed=lambda x, w, b: op.nn.silu(op.add(conv(x, w), b)),
            expected=lambda x, w, b: functional.silu(torch_conv(x, w) + b),
        )
    ),
    "conv2d with a tensor for a bias": Case(
        **conv_case(
            (2, 4, 3, 16),
            relaxed=lambda x, w, b: op.nn.relu(op.add(conv(x, w, strides=2), b)),
            expected=lambda x, w, b: (torch_conv(x, w, stride=2) + b).relu(),
        )
    ),
    "conv2d with a residual": Case(
        **conv_case(
            (16,),
            (2, 4, 3, 16),
            relaxed=lambda x, w, b, r: op.nn.relu(op.add(op.add(conv(x, w, strides=2), b), r)),
            expected=lambda x, w, b, r: (torch_conv(x, w, stride=2) + b + r).relu(),
        )
    ),
    "conv2d with a factor for each channel": Case(
        **conv_case(
            (16,),
            (1, 1, 1, 16),
            relaxed=lambda x, w, b, r: op.multiply(op.nn.relu(op.add(conv(x, w), b)), r),
            expected=lambda x, w, b, r: (torch_conv(x, w) + b).relu() * r,
        )
    ),
}


def case_module(case: Case) -> tvm.IRModule:
    return module([(shape, case.dtype) for shape in case.shapes], case.relaxed)


def region_graph(mod: tvm.IRModule) -> Graph:
    """The one region that a module is."""
    parts = byoc.partition(mod, "cutlass")
    (region,) = parts.coverage.regions
    assert parts.coverage.offloaded == parts.coverage.total
    return read_graph(parts.mod[region.name])


def texts(graph: Graph, architectures: Sequence[str] = ("sm_80",)) -> tuple[str, str]:
    """Of a region: its function and its kernel."""
    (((_, problem, choice),),) = plan([graph], architectures)
    function = region_source(graph, problem, choice.kernel, choice.split_k)
    return function, kernel_source(choice.kernel)


def sources(case: Case) -> tuple[str, str]:
    return texts(region_graph(case_module(case)), case.architectures)


def inputs(case: Case) -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else case.dtype
    found = {}
    for number, shape in enumerate(case.shapes):
        sizes = [case.sizes[dim] if isinstance(dim, str) else dim for dim in shape]
        scale = 1 / np.sqrt(sizes[0]) if number == 1 else 1
        found[f"x{number}"] = (random.standard_normal(sizes) * scale).astype(dtype)
    return found


def region_inputs(case: Case) -> list[np.ndarray]:
    """In the order of the region's arguments, which is that of the ops."""
    given = inputs(case)
    return [given[value.name] for value in region_graph(case_module(case)).inputs]


def expected(case: Case) -> np.ndarray:
    given = (torch.tensor(x.astype(np.float32)) for x in inputs(case).values())
    return case.expected(*given).numpy()


def difference(case: Case, computed: np.ndarray) -> float:
    """The largest difference to PyTorch, over what the dtype of the result may differ by."""
    result = case.result or case.dtype
    assert computed.dtype == (ml_dtypes.bfloat16 if result == "bfloat16" else result)
    wanted = expected(case)
    distance = np.abs(computed.astype(np.float32).reshape(wanted.shape) - wanted)
    return float(np.max(distance / (TOLERANCE[result] * (1 + np.abs(wanted)))))


def error(case: Case, function: str, kernel: str) -> float:
    return difference(case, emulator.run(function, kernel, region_inputs(case)))


@pytest.mark.parametrize("name", CASES)
def test_sources_compute_what_pytorch_does(name: str) -> None:
    assert error(CASES[name], *sources(CASES[name])) <= 1


MUTATIONS = {
    "the left steps": ("transposed batch", r"step_a = \d+", "step_a = 0"),
    "the right steps": ("transposed batch", r"step_b = \d+", "step_b = 0"),
    "steps of the source": ("residual of a batch", r"step_c = \d+", "step_c = 0"),
    "rows of the source": ("residual", r"ldc = \d+", "ldc = 0"),
    "rows of the right operand": ("matmul", r"ldb = \d+", "ldb = 8"),
    "operands": ("matmul of odd sizes", r"a = (.*)a0\);\n(.*)a1", r"a = \1a1);\n\2a0"),
    "beta": ("bias", r"beta = 1", "beta = 0"),
    "layout": ("transposed", r"ColumnMajor", "RowMajor"),
    "activation": ("bias and gelu", r"LinearCombinationGELU", "LinearCombinationRelu"),
    "combination": ("residual", r"cutlass::plus", "cutlass::multiplies"),
    "last function": ("residual of a batch", r"thread::ReLu", "thread::Identity"),
    "biases": ("residual", r"vector = (.*)a2", r"vector = \1a3"),
    "padding": ("conv2d", r"pad_h = 1", "pad_h = 0"),
    "stride": ("conv2d of all attributes", r"stride_w = 1", "stride_w = 2"),
    "dilation": ("conv2d of all attributes", r"dilation_w = 2", "dilation_w = 1"),
    "whole source": ("conv2d with a residual", r"whole_source = true", "whole_source = false"),
    "alignment": ("matmul of odd sizes", r"\n    1,\n    1,", "\n    8,\n    8,"),
    "dtype": ("matmul of bfloat16", r"bfloat16_t", "half_t"),
    "symbol": ("symbolic rows", r"a0->shape\[0\]", "a1->shape[0]"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_the_oracle_sees_faults(name: str) -> None:
    case, pattern, replacement = MUTATIONS[name]
    function, kernel = sources(CASES[case])
    broken = [re.sub(pattern, replacement, text) for text in (function, kernel)]
    assert broken != [function, kernel]
    try:
        found = error(CASES[case], *broken)
    except (AssertionError, ValueError):
        return
    assert found > 1


def test_kernels_know_no_sizes() -> None:
    other = Case([(320, 24), (24, 16)], op.matmul, torch.matmul)
    assert sources(PLAIN)[1] == sources(other)[1]
    assert sources(PLAIN)[0] != sources(other)[0]


def test_a_kernel_is_called_after_all_that_it_is_made_of() -> None:
    names = {re.search(r"byoc_\w+", sources(case)[1]).group() for case in CASES.values()}  # type: ignore[union-attr]
    assert len(names) == len({sources(case)[1] for case in CASES.values()}) > 10


def test_sources_are_the_same_whenever_they_are_made() -> None:
    for name in ("matmul", "conv2d with a residual"):
        assert sources(CASES[name]) == sources(CASES[name])


def test_operands_are_told_apart_by_place_even_where_one_is_read_twice() -> None:
    def square(a: Any, c: Any) -> Any:
        return op.add(op.matmul(a, swap(a)), c)

    case = Case([(16, 16), (16,)], square, lambda a, c: a @ a.mT + c)
    assert error(case, *sources(case)) <= 1


def test_a_shape_parameter_gives_a_size() -> None:
    n = tvm.tirx.Var("n", "int64")
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n * 2, 8), "float16"))
    w = relax.Var("w", relax.TensorType((8, 16), "float16"))
    half = relax.Var("half", relax.TensorType((n,), "float16"))
    with builder.function("main", [x, w, half]):
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, w))
        builder.emit_func_output(out)
    graph = region_graph(builder.finalize())
    (shape,) = [value for value in graph.inputs if value.dims is not None]
    values = {"x": np.ones((6, 8), "float16"), "w": np.ones((8, 16), "float16"), shape.name: (3,)}
    given = [values[value.name] for value in graph.inputs]
    assert emulator.run(*texts(graph), given).tolist() == [8] * 6 * 16
