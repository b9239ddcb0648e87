"""Backends in Python: known by name, their patterns, their weights, and what goes wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op
from tvm.relax.dpl import is_op, wildcard

import tvm_byoc_kit as byoc
from tvm_byoc_kit import backend as backends
from tvm_byoc_kit import native
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError
from tvm_byoc_kit.pattern_table import make_patterns

needs_core = pytest.mark.skipif(
    not native.load("core"), reason=f"needs the plugin: {native.load('core')}"
)
Array = np.ndarray
pytestmark = pytest.mark.usefixtures("forget_backends")


def affine(name: str = "affine", *, keep_constants: bool = True, **choices: Any) -> byoc.Backend:
    """Computes ``matmul`` and ``add`` in NumPy; the weights beside the payload, or inside it."""

    def codegen(graph: byoc.Graph, options: dict[str, Any]) -> bytes | byoc.Payload:  # noqa: ARG001
        program = {
            "names": [value.name for value in (*graph.inputs, *graph.constants)],
            "calls": [
                [
                    call.ops[0].name,
                    [v.name for v in call.operands],
                    call.results[0].name,
                ]
                for call in graph.calls
            ],
            "outputs": [value.name for value in graph.outputs],
        }
        if keep_constants:
            return byoc.Payload(json.dumps(program).encode(), graph.constants)
        data = [(str(v.data.dtype), v.data.shape, v.data.tobytes().hex()) for v in graph.constants]
        return json.dumps({**program, "data": data}).encode()

    def runtime(payload: bytes, constants: tuple[Any, ...]) -> Callable[..., None]:
        program = json.loads(payload)
        weights = [np.from_dlpack(constant) for constant in constants]
        for dtype, shape, text in program.get("data", ()):
            weights.append(np.frombuffer(bytes.fromhex(text), dtype).reshape(shape))

        def execute(*tensors: Any) -> None:
            arrays = [np.from_dlpack(tensor) for tensor in tensors]
            count = len(program["outputs"])
            values = dict(zip(program["names"], arrays[:-count] + weights, strict=True))
            for kind, reads, writes in program["calls"]:
                left, right = (values[read] for read in reads)
                values[writes] = left @ right if kind == "relax.matmul" else left + right
            for output, array in zip(program["outputs"], arrays[-count:], strict=True):
                array[...] = values[output]

        return execute

    table = [("matmul", ["relax.matmul"]), ("add", ["relax.add"])]
    choices = {"codegen": codegen, "runtime": runtime, "patterns": table, **choices}
    return byoc.Backend(name, "NumPy", **choices)


# Names


def test_a_registered_backend_is_known_by_its_name() -> None:
    backend = byoc.register_backend(affine())
    assert byoc.get_backend("affine") is backend
    assert backend in byoc.list_backends()


@pytest.mark.parametrize("name", ["my-npu", "", "2d", "a.b", "a b"])
def test_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match="is no identifier"):
        affine(name)


def test_a_name_of_the_kit_is_taken() -> None:
    with pytest.raises(
        OptionError, match=r"'example_npu' of module '.*test_registration'.*to tvm_byoc_kit;"
    ):
        byoc.register_backend(affine("example_npu"))


def test_a_name_that_was_registered_is_taken_unless_it_is_replaced() -> None:
    byoc.register_backend(affine())
    with pytest.raises(OptionError, match=r"belongs to byoc\.register_backend.*replace=True"):
        byoc.register_backend(affine())
    newer = byoc.register_backend(affine(), replace=True)
    assert byoc.get_backend("affine") is newer


def test_a_name_of_an_installed_package_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import EntryPoint

    point = EntryPoint("affine", "some_vendor:BACKEND", backends.ENTRY_POINT_GROUP)
    monkeypatch.setattr(backends, "_installed", lambda: {"affine": point})
    with pytest.raises(OptionError, match="the installed package of some_vendor:BACKEND"):
        byoc.register_backend(affine(), replace=True)


def test_what_is_no_backend_is_refused() -> None:
    with pytest.raises(OptionError, match="expected a Backend, found a str"):
        byoc.register_backend("affine")  # type: ignore[arg-type]


@needs_core
def test_a_codegen_that_tvm_has_itself_is_not_replaced(two_outputs: tvm.IRModule) -> None:
    tvm_ffi.register_global_func("relax.ext.tvm_has_this", lambda *_: [])
    with pytest.raises(OptionError, match=r"relax\.ext\.tvm_has_this is registered already"):
        byoc.compile(two_outputs, affine("tvm_has_this"))


@needs_core
def test_a_runtime_that_a_plugin_has_is_left_alone(make_module: Any) -> None:
    used = []

    def make(payload: bytes, constants: Any) -> Callable[..., None]:
        used.append(payload)
        return affine().runtime(payload, tuple(constants))  # type: ignore[misc]

    tvm_ffi.register_global_func("byoc.runtime.affine_in_cpp", make)
    exe = byoc.compile(add_one(make_module), affine("affine_in_cpp"))
    np.testing.assert_array_equal(exe(np.zeros(3, "float32")), np.ones(3, "float32"))
    assert len(used) == 1


def add_one(make_module: Any) -> tvm.IRModule:
    one = relax.const(np.ones(3, "float32"))
    return make_module({"x": ((3,), "float32")}, lambda x: op.add(x, one))


@needs_core
def test_tvm_has_the_codegen_once_the_backend_is_registered() -> None:
    byoc.register_backend(affine("known_to_tvm"))
    assert tvm_ffi.get_global_func("relax.ext.known_to_tvm")


# Patterns


def names_of(mod: tvm.IRModule, table: Any, **choices: Any) -> list[str]:
    """Composites in the order of the calls."""
    backend = byoc.Backend("test", "", patterns=table, **choices)
    parts = byoc.partition(mod, backend)
    found: list[str] = []
    for var, function in parts.mod.functions_items():
        if function.attrs and "Codegen" in function.attrs:
            graph = byoc.read_graph(function.with_attr("global_symbol", var.name_hint))
            found += [call.name for call in graph.calls]
    return sorted(found)


IMAGE = {"x": ((1, 4, 8, 8), "float32"), "y": ((1, 4, 8, 8), "float32")}


def conv(x: Any) -> Any:
    return op.nn.conv2d(x, relax.const(np.ones((4, 4, 1, 1), "float32")))


def test_a_chain_takes_the_op_before_it(make_module: Any) -> None:
    mod = make_module(IMAGE, lambda x, y: op.nn.relu(op.add(conv(x), y)))
    chain = ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    assert names_of(mod, [("conv2d_add_relu", chain)]) == ["test.conv2d_add_relu"]
    assert names_of(mod, [byoc.Pattern("test.add_relu", chain[1:])]) == ["test.add_relu"]
    assert names_of(mod, [("conv2d_relu", chain[::2])]) == []


def test_a_chain_takes_either_operand_where_the_order_does_not_matter(make_module: Any) -> None:
    table = [("fused", ["relax.nn.conv2d", "relax.add"])]
    assert names_of(make_module(IMAGE, lambda x, y: op.add(y, conv(x))), table) == ["test.fused"]
    table = [("fused", ["relax.nn.conv2d", "relax.subtract"])]
    assert names_of(make_module(IMAGE, lambda x, y: op.subtract(y, conv(x))), table) == []


def test_the_first_pattern_that_matches_is_taken(make_module: Any) -> None:
    mod = make_module(IMAGE, lambda x, _: op.nn.relu(conv(x)))
    fused = ("fused", ["relax.nn.conv2d", "relax.nn.relu"])
    plain = [("conv2d", ["relax.nn.conv2d"]), ("relu", ["relax.nn.relu"])]
    assert names_of(mod, [fused, *plain]) == ["test.fused"]
    assert names_of(mod, [*plain, fused]) == ["test.conv2d", "test.relu"]


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "subtract", "maximum"])
def test_an_op_of_two_operands_may_be_a_pattern_beside_other_ops(
    make_module: Any, name: str
) -> None:
    mod = make_module(IMAGE, lambda x, y: op.tanh(getattr(op, name)(op.tanh(x), y)))
    assert names_of(mod, [(name, [f"relax.{name}"])]) == [f"test.{name}"]
    chain = [f"relax.{name}", "relax.tanh"]
    assert names_of(mod, [("fused", chain)]) == ["test.fused"]


def test_one_op_may_be_named_without_a_list(make_module: Any) -> None:
    mod = make_module(IMAGE, lambda x, _: op.tanh(x))
    assert names_of(mod, [("tanh", "relax.tanh")]) == ["test.tanh"]


@pytest.mark.parametrize("lazily", [True, False])
def test_a_pattern_may_be_one_of_tvm(make_module: Any, lazily: bool) -> None:
    def pattern() -> Any:
        return is_op("relax.nn.relu")(is_op("relax.add")(wildcard(), wildcard()))

    mod = make_module(IMAGE, lambda x, y: op.nn.relu(op.add(x, y)))
    assert names_of(mod, [("sum", pattern if lazily else pattern())]) == ["test.sum"]


def test_a_predicate_gets_the_calls_in_order_and_refuses_with_a_reason(make_module: Any) -> None:
    seen: list[list[str]] = []

    def refusal(calls: Any) -> str | None:
        seen.append([call.op.name for call in calls])
        return "only two groups" if calls[0].attrs.groups != 2 else None

    chain = ["relax.nn.conv2d", "relax.add", "relax.nn.relu"]
    mod = make_module(IMAGE, lambda x, y: op.nn.relu(op.add(y, conv(x))))
    assert names_of(mod, [("fused", chain, refusal)]) == []
    assert seen == [chain] * len(seen)
    assert seen


@pytest.mark.parametrize("given", [True, False, ""])
def test_a_predicate_that_gives_no_reason_is_an_error(make_module: Any, given: Any) -> None:
    mod = make_module(IMAGE, lambda x, _: op.tanh(x))
    with pytest.raises(Exception, match=rf"'test\.tanh' gave {given!r}; it must give None"):
        names_of(mod, [("tanh", ["relax.tanh"], lambda calls: given)])  # noqa: ARG005


def test_a_table_may_be_a_function_of_tvms_patterns(make_module: Any) -> None:
    mod = make_module(IMAGE, lambda x, _: op.tanh(x))
    table = lambda: make_patterns("other", [("tanh", ["relax.tanh"])])  # noqa: E731
    assert names_of(mod, table) == ["other.tanh"]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (("conv", ["relax.nn.conv"]), r"'test\.conv' names 'relax\.nn\.conv'.*did you mean 'rel"),
        (("empty", []), r"'test\.empty' names no operator"),
        (("alone",), r"neither a Pattern nor the tuple of one"),
        (3, r"pattern 3 is neither a Pattern"),
    ],
)
def test_an_entry_that_is_no_pattern_is_named(entry: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        make_patterns("test", [entry])


def test_a_refusal_of_the_backend_counts_for_its_table_too(make_module: Any) -> None:
    mod = make_module(IMAGE, lambda x, _: op.tanh(x))
    table = [("tanh", ["relax.tanh"])]
    assert names_of(mod, table, refusal=lambda call: "no") == []  # noqa: ARG005


# Weights and options


@pytest.fixture
def two_layers(make_module: Any) -> tuple[tvm.IRModule, Callable[[Array], Array]]:
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((256, 256), dtype="float32") for _ in range(2))
    bias = rng.standard_normal(256, dtype="float32")

    def body(x: Any) -> Any:
        hidden = op.add(op.matmul(x, relax.const(first)), relax.const(bias))
        return op.matmul(op.tanh(hidden), relax.const(second))

    mod = make_module({"x": ((2, 256), "float32")}, body)
    return mod, lambda x: np.tanh(x @ first + bias) @ second


X256 = np.random.default_rng(1).standard_normal((2, 256), dtype="float32")


@needs_core
@pytest.mark.parametrize("bind_constants", [True, False])
@pytest.mark.parametrize("keep_constants", [True, False])
@pytest.mark.parametrize("annotate_codegen", [True, False])
def test_weights_reach_the_executor(
    two_layers: Any, bind_constants: bool, keep_constants: bool, annotate_codegen: bool
) -> None:
    mod, reference = two_layers
    backend = affine(
        keep_constants=keep_constants,
        bind_constants=bind_constants,
        annotate_codegen=annotate_codegen,
    )
    exe = byoc.compile(mod, backend)
    np.testing.assert_allclose(exe(X256), reference(X256), rtol=1e-4, atol=1e-4)


@needs_core
@pytest.mark.parametrize("annotate_codegen", [True, False])
def test_a_region_of_symbolic_shapes_runs_for_any_size(
    make_module: Any, annotate_codegen: bool
) -> None:
    def codegen(graph: byoc.Graph, options: dict[str, Any]) -> bytes:  # noqa: ARG001
        steps = [
            [call.ops[0].name, [v.name for v in call.operands], call.results[0].name]
            for call in graph.calls
        ]
        names = [[v.name for v in values] for values in (graph.inputs, graph.outputs)]
        return json.dumps([*names, steps]).encode()

    def runtime(payload: bytes, constants: tuple[Any, ...]) -> Callable[..., None]:  # noqa: ARG001
        inputs, outputs, steps = json.loads(payload)
        kernels = {"relax.reshape": np.reshape, "relax.add": np.add}

        def execute(*given: Any) -> None:
            values = {
                name: value if isinstance(value, tvm_ffi.Shape) else np.from_dlpack(value)
                for name, value in zip(inputs + ["out"] * len(outputs), given, strict=True)
            }
            for op_name, reads, writes in steps:
                values[writes] = kernels[op_name](*(values[name] for name in reads))
            for name, tensor in zip(outputs, given[-len(outputs) :], strict=True):
                np.from_dlpack(tensor)[...] = values[name]

        return execute

    def body(x: Any) -> Any:
        n = x.ty.shape[0]
        doubled = op.add(x, x)
        return op.reshape(doubled, (n * 2, 2)), op.add(doubled, x)

    mod = make_module({"x": (("n", 4), "float32")}, body)
    table = [("reshape", ["relax.reshape"]), ("add", ["relax.add"])]
    choices = {"codegen": codegen, "runtime": runtime, "annotate_codegen": annotate_codegen}
    exe = byoc.compile(mod, affine("any_size", patterns=table, **choices))
    for n in (1, 5, 2):
        x = np.random.default_rng(n).standard_normal((n, 4), dtype="float32")
        reshaped, tripled = exe(x)
        np.testing.assert_array_equal(reshaped, (x + x).reshape(2 * n, 2))
        np.testing.assert_array_equal(tripled, x + x + x)


def fixed(payload: bytes) -> byoc.Backend:
    """Owns the weights; its payload does not depend on their size."""
    return affine("owner", bind_constants=True, codegen=lambda graph, options: payload)  # noqa: ARG005


@needs_core
def test_weights_that_the_payload_owns_are_stored_once(two_layers: Any, tmp_path: Path) -> None:
    mod, _ = two_layers
    byoc.compile(mod, fixed(b"")).export(tmp_path / "owner.so")
    byoc.compile(mod, affine(bind_constants=True)).export(tmp_path / "kept.so")
    owner, kept = (tmp_path / name for name in ("owner.so", "kept.so"))
    weights = 2 * 256 * 256 * 4
    assert owner.stat().st_size < 100_000
    assert weights < kept.stat().st_size < weights + 100_000


@dataclass(frozen=True)
class Options:
    level: int = 2
    names: tuple[str, ...] = ("a",)
    fast: bool = False


@needs_core
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, {"level": 2, "names": ("a",), "fast": False}),
        ({"fast": True}, {"level": 2, "names": ("a",), "fast": True}),
        (Options(names=("b", "c")), {"level": 2, "names": ("b", "c"), "fast": False}),
    ],
)
def test_the_codegen_gets_its_options_with_defaults(
    make_module: Any, given: Any, expected: dict[str, Any]
) -> None:
    seen = []

    def codegen(graph: byoc.Graph, options: dict[str, Any]) -> bytes:  # noqa: ARG001
        seen.append(options)
        return b""

    byoc.compile(add_one(make_module), affine(codegen=codegen, options=Options), options=given)
    assert seen == [expected]
    assert [type(value) for value in seen[0].values()] == [int, tuple, bool]


# What a backend decides with the model, or on the machine


@needs_core
def test_options_are_completed_with_the_model_for_codegen_and_manifest(make_module: Any) -> None:
    seen: list[Any] = []

    def complete(options: dict[str, Any], model: byoc.ImportedModel) -> dict[str, Any]:
        return {**options, "names": tuple(spec.name for spec in model.inputs)}

    def codegen(graph: byoc.Graph, options: dict[str, Any]) -> bytes:  # noqa: ARG001
        seen.append(options)
        return b""

    backend = affine(codegen=codegen, options=Options, complete=complete)
    exe = byoc.compile(add_one(make_module), backend, options={"level": 3})
    assert seen == [{"level": 3, "names": ("x",), "fast": False}]
    assert exe.manifest.options == seen[0]


@needs_core
def test_a_backend_may_refuse_an_artifact_before_it_runs(make_module: Any, tmp_path: Path) -> None:
    asked: list[bytes] = []

    def admit(payload: bytes) -> None:
        asked.append(payload)
        if refusing:
            raise BackendUnavailable("picky", "device", "no such device", "buy one")

    backend = byoc.register_backend(affine("picky", bind_constants=True, admit=admit))
    byoc.compile(add_one(make_module), backend).export(tmp_path / "m.so")
    refusing = False
    assert asked == []
    exe = byoc.load(tmp_path / "m.so")
    np.testing.assert_array_equal(exe(np.zeros(3, "float32")), np.ones(3))
    (payload,) = asked
    assert "calls" in json.loads(payload)
    refusing = True
    with pytest.raises(BackendUnavailable, match="no such device"):
        byoc.load(tmp_path / "m.so")


@needs_core
def test_a_missing_device_is_told_where_the_model_runs(make_module: Any) -> None:
    backend = byoc.register_backend(
        affine("remote", bind_constants=True, requires={"device": ("package:no_such_device",)})
    )
    exe = byoc.compile(add_one(make_module), backend)
    with pytest.raises(BackendUnavailable, match="no_such_device") as caught:
        exe(np.zeros(3, "float32"))
    assert caught.value.step == "device"


@needs_core
@pytest.mark.parametrize("gpu_memory", [True, False])
def test_a_gpu_as_target_is_for_backends_that_read_its_memory(
    make_module: Any, gpu_memory: bool
) -> None:
    if not byoc.probe("target:cuda"):
        pytest.skip("this TVM cannot compile CUDA")
    backend = affine(bind_constants=True, gpu_memory=gpu_memory)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_89"})
    if gpu_memory:
        assert "cuda" in byoc.compile(add_one(make_module), backend, target=target).manifest.target
        return
    with pytest.raises(OptionError, match="keeps tensors in GPU memory"):
        byoc.compile(add_one(make_module), backend, target=target)


@needs_core
def test_errors_of_the_kit_keep_their_type_through_tvm(make_module: Any) -> None:
    for raised in (OptionError("not so"), BackendUnavailable("a", "codegen", "no", "yes")):

        def codegen(*_: Any, error: Exception = raised) -> bytes:
            raise error

        with pytest.raises(type(raised)) as caught:
            byoc.compile(add_one(make_module), affine(codegen=codegen))
        assert caught.value is raised
    # And one of before is not taken for what went wrong later.
    with pytest.raises(ModelError, match="division by zero"):
        byoc.compile(add_one(make_module), affine(codegen=lambda graph, options: 1 / 0))  # noqa: ARG005


# What goes wrong


@needs_core
@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"codegen": lambda graph, options: "text"},  # noqa: ARG005
            r"the codegen of backend 'affine' gave a str for region 'affine_1'; expected bytes",
        ),
        (
            {"codegen": lambda graph, options: 1 / 0},  # noqa: ARG005
            r"cannot build .*'affine', region 'affine_1', failed: ZeroDivisionError: division by",
        ),
        (
            {"codegen": lambda graph, options: byoc.Payload(b"", graph.inputs)},  # noqa: ARG005
            r"gave a Payload with 'x' among its constants, .*expected values of graph\.constants",
        ),
        (
            {"codegen": lambda graph, options: byoc.Payload(b"", ("bias",))},  # noqa: ARG005
            r"gave a Payload with 'bias' among its constants",
        ),
        (
            {"runtime": lambda payload, constants: {}["driver"]},  # noqa: ARG005
            r"the runtime of backend 'affine' failed: KeyError: 'driver'",
        ),
        (
            {"runtime": lambda payload, constants: lambda x, out: 1 / 0},  # noqa: ARG005
            r"the executor of backend 'affine' failed: ZeroDivisionError: division by zero",
        ),
        (
            {"runtime": lambda payload, constants: "text"},  # noqa: ARG005
            r"the runtime of backend 'affine' gave a str; expected a callable",
        ),
        (
            {"runtime": lambda payload, constants: lambda x, out: x},  # noqa: ARG005
            r"the executor of backend 'affine' returned a Tensor; it must write its results",
        ),
    ],
    ids=[
        "no bytes",
        "codegen fails",
        "constants that are inputs",
        "constants that are names",
        "runtime fails",
        "executor fails",
        "no executor",
        "result returned",
    ],
)
def test_a_mistake_in_a_backend_is_named(make_module: Any, choices: Any, message: str) -> None:
    backend = affine(bind_constants=True, **choices)
    with pytest.raises(ModelError, match=message):
        byoc.compile(add_one(make_module), backend)(np.zeros(3, "float32"))


@needs_core
def test_a_backend_without_runtime_says_what_is_missing(make_module: Any) -> None:
    exe = byoc.compile(add_one(make_module), affine("runtime_elsewhere", runtime=None))
    with pytest.raises(ModelError, match=r"byoc\.runtime\.runtime_elsewhere"):
        exe(np.zeros(3, "float32"))


# Fresh processes


PACKAGE = """
import numpy as np, tvm_byoc_kit as byoc
def runtime(payload, constants):
    def execute(x, out):
        np.from_dlpack(out)[...] = np.maximum(np.from_dlpack(x), 0)
    return execute
BACKEND = byoc.Backend(
    "vendor_npu", "of a package", [("relu", ["relax.nn.relu"])],
    codegen=lambda graph, options: b"engine", runtime=runtime, package="vendor-npu",
    requires={"runtime": ("package:vendor_npu_package",)},
)
"""


@pytest.fixture(scope="module")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds an installed package with a backend."""
    folder = tmp_path_factory.mktemp("vendor")
    (folder / "vendor_npu_package.py").write_text(PACKAGE)
    info = folder / "vendor_npu-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-npu\nVersion: 1.0\n")
    entry = "[tvm_byoc_kit.backends]\nvendor_npu = vendor_npu_package:BACKEND\n"
    (info / "entry_points.txt").write_text(entry)
    return folder


BUILD = """
import sys, numpy as np, tvm_byoc_kit as byoc
from tvm import relax
builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((4,), "float32"))
with builder.function("main", [x]):
    with builder.dataflow():
        out = builder.emit_output(relax.op.nn.relu(x))
    builder.emit_func_output(out)
exe = byoc.compile(builder.finalize(), "vendor_npu")
print(exe(np.array([-1, 0, 1, 2], "float32")))
exe.export(sys.argv[1])
"""
RUN = """
import sys, numpy as np, tvm_byoc_kit as byoc
print(byoc.load(sys.argv[1])(np.array([-1, 0, 1, 2], "float32")))
"""
PLAIN_TVM = """
import sys, numpy as np, tvm
from tvm_byoc_kit import native
assert native.load("core")  # what `import tvm` does where the kit is installed
vm = tvm.relax.VirtualMachine(tvm.runtime.load_module(sys.argv[1]), tvm.cpu())
print(vm["main"](tvm.runtime.tensor(np.array([-1, 0, 1, 2], "float32"))).numpy())
"""


@pytest.fixture(scope="module")
def vendor_artifact(
    vendor: Path, run_python: Any, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "model.so"
    done = run_python(BUILD, path, PYTHONPATH=search_path(vendor))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0. 0. 1. 2.]\n"
    return path


def search_path(*first: Path) -> str:
    import os

    return os.pathsep.join([*map(str, first), os.environ.get("PYTHONPATH", "")])


@needs_core
@pytest.mark.parametrize("script", [RUN, PLAIN_TVM], ids=["byoc.load", "TVM's own load_module"])
def test_an_installed_backend_is_found_in_a_fresh_process(
    vendor: Path, vendor_artifact: Path, run_python: Any, script: str
) -> None:
    done = run_python(script, vendor_artifact, PYTHONPATH=search_path(vendor))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0. 0. 1. 2.]\n"
    assert "import torch" not in done.stderr


@needs_core
@pytest.mark.parametrize("script", [RUN, PLAIN_TVM], ids=["byoc.load", "TVM's own load_module"])
def test_where_the_package_is_missing_its_name_is_told(
    vendor_artifact: Path, run_python: Any, script: str
) -> None:
    done = run_python(script, vendor_artifact)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "backend 'vendor_npu' has no runtime here" in last
    assert last.endswith("To add it: pip install vendor-npu")


@needs_core
def test_the_manifest_names_backend_package_and_loader(vendor_artifact: Path) -> None:
    manifest = byoc.read_manifest(vendor_artifact)
    assert (manifest.backend, manifest.package) == ("vendor_npu", "vendor-npu")
    assert manifest.loaders == ("byoc_payload",)


@needs_core
def test_an_installed_backend_is_found_by_the_command_line(
    vendor: Path, vendor_artifact: Path, run_python: Any
) -> None:
    main = "import sys; from tvm_byoc_kit.cli import app; app()"
    environment = {"PYTHONPATH": search_path(vendor)}
    done = run_python(main, "run", vendor_artifact, **environment)
    assert done.returncode == 0, done.stderr
    done = run_python(main, "doctor", **environment)
    assert "vendor_npu" in done.stdout


def test_what_a_backend_requires_is_asked_before_anything_runs(make_module: Any) -> None:
    backend = affine("needs_sdk", requires={"runtime": ("package:no_such_sdk",)})
    with pytest.raises(BackendUnavailable, match="pip install no_such_sdk"):
        backend.require("runtime")
    assert backend.requires["codegen"] == ("plugin:core",)
    assert backend.requires["partition"] == ("tvm",)
    assert sys.modules.get("no_such_sdk") is None
    assert make_module
