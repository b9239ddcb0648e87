"""The options of TensorRT that have a flag of their own."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tvm_byoc_kit.errors import OptionError

__all__ = ["ComputeCapabilities", "Profiles", "open_shapes", "tensorrt_options"]

Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        help="TensorRT: smallest, best and largest shape of an input, "
        "`x=1x3x224x224:8x3x224x224:32x3x224x224`, or sizes of a dimension, `n=1:8:32`; what "
        "varies stays open. Repeatable; a name that comes again begins another profile.",
    ),
]
ComputeCapabilities = Annotated[
    list[int] | None,
    typer.Option("--sm", help="TensorRT: a GPU's compute capability, 89 for 8.9; repeatable."),
]


def tensorrt_options(
    backend: str, fp16: bool, profiles: list[str] | None, capabilities: list[int] | None
) -> dict[str, Any]:
    """The options behind --fp16, --profile and --sm, as far as TensorRT has them."""
    given: dict[str, Any] = {}
    if fp16 and backend == "tensorrt":
        given["precision"] = "fp16"
    if capabilities:
        given["compute_capabilities"] = tuple(capabilities)
    if profiles:
        from tvm_byoc_kit.backends.tensorrt.profiles import parse_profiles

        given["profiles"] = parse_profiles(profiles)
    if given and backend != "tensorrt":
        raise OptionError(
            f"--profile and --sm are for --backend tensorrt, not {backend}; the options of others "
            "are given with --option"
        )
    return given


def open_shapes(profiles: Any) -> dict[str, list[int | str]]:
    """The shapes to import a model with so that TensorRT's profiles fit it."""
    if not profiles:
        return {}
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.profiles import open_shapes

    return open_shapes(TensorRTOptions(profiles=profiles).profiles)
