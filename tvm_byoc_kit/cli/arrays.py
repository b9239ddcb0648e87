"""Arrays in and out of .npz files, and in a line."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.cli.output import writing
from tvm_byoc_kit.files import replacing

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.runtime import Executable

__all__ = ["describe", "read_inputs", "write_npz"]


def read_inputs(exe: Executable, path: Path | None, seed: int) -> dict[str, np.ndarray]:
    """Those of an archive, or random ones."""
    from tvm_byoc_kit.sample_inputs import random_inputs, read_npz

    if path is not None:
        return read_npz(path, "--inputs")
    return random_inputs(exe.inputs, seed, exe.manifest.variants.example_sizes())


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an archive in one step."""
    import numpy as np

    # Not np.savez: it has keywords of its own, which an output may be called.
    with (
        writing("--output", path),
        replacing(path) as unfinished,
        zipfile.ZipFile(unfinished, "w") as archive,
    ):
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def describe(array: np.ndarray) -> dict[str, Any]:
    """Shape, dtype and the first elements, as ``--json`` has them."""
    flat = array.ravel()
    head = ", ".join(f"{value:.6g}" for value in flat[:8].tolist())
    more = ", ..." if flat.size > 8 else ""  # noqa: PLR2004 - as many as fit a line
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "summary": f"{array.dtype}{list(array.shape)} [{head}{more}]",
    }
