"""Names, shapes and dtypes, as read off a Relax function."""
# ruff: noqa: ANN201, ARG002, N805, RET504 - TVMScript is not Python

from __future__ import annotations

import json
from typing import Any

import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812 - TVM's own spelling
from tvm.script import relax as R  # noqa: N812

from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.signature import TensorSpec, evaluate, function_signature


@I.ir_module
class Nested:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), scale: R.Tensor((), "float16")):
        R.func_attr({"relax.force_pure": True})
        y = R.nn.relu(x)
        z = R.concat((x, x), axis=0)
        return (y, (z, (scale, y)))


@I.ir_module
class UnknownShape:
    @R.function
    def main(x: R.Tensor("float32", ndim=2)):
        return x


@I.ir_module
class UnknownResult:
    @R.function
    def main(x: R.Tensor((2, 2), "float32")) -> R.Tensor("float32", ndim=2):
        y = R.call_pure_packed("f", x, ty_args=R.Tensor("float32", ndim=2))
        return y


@I.ir_module
class ShapeParameter:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), s: R.Shape(["n"])):
        return x


@I.ir_module
class TupleParameter:
    @R.function
    def main(x: R.Tuple(R.Tensor((2,), "float32"), R.Tensor((2,), "float32"))):
        return x[0]


def test_nested_tuples_are_flattened_in_order() -> None:
    inputs, outputs = function_signature(Nested, "main")
    assert inputs == (
        TensorSpec("x", ("n", 4), "float32"),
        TensorSpec("scale", (), "float16"),
    )
    assert [spec.name for spec in outputs] == ["output_0", "output_1", "output_2", "output_3"]
    assert [spec.shape for spec in outputs] == [("n", 4), ("n * 2", 4), (), ("n", 4)]


def test_given_output_names_are_used_when_they_are_as_many() -> None:
    names = ["a", "b", "c", "d"]
    assert [spec.name for spec in function_signature(Nested, "main", names)[1]] == names
    assert function_signature(Nested, "main", ["a"])[1][0].name == "output_0"


@pytest.mark.parametrize(
    ("mod", "name"),
    [
        (UnknownShape, "x"),
        (ShapeParameter, "s"),
        (TupleParameter, "x"),
    ],
    ids=["unknown shape", "shape parameter", "tuple parameter"],
)
def test_what_is_no_tensor_of_known_shape_is_named(mod: tvm.IRModule, name: str) -> None:
    with pytest.raises(ModelError, match=rf"`{name}` is .*R\.Tensor\("):
        function_signature(mod, "main")


def test_a_result_whose_sizes_only_the_run_tells_has_names_for_them() -> None:
    (output,) = function_signature(UnknownResult, "main")[1]
    assert output.shape == ("output0_size0", "output0_size1")


def test_a_function_that_is_no_relax_function_is_refused() -> None:
    with pytest.raises(ModelError, match="no Relax function `forward`; it has: main"):
        function_signature(Nested, "forward")


def test_parameters_of_the_same_name_stay_apart() -> None:
    builder = relax.BlockBuilder()
    both = [relax.Var("x", relax.TensorType((2,), dtype)) for dtype in ("float32", "int32")]
    both.append(relax.Var("x_1", relax.TensorType((2,), "int8")))
    with builder.function("main", both):
        builder.emit_func_output(relax.Tuple(both))
    inputs, _ = function_signature(builder.get(), "main")
    assert len({spec.name for spec in inputs}) == 3
    assert inputs[0].name == "x"
    assert [spec.dtype for spec in inputs] == ["float32", "int32", "int8"]


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec("x", (), "bool"),
        TensorSpec("input.1", ("n", 3, "n * 2"), "float16"),
        TensorSpec("", (0,), "int64"),
    ],
)
def test_a_spec_survives_json(spec: TensorSpec) -> None:
    assert TensorSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_a_spec_prints_like_a_declaration() -> None:
    spec: Any = TensorSpec("x", ("n", 4), "float32")
    assert str(spec) == "x: float32[n, 4]"


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (7, 7),
        ("n", 3),
        ("n * 2", 6),
        ("n + m * 2", 13),
        ("(n + 1) // 2 - m % 2", 1),
        ("None", 4),
        ("max(n, m) - min(n + 1, 2)", 3),
        ("max(n, k)", None),
        ("pow(n, m)", None),
        ("max(n, key=m)", None),
        ("n * k", None),
        ("n // 0", None),
        ("T.max(n, 1)", None),
        ("n *", None),
        ("batch size", None),
        ("", None),
        ("__import__('os')", None),
        ("2.5", None),
    ],
)
def test_dimensions_are_evaluated_as_far_as_they_are_arithmetic(
    dim: int | str, expected: int | None
) -> None:
    assert evaluate(dim, {"n": 3, "m": 5, "None": 4}) == expected
