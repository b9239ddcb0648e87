"""Where this machine has its build tools: the C++ compiler, CMake and the CUDA compiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

__all__ = ["find_cxx", "find_nvcc", "find_tool", "pip_cuda", "tool_version"]

CXX_NAMES = ("g++", "c++", "clang++")


def find_cxx() -> str | None:
    """Path of the C++ compiler that exporting a model and building a plugin will use, or None.

    ``$CXX`` decides where it is set, as it does for TVM and for CMake.
    """
    if chosen := shlex.split(os.environ.get("CXX", "")):
        return shutil.which(chosen[0])
    return next(filter(None, map(shutil.which, CXX_NAMES)), None)


def find_tool(name: str) -> str | None:
    """Path of a tool on ``$PATH`` or among the scripts of this Python environment, or None."""
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def find_nvcc() -> str | None:
    """Path of nvcc, or None.

    Looked for in ``$CUDA_PATH`` and ``$CUDA_HOME``, then on ``$PATH``, where pip's
    ``cuda-toolkit`` puts it, and in ``/usr/local/cuda``.
    """
    named = [Path(root) for root in map(os.environ.get, ("CUDA_PATH", "CUDA_HOME")) if root]
    for root in (*named, None, pip_cuda(), Path("/usr/local/cuda")):
        if found := shutil.which("nvcc", path=None if root is None else str(root / "bin")):
            return found
    return None


def pip_cuda() -> Path:
    """Where ``pip install "cuda-toolkit[...]==13.*"`` puts the CUDA toolkit."""
    return Path(sysconfig.get_path("purelib"), "nvidia", "cu13")


def tool_version(command: str, pattern: str = r"\d+\.\d+(\.\d+)*") -> str | None:
    """Version that ``command --version`` prints, or None when it does not run.

    Parameters
    ----------
    command : str
        Path of the tool.
    pattern : str
        Regular expression whose first match is the version.
    """
    try:
        run = subprocess.run(
            [command, "--version"], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(pattern, run.stdout)
    return match.group() if match else ""
