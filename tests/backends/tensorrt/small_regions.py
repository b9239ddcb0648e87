"""Regions that are quick to build, for tests of what stands around an engine."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from tvm_byoc_kit.backends.tensorrt.vendor import Vendor, find_vendor
from tvm_byoc_kit.graph import Graph

from .harness import Subject

WEIGHTS = np.random.default_rng(3).standard_normal((4, 3), dtype=np.float32)


def dense(batch: int | str = "n", scale: float = 1.0) -> tvm.IRModule:
    """``x[batch, 4] -> relu(x @ (scale * WEIGHTS))``."""
    builder = relax.BlockBuilder()
    size = tvm.tirx.Var(batch, "int64") if isinstance(batch, str) else batch
    x = relax.Var("x", relax.TensorType([size, 4], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = relax.op.matmul(x, relax.const(WEIGHTS * np.float32(scale)))
            result = builder.emit_output(relax.op.nn.relu(builder.emit(product)))
        builder.emit_func_output(result)
    return builder.finalize()


def flattened() -> tvm.IRModule:
    """``x[n, m, 3] -> softmax(reshape(x, (n * m, 3)))``; the region is given the shape too."""
    builder = relax.BlockBuilder()
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")
    x = relax.Var("x", relax.TensorType([n, m, 3], "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            rows = builder.emit(relax.op.reshape(x, (n * m, 3)))
            result = builder.emit_output(relax.op.nn.softmax(rows))
        builder.emit_func_output(result)
    return builder.finalize()


def dense_reference(x: np.ndarray) -> np.ndarray:
    """The same in NumPy."""
    return np.maximum(x @ WEIGHTS, 0)


def graph_of(mod: tvm.IRModule) -> Graph:
    """The one region of a module."""
    return Subject.of_module(mod).graph


def rtx() -> Vendor:
    """The vendor that is here."""
    return find_vendor("tensorrt_rtx")


def as_tensorrt() -> Vendor:
    """TensorRT-RTX, which has nearly its API, under the name of TensorRT."""
    vendor = rtx()
    return Vendor("tensorrt", vendor.module, (11, 4, 0), "11.4.0.1", vendor.logger)
