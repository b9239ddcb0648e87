"""Symbolic numbers among operands keep neighbours from being one region no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm_ffi import structural_equal

import tvm_byoc_kit as byoc
from tvm_byoc_kit.symbol_operands import has_symbol_operands, hide_symbols, show_symbols

PARAMS = {"x": (("n", 8), "float32"), "y": (("m",), "float32")}


def sliced(x: Any, m: Any) -> Any:
    return relax.op.strided_slice(x, [0], [0], [m])


def clipped(x: Any, m: Any) -> Any:
    return relax.op.clip(x, 0, m)


BODIES = pytest.mark.parametrize("use", [sliced, clipped])


def chain(make_module: Any, use: Callable[[Any, Any], Any]) -> tvm.IRModule:
    """Two ops, one with a symbolic number, and two more."""

    def body(x: Any, y: Any) -> Any:
        inner = use(relax.op.nn.relu(relax.op.tanh(x)), y.ty.shape[0])
        return relax.op.tanh(relax.op.nn.relu(inner))

    return make_module(PARAMS, body)


@BODIES
def test_what_is_hidden_is_put_back(make_module: Any, use: Any) -> None:
    mod = chain(make_module, use)
    hidden = hide_symbols(mod)
    assert has_symbol_operands(mod["main"])
    assert not has_symbol_operands(hidden["main"])
    assert structural_equal(show_symbols(hidden), mod)


def test_without_symbolic_operands_there_is_nothing_to_hide(make_module: Any) -> None:
    mod = make_module(PARAMS, lambda x, _y: relax.op.clip(x, 0, 6))
    assert not has_symbol_operands(mod["main"])
    assert structural_equal(hide_symbols(mod), mod)


@BODIES
def test_neighbours_are_merged_on_either_side(make_module: Any, use: Any) -> None:
    parts = byoc.partition(chain(make_module, use), "example_npu")
    assert [region.ops for region in parts.coverage.regions] == [2, 2]
    assert parts.coverage.host_ops == {f"relax.{'clip' if use is clipped else 'strided_slice'}": 1}


@pytest.mark.byoc("example_npu", step="runtime")
@BODIES
def test_the_numbers_are_right(make_module: Any, use: Any) -> None:
    exe = byoc.compile(chain(make_module, use), "example_npu")
    x = np.linspace(-2, 2, 40, dtype="float32").reshape(5, 8)
    inner = np.maximum(np.tanh(x), 0)
    expected = np.clip(inner, 0, 3) if use is clipped else inner[:3]
    np.testing.assert_allclose(
        exe(x, np.zeros(3, "float32")), np.tanh(np.maximum(expected, 0)), rtol=1e-5, atol=1e-6
    )
