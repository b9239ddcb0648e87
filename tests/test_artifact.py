"""Artifacts: written in one step, checked before they are loaded, one error for each defect."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import platform
import shutil
import subprocess
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit import artifact as artifact_module
from tvm_byoc_kit import loading
from tvm_byoc_kit.artifact import Manifest, write_artifact
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable, InputError, ModelError
from tvm_byoc_kit.inspection import inspect_artifact
from tvm_byoc_kit.rewriting import bytes_of_constants
from tvm_byoc_kit.status import Status
from tvm_byoc_kit.variants import Cost, OpenDimension, Variant, Variants

npu = pytest.mark.byoc("example_npu", step="runtime")
Reference = Callable[..., Any]
X = np.random.default_rng(0).standard_normal((2, 4), dtype=np.float32)
Y = np.random.default_rng(1).standard_normal((2, 3), dtype=np.float32)


def check(exe: byoc.Executable, reference: Reference) -> None:
    for mine, theirs in zip(exe(X, Y), reference(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def rewrite(source: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """A copy of an artifact with another manifest; `change` edits it or gives what is there."""
    facts = byoc.read_manifest(source).to_dict()
    target.write_bytes(source.read_bytes()[: facts["library"]["size"]])
    changed = change(facts)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("manifest.json", json.dumps(facts if changed is None else changed))
    return target


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# What is written


def test_an_artifact_comes_back_as_it_was(
    host_exe: byoc.Executable, host_artifact: Path, two_outputs_numpy: Reference
) -> None:
    loaded = byoc.load(host_artifact)
    assert loaded.inputs == host_exe.inputs
    assert loaded.outputs == host_exe.outputs
    assert loaded.model is None
    assert dataclasses.replace(loaded.manifest, library={}) == host_exe.manifest
    check(loaded, two_outputs_numpy)


@npu
def test_an_artifact_with_regions_comes_back_as_it_was(
    npu_artifact: Path, two_outputs_numpy: Reference
) -> None:
    check(byoc.load(npu_artifact), two_outputs_numpy)


def test_the_manifest_says_what_the_artifact_is(host_artifact: Path) -> None:
    manifest = byoc.read_manifest(host_artifact)
    assert manifest.backend == "llvm"
    assert manifest.machine == platform.machine()
    assert [spec.name for spec in manifest.inputs] == ["x", "y"]
    assert manifest.inputs[0].shape == ("n", 4)
    assert manifest.library["size"] < host_artifact.stat().st_size


def test_the_manifest_is_read_with_any_zip_tool(host_artifact: Path) -> None:
    with zipfile.ZipFile(host_artifact) as archive:
        assert archive.testzip() is None
        assert json.loads(archive.read("manifest.json"))["entry"] == "main"


def test_an_artifact_is_a_plain_shared_library_too(host_artifact: Path) -> None:
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(host_artifact)), tvm.cpu())
    result = machine["main"](tvm.runtime.tensor(X), tvm.runtime.tensor(Y))
    np.testing.assert_allclose(result[1].numpy(), np.tanh(Y), rtol=1e-5)


def test_nothing_but_the_artifact_is_left(host_exe: byoc.Executable, tmp_path: Path) -> None:
    host_exe.export(tmp_path / "model.so")
    assert entries(tmp_path) == ["model.so"]


@pytest.mark.parametrize("name", ["model.so", "with space.so", "模型.so", "no_suffix", "m.tar"])
def test_any_file_name_will_do(host_exe: byoc.Executable, tmp_path: Path, name: str) -> None:
    host_exe.export(tmp_path / name)
    assert len(byoc.load(str(tmp_path / name))(X, Y)) == 2


def test_a_relative_path_is_relative_to_the_working_directory(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    host_exe.export("model.so")
    assert len(byoc.load("model.so")(X, Y)) == 2


def test_a_loaded_artifact_is_copied_not_exported(host_artifact: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="copy the artifact's file"):
        byoc.load(host_artifact).export(tmp_path / "again.so")
    assert entries(tmp_path) == []


def test_an_artifact_that_is_in_use_can_be_replaced(make_module: Any, tmp_path: Path) -> None:
    def build(factor: float) -> byoc.Executable:
        def body(x: Any) -> Any:
            return relax.op.multiply(x, relax.const(factor, "float32"))

        return byoc.compile(make_module({"x": ((2, 4), "float32")}, body), "llvm")

    path = tmp_path / "model.so"
    build(2.0).export(path)
    old = byoc.load(path)
    build(3.0).export(path)
    new = byoc.load(path)
    np.testing.assert_array_equal(old(X), X * 2)
    np.testing.assert_array_equal(new(X), X * 3)


@pytest.mark.parametrize("source", ["host_artifact", pytest.param("npu_artifact", marks=npu)])
def test_an_artifact_stays_loaded_as_long_as_it_is_used(
    source: str, request: pytest.FixtureRequest, two_outputs_numpy: Reference, tmp_path: Path
) -> None:
    path = shutil.copy(request.getfixturevalue(source), tmp_path / "m.so")

    def is_mapped() -> bool:
        gc.collect()
        return str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")

    exe = byoc.load(path)
    check(exe, two_outputs_numpy)
    function = exe.vm[exe.manifest.entry]
    del exe
    assert is_mapped()
    results = function(tvm.runtime.tensor(X), tvm.runtime.tensor(Y))
    with pytest.raises(RuntimeError) as failed:
        function(tvm.runtime.tensor(X), tvm.runtime.tensor(X))
    del function
    assert not is_mapped()
    assert "Check failed" in str(failed.value)
    for mine, theirs in zip(results, two_outputs_numpy(X, Y), strict=True):
        np.testing.assert_allclose(mine.numpy(), theirs, rtol=1e-5, atol=1e-6)


@npu
def test_a_library_with_the_code_of_regions_in_it_stays_loaded(
    npu_artifact: Path, tmp_path: Path
) -> None:
    path = rewrite(npu_artifact, tmp_path / "m.so", lambda facts: facts.update(loaders=[]))
    byoc.load(path)
    gc.collect()
    assert str(path) in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_a_library_that_ends_like_an_archive_is_kept_whole(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    inner = tmp_path / "inner.zip"
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("weights", bytes(100))
    library = b"\x7fELF" + bytes(64) + inner.read_bytes()
    path = tmp_path / "model.so"
    write_artifact(path, host_exe.manifest, lambda place: Path(place).write_bytes(library))
    manifest = byoc.read_manifest(path)
    assert manifest.library["size"] == len(library)
    assert path.read_bytes()[: len(library)] == library


# What can go wrong while it is written


def failing(place: str) -> None:
    Path(place).write_bytes(b"half of it")
    raise RuntimeError("the linker failed:\nno space left")


def test_a_failed_export_leaves_the_old_file_and_nothing_else(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"the old artifact")
    with pytest.raises(ArtifactError, match="cannot link"):
        write_artifact(path, host_exe.manifest, failing)
    assert path.read_bytes() == b"the old artifact"
    assert entries(tmp_path) == ["model.so"]


def test_an_interrupted_export_leaves_the_old_file_and_nothing_else(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    def interrupted(place: str) -> None:
        Path(place).write_bytes(b"half of it")
        raise KeyboardInterrupt

    path = tmp_path / "model.so"
    path.write_bytes(b"the old artifact")
    with pytest.raises(KeyboardInterrupt):
        write_artifact(path, host_exe.manifest, interrupted)
    assert path.read_bytes() == b"the old artifact"
    assert entries(tmp_path) == ["model.so"]


def test_a_full_disk_is_one_error(host_exe: byoc.Executable, tmp_path: Path) -> None:
    def full(place: str) -> None:
        raise OSError(28, "No space left on device", place)

    with pytest.raises(ArtifactError, match="No space left on device"):
        write_artifact(tmp_path / "model.so", host_exe.manifest, full)


@pytest.mark.parametrize("full", ["temporary files", "the artifact"])
def test_a_disk_without_room_is_told_before_anything_is_written(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    place = str(tmp_path) if full == "the artifact" else tempfile.gettempdir()

    def usage(folder: str | Path) -> SimpleNamespace:
        return SimpleNamespace(free=1000 if str(folder) == place else 1 << 40)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    with pytest.raises(
        ArtifactError, match=rf"{place} has room for 1000 bytes, and \d+ are needed"
    ):
        host_exe.export(tmp_path / "model.so")
    assert entries(tmp_path) == []


def test_the_room_that_is_needed_is_that_of_the_weights(make_module: Any) -> None:
    weight, bias = relax.const(np.ones((4, 8), "float32")), relax.const(np.ones(8, "int8"))
    mod = make_module(
        {"x": ((2, 4), "float32")},
        lambda x: (relax.op.matmul(x, weight), relax.op.add(weight, weight), relax.op.abs(bias)),
    )
    assert bytes_of_constants(mod) == 4 * 8 * 4 + 8


def test_a_directory_in_the_way_is_named(host_exe: byoc.Executable, tmp_path: Path) -> None:
    (tmp_path / "model.so").mkdir()
    with pytest.raises(ArtifactError, match=r"model\.so"):
        host_exe.export(tmp_path / "model.so")
    assert entries(tmp_path) == ["model.so"]


def test_a_missing_directory_is_named(host_exe: byoc.Executable, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"nowhere is no directory; make it first"):
        host_exe.export(tmp_path / "nowhere" / "model.so")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be_written_is_named(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ArtifactError, match="cannot write"):
            host_exe.export(tmp_path / "model.so")
    finally:
        tmp_path.chmod(0o700)


def test_a_missing_compiler_is_named_with_its_remedy(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = Status("compiler", ok=False, detail="no C++ compiler", remedy="apt install g++")
    monkeypatch.setattr(artifact_module, "probe", lambda _: missing)
    with pytest.raises(ArtifactError, match=r"no C\+\+ compiler; apt install g\+\+"):
        host_exe.export(tmp_path / "model.so")
    assert entries(tmp_path) == []


# What can be wrong with the file


def test_what_is_no_file_or_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "loop.so").symlink_to("loop.so")
    os.mkfifo(tmp_path / "pipe.so")
    for name, message in {
        "nothing.so": r"no such artifact: .*nothing\.so",
        "loop.so": r"no such artifact: .*loop\.so",
        "pipe.so": r"pipe\.so is no file",
        "": "is no file",
        "x" * 300: "cannot be read: File name too long",
    }.items():
        with pytest.raises(ArtifactError, match=message):
            byoc.load(tmp_path / name)


def test_a_huge_file_without_a_manifest_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "model.so").open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(ArtifactError, match="has no manifest"):
        byoc.load(tmp_path / "model.so")


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(1000), b"PK\x05\x06"])
def test_another_file_is_no_artifact(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"model\.so has no manifest"):
        byoc.load(path)


def test_an_archive_without_manifest_is_no_artifact(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.json", "{}")
    with pytest.raises(ArtifactError, match="has no manifest"):
        byoc.load(path)


def test_a_library_of_plain_tvm_is_no_artifact(host_exe: byoc.Executable, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    host_exe._built.export_library(str(path))
    with pytest.raises(ArtifactError, match=r"was not written by Executable\.export"):
        byoc.load(path)


def test_a_truncated_artifact_is_never_loaded(host_artifact: Path, tmp_path: Path) -> None:
    data = host_artifact.read_bytes()
    path = tmp_path / "model.so"
    lengths = {*range(0, len(data), len(data) // 40), *range(len(data) - 40, len(data))}
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        with pytest.raises(ArtifactError, match=r"model\.so has no manifest: it is truncated"):
            byoc.load(path)


def test_one_flipped_byte_of_the_library_is_found(host_artifact: Path, tmp_path: Path) -> None:
    data = host_artifact.read_bytes()
    size = byoc.read_manifest(host_artifact).library["size"]
    path = tmp_path / "model.so"
    for position in [*range(0, size, size // 40), size - 1]:
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        with pytest.raises(ArtifactError, match="damaged: its checksum does not match"):
            byoc.load(path)


def test_one_flipped_byte_of_the_manifest_is_an_error_or_harmless(
    host_artifact: Path, tmp_path: Path
) -> None:
    data = host_artifact.read_bytes()
    size = byoc.read_manifest(host_artifact).library["size"]
    path = tmp_path / "model.so"
    refused = 0
    for position in range(size, len(data)):
        bit = (0x01, 0x80)[position % 2]
        path.write_bytes(data[:position] + bytes([data[position] ^ bit]) + data[position + 1 :])
        try:
            manifest = byoc.read_manifest(path)
        except ArtifactError:
            refused += 1
        else:
            assert manifest == byoc.read_manifest(host_artifact)
    assert refused > (len(data) - size) // 2


@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_a_file_cut_anywhere_is_one_error(
    host_artifact: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = host_artifact.read_bytes()
    size = byoc.read_manifest(host_artifact).library["size"]
    cut = data.draw(st.integers(0, len(whole) - 1) | st.integers(size, len(whole) - 1))
    path = tmp_path / "model.so"
    path.write_bytes(whole[:cut])
    with pytest.raises(ArtifactError, match=r"model\.so has no manifest: it is truncated.*again$"):
        byoc.load(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_bytes_that_are_overwritten_are_found_or_harmless(
    host_artifact: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = host_artifact.read_bytes()
    size = byoc.read_manifest(host_artifact).library["size"]
    start = data.draw(st.integers(0, len(whole) - 1) | st.integers(size, len(whole) - 1))
    noise = data.draw(st.binary(min_size=1, max_size=40))
    path = tmp_path / "model.so"
    path.write_bytes((whole[:start] + noise + whole[start + len(noise) :])[: len(whole)])
    try:
        found = inspect_artifact(path)
    except ArtifactError:
        return
    assert found.manifest == byoc.read_manifest(host_artifact)
    assert found.intact == (path.read_bytes()[:size] == whole[:size])


@pytest.mark.parametrize(
    "extra", [b"\0", b"\n", bytes(21), bytes(22), b"x" * 65536, bytes(100_000)]
)
def test_bytes_added_at_the_end_are_found(
    host_artifact: Path, tmp_path: Path, extra: bytes
) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(host_artifact.read_bytes() + extra)
    with pytest.raises(ArtifactError, match="has no manifest"):
        byoc.load(path)


def archive_of(host_artifact: Path, path: Path, members: list[tuple[str, str]]) -> Path:
    """The library, and an archive of `members` behind it."""
    size = byoc.read_manifest(host_artifact).library["size"]
    path.write_bytes(host_artifact.read_bytes()[:size])
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of names that repeat
        for name, text in members:
            archive.writestr(name, text)
    return path


MEMBERS: dict[str, list[tuple[str, str]]] = {
    "twice": [("manifest.json", "{}"), ("manifest.json", "{}")],
    "another beside it": [("manifest.json", "{}"), ("../../etc/passwd", "")],
    "under a path": [("/manifest.json", "{}")],
    "too large": [("manifest.json", " " * ((1 << 24) + 1))],
    "no text": [("manifest.json", "\0\1\2")],
    "nested deep": [("manifest.json", "[" * 200_000)],
    "nested objects": [("manifest.json", '{"format":' * 100_000)],
    "a number too long": [("manifest.json", f'{{"format": {"9" * 10_000}}}')],
}


@pytest.mark.parametrize("members", MEMBERS.values(), ids=MEMBERS)
def test_a_hostile_archive_is_one_error(
    host_artifact: Path, tmp_path: Path, members: list[tuple[str, str]]
) -> None:
    path = archive_of(host_artifact, tmp_path / "model.so", members)
    with pytest.raises(ArtifactError, match=r"model\.so has no manifest") as caught:
        byoc.load(path)
    assert len(str(caught.value)) < 500


# What can be wrong with the manifest


def change(**values: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda facts: facts.update(values)


OPEN_DIMENSION = {"pad": True, "split": True, "fill": {}, "smallest": 1, "largest": None}


def change_variants(field: str, **item: Any) -> Callable[[dict[str, Any]], Any]:
    variants = {"builds": [], "dimensions": {"n": OPEN_DIMENSION}, "costs": []}
    return change(variants={**variants, field: [item]})


def without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda facts: {key: value for key, value in facts.items() if key != name}


@pytest.mark.parametrize("number", [3, 0, None, "1", [1]])
def test_a_manifest_of_another_format_is_refused(
    host_artifact: Path, tmp_path: Path, number: object
) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", change(format=number))
    with pytest.raises(
        ArtifactError, match=r"has a manifest of format .*this kit reads formats 1 and 2"
    ):
        byoc.load(path)


def test_a_manifest_of_format_1_is_read(host_artifact: Path, tmp_path: Path) -> None:
    def as_the_kit_wrote_it_then(facts: dict[str, Any]) -> None:
        del facts["variants"]
        facts["format"] = 1

    path = rewrite(host_artifact, tmp_path / "model.so", as_the_kit_wrote_it_then)
    assert not byoc.load(path).manifest.variants


@pytest.mark.parametrize("content", [[], 3, "text", None], ids=str)
def test_a_manifest_that_is_no_object_is_refused(
    host_artifact: Path, tmp_path: Path, content: object
) -> None:
    path = tmp_path / "model.so"
    rewrite(host_artifact, path, lambda _: content if content is not None else 0)
    with pytest.raises(ArtifactError, match="manifest"):
        byoc.load(path)


DAMAGED = {
    "inputs missing": without("inputs"),
    "outputs missing": without("outputs"),
    "entry missing": without("entry"),
    "loaders missing": without("loaders"),
    "inputs no list": change(inputs=3),
    "input no object": change(inputs=["x"]),
    "input without name": change(inputs=[{"shape": [1], "dtype": "float32"}]),
    "input without shape": change(inputs=[{"name": "x", "shape": 3, "dtype": "float32"}]),
    "outputs no list": change(outputs={"a": 1}),
    "versions no object": change(versions=["0.27"]),
    "version no text": change(versions={"tvm": 27}),
    "library no object": change(library=None),
    "loaders no list": change(loaders=3),
    "loader no text": change(loaders=[3]),
    "target no text": change(target=None),
    "backend no text": change(backend=7),
    "entry no text": change(entry=["main"]),
    "options no object": change(options=[]),
    "package no text": change(package=3),
    "regions no object": change(regions=[1]),
    "regions of no texts": change(regions={"main": 7}),
    "features no list": change(cpu="avx2"),
    "architecture no text": change(device_code={"machine_code": [90]}),
    "architecture none": change(device_code={"machine_code": ["volta"]}),
    "architectures no list": change(device_code={"ptx": 90}),
    "a size below nothing": change(inputs=[{"name": "x", "shape": [-1], "dtype": "float32"}]),
    "a size that is no number": change(inputs=[{"name": "x", "shape": [0.5], "dtype": "float32"}]),
    "a size that is a truth": change(inputs=[{"name": "x", "shape": [True], "dtype": "float32"}]),
    "a name that is no text": change(inputs=[{"name": 3, "shape": [1], "dtype": "float32"}]),
    "an endless list": change(entry=["x" * 100] * 10_000),
    "variants no object": change(variants=[]),
    "dimensions no object": change(variants={"builds": [], "dimensions": [], "costs": []}),
    "variants missing a field": change(variants={"builds": []}),
    "build of a dimension that is none": change_variants("builds", entry="main", sizes={"m": 1}),
    "build's entry no text": change_variants("builds", entry=1, sizes={}),
    "size no number": change_variants("builds", entry="main", sizes={"n": "4"}),
    "cost without seconds": change_variants("costs", entry="main", sizes={"n": 4}),
    "cost below nothing": change_variants("costs", entry="main", sizes={"n": 4}, seconds=-1.0),
    "cost without end": change_variants(
        "costs", entry="main", sizes={"n": 4}, seconds=float("inf")
    ),
    "dimension of no input": change(
        variants={"builds": [], "dimensions": {"m": OPEN_DIMENSION}, "costs": []}
    ),
    "cost no number": change_variants("costs", entry="main", sizes={"n": 4}, seconds=None),
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_manifest_is_one_error(
    host_artifact: Path, tmp_path: Path, damage: Callable[[dict[str, Any]], Any]
) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", damage)
    with pytest.raises(ArtifactError, match=r"model\.so has a damaged manifest") as caught:
        byoc.load(path)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "library", [{}, {"size": 10**12, "sha256": "0"}, {"size": "4", "sha256": ""}, {"size": -1}]
)
def test_a_wrong_checksum_is_damage(
    host_artifact: Path, tmp_path: Path, library: dict[str, Any]
) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", change(library=library))
    with pytest.raises(ArtifactError, match="damaged"):
        byoc.load(path)


@pytest.mark.parametrize("entry", ["", "../../main", "main\0", "vm.builtin.copy", "x" * 100_000])
def test_an_entry_that_is_not_there_is_one_error(
    host_artifact: Path, tmp_path: Path, entry: str
) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", change(entry=entry))
    with pytest.raises(ModelError, match="TVM cannot start the model"):
        byoc.load(path)(X, Y)


def test_fields_of_a_later_kit_are_left_out(host_artifact: Path, tmp_path: Path) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", change(novelty=[1, 2]))
    assert byoc.load(path)(X, Y)


def test_code_for_another_processor_is_refused(host_artifact: Path, tmp_path: Path) -> None:
    path = rewrite(host_artifact, tmp_path / "model.so", change(machine="riscv128"))
    with pytest.raises(ArtifactError, match=rf"code for riscv128.*is {platform.machine()}"):
        byoc.load(path)


def test_another_minor_version_of_tvm_is_refused(
    host_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {"tvm": "0.27.0.post1", "tvm_ffi": "0.1.15", "tvm_byoc_kit": "0.1.0"}
    monkeypatch.setattr(loading, "version_of", here.__getitem__)
    path = tmp_path / "model.so"
    rewrite(host_artifact, path, change(versions=here | {"tvm": "0.26.1"}))
    with pytest.raises(ArtifactError, match=r'0\.26\.1, here is .*pip install "apache-tvm==0'):
        byoc.load(path)
    for fine in ("0.27.3", "unknown"):
        versions = here | {"tvm": fine}
        byoc.load(rewrite(host_artifact, tmp_path / f"{fine}.so", change(versions=versions)))


def test_a_module_without_loader_says_what_to_install(host_artifact: Path, tmp_path: Path) -> None:
    for package, remedy in {
        "": "install the package that",
        "nobodys": "pip install nobodys",
    }.items():
        changes = change(backend="llvm", loaders=["nobodys_json"], package=package)
        path = rewrite(host_artifact, tmp_path / "model.so", changes)
        with pytest.raises(BackendUnavailable, match=f"of kind 'nobodys_json'.*{remedy}"):
            byoc.load(path)


def test_a_backend_that_is_not_installed_is_named(host_artifact: Path, tmp_path: Path) -> None:
    changes = change(backend="somebodys_npu", loaders=["somebodys_json"])
    path = rewrite(host_artifact, tmp_path / "model.so", changes)
    with pytest.raises(BackendUnavailable, match=r"'somebodys_npu' has no runtime.*install"):
        byoc.load(path)


@npu
def test_a_backend_that_is_not_installed_will_do_when_its_plugin_is_loaded(
    npu_artifact: Path, tmp_path: Path, two_outputs_numpy: Reference
) -> None:
    path = rewrite(npu_artifact, tmp_path / "model.so", change(backend="somebodys_npu"))
    check(byoc.load(path), two_outputs_numpy)


def test_a_backend_whose_runtime_is_missing_is_named(host_artifact: Path, tmp_path: Path) -> None:
    if byoc.get_backend("tensorrt").check("runtime"):
        pytest.skip("this machine has TensorRT's runtime")
    changes = change(backend="tensorrt", loaders=["tensorrt"])
    path = rewrite(host_artifact, tmp_path / "model.so", changes)
    with pytest.raises(BackendUnavailable, match="'tensorrt'") as caught:
        byoc.load(path)
    assert caught.value.remedy


def test_a_manifest_survives_its_own_form() -> None:
    spec = byoc.TensorSpec("x", ("n", 2), "float32")
    variants = Variants(
        (Variant("main", {"n": 4}), Variant("rest")),
        {"n": OpenDimension(pad=True, split=True, fill={"x": 0.5}, largest=8)},
        (Cost("main", {"n": 4}, 1e-3),),
    )
    manifest = Manifest(
        (spec,),
        (spec,),
        "main",
        "llvm",
        "llvm",
        {"a": 1},
        ("k",),
        versions={"tvm": "1"},
        variants=variants,
        regions={"region": ("npu.conv2d", "npu.add")},
        cpu=("avx2",),
        device_code={"machine_code": ["sm_90"], "ptx": [], "source": False, "notes": []},
    )
    assert Manifest.from_dict(json.loads(json.dumps(manifest.to_dict()))) == manifest


# Loading elsewhere

RUN = """
import sys, numpy as np, tvm_byoc_kit as byoc
exe = byoc.load(sys.argv[1])
data = np.load(sys.argv[2])
np.savez(sys.argv[3], **exe.run({"x": data["x"], "y": data["y"]}))
print("torch" in sys.modules, "onnx" in sys.modules)
"""


def run_elsewhere(
    run_python: Callable[..., subprocess.CompletedProcess],
    path: Path,
    directory: Path,
    **environment: str,
) -> dict[str, np.ndarray]:
    np.savez(directory / "in.npz", x=X, y=Y)
    arguments = (path, directory / "in.npz", directory / "out.npz")
    done = run_python(RUN, *arguments, **environment)
    assert done.returncode == 0, done.stderr
    with np.load(directory / "out.npz") as archive:
        return dict(archive)


@npu
@pytest.mark.parametrize(
    "environment",
    [{}, {"TVM_USE_RUNTIME_LIB": "1"}],
    ids=["as it is", "TVM's runtime alone"],
)
def test_a_fresh_process_loads_an_artifact_that_was_moved(
    npu_artifact: Path,
    tmp_path: Path,
    two_outputs_numpy: Reference,
    run_python: Any,
    environment: dict[str, str],
) -> None:
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    moved = directory / "renamed.so"
    moved.write_bytes(npu_artifact.read_bytes())
    got = run_elsewhere(run_python, moved, tmp_path, **environment)
    for mine, theirs in zip(got.values(), two_outputs_numpy(X, Y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@npu
def test_a_process_that_keeps_plugins_out_says_how_to_let_them_in(
    npu_artifact: Path, run_python: Any
) -> None:
    script = """
import sys, tvm_byoc_kit as byoc
from tvm_byoc_kit import native
try:
    byoc.load(sys.argv[1])
except byoc.BackendUnavailable as error:
    print(error.remedy)
assert native.load("example_npu")
byoc.load(sys.argv[1])
"""
    done = run_python(script, npu_artifact, TVM_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr
    assert "TVM_DEVICE_BACKEND_AUTOLOAD" in done.stdout


@npu
def test_threads_load_and_run_the_same_artifact(
    npu_artifact: Path, two_outputs_numpy: Reference
) -> None:
    def work(_: int) -> None:
        exe = byoc.load(npu_artifact)
        for _ in range(20):
            check(exe, two_outputs_numpy)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def test_a_loaded_artifact_checks_its_inputs(host_artifact: Path) -> None:
    with pytest.raises(InputError, match=r"'y' has shape \(1, 3\).*as 'n' is in input 'x'"):
        byoc.load(host_artifact)(X, Y[:1])
