"""The CUDA toolkit of this machine: where it is, what it compiles for, and how it is run."""

from __future__ import annotations

import functools
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_byoc_kit import toolchain
from tvm_byoc_kit.errors import ModelError

__all__ = ["CudaToolkit", "base_of", "find_toolkit"]

_SHOWN_CHARACTERS = 2000


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit whose nvcc runs.

    Parameters
    ----------
    nvcc : str
        Path of the compiler; it finds its own headers, CCCL's among them.
    version : str
        For instance ``"13.0"``.
    root : pathlib.Path
        The folder with ``include`` and ``lib`` or ``lib64`` in it.
    architectures : tuple of str
        What it makes machine code for: ``("sm_75", "sm_80", ...)``.
    """

    nvcc: str
    version: str
    root: Path
    architectures: tuple[str, ...]

    def __str__(self) -> str:
        return f"CUDA {self.version} ({self.nvcc})"

    @property
    def include(self) -> Path:
        """Folder of ``cuda_runtime.h``, for what is not compiled by nvcc itself."""
        return self.root / "include"

    def find_library(self, name: str) -> Path | None:
        """Path of one of its libraries, such as ``"libcudart_static.a"``, or None."""
        folders = (self.root / "lib64", self.root / "lib", *self.root.glob("targets/*/lib"))
        return next((folder / name for folder in folders if (folder / name).is_file()), None)

    def code_options(self, architectures: Sequence[str]) -> list[str]:
        """Options of nvcc for machine code of all these architectures, and no PTX.

        Raises
        ------
        ModelError
            For an architecture that this toolkit does not know.
        """
        unknown = [arch for arch in architectures if base_of(arch) not in self.architectures]
        if unknown:
            raise ModelError(
                f"{self} makes no code for {', '.join(unknown)}, only for "
                f"{', '.join(self.architectures)}; install a CUDA toolkit that does, and name it "
                "with CUDA_PATH"
            )
        numbers = [arch.removeprefix("sm_") for arch in architectures]
        return [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]

    def run(self, arguments: Sequence[str]) -> str:
        """Run nvcc; gives what it printed.

        Raises
        ------
        ModelError
            When it fails; the message ends in what it said.
        """
        host = toolchain.find_cxx()
        compiler = ["-ccbin", host] if host else []
        done = subprocess.run(
            [self.nvcc, *compiler, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            raise ModelError(f"{self.nvcc} fails: {done.stdout[-_SHOWN_CHARACTERS:].strip()}")
        return done.stdout


def base_of(arch: str) -> str:
    """``"sm_90"`` for ``"sm_90a"``: nvcc lists architectures without their suffix."""
    return arch.rstrip("af")


def find_toolkit() -> CudaToolkit | None:
    """The toolkit whose nvcc `toolchain.find_nvcc` finds, or None when there is none that runs."""
    nvcc = toolchain.find_nvcc()
    return _ask(nvcc) if nvcc else None


@functools.cache
def _ask(nvcc: str) -> CudaToolkit | None:
    version = toolchain.tool_version(nvcc, r"(?<=release )\d+\.\d+")
    if not version:
        return None
    listed = re.findall(r"sm_\d+", _output(nvcc, "--list-gpu-code"))
    architectures = sorted(set(listed), key=lambda arch: int(arch.removeprefix("sm_")))
    return CudaToolkit(nvcc, version, _root(nvcc), tuple(architectures))


def _root(nvcc: str) -> Path:
    """The toolkit's folder, which nvcc tells: a script on PATH may stand for one elsewhere."""
    top = re.search(r"(?m)^#\$ TOP=(.+)$", _output(nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"))
    return Path(top.group(1)).resolve() if top else Path(nvcc).resolve().parent.parent


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr
