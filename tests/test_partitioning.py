"""Which ops go to a backend, on modules that upstream's passes cannot take as well."""
# ruff: noqa: ANN201, N805, SIM108 - TVMScript is not Python

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I  # noqa: N812 - TVM's own spelling
from tvm.script import relax as R  # noqa: N812

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import OptionError

VENDOR_BACKENDS = ("tensorrt", "cutlass", "cublas", "cudnn")
npu = pytest.mark.byoc("example_npu", step="runtime")


@I.ir_module
class Branch:
    @R.function
    def main(condition: R.Tensor((), "bool"), x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.tanh(R.nn.relu(x))
            R.output(a)
        if condition:
            b = R.add(a, a)
        else:
            b = R.multiply(a, a)
        with R.dataflow():
            c = R.sigmoid(b)
            R.output(c)
        return c


@I.ir_module
class Cast:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.match_cast(a, R.Tensor((2, 4), "float32"))
            c = R.tanh(b)
            d = R.sigmoid(c)
            R.output(d)
        return d


@I.ir_module
class Callee:
    @R.function
    def helper(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            a = R.sigmoid(R.tanh(x))
            R.output(a)
        return a

    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        cls = Callee
        with R.dataflow():
            a = R.tanh(R.nn.relu(x))
            R.output(a)
        b = cls.helper(a)
        return b  # noqa: RET504


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def branch_numpy(condition: np.ndarray, x: np.ndarray) -> np.ndarray:
    a = np.tanh(np.maximum(x, 0))
    return sigmoid(a + a if condition else a * a)


def cast_numpy(x: np.ndarray) -> np.ndarray:
    return sigmoid(np.tanh(np.maximum(x, 0)))


def callee_numpy(x: np.ndarray) -> np.ndarray:
    return sigmoid(np.tanh(np.tanh(np.maximum(x, 0))))


@I.ir_module
class External:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.tanh(R.nn.relu(x))
            b = R.call_dps_packed("byoc.test.copy", (a,), out_ty=R.Tensor((2, 4), "float32"))
            c = R.sigmoid(b)
            R.output(c)
        return c


@I.ir_module
class Inner:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        @R.function
        def inner(y: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                z = R.nn.relu(y)
                R.output(z)
            return z

        a = inner(x)
        with R.dataflow():
            b = R.sigmoid(R.tanh(a))
            R.output(b)
        return b


@I.ir_module
class Printing:
    @R.function(pure=False)
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.tanh(R.nn.relu(x))
            R.output(a)
        _ = R.print(a, format="{}")
        with R.dataflow():
            b = R.sigmoid(a)
            R.output(b)
        return b


@tvm.register_global_func("byoc.test.copy", override=True)
def _copy(source: tvm.runtime.Tensor, target: tvm.runtime.Tensor) -> None:
    target.copyfrom(source)


X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
AWKWARD = {
    "If, taken": (Branch, branch_numpy, (np.array(True), X), "has an `If`"),
    "If, not taken": (Branch, branch_numpy, (np.array(False), X), "has an `If`"),
    "MatchCast": (Cast, cast_numpy, (X,), "has a `MatchCast`"),
    "call": (Callee, callee_numpy, (X,), "calls the function `helper`"),
    "external": (External, cast_numpy, (X,), "calls the external function `byoc.test.copy`"),
    "string": (Printing, cast_numpy, (X,), "calls relax.print with a string"),
}
awkward = pytest.mark.parametrize(
    ("mod", "reference", "inputs", "obstacle"), AWKWARD.values(), ids=AWKWARD
)


def chain(x: Any, *_: Any) -> Any:
    return relax.op.sigmoid(relax.op.tanh(relax.op.nn.relu(x)))


def regions(mod: tvm.IRModule) -> dict[str, Any]:
    return {
        var.name_hint: function
        for var, function in mod.functions.items()
        if function.attrs and "Codegen" in function.attrs
    }


def composites(region: Any) -> list[str]:
    found: list[str] = []
    relax.analysis.post_order_visit(
        region,
        lambda expr: (
            found.append(str(expr.attrs["Composite"]))
            if isinstance(expr, relax.Function) and expr.attrs and "Composite" in expr.attrs
            else None
        ),
    )
    return found


def quiet_partition(model: Any, backend: str = "example_npu", **choices: Any) -> byoc.Partition:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        return byoc.partition(model, backend, **choices)


def test_neighbours_are_one_region(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, chain)
    found = regions(quiet_partition(mod).mod)
    assert len(found) == 1
    (region,) = found.values()
    assert region.attrs["Codegen"] == "example_npu"
    assert sorted(composites(region)) == [
        "example_npu.relu",
        "example_npu.sigmoid",
        "example_npu.tanh",
    ]


def test_annotate_codegen_makes_every_match_a_region(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, chain)
    found = regions(quiet_partition(mod, annotate_codegen=True).mod)
    assert sorted(composites(region) for region in found.values()) == [
        ["example_npu.relu"],
        ["example_npu.sigmoid"],
        ["example_npu.tanh"],
    ]


@pytest.mark.parametrize("annotate", [False, True])
def test_bind_constants_decides_where_weights_are(
    two_outputs: tvm.IRModule, annotate: bool
) -> None:
    def parameters(bind: bool | None) -> int:
        parts = quiet_partition(two_outputs, bind_constants=bind, annotate_codegen=annotate)
        return sum(len(region.params) for region in regions(parts.mod).values())

    assert parameters(False) == parameters(True) + 1
    assert parameters(None) == parameters(False), "the example NPU's default"


@awkward
def test_what_upstream_cannot_merge_is_left_unmerged_with_a_warning(
    mod: tvm.IRModule, reference: Any, inputs: Any, obstacle: str
) -> None:
    with pytest.warns(UserWarning, match=rf"function `main` {obstacle}") as caught:
        parts = byoc.partition(mod, "example_npu")
    (warned,) = (item for item in caught if item.category is UserWarning)
    assert warned.filename == __file__
    assert parts.coverage.offloaded >= 3
    np.testing.assert_allclose(reference(*inputs), byoc.compile(mod, "llvm")(*inputs), rtol=1e-5)


@npu
@awkward
def test_what_upstream_cannot_merge_gives_the_right_numbers(
    mod: tvm.IRModule, reference: Any, inputs: Any, obstacle: str
) -> None:
    with pytest.warns(UserWarning, match=obstacle):
        exe = byoc.compile(mod, "example_npu", prepare=False)
    np.testing.assert_allclose(exe(*inputs), reference(*inputs), rtol=1e-5)


def test_a_function_inside_a_function_is_left_unmerged() -> None:
    with pytest.warns(UserWarning, match="`main` has a function inside"):
        coverage = byoc.partition(Inner, "example_npu").coverage
    assert (coverage.offloaded, len(coverage.regions)) == (3, 3)


def test_ops_inside_an_if_stay_on_the_host() -> None:
    with pytest.warns(UserWarning, match="If"):
        coverage = byoc.partition(Branch, "example_npu").coverage
    assert coverage.host_ops == {"relax.add": 1, "relax.multiply": 1}


def test_annotating_needs_no_merging_and_warns_of_nothing() -> None:
    assert quiet_partition(Branch, annotate_codegen=True).coverage.offloaded == 3


def several(make_module: Any, *names: str) -> tvm.IRModule:
    mod = None
    for i, name in enumerate(names):
        mod = make_module({"x": ((2, 3 + i), "float32")}, chain, name=name, into=mod)
    return mod


def test_every_function_of_a_module_is_partitioned(make_module: Any) -> None:
    mod = several(make_module, "main", "other", "third")
    parts = quiet_partition(mod)
    assert len(regions(parts.mod)) == 3
    assert parts.coverage.offloaded == parts.coverage.total == 9
    assert {"main", "other", "third"} < {var.name_hint for var in parts.mod.get_global_vars()}


def test_functions_keep_their_global_symbols(make_module: Any) -> None:
    parts = quiet_partition(several(make_module, "main", "other"))
    for var, function in parts.mod.functions.items():
        assert function.attrs["global_symbol"] == var.name_hint


def test_a_private_function_stays_private() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x], private=True):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(result)
    parts = quiet_partition(builder.finalize())
    main = parts.mod["main"]
    assert main.attrs is None or "global_symbol" not in main.attrs
    assert len(regions(parts.mod)) == 1


@npu
@pytest.mark.parametrize("entry", ["main", "other", "third"])
def test_every_function_of_a_module_runs(make_module: Any, entry: str) -> None:
    mod = several(make_module, "main", "other", "third")
    model = byoc.load_model(mod, entry=entry)
    exe = byoc.compile(model, "example_npu")
    x = np.random.default_rng(0).standard_normal(exe.inputs[0].shape).astype("float32")
    np.testing.assert_allclose(exe(x), cast_numpy(x), rtol=1e-5)


@npu
def test_a_function_not_called_main_runs(make_module: Any) -> None:
    exe = byoc.compile(several(make_module, "forward"), "example_npu")
    x = X[:, :3].copy()
    np.testing.assert_allclose(exe(x), cast_numpy(x), rtol=1e-5)


def test_a_function_that_has_the_name_of_a_region_is_kept(make_module: Any) -> None:
    taken = next(iter(regions(quiet_partition(several(make_module, "main")).mod)))
    parts = quiet_partition(several(make_module, "main", taken))
    assert len(regions(parts.mod)) == 2
    assert "Codegen" not in parts.mod[taken].attrs
    assert parts.coverage.offloaded == 6


def interrupted(x: Any) -> Any:
    """Regions that grow, between ops that the NPU does not have."""
    for length in range(1, 12):
        for _ in range(length):
            x = relax.op.tanh(x)
        x = relax.op.erf(x)
    return x


def test_regions_are_called_after_the_backend_in_the_order_of_their_calls(
    make_module: Any,
) -> None:
    mod = make_module({"x": ((2, 4), "float32")}, interrupted)
    parts = quiet_partition(mod)
    names = [f"example_npu_{number}" for number in range(1, 12)]
    assert list(regions(parts.mod)) == names
    assert [(region.name, region.ops) for region in parts.coverage.regions] == [
        (name, number) for number, name in enumerate(names, 1)
    ]


def test_regions_that_are_not_merged_are_called_so_too(make_module: Any) -> None:
    parts = quiet_partition(make_module({"x": ((2, 4), "float32")}, chain), annotate_codegen=True)
    composites_of = {name: composites(region) for name, region in regions(parts.mod).items()}
    assert composites_of == {
        "example_npu_1": ["example_npu.relu"],
        "example_npu_2": ["example_npu.tanh"],
        "example_npu_3": ["example_npu.sigmoid"],
    }


def test_regions_that_a_module_has_already_keep_their_names(make_module: Any) -> None:
    patterns = byoc.get_backend("example_npu").fusion_patterns()
    tanh = [pattern for pattern in patterns if pattern.name == "example_npu.tanh"]
    fuse = relax.transform.FuseOpsByPattern(tanh, annotate_codegen=True)
    mod = fuse(make_module({"x": ((2, 4), "float32")}, chain))
    (kept,) = regions(mod)
    with pytest.warns(UserWarning, match="calls the function"):
        parts = byoc.partition(mod, "example_npu")
    assert set(regions(parts.mod)) == {kept, "example_npu_1", "example_npu_2"}
    assert composites(parts.mod[kept]) == ["example_npu.tanh"]


def repeated(x: Any, y: Any) -> Any:
    """Two identical stretches with an op between that the NPU does not have."""
    first = chain(relax.op.erf(x))
    second = chain(relax.op.erf(y))
    return relax.op.erf(first), relax.op.erf(second)


def test_identical_regions_are_one_function_called_twice(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float32"), "y": ((2, 4), "float32")}, repeated)
    parts = quiet_partition(mod)
    assert len(parts.coverage.regions) == 2
    assert len(regions(parts.mod)) == 1


def test_identical_functions_do_not_clash(make_module: Any) -> None:
    mod = None
    for name in ("a", "b", "main"):
        mod = make_module({"x": ((2, 3), "float32")}, chain, name=name, into=mod)
    parts = quiet_partition(mod)
    names = list(regions(parts.mod))
    assert len(names) == len(set(names))
    symbols = [str(region.attrs["global_symbol"]) for region in regions(parts.mod).values()]
    assert symbols == names
    assert parts.coverage.offloaded == 9


def test_the_module_given_is_not_changed(two_outputs: tvm.IRModule) -> None:
    before = two_outputs.script()
    quiet_partition(two_outputs)
    assert two_outputs.script() == before


def test_a_partition_keeps_the_model(two_outputs: tvm.IRModule) -> None:
    model = byoc.load_model(two_outputs)
    parts = quiet_partition(model, prepare=False)
    assert parts.model is model
    assert parts.backend is byoc.get_backend("example_npu")


def test_a_partitioned_module_is_partitioned_again_to_the_same(two_outputs: tvm.IRModule) -> None:
    once = quiet_partition(two_outputs).mod
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        twice = byoc.partition(once, "example_npu")
    assert regions(twice.mod).keys() == regions(once).keys()


def test_nothing_to_offload_is_no_error(make_module: Any) -> None:
    mod = make_module({"x": ((2, 4), "float64")}, relax.op.erf)
    parts = quiet_partition(mod)
    assert regions(parts.mod) == {}
    assert parts.coverage.offloaded == 0


@pytest.mark.parametrize(("dtype", "offloaded"), [("int8", 1), ("uint8", 1), ("int32", 0)])
def test_sums_of_products_are_offloaded_for_operands_that_the_npu_reads(
    make_module: Any, dtype: str, offloaded: int
) -> None:
    mod = make_module(
        {"x": ((2, 4), dtype), "w": ((4, 3), dtype)},
        lambda x, w: relax.op.matmul(x, w, out_dtype="int32"),
    )
    assert byoc.partition(mod, "example_npu").coverage.offloaded == offloaded


def test_a_backend_without_patterns_changes_nothing(two_outputs: tvm.IRModule) -> None:
    for backend in ("llvm", "cuda"):
        assert quiet_partition(two_outputs, backend).mod is two_outputs


def test_unknown_backend_is_refused(two_outputs: tvm.IRModule) -> None:
    with pytest.raises(OptionError, match="unknown backend"):
        byoc.partition(two_outputs, "exampel_npu")


def convolution(x: Any) -> Any:
    weight = relax.const(np.ones((8, 4, 3, 3), "float16"))
    return relax.op.nn.relu(relax.op.nn.conv2d(x, weight, padding=1))


def dense(x: Any) -> Any:
    return relax.op.nn.relu(relax.op.matmul(x, relax.const(np.ones((64, 64), "float16"))))


@pytest.mark.parametrize(
    ("backend", "shape", "body", "matched"),
    [
        ("tensorrt", (1, 4, 8, 8), convolution, {"tensorrt.nn.conv2d", "tensorrt.nn.relu"}),
        ("cutlass", (64, 64), dense, {"cutlass.matmul_relu"}),
        ("cublas", (64, 64), dense, {"cublas.matmul"}),
        ("cudnn", (1, 8, 8, 4), None, {"cudnn.conv2d.nhwc_ohwi"}),
    ],
)
@pytest.mark.parametrize("choices", [{}, {"bind_constants": True}, {"annotate_codegen": True}])
def test_vendor_backends_partition_on_any_machine(
    make_module: Any,
    backend: str,
    shape: tuple[int, ...],
    body: Any,
    *,
    matched: set[str],
    choices: dict[str, bool],
) -> None:
    def nhwc(x: Any) -> Any:
        weight = relax.const(np.ones((8, 3, 3, 4), "float16"))
        conv = relax.op.nn.conv2d(x, weight, padding=1, data_layout="NHWC", kernel_layout="OHWI")
        return relax.op.nn.relu(conv)

    mod = make_module({"x": (shape, "float16")}, body or nhwc)
    parts = quiet_partition(mod, backend, **choices)
    found = {name for region in parts.coverage.regions for name in region.composites}
    assert found == matched
    assert all(region.backend == backend for region in parts.coverage.regions)


@pytest.mark.parametrize("backend", VENDOR_BACKENDS)
def test_vendor_backends_partition_several_functions(make_module: Any, backend: str) -> None:
    mod = None
    for name in ("main", "other"):
        mod = make_module({"x": ((64, 64), "float16")}, dense, name=name, into=mod)
    parts = quiet_partition(mod, backend)
    assert parts.coverage.total == 4
    expected = {"tensorrt": 4, "cutlass": 4, "cublas": 2, "cudnn": 0}
    assert parts.coverage.offloaded == expected[backend]


def test_an_onnx_model_is_partitioned_by_its_path(onnx_path: Any, onnx_proto: Any) -> None:
    assert isinstance(onnx_proto, onnx.ModelProto)
    parts = quiet_partition(str(onnx_path))
    assert parts.coverage.offloaded == parts.coverage.total > 0


def test_a_partition_is_shown_in_a_line(make_module: Any) -> None:
    mod = make_module({"x": ((4, 4), "float32")}, relax.op.nn.relu)
    plain, held = (byoc.partition(mod, "tensorrt", policy=p) for p in (None, {"max_regions": 0}))
    assert repr(plain) == "<Partition of a module for tensorrt>"
    assert repr(held) == "<Partition of a module for tensorrt, max_regions=0>"
