"""Compiling kernels: what is compiled again, what is not, and what ends up in the artifact."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.relax import op

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.cutlass import codegen, compiling
from tvm_byoc_kit.backends.cutlass.compiling import KernelCache, compile_kernels, make_key
from tvm_byoc_kit.backends.cutlass.options import CutlassOptions
from tvm_byoc_kit.cuda_toolkit import CudaToolkit
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError
from tvm_byoc_kit.fat_binary import device_code

from ..predicate_tools import module  # noqa: TID252 - what other backends are tested with
from .library import build_library


class Recorder(CudaToolkit):
    """A toolkit that compiles a source to its own text, and keeps what it was asked for."""

    runs: list[Sequence[str]]
    fails: bool = False

    def run(self, arguments: Sequence[str]) -> str:
        self.runs.append(arguments)
        source, made = Path(arguments[-3]), Path(arguments[-1])
        if self.fails:
            raise ModelError("nvcc fails: no such template")
        made.write_text("object of " + source.read_text())
        return ""


@pytest.fixture
def toolkit() -> Recorder:
    made = Recorder("/cuda/bin/nvcc", "13.0", Path("/cuda"), ("sm_80", "sm_90"))
    object.__setattr__(made, "runs", [])
    return made


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(str(tmp_path / "kernels"), 1 << 20)


SOURCES = {"a": "int a;", "b": "int b;", "c": "int c;"}
OBJECTS = {name: f"object of {source}".encode() for name, source in SOURCES.items()}


def compiled(
    toolkit: CudaToolkit, cache: KernelCache | None, reported: Any = None, **given: Any
) -> dict[str, bytes]:
    report = reported.append if reported is not None else lambda _: None
    settings = {"architectures": ("sm_80",), "jobs": 2, **given}
    return compile_kernels(
        SOURCES, toolkit, cache=cache, report=lambda *counts: report(counts), **settings
    )


def test_every_kernel_is_compiled_once_and_then_taken_from_the_cache(
    toolkit: Recorder, cache: KernelCache
) -> None:
    first: list[tuple[int, int]] = []
    again: list[tuple[int, int]] = []
    assert compiled(toolkit, cache, first) == OBJECTS
    assert compiled(toolkit, cache, again) == OBJECTS
    assert len(toolkit.runs) == 3
    assert first == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert again == [(0, 0)]


def test_without_a_cache_every_build_compiles(toolkit: Recorder) -> None:
    assert compiled(toolkit, None) == compiled(toolkit, None) == OBJECTS
    assert len(toolkit.runs) == 6


def test_code_is_made_for_all_architectures_and_no_ptx(toolkit: Recorder) -> None:
    compiled(toolkit, None, architectures=("sm_80", "sm_90"))
    for run in toolkit.runs:
        options = [option for option in run if "gencode" in option]
        assert options == ["-gencode=arch=compute_80,code=[sm_80,sm_90]"]


def test_so_many_kernels_as_jobs_are_compiled_at_once(
    toolkit: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(2, timeout=600)  # broken, if they come one by one

    def compile_one(name: str, *_: Any) -> bytes:
        if name != "c":
            together.wait()
        return name.encode()

    monkeypatch.setattr(compiling, "_compile", compile_one)
    assert compiled(toolkit, None) == {"a": b"a", "b": b"b", "c": b"c"}


def test_the_key_has_all_that_an_object_is_made_of(
    toolkit: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    known = make_key("int a;", toolkit, ("sm_80",))
    assert known == make_key("int a;", toolkit, ("sm_80",))
    newer = CudaToolkit(toolkit.nvcc, "13.1", toolkit.root, toolkit.architectures)
    others = {
        make_key("int b;", toolkit, ("sm_80",)),
        make_key("int a;", toolkit, ("sm_90",)),
        make_key("int a;", toolkit, ("sm_80", "sm_90")),
        make_key("int a;", newer, ("sm_80",)),
    }
    monkeypatch.setattr(compiling, "_FLAGS", ("-O1",))
    others.add(make_key("int a;", toolkit, ("sm_80",)))
    monkeypatch.undo()
    monkeypatch.setattr(compiling, "HEADERS", tmp_path)
    others.add(make_key("int a;", toolkit, ("sm_80",)))
    assert known not in others
    assert len(others) == 6


def test_a_damaged_file_is_compiled_again_with_a_warning(
    toolkit: Recorder, cache: KernelCache
) -> None:
    compiled(toolkit, cache)
    victim = cache.files()[0]
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.warns(RuntimeWarning, match="cached kernel .* cannot be used .*damaged"):
        assert compiled(toolkit, cache) == OBJECTS
    assert len(toolkit.runs) == 4
    assert compiled(toolkit, cache) == OBJECTS
    assert len(toolkit.runs) == 4


def test_a_kernel_under_the_name_of_another_is_compiled_again(
    toolkit: Recorder, cache: KernelCache
) -> None:
    compiled(toolkit, cache)
    first, second, _ = cache.files()
    first.write_bytes(second.read_bytes())
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert compiled(toolkit, cache) == OBJECTS


def test_the_folder_stays_within_its_size(toolkit: Recorder, tmp_path: Path) -> None:
    small = KernelCache(str(tmp_path), 300)
    compiled(toolkit, small, jobs=1)
    assert sum(path.stat().st_size for path in small.files()) <= 300


def test_what_nvcc_says_is_told_and_what_was_compiled_before_is_kept(
    toolkit: Recorder, cache: KernelCache
) -> None:
    compiled(toolkit, cache)
    object.__setattr__(toolkit, "fails", True)
    with pytest.raises(ModelError, match="no such template"):
        compiled(toolkit, cache, architectures=("sm_90",))
    assert compiled(toolkit, cache) == OBJECTS


WRITER = """
import sys
from tvm_byoc_kit.backends.cutlass.compiling import KernelCache
cache = KernelCache(sys.argv[1], 1 << 20)
key = "k" * 64
for _ in range(50):
    cache.put_object(key, bytes(100_000))
    assert cache.get_object(key) == bytes(100_000)
"""


def test_processes_that_write_one_kernel_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in running:
        _, said = process.communicate()
        assert process.returncode == 0, said.decode()


def test_the_cache_is_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TVM_BYOC_KERNEL_CACHE", str(tmp_path))
    assert KernelCache(None, 1).directory == tmp_path
    monkeypatch.delenv("TVM_BYOC_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert KernelCache(None, 1).directory == tmp_path / "tvm_byoc_kit" / "kernels"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architectures": ("sm_60",)}, "architectures=.*some of sm_75, sm_80"),
        ({"architectures": 80}, "architectures=80"),
        ({"float32": "fp32"}, "float32='fp32'.*tf32, 3xtf32"),
        ({"jobs": 0}, "jobs=0"),
        ({"cache": 3}, "cache=3"),
        ({"cache_bytes": -1}, "cache_bytes=-1"),
        ({"progress": "yes"}, "progress='yes'"),
        ({"architecture": "sm_80"}, "no option 'architecture'.*did you mean 'architectures'"),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        byoc.get_backend("cutlass").make_options(options)


def test_architectures_are_in_order_however_they_are_given() -> None:
    assert CutlassOptions(architectures="sm_90").architectures == ("sm_90",)
    assert CutlassOptions(architectures=["sm_90", "sm_80"]).architectures == ("sm_80", "sm_90")


def test_the_page_names_every_option_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs/cutlass.md").read_text(encoding="utf-8")
    options = page.partition("## Options")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]*\| ([^|]+) \|", options, re.MULTILINE))
    assert set(rows) == set(CutlassOptions.__dataclass_fields__)
    for name in ("float32", "measure", "jobs", "progress"):
        assert rows[name].strip("`") == str(getattr(CutlassOptions(), name))


# Regions


def layer() -> Any:
    """A linear layer with GELU, and a region that is refused nothing."""

    def body(x: Any, w: Any, b: Any) -> Any:
        return op.nn.gelu(op.add(op.matmul(x, w), b))

    tensors = [((4, 64), "float16"), ((64, 32), "float16"), ((32,), "float16")]
    return module(tensors, body)


def run_codegen(mod: Any, **options: Any) -> Any:
    parts = byoc.partition(mod, "cutlass")
    functions = [parts.mod[region.name] for region in parts.coverage.regions]
    return codegen.compile_regions(functions, options, {})


def test_a_target_must_say_which_gpu_it_means() -> None:
    with pytest.raises(OptionError, match=r"target='a100'.*architectures=\('sm_80'"):
        run_codegen(layer())


def test_regions_that_were_merged_are_refused() -> None:
    def body(x: Any, w: Any) -> Any:
        return op.matmul(op.matmul(x, w), w)

    mod = module([((8, 8), "float16")] * 2, body)
    parts = byoc.partition(mod, "cutlass", annotate_codegen=False)
    functions = [parts.mod[region.name] for region in parts.coverage.regions]
    with pytest.raises(ModelError, match=r"2 matches and 0 constants.*annotate_codegen=True"):
        codegen.compile_regions(functions, {"architectures": "sm_80"}, {})


def test_without_nvcc_it_is_said_what_adds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codegen, "find_toolkit", lambda: "nvcc is not found")
    with pytest.raises(BackendUnavailable, match=r"nvcc is not found.*pip install .*\[cuda\]"):
        run_codegen(layer(), architectures="sm_80")


def test_without_the_runtime_library_it_is_said_what_adds_it(
    monkeypatch: pytest.MonkeyPatch, toolkit: Recorder
) -> None:
    monkeypatch.setattr(codegen, "find_toolkit", lambda: toolkit)
    with pytest.raises(BackendUnavailable, match=r"libcudart_static\.a of CUDA 13\.0"):
        run_codegen(layer(), architectures="sm_80")


@pytest.mark.slow
def test_a_region_is_compiled_linked_and_loaded_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = byoc.get_backend("cutlass").check("codegen")
    if not status:
        pytest.skip(status.detail)
    path = tmp_path / "layer.so"
    options = {"architectures": ("sm_80", "sm_90"), "cache": str(tmp_path / "kernels")}
    loaded = build_library(path, {"layer": layer()}, **options)
    assert device_code(path).machine_code == ("sm_80", "sm_90")
    assert not device_code(path).ptx
    assert exported(path) == {"__tvm_ffi_layer"}
    assert not [name for name in needed(path) if "cuda" in name]
    tensors = [np.zeros(dims, "float16") for dims in ((4, 64), (64, 32), (32,), (4, 32))]
    with pytest.raises(ValueError, match=r"byoc_gemm_f16_.* runs on an NVIDIA GPU"):
        loaded["layer"](*map(tvm.runtime.tensor, tensors))
    monkeypatch.setattr(compiling, "_compile", None)  # what is cached is not compiled
    build_library(tmp_path / "again.so", {"other": layer()}, **options)
    assert exported(tmp_path / "again.so") == {"__tvm_ffi_other"}


def exported(path: Path) -> set[str]:
    """What a library defines for others."""
    return {line.split()[-1] for line in _nm(path, "--defined-only")}


def needed(path: Path) -> set[str]:
    """What a library takes from others."""
    return {line.split()[-1] for line in _nm(path, "--undefined-only")}


def _nm(path: Path, which: str) -> list[str]:
    command = ["nm", "-D", which, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
