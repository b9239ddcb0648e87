"""Upstream's own tests of TensorRT, with the oracle in the place of the GPU.

They are read from a checkout of apache/tvm, which the project does not carry:
``TVM_SOURCE=/path/to/tvm scripts/test.sh tests/backends/tensorrt/test_upstream_modules.py``.
Each one compares with the host's build of the same module, by its own tolerance.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tvm
from tvm import relax

from . import engines
from .harness import Regions

pytest.importorskip("tensorrt_rtx", reason="pip install tensorrt-rtx-cu13")

SOURCE = os.environ.get("TVM_SOURCE", "")
SCRIPT = Path(SOURCE) / "tests/python/relax/test_codegen_tensorrt.py"
# Runs twice on the GPU to calibrate there; byoc.calibrate has tests of its own.
ON_A_GPU = {"test_tensorrt_int8_calibration"}

pytestmark = pytest.mark.skipif(
    not SOURCE, reason="set TVM_SOURCE to a checkout of apache/tvm to run this"
)


def names() -> list[str]:
    """Of the tests in the script."""
    found = re.findall(r"^def (test_\w+)\(", SCRIPT.read_text(), re.M) if SOURCE else []
    return [name for name in found if name not in ON_A_GPU]


@pytest.fixture(scope="module")
def upstream() -> Iterator[ModuleType]:
    """The script as a module, in which CUDA is the oracle."""
    spec = importlib.util.spec_from_file_location("upstream_tensorrt", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, module.__name__, module)  # TVMScript looks there for the source
        spec.loader.exec_module(module)
        yield from on_the_oracle(module, patch)


def on_the_oracle(module: ModuleType, patch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """`module` with another runtime."""
    on_host = module.build_and_run

    def build_and_run(mod: Any, inputs: Any, target: str, **options: Any) -> Any:
        if target != "cuda":
            return on_host(mod, inputs, target, **options)
        regions = Regions(mod)
        networks = regions.networks()
        assert networks
        for network in networks.values():
            engines.check(engines.build(network, {}), network, {})
        (found,) = regions.outputs(networks, inputs)
        return found

    patch.setattr(module, "build_and_run", build_and_run)
    patch.setattr(module, "memoize", lambda _key: lambda function: function)
    # Regions stay what they are: the oracle reads them.
    patch.setattr(relax.transform, "RunCodegen", lambda: tvm.transform.Sequential([]))
    yield module


def cases(function: Any) -> list[dict[str, Any]]:
    """The arguments that a test is parametrized with."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    if not marks:
        return [{}]
    ((keys, values),) = [mark.args for mark in marks]
    return [dict(zip(keys.replace(",", " ").split(), value, strict=True)) for value in values]


@pytest.mark.parametrize("name", names())
def test_an_upstream_test_passes(upstream: ModuleType, name: str) -> None:
    function = getattr(upstream, name)
    for arguments in cases(function):
        function(**arguments)
