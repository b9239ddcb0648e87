"""The engine cache: what is a hit, and what several processes and strange files do to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tvm_byoc_kit.backends.tensorrt.engine_cache import (
    KEY_OPTIONS,
    OTHER_OPTIONS,
    EngineCache,
    default_directory,
    make_key,
)
from tvm_byoc_kit.backends.tensorrt.graph_bytes import pack_graph
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.payload import Header, pack
from tvm_byoc_kit.files import UNFINISHED

from .small_regions import as_tensorrt, dense, graph_of, rtx

RANGES = ({"n": (1, 8, 32)},)


def engine(size: int = 100, region: str = "r", key: str = "a") -> bytes:
    """A payload with a plan of that size."""
    return pack(Header(region, "tensorrt_rtx", "1.7.1.116", (89,), key=key), bytes(size))


def key(mod: Any = None, **fields: Any) -> str:
    """Of `dense`, but for what is given."""
    given = {
        "vendor": rtx(),
        "options": TensorRTOptions(),
        "capabilities": (89,),
        "profiles": RANGES,
        "gpu": "",
        **fields,
    }
    return make_key(graph_of(dense() if mod is None else mod), **given)


def test_every_option_is_known_to_matter_or_not() -> None:
    assert {*KEY_OPTIONS, *OTHER_OPTIONS} == set(TensorRTOptions.__dataclass_fields__)
    assert not {*KEY_OPTIONS} & {*OTHER_OPTIONS}


OTHER_VALUES: dict[str, Any] = {
    "precision": "fp16",
    "tf32": True,
    "workspace_bytes": 1 << 20,
    "hardware_compatibility": "ampere_plus",
    "version_compatible": True,
    "optimization_level": 5,
    "strip_weights": True,
    "refit": True,
    "timing_cache": "elsewhere",
    "engine_cache": "elsewhere",
    "engine_cache_bytes": 5,
    "build_at": "first_run",
    "progress": False,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_the_key_has_the_options_that_matter(name: str) -> None:
    changed = key(options=TensorRTOptions(**{name: OTHER_VALUES[name]}))
    assert (changed != key()) == (name in KEY_OPTIONS)
    assert {*KEY_OPTIONS} <= {*OTHER_VALUES}


def test_the_key_has_all_that_an_engine_is_made_of() -> None:
    others = [
        key(),
        key(dense(2)),
        key(dense(scale=2)),
        key(capabilities=(89, 120)),
        key(profiles=({"n": (1, 8, 33)},)),
        key(vendor=as_tensorrt()),
        key(vendor=replace(rtx(), release="1.7.2.0")),
        key(gpu="NVIDIA L4"),
    ]
    assert len(set(others)) == len(others)


def test_the_same_region_has_the_same_key_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "region").write_bytes(pack_graph(graph_of(dense())))
    code = """
import sys
from pathlib import Path
from tvm_byoc_kit.backends.tensorrt.engine_cache import make_key
from tvm_byoc_kit.backends.tensorrt.graph_bytes import unpack_graph
from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
from tvm_byoc_kit.backends.tensorrt.vendor import find_vendor
graph = unpack_graph(Path(sys.argv[1]).read_bytes())
ranges = ({"n": (1, 8, 32)},)
print(make_key(graph, find_vendor("tensorrt_rtx"), TensorRTOptions(), (89,), ranges))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "region")]
    keys = {
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    }
    assert len(keys) == 1
    (found,) = keys
    assert len(found.strip()) == 64


def test_what_was_put_is_found_again(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path / "made" / "later")
    assert cache.get("a") is None
    assert cache.entries() == ()
    cache.put("a", engine(100))
    assert cache.get("a") == engine(100)
    assert cache.get("b") is None
    (entry,) = cache.entries()
    assert (entry.key, entry.region, entry.capabilities) == ("a", "r", (89,))
    assert entry.vendor == "tensorrt_rtx 1.7.1.116"
    assert entry.bytes == len(engine(100))


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: data[:0], lambda data: data[:-1] + b"x"]
)
def test_a_damaged_entry_is_a_miss_with_a_warning_and_is_written_over(
    tmp_path: Path, damage: Any
) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(RuntimeWarning, match=r"cannot be used .*; it is built again"):
        assert cache.get("a") is None
    cache.put("a", engine())
    assert cache.get("a") == engine()


@pytest.mark.parametrize("size", [0, 5, 40, 100, -1])
def test_what_is_cut_off_is_listed_as_unreadable(tmp_path: Path, size: int) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:size])
    (entry,) = cache.entries()
    assert (entry.vendor, entry.bytes) == ("unreadable", path.stat().st_size)


def test_a_foreign_file_is_a_miss_with_a_warning(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"\x7fELF and so on" * 100)
    with pytest.warns(RuntimeWarning, match="does not start like one"):
        assert cache.get("a") is None


def test_an_engine_under_another_ones_name_is_a_miss_with_a_warning(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    (path,) = tmp_path.iterdir()
    path.rename(cache._path("b"))
    with pytest.warns(RuntimeWarning, match="another engine.*; it is built again"):
        assert cache.get("b") is None


def test_a_folder_in_its_place_is_a_miss_with_a_warning(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    cache._path("a").mkdir()
    with pytest.warns(RuntimeWarning, match="cannot be used"):
        assert cache.get("a") is None
    with pytest.warns(RuntimeWarning, match="cannot be kept"):
        cache.put("a", engine())


def test_what_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="the engine cannot be kept"):
        EngineCache(tmp_path / "file").put("a", engine())
    assert EngineCache(tmp_path / "file").get("a") is None  # and is not warned of twice


def test_the_least_recently_used_goes_first_and_the_newest_stays(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path, limit=3 * len(engine(1000)) + 10)
    for number, name in enumerate("abc"):
        cache.put(name, engine(1000, key=name))
        os.utime(cache._path(name), (number, number))
    assert cache.get("a")  # counts as used now
    cache.put("d", engine(1000))
    assert {entry.key for entry in cache.entries()} == {"a", "c", "d"}
    cache.put("e", engine(9000))  # more than may be there
    assert {entry.key for entry in cache.entries()} == {"e"}


def test_clear_takes_engines_and_leftovers_and_nothing_else(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    cache.put("b", engine())
    foreign = tmp_path / "model.engine"
    foreign.write_bytes(b"another tool's")
    old, fresh = tmp_path / f"{UNFINISHED}old", tmp_path / f"{UNFINISHED}new"
    for path in (old, fresh):
        path.mkdir()
        (path / "unfinished").write_bytes(b"begun")
    os.utime(old, (0, time.time() - 7200))
    assert cache.clear() == 2
    assert set(tmp_path.iterdir()) == {foreign, fresh}
    assert cache.clear() == 0
    assert EngineCache(tmp_path / "none").clear() == 0


HAMMER = """
import sys
from tvm_byoc_kit.backends.tensorrt.engine_cache import EngineCache
from tvm_byoc_kit.backends.tensorrt.payload import Header, pack
from tvm_byoc_kit.files import UNFINISHED
cache = EngineCache(sys.argv[1], limit=200_000)
hits = 0
for turn in range(150):
    name = f"k{(turn * int(sys.argv[2])) % 7}"
    header = Header(name, "tensorrt_rtx", "1", (89,), key=name)
    whole = pack(header, name.encode() * 20_000)
    assert cache.get(name) in (None, whole), name
    cache.put(name, whole)
    found = cache.get(name)  # unless another process has cleared the folder, or needed the room
    assert found in (None, whole), name
    hits += found is not None
    if turn % 50 == 0:
        cache.clear()
    cache.entries()
print(hits)
"""


def test_several_processes_share_a_folder(tmp_path: Path) -> None:
    commands = [[sys.executable, "-W", "error", "-c", HAMMER, tmp_path, n] for n in ("2", "3", "5")]
    runs = [
        subprocess.Popen(list(map(str, command)), stdout=-1, stderr=-1, text=True)
        for command in commands
    ]
    for run in runs:
        out, err = run.communicate()
        assert run.returncode == 0, err
        assert int(out) > 0
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(UNFINISHED)]


def test_the_folder_is_the_variables_or_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TVM_BYOC_ENGINE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_directory() == tmp_path / "tvm_byoc_kit" / "engines"
    monkeypatch.setenv("TVM_BYOC_ENGINE_CACHE", "/elsewhere")
    assert default_directory() == Path("/elsewhere")


def test_a_hit_warns_of_nothing(tmp_path: Path) -> None:
    cache = EngineCache(tmp_path)
    cache.put("a", engine())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get("a")
        assert cache.get("b") is None
