"""The example NPU: each reason on a module that isolates it, with a near miss that runs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes  # noqa: F401 - NumPy's bfloat16
import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends import example_npu_predicates
from tvm_byoc_kit.errors import ModelError

from .predicate_tools import Tensor, isolated, kit_composites, module, reasons, told

npu = pytest.mark.byoc("example_npu", step="runtime")
FLOAT, HALF, INT8, INT32 = "float32", "float16", "int8", "int32"
FLOATS = "the NPU has float16, float32"


def const(*dims: int, dtype: str = FLOAT) -> Any:
    return relax.const(np.ones(dims, dtype))


def scaled(operation: Callable[..., Any], result: str) -> Callable[[Any], Any]:
    def body(x: Any) -> Any:
        zero = relax.const(np.array(0, INT8))
        return operation(x, const(), zero, axis=0, out_dtype=result)

    return body


def window(**attrs: Any) -> Callable[[Any], Any]:
    return lambda x: op.nn.max_pool2d(x, (2, 2), **attrs)


def conv2d(**attrs: Any) -> Callable[[Any, Any], Any]:
    return lambda x, w: op.nn.conv2d(x, w, **attrs)


def product(result: str | None = None) -> Callable[[Any, Any], Any]:
    return lambda x, y: op.matmul(x, y, out_dtype=result)


def split_and_joined(x: Any) -> Any:
    return op.concat(op.split(x, 2, axis=1), axis=0)


def joined(x: Any) -> Any:
    return op.concat([x, x], axis=0)


@dataclass(frozen=True)
class Case:
    """Tensors and a body that is refused with a reason; and of those that are accepted."""

    tensors: list[Tensor]
    body: Callable[..., Any]
    reason: str
    near: list[Tensor] | None = None
    near_body: Callable[..., Any] | None = None

    @property
    def refused(self) -> tvm.IRModule:
        return module(self.tensors, self.body)

    @property
    def accepted(self) -> tvm.IRModule:
        return module(self.near or self.tensors, self.near_body or self.body)


MATRIX = [((2, 4), FLOAT)]
IMAGE = [((1, 4, 8, 8), FLOAT)]
WEIGHT = ((8, 4, 3, 3), FLOAT)
WIDE = 2**24 + 1

CASES = {
    "tuple": Case(
        MATRIX,
        split_and_joined,
        "relax.concat: operand 0 is a tuple computed elsewhere, such as a split's",
        near_body=joined,
    ),
    "number": Case(
        MATRIX,
        lambda x: op.add(x, tvm.tirx.FloatImm(FLOAT, 2.0)),
        "relax.add: operand 1 is a number, not a tensor",
        near_body=lambda x: op.add(x, const()),
    ),
    "bound": Case(
        [((2, "n"), FLOAT)],
        lambda x: op.clip(x, 0, x.ty.shape[1]),
        "relax.clip: operand 2 is known only when the model runs",
        near_body=lambda x: op.clip(x, 0, 4),
    ),
    "floating point": Case(
        [((2, 4), "float64")],
        op.tanh,
        f"relax.tanh: operand 0 is float64; {FLOATS}",
        near=[((2, 4), HALF)],
    ),
    "sum of bytes": Case(
        [((2, 4), INT8)] * 2,
        op.add,
        "relax.add: operand 0 is int8; the NPU has float16, float32, int32",
        near=[((2, 4), INT32)] * 2,
    ),
    "product of words": Case(
        [((2, 4), INT32), ((4, 8), INT32)],
        product(INT32),
        "relax.matmul: operand 0 is int32; the NPU has float16, float32, int8, uint8",
        near=[((2, 4), INT8), ((4, 8), "uint8")],
    ),
    "mean of words": Case(
        [((2, 4), INT32)],
        lambda x: op.mean(x, axis=1),
        f"relax.mean: operand 0 is int32; {FLOATS}",
        near=MATRIX,
    ),
    "pool of words": Case(
        [((1, 4, 8, 8), INT32)],
        window(),
        "relax.nn.max_pool2d: operand 0 is int32; the NPU has float16, float32, int8, uint8",
        near=[((1, 4, 8, 8), INT8)],
    ),
    "accumulator of a matmul": Case(
        [((2, 4), "uint8"), ((4, 8), "uint8")],
        product("uint8"),
        "relax.matmul: uint8 and uint8 to uint8; the NPU has float16 and float32, or int8 and "
        "uint8 to int8 or int32",
        near_body=product(INT32),
    ),
    "accumulator of a convolution": Case(
        [((1, 4, 8, 8), INT8), ((8, 4, 3, 3), INT8)],
        conv2d(out_dtype=FLOAT),
        "relax.nn.conv2d: int8 and int8 to float32; the NPU has float16 and float32, or int8 and "
        "uint8 to int8 or int32",
        near_body=conv2d(out_dtype=INT8),
    ),
    "dequantized floating point": Case(
        MATRIX,
        scaled(op.dequantize, FLOAT),
        "relax.dequantize: operand 0 is floating point; the NPU has int32, int8, uint8",
        near=[((2, 4), INT8)],
    ),
    "quantized to int16": Case(
        MATRIX,
        scaled(op.quantize, "int16"),
        "relax.quantize: result is int16; the NPU has float16, float32, int32, int8, uint8",
        near_body=scaled(op.quantize, "uint8"),
    ),
    "blocked layout": Case(
        [((1, 1, 8, 8, 4), FLOAT)],
        window(layout="NCHW4c"),
        "relax.nn.max_pool2d: layout is NCHW4c; the NPU has NCHW, NHWC",
        near=[((1, 8, 8, 4), FLOAT)],
        near_body=window(layout="NHWC"),
    ),
    "kernel layout": Case(
        [*IMAGE, ((4, 8, 3, 3), FLOAT)],
        conv2d(kernel_layout="IOHW"),
        "relax.nn.conv2d: kernel_layout is IOHW; the NPU has OIHW, HWIO, OHWI, OIW, WIO, OWI",
        near=[*IMAGE, ((3, 3, 4, 8), FLOAT)],
        near_body=conv2d(kernel_layout="HWIO"),
    ),
    "window of a pool": Case(
        IMAGE,
        window(strides=(WIDE, 1)),
        f"relax.nn.max_pool2d: strides is {WIDE}, 1; the NPU counts to {WIDE - 1}",
        near_body=window(strides=(WIDE - 1, 1)),
    ),
    "window of a convolution": Case(
        [*IMAGE, WEIGHT],
        conv2d(strides=(1, WIDE)),
        f"relax.nn.conv2d: strides is 1, {WIDE}; the NPU counts to {WIDE - 1}",
        near_body=conv2d(strides=(1, WIDE - 1)),
    ),
}
case = pytest.mark.parametrize("name", CASES)


@case
def test_each_reason_has_a_module_that_isolates_it_and_a_near_miss(name: str) -> None:
    isolates = CASES[name]
    assert reasons(isolates.refused, "example_npu") == [isolates.reason]
    assert kit_composites(isolates.refused, "example_npu") == ()
    assert reasons(isolates.accepted, "example_npu") == []
    assert kit_composites(isolates.accepted, "example_npu")


def test_every_predicate_is_isolated_by_a_case() -> None:
    common = example_npu_predicates.PREDICATES["relax.matmul"][:4]
    table = {
        call: example_npu_predicates.PREDICATES.get(call, common)
        for call in ("relax.concat", "relax.add", "relax.tanh", "relax.mean", "relax.quantize")
    }
    table |= example_npu_predicates.PREDICATES
    asked = {check for checks in table.values() for check in checks}
    met = isolated(CASES, table)
    assert {check.__name__ for check in asked - met} == {"_shape"}  # no module of the kit's has it


def test_an_unknown_shape_is_a_reason() -> None:
    x = relax.Var("x", relax.TensorType(ndim=2, dtype=FLOAT))
    call = relax.BlockBuilder().normalize(op.nn.relu(x))
    expected = "relax.nn.relu: the shape of operand 0 is unknown"
    assert example_npu_predicates.refusal(call) == expected


def test_a_symbolic_number_is_refused_with_its_reason() -> None:
    assert told(CASES["bound"].refused, "example_npu") == [CASES["bound"].reason]


def values(tensors: list[Tensor]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(tuple(4 if isinstance(d, str) else d for d in dims), kind) for dims, kind in tensors]
    return [rng.integers(0, 4, dims).astype(kind) for dims, kind in shapes]


@npu
@case
def test_what_is_accepted_runs(name: str) -> None:
    accepted, tensors = CASES[name].accepted, CASES[name].near or CASES[name].tensors
    inputs = values(tensors)
    found = byoc.compile(accepted, "example_npu")(*inputs)
    expected = byoc.compile(accepted, "llvm")(*inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


# The plugin is asked without predicates: what it takes in the end, and what it does not.

DTYPES = ("float16", "float32", "float64", "bfloat16", "int8", "uint8", "int16", "int32", "bool")
UNARY = {"relu": op.nn.relu, "mean": op.mean, "reshape": op.flatten}
BINARY = {"add": op.add, "multiply": op.multiply, "maximum": op.maximum, "divide": op.divide}


@npu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_of_what_no_predicate_refuses_the_plugin_refuses_nothing(name: str, dtype: str) -> None:
    body = {**UNARY, **BINARY}[name]
    mod = module([((2, 4), dtype)] * (1 if name in UNARY else 2), body)
    if not reasons(mod, "example_npu"):
        byoc.compile(mod, "example_npu")


@npu
@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        (left, right, result)
        for left, right in itertools.product(DTYPES[:-1], repeat=2)
        for result in (FLOAT, INT8, INT32)
        if left.startswith("float") == right.startswith("float")
    ],
)
def test_products_are_refused_by_the_plugin_and_by_the_predicates_alike(
    left: str, right: str, result: str
) -> None:
    mod = module([((2, 4), left), ((4, 8), right)], product(result))
    if not reasons(mod, "example_npu"):
        byoc.compile(mod, "example_npu")
        return
    with pytest.raises(ModelError):
        byoc.compile(unguarded(mod), "example_npu")


def unguarded(mod: tvm.IRModule) -> byoc.Partition:
    """A partition in which no predicate is asked."""
    patterns = byoc.get_backend("example_npu").patterns()
    fused = relax.transform.FuseOpsByPattern(patterns, annotate_codegen=True)(mod)
    prepared = byoc.partition(mod, "example_npu")
    return byoc.Partition(fused, prepared.backend, prepared.model)


# Sizes


@npu
@pytest.mark.parametrize("l1_bytes", [1, 64, 4096])
def test_no_size_is_too_large_for_a_tile(l1_bytes: int) -> None:
    mod = module([((64, 512), FLOAT), ((512, 64), FLOAT)], op.matmul)
    assert reasons(mod, "example_npu") == []
    a, b = values([((64, 512), FLOAT), ((512, 64), FLOAT)])
    options = {"l0_bytes": 1, "l1_bytes": l1_bytes, "l2_bytes": l1_bytes}
    found = byoc.compile(mod, "example_npu", options=options)(a, b)
    np.testing.assert_allclose(found, a @ b, rtol=1e-5)
