"""What compiled code needs of a processor and a GPU, and whether this machine has it."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit import cuda_driver
from tvm_byoc_kit.cuda_targets import runs_on

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.target import Target

__all__ = ["cpu_features", "is_cuda", "missing_cpu_features", "why_not_on_gpu"]

# Instructions that LLVM may use for x86-64 where a target asks for more than every processor has,
# by LLVM's name; with Linux's name in /proc/cpuinfo. What LLVM lists besides tunes code, or is of
# no use to it.
_X86_FLAGS: Mapping[str, str] = {
    "adx": "adx",
    "aes": "aes",
    "amx-bf16": "amx_bf16",
    "amx-int8": "amx_int8",
    "amx-tile": "amx_tile",
    "avx": "avx",
    "avx2": "avx2",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512bw": "avx512bw",
    "avx512cd": "avx512cd",
    "avx512dq": "avx512dq",
    "avx512f": "avx512f",
    "avx512fp16": "avx512_fp16",
    "avx512ifma": "avx512ifma",
    "avx512vbmi": "avx512vbmi",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxifma": "avx_ifma",
    "avxvnni": "avx_vnni",
    "bmi": "bmi1",
    "bmi2": "bmi2",
    "cx16": "cx16",
    "f16c": "f16c",
    "fma": "fma",
    "fma4": "fma4",
    "gfni": "gfni",
    "lzcnt": "abm",
    "movbe": "movbe",
    "pclmul": "pclmulqdq",
    "popcnt": "popcnt",
    "sha": "sha_ni",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "sse4a": "sse4a",
    "ssse3": "ssse3",
    "tbm": "tbm",
    "vaes": "vaes",
    "vpclmulqdq": "vpclmulqdq",
    "xop": "xop",
}
_FLAGS_BY_MACHINE: Mapping[str, Mapping[str, str]] = {"x86_64": _X86_FLAGS}
_CPUINFO = Path("/proc/cpuinfo")


def cpu_features(target: Target) -> tuple[str, ...]:
    """What code for `target` may use that not every processor of this kind has, as LLVM names it.

    Empty for processors other than x86-64, whose features are not told apart.
    """
    from tvm.target import codegen

    flags = _FLAGS_BY_MACHINE.get(platform.machine(), {})
    host = target.host or target
    if host.kind.name != "llvm":
        return ()
    found = {str(name) for name in codegen.llvm_get_cpu_features(host)}
    return tuple(sorted(found & flags.keys()))


def missing_cpu_features(needed: Iterable[str]) -> tuple[str, ...]:
    """Those of `needed` that the processor lacks; none where the system does not tell."""
    flags = _FLAGS_BY_MACHINE.get(platform.machine(), {})
    here = _flags_here()
    return tuple(name for name in needed if here and flags.get(name, name) not in here)


def _flags_here() -> frozenset[str]:
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def is_cuda(target: str) -> bool:
    """Whether `target`, as `Manifest.target` has it, is a CUDA GPU."""
    return "cuda" in target.split('"kind"', 1)[-1].split(",", maxsplit=1)[0]


def why_not_on_gpu(code: Mapping[str, Any]) -> str | None:
    """Why code for GPUs does not run on the first GPU here; None: it does, or no driver tells.

    Parameters
    ----------
    code : mapping
        As `Manifest.device_code` has it.
    """
    held = code.get("machine_code", ())
    driver = cuda_driver.ask()
    if not held or code.get("ptx") or isinstance(driver, str) or driver.sm is None:
        return None
    if runs_on(held, driver.sm):
        return None
    return f"holds GPU code for {', '.join(held)}, the GPU here is sm_{driver.sm}"
