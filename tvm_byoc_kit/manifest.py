"""The manifest: what an artifact says of itself, and the check that it says it well."""

from __future__ import annotations

import platform
import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.signature import TensorSpec
from tvm_byoc_kit.variants import Variants

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FORMAT", "Manifest"]

FORMAT = 2  # 1 had no `variants`; it is still read


@dataclass(frozen=True)
class Manifest:
    """What an artifact says of itself.

    Parameters
    ----------
    inputs, outputs : tuple of TensorSpec
    entry : str
        The function to run; with `variants`, the one that a program which chooses none runs.
    backend, target : str
    options : dict
        Of the backend's codegen.
    loaders : tuple of str
        Kinds of the modules inside that need a loader at run time.
    package : str
        What ``pip install`` adds the backend with, if it says so.
    versions : dict
        Of the kit, TVM and tvm-ffi, at build time.
    machine : str
        Processor, as ``uname -m`` names it.
    library : dict
        Size in bytes and SHA-256 of the library before the manifest.
    variants : Variants
        The builds to choose among, where there is more than one.
    regions : dict
        Patterns of the composite functions in each region, in the order of their calls, by the
        region's symbol.
    cpu : tuple of str
        What the code needs that not every processor of this kind has, as LLVM names it: ``avx2``.
    device_code : dict
        Of code for NVIDIA's GPUs: the architectures of machine code and PTX, whether there is CUDA
        source, and notes of the build. Empty without a target of CUDA.
    format : int
        Of the manifest itself.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    entry: str
    backend: str
    target: str
    options: dict[str, Any] = field(default_factory=dict)
    loaders: tuple[str, ...] = ()
    package: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = field(default_factory=platform.machine)
    library: dict[str, Any] = field(default_factory=dict)
    variants: Variants = field(default_factory=Variants)
    regions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cpu: tuple[str, ...] = ()
    device_code: dict[str, Any] = field(default_factory=dict)
    format: int = FORMAT

    def to_dict(self) -> dict[str, Any]:
        """As written into the artifact."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Manifest:
        """The inverse of :meth:`to_dict`; unknown fields of a later kit are left out.

        Raises
        ------
        KeyError, TypeError
            For a field that is missing or of another type.
        """
        given = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        for name, is_right in _REQUIRED.items():
            _check(name, data[name], is_right)
        for name, is_right in _OPTIONAL.items():
            if name in data:
                _check(name, data[name], is_right)
        for name, read in _READ.items():
            if name in data:
                given[name] = read(data[name])
        manifest = cls(**given)
        open_in_inputs = {dim for spec in manifest.inputs for dim in spec.shape}
        if not manifest.variants.dimensions.keys() <= open_in_inputs:
            raise TypeError("field `variants` has a dimension that no input has")
        return manifest


def _check(name: str, value: Any, is_right: Callable[[Any], bool]) -> None:
    if not is_right(value):
        raise TypeError(f"field `{name}` is {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."


_LONGEST_QUOTE = 80


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_text, value))


def _is_signature(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_tensor, value))


def _is_tensor(item: Any) -> bool:
    fine = isinstance(item, dict) and _is_text(item["name"]) and _is_text(item["dtype"])
    return fine and isinstance(item["shape"], (list, tuple)) and all(map(_is_size, item["shape"]))


def _is_size(dim: Any) -> bool:
    return isinstance(dim, str) or (type(dim) is int and dim >= 0)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_device_code(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    architectures = (*value.get("machine_code", ()), *value.get("ptx", ()))
    return all(isinstance(name, str) and _ARCHITECTURE.fullmatch(name) for name in architectures)


_ARCHITECTURE = re.compile("sm_[0-9]{2,3}[a-z]?")

# What the manifest's fields are, in JSON.
_REQUIRED: dict[str, Callable[[Any], bool]] = {
    "inputs": _is_signature,
    "outputs": _is_signature,
    "entry": _is_text,
    "backend": _is_text,
    "target": _is_text,
    "options": _is_object,
    "loaders": _is_texts,
    "versions": lambda value: isinstance(value, dict) and _is_texts([*value.values()]),
    "machine": _is_text,
    "library": _is_object,
}
# Not all kits that wrote a format wrote these.
_OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "package": _is_text,
    "regions": lambda value: isinstance(value, dict) and all(map(_is_texts, value.values())),
    "cpu": _is_texts,
    "device_code": _is_device_code,
}
# How fields come back that JSON holds in another form.
_READ: dict[str, Callable[[Any], Any]] = {
    "inputs": lambda items: tuple(map(TensorSpec.from_dict, items)),
    "outputs": lambda items: tuple(map(TensorSpec.from_dict, items)),
    "loaders": tuple,
    "variants": Variants.from_dict,
    "regions": lambda regions: {name: tuple(names) for name, names in regions.items()},
    "cpu": tuple,
}
