"""Imports point one way: what modules import with themselves makes no circle."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import tvm_byoc_kit

PACKAGE = Path(tvm_byoc_kit.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for path in PACKAGE.rglob("*.py")
    if "data" not in path.relative_to(PACKAGE).parts
}


def imported(name: str) -> set[str]:
    """The kit's modules that the module called `name` imports with itself."""
    found: set[str] = set()
    for statement in ast.parse(MODULES[name].read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            members = {f"{statement.module}.{alias.name}" for alias in statement.names}
            found |= members & MODULES.keys() or {statement.module}
    return (found & MODULES.keys()) - {name}


GRAPH = {name: imported(name) for name in MODULES}


def test_no_module_is_imported_by_what_it_imports() -> None:
    order = tuple(TopologicalSorter(GRAPH).static_order())  # raises a CycleError
    assert len(order) == len(MODULES)
    assert GRAPH["tvm_byoc_kit.building"]  # it sees imports at all


def test_the_library_is_below_the_command_line_and_above_its_errors() -> None:
    for name, used in GRAPH.items():
        if not name.startswith("tvm_byoc_kit.cli"):
            assert not [module for module in used if module.startswith("tvm_byoc_kit.cli")], name
        if name.startswith("tvm_byoc_kit.frontends"):
            assert not [module for module in used if ".backends" in module], name
    assert not GRAPH["tvm_byoc_kit.errors"]
