"""Products of matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm_byoc_kit.backends.tensorrt.converters.table import converter

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backends.tensorrt.network import NetworkBuilder, Tensor
    from tvm_byoc_kit.graph import Op


@converter("relax.matmul")
def matmul(net: NetworkBuilder, op: Op, a: Tensor | np.ndarray, b: Tensor | np.ndarray) -> Tensor:
    """Batches are broadcast; a vector has one dimension less than a matrix beside it."""
    a, b = net.widened(op, a, b)
    rank = max(len(a.shape), len(b.shape), 2)
    sides = []
    for x in (a, b):
        vector = len(x.shape) == 1
        kind = net.trt.MatrixOperation.VECTOR if vector else net.trt.MatrixOperation.NONE
        sides += [net.tensor(x, rank - vector), kind]
    return net.check(net.network.add_matrix_multiply(*sides))
