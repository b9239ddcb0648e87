"""`tvm-byoc inspect`: what an artifact says of itself, with nothing of it run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tvm_byoc_kit as byoc
from tvm_byoc_kit import cuda_driver, inspection
from tvm_byoc_kit.artifact import write_artifact
from tvm_byoc_kit.errors import ArtifactError
from tvm_byoc_kit.inspection import inspect_artifact
from tvm_byoc_kit.manifest import Manifest
from tvm_byoc_kit.signature import TensorSpec
from tvm_byoc_kit.status import Status
from tvm_byoc_kit.variants import OpenDimension, Variant, Variants

npu = pytest.mark.byoc("example_npu", step="runtime")
needs_gcc = pytest.mark.skipif(not byoc.probe("compiler"), reason="needs a C compiler")


# What a library of this machine begins with.
HEADER = Path(sys.executable).resolve().read_bytes()[:20]


def written(path: Path, manifest: Manifest, content: bytes = HEADER) -> Path:
    """An artifact whose library is no library."""
    write_artifact(path, manifest, lambda place: Path(place).write_bytes(content))
    return path


def shown(path: Path) -> dict[str, str]:
    """The page, line by line."""
    lines = str(inspect_artifact(path)).splitlines()[1:]
    return dict(re.split("  +", line.strip(), maxsplit=1) for line in lines)


@needs_gcc
def test_a_library_whose_constructor_acts_is_not_run(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    trace = tmp_path / "it-was-run"
    source = f"""
    #include <stdio.h>
    __attribute__((constructor)) static void act(void) {{ fclose(fopen("{trace}", "w")); }}
    """

    def link(place: str) -> None:
        command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", place]
        subprocess.run(command, input=source, text=True, check=True)

    path = tmp_path / "model.so"
    write_artifact(path, host_exe.manifest, link)
    assert inspect_artifact(path).intact
    assert shown(path)["backend"] == "llvm"
    assert not trace.exists()
    with pytest.raises(byoc.ByocError):  # the trap works: loading does run it
        byoc.load(path).run({})
    assert trace.exists()


@npu
def test_neither_tvm_nor_what_comes_with_it_is_imported(
    npu_artifact: Path, run_python: Any
) -> None:
    script = """
import sys
from tvm_byoc_kit import cli
sys.argv = ["tvm-byoc", "inspect", sys.argv[1], "--json"]
try:
    cli.app()
except SystemExit as done:
    assert not done.code
heavy = {"tvm", "tvm_ffi", "numpy", "torch", "onnx"}
print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
with open("/proc/self/maps") as maps:
    print(sys.argv[2] in maps.read(), file=sys.stderr)
"""
    done = run_python(script, npu_artifact)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == ["[]", "False"]
    assert json.loads(done.stdout)["loads_here"] is True


@npu
def test_the_page_tells_what_is_inside(npu_artifact: Path) -> None:
    page = shown(npu_artifact)
    assert page["inputs"] == "x: float32[n, 4]; y: float32[n, 3]"
    assert page["outputs"].startswith("output_0: float32[n, 3]")
    assert "matmul" in page["region 1"]
    assert "plugin:example_npu" in page["built with"]
    assert page["loads here"].startswith("yes")


def test_json_has_the_whole_manifest(host_artifact: Path) -> None:
    facts = json.loads(json.dumps(inspect_artifact(host_artifact).to_dict()))
    assert facts["bytes"] == host_artifact.stat().st_size
    assert (facts["intact"], facts["loads_here"], facts["refusal"]) == (True, True, "")
    assert Manifest.from_dict(facts["manifest"]) == byoc.read_manifest(host_artifact)
    assert facts["here"]["tvm"] == facts["manifest"]["versions"]["tvm"]


def test_the_page_tells_which_sizes_are_fast(host_exe: byoc.Executable, tmp_path: Path) -> None:
    builds = (Variant("main_1", {"n": 1}), Variant("main_8", {"n": 8}), Variant("main"))
    variants = Variants(builds, {"n": OpenDimension(pad=True)})
    regions = {"llvm_1_n_8": ("llvm.tanh",), "llvm_1": ("llvm.tanh",)}
    manifest = replace(host_exe.manifest, variants=variants, regions=regions)
    page = shown(written(tmp_path / "m.so", manifest))
    assert (page["llvm_1_n_8"], page["llvm_1"]) == ("tanh", "tanh")
    assert page["fast at"] == "n=1; n=8"
    assert page["sizes of n"] == "1 and more, a build for any, padded to a build's"


def test_the_page_tells_that_other_sizes_are_not_taken(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    variants = Variants((Variant("main_1", {"n": 1}),), {"n": OpenDimension(largest=1)})
    page = shown(written(tmp_path / "m.so", replace(host_exe.manifest, variants=variants)))
    assert page["sizes of n"] == "those of the builds alone"


def test_long_names_have_their_own_column(host_exe: byoc.Executable, tmp_path: Path) -> None:
    variants = Variants((Variant("main"),), {"sequence\x1b": OpenDimension()})
    inputs = (TensorSpec("x", ("sequence\x1b",), "float32"),)
    manifest = replace(host_exe.manifest, inputs=inputs, variants=variants)
    path = written(tmp_path / "m.so", manifest)
    text = str(inspect_artifact(path))
    assert "\n  sizes of sequence\\x1b  1 and more, a build for any\n" in text


def test_the_page_tells_the_range_of_a_profile(host_exe: byoc.Executable, tmp_path: Path) -> None:
    variants = Variants((Variant("main"),), {"n": OpenDimension(smallest=2, largest=32)})
    page = shown(written(tmp_path / "m.so", replace(host_exe.manifest, variants=variants)))
    assert page["sizes of n"] == "2 to 32, a build for any"
    assert "fast at" not in page


def test_what_would_steer_a_terminal_is_spelled_out(
    host_exe: byoc.Executable, tmp_path: Path
) -> None:
    path = written(tmp_path / "m.so", replace(host_exe.manifest, backend="a\x1b[2Jb\nfake line"))
    text = str(inspect_artifact(path))
    assert "\x1b" not in text
    assert r"a\x1b[2Jb\nfake line" in text


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def replaced(data: st.DataObject, value: Any) -> Any:
    """`value` with one thing in it, at any depth, made another."""
    if data.draw(st.booleans()) or not isinstance(value, (dict, list)) or not value:
        return data.draw(JSON)
    if isinstance(value, list):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], replaced(data, value[at]), *value[at + 1 :]]
    key = data.draw(st.sampled_from(sorted(value)))
    return {**value, key: replaced(data, value[key])}


@settings(max_examples=150, deadline=None, suppress_health_check=[*HealthCheck])
@given(st.data())
def test_no_manifest_makes_it_fail_in_another_way_than_with_one_error(
    host_exe: byoc.Executable, tmp_path: Path, data: st.DataObject
) -> None:
    variants = Variants((Variant("main_1", {"n": 1}),), {"n": OpenDimension(fill={"x": 0.5})})
    manifest = replace(host_exe.manifest, variants=variants, regions={"r": ("a.b",)}, cpu=("avx",))
    facts = json.loads(json.dumps(manifest.to_dict()))
    key = data.draw(st.sampled_from(sorted(facts)))
    facts[key] = replaced(data, facts[key])
    path = tmp_path / "m.so"
    path.write_bytes(b"a library")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("manifest.json", json.dumps(facts))
    try:
        found = inspect_artifact(path)
    except ArtifactError:
        return
    assert str(found)
    assert found.refusal  # the library is another one
    json.dumps(found.to_dict())


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)


def test_damage_is_told_and_the_manifest_is_shown_all_the_same(
    host_artifact: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(host_artifact.read_bytes())
    flip_a_byte(path)
    found = inspect_artifact(path)
    assert not found.intact
    assert "its checksum does not match; export it again" in found.refusal
    assert "DAMAGED" in shown(path)["file"]
    assert shown(path)["inputs"]


@pytest.mark.parametrize("content", [b"", b"text", b"\x7fELF" + bytes(1000)])
def test_another_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(content)
    with pytest.raises(ArtifactError, match=r"m\.so has no manifest.*export it again"):
        inspect_artifact(path)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "machine": ({"machine": "riscv128"}, r"code for riscv128.*export it for this machine"),
    "backend": (
        {"backend": "somebodys_npu", "loaders": ("byoc_payload",), "package": "some-npu"},
        r"'somebodys_npu' has no runtime here.*pip install some-npu",
    ),
    "TVM": ({"versions": {"tvm": "0.26.1"}}, r'0\.26\.1, here is .*pip install "apache-tvm==0'),
}


@pytest.mark.parametrize(("values", "message"), REFUSED.values(), ids=REFUSED)
def test_what_stands_against_loading_is_told_with_the_remedy(
    host_exe: byoc.Executable, tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    found = inspect_artifact(written(tmp_path / "m.so", replace(host_exe.manifest, **values)))
    assert found.intact
    assert re.search(message, found.refusal)
    assert found.to_dict()["loads_here"] is False


@pytest.mark.parametrize("at", [0, 4, 5, 18], ids=["magic", "class", "byte order", "processor"])
def test_a_library_of_another_kind_than_the_manifest_says_is_told(
    host_exe: byoc.Executable, tmp_path: Path, at: int
) -> None:
    assert not inspect_artifact(written(tmp_path / "m.so", host_exe.manifest)).refusal
    other = bytes(byte ^ (number == at) * 3 for number, byte in enumerate(HEADER))
    for content in (other, HEADER[:at]):
        found = inspect_artifact(written(tmp_path / "m.so", host_exe.manifest, content))
        assert found.intact
        assert "holds no library for this machine" in found.refusal


def test_a_package_that_a_backend_needs_is_missed(
    host_exe: byoc.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(name: str) -> Status:
        return Status(name, ok=name != "openvino", detail="gone", remedy="pip install openvino")

    monkeypatch.setattr(inspection, "probe", probe)
    manifest = replace(host_exe.manifest, backend="openvino", loaders=("byoc_payload",))
    refusal = inspect_artifact(written(tmp_path / "m.so", manifest)).refusal
    assert "gone" in refusal
    assert "pip install openvino" in refusal


def test_another_gpu_is_told(
    host_exe: byoc.Executable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_driver, "ask", lambda: cuda_driver.Driver("13.0", 1, 80))
    target = '{"kind":"cuda","arch":"sm_90"}'
    manifest = replace(
        host_exe.manifest, backend="cuda", target=target, device_code={"machine_code": ["sm_90"]}
    )
    refusal = inspect_artifact(written(tmp_path / "m.so", manifest)).refusal
    assert "holds GPU code for sm_90, the GPU here is sm_80" in refusal
