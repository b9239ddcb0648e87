"""The half of scripts/gpu_check.py that runs on the machine with the GPU: checks and latencies."""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_check_plan import SIDES, Item, Plan, chosen, data_file, make_torch_model, wants_tests

if TYPE_CHECKING:
    from tvm_byoc_kit.contenders import Contender
    from tvm_byoc_kit.turns import Samples

_ITEM_LIMIT = 120.0  # seconds that one item may take
_ROUNDS = 20
_BASES = ("torch", "tensorrt-direct")  # what the others' times are divided by


@dataclass
class Result:
    """What came of one item.

    Parameters
    ----------
    name, facts : str
    state : str
        ``ok``, ``wrong`` (numbers), ``failed`` (with an error), or ``not run``.
    detail : str
        The error, or why it was not run.
    max_abs, snr_db : float, optional
        Against the stored reference.
    ms : mapping, optional
        Median and quartiles of a call, when the sides of a model take turns.
    ratios : mapping
        The same of its time over another side's, round by round: below 1 it is faster.
    """

    name: str
    facts: str = ""
    state: str = "not run"
    detail: str = ""
    max_abs: float | None = None
    snr_db: float | None = None
    ms: dict[str, float] | None = None
    ratios: dict[str, dict[str, float]] = field(default_factory=dict)


class Clock:
    """The time that is left.

    Parameters
    ----------
    budget : float
        Seconds.
    began : float
        When they began, as `time.time` gives it.
    """

    def __init__(self, budget: float, began: float) -> None:
        self.budget = budget
        self._end = began + budget

    @property
    def left(self) -> float:
        """Seconds, 0 when none is left."""
        return max(0.0, self._end - time.time())

    @property
    def reason(self) -> str:
        """Of what was not run."""
        return f"the {self.budget:g} s are used up"


def run(folder: Path, options: argparse.Namespace, began: float) -> int:
    """Check, measure, report; `began` is when the time of it began."""
    plan, clock = Plan.read(folder), Clock(options.budget, began)
    # Kernels that this run compiles stay in the folder, for the next one.
    os.environ.setdefault("TVM_BYOC_KERNEL_CACHE", str(folder / "kernels"))
    items = chosen(plan.items, options.items)
    results = {item.name: _check(folder, item, clock) for item in items}
    for model in dict.fromkeys(item.model for item in items):
        _measure(folder, model, items, results, clock)
    found = list(results.values())
    if wants_tests(options.items):
        found.append(_run_tests(folder, clock))
    report = {"ok": all(r.state == "ok" for r in found), **_surroundings(), "notes": plan.notes}
    report["items"] = [asdict(result) for result in found]
    _show(found)
    if options.json:
        _write(Path(options.json), report)
    return 0 if report["ok"] else 1


def _surroundings() -> dict[str, Any]:
    from tvm_byoc_kit import cuda_driver
    from tvm_byoc_kit.artifact import versions

    return {"driver": str(cuda_driver.ask()), "versions": versions()}


# ------------------------------------------------------------------ in a child process each


def _in_child(work: Callable[[], Any], clock: Clock) -> Any:
    from tvm_byoc_kit.child_process import run_in_child

    return run_in_child(lambda _: work(), lambda: None, limit=min(_ITEM_LIMIT, clock.left))


def _check(folder: Path, item: Item, clock: Clock) -> Result:
    """One call of an item against the stored reference."""
    from tvm_byoc_kit.child_process import ChildFailed

    result = Result(item.name, item.facts)
    if item.error:
        result.detail = f"was not built: {item.error}"
    elif not clock.left:
        result.detail = clock.reason
    else:
        try:
            facts = _in_child(partial(_compare, folder, item), clock)
            result.state = "ok" if facts.pop("ok") else "wrong"
            vars(result).update(facts)
        except ChildFailed as failure:
            result.state, result.detail = "failed", str(failure)
        print(f"{result.name}: {result.state} {result.detail}".rstrip(), flush=True)
    return result


def _compare(folder: Path, item: Item) -> dict[str, Any]:
    from tvm_byoc_kit.comparison import TOLERANCES, compare_output

    contender = _open(folder, item)
    tolerance = TOLERANCES[SIDES[item.side].tolerance]
    outputs = contender.arrays(contender.call())
    checks = [
        compare_output(name, got.astype(expected.dtype), expected, tolerance)
        for (name, expected), got in zip(_stored(folder, item, "out").items(), outputs, strict=True)
    ]
    return {
        "ok": all(check.ok for check in checks),
        "max_abs": _finite(max(check.max_abs for check in checks)),
        "snr_db": _finite(min(check.snr_db for check in checks)),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _measure(
    folder: Path, model: str, items: Sequence[Item], results: Mapping[str, Result], clock: Clock
) -> None:
    """The sides of a model that computed what they should, by turns."""
    from tvm_byoc_kit.child_process import ChildFailed

    sides = [item for item in items if item.model == model and results[item.name].state == "ok"]
    if not sides:
        return
    why = "" if clock.left else clock.reason
    try:
        found = _in_child(partial(_take_turns, folder, sides), clock) if not why else {}
        for name, facts in found.items():
            vars(results[name]).update(facts)
    except ChildFailed as failure:
        why = str(failure)
    if why:
        for item in sides:
            results[item.name].detail = f"not measured: {why}"


def _take_turns(folder: Path, sides: Sequence[Item]) -> dict[str, dict[str, Any]]:
    from tvm_byoc_kit.turns import Turn, take_turns

    turns = {item.side: Turn.of(_open(folder, item).call) for item in sides}
    samples = take_turns(turns, _ROUNDS, random.Random(0))  # noqa: S311 - no secret
    return {
        item.name: {"ms": _spread(samples, item.side), "ratios": _ratios(samples, item.side)}
        for item in sides
    }


def _spread(samples: Samples, side: str) -> dict[str, float]:
    from tvm_byoc_kit.benchmarking import Spread

    return asdict(Spread.of([timer.wall * 1e3 for timer in samples[side].values()]))


def _ratios(samples: Samples, side: str) -> dict[str, dict[str, float]]:
    from tvm_byoc_kit.benchmarking import Spread

    own, found = samples[side], {}
    for base in _BASES:
        rounds = own.keys() & samples.get(base, {}).keys()
        if rounds and base != side:
            ratios = [own[number].wall / samples[base][number].wall for number in rounds]
            found[base] = asdict(Spread.of(ratios))
    return found


# ------------------------------------------------------------------ the ways to run a model


def _stored(folder: Path, item: Item, kind: str) -> dict[str, Any]:
    """The arrays ``in0``, ``in1`` … or ``out0`` … of an item's model."""
    import numpy as np

    with np.load(data_file(folder, item.model)) as archive:
        return {name: archive[name] for name in archive.files if name.startswith(kind)}


def _open(folder: Path, item: Item) -> Contender:
    from tvm_byoc_kit import native

    with native.without_torch():
        import tvm  # noqa: F401 - the first import decides whether torch comes along
    inputs = list(_stored(folder, item, "in").values())
    return _OPEN[SIDES[item.side].kind](folder, item, inputs)


def _open_artifact(folder: Path, item: Item, inputs: list[Any]) -> Contender:
    import tvm

    import tvm_byoc_kit as byoc
    from tvm_byoc_kit.contenders import Contender

    exe = byoc.load(folder / item.file)
    device = tvm.cuda(0) if SIDES[item.side].gpu else tvm.cpu()
    function = exe.vm[exe.manifest.entry]
    tensors = [tvm.runtime.tensor(array, device) for array in inputs]

    def call() -> Any:
        result = function(*tensors)
        device.sync()
        return result

    def arrays(result: Any) -> list[Any]:
        return [x.numpy() for x in ([result] if hasattr(result, "numpy") else result)]

    return Contender(call, arrays)


def _open_engine(folder: Path, item: Item, inputs: list[Any]) -> Contender:
    import tensorrt_rtx as trt
    import tvm

    from tvm_byoc_kit.backends.tensorrt.executor import Gpu
    from tvm_byoc_kit.contenders import Contender

    gpu = Gpu(0)
    gpu.activate()
    runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
    engine = runtime.deserialize_cuda_engine((folder / item.file).read_bytes())
    context = engine.create_execution_context()
    names = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
    is_input = {name: engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT for name in names}
    dtypes = {name: trt.nptype(engine.get_tensor_dtype(name)) for name in names}
    given = [name for name in names if is_input[name]]
    tensors = {
        name: tvm.runtime.tensor(array.astype(dtypes[name]), tvm.cuda(0))
        for name, array in zip(given, inputs, strict=True)
    }
    for name in names:
        if not is_input[name]:
            dtype = dtypes[name].__name__
            tensors[name] = gpu.empty(tuple(context.get_tensor_shape(name)), dtype)
        context.set_tensor_address(name, tensors[name].data_ptr())
    held = runtime, engine  # must outlive the context

    def call() -> Any:
        stream = gpu.stream
        if not context.execute_async_v3(stream):
            raise RuntimeError("TensorRT refused to run")
        gpu.wait(stream)
        return held

    return Contender(call, lambda _: [tensors[n].numpy() for n in names if not is_input[n]])


def _open_torch(_folder: Path, item: Item, inputs: list[Any]) -> Contender:
    import torch

    from tvm_byoc_kit.contenders import Contender

    if not torch.cuda.is_available():
        raise RuntimeError(f"torch {torch.__version__} cannot use the GPU")
    module = make_torch_model(item.model)[0].half().cuda()
    tensors = [torch.from_numpy(array).cuda() for array in inputs]
    tensors = [x.half() if x.is_floating_point() else x for x in tensors]

    @torch.inference_mode()
    def call() -> Any:
        result = module(*tensors)
        torch.cuda.synchronize()
        return result

    return Contender(call, lambda result: [result.cpu().numpy()])


_OPEN: Mapping[str, Callable[[Path, Item, list[Any]], Contender]] = {
    "artifact": _open_artifact,
    "engine": _open_engine,
    "torch": _open_torch,
}


# ------------------------------------------------------------------ pytest -m gpu


def _run_tests(folder: Path, clock: Clock) -> Result:
    """With the time that is left; what has passed until then is counted."""
    result = Result("tests", "pytest -m gpu")
    if not clock.left:
        result.detail = clock.reason
        return result
    command = [sys.executable, "-m", "pytest", "-v", "--rootdir", ".", "-m", "gpu", "tests/gpu"]
    command += ["--continue-on-collection-errors"]  # some need torch
    log = folder / "tests.log"
    failed = True
    with log.open("w", encoding="utf-8") as out:
        try:
            done = subprocess.run(
                command,
                cwd=folder / "kit",
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=clock.left,
                check=False,
            )
            failed = done.returncode != 0
        except subprocess.TimeoutExpired:
            result.detail = f"stopped: {clock.reason}; "
    counts = Counter(_OUTCOME.findall(log.read_text(encoding="utf-8")))
    result.state = "ok" if counts["PASSED"] and not failed else "failed"
    told = ", ".join(f"{number} {word.lower()}" for word, number in sorted(counts.items()))
    result.detail += f"{told or 'no test ran'}; {log}"
    return result


# A line of `pytest -v`, or the heading of a file that cannot be imported.
_OUTCOME = re.compile(
    r"^(?:tests/\S+::.* |_+ )(PASSED|FAILED|ERROR(?! at)|SKIPPED)\b", re.MULTILINE
)


# ------------------------------------------------------------------ the report


def _show(results: Sequence[Result]) -> None:
    from rich.table import Table
    from rich.text import Text

    from tvm_byoc_kit.terminal import make_console

    table = Table(box=None, pad_edge=False)
    for heading in ("item", "state", "max abs", "ms", "quartiles"):
        table.add_column(heading)
    for base in _BASES:
        table.add_column(f"of {base}")
    table.add_column("what", overflow="fold")
    for result in results:
        table.add_row(*map(Text, _cells(result)))
    make_console().print(table)


def _cells(result: Result) -> list[str]:
    spread = result.ms
    return [
        result.name,
        result.state,
        "" if result.max_abs is None else f"{result.max_abs:.1e}",
        f"{spread['median']:.3f}" if spread else "",
        f"[{spread['lower']:.3f} {spread['upper']:.3f}]" if spread else "",
        *(
            f"{result.ratios[base]['median']:.3f}" if base in result.ratios else ""
            for base in _BASES
        ),
        result.detail or result.facts,
    ]


def _write(path: Path, report: dict[str, Any]) -> None:
    from tvm_byoc_kit.files import replacing

    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(report, indent=1, allow_nan=False), encoding="utf-8")
