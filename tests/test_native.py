"""The guards around the compiled plugins: nothing wrong is loaded, nothing is loaded twice."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tvm_ffi

from tvm_byoc_kit import native
from tvm_byoc_kit.errors import OptionError, PluginError

FFI = tvm_ffi.__version__
FUNCTIONS = native.PLUGINS["example_npu"].functions
BUILD_INFO = {"kit": "0.1.0", "tvm_ffi": FFI, "compiler": "GNU 12.2.0", "plugins": ["fake"]}

needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="needs gcc to compile a library")
needs_plugin = pytest.mark.skipif(
    not native.inspect("example_npu"), reason=f"needs the plugin: {native.inspect('example_npu')}"
)


@pytest.fixture
def fake(tmp_path: Path) -> native.Plugin:
    """A plugin in its own directory, whose library is not an ELF file."""
    plugin = native.Plugin("fake", ("byoc.test.fake", "byoc.test.fake_too"), tmp_path)
    plugin.library.write_bytes(b"not a library")
    write_build_info(plugin)
    return plugin


@pytest.fixture
def registered() -> Iterator[list[str]]:
    """Names given to this list are registered as global functions until the test ends."""
    names: list[str] = []
    yield names
    for name in names:
        tvm_ffi.remove_global_func(name)


def write_build_info(plugin: native.Plugin, **changes: object) -> None:
    text = json.dumps({**BUILD_INFO, **changes})
    (plugin.directory / "build_info.json").write_text(text, encoding="utf-8")


def register(names: list[str], *new: str) -> None:
    for name in new:
        tvm_ffi.register_global_func(name, lambda: None)
        names.append(name)


def compile_library(plugin: native.Plugin, source: str) -> None:
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(plugin.library)]
    subprocess.run(command, input=source, text=True, check=True)


def output(script: str, *, path: Path | None = None, **environment: str) -> str:
    """Run a script in a fresh interpreter, which must succeed, and return what it prints."""
    done = run(script, path=path, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run(
    script: str, *, path: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    paths = filter(None, [path and str(path), os.environ.get("PYTHONPATH")])
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd="/",  # not the checkout, which would hide the installed package
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
    )


# --- what is refused before anything is opened ---------------------------------------------------


def test_a_missing_library_is_reported_with_its_path_and_a_rebuild_command(
    fake: native.Plugin,
) -> None:
    fake.library.unlink()
    status = native.load(fake)
    assert not status
    assert str(fake.library) in status.detail
    assert "pip install --force-reinstall" in status.remedy


def test_a_vendor_s_plugin_names_its_own_rebuild_command(fake: native.Plugin) -> None:
    fake.library.unlink()
    status = native.load(dataclasses.replace(fake, rebuild="pip install fake"))
    assert status.remedy == "pip install fake"


def test_a_library_built_for_another_tvm_ffi_is_refused_before_it_is_opened(
    fake: native.Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kw: pytest.fail("it was opened"))
    write_build_info(fake, tvm_ffi="0.1.0")
    status = native.load(fake)
    assert not status
    assert "0.1.0" in status.detail
    assert FFI in status.detail
    # pip's isolated build would use the tvm-ffi that the kit pins, not the one installed here.
    assert "--no-build-isolation" in status.remedy


@pytest.mark.parametrize("version", [f"{FFI}.post9", FFI[:-1], f"{FFI}+local", ""])
def test_only_the_very_same_version_of_tvm_ffi_will_do(fake: native.Plugin, version: str) -> None:
    write_build_info(fake, tvm_ffi=version)
    assert "was built for apache-tvm-ffi" in native.load(fake).detail


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kit": "0.1.0"}', '{"plugins": 1}'])
def test_a_damaged_build_info_is_refused(fake: native.Plugin, text: str) -> None:
    (fake.directory / "build_info.json").write_text(text, encoding="utf-8")
    status = native.load(fake)
    assert not status
    assert "build_info.json is damaged" in status.detail
    with pytest.raises(PluginError, match="damaged"):
        native.read_build_info(fake.directory)


def test_a_library_without_build_info_is_refused(fake: native.Plugin) -> None:
    (fake.directory / "build_info.json").unlink()
    assert "build_info.json does not exist" in native.load(fake).detail


def test_a_library_left_over_from_an_earlier_build_is_refused(fake: native.Plugin) -> None:
    write_build_info(fake, plugins=["another"])
    assert "does not list it" in native.load(fake).detail


def test_inspect_gives_the_same_verdict_without_importing_tvm(fake: native.Plugin) -> None:
    assert native.inspect(fake)
    write_build_info(fake, tvm_ffi="0.1.0")
    assert native.inspect(fake) == native.load(fake)
    script = "import sys; from tvm_byoc_kit import native; native.inspect('example_npu')\n"
    assert output(f"{script}print({{'tvm', 'tvm_ffi'}} & set(sys.modules))") == "set()"


def test_an_unknown_plugin_is_an_option_error_that_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"example_npuu.*example_npu"):
        native.load("example_npuu")


# --- what the system cannot load -----------------------------------------------------------------


def test_a_file_that_is_not_a_library_is_reported(fake: native.Plugin) -> None:
    status = native.load(fake)
    assert not status
    assert "cannot load" in status.detail
    assert fake.library.name in status.detail
    assert status.remedy


def test_a_library_for_another_processor_is_reported(fake: native.Plugin) -> None:
    real = Path(tvm_ffi.libinfo.find_libtvm_ffi()).read_bytes()
    machine = (0xF3).to_bytes(2, "little")  # ELF e_machine: RISC-V
    fake.library.write_bytes(real[:18] + machine + real[20:])
    assert "cannot load" in native.load(fake).detail


@needs_gcc
def test_a_library_with_an_undefined_symbol_is_reported_by_the_symbol(fake: native.Plugin) -> None:
    compile_library(fake, "extern int byoc_no_such_symbol(void); int f(void) {"
                          " return byoc_no_such_symbol(); }")  # fmt: skip
    assert "byoc_no_such_symbol" in native.load(fake).detail


@needs_gcc
def test_a_library_that_registers_nothing_is_reported_every_time(fake: native.Plugin) -> None:
    compile_library(fake, "int f(void) { return 0; }")
    status = native.load(fake)
    assert "does not register byoc.test.fake, byoc.test.fake_too" in status.detail
    assert native.load(fake) == status
    assert not native.is_loaded(fake)


# --- what is there already -----------------------------------------------------------------------


def test_functions_that_are_there_already_are_taken_and_nothing_is_opened(
    fake: native.Plugin, registered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kw: pytest.fail("it was opened"))
    register(registered, *fake.functions)
    assert native.load(fake)
    assert not native.is_loaded(fake)


def test_functions_that_are_there_in_part_are_refused_by_name(
    fake: native.Plugin, registered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_args, **_kw: pytest.fail("it was opened"))
    register(registered, fake.functions[0])
    status = native.load(fake)
    assert not status
    assert f"has {fake.functions[0]} itself but not {fake.functions[1]}" in status.detail


def test_in_runtime_only_mode_a_missing_codegen_of_tvm_itself_is_no_fault() -> None:
    names = [name for name in FUNCTIONS if not name.startswith("relax.ext.")]
    script = (
        "import tvm_ffi, sys\n"
        f"for name in {names}: tvm_ffi.register_global_func(name, lambda: None)\n"
        "from tvm_byoc_kit import native\n"
        "import tvm\n"
        "status = native.load('example_npu')\n"
        "print(status.ok, tvm._RUNTIME_ONLY, 'byoc_example_npu' in open('/proc/self/maps').read())"
    )
    assert output(script, TVM_USE_RUNTIME_LIB="1") == "True True False"


def test_eight_threads_open_a_library_once(
    fake: native.Plugin, registered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_slowly(*_args: object, **_kw: object) -> None:
        time.sleep(0.05)
        register(registered, *fake.functions)  # a second time it would raise

    monkeypatch.setattr(ctypes, "CDLL", open_slowly)
    start = threading.Barrier(8)

    def load() -> bool:
        start.wait()
        return bool(native.load(fake))

    with ThreadPoolExecutor(8) as pool:
        assert [job.result() for job in [pool.submit(load) for _ in range(8)]] == [True] * 8
    assert len(registered) == len(fake.functions)
    assert native.is_loaded(fake)


# --- the real plugin, in fresh processes ---------------------------------------------------------

PRESENT = (
    "import tvm_ffi\n"
    f"have = [tvm_ffi.get_global_func(n, allow_missing=True) is not None for n in {FUNCTIONS}]\n"
    "maps = [line for line in open('/proc/self/maps') if 'libbyoc_example_npu' in line]\n"
    "print(all(have), any(have), len({line.split()[-1] for line in maps}))"
)
NO_TORCH = "import sys; sys.modules['torch'] = None\n"  # tvm_ffi would import it, for seconds
LOADED, ABSENT, PROVIDED = "True True 1", "False False 0", "True True 0"


@pytest.fixture
def entry_point(tmp_path: Path) -> Path:
    """A directory for PYTHONPATH that makes `import tvm` call the kit's autoload."""
    info = tmp_path / "byoc_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: byoc_test\nVersion: 1\n", encoding="utf-8")
    point = "[tvm.backends]\nbyoc_test = tvm_byoc_kit.native:autoload\n"
    (info / "entry_points.txt").write_text(point, encoding="utf-8")
    return tmp_path


@needs_plugin
def test_loading_twice_and_from_threads_opens_the_plugin_once() -> None:
    script = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from tvm_byoc_kit import native\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    assert all(pool.map(native.load, ['example_npu'] * 16))\n"
        "assert native.load('example_npu') and native.is_loaded('example_npu')\n"
    )
    assert output(NO_TORCH + script + PRESENT) == LOADED


@needs_plugin
def test_the_plugin_is_not_opened_where_tvm_has_its_functions() -> None:
    script = (
        "import tvm_ffi\n"
        f"for name in {FUNCTIONS}: tvm_ffi.register_global_func(name, lambda: None)\n"
        "from tvm_byoc_kit import native\n"
        "assert native.load('example_npu')\n"
        "import tvm\n"
    )
    assert output(NO_TORCH + script + PRESENT) == PROVIDED


@needs_plugin
def test_the_doctor_says_that_a_tvm_has_the_example_npu_built_in(entry_point: Path) -> None:
    script = (
        "import tvm_ffi\n"
        f"for name in {FUNCTIONS}: tvm_ffi.register_global_func(name, lambda: None)\n"
        "import warnings; warnings.simplefilter('error'); import tvm\n"
        "from tvm_byoc_kit.doctor import doctor\n"
        "rows = {(row.what, row.step): row for row in doctor().rows}\n"
        "row = rows['plugin:example_npu', '']\n"
        "assert row.ok and row.detail == 'built into this TVM, nothing loaded', row\n"
        "row = rows['example_npu', 'device']\n"
        "assert not row.ok and 'computes nothing' in row.detail, row\n"
    )
    assert output(NO_TORCH + script + PRESENT, path=entry_point) == PROVIDED


@needs_plugin
def test_a_second_copy_of_the_plugin_is_not_opened_though_it_would_abort(tmp_path: Path) -> None:
    for name in ("libbyoc_example_npu.so", "build_info.json"):
        shutil.copy(native.LIB_DIR / name, tmp_path)
    first = (
        NO_TORCH
        + "import ctypes, tvm\nfrom tvm_byoc_kit import native\nnative.load('example_npu')\n"
    )
    copy = f"native.Plugin('example_npu', {FUNCTIONS}, native.Path({str(tmp_path)!r}))"
    assert output(f"{first}assert native.load({copy})\n{PRESENT}") == LOADED
    assert run(f"{first}ctypes.CDLL({copy}.library)").returncode != 0


@needs_plugin
def test_import_tvm_loads_the_plugin_by_the_entry_point(entry_point: Path) -> None:
    script = "import warnings; warnings.simplefilter('error'); import tvm\n"
    assert output(NO_TORCH + script + PRESENT, path=entry_point) == LOADED


@needs_plugin
def test_import_tvm_loads_the_plugin_in_runtime_only_mode(entry_point: Path) -> None:
    script = (
        "import warnings; warnings.simplefilter('error'); import tvm\n"
        "assert tvm._RUNTIME_ONLY and not hasattr(tvm, 'relax')\n"
    )
    assert output(NO_TORCH + script + PRESENT, path=entry_point, TVM_USE_RUNTIME_LIB="1") == LOADED


@needs_plugin
def test_autoload_can_be_turned_off_and_loading_by_hand_still_works(entry_point: Path) -> None:
    script = (
        "import tvm\n"
        "from tvm_byoc_kit import native\n"
        "from tvm_byoc_kit.availability import probe\n"
        "status = probe('codegen:example_npu')\n"
        "assert not status and 'TVM_DEVICE_BACKEND_AUTOLOAD' in status.detail, status\n"
    )
    off = {"TVM_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert output(NO_TORCH + script + PRESENT, path=entry_point, **off) == ABSENT
    by_hand = script + "assert native.load('example_npu') and probe('codegen:example_npu')\n"
    assert output(NO_TORCH + by_hand + PRESENT, path=entry_point, **off) == LOADED


@needs_plugin
def test_loading_while_another_thread_imports_tvm_does_not_deadlock(entry_point: Path) -> None:
    script = (
        "import importlib, threading\n"
        "from tvm_byoc_kit import native\n"
        "jobs = [threading.Thread(target=f, args=a, daemon=True) for f, a in\n"
        "        [(importlib.import_module, ('tvm',)), (native.load, ('example_npu',))] * 4]\n"
        "[job.start() for job in jobs]; [job.join(60) for job in jobs]\n"
        "assert not any(job.is_alive() for job in jobs)\n"
    )
    assert output(NO_TORCH + script + PRESENT, path=entry_point) == LOADED


# --- autoload, cmake_dir, without_torch ----------------------------------------------------------


@pytest.fixture
def only_fake(fake: native.Plugin, monkeypatch: pytest.MonkeyPatch) -> native.Plugin:
    """The kit has the fake plugin and no other."""
    monkeypatch.setattr(native, "PLUGINS", {"fake": fake})
    monkeypatch.setattr(native, "LIB_DIR", fake.directory)
    return fake


def test_autoload_turns_a_mismatch_into_one_warning_with_the_remedy(
    only_fake: native.Plugin,
) -> None:
    write_build_info(only_fake, tvm_ffi="0.1.0")
    with pytest.warns(RuntimeWarning, match=r"0\.1\.0,.*To add it: pip install") as caught:
        native.autoload()
    assert [item.category for item in caught].count(RuntimeWarning) == 1


def test_autoload_says_nothing_in_an_installation_without_compiled_plugins(
    only_fake: native.Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "LIB_DIR", only_fake.directory / "lib")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        native.autoload()


def test_cmake_dir_holds_the_package_configuration_of_the_kit() -> None:
    assert (native.cmake_dir() / "TvmByocKitConfig.cmake").is_file()


def test_cmake_dir_names_the_places_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "_PACKAGE", tmp_path / "tvm_byoc_kit")
    with pytest.raises(PluginError, match=r"tvm_byoc_kit/cmake.*pip install"):
        native.cmake_dir()


def test_without_torch_keeps_torch_out_of_import_tvm_and_lets_it_be_imported_later() -> None:
    pytest.importorskip("torch")
    script = (
        "import sys\n"
        "from tvm_byoc_kit import native\n"
        "with native.without_torch():\n"
        "    import tvm\n"
        "assert 'torch' not in sys.modules\n"
        "import torch, numpy\n"
        "array = tvm.runtime.from_dlpack(torch.arange(3)).numpy()\n"
        "print(array.tolist())"
    )
    assert output(script) == "[0, 1, 2]"


def test_without_torch_leaves_an_imported_torch_alone() -> None:
    torch = pytest.importorskip("torch")
    with native.without_torch():
        assert sys.modules["torch"] is torch
    assert sys.modules["torch"] is torch
