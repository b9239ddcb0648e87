"""Where this machine has its build tools: the C++ compiler, CMake and the CUDA compiler."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tvm_byoc_kit.errors import ModelError

__all__ = [
    "find_cxx",
    "find_nvcc",
    "find_tool",
    "folders_without_nvcc",
    "pip_cuda",
    "run_tool",
    "tool_version",
]

CXX_NAMES = ("g++", "c++", "clang++")


def find_cxx() -> str | None:
    """Path of the C++ compiler that exporting a model and building a plugin will use, or None.

    ``$CXX`` decides where it is set, as it does for TVM and for CMake.
    """
    if chosen := os.environ.get("CXX", "").strip():
        try:
            return shutil.which(shlex.split(chosen)[0])
        except ValueError:  # a quotation that does not end
            return None
    return next(filter(None, map(shutil.which, CXX_NAMES)), None)


def find_tool(name: str) -> str | None:
    """Path of a tool on ``$PATH`` or among the scripts of this Python environment, or None."""
    return shutil.which(name) or shutil.which(name, path=sysconfig.get_path("scripts"))


def find_nvcc() -> str | None:
    """Path of nvcc, or None.

    Looked for in ``$CUDA_PATH`` and ``$CUDA_HOME``, then on ``$PATH``, where pip's
    ``cuda-toolkit`` puts it, and in ``/usr/local/cuda``.
    """
    named = (root for _, root in _named_cuda())
    for root in (*named, None, pip_cuda(), Path("/usr/local/cuda")):
        if found := shutil.which("nvcc", path=None if root is None else str(root / "bin")):
            return found
    return None


def folders_without_nvcc() -> str:
    """What is wrong with ``$CUDA_PATH`` and ``$CUDA_HOME``, in brackets, or nothing."""
    wrong = [
        f"${name} is {root}, which has no bin/nvcc"
        for name, root in _named_cuda()
        if not shutil.which("nvcc", path=str(root / "bin"))
    ]
    return f" ({'; '.join(wrong)})" if wrong else ""


def _named_cuda() -> Iterator[tuple[str, Path]]:
    for name in ("CUDA_PATH", "CUDA_HOME"):
        if root := os.environ.get(name):
            yield name, Path(root)


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


def run_tool(*command: str, timeout: float | None = None) -> str:
    """What a compiler prints; it has a folder for its temporary files, whatever ``$TMPDIR`` says.

    Raises
    ------
    ModelError
        When it fails; with its path, and the first error of what it said.
    """
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "TMPDIR": tempfile.gettempdir()},
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ModelError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode:
        said = _first_error(done.stdout) or "it says nothing"
        raise ModelError(f"{command[0]} fails with exit code {done.returncode}: {said}")
    return done.stdout


_ERROR = re.compile(r"\b(error|fatal)\b", re.IGNORECASE)


def _first_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next(filter(_ERROR.search, lines), lines[0] if lines else "")
