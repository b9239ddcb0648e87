"""The sizes of open dimensions on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvm_byoc_kit.buckets import Buckets, Profile
from tvm_byoc_kit.errors import OptionError

if TYPE_CHECKING:
    from tvm_byoc_kit.buckets import Sizes

__all__ = ["Batch", "BucketsOf", "Fallback", "Masks", "NoPad", "parse_sizes"]

Batch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        help="What to be fast at along axis 0: sizes that get a build each, `1,4,8,16`, or a range "
        "for one, `1:8:32` (smallest, best, largest).",
    ),
]
BucketsOf = Annotated[
    list[str] | None,
    typer.Option(
        "--bucket", help="The same for an open dimension by its name: `seq=32,64,128`; repeatable."
    ),
]
Fallback = Annotated[
    str | None,
    typer.Option("--fallback", help="`symbolic`: one more build, for the sizes between."),
]
NoPad = Annotated[
    bool, typer.Option("--no-pad", help="Take a build for its own sizes only, and pad nothing.")
]
Masks = Annotated[
    list[str] | None,
    typer.Option(
        "--mask",
        help="An input that masks what is padded along the dimensions of --bucket, and the number "
        "that does: `attention_mask=0`; repeatable.",
    ),
]


def parse_sizes(
    batch: str | None,
    buckets: list[str] | None,
    fallback: str | None,
    no_pad: bool,
    masks: list[str] | None,
) -> tuple[Buckets | Profile | None, Sizes]:
    """What `byoc.compile` takes as ``batch`` and ``sizes``."""
    named: dict[str, str] = {}
    for item in buckets or []:
        name, _, text = item.partition("=")
        if name in named:
            raise OptionError(f"--bucket {item}: '{name}' has sizes already, {named[name]}")
        named[name] = text
    if batch is None and not named and (fallback or no_pad or masks):
        raise OptionError("--fallback, --no-pad and --mask are for what --batch or --bucket gives")
    if masks and not named:
        raise OptionError("--mask is for the dimensions that --bucket gives")
    if masks and no_pad:
        raise OptionError("--mask says how to pad, and --no-pad not to; leave one of them out")
    common: dict[str, Any] = {"fallback": fallback, "pad": not no_pad}
    masked = common | {"pad": _numbers(masks)} if masks else common
    sizes = {name: _sizes(f"--bucket {name}={text}", text, masked) for name, text in named.items()}
    return (None if batch is None else _sizes(f"--batch {batch}", batch, common)), sizes


def _sizes(option: str, text: str, common: dict[str, Any]) -> Buckets | Profile:
    if re.fullmatch(r"\d+:\d+:\d+", text):
        return Profile(*map(int, text.split(":")))
    if re.fullmatch(r"\d+(,\d+)*", text):
        return Buckets(*map(int, text.split(",")), **common)
    raise OptionError(
        f"{option}: expected sizes such as 1,4,8,16, or a smallest, best and largest, 1:8:32"
    )


def _numbers(items: list[str]) -> dict[str, float]:
    numbers = {}
    for item in items:
        name, _, text = item.rpartition("=")
        try:
            numbers[name] = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        except ValueError:
            raise OptionError(f"--mask {item}: expected an input and a number, mask=0") from None
    return numbers
