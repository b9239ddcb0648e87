"""What `prepare` takes out of an imported module."""

from __future__ import annotations

import numpy as np
import tvm
import tvm.relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.preparation import tidy


def ops(mod: tvm.IRModule) -> list[str]:
    return [op.op for op in byoc.partition(mod, "llvm").coverage.ops]


def module(body: str) -> tvm.IRModule:
    """A function of x, 2x3 float32, whose dataflow block `body` fills."""
    relax = tvm.relax
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(BODIES[body](builder, x))
        builder.emit_func_output(result)
    return builder.get()


def transposed_weight(builder: tvm.relax.BlockBuilder, x: tvm.relax.Var) -> tvm.relax.Expr:
    weight = tvm.relax.const(np.arange(12, dtype="float32").reshape(4, 3))
    return tvm.relax.op.matmul(x, builder.emit(tvm.relax.op.permute_dims(weight)))


def dead_op(builder: tvm.relax.BlockBuilder, x: tvm.relax.Var) -> tvm.relax.Expr:
    builder.emit(tvm.relax.op.zeros_like(x))
    return tvm.relax.op.nn.relu(x)


BODIES = {"transposed_weight": transposed_weight, "dead_op": dead_op}


def test_a_permuted_weight_is_computed_once() -> None:
    mod = module("transposed_weight")
    assert ops(mod) == ["relax.permute_dims", "relax.matmul"]
    assert ops(tidy(mod)) == ["relax.matmul"]
    x = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    expected = x @ np.arange(12, dtype="float32").reshape(4, 3).T
    # Sums of three float32 products, added in another order.
    np.testing.assert_allclose(byoc.compile(tidy(mod), "llvm")(x), expected, rtol=1e-5)


def test_an_op_that_nothing_reads_is_dropped() -> None:
    assert ops(module("dead_op")) == ["relax.zeros_like", "relax.nn.relu"]
    assert ops(tidy(module("dead_op"))) == ["relax.nn.relu"]
