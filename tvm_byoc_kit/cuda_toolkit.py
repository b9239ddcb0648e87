"""The CUDA toolkit of this machine: where it is, what it compiles for, and how it is run."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_byoc_kit import toolchain
from tvm_byoc_kit.errors import ModelError

__all__ = ["CudaToolkit", "base_of", "find_toolkit"]

_NOT_FOUND = (
    "nvcc is not found{}: an artifact gets CUDA source instead of machine code, compiled where it "
    "is loaded, by nvcc or NVRTC there"
)
_SECONDS = 20.0  # that nvcc may take to tell of itself


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
            When it fails; the message ends in the first error that it told.
        """
        host = toolchain.find_cxx()
        compiler = ["-ccbin", host] if host else []
        return toolchain.run_tool(self.nvcc, *compiler, *arguments)


def base_of(arch: str) -> str:
    """``"sm_90"`` for ``"sm_90a"``: nvcc lists architectures without their suffix."""
    return arch.rstrip("af")


def find_toolkit() -> CudaToolkit | str:
    """The toolkit whose nvcc `toolchain.find_nvcc` finds, or why there is none that works."""
    nvcc = toolchain.find_nvcc()
    return _ask(nvcc) if nvcc else _NOT_FOUND.format(toolchain.folders_without_nvcc())


@functools.cache
def _ask(nvcc: str) -> CudaToolkit | str:
    ask = functools.partial(toolchain.run_tool, nvcc, timeout=_SECONDS)
    try:
        version = re.search(r"(?<=release )\d+\.\d+", ask("--version"))
        listed = set(re.findall(r"sm_\d+", ask("--list-gpu-code")))
        # A script on PATH may stand for one elsewhere.
        top = re.search(r"(?m)^#\$ TOP=(.+)$", ask("--dryrun", "-E", "-x", "cu", "/dev/null"))
    except ModelError as error:
        return str(error)
    if not version or not listed:
        return f"{nvcc} tells neither its release nor its architectures"
    root = Path(top.group(1)) if top else Path(nvcc).resolve().parent.parent
    architectures = sorted(listed, key=lambda arch: int(arch.removeprefix("sm_")))
    return CudaToolkit(nvcc, version.group(), root.resolve(), tuple(architectures))
