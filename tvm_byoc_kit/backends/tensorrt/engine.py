"""Building an engine's plan from a region."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backends.tensorrt.monitor import interruptible, make_monitor
from tvm_byoc_kit.backends.tensorrt.network import build_network
from tvm_byoc_kit.backends.tensorrt.profiles import input_shapes, ranges_of
from tvm_byoc_kit.build_progress import showing
from tvm_byoc_kit.errors import BackendUnavailable, ModelError, OptionError
from tvm_byoc_kit.files import replacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm_byoc_kit.backends.tensorrt.network import Binding, Network
    from tvm_byoc_kit.backends.tensorrt.options import TensorRTOptions
    from tvm_byoc_kit.backends.tensorrt.profiles import Ranges
    from tvm_byoc_kit.backends.tensorrt.vendor import Vendor
    from tvm_byoc_kit.graph import Graph

__all__ = [
    "Engine",
    "build_engine",
    "check_options",
    "known_capabilities",
    "local_capability",
    "local_gpu",
    "target_capabilities",
]


@dataclass(frozen=True)
class Engine:
    """A plan, and what its bindings are.

    Parameters
    ----------
    plan : bytes
        For the vendor's runtime, of the same release.
    inputs, outputs : tuple of Binding
    profiles : tuple of Ranges
    """

    plan: bytes
    inputs: tuple[Binding, ...]
    outputs: tuple[Binding, ...]
    profiles: tuple[Ranges, ...]


def build_engine(
    graph: Graph, vendor: Vendor, options: TensorRTOptions, capabilities: Sequence[int]
) -> Engine:
    """Build the plan for GPUs of these compute capabilities.

    Parameters
    ----------
    graph : Graph
    vendor : Vendor
    options : TensorRTOptions
    capabilities : sequence of int
        From `target_capabilities`.

    Raises
    ------
    ModelError
        When the vendor refuses the network, with its message.
    OptionError
        For options that this vendor does not have.
    BackendUnavailable
        For options that need a driver, without one.
    KeyboardInterrupt
        On Ctrl-C, after the vendor has stopped.
    """
    check_options(vendor, options)
    profiles = ranges_of(graph, options.profiles)
    network = build_network(graph, vendor, options)
    cancelled = threading.Event()
    with showing(graph.name, wanted=options.progress) as display:
        monitor = make_monitor(vendor.module, display, cancelled)
        settings = _Settings(vendor, options, tuple(capabilities), profiles, monitor)
        plan = interruptible(lambda: _build(graph.name, network, settings), cancelled)
    return Engine(plan, network.inputs, network.outputs, profiles)


@dataclass(frozen=True)
class _Settings:
    vendor: Vendor
    options: TensorRTOptions
    capabilities: tuple[int, ...]
    profiles: tuple[Ranges, ...]
    monitor: Any


def _build(region: str, network: Network, settings: _Settings) -> bytes:
    vendor = settings.vendor
    timings = _timing_cache_file(settings)
    with vendor.messages() as log:
        config = _config(network, settings)
        held = _use_timing_cache(config, timings)
        plan = network.builder.build_serialized_network(network.network, config)
        if plan is None:
            raise ModelError(
                f"{vendor} cannot build region `{region}` for compute capability "
                f"{', '.join(map(str, settings.capabilities))}: {log.errors or 'no reason given'}"
            )
        _keep_timing_cache(config, timings)
        del held
        return bytes(plan)


def _config(network: Network, settings: _Settings) -> Any:
    trt, options = settings.vendor.module, settings.options
    config = network.builder.create_builder_config()
    config.progress_monitor = settings.monitor
    if settings.vendor.is_rtx:
        config.num_compute_capabilities = len(settings.capabilities)
        for number, capability in enumerate(settings.capabilities):
            config.set_compute_capability(getattr(trt.ComputeCapability, f"SM{capability}"), number)
    elif options.hardware_compatibility != "none":
        level = getattr(trt.HardwareCompatibilityLevel, options.hardware_compatibility.upper())
        config.hardware_compatibility_level = level
    if options.workspace_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace_bytes)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    for field, flag in _FLAGS.items():
        (config.set_flag if getattr(options, field) else config.clear_flag)(
            getattr(trt.BuilderFlag, flag)
        )
    _add_profiles(network, config, settings.profiles)
    return config


_FLAGS: Mapping[str, str] = {
    "tf32": "TF32",
    "version_compatible": "VERSION_COMPATIBLE",
    "strip_weights": "STRIP_PLAN",
    "refit": "REFIT",
}


def _add_profiles(network: Network, config: Any, profiles: Sequence[Ranges]) -> None:
    symbolic = [binding for binding in network.inputs if not binding.value.is_static]
    if not symbolic:
        return
    for ranges in profiles:
        profile = network.builder.create_optimization_profile()
        for binding in symbolic:
            profile.set_shape(binding.name, *input_shapes(binding.value.shape, ranges))
        config.add_optimization_profile(profile)


# --- what the engine is built for -----------------------------------------------------------------


def known_capabilities(vendor: Vendor) -> tuple[int, ...]:
    """Compute capabilities that TensorRT-RTX builds for; of TensorRT: none, it builds for a GPU."""
    if not vendor.is_rtx:
        return ()
    names = vars(vendor.module.ComputeCapability)
    return tuple(sorted(int(name[2:]) for name in names if name[:2] == "SM" and name[2:].isdigit()))


def target_capabilities(vendor: Vendor, options: TensorRTOptions) -> tuple[int, ...]:
    """The compute capabilities to build for.

    Raises
    ------
    OptionError
        For some that this vendor does not build for here.
    BackendUnavailable
        When it builds for the GPU of the machine only, and there is none.
    """
    wanted = options.compute_capabilities
    if vendor.is_rtx:
        return _of_rtx(vendor, wanted)
    here = local_capability()
    if here is None:
        raise BackendUnavailable(
            "tensorrt",
            "codegen",
            f"{vendor} builds engines for the GPU of the machine only, and {_why_no_gpu()}",
            "build where the model runs, options={'build_at': 'first_run'}, or with TensorRT-RTX, "
            "which needs no GPU: pip install tensorrt-rtx-cu13, options={'vendor': 'tensorrt_rtx'}",
        )
    compatible = options.hardware_compatibility == "ampere_plus" and here >= _AMPERE
    for capability in wanted:
        if capability != here and not (compatible and capability >= _AMPERE):
            raise OptionError(
                f"tensorrt option compute_capabilities={wanted}: {vendor} builds for this "
                f"machine's GPU, which is {here}; with hardware_compatibility='ampere_plus' the "
                "engine also runs on others from 80 on"
            )
    return (here,)


_AMPERE = 80


def _of_rtx(vendor: Vendor, wanted: tuple[int, ...]) -> tuple[int, ...]:
    known = known_capabilities(vendor)
    for capability in wanted:
        if capability not in known:
            raise OptionError(
                f"tensorrt option compute_capabilities={wanted}: {vendor} does not build for "
                f"{capability}; it does for {', '.join(map(str, known))}"
            )
    if wanted:
        return wanted
    here = local_capability()
    return (here,) if here in known else tuple(c for c in known if c >= _AMPERE)


def local_capability() -> int | None:
    """Compute capability of the first GPU here, 89 for 8.9; None without one."""
    if not probe("device:cuda"):
        return None
    import tvm

    return int(str(tvm.cuda(0).compute_version).replace(".", ""))


def local_gpu() -> str:
    """Model of the first GPU here, as its driver calls it; empty without one."""
    if not probe("device:cuda"):
        return ""
    import tvm

    return str(tvm.cuda(0).device_name)


def _why_no_gpu() -> str:
    return probe("device:cuda").detail


def check_options(vendor: Vendor, options: TensorRTOptions) -> None:
    """Refuse what this vendor does not have, or has not here.

    Raises
    ------
    OptionError, BackendUnavailable
    """
    if vendor.is_rtx:
        for name, default in (("hardware_compatibility", "none"), ("version_compatible", False)):
            if getattr(options, name) != default:
                raise OptionError(
                    f"tensorrt option {name}={getattr(options, name)!r}: {vendor} has no such "
                    "thing; name all GPUs in compute_capabilities instead"
                )
    for name in ("strip_weights", "refit"):
        driver = probe("cuda-driver")
        if getattr(options, name) and not driver:
            raise BackendUnavailable(
                "tensorrt",
                "codegen",
                f"{vendor} builds with {name}=True only where a GPU is: {driver.detail}",
                f"leave {name} out, or build where the model runs, "
                "options={'build_at': 'first_run'}",
            )


# --- timing cache ---------------------------------------------------------------------------------


def _use_timing_cache(config: Any, path: Path | None) -> Any:
    """Give `config` the measurements in the file, or none; the result has to outlive the build."""
    if path is None:
        return None
    known = b""
    with contextlib.suppress(FileNotFoundError):
        known = path.read_bytes()
    cache = config.create_timing_cache(known)  # an empty one for what it cannot read
    config.set_timing_cache(cache, False)
    return cache


def _keep_timing_cache(config: Any, path: Path | None) -> None:
    """Write what is known now. Of two builds at once, the later one's is kept."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_bytes(bytes(config.get_timing_cache().serialize()))


def _timing_cache_file(settings: _Settings) -> Path | None:
    """TensorRT-RTX measures nothing, and has none."""
    path = settings.options.timing_cache
    return Path(path) if path and not settings.vendor.is_rtx else None
