"""What the NVIDIA driver of this machine answers, asked so that nothing happens to this process."""

from __future__ import annotations

import ctypes
import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Driver", "ask", "has_gpu"]

# CUresult of the CUDA driver API.
_NO_DEVICE = 100
_ERRORS: Mapping[int, str] = {
    34: "libcuda.so.1 is a stub without a driver behind it",
    _NO_DEVICE: "the driver sees no GPU",
    803: "the kernel's driver and libcuda.so.1 have different versions",
    999: "the driver reports an unknown error",
}
_SCRIPT = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
gpus, version = ctypes.c_int(), ctypes.c_int()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(gpus))
cuda.cuDriverGetVersion(ctypes.byref(version))
device, sm = ctypes.c_int(), [ctypes.c_int(), ctypes.c_int()]
if not code and gpus.value and not cuda.cuDeviceGet(ctypes.byref(device), 0):
    for part, attribute in zip(sm, (75, 76)):  # compute capability, major and minor
        cuda.cuDeviceGetAttribute(ctypes.byref(part), attribute, device)
print(json.dumps([code, gpus.value, version.value, 10 * sm[0].value + sm[1].value]))
"""
_PCI = Path("/sys/bus/pci/devices")
_NVIDIA_VENDOR = "0x10de"


@dataclass(frozen=True)
class Driver:
    """A working driver: the newest CUDA version that it runs, and the GPUs that it sees.

    Parameters
    ----------
    cuda : str
    gpus : int
    sm : int or None
        Architecture of the first, 90 for ``sm_90``; None when the driver does not say.
    """

    cuda: str
    gpus: int
    sm: int | None = None


@functools.cache
def ask() -> Driver | str:
    """Give the driver, or the reason why there is none that works; asked once per process.

    The driver is initialized in a child process: a broken one may crash it, and a process that has
    initialized CUDA can no longer use it in its forked children.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 cannot be loaded)"
    command = [sys.executable, "-I", "-S", "-c", _SCRIPT]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        code, gpus, version, sm = json.loads(run.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return "libcuda.so.1 is there but fails when it is used"
    if code or not gpus:
        code = code or _NO_DEVICE
        return _ERRORS.get(code, f"the driver fails with CUDA error {code}")
    return Driver(f"{version // 1000}.{version % 1000 // 10}", gpus, sm or None)


def has_gpu() -> bool:
    """Whether a PCI device of NVIDIA is in this machine, with or without its driver."""
    return any(path.read_text().strip() == _NVIDIA_VENDOR for path in _PCI.glob("*/vendor"))
