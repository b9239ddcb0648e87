"""What cannot be imported is named before any work, all at once, with what to do about it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def refusal(proto: onnx.ModelProto) -> str:
    with pytest.raises(ModelError) as caught:
        byoc.load_model(proto)
    return str(caught.value)


def test_everything_unsupported_is_listed_with_counts_and_node_names(make_onnx: Any) -> None:
    nodes = [
        ("FusedMatMul", ["x", "x"], ["a"], {"domain": "com.microsoft"}),
        ("Scaler", ["a"], ["b"], {"domain": "ai.onnx.ml"}),
        ("Foo", ["b"], ["c"]),
        helper.make_node("Det", ["c"], ["d"], "first"),
        helper.make_node("Det", ["d"], ["e"]),
        ("RandomNormalLike", ["e"], ["y"]),
    ]
    message = refusal(make_onnx(nodes, ["x"], ["y"], domains=["com.microsoft", "ai.onnx.ml"]))
    lines = message.splitlines()
    assert lines[0].endswith("uses 5 operators in 6 nodes that cannot be imported:")
    assert "Det (2 nodes: first, the one that gives e): TVM's importer does not have it" in message
    assert "Foo (1 node: the Foo): no operator of ONNX" in message
    assert "ai.onnx.ml.Scaler (1 node: the Scaler): classical machine learning" in message
    assert "com.microsoft.FusedMatMul (1 node: the FusedMatMul): made by ONNX Runtime" in message
    assert "RandomNormalLike (1 node: the RandomNormalLike): random numbers" in message


@pytest.mark.parametrize("operator", ["Relu", "Gelu", "Attention", "FastGelu"])
@pytest.mark.parametrize("domain", ["acme", "com.microsoft"])
def test_an_operator_of_another_domain_is_not_mistaken(
    make_onnx: Any, operator: str, domain: str
) -> None:
    node = (operator, ["x"], ["y"], {"domain": domain})
    message = refusal(make_onnx([node], ["x"], ["y"], domains=[domain]))
    assert f"{domain}.{operator} (1 node" in message


def test_the_long_name_of_the_standard_domain_is_the_standard_domain(
    make_onnx: Any, agree: Any
) -> None:
    agree(make_onnx([("Relu", ["x"], ["y"], {"domain": "ai.onnx"})], ["x"], ["y"]))


def test_bodies_and_functions_are_searched(make_onnx: Any) -> None:
    body = helper.make_graph(
        [helper.make_node("Det", ["v"], ["w"], "inner"), helper.make_node("Not", ["c"], ["d"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("d", BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, [2, 3]),
        ],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("deep", 1)]
    call = [helper.make_node("Unknown", ["a"], ["b"], "called", domain="deep")]
    function = helper.make_function("acme", "Outer", ["a"], ["b"], call, imports)
    unused = helper.make_function("acme", "Unused", ["a"], ["b"], call, imports)
    nodes = [
        ("Loop", ["n", "", "x"], ["z"], {"body": body}),
        ("Outer", ["z"], ["y"], {"domain": "acme"}),
    ]
    proto = make_onnx(
        nodes, ["x"], ["y"], {"n": np.array(2)}, functions=[function, unused], domains=["acme"]
    )
    message = refusal(proto)
    assert "Det (1 node: inner in body of Loop 'the Loop')" in message
    assert "Loop (1 node: the Loop): TVM's importer has no loops" in message
    assert "deep.Unknown (1 node: called in function acme.Outer)" in message


def test_what_a_rewrite_lowers_is_not_refused(make_onnx: Any, agree: Any) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((1, 8, 3), dtype=np.float32),
        "r": rng.standard_normal((1, 8, 2), dtype=np.float32),
    }
    proto = make_onnx(
        [("LSTM", ["x", "w", "r"], ["y"], {"hidden_size": 2})],
        [("x", FLOAT, [4, 1, 3])],
        ["y"],
        constants,
    )
    agree(proto)
