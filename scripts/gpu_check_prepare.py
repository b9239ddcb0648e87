"""The half of scripts/gpu_check.py that runs where there is no GPU: wheels and artifacts."""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from gpu_check_plan import (
    DIGITS,
    MODELS,
    ROOT,
    SIDES,
    Item,
    Plan,
    chosen,
    data_file,
    make_torch_model,
)

EXTRAS = ("cuda", "onnx", "tensorrt-rtx")
_TEST_TOOLS = ("pytest", "pytest-timeout")
_LIMIT = 3600.0  # seconds: nvcc takes a minute a kernel
_CARRIED = ("tests", "scripts", "pyproject.toml")
_DATA_CENTRE = (
    "TensorRT for GPUs of data centres comes from NVIDIA's own index: put its wheels into `wheels` "
    "by hand; TensorRT-RTX has no H100"
)


def prepare(folder: Path, options: argparse.Namespace) -> int:
    """Fill the folder."""
    items = [Item(model, side) for model in options.models for side in MODELS[model].sides]
    plan = Plan(chosen(items, options.items))
    if options.dry_run:
        _show_plan(plan, options)
        return 0
    (folder / "artifacts").mkdir(parents=True, exist_ok=True)
    for model in dict.fromkeys(item.model for item in plan.items):
        _, error = _try(f"{model}: reference", partial(_write_reference, folder, model))
        plan.notes += [f"no reference of {model}: {error}"] if error else []
    for item in plan.items:
        _build(folder, item, options.target)
    if not options.no_wheels:
        plan.notes += [_DATA_CENTRE, *_get_wheels(folder, torch=not options.no_torch)]
        plan.wheels = sorted(path.name for path in folder.glob("wheels/*.whl"))
    _carry(folder)
    plan.write(folder)
    return int(any(item.error for item in plan.items))


def _show_plan(plan: Plan, options: argparse.Namespace) -> None:
    from tvm_byoc_kit import native

    with native.without_torch():
        for item in plan.items:
            print(f"{item.name:26}{_missing(item) or 'will be built'}")
    wheels = (
        "none (--no-wheels)"
        if options.no_wheels
        else ", ".join(_wanted(torch=not options.no_torch))
    )
    print(f"{'wheels':26}{wheels}")


def _missing(item: Item) -> str:
    """Why it cannot be built here."""
    import tvm_byoc_kit as byoc

    side = SIDES[item.side]
    status = byoc.get_backend(side.backend).check("codegen") if side.backend else None
    if side.needs:
        status = byoc.probe(side.needs)
    return "" if status is None or status else f"missing: {status}"


# ------------------------------------------------------------------ artifacts


def _build(folder: Path, item: Item, target: str) -> None:
    """Build one item in a process of its own, which may crash."""
    work = _WORK[SIDES[item.side].kind]
    if work is None:
        return
    start = time.monotonic()
    result, item.error = _try(item.name, partial(work, folder, item, target))
    item.seconds = round(time.monotonic() - start, 1)
    if result:
        item.file, item.facts = result
        item.bytes = (folder / item.file).stat().st_size


def _try(what: str, work: Callable[[], Any]) -> tuple[Any, str]:
    """What `work` gives in a child process, and the error that it ended with."""
    from tvm_byoc_kit.child_process import ChildFailed, run_in_child

    start = time.monotonic()
    result, error = None, ""
    try:
        result = run_in_child(lambda _: work(), lambda: None, limit=_LIMIT)
    except ChildFailed as failure:
        error = str(failure)
    print(f"{what}: {error or 'done'} ({time.monotonic() - start:.1f} s)", flush=True)
    return result, error


def _load(model: str) -> Any:
    import tvm_byoc_kit as byoc
    from tvm_byoc_kit import native

    if MODELS[model].make is None:
        with native.without_torch():
            return byoc.load_model(ROOT / DIGITS)
    module, example = make_torch_model(model)
    return byoc.load_model(module, (example,))


def _write_reference(folder: Path, model: str) -> None:
    import numpy as np

    from tvm_byoc_kit.sample_inputs import random_inputs

    imported = _load(model)
    inputs = random_inputs(imported.inputs)
    outputs = imported.reference.run(inputs)
    arrays = {f"in{i}": value for i, value in enumerate(inputs.values())}
    arrays |= {f"out{i}": np.asarray(value) for i, value in enumerate(outputs.values())}
    np.savez(data_file(folder, model), **arrays)


def _build_artifact(folder: Path, item: Item, target: str) -> tuple[str, str]:
    import tvm_byoc_kit as byoc

    side, file = SIDES[item.side], f"artifacts/{item.model}-{item.side}.so"
    model = _load(item.model)
    if side.half:
        model = byoc.half_precision(model, side.backend)
    parts = byoc.partition(model, side.backend)
    exe = byoc.build(parts, target if side.gpu else None, dict(side.options) or None)
    exe.export(folder / file)
    notes = exe.manifest.device_code.get("notes", ())
    return file, "; ".join([str(parts.coverage).splitlines()[0], *notes])


def _build_engine(folder: Path, item: Item, _target: str) -> tuple[str, str]:
    """TensorRT's own way from ONNX in 16 bits to a plan, without the kit."""
    import tensorrt_rtx as trt
    import torch

    module, example = make_torch_model(item.model)
    example = example.half() if example.is_floating_point() else example
    exported = io.BytesIO()
    # The other exporter needs one more package.
    torch.onnx.export(module.half(), (example,), exported, dynamo=False, opset_version=17)
    builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, trt.Logger(trt.Logger.ERROR))
    if not parser.parse(exported.getvalue()):
        raise RuntimeError(str(parser.get_error(0)))
    config = builder.create_builder_config()
    capabilities = [name for name in dir(trt.ComputeCapability) if name in _CAPABILITIES]
    config.num_compute_capabilities = len(capabilities)
    for number, name in enumerate(capabilities):
        config.set_compute_capability(getattr(trt.ComputeCapability, name), number)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise RuntimeError("TensorRT gave no engine")
    file = f"artifacts/{item.model}-{item.side}.plan"
    (folder / file).write_bytes(bytes(plan))
    return file, f"TensorRT-RTX {trt.__version__}, {', '.join(capabilities)}"


_CAPABILITIES = ("SM80", "SM86", "SM89", "SM120", "SM121")  # as the backend has them by itself
_WORK: dict[str, Callable[[Path, Item, str], tuple[str, str]] | None] = {
    "artifact": _build_artifact,
    "engine": _build_engine,
    "torch": None,
}


# ------------------------------------------------------------------ wheels


def _wanted(*, torch: bool) -> list[str]:
    extras = ",".join((*EXTRAS, "torch") if torch else EXTRAS)
    return [f"{ROOT}[{extras}]", *_TEST_TOOLS]


def _get_wheels(folder: Path, *, torch: bool) -> list[str]:
    """The kit and all it needs; gives what pip complained of."""
    constraints = ROOT / "scripts" / "constraints.txt"
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    command += ["--wheel-dir", folder / "wheels", "--constraint", constraints]
    done = subprocess.run(
        [*map(str, command), *_wanted(torch=torch)], stderr=subprocess.PIPE, text=True, check=False
    )
    notes = [] if torch else ["no wheel of torch (--no-torch): the machine's own is used"]
    if done.returncode:
        notes.append(f"pip wheel failed: {done.stderr.strip().splitlines()[-1]}")
        print(notes[-1], file=sys.stderr)
    return notes


def _carry(folder: Path) -> None:
    """The scripts and the tests, so that the folder is all that the other machine needs."""
    for name in _CARRIED:
        source, target = ROOT / name, folder / "kit" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            unwanted = shutil.ignore_patterns("__pycache__", ".*")
            shutil.copytree(source, target, dirs_exist_ok=True, ignore=unwanted)
        else:
            shutil.copy(source, target)
