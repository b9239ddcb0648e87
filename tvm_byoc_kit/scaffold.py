"""A new backend as a project of its own, from the templates in ``data/scaffold``.

A template is the file as it will be, with `PLACEHOLDER` for the backend's name, in paths too. What
both kinds of project have is in ``common``.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from tvm_byoc_kit.backend import owner
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.files import new_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PLACEHOLDER", "Kind", "new_backend"]

Kind = Literal["python", "cpp"]
PLACEHOLDER = "my_backend"

_TEMPLATES = Path(__file__).resolve().parent / "data" / "scaffold"
# Also what a distribution may be called: it ends in a letter or a digit.
_NAME = re.compile(r"[a-z]([a-z0-9_]*[a-z0-9])?")
# And folders that a project has beside the package.
_RESERVED = frozenset({*keyword.kwlist, "build", "dist", "src", "tests", "conftest"})


def new_backend(
    name: str, kind: Kind = "python", *, directory: str | Path | None = None
) -> tuple[Path, ...]:
    """Write a project that is a backend: installable, tested, and computing from the start.

    Parameters
    ----------
    name : str
        Of the backend and of its package.
    kind : {"python", "cpp"}
        What codegen and runtime are written in.
    directory : str or pathlib.Path, optional
        Where the project goes, ``./<name>`` by default; must be empty or not there.

    Returns
    -------
    tuple of pathlib.Path
        The files that were written, relative to the directory, sorted.

    Raises
    ------
    OptionError
        When the name does not fit or is taken, or the directory cannot be written.
    """
    if kind not in get_args(Kind):
        raise OptionError(f"kind {kind!r}: expected one of {', '.join(get_args(Kind))}")
    _check_name(name)
    files = dict(_files(name, kind))
    with new_folder(Path(name if directory is None else directory)) as folder:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
    return tuple(sorted(files))


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise OptionError(
            f"backend name {name!r}: expected what can name a Python package, lower-case letters, "
            f"digits and underscores, and no keyword or folder; for instance '{_fitting(name)}'"
        )
    taken = owner(name)
    if taken is not None:
        raise OptionError(
            f"the name '{name}' belongs to {taken}; choose another, such as 'my_{name}'"
        )
    found = importlib.util.find_spec(name)
    if found is not None and found.origin is not None:  # else a mere folder of that name
        raise OptionError(
            f"a Python module '{name}' is here already, which the project's package would hide; "
            f"choose another name, such as '{name}_backend'"
        )
    if any(importlib.metadata.distributions(name=name)):
        raise OptionError(
            f"pip has installed a package '{name}' here, which the project's would replace; choose "
            f"another name, such as '{name}_backend'"
        )


def _fitting(name: str) -> str:
    fitting = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    fitting = fitting if fitting[:1].isalpha() else f"npu_{fitting}".rstrip("_")
    return f"{fitting}_npu" if fitting in _RESERVED else fitting


def _files(name: str, kind: Kind) -> Iterator[tuple[Path, str]]:
    """The project's files: where each goes and what is in it."""
    for folder in (_TEMPLATES / "common", _TEMPLATES / kind):
        for template in sorted(folder.rglob("*")):
            if template.is_file() and "__pycache__" not in template.parts:
                path = str(template.relative_to(folder)).replace(PLACEHOLDER, name)
                yield Path(path), template.read_text(encoding="utf-8").replace(PLACEHOLDER, name)
