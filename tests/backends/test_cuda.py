"""The backend ``cuda``, and models in 16 bits; no kernel runs here, only what a CPU can."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

import tvm_byoc_kit as byoc
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.prepare_report import count_ops
from tvm_byoc_kit.rewriting import array_of

ROOT = Path(__file__).parents[2]
DATA = Path(byoc.__file__).parent / "data"
needs_toolkit = pytest.mark.skipif(
    not byoc.probe("cuda-toolkit"), reason=byoc.probe("cuda-toolkit").detail
)


@pytest.fixture(scope="module")
def digits() -> Any:
    return byoc.load_model(DATA / "digits.onnx")


def products(mod: Any) -> set[str]:
    """Dtypes of operands and results of convolutions and matrix products."""
    found: set[str] = set()

    def look(expr: Any) -> None:
        if isinstance(expr, relax.Call) and expr.op.name in ("relax.nn.conv2d", "relax.matmul"):
            found.add(f"{expr.args[0].ty.dtype} to {expr.ty.dtype}")

    relax.analysis.post_order_visit(mod["main"], look)
    return found


@needs_toolkit
def test_a_model_becomes_machine_code_from_the_command_line(tmp_path: Path) -> None:
    artifact = tmp_path / "digits.so"
    command = ["compile", DATA / "digits.onnx", "--backend", "cuda", "--target", "a100,h100"]
    run = subprocess.run(
        [sys.executable, "-m", "tvm_byoc_kit.cli", *command, "--fp16", "--json", "-o", artifact],
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(run.stdout)
    assert facts["manifest"]["device_code"]["machine_code"] == ["sm_80", "sm_90"]
    assert byoc.device_code(artifact).machine_code == ("sm_80", "sm_90")
    assert not byoc.device_code(artifact).source


@needs_toolkit
def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "cuda.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tvm_byoc_kit").symlink_to(DATA.parent)
    run = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert run.stdout == "machine code for sm_80, sm_90\n"


def test_half_precision_gives_nearly_the_same_numbers(digits: Any) -> None:
    images = np.load(DATA / "digits_test.npz")["images"][:8, None, None].astype("float32") / 16
    exe = byoc.build(byoc.partition(byoc.half_precision(digits, "llvm"), "llvm"))
    (spec,) = exe.inputs
    assert spec.dtype == "float32"
    for image in images:
        given = {spec.name: image}
        (expected,) = digits.reference.run(given).values()
        (found,) = exe.run(given).values()
        assert found.dtype == np.float32
        assert found.argmax() == expected.argmax()
        np.testing.assert_allclose(found, expected, atol=0.01 * np.abs(expected).max())


def test_half_precision_halves_the_weights(digits: Any) -> None:
    def nbytes(model: Any) -> int:
        sizes: list[int] = []

        def look(expr: Any) -> None:
            array = array_of(expr)
            sizes.append(0 if array is None else array.nbytes)

        relax.analysis.post_order_visit(model.mod["main"], look)
        return sum(sizes)

    whole = nbytes(byoc.prepare(digits, "cuda"))
    assert nbytes(byoc.half_precision(digits, "cuda")) == pytest.approx(whole / 2, rel=0.01)


@pytest.mark.parametrize(
    ("backend", "expected"),
    [("cuda", "float16 to float32"), ("cutlass", "float16 to float16")],
)
def test_products_of_half_precision_are_summed_in_32_bits(
    backend: str, expected: str, digits: Any
) -> None:
    """By the type of the result in TVM's own kernels; CUTLASS's sum so for either type."""
    half = byoc.half_precision(digits, backend)
    assert products(half.mod) == {expected}
    assert count_ops(half.mod)["relax.matmul"] == 2


def test_a_backend_with_its_own_half_precision_says_so(digits: Any) -> None:
    with pytest.raises(OptionError, match=r"options=\{'precision': 'fp16'\}"):
        byoc.half_precision(digits, "tensorrt")
