"""The code of the documents runs, and the tables name nothing that it does not run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/relay_to_relax.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the model.onnx of the page: Conv, BatchNormalization, Relu; the batch is open."""
    rng = np.random.default_rng(0)
    constants = {"weight": rng.standard_normal((8, 3, 3, 3))}
    constants |= {name: rng.uniform(0.5, 1.5, 8) for name in ("gamma", "beta", "mean", "variance")}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["input", "weight"], ["c"]),
            helper.make_node(
                "BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["n"]
            ),
            helper.make_node("Relu", ["n"], ["output"]),
        ],
        "model",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, 32, 32])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", 8, 30, 30])],
        [
            onnx.numpy_helper.from_array(value.astype("float32"), name)
            for name, value in constants.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "model.onnx")
    return tmp_path


def test_every_block_of_relay_to_relax_runs(folder: Path) -> None:
    script = folder / "page.py"
    script.write_text("\n".join(BLOCKS), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "fold_batch_norm" in done.stdout
    assert "batch_norm -1" in done.stdout
    assert "1 region(s)" in done.stdout


def test_every_block_of_coverage_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs/coverage.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "exclude_ops has 'relax.nn.max_pool2d'" in done.stdout or "min_region_ops" in done.stdout


@pytest.mark.byoc("example_npu", step="runtime")
@pytest.mark.parametrize(
    ("page", "shown"),
    [("artifacts.md", "loads here  yes"), ("profiling.md", "region 1: 2 x conv2d_bias_relu")],
)
def test_every_block_of_a_page_runs(page: str, shown: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert shown in text
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    model = "tvm_byoc_kit/data/digits.onnx"
    (tmp_path / model).parent.mkdir(parents=True)
    (tmp_path / model).write_bytes((ROOT / model).read_bytes())
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.slow
def test_code_and_commands_of_dynamic_sizes_run(folder: Path) -> None:
    page = (ROOT / "docs/dynamic_sizes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (folder / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    (commands,) = re.findall(r"^```bash\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for command in (f"{sys.executable} page.py", *commands.splitlines()):
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert (folder / "model.so").stat().st_size > 0
    assert "batch" in done.stdout


def test_the_code_of_int8_prints_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/int8.md").read_text(encoding="utf-8")
    (code, shown) = re.search(
        r"^```python\n(.*?)^```\n\n```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL
    ).groups()
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Fractions depend on the order of sums; of the images that are right, all do.
    assert [re.sub(r"\d+\.\d+(e-\d+)?", "#", text) for text in (done.stdout, shown)] == [
        re.sub(r"\d+\.\d+(e-\d+)?", "#", shown)
    ] * 2
    assert shown.splitlines()[-1] in done.stdout


def test_numbers_off_finds_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs/numbers_off.md").read_text(encoding="utf-8")
    backend, check, _ = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shown, crash = re.findall(r"^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for code in (backend, check):
        (tmp_path / code.split(maxsplit=2)[1]).write_text(code, encoding="utf-8")

    def run(script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        )

    done = run("check.py")
    assert done.returncode == 0, done.stderr
    plain = [re.sub(r"-?\d[\d.e+-]*", "#", text) for text in (done.stdout, shown)]
    assert plain[0] == plain[1]
    again = run("reproducer/reproduce.py")
    assert again.returncode == 1, again.stderr
    assert re.sub(r"-?\d[\d.e+-]*", "#", again.stdout) in re.sub(r"-?\d[\d.e+-]*", "#", page)
    crashing = 'import ctypes\nKERNELS["relax.tanh"] = lambda x: ctypes.string_at(0)\n'
    (tmp_path / "my_npu.py").write_text(backend + crashing, encoding="utf-8")
    without_verify = re.sub(r"^print\(byoc.verify.*\n", "", check, flags=re.MULTILINE)
    (tmp_path / "check.py").write_text(without_verify, encoding="utf-8")
    assert run("check.py").stdout.startswith(crash)


def test_every_line_of_the_table_names_code_of_the_page() -> None:
    """Cells are the call as far as the code has it; `Backend(x=...)` stands for a field."""
    assert len(ROWS) > 15
    code = "\n".join(BLOCKS)
    for relay, *now in ROWS:
        assert any(now), relay
        for name in re.findall(r"`([^`]+)`", " ".join(now)):
            field = re.fullmatch(r"Backend\((\w+)=\.\.\.\)", name)
            wanted = field.group(1) if field else name
            assert wanted in code, f"{relay}: {name} is not run by the page"


# What the articles call; each with what has to be in the first column.
CALLS = (
    "relay.frontend.from_onnx",
    "InferType",
    "DynamicToStatic",
    "FoldConstant",
    "SimplifyInference",
    "FuseOps",
    "DeadCodeElimination",
    "ConvertLayout",
    "tvm.target.cuda",
    "relay.build",
    "export_library",
    "partition_for_cutlass",
    "partition_for_tensorrt",
    "relay.var",
    "relay.Function",
    "IRModule.from_expr",
    "MergeComposite",
    "AnnotateTarget",
    "PartitionGraph",
)


@pytest.mark.parametrize("call", CALLS)
def test_every_call_of_the_relay_articles_has_a_line(call: str) -> None:
    assert any(call in relay for relay, *_ in ROWS)


def test_what_the_page_calls_gone_is_gone() -> None:
    done = subprocess.run([sys.executable, "-c", GONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


GONE = """
import importlib.util, tvm, tvm.contrib.cutlass, tvm.target
for name in ("tvm.relay", "tvm.contrib.tensorrt", "tvm.contrib.graph_executor", "tvm.nd"):
    if importlib.util.find_spec(name):
        print(name)
for owner, name in ((tvm.target, "cuda"), (tvm.contrib.cutlass, "partition_for_cutlass")):
    if hasattr(owner, name):
        print(name)
"""
