"""NVIDIA's GPUs by the names that people use, as targets of TVM.

TVM takes a bare ``"cuda"``, and a ``model`` that it does not know, for sm_50: a GPU of 2014. Here
every target names an architecture that exists, and carries the limits that TVM's schedules read.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import OptionError, did_you_mean, reason

if TYPE_CHECKING:
    from tvm.target import Target

__all__ = ["ARCHITECTURES", "GPUS", "KNOWN_NAMES", "CudaTarget", "find_cuda_target", "runs_on"]

# GPUs by architecture, as NVIDIA lists them: https://developer.nvidia.com/cuda-gpus and, for those
# before sm_75, https://developer.nvidia.com/cuda-legacy-gpus. (A10G is Amazon's name of an A10;
# A800, H800, H20 and L20 are made for China and stand in neither list.)
_BY_ARCHITECTURE: Mapping[str, str] = {
    "sm_70": "v100 titanv quadrogv100",
    "sm_72": "xavier agxxavier xaviernx",
    "sm_75": "t4 titanrtx quadrortx8000 quadrortx6000 quadrortx5000 quadrortx4000 rtx2060 rtx2070 "
    "rtx2080 rtx2080ti",
    "sm_80": "a100 a30 a800",
    "sm_86": "a2 a10 a10g a16 a40 rtxa2000 rtxa4000 rtxa4500 rtxa5000 rtxa6000 rtx3050 rtx3060 "
    "rtx3060ti rtx3070 rtx3070ti rtx3080 rtx3080ti rtx3090 rtx3090ti",
    "sm_87": "orin agxorin orinnx orinnano",
    "sm_88": "",
    "sm_89": "l4 l40 l40s l20 rtx2000ada rtx4000ada rtx4500ada rtx5000ada rtx6000ada rtx4060 "
    "rtx4060ti rtx4070 rtx4070ti rtx4080 rtx4090",
    "sm_90": "h100 h200 gh200 h800 h20",
    "sm_100": "b200 gb200",
    "sm_103": "b300 gb300",
    "sm_110": "thor agxthor",
    "sm_120": "rtxpro4000 rtxpro4500 rtxpro5000 rtxpro6000 rtx5050 rtx5060 rtx5060ti rtx5070 "
    "rtx5070ti rtx5080 rtx5090",
    "sm_121": "gb10",
}
ARCHITECTURES = tuple(_BY_ARCHITECTURE)
GPUS: Mapping[str, str] = {
    name: arch for arch, names in _BY_ARCHITECTURE.items() for name in names.split()
}
"""Architecture by name, in small letters and without spaces or dashes."""

# Beside which, on the same module, is a CPU of ARM: the rest of an artifact must be for that.
_ON_ARM = re.compile(r"xavier|orin|thor|^g[bh]\d+$")
_TEGRA = frozenset({72, 87, 110})
# Of every architecture above: "Technical Specifications per Compute Capability" in the CUDA C++
# Programming Guide. A block may have more shared memory than this, but not by a static array.
_LIMITS: Mapping[str, int] = {
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "registers_per_block": 65536,
    "thread_warp_size": 32,
}
_MAKERS = re.compile(r"^(nvidia|geforce|tesla|jetson)+")
# What nvidia-smi says beyond the name ("NVIDIA A100-SXM4-80GB"); TVM's tags ("nvidia/...") keep it.
_BOARD = re.compile(r"[\s-](sxm\d?|pcie|nvl|\d+gb|laptop gpu|super|generation|blackwell)\b.*")
# An architecture's own instructions ("sm_90a"), or its family's ("sm_100f").
_ARCH = re.compile(r"(?:sm_?)?(\d{2,3})([af]?)")
_FIRST_WITH = {"a": 90, "f": 100}

KNOWN_NAMES = "; ".join(
    f"{arch} ({', '.join(names.split())})" if names else arch
    for arch, names in _BY_ARCHITECTURE.items()
)
"""The architectures with the names of their GPUs, for messages."""
_EXPECTED = f"name a GPU or an architecture: {KNOWN_NAMES}"


@dataclass(frozen=True)
class CudaTarget:
    """What code for GPUs is made for.

    Parameters
    ----------
    target : tvm.target.Target
        What TVM generates the code for: the oldest of the architectures.
    architectures : tuple of str
        What nvcc compiles that code for, the oldest first.
    """

    target: Target
    architectures: tuple[str, ...]


def find_cuda_target(target: Any) -> CudaTarget | None:
    """The GPUs that `target` stands for; None when it is no target for CUDA.

    Parameters
    ----------
    target : str, mapping, tvm.target.Target or sequence of these
        ``"a100"``, ``"RTX 4090"``, ``"sm_90"``, ``"90"``, a tag of TVM such as
        ``"nvidia/nvidia-a100"``, or ``{"kind": "cuda", "arch": "sm_80"}``; several in a sequence,
        or separated by commas: the code then runs on each of them. ``"cuda"`` is the GPU of this
        machine.

    Raises
    ------
    OptionError
        For an architecture that is missing or unknown; the message lists those there are.
    """
    if isinstance(target, str) and "," in target and not target.lstrip().startswith("{"):
        target = [part.strip() for part in target.split(",")]
    if isinstance(target, Sequence) and not isinstance(target, str):
        return _joined([_find_one(part) for part in target], target)
    return _find_one(target)


def _joined(found: list[CudaTarget | None], target: Any) -> CudaTarget:
    targets = [one for one in found if one is not None]
    others = [part for part, one in zip(target, found, strict=True) if one is None]
    if others or not targets:
        hint = did_you_mean(_normalized(str(others[0])), GPUS) if others else ""
        what = f"{others[0]!r}{hint}" if others else "nothing"
        raise OptionError(
            f"target {target!r} names {what}, and several targets are built into one artifact for "
            f"GPUs of NVIDIA only; {_EXPECTED}"
        )
    architectures = sorted({arch for one in targets for arch in one.architectures}, key=_number)
    oldest = min(targets, key=lambda one: _number(one.architectures[0]))
    return CudaTarget(oldest.target, tuple(architectures))


def _find_one(target: Any) -> CudaTarget | None:
    attributes = _attributes(target)
    if attributes is None or attributes.get("kind") != "cuda":
        return None
    arch = attributes.get("arch") or _arch_of_model(attributes.get("model"))
    match = _ARCH.fullmatch(str(arch or _arch_of_this_machine(target)))
    if match is None or f"sm_{match[1]}" not in ARCHITECTURES:
        raise OptionError(f"target {target!r}: {_unknown_arch(str(arch))}; {_EXPECTED}")
    if match[2] and int(match[1]) < _FIRST_WITH[match[2]]:
        raise OptionError(
            f"target {target!r}: there is no {match[0]}, the suffix {match[2]} is of sm_"
            f"{_FIRST_WITH[match[2]]} and later; expected sm_{match[1]}"
        )
    name = f"sm_{match[1]}{match[2]}"
    given = {key: value for key, value in attributes.items() if key != "model"}
    return CudaTarget(_make_target({**_LIMITS, **given, "arch": name}, target), (name,))


def _attributes(target: Any) -> dict[str, Any] | None:
    """What is said of the target, by attribute; None for a text that is no name of a GPU."""
    if isinstance(target, Mapping):
        return dict(target)
    if not isinstance(target, str):
        return _parsed(str(target))  # of a tvm.target.Target
    name = _normalized(target)
    if name in GPUS:
        _check_processor(target, arm=bool(_ON_ARM.search(name)), arch=GPUS[name])
        return {"kind": "cuda", "arch": GPUS[name]}
    if _ARCH.fullmatch(target.lower()):
        return {"kind": "cuda", "arch": target.lower()}
    if target.startswith("nvidia/"):
        return _of_tag(target)
    return {"kind": "cuda"} if target.lower() == "cuda" else _parsed(target)


def _normalized(name: str) -> str:
    name = name.lower()
    name = name if name.startswith("nvidia/") else _BOARD.sub("", name)
    return _MAKERS.sub("", re.sub(r"[^a-z0-9]", "", name))


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        parsed = json.loads(text)
    except ValueError:
        return None  # TVM says what is wrong with it
    return parsed if isinstance(parsed, dict) else None


def _of_tag(tag: str) -> dict[str, Any] | None:
    """What TVM knows of a tag, for the architecture itself: TVM says sm_90a for an H100.

    Its generated code has none of the instructions that the ``a`` stands for, and with it TVM's
    schedules leave the tensor cores alone.
    """
    from tvm.target import Target

    try:
        target = Target(tag)
    except Exception:  # noqa: BLE001 - TVM says so again
        return None
    attributes = json.loads(str(target))
    arch = str(attributes.get("arch")).rstrip("af")
    _check_processor(tag, arm=target.host is not None and "arm_cpu" in target.host.keys, arch=arch)
    return {**attributes, "arch": arch}


def _check_processor(target: str, *, arm: bool, arch: str) -> None:
    if arm and platform.machine() not in ("aarch64", "arm64"):
        raise OptionError(
            f"target '{target}': beside that GPU is a CPU of ARM, and an artifact that is built "
            f"here has a host part for {platform.machine()}; build it there. ('{arch}' gives code "
            "for that architecture to a host like this one)"
        )


def _arch_of_model(model: Any) -> str | None:
    if model is None:
        return None
    name = _normalized(str(model))
    if name not in GPUS:
        raise OptionError(
            f"target of model {model!r}: no such GPU is known{did_you_mean(name, GPUS)}; "
            f"{_EXPECTED}"
        )
    return GPUS[name]


def _arch_of_this_machine(target: Any) -> str:
    status = probe("device:cuda")
    if not status:
        raise OptionError(
            f"target {target!r} names no architecture, and there is no GPU here to take it from "
            f"({status.detail}); {_EXPECTED}"
        )
    import tvm

    return "sm_" + str(tvm.cuda(0).compute_version).replace(".", "")


def _unknown_arch(arch: str) -> str:
    implied = ", which TVM takes where none is named," if arch == "sm_50" else ""
    return f"the architecture {arch}{implied} is none that the kit builds for"


def _make_target(attributes: dict[str, Any], given: Any) -> Target:
    from tvm.target import Target

    try:
        return Target(attributes)
    except Exception as error:  # the parser raises many types
        raise OptionError(f"target {given!r}: TVM refuses it: {reason(error)}") from error


def _number(arch: str) -> int:
    return int("".join(filter(str.isdigit, arch)))


def runs_on(architectures: Iterable[str], sm: int) -> bool:
    """Whether machine code for one of `architectures` runs on a GPU of compute capability `sm`.

    It does on the same and on later minor versions of its major version; with the suffix ``a``, and
    for the modules called Tegra, on that very one ("Binary Compatibility" in the CUDA C++
    Programming Guide).

    Parameters
    ----------
    architectures : iterable of str
        For instance ``("sm_80", "sm_90")``.
    sm : int
        For instance 86.
    """
    for arch in architectures:
        code = _number(arch)
        only_there = arch.endswith("a") or {code, sm} & _TEGRA
        later = code // 10 == sm // 10 and code < sm
        if code == sm or (later and not only_there):
            return True
    return False
