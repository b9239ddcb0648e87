"""Targets that are no GPU of NVIDIA's: CPUs, and what a TVM of one's own may be built with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.cuda_targets import ARCHITECTURES, GPUS, KNOWN_NAMES
from tvm_byoc_kit.errors import OptionError, did_you_mean, reason

if TYPE_CHECKING:
    from tvm.target import Target

__all__ = ["make_target"]

_TVMS_WORDS = {"hip": "rocm"}


def make_target(target: Any) -> Target:
    """`target` as TVM has it.

    Parameters
    ----------
    target : str, mapping or tvm.target.Target

    Raises
    ------
    OptionError
        When it is unknown, or this TVM neither compiles nor runs code for it.
    """
    from tvm.target import Target

    try:
        made = Target(_TVMS_WORDS.get(target, target) if isinstance(target, str) else target)
    except Exception as error:  # the parser raises many types
        known = (*GPUS, *ARCHITECTURES, *map(str, Target.list_kinds()))
        said = reason(error).partition(" Target creation from string failed")[0].rstrip(".")
        no_gpu = not isinstance(target, str) or target.lstrip().startswith(("{", "llvm"))
        raise OptionError(
            f"unknown target {target!r}{did_you_mean(str(target).lower(), known)}: "
            f"{said}; expected 'llvm', a target of TVM as JSON, or "
            + ("a GPU such as 'a100'" if no_gpu else f"one of these GPUs: {KNOWN_NAMES}")
        ) from error
    _check_built_in(made, target)
    _check_processor(made, target)
    return made


def _check_built_in(target: Target, given: Any) -> None:
    """Refuse what this TVM cannot run, also where it would compile source for it."""
    import tvm

    device = tvm.device(target.get_target_device_type(), 0).type
    for wanted in (f"runtime:device_api.{device}", f"target:{target.kind.name}"):
        status = probe(wanted)
        if not status:
            raise OptionError(
                f"target {given!r}: {status.detail}, so nothing built for it would run "
                f"here. To add it: {status.remedy}. Or build for 'llvm', or for a GPU of NVIDIA "
                "such as 'a100'"
            )


def _check_processor(target: Target, given: Any) -> None:
    """Refuse an ``mcpu`` that LLVM does not know: TVM would build for any processor instead."""
    if target.kind.name != "llvm" or "mcpu" not in target.attrs:
        return
    from tvm.target import Target, codegen

    name = str(target.attrs["mcpu"])
    without = {key: value for key, value in target.attrs.items() if key == "mtriple"}
    known = sorted(map(str, codegen.llvm_get_cpu_archlist(Target({"kind": "llvm", **without}))))
    if name not in known:
        raise OptionError(
            f"target {given!r}: LLVM knows no processor {name!r}{did_you_mean(name, known)} for "
            f"mcpu; expected one of {', '.join(known)}"
        )
