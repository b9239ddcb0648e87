"""LSTM, GRU and RNN written out step by step: the same in ONNX Runtime, and in TVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.frontends.onnx.rewrites.recurrent import rewrite_recurrent

Array = np.ndarray
OPERATORS = ("LSTM", "GRU", "RNN")
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS_EACH = {"LSTM": 3, "GRU": 2, "RNN": 1}
INPUTS = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P")
DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True)
class Case:
    """One node with random weights; `given` names the optional inputs that it has."""

    op: str
    steps: int = 4
    batch: int = 2
    features: int = 3
    hidden: int = 4
    given: Sequence[str] = ("B",)
    lengths: Sequence[int] = ()
    constant: Sequence[str] = ("W", "R", "B", "P")
    outputs: Sequence[str] | None = None
    opset: int = 14
    dims: Sequence[str | int] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)

    @property
    def directions(self) -> int:
        return 2 if self.attributes.get("direction") == "bidirectional" else 1

    @property
    def names(self) -> Sequence[str]:
        return self.outputs or ("Y", "Y_h", "Y_c")[: 3 if self.op == "LSTM" else 2]

    def arrays(self) -> dict[str, Array]:
        count, hidden = self.directions, self.hidden
        wide = GATES[self.op] * hidden
        shapes = {
            "X": (self.steps, self.batch, self.features),
            "W": (count, wide, self.features),
            "R": (count, wide, hidden),
            "B": (count, 2 * wide),
            "initial_h": (count, self.batch, hidden),
            "initial_c": (count, self.batch, hidden),
            "P": (count, 3 * hidden),
        }
        rng = np.random.default_rng(7)
        values = {
            name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()
        }
        values["sequence_lens"] = np.array(self.lengths, np.int32)
        return {name: values[name] for name in ("X", "W", "R", *self.given)}

    def model(self) -> onnx.ModelProto:
        arrays = self.arrays()
        known = INPUTS if self.op == "LSTM" else INPUTS[:6]
        used = [name if name in arrays else "" for name in known]
        fed = {name: array for name, array in arrays.items() if name not in self.constant}
        node = helper.make_node(
            self.op, used, list(self.names), "cell", hidden_size=self.hidden, **self.attributes
        )
        graph = helper.make_graph(
            [node],
            "g",
            [
                helper.make_tensor_value_info(
                    name,
                    helper.np_dtype_to_tensor_dtype(array.dtype),
                    self.dims if name == "X" and self.dims else array.shape,
                )
                for name, array in fed.items()
            ],
            [
                helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
                for name in self.names
                if name
            ],
            [
                numpy_helper.from_array(array, name)
                for name, array in arrays.items()
                if name in self.constant
            ],
        )
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def feeds(self) -> dict[str, Array]:
        return {name: x for name, x in self.arrays().items() if name not in self.constant}


def case(op: str, *given: str, **settings: Any) -> Case:
    """A case; settings that are no fields of Case are attributes of the node."""
    fields = {name: settings.pop(name) for name in list(settings) if name in Case.__annotations__}
    return Case(op, given=("B", *given), attributes=settings, **fields)


def rewritten(model: onnx.ModelProto) -> onnx.ModelProto:
    inferred = onnx.shape_inference.infer_shapes(model)
    assert rewrite_recurrent(inferred) == sum(node.op_type in GATES for node in model.graph.node)
    onnx.checker.check_model(inferred)
    return inferred


def run(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    data = model.SerializeToString()
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)


def check(case: Case) -> onnx.ModelProto:
    model = case.model()
    new = rewritten(model)
    for theirs, mine in zip(run(model, case.feeds()), run(new, case.feeds()), strict=True):
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, 1e-5, 2e-6)
    return new


def refusal(case: Case) -> str:
    with pytest.raises(ModelError) as caught:
        rewritten(case.model())
    return str(caught.value)


def states(op: str) -> tuple[str, ...]:
    return ("initial_h", "initial_c") if op == "LSTM" else ("initial_h",)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", OPERATORS)
def test_directions_biases_and_initial_states(op: str, direction: str) -> None:
    check(case(op, direction=direction))
    check(case(op, *states(op), direction=direction))
    check(replace(case(op, direction=direction), given=()))


@pytest.mark.parametrize("op", OPERATORS)
def test_a_single_step(op: str) -> None:
    check(case(op, *states(op), steps=1, direction="bidirectional"))


@pytest.mark.parametrize("clip", [0.3, 0.05])
@pytest.mark.parametrize("op", OPERATORS)
def test_clip_bounds_what_goes_into_the_activations(op: str, clip: float) -> None:
    check(case(op, *states(op), clip=clip, direction="bidirectional"))


@pytest.mark.parametrize("attributes", [{}, {"clip": 0.2}, {"input_forget": 1}])
def test_lstm_peepholes(attributes: dict[str, Any]) -> None:
    check(case("LSTM", "P", direction="bidirectional", **attributes))
    check(case("LSTM", "P", *states("LSTM"), **attributes))


def test_lstm_with_coupled_gates() -> None:
    check(case("LSTM", *states("LSTM"), input_forget=1, direction="bidirectional"))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_gru_reset_after_the_product(direction: str) -> None:
    check(case("GRU", linear_before_reset=1, direction=direction))
    check(case("GRU", "initial_h", linear_before_reset=1, direction=direction, clip=0.3))
    check(Case("GRU", given=(), attributes={"linear_before_reset": 1, "direction": direction}))


@pytest.mark.parametrize(
    "activation",
    [
        *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh"),
        *("HardSigmoid", "Elu", "Softsign", "Softplus"),
    ],
)
@pytest.mark.parametrize("op", OPERATORS)
def test_every_activation_with_its_parameters(op: str, activation: str) -> None:
    names = [activation] * ACTIVATIONS_EACH[op] * 2
    parameters = {
        "activation_alpha": [0.3 + 0.1 * index for index in range(len(names))],
        "activation_beta": [0.2 + 0.1 * index for index in range(len(names))],
    }
    given = {"activations": names, "direction": "bidirectional"}
    check(case(op, steps=2, **given, **parameters))
    if activation not in {"Affine", "ScaledTanh", "ThresholdedRelu"}:
        check(case(op, steps=2, **given))


def test_activations_are_known_in_any_case() -> None:
    check(case("LSTM", activations=["sigmoid", "TANH", "tanh"]))


@pytest.mark.parametrize("op", OPERATORS)
def test_parameters_go_to_the_activations_that_have_them(op: str) -> None:
    mixed = ["Sigmoid", "LeakyRelu", "Affine", "HardSigmoid", "Tanh", "Elu"]
    check(
        case(
            op,
            *states(op),
            "sequence_lens",
            lengths=[3, 4],
            direction="bidirectional",
            activations=mixed[: 2 * ACTIVATIONS_EACH[op]],
            activation_alpha=[0.3, 0.5, 0.4, 0.2],
            activation_beta=[0.2, 0.1],
        )
    )


@pytest.mark.parametrize("activation", ["Affine", "ScaledTanh", "ThresholdedRelu"])
def test_an_activation_without_a_common_default_is_refused(activation: str) -> None:
    text = refusal(case("RNN", activations=[activation]))
    assert f"'{activation}' without alpha" in text
    assert "RNN (node 'cell'; inputs: X float[4, 2, 3]" in text


def test_unknown_activations_and_directions_are_refused() -> None:
    assert "'Swish': use one of Relu, Tanh" in refusal(case("RNN", activations=["Swish"]))
    assert "names 1 activations" in refusal(case("LSTM", activations=["Tanh"]))
    assert "the direction 'sideways'" in refusal(case("GRU", direction="sideways"))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("op", OPERATORS)
def test_sequences_of_different_lengths(op: str, direction: str) -> None:
    for lengths in ([4, 2], [1, 3], [0, 3]):
        check(case(op, "sequence_lens", lengths=lengths, direction=direction))
        check(case(op, "sequence_lens", *states(op), lengths=lengths, direction=direction))


def test_constant_lengths_that_are_full_cost_nothing() -> None:
    constant = ("W", "R", "B", "sequence_lens")
    full = check(case("LSTM", "sequence_lens", lengths=[4, 4], constant=constant))
    assert not [node for node in full.graph.node if node.op_type == "Where"]
    short = check(case("LSTM", "sequence_lens", lengths=[4, 3], constant=constant))
    assert [node for node in short.graph.node if node.op_type == "Where"]


def test_lengths_before_opset_9_are_refused() -> None:
    assert "opset 9" in refusal(case("GRU", "sequence_lens", lengths=[4, 2], opset=8))


@pytest.mark.parametrize("op", OPERATORS)
def test_weights_may_be_computed(op: str) -> None:
    check(case(op, *states(op), constant=(), direction="bidirectional"))


@pytest.mark.parametrize("outputs", [("Y",), ("", "Y_h"), ("", "", "Y_c"), ("", "Y_h", "Y_c")])
def test_outputs_that_are_left_out_are_not_built(outputs: Sequence[str]) -> None:
    model = check(case("LSTM", outputs=outputs, direction="bidirectional", steps=20))
    joins = [node for node in model.graph.node if node.op_type == "Concat"]
    assert len(joins) == (5 if "Y" in outputs else 1)  # one joins the two directions' inputs


def test_an_output_that_nobody_reads_is_not_built() -> None:
    model = case("GRU", steps=20).model()
    del model.graph.output[0]
    assert not [node for node in rewritten(model).graph.node if node.op_type == "Concat"]


@pytest.mark.parametrize("opset", range(7, 23))
def test_every_opset_since_the_operators_have_this_form(opset: int) -> None:
    for op in OPERATORS:
        check(case(op, *states(op), opset=opset, clip=0.4, direction="bidirectional"))


@pytest.mark.parametrize("op", OPERATORS)
def test_layout_1_is_layout_0_with_the_batch_first(op: str) -> None:
    # ONNX Runtime has no layout 1 on CPUs: the model beside it is transposed by hand.
    plain = case(op, *states(op), direction="bidirectional", batch=3)
    swapped = replace(plain, attributes={**plain.attributes, "layout": 1})
    model = swapped.model()
    del model.graph.input[:]
    feeds = {name: np.swapaxes(x, 0, 1) for name, x in plain.feeds().items()}
    model.graph.input.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in feeds.items()
    )
    sequence, *last = run(plain.model(), plain.feeds())
    expected = [sequence.transpose(2, 0, 1, 3), *[x.swapaxes(0, 1) for x in last]]
    for mine, theirs in zip(run(rewritten(model), feeds), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-5, 2e-6)


@settings(max_examples=25, deadline=None)
@given(
    op=st.sampled_from(OPERATORS),
    direction=st.sampled_from(DIRECTIONS),
    steps=st.integers(1, 40),
    batch=st.integers(1, 3),
    features=st.integers(1, 5),
    hidden=st.integers(1, 5),
    reset=st.booleans(),
    start=st.booleans(),
)
def test_any_size(op: str, direction: str, reset: bool, start: bool, **sizes: int) -> None:
    attributes = {"linear_before_reset": 1} if op == "GRU" and reset else {}
    check(case(op, *(states(op) if start else ()), direction=direction, **sizes, **attributes))


def test_a_step_has_few_nodes_and_both_directions_share_it() -> None:
    def each_step(op: str, **attributes: Any) -> float:
        def count(steps: int) -> int:
            return len(rewritten(case(op, steps=steps, **attributes).model()).graph.node)

        return (count(64) - count(32)) / 32

    for direction in ("forward", "bidirectional"):
        assert each_step("LSTM", direction=direction) <= 11.2
        assert each_step("GRU", direction=direction) <= 12.2
        assert each_step("GRU", direction=direction, linear_before_reset=1) <= 14.2
        assert each_step("RNN", direction=direction) <= 3.2


def test_the_input_is_projected_at_once() -> None:
    model = rewritten(case("LSTM", steps=5, direction="bidirectional").model())
    counts = Counter(node.op_type for node in model.graph.node)
    assert counts["MatMul"] == 1 + 4  # and none for the first step, whose state is zero


def test_a_dynamic_length_is_refused_with_the_remedy() -> None:
    text = refusal(case("LSTM", dims=["time", 2, 3]))
    assert "LSTM (node 'cell'; inputs: X float[time, 2, 3]" in text
    assert "dimension 0 of 'X', 'time', is not fixed" in text
    assert "shapes={'X': (time, 2, 3)}" in text


def test_a_dynamic_length_can_be_given() -> None:
    dynamic = case("LSTM", dims=["time", 2, 3])
    with pytest.raises(ModelError, match="time"):
        byoc.load_model(dynamic.model())
    compare(dynamic, shapes={"X": (4, 2, 3)})


def compare(case: Case, backend: str = "llvm", **arguments: Any) -> byoc.Executable:
    model = case.model()
    exe = byoc.compile(byoc.load_model(model, simplify=False, **arguments), backend)
    got = exe.run(case.feeds())
    for name, theirs in zip(got, run(model, case.feeds()), strict=True):
        np.testing.assert_allclose(got[name], theirs, 1e-4, 1e-5, err_msg=name)
    return exe


@pytest.mark.parametrize(
    "case",
    [
        case("LSTM", "P", *states("LSTM"), direction="bidirectional", clip=0.5),
        case("LSTM", "sequence_lens", lengths=[4, 2], direction="bidirectional", steps=18),
        case("GRU", "initial_h", direction="reverse", opset=7),
        case("GRU", linear_before_reset=1, direction="bidirectional", opset=22),
        case("RNN", "initial_h", direction="bidirectional", activations=["Relu", "Softsign"]),
    ],
    ids=lambda case: f"{case.op} {sorted(case.attributes)}",
)
def test_tvm_agrees_with_onnx_runtime(case: Case) -> None:
    compare(case)


@pytest.mark.parametrize("op", OPERATORS)
def test_the_batch_may_be_dynamic(op: str) -> None:
    dynamic = case(op, dims=[4, "batch", 3], direction="bidirectional", batch=1)
    exe = compare(dynamic, shapes={"X": (4, "batch", 3)})
    feeds = replace(dynamic, batch=3).feeds()
    for mine, theirs in zip(exe.run(feeds).values(), run(dynamic.model(), feeds), strict=True):
        np.testing.assert_allclose(mine, theirs, 1e-4, 1e-5)


@pytest.mark.byoc("example_npu", step="runtime")
def test_the_example_npu_takes_a_bidirectional_lstm() -> None:
    exe = compare(case("LSTM", direction="bidirectional"), "example_npu")
    assert exe.manifest.loaders


def test_a_body_of_if_is_rewritten() -> None:
    inner = case("GRU", outputs=("Y",)).model().graph
    outer_inputs = [helper.make_tensor_value_info("take", TensorProto.BOOL, []), *inner.input]
    weights = list(inner.initializer)
    branches = {}
    for branch, op in (("then_branch", None), ("else_branch", "Neg")):
        nodes = list(inner.node)
        nodes[0].output[0] = f"{branch}/Y"
        tail = helper.make_node(op or "Identity", [f"{branch}/Y"], [f"{branch}/out"])
        result = helper.make_tensor_value_info(f"{branch}/out", TensorProto.FLOAT, None)
        branches[branch] = helper.make_graph([*nodes, tail], branch, [], [result])
    graph = helper.make_graph(
        [helper.make_node("If", ["take"], ["out"], **branches)],
        "g",
        outer_inputs,
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    new = onnx.shape_inference.infer_shapes(model)
    assert rewrite_recurrent(new) == 2
    for take in (True, False):
        feeds = {"take": np.array(take), **case("GRU").feeds()}
        np.testing.assert_allclose(run(new, feeds)[0], run(model, feeds)[0], 1e-5, 2e-6)
