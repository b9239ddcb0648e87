#!/usr/bin/env python3
"""ONNX's own node tests through the kit: load_model, compile for the host, run, compare.

The onnx package makes the tests: one small model for each, with inputs and expected outputs. Each
ends in one class:

  passed    the numbers, shapes and dtypes are those expected
  refused   load_model raised ModelError, before anything was built
  build     compile raised ModelError
  error     something else was raised, at whichever stage; no numbers
  wrong     other numbers, shapes or dtypes, and no error
  crashed   the process died
  hung      no answer in time

Each test runs in a fork of a process that has TVM loaded, so that none can do harm to another.

Many operators need values that these tests give as graph inputs (the shape of a Reshape, the axes
of a reduction, the limits of a Clip). By default those are made initializers first, so that the
numbers are tested. With --bind none they stay inputs, as in the file: what load_model then says is
what a user meets. With --bind all the data too are constants: what the importer folds is tested.

Examples: python scripts/onnx_node_tests.py --op Resize --op Pad
          python scripts/onnx_node_tests.py --output parameters.json
          python scripts/onnx_node_tests.py --page docs/onnx_node_tests.md parameters.json
          python scripts/onnx_node_tests.py --sample --json
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import tvm_byoc_kit as byoc
from tvm_byoc_kit.native import without_torch

CLASSES = {
    "passed": "passed",
    "refused": "refused by load_model",
    "build": "refused by compile",
    "error": "another error",
    "wrong": "wrong numbers, no error",
    "crashed": "crashed",
    "hung": "hung",
}

# Inputs that say what to do rather than being data, by operator; the values of a model, not of a
# run. Everything a graph computes such an input from counts too.
PARAMETER_INPUTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Clip": (1, 2),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "CumProd": (1,),
    "CumSum": (1,),
    "DFT": (1, 2),
    "Dropout": (1, 2),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "If": (0,),
    "Loop": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2, 3, 4),
    "OneHot": (1, 2),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "ReduceL1": (1,),
    "ReduceL2": (1,),
    "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
    "ReduceMax": (1,),
    "ReduceMean": (1,),
    "ReduceMin": (1,),
    "ReduceProd": (1,),
    "ReduceSum": (1,),
    "ReduceSumSquare": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "ReverseSequence": (1,),
    "STFT": (1, 2, 3),
    "SequenceAt": (1,),
    "SequenceErase": (1,),
    "SequenceInsert": (2,),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "SplitToSequence": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Trilu": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
    # Of quantized operators: scales and zero points, and the weights where a model has them.
    "ConvInteger": (1, 2, 3),
    "DequantizeLinear": (1, 2),
    "MatMulInteger": (2, 3),
    "QLinearConv": (1, 2, 3, 4, 5, 6, 7, 8),
    "QLinearMatMul": (1, 2, 4, 5, 6, 7),
    "QuantizeLinear": (1, 2),
    # Weights and options of recurrent layers.
    "GRU": (1, 2, 3, 4),
    "LSTM": (1, 2, 3, 4, 7),
    "RNN": (1, 2, 3, 4),
}
# What gives a value that does not depend on its input's data: the walk back ends there.
SHAPE_OPERATORS = ("Shape", "Size")

# Their expected outputs are draws of a generator that no other implementation has.
RANDOM = re.compile(r"test_bernoulli")

SAMPLE = 150
# ONNX's runner allows bfloat16 two units in the last place. Its 1e-3 is one unit of float16, which
# the rounded terms of a sum already miss: four here.
RTOL_OF = {"bfloat16": 2**-6, "float16": 2**-8}
WARM_UP = "test_add"
BAD = ("wrong", "crashed", "hung")
REASON_CHARACTERS = 300
BINDINGS = ("parameters", "none", "all")


@dataclass(frozen=True)
class Result:
    """What became of one test.

    Parameters
    ----------
    name, op : str
        The test's name and operator; of an expanded function, the operator that was expanded.
    outcome : str
        A key of CLASSES.
    reason : str
        The message of the error, or how the numbers differ.
    seconds : float
    """

    name: str
    op: str
    outcome: str
    reason: str
    seconds: float


def load_cases() -> dict[str, Any]:
    """The node tests by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


def operators(cases: dict[str, Any]) -> dict[str, str]:
    """The operator that each test is about."""
    single = {
        name: case.model.graph.node[0].op_type
        for name, case in cases.items()
        if "_expanded" not in name
    }
    several = {"test_sequence_model": "Sequence", "test_range": "Range"}
    ops = {}
    for name, case in cases.items():
        base = re.sub(r"_expanded.*", "", name)
        nodes = case.model.graph.node
        ops[name] = single.get(base) or nodes[-1].op_type
        ops[name] = next((op for key, op in several.items() if name.startswith(key)), ops[name])
    return ops


def sample(ops: dict[str, str], size: int) -> list[str]:
    """`size` tests, the same each time: the first of every operator, the last, the middle one."""
    families = defaultdict(list)
    for name, op in sorted(ops.items()):
        families[op].append(name)
    picks: list[Callable[[list[str]], str]] = [
        lambda names: names[0],
        lambda names: names[-1],
        lambda names: names[len(names) // 2],
    ]
    chosen: dict[str, None] = {}
    for pick in picks:
        chosen.update((pick(names), None) for _, names in sorted(families.items()))
    return list(chosen)[:size]


# ------------------------------------------------------------------ one test, in a child process


def parameter_inputs(graph: onnx.GraphProto) -> set[str]:
    """Graph inputs that only serve as PARAMETER_INPUTS, or in their computation."""
    nodes = [node for node in graph.node if node.op_type not in SHAPE_OPERATORS]
    producers = {name: node for node in nodes for name in node.output}

    def split(node: onnx.NodeProto) -> tuple[list[str], list[str]]:
        """The node's data inputs, and its parameters."""
        positions = PARAMETER_INPUTS.get(node.op_type, ())
        named = [(i in positions, name) for i, name in enumerate(node.input)]
        return [n for is_parameter, n in named if not is_parameter], [n for p, n in named if p]

    def inputs_behind(names: Iterable[str], *, through_parameters: bool) -> set[str]:
        seen, pending = set[str](), list(names)
        while pending:
            name = pending.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in producers:
                data, parameters = split(producers[name])
                pending += data + (parameters if through_parameters else [])
        return seen & {value.name for value in graph.input}

    parameters = [name for node in nodes for name in split(node)[1]]
    data = inputs_behind((value.name for value in graph.output), through_parameters=False)
    return inputs_behind(parameters, through_parameters=True) - data


def bind(model: onnx.ModelProto, values: dict[str, Any], binding: str) -> onnx.ModelProto:
    """A copy with its parameter inputs, or all, as initializers."""
    if binding == "none":
        return model
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    wanted = set(values) if binding == "all" else parameter_inputs(copy.graph)
    names = {name for name in wanted if _is_tensor(values[name])}
    kept = [value for value in copy.graph.input if value.name not in names]
    del copy.graph.input[:]
    copy.graph.input.extend(kept)
    copy.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(values[name]), name) for name in sorted(names)
    )
    return copy


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic))


def open_shapes(model: onnx.ModelProto, values: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shapes of those inputs whose shape the file leaves open."""
    shapes = {}
    for value in model.graph.input:
        if not value.type.HasField("tensor_type") or not _is_tensor(values[value.name]):
            continue
        tensor = value.type.tensor_type
        dims = tensor.shape.dim
        if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = np.shape(values[value.name])
    return shapes


def run_case(case: Any, binding: str, *, upstream: bool) -> tuple[str, str]:
    """Class of the test and the reason."""
    with without_torch():  # which takes seconds to load, and has threads
        import tvm  # noqa: F401

    given, expected = (list(map(array, values)) for values in case.data_sets[0])
    values = dict(zip((value.name for value in case.model.graph.input), given, strict=True))
    model = bind(case.model, values, binding)
    fed = {value.name: values[value.name] for value in model.graph.input}
    stage = "load_model"
    try:
        if upstream:
            imported = import_upstream(model)
        else:
            shapes = open_shapes(model, values)
            imported = byoc.load_model(model, shapes=shapes or None, simplify=False)
        stage = "compile"
        exe = byoc.compile(imported, "llvm")
        stage = "run"
        names = [spec.name for spec in exe.inputs]
        got = exe.run(dict(zip(names, fed.values(), strict=True)) if upstream else fed)
    except byoc.ModelError as error:
        return {"load_model": "refused", "compile": "build"}.get(stage, "error"), str(error)
    except Exception as error:  # noqa: BLE001 - whatever is raised is what the test is about
        return "error", f"{stage}: {type(error).__name__}: {error}"
    close = not RANDOM.match(case.name)
    difference = compare(list(got.values()), flatten(expected), case.rtol, case.atol, close)
    return ("wrong", difference) if difference else ("passed", "")


def import_upstream(model: onnx.ModelProto) -> byoc.ImportedModel:
    """What TVM's importer alone makes of it; a failure counts as a refusal."""
    from tvm.relax.frontend.onnx import from_onnx

    try:
        mod = from_onnx(model, keep_params_in_input=False)
    except Exception as error:
        raise byoc.ModelError(f"{type(error).__name__}: {error}") from error
    return byoc.load_model(mod)


def array(value: Any) -> Any:
    """A test's value; those of types that NumPy lacks are kept as protobuf."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def flatten(values: Iterable[Any]) -> list[np.ndarray]:
    """Tensors of outputs that may be sequences."""
    flat: list[np.ndarray] = []
    for value in values:
        flat += flatten(value) if isinstance(value, (list, tuple)) else [np.asarray(value)]
    return flat


def compare(
    got: Sequence[np.ndarray],
    expected: Sequence[np.ndarray],
    rtol: float,
    atol: float,
    close: bool,
) -> str:
    """How the outputs differ, or nothing; `close` False leaves out the numbers."""
    if len(got) != len(expected):
        return f"{len(got)} outputs instead of {len(expected)}"
    for index, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        found = _difference(mine, theirs, rtol, atol, close)
        if found:
            return f"output {index}: {found}"
    return ""


def _difference(mine: np.ndarray, theirs: np.ndarray, rtol: float, atol: float, close: bool) -> str:
    if mine.dtype != theirs.dtype:
        return f"dtype {mine.dtype} instead of {theirs.dtype}"
    if mine.shape != theirs.shape:
        return f"shape {mine.shape} instead of {theirs.shape}"
    if not close:
        return ""
    if theirs.dtype.kind in "biuOUS":
        same = mine == theirs
    else:
        rtol = max(rtol, RTOL_OF.get(theirs.dtype.name, 0.0))
        kind = np.complex128 if theirs.dtype.kind == "c" else np.float64
        x, y = mine.astype(kind), theirs.astype(kind)
        same = np.isclose(x, y, rtol=rtol, atol=atol, equal_nan=True)
    if np.all(same):
        return ""
    at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(same))[0])
    values = f"{np.atleast_1d(mine)[at]} instead of {np.atleast_1d(theirs)[at]}"
    return f"{np.size(same) - np.count_nonzero(same)} of {np.size(same)} differ, at {at} {values}"


def serve(binding: str, timeout: float, *, upstream: bool) -> None:
    """Run tests named on standard input, each in a fork; a line of JSON for each goes out."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # the importer and LLVM print
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    cases = load_cases()
    run = functools.partial(run_case, binding=binding, upstream=upstream)
    run(cases[WARM_UP])  # what is loaded and initialised now, no fork has to do
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        answers.write(json.dumps(run_forked(cases[line.strip()], run, timeout)) + "\n")
        answers.flush()


def run_forked(case: Any, run: Callable[[Any], tuple[str, str]], timeout: float) -> tuple[str, str]:
    """Class of the test and the reason, whatever it does to its process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writing, "w", encoding="utf-8") as answer:
            json.dump(run(case), answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as answer:
        if not select.select([answer], [], [], timeout)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung", f"no answer in {timeout:g} s"
        text = answer.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not text:
        name = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        return "crashed", name
    outcome, reason = json.loads(text)
    return outcome, reason


# ------------------------------------------------------------------ the parent


class Worker:
    """A process that runs tests one after the other, each in a fork of its own."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "TVM_NUM_THREADS": "1", "TVM_THREAD_POOL_SPIN_COUNT": "0"},
        )

        self._read()  # that it is ready

    def run(self, name: str) -> tuple[str, str]:
        """Class and reason of a test."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        outcome, reason = json.loads(self._read())
        return outcome, reason

    def _read(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for the tests ended: {self._process.wait()}")
        return line

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def run_all(
    names: Sequence[str],
    ops: dict[str, str],
    options: argparse.Namespace,
    report: Callable[[], None],
) -> list[Result]:
    """Every test, `options.jobs` at a time."""
    pending = iter(names)  # shared; CPython's list iterator may be advanced by several threads
    results: dict[str, Result] = {}
    arguments = ["--bind", options.bind, "--timeout", str(options.timeout)]
    arguments += ["--upstream"] if options.upstream else []

    def work() -> None:
        worker = Worker(arguments)
        try:
            for name in pending:
                start = time.monotonic()
                outcome, reason = worker.run(name)
                seconds = round(time.monotonic() - start, 3)
                results[name] = Result(name, ops[name], outcome, reason, seconds)
                report()
        finally:
            worker.close()

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[name] for name in names]


# ------------------------------------------------------------------ reports


def short(reason: str) -> str:
    """A reason without what differs between tests of one kind: names, numbers, shapes."""
    text = reason.strip().splitlines()[0] if reason.strip() else ""
    text = re.sub(r"test_\w+", "the model", text)
    text = re.sub(r"'[^']*'", "'…'", text)
    text = re.sub(r"\(node .*?\)", "(…)", text)
    text = re.sub(r"[\[(][-\d., ]*[\])]", "(…)", text)
    text = re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", text)
    return text[:200]


def counts(results: Sequence[Result]) -> dict[str, int]:
    """How many tests are in each class."""
    found = Counter(result.outcome for result in results)
    return {outcome: found[outcome] for outcome in CLASSES}


def by_op(results: Sequence[Result]) -> dict[str, Counter[str]]:
    """The classes of each operator's tests."""
    table: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        table[result.op][result.outcome] += 1
    return dict(sorted(table.items()))


def print_tables(console: Console, results: Sequence[Result]) -> None:
    """What failed by operator and reason, then the totals."""
    rest = Table(title="What did not pass", title_justify="left")
    for column in ("class", "operator", "tests", "reason (of the first)"):
        rest.add_column(column, overflow="fold")
    for (outcome, op, _), group in _groups(results):
        rest.add_row(outcome, op, str(len(group)), group[0].reason[:REASON_CHARACTERS])
    console.print(rest)
    totals = Table(title="Totals", title_justify="left")
    totals.add_column("class")
    totals.add_column("tests", justify="right")
    totals.add_column("share", justify="right")
    for outcome, count in counts(results).items():
        totals.add_row(CLASSES[outcome], str(count), f"{count / max(1, len(results)):.1%}")
    console.print(totals)


def _groups(results: Sequence[Result]) -> list[tuple[tuple[str, str, str], list[Result]]]:
    groups: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        if result.outcome != "passed":
            groups[result.outcome, result.op, short(result.reason)].append(result)
    order = list(CLASSES)
    return sorted(groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1]))


PAGE = """# ONNX's node tests

The onnx package makes small models, most of one node, with inputs and expected outputs, for every
operator. `scripts/onnx_node_tests.py` imports each with `byoc.load_model`, builds it for the host,
runs it and compares dtypes, shapes and numbers: integers exactly, floats as ONNX's own runner does
(rtol 1e-3, atol 1e-7, two units in the last place for bfloat16), but float16 with four units in the
last place. Expanded tests, where the operator is written as its function body, count as the
operator's. This page was written by

{commands}

## Result

{totals}

What `--bind` means: these tests give a Reshape its shape, a reduction its axes, a quantization its
scale as graph inputs, though a compiler needs them while it builds. With `parameters` they are
made initializers first, so that the numbers are tested. With `none` the file is imported as it is,
and load_model's refusal names the input and what to do, which is what a user would meet. With
`all` the data are constants too, so that what importers fold is tested. `TVM alone` is its importer
on the same models as the first, without this package's rewrites and refusals.

## Wrong numbers

{wrong}

What TVM alone gets wrong is repaired by a rewrite of the ONNX graph
(`tvm_byoc_kit/frontends/onnx/rewrites/`) or refused by name
(`tvm_byoc_kit/frontends/onnx/known_wrong.py`). `tests/integration/test_onnx_node_tests.py` runs a
sample, and sees that what is repaired or refused still goes wrong in TVM alone.

The tests hold few infinities and NaNs. Beyond them, on TVM's host code, NaN does not pass through
Relu, Elu, Selu, Celu, Sign, HardSigmoid, Clip, Min, Max and maxima of axes; MaxPool of -inf alone,
and ReduceMax of -inf that comes from the model's inputs and not from a constant, give the lowest
finite number, ArgMax and ArgMin of infinities alone give -1. Tanh is an approximation, good to
about 1e-7.

## What is refused, and why

Of the first run; the message is the first test's.

{refused}

## By operator

Of the first run; operators whose tests all pass: {complete}.

{operators}
"""


def markdown(runs: Sequence[dict[str, Any]]) -> str:
    """The page, from the documents of several runs."""
    first = [Result(**result) for result in runs[0]["results"]]
    header = "| | " + " | ".join(_label(run) for run in runs) + " |"
    rows = [header, "|---|" + "---:|" * len(runs)]
    for outcome, label in CLASSES.items():
        cells = [f"{run['counts'][outcome]} ({_share(run, outcome)})" for run in runs]
        rows.append(f"| {label} | {' | '.join(cells)} |")
    rows.append(
        "| seconds, two at a time | " + " | ".join(f"{r['seconds']:.0f}" for r in runs) + " |"
    )
    table = by_op(first)
    complete = [op for op, found in table.items() if set(found) == {"passed"}]
    operators = ["| operator | " + " | ".join(CLASSES) + " |", "|---|" + "---:|" * len(CLASSES)]
    operators += [
        f"| {op} | {' | '.join(str(found[outcome] or '') for outcome in CLASSES)} |"
        for op, found in table.items()
        if op not in complete
    ]
    refused = ["| class | operator | tests | reason |", "|---|---|---:|---|"]
    refused += [
        f"| {outcome} | {op} | {len(group)} | {_cell(group[0].reason)} |"
        for (outcome, op, _), group in _groups(first)
        if outcome != "wrong"
    ]
    return PAGE.format(
        commands="\n".join(f"    {_command(run)}" for run in runs)
        + "\n    python scripts/onnx_node_tests.py --page docs/onnx_node_tests.md *.json",
        totals=f"onnx {runs[0]['onnx']}, {len(first)} tests.\n\n" + "\n".join(rows),
        wrong=_wrong(runs),
        refused="\n".join(refused),
        complete=", ".join(complete) or "none",
        operators="\n".join(operators),
    )


def _label(run: dict[str, Any]) -> str:
    return "TVM alone" if run["upstream"] else f"`--bind {run['bind']}`"


def _command(run: dict[str, Any]) -> str:
    options = f"--bind {run['bind']}" + (" --upstream" if run["upstream"] else "")
    name = "upstream" if run["upstream"] else run["bind"]
    return f"python scripts/onnx_node_tests.py {options} --output {name}.json"


def _share(run: dict[str, Any], outcome: str) -> str:
    return f"{run['counts'][outcome] / max(1, len(run['results'])):.1%}"


def _wrong(runs: Sequence[dict[str, Any]]) -> str:
    lines = []
    for run in runs:
        found = sorted({r["op"] for r in run["results"] if r["outcome"] in BAD})
        named = ", ".join(found) or "none"
        lines.append(f"- {_label(run)}: {named}")
    return "\n".join(lines)


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= REASON_CHARACTERS else line[:REASON_CHARACTERS] + " ..."


# ------------------------------------------------------------------ command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--op", action="append", metavar="NAME", help="only this operator's tests (repeatable)")
    add("--case", action="append", metavar="NAME", help="only this test (repeatable)")
    add("--limit", type=int, metavar="N", help="at most N tests")
    add("--sample", type=int, nargs="?", const=SAMPLE, metavar="N", help="N tests over all ops")
    add("--bind", choices=BINDINGS, default="parameters", help="what becomes an initializer first")
    add("--upstream", action="store_true", help="TVM's importer alone, without the kit's rewrites")
    add("--jobs", type=int, default=2, metavar="N", help="tests at a time (2)")
    add("--timeout", type=float, default=60.0, metavar="S", help="seconds for one test (60)")
    add("--json", action="store_true", help="every result as JSON on standard output")
    add("--output", type=Path, metavar="FILE", help="every result as JSON into FILE")
    add("--page", type=Path, metavar="FILE", help="run nothing: write the page of the JSON files")
    add("runs", nargs="*", type=Path, metavar="JSON", help="with --page: what --output wrote")
    add("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def choose(ops: dict[str, str], options: argparse.Namespace) -> list[str]:
    """The names of the tests to run."""
    names = list(ops)
    if options.sample:
        names = sample(ops, options.sample)
    if options.op:
        wanted = set(options.op)
        names = [name for name in names if ops[name] in wanted]
    if options.case:
        names = [name for name in names if name in options.case]
    return names[: options.limit] if options.limit else names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit status is 1 when a test gave wrong numbers, crashed or hung."""
    options = parse(arguments)
    if options.serve:
        serve(options.bind, options.timeout, upstream=options.upstream)
        return 0
    if options.page:
        runs = [json.loads(path.read_text(encoding="utf-8")) for path in options.runs]
        runs.sort(key=lambda run: (run["upstream"], BINDINGS.index(run["bind"])))
        options.page.write_text(markdown(runs), encoding="utf-8")
        return 0
    console = Console(stderr=options.json)
    ops = operators(load_cases())
    names = choose(ops, options)
    start = time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(
        *columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("ONNX node tests", total=len(names))
        results = run_all(names, ops, options, lambda: bar.advance(task))
    seconds = round(time.monotonic() - start, 1)
    summary = {
        "onnx": onnx.__version__,
        "bind": options.bind,
        "upstream": options.upstream,
        "seconds": seconds,
        "counts": counts(results),
    }
    document = json.dumps({**summary, "results": [asdict(result) for result in results]}, indent=1)
    if options.output:
        options.output.write_text(document + "\n", encoding="utf-8")
    if options.json:
        print(document)
    else:
        print_tables(console, results)
        console.print(f"{len(results)} tests in {seconds:.0f} s")
    return int(any(result.outcome in BAD for result in results))


if __name__ == "__main__":
    sys.exit(main())
