"""Progress while a command works, and its facts as text or JSON."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.cli.options import parse_options, parse_shapes
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.terminal import progress, quiet_native_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from tvm_byoc_kit.model import ImportedModel
    from tvm_byoc_kit.runtime import Executable

__all__ = [
    "import_tvm_without_torch",
    "load_or_compile",
    "read_model",
    "show_facts",
    "working",
    "writing",
    "wrote",
]


@contextmanager
def working(console: Console, model: Path, text: str, also: Path | None = None) -> Iterator[None]:
    """Progress, a quiet log, and TVM without torch unless a file needs torch."""
    needs_torch = any(path is not None and path.suffix == ".pt2" for path in (model, also))
    with progress(console, text), quiet_native_log():
        if not needs_torch:
            import_tvm_without_torch()
        yield


def import_tvm_without_torch() -> None:
    """Import TVM without torch, which takes longer than all else."""
    from tvm_byoc_kit.native import without_torch

    try:
        with without_torch():
            import tvm  # noqa: F401 - the first import decides whether torch comes along
    except ImportError:
        pass  # the doctor says what is missing; every other command fails where it needs TVM


def show_facts(console: Console, as_json: bool, facts: Any, *shown: Any) -> None:
    """Print `facts` as JSON; else what is `shown`: tables, texts, and what prints more itself."""
    if as_json:
        console.print_json(json.dumps(facts, default=str), highlight=False)
        return
    for part in shown:
        if callable(part):
            part()
        elif hasattr(part, "__rich_console__"):
            console.print(part)
        elif part is not None:
            console.print(str(part), markup=False)


def wrote(path: Path | None) -> str | None:
    """What is said of a file that was asked for."""
    return None if path is None else f"wrote {path}"


def read_model(path: Path, shapes: list[str] | None) -> ImportedModel:
    """The model of a file, of the shapes that ``--shape`` gives."""
    import tvm_byoc_kit as byoc

    return byoc.load_model(path, shapes=parse_shapes(shapes))


def load_or_compile(
    subject: Path, backend: str, shapes: list[str] | None, options: list[str] | None
) -> Executable:
    """The Executable of an artifact (.so), or of a model built for a backend."""
    import tvm_byoc_kit as byoc

    if subject.suffix == ".so":
        return byoc.load(subject)
    return byoc.compile(
        read_model(subject, shapes), backend, options=parse_options(options) or None
    )


@contextmanager
def writing(option: str, path: Path) -> Iterator[None]:
    """What cannot be written is an error that names the option."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"{option} {path}: cannot be written ({error})") from error
