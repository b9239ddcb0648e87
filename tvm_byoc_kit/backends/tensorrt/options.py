"""Options of the TensorRT backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, TypeAlias

from tvm_byoc_kit.errors import OptionError

__all__ = ["Profile", "Sizes", "TensorRTOptions"]

#: Smallest, best and largest: three shapes of an input, or three sizes of a symbolic dimension.
Sizes: TypeAlias = "tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]] | tuple[int, int, int]"
#: By name of an input, or of a symbolic dimension.
Profile: TypeAlias = "dict[str, Sizes]"

_CHOICES: dict[str, tuple[object, ...]] = {
    "precision": ("fp32", "fp16", "bf16", "int8"),
    "hardware_compatibility": ("none", "ampere_plus", "same_compute_capability"),
    "optimization_level": (None, 0, 1, 2, 3, 4, 5),
    "build_at": ("compile", "first_run"),
    "vendor": (None, "tensorrt", "tensorrt_rtx"),
}
_FLAGS = ("tf32", "version_compatible", "strip_weights", "refit", "progress")
_SIZES = ("workspace_bytes", "engine_cache_bytes")
_PATHS = ("timing_cache", "engine_cache")


@dataclass(frozen=True)
class TensorRTOptions:
    """Options of the TensorRT backend, kept in the artifact.

    Parameters
    ----------
    precision : {"fp32", "fp16", "bf16", "int8"}
        What floating point is computed in. Inputs and outputs keep their dtypes. ``fp16`` and
        ``bf16``: softmax, normalizations, sums, means, exponentials and the like stay in 32 bits.
        ``int8``: what stands between quantize and dequantize ops computes in 8 bits, and the rest
        as with ``fp32``; `byoc.calibrate` puts these ops into a model.
    tf32 : bool
        Whether products of 32-bit floats may be computed with 10 bits of mantissa, where the GPU
        can (compute capability 8.0 and later): much faster, and errors about 1e-3.
    workspace_bytes : int
        The most scratch memory on the GPU that the engine may use; 0: as the vendor chooses.
    profiles : mapping, or sequence of mappings
        For each symbolic dimension the smallest size, the one to optimize for, and the largest:
        ``{"x": ((1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 224, 224))}`` by input, or
        ``{"n": (1, 8, 32)}`` by the dimension's name. Several mappings are several optimization
        profiles of one engine; a call takes the first that its shapes fit. They are stored as a
        tuple of mappings. A model with static shapes needs none.
    compute_capabilities : sequence of int
        GPUs to build for, 89 for compute capability 8.9. Empty: the GPU of this machine; where
        there is none, TensorRT-RTX builds for all that it knows from 8.0 on. TensorRT itself builds
        for the GPU of the machine only.
    hardware_compatibility : {"none", "ampere_plus", "same_compute_capability"}
        On which other GPUs a plan of TensorRT's may run, at some cost of speed: ``ampere_plus`` is
        8.0 and later. TensorRT-RTX has `compute_capabilities` for that.
    version_compatible : bool
        Whether later releases of the same major version may run the plan. Needs a driver to build.
    optimization_level : int, optional
        0 builds fastest, 5 searches longest; None: the vendor's default.
    timing_cache : str
        File of measured kernels that builds share and add to; empty: none.
    engine_cache : str, optional
        Folder of built engines, by content: a build that has been made is not made again. Empty:
        none. None: `engine_cache.default_directory` with ``build_at="first_run"``, where it spares
        each process a build, else none, since the artifact has the engine.
    engine_cache_bytes : int
        What the folder may hold; what was not used for longest goes first.
    strip_weights : bool
        Leave the weights out of the plan; they are put back when it is loaded, from the artifact,
        which then has to hold them beside it. Needs a driver to build.
    refit : bool
        Build so that weights can be exchanged later. Needs a driver to build.
    build_at : {"compile", "first_run"}
        ``compile``: the artifact holds the engine, for the GPUs it was built for. ``first_run``: it
        holds the region, and the engine is built where it runs, at the first call.
    progress : bool
        Show a bar while an engine is built, on a terminal.
    vendor : {"tensorrt", "tensorrt_rtx"}, optional
        Which of the packages; None: the first that is installed.
    """

    precision: str = "fp32"
    tf32: bool = False
    workspace_bytes: int = 0
    profiles: Any = ()
    compute_capabilities: Any = ()
    hardware_compatibility: str = "none"
    version_compatible: bool = False
    optimization_level: int | None = None
    timing_cache: str = ""
    engine_cache: str | None = None
    engine_cache_bytes: int = 4 << 30
    strip_weights: bool = False
    refit: bool = False
    build_at: str = "compile"
    progress: bool = True
    vendor: str | None = field(default=None)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if isinstance(value, bool) or value not in allowed:
                raise _error(name, value, f"one of {', '.join(map(str, allowed))}")
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise _error(name, getattr(self, name), "True or False")
        for name in _SIZES:
            if not _is_size(getattr(self, name)):
                raise _error(name, getattr(self, name), "a number of bytes, 0 or more")
        for name in _PATHS:
            object.__setattr__(self, name, _path(name, getattr(self, name)))
        object.__setattr__(self, "profiles", _profiles(self.profiles))
        capabilities = _capabilities(self.compute_capabilities)
        object.__setattr__(self, "compute_capabilities", capabilities)


def _error(name: str, value: object, expected: str) -> OptionError:
    return OptionError(f"tensorrt option {name}={value!r}: expected {expected}")


_MOST = 2**63 - 1  # what the vendor's integers hold


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _path(name: str, value: object) -> str | None:
    if isinstance(value, (str, PathLike)):
        return str(fspath(value))
    if value is None and name == "engine_cache":
        return None
    raise _error(name, value, "a path, or '' for none")


_OLDEST, _NEWEST = 75, 199


def _capabilities(given: object) -> tuple[int, ...]:
    values = (given,) if isinstance(given, int) else given
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise _error("compute_capabilities", given, "numbers such as 89, for 8.9")
    for value in values:
        if type(value) is not int or not _OLDEST <= value <= _NEWEST:
            raise _error("compute_capabilities", given, "numbers such as 89, for 8.9")
    return tuple(sorted(set(values)))


def _profiles(given: object) -> tuple[Profile, ...]:
    if isinstance(given, Mapping):
        given = (given,) if given else ()
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise _error("profiles", given, "a mapping of names, or several of them")
    return tuple(map(_profile, given))


def _profile(given: object) -> Profile:
    if not isinstance(given, Mapping) or not given:
        raise _error("profiles", given, "a mapping of names to their smallest, best, largest size")
    return {str(name): _sizes(str(name), value) for name, value in given.items()}


_BOUNDS = 3  # smallest, best, largest


def _sizes(name: str, given: object) -> Sizes:
    """Three shapes of an input, or three sizes of a dimension, in order."""
    what = f"profiles[{name!r}]"
    form = "smallest, best and largest, as three shapes of an input or three sizes of a dimension"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != _BOUNDS:
        raise _error(what, given, form)
    if all(map(_is_size, given)):
        _check_order(what, given, [tuple(given)])
        return (given[0], given[1], given[2])
    if not all(_is_shape(shape) for shape in given) or len({len(shape) for shape in given}) != 1:
        raise _error(what, given, f"{form}, of one rank")
    _check_order(what, given, list(zip(*given, strict=True)))
    return (tuple(given[0]), tuple(given[1]), tuple(given[2]))


def _is_shape(value: object) -> bool:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    return all(map(_is_size, value))


def _check_order(name: str, given: object, axes: list[tuple[int, ...]]) -> None:
    for smallest, best, largest in axes:
        if not smallest <= best <= largest:
            raise _error(name, given, f"sizes in order, and {smallest}, {best}, {largest} are not")
