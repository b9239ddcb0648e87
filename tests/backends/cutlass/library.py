"""A library of regions, as the codegen makes them, without the rest of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.support import cc

import tvm_byoc_kit as byoc
from tvm_byoc_kit.backends.cutlass import codegen


def region_functions(mods: dict[str, Any]) -> list[Any]:
    """The one region of each module, under the module's name."""
    found = []
    for name, mod in mods.items():
        parts = byoc.partition(mod, "cutlass")
        (region,) = parts.coverage.regions
        found.append(parts.mod[region.name].with_attr("global_symbol", name))
    return found


def build_library(path: Path, mods: dict[str, Any], **options: Any) -> Any:
    """Compile the regions, link them to `path`, and load that."""
    (made,) = codegen.compile_regions(region_functions(mods), options, {})
    made.write_to_file(str(path.with_suffix(".o")), "o")
    cc.create_shared(str(path), [str(path.with_suffix(".o"))])
    return tvm_ffi.load_module(str(path))
