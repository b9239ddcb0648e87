"""The codegen: payloads with an engine, or with the region, and TVM's own way to them."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.artifact import read_manifest
from tvm_byoc_kit.backends.tensorrt import codegen as codegen_module
from tvm_byoc_kit.backends.tensorrt import engine
from tvm_byoc_kit.backends.tensorrt.codegen import codegen
from tvm_byoc_kit.backends.tensorrt.graph_bytes import unpack_graph
from tvm_byoc_kit.backends.tensorrt.payload import unpack
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError

from .small_regions import as_tensorrt, dense, graph_of, rtx

PROFILES = {"n": (1, 8, 32)}
OPTIONS: dict[str, Any] = {"profiles": PROFILES, "compute_capabilities": [89]}

needs_core = pytest.mark.skipif(not byoc.probe("plugin:core"), reason="the core was not built")
no_gpu = pytest.mark.skipif(bool(byoc.probe("device:cuda")), reason="there is a GPU")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Not the user's."""
    monkeypatch.setenv("TVM_BYOC_ENGINE_CACHE", str(tmp_path / "engines"))
    return tmp_path / "engines"


def test_the_header_tells_what_the_plan_is_for() -> None:
    header, plan, graph = unpack(codegen(graph_of(dense()), {**OPTIONS, "precision": "fp16"}))
    assert bytes(plan[:4]) in (b"vtrt", b"ftrt")
    assert not graph
    assert (header.vendor, header.release) == (rtx().name, rtx().release)
    assert header.capabilities == (89,)
    assert header.profiles == (PROFILES,)
    assert header.symbols == {"n": (0, 0)}
    assert header.arguments == 2
    ((x,), (y,)) = header.inputs, header.outputs
    assert (x.argument, x.dtype, x.shape) == (0, "float32", ("n", 4))
    assert (y.argument, y.dtype, y.shape) == (1, "float32", ("n", 3))
    assert header.options["precision"] == "fp16"


def test_the_same_payload_is_made_each_time() -> None:
    graph = graph_of(dense())
    assert codegen(graph, OPTIONS) == codegen(graph, OPTIONS)


def test_first_run_keeps_the_region_and_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen_module, "build_engine", pytest.fail)
    graph = graph_of(dense())
    header, plan, kept = unpack(codegen(graph, {**OPTIONS, "build_at": "first_run"}))
    assert not plan
    assert (header.vendor, header.capabilities) == ("", ())
    assert unpack_graph(kept) == graph


def test_first_run_still_refuses_what_cannot_be_built() -> None:
    with pytest.raises(ModelError, match="dimension 'n'"):
        codegen(graph_of(dense()), {"build_at": "first_run"})


def test_first_run_needs_no_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Any = None) -> Any:
        raise BackendUnavailable("tensorrt", "codegen", "none", "pip install it")

    monkeypatch.setattr(codegen_module, "find_vendor", missing)
    assert codegen(graph_of(dense()), {**OPTIONS, "build_at": "first_run"})
    with pytest.raises(BackendUnavailable):
        codegen(graph_of(dense()), OPTIONS)


def test_an_engine_from_the_cache_is_not_built_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(dense())
    options = {**OPTIONS, "engine_cache": str(tmp_path / "mine")}
    first = unpack(codegen(graph, options))
    monkeypatch.setattr(codegen_module, "build_engine", pytest.fail)
    renamed = replace(graph, name="another")
    header, plan, _ = unpack(codegen(renamed, {**options, "progress": False}))
    assert bytes(plan) == bytes(first[1])
    assert header.region == "another"
    assert header.options["progress"] is False
    assert header.inputs == first[0].inputs


def test_engines_of_artifacts_are_not_cached_unless_that_is_asked_for(own_cache: Path) -> None:
    codegen(graph_of(dense()), OPTIONS)
    assert not own_cache.exists()


def test_a_damaged_cache_is_built_again_with_a_warning(tmp_path: Path) -> None:
    options = {**OPTIONS, "engine_cache": str(tmp_path / "mine")}
    graph = graph_of(dense())
    first = codegen(graph, options)
    (path,) = (tmp_path / "mine").iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="it is built again"):
        assert codegen(graph, options) == first
    assert codegen(graph, options) == first


def test_without_a_gpu_tensorrt_itself_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen_module, "find_vendor", lambda _: as_tensorrt())
    monkeypatch.setattr(engine, "local_capability", lambda: None)
    with pytest.raises(BackendUnavailable, match="for the GPU of the machine only"):
        codegen(graph_of(dense()), {"profiles": PROFILES})


# --- through TVM ----------------------------------------------------------------------------------


@needs_core
def test_a_build_tells_in_its_manifest_what_it_is_for(tmp_path: Path) -> None:
    exe = byoc.compile(dense(), "tensorrt", options={"profiles": {"x": ((1, 4), (8, 4), (32, 4))}})
    path = tmp_path / "m.so"
    exe.export(path)
    manifest = read_manifest(path)
    assert manifest.backend == "tensorrt"
    assert manifest.options["vendor"] == "tensorrt_rtx"
    assert manifest.options["compute_capabilities"] == [80, 86, 89, 120, 121]
    assert manifest.options["profiles"] == [{"n": [1, 8, 32]}]
    assert str(manifest.inputs[0]) == "x: float32[n, 4]"


@needs_core
@no_gpu
def test_without_a_gpu_running_and_loading_are_refused_for_that_reason(tmp_path: Path) -> None:
    exe = byoc.compile(dense(2), "tensorrt")
    exe.export(tmp_path / "m.so")
    for attempt in (
        lambda: exe.run({"x": np.zeros((2, 4), np.float32)}),
        lambda: byoc.load(tmp_path / "m.so"),
    ):
        with pytest.raises(BackendUnavailable, match=r"NVIDIA|GPU") as caught:
            attempt()
        assert len(str(caught.value).splitlines()) == 1


@needs_core
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"profiles": PROFILES, "compute_capabilities": [90]},
            OptionError,
            "does not build for 90",
        ),
        ({}, ModelError, "dimension 'n' of input"),
        ({"profiles": PROFILES, "version_compatible": True}, OptionError, "no such thing"),
    ],
)
def test_what_cannot_be_built_is_refused_before_tvm_compiles(
    options: Any, error: type, message: str
) -> None:
    with pytest.raises(error, match=message):
        byoc.compile(dense(), "tensorrt", options=options)


@needs_core
def test_an_error_of_the_codegen_keeps_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise OptionError("not this one")

    monkeypatch.setattr(codegen_module, "engine_payload", refuse)
    with pytest.raises(OptionError, match=r"^not this one$"):
        byoc.compile(dense(2), "tensorrt")


@needs_core
def test_upstreams_own_sequence_builds_an_engine(run_python: Any) -> None:
    code = """
import numpy as np
import tvm
from tvm import relax
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt
from tvm.script import ir as I, relax as R

@I.ir_module
class Mod:
    @R.function
    def main(x: R.Tensor((1, 3, 8, 8), "float32"), w: R.Tensor((4, 3, 3, 3), "float32")):
        with R.dataflow():
            y = relax.op.nn.conv2d(x, w)
            z = relax.op.nn.relu(y)
            R.output(z)
        return z

if not IS_INSTALLED:  # what `import tvm` does where the kit is
    from tvm_byoc_kit import native
    native.autoload()
params = {"w": np.ones((4, 3, 3, 3), "float32")}
mod = partition_for_tensorrt(relax.transform.BindParams("main", params)(Mod))
assert tvm.get_global_func("relax.is_tensorrt_runtime_enabled")() is ENABLED
assert list(tvm.get_global_func("relax.get_tensorrt_version")())[0] in (1, 10, 11)
mod = relax.transform.RunCodegen({"tensorrt": {"compute_capabilities": [89]}})(mod)
(region,) = mod.attrs["external_mods"]
assert region.kind == "byoc_payload"
executable = relax.build(mod, "llvm")
from tvm_byoc_kit.backends.tensorrt.payload import unpack
print(unpack(region.get_function("get_payload")())[0].capabilities)
"""
    enabled = bool(byoc.get_backend("tensorrt").check("device"))
    installed = bool(entry_points(group="tvm.backends", name="tvm_byoc_kit"))
    code = code.replace("ENABLED", str(enabled)).replace("IS_INSTALLED", str(installed))
    run = run_python(_as_file(code))
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "(89,)"


def _as_file(code: str) -> str:
    """TVM's parser reads the source of what it decorates, so it has to be in a file."""
    return (
        "import runpy, tempfile, pathlib\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    path = pathlib.Path(folder, 'script.py')\n"
        f"    path.write_text({code!r})\n"
        "    runpy.run_path(str(path))\n"
    )


@needs_core
def test_tvms_own_codegen_stays_where_it_has_one(run_python: Any) -> None:
    run = run_python(
        "import tvm_ffi\n"
        "tvm_ffi.register_global_func('relax.ext.tensorrt', lambda *_: 'own')\n"
        "import tvm_byoc_kit as byoc\n"
        "byoc.get_backend('tensorrt').require('codegen')\n"
        "print(tvm_ffi.get_global_func('relax.ext.tensorrt')())"
    )
    assert run.stdout.strip() == "own", run.stderr


@needs_core
def test_a_gpu_as_target_is_allowed() -> None:
    if not byoc.probe("target:cuda"):
        pytest.skip("this TVM cannot compile CUDA")
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_89"})
    exe = byoc.compile(dense(2), "tensorrt", target=target)
    assert "cuda" in exe.manifest.target


@needs_core
def test_a_profile_of_the_models_input_holds_for_every_region(make_module: Any) -> None:
    def body(x: Any) -> Any:
        wide = relax.op.astype(relax.op.nn.relu(x), "float64")  # not TensorRT's
        return relax.op.tanh(relax.op.astype(wide, "float32"))

    mod = make_module({"x": (("n", "m", 4), "float32")}, body)
    shapes = ((1, 2, 4), (2, 8, 4), (4, 16, 4))
    exe = byoc.compile(mod, "tensorrt", options={"profiles": {"x": shapes}})
    headers = [unpack(payload)[0] for payload in _payloads(exe.module)]
    assert len(headers) == 2
    for header in headers:
        assert header.profiles == ({"n": (1, 2, 4), "m": (2, 8, 16)},)


def _payloads(module: Any) -> list[bytes]:
    found = []
    for imported in module.imports:
        if imported.kind == "byoc_payload":
            found.append(imported.get_function("get_payload")())
        found += _payloads(imported)
    return found


@needs_core
def test_a_model_of_which_nothing_is_offloaded_needs_no_profile(make_module: Any) -> None:
    mod = make_module({"x": (("n", 4), "float64")}, lambda x: relax.op.add(x, x))
    assert byoc.compile(mod, "tensorrt").manifest.loaders == ()
