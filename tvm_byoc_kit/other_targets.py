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
        raise OptionError(
            f"unknown target {target!r}{did_you_mean(str(target).lower(), known)}: "
            f"{reason(error)}; expected 'llvm', a target of TVM as JSON, or one of these GPUs: "
            f"{KNOWN_NAMES}"
        ) from error
    _check_built_in(made, target)
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
