"""A region as bytes and back."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tvm import relax

from tvm_byoc_kit.backends.tensorrt.graph_bytes import digest, pack_graph, unpack_graph
from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.graph import Call, Graph, Op, Shape, Value

from .small_regions import dense, graph_of


def every_kind() -> Graph:
    """Whatever a graph may hold."""
    x = Value("x", ("n", 3), "float32")
    shape = Value("s", (2,), "int64", dims=("n", 3))
    constants = tuple(
        Value(f"c{number}", array.shape, array.dtype.name, data=array)
        for number, array in enumerate(
            (
                np.arange(6, dtype=np.float32).reshape(2, 3),
                np.array(2.5, np.float16),
                np.zeros((0, 4), np.int8),
                np.array([1.5, -2], ml_dtypes.bfloat16),
                np.array([True, False, True]),
            )
        )
    )
    results = Value("r0", ("n", 3), "float32"), Value("r1", ("n * 2",), "bool")
    operands = (x, shape, constants, Shape(("n * 2", 4)), (x, (1, 2.5)), 3, -1.5, "text", None)
    attrs = {"axis": (1, (2, 3)), "limit": float("inf"), "flag": True, "none": None, "word": "NCHW"}
    op = Op("relax.made_up", operands, attrs, results)
    call = Call("tensorrt.made_up", (x, *constants), (op,), results)
    return Graph("region", "tensorrt", (x, shape), constants, (call,), results, {"n": (0, 0)})


def same(a: Graph, b: Graph) -> bool:
    """Equal in all, constants bit for bit."""
    arrays = zip(a.constants, b.constants, strict=True)
    return a == b and all(
        p.data is not None
        and q.data is not None
        and p.data.dtype == q.data.dtype
        and p.data.shape == q.data.shape
        and p.data.tobytes() == q.data.tobytes()
        for p, q in arrays
    )


@pytest.mark.parametrize("graph", [every_kind(), graph_of(dense()), graph_of(dense(2))])
def test_a_graph_comes_back_as_it_was(graph: Graph) -> None:
    assert same(unpack_graph(pack_graph(graph)), graph)


def test_operands_refer_to_the_same_values() -> None:
    graph = unpack_graph(pack_graph(every_kind()))
    (op,) = graph.ops
    assert op.operands[0] is graph.inputs[0]
    assert op.operands[2] == graph.constants
    assert op.results[0] is graph.outputs[0]


def test_constants_that_come_back_are_read_only_and_not_copied() -> None:
    data = pack_graph(every_kind())
    array = unpack_graph(data).constants[0].data
    assert array is not None
    assert not array.flags.writeable
    whole = np.frombuffer(data, np.uint8)
    assert np.shares_memory(array, whole)


def test_bytes_are_the_same_at_every_time() -> None:
    assert pack_graph(every_kind()) == pack_graph(every_kind())


def test_every_cut_is_noticed() -> None:
    data = pack_graph(graph_of(dense()))
    for size in (*range(0, len(data) - 64, 7), 0, 8, 15, 16):
        with pytest.raises(ArtifactError, match="build the model again"):
            unpack_graph(data[:size])


def test_another_format_is_named() -> None:
    data = pack_graph(graph_of(dense())).replace(b'"format": 1', b'"format": 7')
    with pytest.raises(ArtifactError, match="format 7, this kit reads 1"):
        unpack_graph(data)


def test_the_digest_is_that_of_all_but_the_name(make_module: Any) -> None:
    graph = graph_of(dense())
    assert digest(dataclasses.replace(graph, name="other")) == digest(graph)
    others = [
        graph_of(dense(2)),
        graph_of(dense(scale=2)),
        graph_of(make_module({"x": (("n", 4), "float32")}, relax.op.nn.relu)),
        graph_of(make_module({"x": (("n", 4), "float32")}, relax.op.tanh)),
    ]
    assert len({digest(other) for other in (graph, *others)}) == 5
