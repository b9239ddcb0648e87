"""Check that a built wheel contains what it should and nothing else.

    python scripts/check_wheel.py dist/tvm_byoc_kit-*.whl

Expected are the tracked files of ``tvm_byoc_kit/`` (without the C++ sources of the plugins that it
carries compiled), these plugins with their build information, and the CMake package.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "tvm_byoc_kit"
SOURCES_LEFT_OUT = tuple(f"{PACKAGE}/csrc/{part}/" for part in ("core", "cuda_stub", "example_npu"))
BUILT = {
    f"{PACKAGE}/cmake/TvmByocKitConfig.cmake",
    f"{PACKAGE}/cmake/TvmByocKitConfigVersion.cmake",
    f"{PACKAGE}/cmake/TvmByocPlugin.cmake",
    f"{PACKAGE}/cmake/plugin.map",
    f"{PACKAGE}/lib/build_info.json",
    f"{PACKAGE}/lib/libbyoc_core.so",
    f"{PACKAGE}/lib/libbyoc_example_npu.so",
    f"{PACKAGE}/lib/stubs/libcuda.so.1",
}
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


def expected_files() -> set[str]:
    """Return the names that belong into the wheel, metadata left aside."""
    listing = subprocess.run(
        ["git", "ls-files", PACKAGE],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {name for name in listing.split() if not name.startswith(SOURCES_LEFT_OUT)} | BUILT


def problems(wheel: Path) -> list[str]:
    """Return what is wrong with the wheel, one line each; empty when it is right."""
    name, version, *tag = wheel.stem.split("-")
    metadata = {f"{name}-{version}.dist-info/{file}" for file in METADATA}
    expected = expected_files() | metadata
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
    found_problems = [f"missing: {file}" for file in sorted(expected - found)]
    found_problems += [f"unexpected: {file}" for file in sorted(found - expected)]
    if tag[:2] != ["py3", "none"] or tag[2:] == ["any"]:
        found_problems.append(f"tag {'-'.join(tag)}: expected py3-none-<platform>")
    return found_problems


def main() -> int:
    """Check the wheel named on the command line."""
    wheel = Path(sys.argv[1])
    found = problems(wheel)
    for line in found:
        print(f"{wheel.name}: {line}", file=sys.stderr)
    if not found:
        print(f"{wheel.name}: contains what it should")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
