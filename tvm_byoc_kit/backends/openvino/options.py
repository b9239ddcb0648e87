"""Options of the OpenVINO backend."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvm_byoc_kit.errors import OptionError

__all__ = ["OpenVINOOptions"]

_CHOICES = {
    "precision": ("f32", "f16", "bf16"),
    "performance": ("latency", "throughput"),
    "weights": ("as_is", "fp16"),
}
_DEVICES = ("CPU", "GPU", "NPU", "AUTO")


@dataclass(frozen=True)
class OpenVINOOptions:
    """Options of the OpenVINO backend, kept in the artifact.

    Parameters
    ----------
    device : str
        ``CPU``, ``GPU``, ``NPU`` or ``AUTO``; also one of several (``GPU.1``), or a list of them to
        choose from (``AUTO:GPU,CPU``).
    precision : {"f32", "f16", "bf16"}
        What floating point is computed in. ``f32`` is exact; the others are faster where the
        device has them.
    threads : int
        CPU threads of one inference; 0: as many as OpenVINO chooses. For ``CPU`` and ``AUTO``.
    performance : {"latency", "throughput"}
        ``latency`` lets all threads work on one call, ``throughput`` suits many calls at once.
    cache_dir : str
        Where compiled models are kept, so that the next process loads them instead of compiling;
        empty: nowhere. Relative paths are relative to the process that runs the model.
    weights : {"as_is", "fp16"}
        ``fp16`` stores weights in half the bytes, rounded, and again for each region and each size
        of a batch; as they are, they are stored once. Computing is as `precision` says.

    Notes
    -----
    OpenVINO has its own threads. Where ops stay on the host, TVM's threads spin for a while after
    each of them and so take cores from OpenVINO: set ``TVM_THREAD_POOL_SPIN_COUNT=0`` in the
    environment for such models. With one region and nothing on the host, TVM starts no threads.
    """

    device: str = "CPU"
    precision: str = "f32"
    threads: int = 0
    performance: str = "latency"
    cache_dir: str = ""
    weights: str = "as_is"

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise OptionError(
                    f"openvino option {name}={value!r}: expected one of {', '.join(allowed)}"
                )
        if not isinstance(self.device, str) or not _is_device(self.device):
            raise OptionError(
                f"openvino option device={self.device!r}: expected {', '.join(_DEVICES)}, one of "
                "several such as 'GPU.1', or a choice such as 'AUTO:GPU,CPU'"
            )
        if type(self.threads) is not int or not 0 <= self.threads <= _MOST_THREADS:
            raise OptionError(
                f"openvino option threads={self.threads!r}: expected an integer from 0 to "
                f"{_MOST_THREADS}"
            )
        if self.threads and self.device[:3] in ("GPU", "NPU"):
            raise OptionError(
                f"openvino option threads={self.threads}: device {self.device} has no CPU threads; "
                "leave it out"
            )
        if isinstance(self.cache_dir, Path):
            object.__setattr__(self, "cache_dir", str(self.cache_dir))
        if not isinstance(self.cache_dir, str):
            raise OptionError(
                f"openvino option cache_dir={self.cache_dir!r}: expected a path, or '' for none"
            )


_MOST_THREADS = 4096


def _is_device(text: str) -> bool:
    kind, _, choice = text.partition(":")
    names = [kind, *choice.split(",")] if choice else [kind]
    return all(
        name.split(".")[0] in _DEVICES and (name.count(".") == 0 or name.split(".")[1].isdigit())
        for name in names
    )
