"""The exact commands that add what is missing, for this machine and this installation."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from tvm_byoc_kit import toolchain

__all__ = [
    "KIT",
    "cxx_compiler",
    "kit_extra",
    "kit_rebuild",
    "system_package",
    "tvm_from_source",
    "version_of",
]

KIT = "tvm-byoc-kit"
_CHECKOUT = Path(__file__).resolve().parent.parent
_TVM_GUIDE = "https://tvm.apache.org/docs/install/from_source.html"

_REINSTALL = "pip install --force-reinstall --no-deps --no-cache-dir"

# Package managers in the order in which they are looked for, with their install command.
_MANAGERS: Mapping[str, str] = {
    "apt-get": "apt-get install",
    "dnf": "dnf install",
    "zypper": "zypper install",
    "pacman": "pacman -S",
    "apk": "apk add",
}


def kit_extra(extra: str) -> str:
    """Command that installs one of the kit's extras into this environment."""
    return f'pip install "{_requirement()}[{extra}]"'


def kit_rebuild(*, against_installed_ffi: bool = False) -> str:
    """Command that builds the kit's plugins again from where the kit was installed from.

    Parameters
    ----------
    against_installed_ffi : bool
        Build in this environment instead of pip's isolated one. The isolated one has the tvm-ffi
        that the kit pins, which is the wrong one when this environment has another.
    """
    compiler = "" if toolchain.find_cxx() else f"{cxx_compiler()} && "
    if not against_installed_ffi:
        return f"{compiler}{_REINSTALL} {_source()}"
    tools = "pip install scikit-build-core cmake ninja"
    return f"{compiler}{tools} && {_REINSTALL} --no-build-isolation {_source()}"


def cxx_compiler() -> str:
    """Command that installs a C++ compiler."""
    names = {"dnf": "gcc-c++", "zypper": "gcc-c++", "pacman": "gcc"}
    return system_package({**dict.fromkeys(_MANAGERS, "g++"), **names})


def system_package(names: Mapping[str, str]) -> str:
    """Command of this machine's package manager that installs a package.

    Parameters
    ----------
    names : Mapping[str, str]
        The package's name by package manager; ``"apt-get"`` must be there, and is what a machine
        without any known package manager is told.
    """
    for manager, command in _MANAGERS.items():
        if manager in names and shutil.which(manager):
            return f"{command} {names[manager]}"
    return f"{_MANAGERS['apt-get']} {names['apt-get']}"


def tvm_from_source(options: Sequence[str], needs: str) -> str:
    """What replaces the wheel by a TVM of the same version, built with CMake options on.

    No single command does it on every machine, so the remedy names the options and the guide.

    Parameters
    ----------
    options : Sequence[str]
        Options of TVM's CMake build, for instance ``"USE_CUBLAS=ON"``.
    needs : str
        What must be installed for these options, beyond LLVM.
    """
    version = version_of("apache-tvm", "0.27")
    defines = " ".join(f"-D{option}" for option in ("USE_LLVM=ON", *options))
    needed = f"LLVM, {needs}" if needs else "LLVM"
    return (
        f"build TVM {version} from source with {defines} (needs {needed}; hours on two cores): "
        f"{_TVM_GUIDE}"
    )


def version_of(distribution: str, otherwise: str = "unknown") -> str:
    """Version of what pip installed; `otherwise` for what it did not, such as a checkout."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return otherwise


def _requirement() -> str:
    """Name the kit to pip so that its extras are found."""
    return KIT if _distribution() or not _is_checkout() else str(_CHECKOUT)


def _source() -> str:
    """Name the kit to pip so that it is built from source."""
    distribution = _distribution()
    if distribution is None:
        return str(_CHECKOUT) if _is_checkout() else f"--no-binary {KIT} {KIT}"
    return _direct_source(distribution) or f"--no-binary {KIT} {KIT}"


def _distribution() -> importlib.metadata.Distribution | None:
    """Return the kit as pip installed it; None when it is run from a checkout."""
    try:
        return importlib.metadata.distribution(KIT)
    except importlib.metadata.PackageNotFoundError:
        return None


def _is_checkout() -> bool:
    return (_CHECKOUT / "pyproject.toml").is_file()


def _direct_source(distribution: importlib.metadata.Distribution) -> str:
    """Source that pip recorded (PEP 610); empty for an index, a wheel or a vanished directory."""
    record = json.loads(distribution.read_text("direct_url.json") or "{}")
    url = str(record.get("url", ""))
    if "vcs_info" in record:
        return f"{record['vcs_info']['vcs']}+{url}@{record['vcs_info']['commit_id']}"
    path = Path(unquote(urlparse(url).path)) if url.startswith("file:") else None
    if url.endswith(".whl") or (path and not path.exists()):
        return ""
    return str(path or url)
