"""What an artifact is, and whether it would load here, without running anything of it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_byoc_kit import native
from tvm_byoc_kit.artifact import Manifest, read_manifest, versions
from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.backend import STEPS, get_backend
from tvm_byoc_kit.coverage_text import patterns, size
from tvm_byoc_kit.errors import BackendUnavailable, ByocError, OptionError
from tvm_byoc_kit.fat_binary import DeviceCode
from tvm_byoc_kit.loading import CHECKS, Check, check_file
from tvm_byoc_kit.payload import PAYLOAD_KIND, missing_remedy
from tvm_byoc_kit.terminal import aligned
from tvm_byoc_kit.variant_text import variant_facts

__all__ = ["Inspection", "inspect_artifact"]


@dataclass(frozen=True)
class Inspection:
    """An artifact as it lies on disk. ``str()`` gives a page of text.

    Parameters
    ----------
    path : str
    bytes : int
        Size of the file.
    manifest : Manifest
    here : mapping of package to version
        What is installed here of the packages that it was built with.
    intact : bool
        Whether the library is, byte for byte, what was exported.
    refusal : str
        Why it cannot be loaded here, and what to do; empty when nothing stands against it. What
        only TVM can tell, such as a function that a plugin registers, is not looked at.
    """

    path: str
    bytes: int
    manifest: Manifest
    here: Mapping[str, str]
    intact: bool
    refusal: str

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "path": self.path,
            "bytes": self.bytes,
            "intact": self.intact,
            "loads_here": not self.refusal,
            "refusal": self.refusal,
            "here": dict(self.here),
            "manifest": self.manifest.to_dict(),
        }

    def __str__(self) -> str:
        facts = [(_printable(name), _printable(text)) for name, text in _facts(self) if text]
        return "\n".join([_printable(self.path), *(f"  {line}" for line in aligned(facts))])


def inspect_artifact(path: str | os.PathLike[str]) -> Inspection:
    """Read an artifact's manifest and check its file; neither TVM nor the artifact is loaded.

    Raises
    ------
    ArtifactError
        When it is missing, truncated, no artifact, or of a later format.
    """
    path = Path(path)
    manifest = read_manifest(path)
    refusals = {check: _refusal(check, path, manifest) for check in (*CHECKS, _check_backend)}
    return Inspection(
        path=str(path),
        bytes=path.stat().st_size,
        manifest=manifest,
        here=versions(),
        intact=not refusals[check_file],
        refusal=next(filter(None, refusals.values()), ""),
    )


def _refusal(check: Check, path: Path, manifest: Manifest) -> str:
    try:
        check(path, manifest)
    except ByocError as error:
        return str(error)
    return ""


_ONLY_TVM_TELLS = ("codegen:", "runtime:", "target:", "device:", "tvm-import")


def _check_backend(_path: Path, manifest: Manifest) -> None:
    """Refuse an artifact with regions whose backend, or a package that it needs, is missing."""
    name = manifest.backend
    if not manifest.loaders:
        return
    try:
        requires = get_backend(name).requires
    except OptionError as error:
        remedy = missing_remedy(manifest.package)
        raise BackendUnavailable(name, "runtime", str(error), remedy) from error
    steps = STEPS[: STEPS.index("device")]
    needed = [wanted for step in steps for wanted in requires.get(step, ())]
    needed += ["plugin:core"] if PAYLOAD_KIND in manifest.loaders else []
    for wanted in needed:
        if wanted.startswith(_ONLY_TVM_TELLS):
            continue
        kind, _, subject = wanted.partition(":")
        status = native.inspect(subject) if kind == "plugin" else probe(wanted)
        status.require(name, "runtime")


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    manifest = found.manifest
    damage = "" if found.intact else ", DAMAGED: the checksum does not match"
    yield "file", f"{size(found.bytes)}, manifest of format {manifest.format}{damage}"
    yield "backend", manifest.backend + (f" ({manifest.package})" if manifest.package else "")
    yield "options", json.dumps(manifest.options) if manifest.options else ""
    yield "target", manifest.target
    yield "inputs", "; ".join(map(str, manifest.inputs))
    yield "outputs", "; ".join(map(str, manifest.outputs))
    for number, (name, composites) in enumerate(manifest.regions.items(), 1):
        label = name if manifest.variants else f"region {number}"
        yield label, patterns(composites, manifest.backend)
    yield from variant_facts(manifest.variants)
    yield "needs", ", ".join((manifest.machine, *manifest.cpu))
    yield "GPU code", _device_code(manifest.device_code)
    yield "sha256", str(manifest.library.get("sha256", ""))
    yield "built with", _versions(manifest.versions)
    yield "here", _versions(found.here)
    yield "loads here", f"no: {found.refusal}" if found.refusal else "yes, as far as a look tells"


def _device_code(held: Mapping[str, Any]) -> str:
    code = DeviceCode(
        tuple(held.get("machine_code", ())), tuple(held.get("ptx", ())), bool(held.get("source"))
    )
    notes = held.get("notes", ())
    return "; ".join([str(code), *map(str, notes)]) if code else ""


def _versions(found: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in found.items())


def _printable(text: str) -> str:
    """`text` with what would steer a terminal spelled out: anyone may have written a manifest."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
