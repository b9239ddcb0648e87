"""Options and arguments that several commands take, and how their text is read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvm_byoc_kit.errors import OptionError

if TYPE_CHECKING:
    from tvm_byoc_kit.policy import PartitionPolicy

__all__ = [
    "BackendName",
    "Inputs",
    "Json",
    "Model",
    "Options",
    "Policy",
    "Seed",
    "Shapes",
    "Sizes",
    "joined",
    "parse_options",
    "parse_policy",
    "parse_shapes",
    "parse_sizes",
]

Model = Annotated[
    Path, typer.Argument(help="An ONNX file, or a PyTorch ExportedProgram (.pt2).", metavar="MODEL")
]
BackendName = Annotated[
    str, typer.Option("--backend", "-b", help="Backend; `tvm-byoc doctor` lists them.")
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        "-s",
        help="A dynamic input's shape: `name:1,3,224,224`; a word is a dimension that stays open.",
    ),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option("--size", help="Sizes of an open dimension: `batch=1,2,7`; 2 when left out."),
]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", "-O", help="Option of the backend's codegen: `key=value`."),
]
Policy = Annotated[
    list[str] | None,
    typer.Option(
        "--policy",
        "-p",
        help="A field of byoc.PartitionPolicy, what stays on the host: `min_region_ops=3`, "
        "`exclude_ops=add,nn.relu`, `strict=true`.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")]
Inputs = Annotated[
    Path | None,
    typer.Option("--inputs", "-i", help="Inputs by name, as .npz; random when left out."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the random inputs.")]


def parse_shapes(items: list[str] | None) -> dict[str, list[int | str]]:
    """``--shape``: shapes by input."""
    shapes: dict[str, list[int | str]] = {}
    for item in items or []:
        name, _, text = item.rpartition(":")
        dims = [dim.strip() for dim in text.split(",")]
        if not name or not all(dim.isdecimal() or dim.isidentifier() for dim in dims):
            raise OptionError(
                f"--shape {item}: expected name:1,3,224,224, with a name for each dimension that "
                "stays open: name:batch,3,224,224"
            )
        shapes[name] = [int(dim) if dim.isdecimal() else dim for dim in dims]
    return shapes


def parse_sizes(items: list[str] | None) -> dict[str, list[int]]:
    """``--size``: sizes by dimension."""
    sizes: dict[str, list[int]] = {}
    for item in items or []:
        name, _, text = item.partition("=")
        numbers = text.split(",")
        if not name or not all(number.isdecimal() for number in numbers):
            raise OptionError(f"--size {item}: expected name=1,2,7")
        sizes[name] = [int(number) for number in numbers]
    return sizes


def parse_options(items: list[str] | None) -> dict[str, Any]:
    """``--option``: values by name, JSON where they are that."""
    options: dict[str, Any] = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise OptionError(f"--option {item}: expected key=value")
        try:
            options[key] = json.loads(value)
        except ValueError:  # no JSON, or a number too long for Python
            options[key] = value
    return options


def joined(by_name: dict[str, Any], by_flag: dict[str, Any]) -> dict[str, Any]:
    """The options that --option gives, and those of flags: none of them by both."""
    for name in by_name.keys() & by_flag.keys():
        raise OptionError(
            f"--option {name}={by_name[name]} is given, and a flag that says {name}="
            f"{by_flag[name]}; leave one of them out"
        )
    return by_name | by_flag


def parse_policy(items: list[str] | None) -> PartitionPolicy | None:
    """``--policy``: the policy, or None when nothing is given."""
    from tvm_byoc_kit.policy import as_policy

    fields: dict[str, Any] = {}
    for item in items or []:
        key, equals, text = item.partition("=")
        if not equals:
            raise OptionError(f"--policy {item}: expected key=value, such as min_region_ops=3")
        value = _POLICY_WORDS.get(text, int(text) if _COUNT.fullmatch(text) else text)
        if key in _POLICY_LISTS:  # names may look like numbers, and lists may come in pieces
            value = f"{fields[key]},{text}" if key in fields else text
        fields[key] = value
    return as_policy(fields) if fields else None


_COUNT = re.compile(r"[0-9]{1,18}")
_POLICY_WORDS = {"true": True, "false": False, "none": None}
_POLICY_LISTS = frozenset({"exclude_ops", "exclude_names", "include_only"})
