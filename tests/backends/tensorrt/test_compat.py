"""Upstream's own sequence of calls, and its options: PassContext and environment variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.ir.transform import PassContext
from tvm.relax.backend.contrib.tensorrt import partition_for_tensorrt

import tvm_byoc_kit as byoc
from tvm_byoc_kit import native, pass_options
from tvm_byoc_kit.backends.tensorrt import codegen as codegen_module
from tvm_byoc_kit.backends.tensorrt import compat
from tvm_byoc_kit.errors import ByocError, OptionError

KEY = "relax.ext.tensorrt.options"
VARIABLES = (
    "TVM_TENSORRT_USE_INT8",
    "TVM_TENSORRT_USE_FP16",
    "TENSORRT_NUM_CALI_INT8",
    "TVM_TENSORRT_MAX_WORKSPACE_SIZE",
    "TVM_TENSORRT_CACHE_DIR",
    "TVM_TENSORRT_MULTI_ENGINE",
)


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `import tvm` where the kit is installed, with none of the variables set."""
    assert native.load("core")
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options that the codegen gets, region by region."""
    seen: list[dict[str, Any]] = []

    def codegen(_graph: Any, options: Any) -> bytes:
        seen.append(dict(options))
        return b"a plan"

    monkeypatch.setattr(codegen_module, "codegen", codegen)
    return seen


@pytest.fixture
def partitioned(make_module: Any) -> tvm.IRModule:
    weights = relax.const(np.ones((4, 3, 3, 3), "float32"))
    mod = make_module(
        {"x": ((1, 3, 8, 8), "float32")},
        lambda x: relax.op.nn.relu(relax.op.nn.conv2d(x, weights)),
    )
    return partition_for_tensorrt(mod)


Compile = Callable[[], dict[str, Any]]


@pytest.fixture
def run_codegen(partitioned: tvm.IRModule, compiled: list[dict[str, Any]]) -> Compile:
    """RunCodegen as upstream's scripts call it; gives the options."""

    def run(**options: Any) -> dict[str, Any]:
        compiled.clear()
        given = {"tensorrt": options} if options else None
        relax.transform.RunCodegen(given)(partitioned)
        (found,) = compiled
        return found

    return run


def test_the_whole_sequence_builds_an_engine(partitioned: tvm.IRModule) -> None:
    with PassContext(opt_level=3, config={KEY: {"use_fp16": True}}):
        executable = relax.build(relax.transform.RunCodegen()(partitioned), "llvm")
    kinds = {module.kind for module in _imports(executable.mod)}
    assert "byoc_payload" in kinds


def _imports(module: Any) -> Iterator[Any]:
    for imported in module.imports:
        yield imported
        yield from _imports(imported)


def test_a_plain_import_of_tvm_is_enough() -> None:
    """Of an installed kit; here its entry point is called by hand."""
    script = """
import tvm
from tvm_byoc_kit.native import autoload
autoload()
import sys
assert "tvm_byoc_kit.backends.tensorrt" not in sys.modules
assert tvm.get_global_func("relax.ext.tensorrt", True) is not None
enabled = tvm.get_global_func("relax.is_tensorrt_runtime_enabled", True)
assert enabled is not None and bool(enabled()) is bool(tvm.cuda(0).exist)
assert len(tvm.get_global_func("relax.get_tensorrt_version")()) in (0, 3)
with tvm.transform.PassContext(config={"relax.ext.tensorrt.options": {"use_fp16": True}}):
    pass
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# --- PassContext ----------------------------------------------------------------------------------


def test_the_pass_option_is_known_to_tvm() -> None:
    assert KEY in PassContext.list_configs()
    assert pass_options.add_pass_option(KEY, print)  # again: nothing happens


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"use_fp16": True}, {"precision": "fp16"}),
        ({"use_fp16": False}, {"precision": "fp32"}),
        ({"max_workspace_size": 1 << 28}, {"workspace_bytes": 1 << 28}),
        ({"tensorrt_version": [10, 0, 0], "use_uint8": False}, {"precision": "fp32"}),
        ({"precision": "bf16", "tf32": True}, {"precision": "bf16", "tf32": True}),
        ({"profiles": {"n": (1, 4, 8)}}, {"profiles": ({"n": (1, 4, 8)},)}),
    ],
    ids=str,
)
def test_pass_options_reach_the_codegen(
    run_codegen: Compile, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    with PassContext(config={KEY: given}):
        found = run_codegen()
    assert expected.items() <= found.items()
    assert run_codegen()["precision"] == "fp32"  # outside


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"use_fp17": True}, "has no 'use_fp17'; there are upstream's tensorrt_version, "),
        ({"use_fp16": 3}, "use_fp16=3: expected True or False"),
        ({"use_uint8": True}, "use_uint8=True: TensorRT has int8; calibrate before"),
        ({"max_workspace_size": -1}, "max_workspace_size=-1: expected a number of bytes"),
        ({"precision": "fp8"}, "precision='fp8': expected one of"),
        (7, "is a int; expected a dict"),
    ],
    ids=str,
)
def test_pass_options_are_checked_where_they_are_given(given: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        PassContext(config={KEY: given})
    with pytest.raises(OptionError, match=message):
        compat.checked_pass_option(given)


@pytest.mark.parametrize(
    ("name", "why"),
    [("use_implicit_batch", "always explicit"), ("remove_no_mac_subgraphs", "require_mac")],
)
def test_pass_options_without_effect_say_so(name: str, why: str) -> None:
    with pytest.warns(UserWarning, match=f"{name}=True has no effect: .*{why}"):
        assert compat.checked_pass_option({name: True}) == {name: True}


def test_a_tvm_that_cannot_take_the_option_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_options, "_SYMBOL", "_ZN3tvm9elsewhereE")
    assert not pass_options.add_pass_option("byoc.tests.option", print)
    assert "byoc.tests.option" not in PassContext.list_configs()


# --- Environment ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("TVM_TENSORRT_USE_FP16", "1", {"precision": "fp16"}),
        ("TVM_TENSORRT_USE_FP16", "0", {"precision": "fp32"}),
        ("TVM_TENSORRT_USE_INT8", "false", {"precision": "fp32"}),
        ("TVM_TENSORRT_MAX_WORKSPACE_SIZE", "1000", {"workspace_bytes": 1000}),
        ("TVM_TENSORRT_MAX_WORKSPACE_SIZE", "0", {"workspace_bytes": 0}),
        ("TVM_TENSORRT_CACHE_DIR", "/var/engines", {"engine_cache": "/var/engines"}),
        ("TENSORRT_NUM_CALI_INT8", "0", {"precision": "fp32"}),
        ("TVM_TENSORRT_MULTI_ENGINE", "0", {"precision": "fp32"}),
    ],
)
def test_variables_reach_the_codegen(
    run_codegen: Compile,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setenv(name, text)
    assert expected.items() <= run_codegen().items()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"TENSORRT_NUM_CALI_INT8": "10"}, "=10: the first calls do not calibrate.*byoc.calibrate"),
        ({"TENSORRT_NUM_CALI_INT8": "ten"}, "=ten: expected a whole number"),
        ({"TVM_TENSORRT_USE_FP16": "yes"}, "TVM_TENSORRT_USE_FP16=yes: expected 1 or 0"),
        ({"TVM_TENSORRT_MAX_WORKSPACE_SIZE": "1G"}, "=1G: expected a whole number"),
        (
            {"TVM_TENSORRT_USE_FP16": "1", "TVM_TENSORRT_USE_INT8": "1"},
            "TVM_TENSORRT_USE_INT8 and TVM_TENSORRT_USE_FP16 are both set",
        ),
        ({"TVM_TENSORRT_USE_INT8": "1"}, "precision int8 needs a model with quantize"),
    ],
    ids=str,
)
def test_what_variables_ask_for_in_vain_is_refused(
    run_codegen: Compile,
    partitioned: tvm.IRModule,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, str],
    message: str,
) -> None:
    for name, text in given.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(Exception, match=message):
        run_codegen()
    with pytest.raises(ByocError, match=message):
        byoc.build(partitioned, "llvm")


def test_one_engine_for_all_batches_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_TENSORRT_MULTI_ENGINE", "1")
    with pytest.warns(UserWarning, match="no effect: one engine serves all batch sizes"):
        assert compat.given_around() == {}


def test_8_bits_by_a_variable_for_a_calibrated_model(
    make_module: Any, compiled: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = relax.const(np.eye(4, dtype="float32"))
    mod = make_module({"x": ((2, 4), "float32")}, lambda x: relax.op.matmul(x, weights))
    parts = byoc.partition(byoc.calibrate(mod, [np.ones((2, 4), np.float32)]), "tensorrt")
    monkeypatch.setenv("TVM_TENSORRT_USE_INT8", "1")
    relax.transform.RunCodegen()(parts.mod)
    assert compiled[0]["precision"] == "int8"


# --- Precedence -----------------------------------------------------------------------------------


def test_options_go_before_the_pass_context_and_that_before_the_environment(
    run_codegen: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TENSORRT_USE_FP16", "1")
    monkeypatch.setenv("TVM_TENSORRT_MAX_WORKSPACE_SIZE", "1000")
    monkeypatch.setenv("TVM_TENSORRT_CACHE_DIR", "/var/engines")
    with PassContext(config={KEY: {"precision": "bf16", "max_workspace_size": 2000}}):
        found = run_codegen(workspace_bytes=3000)
    assert found["workspace_bytes"] == 3000
    assert found["precision"] == "bf16"
    assert found["engine_cache"] == "/var/engines"
    assert found["tf32"] is False


def test_an_option_that_is_given_with_its_default_goes_before_too(
    run_codegen: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TENSORRT_USE_FP16", "1")
    assert run_codegen(precision="fp32")["precision"] == "fp32"


def test_byoc_build_takes_them_too_and_the_manifest_tells(
    partitioned: tvm.IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TVM_TENSORRT_MAX_WORKSPACE_SIZE", str(1 << 28))
    with PassContext(config={KEY: {"use_fp16": True}}):
        options = byoc.build(partitioned, "llvm").manifest.options
    assert (options["precision"], options["workspace_bytes"]) == ("fp16", 1 << 28)


def test_a_whole_options_object_leaves_nothing_to_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend = byoc.get_backend("tensorrt")
    monkeypatch.setenv("TVM_TENSORRT_USE_FP16", "1")
    assert backend.options is not None
    assert backend.make_options(backend.options())["precision"] == "fp32"
    assert backend.make_options(None)["precision"] == "fp16"


def test_every_variable_of_upstreams_has_an_answer() -> None:
    assert set(VARIABLES) == set(compat._VARIABLES)
    assert not set(VARIABLES) & set(os.environ)
