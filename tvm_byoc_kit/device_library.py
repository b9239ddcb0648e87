"""A library with code for GPUs, which another process has linked."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tvm_byoc_kit.errors import ArtifactError, reason
from tvm_byoc_kit.fat_binary import DeviceCode, device_code

__all__ = ["DeviceLibrary"]


class DeviceLibrary:
    """A library that a build for GPUs links, in a file that is there as long as this object."""

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="byoc-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, "model.so")
        """The file."""
        self.notes: tuple[str, ...] = ()
        """What is to be said of the build."""

    @functools.cached_property
    def code(self) -> DeviceCode:
        """The code for GPUs in it."""
        return device_code(self.path)

    @functools.cached_property
    def mod(self) -> Any:
        """The library as a ``tvm.runtime.Module``.

        Raises
        ------
        ArtifactError
            Where TVM has no CUDA runtime to load it with.
        """
        import tvm_ffi

        try:
            return tvm_ffi.load_module(str(self.path))
        except Exception as error:  # the loader raises what the modules inside raise
            raise ArtifactError(
                f"code for a GPU cannot be loaded here: {reason(error)}; export it, and load the "
                "artifact on a machine with a GPU"
            ) from error

    def export_library(self, path: str) -> None:
        """Write it to `path`, as TVM's modules do."""
        shutil.copyfile(self.path, path)

    def to_dict(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {**asdict(self.code), "notes": list(self.notes)}
