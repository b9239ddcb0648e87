"""Sources to one object: kernels by nvcc, side by side and out of a cache, and the rest by g++.

The object holds CUDA's runtime too (``libcudart_static.a``), and nothing of it can be seen from
outside but the functions of the regions: an artifact needs no library of CUDA beside the driver,
and does not get into the way of the one that TVM loads.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit import toolchain
from tvm_byoc_kit.backends.cutlass.sources import HEADERS
from tvm_byoc_kit.errors import ArtifactError, BackendUnavailable
from tvm_byoc_kit.file_cache import FileCache, cache_directory

if TYPE_CHECKING:
    from tvm_byoc_kit.cuda_toolkit import CudaToolkit

__all__ = ["KernelCache", "compile_kernels", "link_regions", "make_key"]

DIRECTORY_VARIABLE = "TVM_BYOC_KERNEL_CACHE"
_FLAGS = (
    "-std=c++17",
    "-O3",
    "-DNDEBUG",
    "-w",  # CUTLASS's headers warn by the page
    "-Xcompiler=-fPIC,-fvisibility=hidden",
)
_DIGEST = 64  # characters of a SHA-256

Report = Callable[[int, int], None]


class KernelCache(FileCache):
    """A folder of compiled kernels: objects, each after its key and its own checksum.

    Parameters
    ----------
    directory : str, optional
        None: ``$TVM_BYOC_KERNEL_CACHE``, or ``tvm_byoc_kit/kernels`` in the user's cache.
    limit : int
        As in `FileCache`.
    """

    suffix = ".byoc-kernel"
    what = "kernel"

    def __init__(self, directory: str | None, limit: int) -> None:
        default = cache_directory(DIRECTORY_VARIABLE, "kernels")
        super().__init__(default if directory is None else directory, limit)

    def check(self, key: str, data: bytes) -> None:
        """That the file has the key's name for a reason, and is whole."""
        if data != _packed(key, data[2 * _DIGEST :]):
            raise ArtifactError("it is damaged, or another kernel under a name that is not its own")

    def get_object(self, key: str) -> bytes | None:
        """The object under `key`, or None."""
        data = self.get(key)
        return None if data is None else data[2 * _DIGEST :]

    def put_object(self, key: str, data: bytes) -> None:
        """Keep an object."""
        self.put(key, _packed(key, data))


def _packed(key: str, data: bytes) -> bytes:
    return key.encode() + hashlib.sha256(data).hexdigest().encode() + data


def make_key(source: str, toolkit: CudaToolkit, architectures: Sequence[str]) -> str:
    """All that an object depends on: source, headers, flags, architectures, compilers."""
    headers = [path.read_text(encoding="utf-8") for path in sorted(HEADERS.glob("*.h"))]
    version = (_cutlass() / "cutlass" / "version.h").read_text(encoding="utf-8")
    cxx = toolchain.find_cxx()
    compilers = (str(toolkit.version), str(cxx and toolchain.tool_version(cxx)))
    parts = (source, *headers, version, *_FLAGS, *architectures, *compilers)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_kernels(
    sources: Mapping[str, str],
    toolkit: CudaToolkit,
    architectures: Sequence[str],
    *,
    jobs: int,
    cache: KernelCache | None,
    report: Report,
) -> dict[str, bytes]:
    """Objects of files of kernels, by name as `sources` are.

    Parameters
    ----------
    sources : mapping of str to str
    toolkit : CudaToolkit
    architectures : sequence of str
        Each object has code for all of them.
    jobs : int
        Runs of nvcc at once.
    cache : KernelCache, optional
    report : callable
        Is told how many files are done, and how many there are to compile.

    Raises
    ------
    ModelError
        When nvcc fails; with what it said.
    """
    keys = {name: make_key(source, toolkit, architectures) for name, source in sources.items()}
    found = {name: cache.get_object(key) if cache else None for name, key in keys.items()}
    objects = {name: data for name, data in found.items() if data is not None}
    missing = [name for name in sources if name not in objects]
    report(0, len(missing))

    def compile_one(name: str) -> bytes:
        data = _compile(name, sources[name], toolkit, architectures)
        if cache:
            cache.put_object(keys[name], data)
        return data

    with ThreadPoolExecutor(jobs) as pool:
        futures = {name: pool.submit(compile_one, name) for name in missing}
        try:
            for done, (name, future) in enumerate(futures.items(), 1):
                objects[name] = future.result()
                report(done, len(missing))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return objects


def _compile(name: str, source: str, toolkit: CudaToolkit, architectures: Sequence[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        path = Path(work, f"{name}.cu")
        path.write_text(source, encoding="utf-8")
        made = path.with_suffix(".o")
        code = _code_options(toolkit, architectures)
        includes = (f"-I{HEADERS}", f"-I{_cutlass()}")
        toolkit.run(["-c", *_FLAGS, *code, *includes, str(path), "-o", str(made)])
        return made.read_bytes()


def _code_options(toolkit: CudaToolkit, architectures: Sequence[str]) -> list[str]:
    """The front of the compiler runs once, for the oldest: kernels use nothing of the others."""
    toolkit.code_options(architectures)  # raises for what nvcc does not know
    oldest = architectures[0].removeprefix("sm_")
    return [f"-gencode=arch=compute_{oldest},code=[{','.join(architectures)}]"]


def link_regions(
    source: str, names: Sequence[str], kernels: Sequence[bytes], runtime: Path
) -> bytes:
    """One object of the regions' functions, their kernels and CUDA's runtime.

    Parameters
    ----------
    source : str
        Of the functions.
    names : sequence of str
        The regions: what the object shows to the outside.
    kernels : sequence of bytes
        Objects.
    runtime : Path
        ``libcudart_static.a``.

    Raises
    ------
    ModelError
        When a tool fails; with what it said.
    """
    import tvm_ffi

    cxx = toolchain.find_cxx()
    objcopy = toolchain.find_tool("objcopy")
    if cxx is None or objcopy is None:
        missing = "C++ compiler" if cxx is None else "objcopy"
        remedy = "install g++ and binutils (Debian, Ubuntu: apt install g++ binutils)"
        raise BackendUnavailable("cutlass", "codegen", f"no {missing} is found", remedy)
    with tempfile.TemporaryDirectory(prefix="byoc-") as work:
        folder = Path(work)
        regions, whole, made = (folder / name for name in ("regions.cc", "whole.o", "regions.o"))
        regions.write_text(source, encoding="utf-8")
        flags = ("-c", "-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{HEADERS}")
        includes = [f"-I{folder}" for folder in tvm_ffi.libinfo.include_paths()]
        toolchain.run_tool(cxx, *flags, *includes, str(regions), "-o", str(folder / "own.o"))
        paths = [folder / f"kernel{number}.o" for number in range(len(kernels))]
        for path, data in zip(paths, kernels, strict=True):
            path.write_bytes(data)
        objects = map(str, (folder / "own.o", *paths, runtime))
        toolchain.run_tool(cxx, "-r", "-nostdlib", *objects, "-o", str(whole))
        kept = [f"--keep-global-symbol=__tvm_ffi_{name}" for name in names]
        toolchain.run_tool(objcopy, *kept, str(whole), str(made))
        return made.read_bytes()


def _cutlass() -> Path:
    """Folder of CUTLASS's headers in TVM."""
    from tvm.contrib.cutlass.build import _get_cutlass_path

    return Path(_get_cutlass_path(), "include")
