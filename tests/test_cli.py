"""``tvm-byoc``: every command, its facts as JSON, and one line for every error."""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import tvm_byoc_kit as byoc
from tvm_byoc_kit import cli, partitioning
from tvm_byoc_kit.cli.arrays import write_npz
from tvm_byoc_kit.doctor import Report
from tvm_byoc_kit.status import Status

npu = pytest.mark.byoc("example_npu", step="runtime")
COMMANDS = (
    *("doctor", "partition", "compile", "run", "verify", "bench", "quickstart", "cmake-dir"),
    *("inspect", "profile", "bisect", "new"),
    *("build-plugin", "cache"),
)


class Output(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def facts(self) -> Any:
        def refuse(constant: str) -> None:
            raise ValueError(f"{constant} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


Command = Callable[..., Output]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs the entry point as a shell would, in this process."""

    def run(*arguments: object) -> Output:
        monkeypatch.setattr(sys, "argv", ["tvm-byoc", *map(str, arguments)])
        gc.collect()  # what earlier tests left may write when it goes
        capfd.readouterr()
        code: Any = 0
        try:
            cli.app()
        except SystemExit as done:
            code = done.code or 0
        return Output(code, *capfd.readouterr())

    return run


@pytest.fixture(scope="module")
def artifact(onnx_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX classifier, for the host."""
    path = tmp_path_factory.mktemp("cli") / "classifier.so"
    byoc.compile(onnx_path, "llvm").export(path)
    return path


@pytest.fixture(scope="module")
def npu_classifier(onnx_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX classifier, for the example NPU; for tests with the marker."""
    path = tmp_path_factory.mktemp("cli") / "classifier.so"
    byoc.compile(onnx_path, "example_npu").export(path)
    return path


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_inputs(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


# Every command


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(command: Command, name: str) -> None:
    done = command(name, "--help")
    assert done.code == 0
    assert f"tvm-byoc {name}" in " ".join(done.out.replace("│", " ").split())
    assert "Example" in done.out


def test_help_lists_every_command(command: Command) -> None:
    done = command("--help")
    assert done.code == 0
    assert all(name in done.out for name in COMMANDS)


def test_version_names_the_packages(command: Command) -> None:
    done = command("--version")
    assert done.code == 0
    assert "tvm " in done.out
    assert len(done.out.splitlines()) == 1


def test_doctor_reports_as_table_and_as_json(command: Command) -> None:
    done = command("doctor", "--json")
    assert done.code in {0, 1}
    assert "tensorrt" in json.dumps(done.facts)
    table = command("doctor")
    assert table.code == done.code
    assert "tensorrt" in table.out


def test_partition_reports_coverage(command: Command, onnx_path: Path) -> None:
    done = command("partition", onnx_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("4 of 4 ops offloaded in 1 region(s)")
    facts = command("partition", onnx_path, "--json").facts
    assert (facts["ops_offloaded"], facts["ops_total"]) == (4, 4)
    assert facts["backend"] == "example_npu"
    assert facts["regions"][0]["composites"]


def test_partition_takes_a_policy_and_says_what_it_kept(command: Command, onnx_path: Path) -> None:
    done = command("partition", onnx_path, "-p", "exclude_ops=relu", "--policy", "max_regions=1")
    assert (done.code, done.err) == (0, "")
    assert "exclude_ops has 'relax.nn.relu'" in done.out
    assert "its region is not among those with most MACs, max_regions is 1" in done.out
    facts = command("partition", onnx_path, "-p", "exclude_ops=relu", "--json").facts
    assert facts["policy"]["exclude_ops"] == ["relax.nn.relu"]
    kept = [op["reason"]["kind"] for op in facts["ops"] if op["reason"]]
    assert kept == ["policy"]


def test_lists_of_a_policy_may_come_in_pieces(command: Command, onnx_path: Path) -> None:
    pieces = ("-p", "exclude_ops=relu,softmax", "-p", "exclude_ops=add", "-p", "require_mac=true")
    policy = command("partition", onnx_path, *pieces, "--json").facts["policy"]
    assert policy["exclude_ops"] == ["relax.nn.relu", "relax.nn.softmax", "relax.add"]
    assert policy["require_mac"] is True


def test_a_strict_policy_fails_with_the_list(command: Command, onnx_path: Path) -> None:
    done = command("partition", onnx_path, "-p", "strict=true", "-p", "exclude_ops=relu")
    assert done.code == 1
    assert done.out == ""
    assert "1 of 4 ops stay on the host: relax.nn.relu" in done.err
    assert command("partition", onnx_path, "-p", "strict=true").code == 0


def test_a_dry_run_compares_policies(command: Command, onnx_path: Path) -> None:
    arguments = ("partition", onnx_path, "--dry-run", "-p", "exclude_ops=relu")
    done = command(*arguments)
    assert (done.code, done.err) == (0, "")
    assert "regions" in done.out
    assert "recommended: min_region_ops=2, exclude_ops=relax.nn.relu" in done.out
    facts = command(*arguments, "--json").facts
    assert facts["recommended"]["min_region_ops"] == 2
    assert [trial["regions"] for trial in facts["trials"]] == [2, 1]


@pytest.fixture
def baseline(command: Command, onnx_path: Path, tmp_path: Path) -> Path:
    path = tmp_path / "baseline.json"
    path.write_text(command("partition", onnx_path, "--json").out)
    return path


def test_a_baseline_that_is_kept_is_exit_code_0(
    command: Command, onnx_path: Path, baseline: Path
) -> None:
    done = command("partition", onnx_path, "--baseline", baseline)
    assert (done.code, done.err) == (0, "")
    assert "coverage is the same" in done.out


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_baseline_that_is_not_kept_is_exit_code_1_and_one_line(
    command: Command, onnx_path: Path, baseline: Path, extra: list[str]
) -> None:
    worse = ("-p", "exclude_ops=relu", "--baseline", baseline, *extra)
    done = command("partition", onnx_path, *worse)
    assert done.code == 1
    assert done.err.startswith(f"tvm-byoc: coverage fell below that of {baseline}: fewer ops")
    assert len(done.err.splitlines()) == 1
    if extra:
        assert [op["op"] for op in done.facts["changes"]["to_host"]] == ["relax.nn.relu"]
    else:
        assert "to the host (1)" in done.out


def test_coverage_that_rose_is_exit_code_0(
    command: Command, onnx_path: Path, baseline: Path
) -> None:
    worse = command("partition", onnx_path, "-p", "exclude_ops=relu", "--json")
    baseline.write_text(worse.out)
    done = command("partition", onnx_path, "--baseline", baseline)
    assert (done.code, done.err) == (0, "")
    assert "into a region (1)" in done.out


@pytest.mark.parametrize("backend", ["example_npu", "tensorrt", "llvm"])
def test_the_page_is_written(
    command: Command, onnx_path: Path, tmp_path: Path, backend: str
) -> None:
    page = tmp_path / "page.html"
    done = command("partition", onnx_path, "-b", backend, "--html", page)
    assert (done.code, done.err) == (0, "")
    assert f"wrote {page}" in done.out
    assert "<html" in page.read_text()
    assert "relax.matmul" in page.read_text()
    assert entries(tmp_path) == ["page.html"]
    facts = command("partition", onnx_path, "-b", backend, "--html", page, "--json").facts
    assert facts["html"] == str(page)


@npu
def test_the_page_of_the_npu_has_the_schedule(
    command: Command, onnx_path: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    shown = command("partition", onnx_path, "--html", page).out
    assert shown.splitlines()[-1] == f"wrote {page}"
    assert "cycles" in page.read_text()


def test_a_page_without_the_schedule_says_why(
    command: Command, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Status("plugin", ok=False, detail="no compiler", remedy="apt install g++")
    found = Status("plugin", ok=True, detail="")
    checks = {"partition": found}
    monkeypatch.setattr(byoc.Backend, "check", lambda _self, step: checks.get(step, missing))
    done = command("partition", onnx_path, "--html", tmp_path / "page.html")
    assert done.code == 0
    assert "without the schedule: no compiler; apt install g++" in done.out


@npu
def test_a_page_of_open_shapes_says_that_there_is_no_schedule(
    command: Command, dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(dynamic_onnx_proto, tmp_path / "dynamic.onnx")
    open_shape = ("-s", "input.1:batch,4", "--html", tmp_path / "page.html")
    done = command("partition", tmp_path / "dynamic.onnx", *open_shape)
    assert (done.code, done.err) == (0, "")
    assert "without the schedule: the shapes are open" in done.out


def test_compile_takes_a_policy(command: Command, onnx_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    arguments = ("-b", "llvm", "-p", "exclude_ops=add", "--output", path, "--json")
    assert command("compile", onnx_path, *arguments).facts["ops_offloaded"] == 0
    refused = command("compile", onnx_path, *arguments, "-p", "strict=true")
    assert refused.code == 1
    assert "4 of 4 ops stay on the host" in refused.err


@npu
def test_a_policy_reaches_the_artifact(command: Command, onnx_path: Path, tmp_path: Path) -> None:
    arguments = ("-p", "exclude_ops=add", "--output", tmp_path / "model.so", "--json")
    assert command("compile", onnx_path, *arguments).facts["ops_offloaded"] == 3


@pytest.mark.parametrize("backend", ["tensorrt", "cutlass", "cublas", "cudnn", "cuda", "llvm"])
def test_partition_works_for_every_backend(command: Command, onnx_path: Path, backend: str) -> None:
    facts = command("partition", onnx_path, "-b", backend, "--json").facts
    assert facts["backend"] == backend
    assert facts["ops_total"] == 4


def test_partition_prints_the_module(command: Command, onnx_path: Path) -> None:
    done = command("partition", onnx_path, "--script", "--shape", "input.1:2,4")
    assert "@R.function" in done.out
    assert "R.Tensor((2, 4)" in done.out
    assert "Codegen" in command("partition", onnx_path, "--script", "--json").facts["script"]


def test_compile_writes_an_artifact(command: Command, onnx_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    arguments = (onnx_path, "-b", "llvm", "--output", path)
    done = command("compile", *arguments)
    assert (done.code, done.err) == (0, "")
    assert f"wrote {path}" in done.out
    facts = command("compile", *arguments, "--json").facts
    assert facts["bytes"] == path.stat().st_size
    assert facts["manifest"]["backend"] == "llvm"
    assert entries(tmp_path) == ["model.so"]


@npu
def test_compile_takes_options_and_shapes(
    command: Command, dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    path, source = tmp_path / "model.so", tmp_path / "dynamic.onnx"
    onnx.save(dynamic_onnx_proto, source)
    options = ("-O", "power_mode=low_power", "-O", "l1_bytes=1024", "-s", "input.1:3,4")
    done = command("compile", source, "--output", path, *options, "--json")
    manifest = done.facts["manifest"]
    assert manifest["options"]["power_mode"] == "low_power"
    assert manifest["options"]["l1_bytes"] == 1024
    assert manifest["inputs"][0]["shape"] == [3, 4]


def test_compile_builds_for_the_sizes_of_a_batch(command: Command, dynamic_path: Path) -> None:
    path = dynamic_path.with_name("model.so")
    arguments = (dynamic_path, "-b", "llvm", "-o", path, "--batch", "4,1", "--fallback", "symbolic")
    done = command("compile", *arguments)
    assert (done.code, done.err) == (0, "")
    assert "fast at: batch=1; batch=4\n" in done.out
    assert "sizes of batch: 1 and more, a build for any, padded" in done.out
    assert re.search(r"measured: batch=4: [\d.e-]+ ms, main_batch_4\n", done.out)
    facts = command("compile", *arguments, "--json").facts
    variants = facts["manifest"]["variants"]
    assert [build["sizes"] for build in variants["builds"]] == [{}, {"batch": 1}, {"batch": 4}]
    assert {cost["entry"] for cost in variants["costs"]} == {
        build["entry"] for build in variants["builds"]
    }
    assert facts["bytes"] == path.stat().st_size
    assert facts["ops_total"] == 4
    assert byoc.load(path)(np.zeros((6, 4), np.float32))[0].shape == (6, 3)


def test_compile_takes_a_range_and_no_padding(command: Command, dynamic_path: Path) -> None:
    arguments = ("compile", dynamic_path, "-b", "llvm", "-o", dynamic_path.with_name("m.so"))
    done = command(*arguments, "--batch", "2:4:8")
    assert "sizes of batch: 2 to 8, a build for any\n" in done.out
    facts = command(*arguments, "--bucket", "batch=1,2", "--no-pad", "--json").facts
    dimension = facts["manifest"]["variants"]["dimensions"]["batch"]
    assert (dimension["pad"], dimension["largest"]) == (False, 2)


def test_compile_tries_masks(command: Command, tmp_path: Path) -> None:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in {"x": [2, "seq"], "mask": [2, "seq"], "y": [2]}.items()
    ]
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["chosen"]),
        helper.make_node("ReduceSum", ["chosen", "axis"], ["y"], keepdims=0),
    ]
    axis = onnx.numpy_helper.from_array(np.array([1]), "axis")
    graph = helper.make_graph(nodes, "sums", values[:2], values[2:], [axis])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "sums.onnx")
    arguments = ("compile", tmp_path / "sums.onnx", "-b", "llvm", "-o", tmp_path / "model.so")
    arguments = (*arguments, "--bucket", "seq=4,8")
    assert command(*arguments, "--mask", "mask=0").code == 0
    x = np.random.default_rng(0).standard_normal((2, 5), dtype=np.float32)
    result = byoc.load(tmp_path / "model.so")(x, np.ones_like(x))
    np.testing.assert_allclose(result, x.sum(1), rtol=1e-5, atol=1e-6)
    assert "output 'y' changes" in command(*arguments, "--mask", "mask=0.5").err
    assert "cannot be padded" in command(*arguments).err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "1,x"], "--batch 1,x: expected sizes such as 1,4,8,16, or a smallest"),
        (["--batch", "1:8"], "--batch 1:8: expected sizes"),
        (["--batch", "0,4"], "expected sizes of at least 1"),
        (["--batch", "8:4:16"], "smallest, best and largest size in order"),
        (["--batch", "1", "--fallback", "dynamic"], "expected None or 'symbolic'"),
        (["--bucket", "seq"], "--bucket seq=: expected sizes"),
        (["--bucket", "n=1", "--bucket", "n=2"], "--bucket n=2: 'n' has sizes already, 1"),
        (
            ["--bucket", "bath=1", "-s", "input.1:batch,4"],
            "no open dimension 'bath' (did you mean 'batch'?)",
        ),
        (["--fallback", "symbolic"], "are for what --batch or --bucket gives"),
        (["--batch", "1", "--mask", "x=0"], "--mask is for the dimensions that --bucket gives"),
        (["--bucket", "n=1", "--mask", "x"], "--mask x: expected an input and a number"),
        (["--bucket", "n=1", "--mask", "x=0", "--no-pad"], "leave one of them out"),
    ],
)
def test_compile_refuses_sizes_that_are_none(
    command: Command, dynamic_path: Path, arguments: list[str], message: str
) -> None:
    path = dynamic_path.with_name("model.so")
    done = command("compile", dynamic_path, "-b", "llvm", "-o", path, *arguments)
    assert done.code == 1
    assert message in done.err
    assert not path.exists()


def test_run_takes_and_gives_arrays(
    command: Command, artifact: Path, onnx_path: Path, tmp_path: Path
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
    inputs = write_inputs(tmp_path / "in.npz", **{"input.1": x})
    done = command("run", artifact, "--inputs", inputs, "--output", tmp_path / "out.npz", "--json")
    assert done.code == 0
    assert done.facts["outputs"]["logits"]["shape"] == [2, 3]
    reference = byoc.load_model(onnx_path).reference
    assert reference is not None
    with np.load(tmp_path / "out.npz") as got:
        for name, expected in reference.run({"input.1": x}).items():
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6)
    assert entries(tmp_path) == ["in.npz", "out.npz"]


def test_outputs_may_be_called_like_the_keywords_of_numpy(tmp_path: Path) -> None:
    arrays = {name: np.full((2,), i, "float32") for i, name in enumerate(("file", "allow_pickle"))}
    write_npz(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz") as got:
        assert {name: got[name].tolist() for name in got.files} == {
            name: array.tolist() for name, array in arrays.items()
        }


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["cmake-dir"], ["doctor"], ["doctor", "--json"]])
def test_output_that_cannot_be_written_is_one_line(tmp_path: Path, arguments: list[str]) -> None:
    start = "from tvm_byoc_kit.cli import app; app()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", start, *arguments],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
    assert done.returncode == 1
    assert re.fullmatch(r"tvm-byoc: cannot write the output, .*No space left.*\n", done.stderr)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PermissionError(13, "No permission", "/a/b"), "cannot use '/a/b': No permission"),
        (ImportError("No module named 'tvm'"), "a package is missing or damaged: No module named"),
        (OSError("libx.so: not found"), "a package is missing or damaged: libx.so: not found; "),
    ],
)
def test_what_the_system_refuses_is_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    def refused() -> None:
        raise error

    monkeypatch.setattr("tvm_byoc_kit.doctor.doctor", refused)
    done = command("doctor")
    assert done.code == 1
    assert done.err.startswith(f"tvm-byoc: {line}")
    assert len(done.err.splitlines()) == 1


def test_what_packages_write_when_they_fail_to_load_is_no_part_of_the_report(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy() -> Report:
        os.write(2, b"ImportError: _multiarray_umath failed to import")
        return Report(())

    monkeypatch.setattr("tvm_byoc_kit.doctor.doctor", noisy)
    assert command("doctor", "--json").err == ""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-"])
def test_streams_that_are_closed_do_not_matter(artifact: Path, tmp_path: Path, closed: str) -> None:
    out = tmp_path / "out.npz"
    command = f"{sys.executable} -m tvm_byoc_kit.cli run {artifact} --output {out}"
    assert subprocess.run(f"{command} {closed}", shell=True, check=False).returncode == 0  # noqa: S602
    with np.load(out) as outputs:
        assert "logits" in outputs.files


def test_run_without_inputs_takes_random_ones(command: Command, artifact: Path) -> None:
    first, again = command("run", artifact), command("run", artifact)
    other = command("run", artifact, "--seed", 1)
    assert (first.code, first.err) == (0, "")
    assert first.out == again.out != other.out
    assert "logits: float32[2, 3] [" in first.out


@npu
def test_run_shows_and_writes_the_schedule(
    command: Command, npu_classifier: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    done = command("run", npu_classifier, "--trace", trace, "--json")
    assert done.code == 0
    assert done.facts["schedule"]
    assert json.loads(trace.read_text())["traceEvents"]
    shown = command("run", npu_classifier)
    assert shown.code == 0
    assert "cycles" in shown.out
    assert "\x1b" not in shown.out


@npu
def test_inspect_tells_what_an_artifact_is(
    command: Command, npu_classifier: Path, tmp_path: Path
) -> None:
    done = command("inspect", npu_classifier)
    assert (done.code, done.err) == (0, "")
    assert "input.1: float32[2, 4]" in done.out
    facts = command("inspect", npu_classifier, "--json").facts
    assert (facts["intact"], facts["loads_here"]) == (True, True)
    assert facts["manifest"]["backend"] == "example_npu"
    other = tmp_path / "other.so"
    other.write_bytes(npu_classifier.read_bytes()[:-1])
    done = command("inspect", other)
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "other.so has no manifest" in done.err


@npu
def test_profile_takes_a_model_or_an_artifact(
    command: Command, onnx_path: Path, npu_classifier: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    done = command("profile", npu_classifier, "--repeats", 2, "--trace", trace)
    assert (done.code, done.err) == (0, "")
    assert "region 1: " in done.out
    assert f"wrote {trace}" in done.out
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    assert {event["args"]["name"] for event in events if event["name"] == "thread_name"} == {
        "host",
        "example_npu",
    }
    facts = command("profile", onnx_path, "-b", "llvm", "--repeats", 1, "--json").facts
    assert (facts["backend"], facts["repeats"]) == ("llvm", 1)
    assert sum(part["share"] for part in facts["parts"]) == pytest.approx(1)
    done = command("profile", npu_classifier, "--repeats", 0)
    assert (done.code, done.err.strip()) == (1, "tvm-byoc: repeats is 0; expected at least 1")


def test_verify_compares_a_model_and_an_artifact(
    command: Command, artifact: Path, onnx_path: Path
) -> None:
    for arguments in ((onnx_path, "-b", "llvm"), (artifact, "--reference", onnx_path)):
        done = command("verify", *arguments)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith("agrees with onnxruntime")
        facts = command("verify", *arguments, "--json").facts
        assert facts["ok"] is True
        assert len(facts["outputs"]) == 2


def test_verify_needs_no_shapes_of_an_artifacts_original(
    command: Command, dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    model, artifact = tmp_path / "open.onnx", tmp_path / "open.so"
    onnx.save(dynamic_onnx_proto, model)
    shape = ("-s", "input.1:rows,4")
    assert command("compile", model, "-b", "llvm", *shape, "-o", artifact).code == 0
    for arguments in ((), shape):
        done = command("verify", artifact, "--reference", model, *arguments)
        assert done.out.startswith("agrees with onnxruntime"), done.err


def test_verify_fails_when_the_numbers_differ(
    command: Command, artifact: Path, onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    other = onnx.ModelProto.FromString(onnx_proto.SerializeToString())
    weight = onnx.numpy_helper.to_array(other.graph.initializer[0]) * np.float32(1.01)
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight, "fc.weight"))
    onnx.save(other, tmp_path / "other.onnx")
    done = command("verify", artifact, "--reference", tmp_path / "other.onnx")
    assert done.code == 1
    assert done.out.startswith("DIFFERS with onnxruntime")
    assert command("verify", artifact, "--reference", tmp_path / "other.onnx", "--json").code == 1


def test_verify_takes_cases_archives_and_another_artifact(
    command: Command, artifact: Path, tmp_path: Path
) -> None:
    own = [
        write_inputs(tmp_path / f"{n}.npz", **{"input.1": np.eye(2, 4, dtype="f4") * n})
        for n in (1, 2)
    ]
    archives = ("--inputs", own[0], "-i", own[1])
    made = ("--cases", "random,edge", "--samples", 2)
    facts = command("verify", artifact, "--reference", artifact, *archives, *made, "--json").facts
    names = [case["name"] for case in facts["cases"]]
    edge = ["zeros", "ones", "negative", "tiny", "large"]
    assert names == [*map(str, own), "random 0", "random 1", *edge]
    assert facts["ok"] is True
    assert facts["reference"] == str(artifact)
    done = command("verify", artifact, "--reference", artifact, *archives)
    assert done.out.startswith(f"agrees with {artifact} in all of 2 cases")


def test_verify_takes_sizes_of_open_dimensions(
    command: Command, dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path
) -> None:
    onnx.save(dynamic_onnx_proto, tmp_path / "open.onnx")
    line = (tmp_path / "open.onnx", "-b", "llvm", "-s", "input.1:rows,4", "--size", "rows=1,3")
    facts = command("verify", *line, "--json").facts
    assert [case["name"] for case in facts["cases"]] == ["random 0, rows=1", "random 0, rows=3"]


@npu
def test_bisect_agrees_where_a_backend_computes(command: Command, onnx_path: Path) -> None:
    done = command("bisect", onnx_path)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("every region of example_npu agrees")
    facts = command("bisect", onnx_path, "--json").facts
    assert (facts["ok"], facts["culprit"], facts["reproducer"]) == (True, None, None)


@npu
def test_bisect_finds_where_it_does_not_and_writes_a_reproducer(
    command: Command, onnx_path: Path, tmp_path: Path
) -> None:
    line = (
        onnx_path,
        "-O",
        "mode=record",
        "-o",
        tmp_path / "found",
    )  # it only records what it would do
    done = command("bisect", *line)
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("DIVERGES first in region 1, at ")
    assert f"wrote {tmp_path / 'found/reproduce.py'}" in done.out
    facts = command("bisect", *line, "--json").facts
    assert not facts["ok"]
    assert facts["culprit"]["composites"]
    script = Path(facts["reproducer"]).read_text(encoding="utf-8")
    assert "'mode': 'record'" in script
    again = subprocess.run([sys.executable, facts["reproducer"]], check=False, capture_output=True)
    assert again.returncode == 1


def test_bench_measures_all_sides_and_draws_them(
    command: Command, onnx_path: Path, tmp_path: Path
) -> None:
    arguments = (onnx_path, "-b", "llvm", "--against", "onnxruntime", "--against", "tvm")
    arguments = (*arguments, "--rounds", 1, "--plot", tmp_path / "times.html")
    done = command("bench", *arguments)
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith(f"wrote {tmp_path / 'times.html'}\n")
    facts = command("bench", *arguments, "--json").facts
    assert [side["name"] for side in facts["sides"]] == ["byoc:llvm", "onnxruntime", "tvm"]
    assert facts["ok"] is True


def test_bench_refuses_a_plot_before_it_measures(
    command: Command, onnx_path: Path, tmp_path: Path
) -> None:
    done = command("bench", onnx_path, "-b", "llvm", "--plot", tmp_path / "times.pdf")
    assert done.code == 1
    assert "expected a name that ends in .html, .svg, .png" in done.err


def test_a_pt2_file_is_a_model_too(command: Command, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    torch.export.save(torch.export.export(net, (torch.zeros(2, 4),)), tmp_path / "net.pt2")
    done = command("verify", tmp_path / "net.pt2", "-b", "llvm")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("agrees with torch")


def test_cmake_dir_is_where_the_package_file_is(command: Command) -> None:
    done = command("cmake-dir")
    assert done.code == 0
    assert (Path(done.out.strip()) / "TvmByocKitConfig.cmake").is_file()


# TensorRT

tensorrt = pytest.mark.byoc("tensorrt", step="codegen")
PROFILE = "input.1=1x4:8x4:32x4"


@pytest.fixture
def dynamic_path(dynamic_onnx_proto: onnx.ModelProto, tmp_path: Path) -> Path:
    """The classifier with an open batch, in a file."""
    path = tmp_path / "dynamic.onnx"
    onnx.save(dynamic_onnx_proto, path)
    return path


@tensorrt
def test_compile_builds_an_engine_for_the_given_gpus_and_shapes(
    command: Command, dynamic_path: Path, tmp_path: Path
) -> None:
    line = (dynamic_path, "-b", "tensorrt", "--fp16", "--profile", PROFILE, "--sm", "89", "-o")
    done = command("compile", *line, tmp_path / "model.so", "--sm", "120", "--json")
    assert (done.code, done.err) == (0, "")
    manifest = done.facts["manifest"]
    (dim,) = (dim for dim in manifest["inputs"][0]["shape"] if isinstance(dim, str))
    assert manifest["options"]["profiles"] == [{dim: [1, 8, 32]}]
    assert manifest["options"]["precision"] == "fp16"
    assert manifest["options"]["compute_capabilities"] == [89, 120]
    assert byoc.read_manifest(tmp_path / "model.so").options == manifest["options"]


@tensorrt
def test_a_profile_may_name_the_dimension_of_a_shape(
    command: Command, dynamic_path: Path, tmp_path: Path
) -> None:
    line = (dynamic_path, "-b", "tensorrt", "-s", "input.1:n,4", "--profile", "n=1:8:32", "-o")
    facts = command("compile", *line, tmp_path / "model.so", "--json").facts
    assert facts["manifest"]["options"]["profiles"] == [{"n": [1, 8, 32]}]


@tensorrt
def test_a_name_that_comes_again_begins_another_profile(
    command: Command, dynamic_path: Path, tmp_path: Path
) -> None:
    profiles = ("--profile", PROFILE, "--profile", "input.1=64x4:64x4:64x4")
    line = (dynamic_path, "-b", "tensorrt", *profiles, "-o", tmp_path / "model.so", "--json")
    options = command("compile", *line).facts["manifest"]["options"]
    assert [list(profile.values()) for profile in options["profiles"]] == [
        [[1, 8, 32]],
        [[64, 64, 64]],
    ]


@tensorrt
def test_the_cache_is_listed_and_cleared(
    command: Command, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "engines"
    monkeypatch.setenv("TVM_BYOC_ENGINE_CACHE", str(folder))
    assert command("cache", "--json").facts == {
        "directory": str(folder),
        "bytes": 0,
        "entries": [],
    }
    line = (onnx_path, "-b", "tensorrt", "--sm", "89", "-O", f"engine_cache={folder}", "-o")
    assert command("compile", *line, tmp_path / "model.so").code == 0
    facts = command("cache", "--json").facts
    (entry,) = facts["entries"]
    assert entry["capabilities"] == [89]
    assert facts["bytes"] == entry["bytes"] == sum(p.stat().st_size for p in folder.iterdir())
    listed = command("cache", "--directory", folder)
    assert (listed.code, listed.err) == (0, "")
    assert "1 engine(s)" in listed.out
    assert entry["key"][:12] in listed.out
    for given in (("clear", "--directory", folder), ("clear",)):
        done = command("cache", *given)
        assert (done.code, done.err) == (0, "")
    assert "removed 0 engine(s)" in done.out
    assert entries(folder) == []


def test_the_doctor_tells_what_builds_engines(command: Command) -> None:
    rows = command("doctor", "--json").facts["rows"]
    steps = {row["step"]: row for row in rows if row["what"] == "tensorrt" and row["step"]}
    assert list(steps) == ["partition", "codegen", "runtime", "device"]
    (builder,) = (row for row in rows if row["what"] == "tensorrt-builder")
    assert builder["ok"] == steps["codegen"]["ok"]
    assert steps["partition"]["ok"]
    if not byoc.probe("cuda-driver"):
        assert not steps["runtime"]["ok"]
        assert "driver" in steps["runtime"]["detail"]


def test_ctrl_c_is_no_traceback_wherever_it_comes(
    command: Command, onnx_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError from None  # what TVM makes of one in a function that it called

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(partitioning, "partition", interrupted)
    monkeypatch.setattr(byoc, "partition", interrupted, raising=False)
    try:
        done = command("compile", onnx_path, "-o", tmp_path / "model.so")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.code == 130
    assert "Traceback" not in done.err
    assert not (tmp_path / "model.so").exists()


# Errors


def unsupported(path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NoSuchOp", ["x"], ["y"], domain="somebody")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, ir_version=9), path)


@pytest.fixture
def workspace(
    onnx_path: Path, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The working directory, with files that are right and files that are not."""
    shutil.copy(onnx_path, tmp_path / "model.onnx")
    shutil.copy(artifact, tmp_path / "model.so")
    (tmp_path / "cut.so").write_bytes(artifact.read_bytes()[:-100])
    unsupported(tmp_path / "unsupported.onnx")
    for name in ("text.onnx", "text.pt2", "text.so", "text.npz"):
        (tmp_path / name).write_text("only text\n")
    write_inputs(tmp_path / "other.npz", x=np.zeros((1, 4), "float32"))
    write_inputs(tmp_path / "double.npz", **{"input.1": np.zeros((1, 4))})
    np.savez(tmp_path / "objects.npz", **{"input.1": np.array([{}], dtype=object)})
    (tmp_path / "cut.npz").write_bytes((tmp_path / "other.npz").read_bytes()[:-30])
    (tmp_path / "empty.npz").write_bytes(b"")
    (tmp_path / "other.json").write_text('{"ops": 3}')
    np.save(tmp_path / "array.npy", np.zeros((1, 4), "float32"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ERRORS = {
    "no such model": ("partition none.onnx", "no such model file: none.onnx"),
    "text as model": ("partition text.onnx", "text.onnx is not an ONNX model"),
    "text as program": ("partition text.pt2", "text.pt2 is not an ExportedProgram"),
    "an artifact as model": ("partition model.so", "model.so is not an ONNX model"),
    "a directory as model": ("partition .", "is not an ONNX model"),
    "unsupported op": ("partition unsupported.onnx", "NoSuchOp"),
    "unknown backend": ("partition model.onnx -b exampel_npu", "did you mean 'example_npu'"),
    "unknown input": ("partition model.onnx -s x:1,4", "'x', which is no input"),
    "shape without name": ("partition model.onnx -s 1,4", "--shape 1,4: expected name:1,3"),
    "shape without dims": ("partition model.onnx -s input.1:", "--shape input.1:"),
    "shape of text": ("partition model.onnx -s input.1:2.5,4", "--shape input.1:2.5,4"),
    "shape of odd digits": ("partition model.onnx -s input.1:²,4", "--shape input.1:²,4"),
    "negative shape": ("partition model.onnx -s input.1:-1,4", "--shape input.1:-1,4"),
    "zero in shape": ("partition model.onnx -s input.1:0,4", "axis 0 is 0"),
    "policy without value": ("partition model.onnx -p strict", "--policy strict: expected key="),
    "unknown policy": ("partition model.onnx -p min_ops=3", "did you mean 'min_region_ops'"),
    "wrong policy": ("partition model.onnx -p min_region_ops=few", "min_region_ops='few'"),
    "endless policy": (f"partition model.onnx -p max_regions={'9' * 5000}", "an integer"),
    "policy of an unknown op": ("partition model.onnx -p exclude_ops=reluu", "'relax.nn.relu'"),
    "policy of an unknown name": ("partition model.onnx -p exclude_names=zz", "which is no op"),
    "nowhere for the page": ("partition model.onnx --html no/p.html", "--html no/p.html"),
    "a directory as page": ("partition model.onnx --html .", "--html .: cannot be written"),
    "no such baseline": ("partition model.onnx --baseline none.json", "--baseline none.json"),
    "text as baseline": ("partition model.onnx --baseline text.so", "--baseline text.so: not JSON"),
    "other JSON": ("partition model.onnx --baseline other.json", "--baseline other.json"),
    "dry run and a page": ("partition model.onnx --dry-run --html p.html", "leave out --html"),
    "unknown target": ("compile model.onnx -b llvm --target x --output a.so", "target 'x'"),
    "no codegen": ("compile model.onnx -b cudnn --output a.so", "relax.ext.cudnn"),
    "unknown option": ("compile model.onnx -O mod=record --output a.so", "did you mean 'mode'"),
    "option without value": ("compile model.onnx -O mode --output a.so", "expected key=value"),
    "wrong option": ("compile model.onnx -O mode=fast --output a.so", "mode='fast'"),
    "endless option": (f"compile model.onnx -O l1_bytes={'9' * 5000} --output a.so", "an integer"),
    "option of llvm": ("compile model.onnx -b llvm -O a=1 --output a.so", "has no options"),
    "an option and its flag": (
        "compile model.onnx --backend tensorrt --fp16 --option precision=int8 --output a.so",
        "--option precision=int8 is given, and a flag that says precision=fp16",
    ),
    "a flag of another backend": ("compile model.onnx --sm 89 --output a.so", "--backend tensorrt"),
    "profile without sizes": (
        "compile model.onnx -b tensorrt --profile x --output a.so",
        "--profile x: expected name=smallest:best:largest",
    ),
    "profile out of order": (
        "compile model.onnx -b tensorrt --profile x=8x4:1x4:9x4 --output a.so",
        "8, 1, 9 are not",
    ),
    "nowhere to write": ("compile model.onnx -b llvm --output no/a.so", "make it first"),
    "a directory as output": ("compile model.onnx -b llvm --output .", "cannot write"),
    "no such artifact": ("run none.so", "no such artifact: none.so"),
    "text as artifact": ("run text.so", "text.so has no manifest"),
    "truncated artifact": ("run cut.so", "cut.so has no manifest: it is truncated"),
    "a model as artifact": ("run model.onnx", "has no manifest"),
    "no such inputs": ("run model.so -i none.npz", "--inputs none.npz"),
    "text as inputs": ("run model.so -i text.npz", "--inputs text.npz is no .npz"),
    "an .npy as inputs": ("run model.so -i array.npy", "--inputs array.npy is no .npz"),
    "truncated inputs": ("run model.so -i cut.npz", "--inputs cut.npz is no .npz"),
    "empty inputs": ("run model.so -i empty.npz", "--inputs empty.npz is no .npz"),
    "a directory as inputs": ("run model.so -i .", "--inputs . is no .npz"),
    "objects as inputs": ("run model.so -i objects.npz", "--inputs objects.npz is no .npz"),
    "other inputs": ("run model.so -i other.npz", "missing: input.1; unknown: x"),
    "wrong dtype": ("run model.so -i double.npz", "'input.1' is float64, expected float32"),
    "nowhere for outputs": ("run model.so --output no/o.npz", "--output no/o.npz"),
    "trace of the host": ("run model.so --trace t.json", "--trace shows the example NPU's"),
    "no original": ("verify model.so", "--reference"),
    "unknown reference": ("verify model.so --reference x", "unknown reference 'x'"),
    "no such reference": ("verify model.so --reference x.onnx", "no such model file: x.onnx"),
    "unknown case": ("verify model.onnx -b llvm --cases odd", "unknown case 'odd'; expected edge"),
    "no samples": ("verify model.onnx -b llvm --samples 0", "samples=0"),
    "size without number": ("verify model.onnx -b llvm --size n", "--size n: expected name=1,2"),
    "size of no dimension": ("verify model.onnx -b llvm --size n=2", "sizes name 'n'"),
    "sizes to bisect": ("bisect model.onnx -b llvm --size n=2", "sizes name 'n'"),
    "no runtime to bisect": ("bisect model.onnx -b cudnn", "relax.ext.cudnn"),
    "other inputs to bisect": ("bisect model.onnx -b llvm -i other.npz", "missing: input.1"),
    "text to verify": ("verify text.so --reference model.onnx", "text.so has no manifest"),
}


@pytest.mark.parametrize(("line", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_one_line_and_no_traceback(
    command: Command, workspace: Path, line: str, message: str
) -> None:
    before = entries(workspace)
    for extra in ([], ["--json"]):
        done = command(*line.split(), *extra)
        assert done.code == 1
        assert message in done.err
        assert done.err.startswith("tvm-byoc: ")
        assert len(done.err.splitlines()) == 1
        assert done.out == ""
    assert entries(workspace) == before


def test_a_page_is_written_where_a_link_leads(
    command: Command, onnx_path: Path, tmp_path: Path
) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "page.html")
    command("partition", onnx_path, "-b", "llvm", "--html", tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink()
    assert "<html" in (tmp_path / "page.html").read_text()


def test_a_page_for_a_device_does_not_take_its_place(command: Command, onnx_path: Path) -> None:
    done = command("partition", onnx_path, "-b", "llvm", "--html", "/dev/null")
    assert done.code == 0
    assert Path("/dev/null").is_char_device()


@npu
def test_a_trace_that_cannot_be_written_is_one_line(command: Command, npu_classifier: Path) -> None:
    done = command("run", npu_classifier, "--trace", "no/such/directory/t.json")
    assert done.code == 1
    assert done.err.startswith("tvm-byoc: --trace no/such/directory/t.json: cannot be written")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "partition",
        "compile model.onnx",
        "run",
        "nonsense",
        "run a.so --seed x",
        "run a.so --seed -1",
        "doctor extra",
    ],
)
def test_a_usage_error_shows_the_usage(command: Command, line: str) -> None:
    done = command(*line.split())
    assert done.code == 2
    assert "Usage: " in done.err
    assert "Traceback" not in done.err


def test_no_command_shows_the_help(command: Command) -> None:
    assert "Usage: " in "".join(command()[1:])


def test_a_warning_of_the_kit_is_shown(
    command: Command, onnx_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioning, "_obstacle", lambda _function: "has an `If`")
    done = command("partition", onnx_path, "--json")
    assert done.code == 0
    assert done.err.startswith("tvm-byoc: warning: function `main` has an `If`")
    assert len(done.err.splitlines()) == 1
    assert done.facts["ops_total"] > 0


# As a process

EVERY_COMMAND = """
import sys
from tvm_byoc_kit import cli, partitioning
from tvm_byoc_kit.status import Status
model, artifact, directory = sys.argv[1:]
for line in (
    ["--help"],
    ["--version"],
    ["cmake-dir"],
    ["doctor", "--json"],
    ["partition", model],
    ["compile", model, "--output", directory + "/again.so", "-b", "llvm"],
    ["run", artifact],
    ["verify", artifact, "--reference", model],
    ["verify", model, "-b", "llvm"],
):
    sys.argv = ["tvm-byoc", *line]
    try:
        cli.app()
    except SystemExit as done:
        assert not done.code, (line, done.code)
    assert "torch" not in sys.modules, line
"""


def test_commands_on_onnx_models_keep_torch_out_and_write_no_control_characters(
    run_python: Any, onnx_path: Path, artifact: Path, tmp_path: Path
) -> None:
    done = run_python(EVERY_COMMAND, onnx_path, artifact, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "agrees with onnxruntime" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(run_python: Any, onnx_path: Path) -> None:
    script = """
import os, subprocess, sys
command = [sys.executable, "-m", "tvm_byoc_kit.cli", "partition", sys.argv[1], "--script"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
process.stdout.close()
error = process.stderr.read()
process.wait()
assert "Traceback" not in error, error
"""
    done = run_python(script, onnx_path)
    assert done.returncode == 0, done.stderr
