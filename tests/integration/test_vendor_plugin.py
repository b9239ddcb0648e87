"""A vendor's own project builds a plugin with the CMake package that the kit installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_byoc_kit import native

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.20)
project(vendor LANGUAGES {languages})
find_package(TvmByocKit 0.1 CONFIG REQUIRED)
{body}
"""

# Parses a region's graph with the kit's header and says how many kernels the vendor would run.
VENDOR_CC = """\
#include <byoc/graph.h>
#include <tvm/ffi/reflection/registry.h>

namespace {

int64_t CountKernels(tvm::ffi::String json) {
  int64_t kernels = 0;
  for (const byoc::Node& node : byoc::ParseGraph(json).nodes) {
    kernels += node.kind == byoc::Node::Kind::kKernel;
  }
  return kernels * VENDOR_WEIGHT;
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("vendor.count_kernels", CountKernels);
}

}  // namespace
"""

GRAPH = """\
{"nodes": [
   {"op": "input", "name": "x", "attrs": {"shape": [[2]], "dtype": ["float32"]}},
   {"op": "kernel", "name": "vendor.relu", "inputs": [[0, 0, 0]],
    "attrs": {"num_inputs": 1, "num_outputs": 1, "shape": [[2]], "dtype": ["float32"],
              "ops": [{"op": "relax.nn.relu", "args": [[0, 0]], "attrs": {},
                       "shape": [[2]], "dtype": ["float32"]}],
              "results": [[1, 0]]}}],
 "arg_nodes": [0], "heads": [[1, 0, 0]], "node_row_ptr": [0, 1, 2]}
"""

LOAD_AND_CALL = """
import ctypes, sys
import tvm_ffi
ctypes.CDLL(sys.argv[1])
print(tvm_ffi.get_global_func("vendor.count_kernels")(sys.argv[2]))
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def configure(source: Path, body: str, languages: str = "CXX") -> subprocess.CompletedProcess[str]:
    if not shutil.which("cmake"):
        pytest.skip("cmake is missing: pip install cmake")
    (source / "CMakeLists.txt").write_text(CMAKE_LISTS.format(body=body, languages=languages))
    choices = [f"-DTvmByocKit_DIR={native.cmake_dir()}", f"-DPython_EXECUTABLE={sys.executable}"]
    return run("cmake", "-S", source, "-B", source / "build", *choices)


@pytest.mark.slow
def test_vendor_plugin_builds_against_the_installed_kit_and_reads_a_graph(tmp_path: Path) -> None:
    if not any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
        pytest.skip("no C++ compiler: install g++")
    (tmp_path / "vendor.cc").write_text(VENDOR_CC)
    configured = configure(
        tmp_path,
        "tvm_byoc_add_plugin(byoc_vendor SOURCES vendor.cc COMPILE_OPTIONS -Wall -Wextra -Werror\n"
        "  COMPILE_DEFINITIONS VENDOR_WEIGHT=10 DESTINATION lib)\n"
        "tvm_byoc_write_build_info(1.2.3 DESTINATION lib PLUGINS vendor)",
    )
    assert configured.returncode == 0, configured.stderr
    for step in ("--build", "--install"):
        prefix = ["--prefix", tmp_path / "prefix"] if step == "--install" else []
        done = run("cmake", step, tmp_path / "build", *prefix)
        assert done.returncode == 0, done.stdout + done.stderr
    installed = tmp_path / "prefix" / "lib"
    assert (installed / "build_info.json").exists()
    called = run(sys.executable, "-c", LOAD_AND_CALL, installed / "libbyoc_vendor.so", GRAPH)
    assert called.stdout == "10\n", called.stderr


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("tvm_byoc_add_plugin(npu)", "tvm_byoc_add_plugin(npu): SOURCES is required"),
        (
            "tvm_byoc_add_plugin(npu SOURCES a.cc LIBS foo DESTINATION)",
            'tvm_byoc_add_plugin(npu): no value after "DESTINATION"',
        ),
        (
            "tvm_byoc_add_plugin(npu EXTRA SOURCES a.cc)",
            'tvm_byoc_add_plugin(npu): unknown arguments "EXTRA"',
        ),
        (
            "add_custom_target(npu)\ntvm_byoc_add_plugin(npu SOURCES a.cc)",
            "tvm_byoc_add_plugin(npu): a target of that name already exists",
        ),
        (
            "tvm_byoc_write_build_info(1.0 PLUGINS npu)",
            "tvm_byoc_write_build_info(1.0): expects",
        ),
    ],
)
def test_wrong_use_is_refused_naming_function_and_target(
    tmp_path: Path, body: str, expected: str
) -> None:
    configured = configure(tmp_path, body, languages="NONE")
    assert configured.returncode != 0
    assert expected in " ".join(configured.stderr.split())
