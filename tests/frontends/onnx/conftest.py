"""Builds small ONNX models, and compares their import with ONNX Runtime."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.sample_inputs import random_inputs

onnxruntime.set_default_logger_severity(4)

Value = tuple[str, int, Sequence[int | str | None] | None]
Make = Callable[..., onnx.ModelProto]
Agree = Callable[..., byoc.ImportedModel]


@pytest.fixture(scope="session")
def make_onnx() -> Make:
    """Gives ``make(nodes, inputs, outputs, constants={}, *, opset=18, functions=(), domains=())``.

    A node is ``(op, inputs, outputs, attributes)``, attributes being optional, or a NodeProto; a
    value is its name, then float32 of shape [2, 3], or ``(name, element type, shape)``.
    """

    def make(
        nodes: Sequence[Any],
        inputs: Sequence[Value | str],
        outputs: Sequence[Value | str],
        constants: Mapping[str, Any] | None = None,
        *,
        opset: int = 18,
        functions: Sequence[onnx.FunctionProto] = (),
        domains: Sequence[str] = (),
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            [node if isinstance(node, onnx.NodeProto) else _node(*node) for node in nodes],
            "g",
            [_value(value, [2, 3]) for value in inputs],
            [_value(value, None) for value in outputs],
            [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
        )
        imports = [
            helper.make_opsetid(domain, opset if not domain else 1) for domain in ("", *domains)
        ]
        version = 8 if opset < 21 else 10
        return helper.make_model(
            graph, opset_imports=imports, ir_version=version, functions=list(functions)
        )

    return make


def _node(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Mapping[str, Any] | None = None,
) -> onnx.NodeProto:
    given = dict(attributes or {})
    domain = given.pop("domain", "")
    return helper.make_node(op, inputs, outputs, f"the {op}", domain=domain, **given)


def _value(value: Value | str, shape: Sequence[int] | None) -> onnx.ValueInfoProto:
    if isinstance(value, str):
        return helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)
    return helper.make_tensor_value_info(*value)


@pytest.fixture(scope="session")
def agree() -> Agree:
    """Gives ``agree(model, values={}, rtol=1e-5, **load_model's arguments)``.

    Imports and builds the model, runs it once and compares with ONNX Runtime; inputs not in
    `values` are random. Without ``simplify`` nothing is simplified, and any warning is an error.
    """

    def check(
        model: onnx.ModelProto | Path,
        values: Mapping[str, Any] | None = None,
        rtol: float = 1e-5,
        **arguments: Any,
    ) -> byoc.ImportedModel:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            imported = byoc.load_model(model, **{"simplify": False, **arguments})
        feeds = {**random_inputs(imported.inputs), **(values or {})}
        got = byoc.compile(imported, "llvm").run(feeds)
        data = str(model) if isinstance(model, Path) else model.SerializeToString()
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        used = {spec.name for spec in session.get_inputs()}
        expected = session.run(list(got), {name: feeds[name] for name in used})
        for (name, mine), theirs in zip(got.items(), expected, strict=True):
            assert mine.dtype == theirs.dtype, name
            np.testing.assert_allclose(mine, theirs, rtol, rtol, err_msg=name)
        return imported

    return check


@pytest.fixture(scope="session")
def operators() -> Callable[[byoc.ImportedModel], list[str]]:
    """Gives the Relax operators of a model's entry, in order."""

    def found(model: byoc.ImportedModel) -> list[str]:
        from tvm import relax
        from tvm.ir import Op

        names: list[str] = []

        def visit(expr: Any) -> None:
            if isinstance(expr, relax.Call) and isinstance(expr.op, Op):
                names.append(expr.op.name.removeprefix("relax."))

        relax.analysis.post_order_visit(model.mod[model.entry], visit)
        return names

    return found
