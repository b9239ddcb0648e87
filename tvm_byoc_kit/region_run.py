"""Running regions of a build, and how what they give compares with the host's results.

They run in a child process, so that one that crashes or hangs is found, and not suffered.
"""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.child_process import ChildDied, ChildFailed, Report, run_in_child
from tvm_byoc_kit.comparison import OutputCheck, Tolerance, compare_output
from tvm_byoc_kit.errors import ModelError, OptionError, reason
from tvm_byoc_kit.guarded_memory import Guarded
from tvm_byoc_kit.host_twin import RUN, SKIP, copies_of, leaves_of
from tvm_byoc_kit.runtime import STARTED

if TYPE_CHECKING:
    import numpy as np

    from tvm_byoc_kit.backend import Backend
    from tvm_byoc_kit.runtime import Executable

__all__ = [
    "SECONDS",
    "UNSTEADY",
    "Checks",
    "Outcome",
    "Rules",
    "Step",
    "compare_results",
    "rules_for",
    "run_function",
    "run_parts",
    "run_steps",
]

Checks: TypeAlias = tuple[OutputCheck, ...]
_LOG = logging.getLogger(__name__)  # says what runs, and what ran when it ended this process
SECONDS = 600.0  # simulators are slow
UNSTEADY = "calls with the same inputs give different results"


@dataclass(frozen=True)
class Outcome:
    """How it went: truthy when all is right.

    Parameters
    ----------
    outputs : tuple of OutputCheck
        Empty where it failed.
    problem : str
        What is wrong beside numbers, such as an exception; else empty.
    """

    outputs: Checks
    problem: str = ""

    def __bool__(self) -> bool:
        return not self.problem and all(check.ok for check in self.outputs)


@dataclass(frozen=True)
class Rules:
    """How regions are run and judged.

    Parameters
    ----------
    tolerance : Tolerance, optional
    limit : float, optional
        Seconds that a region may take in a child process; None: they run in this one.
    """

    tolerance: Tolerance | None
    limit: float | None


def rules_for(
    backend: Backend, tolerance: Tolerance | None, isolate: bool | None, limit: float
) -> Rules:
    """What `bisect` was told, as rules.

    A child has no thread that a library has started here, and cannot use CUDA, which was asked here
    for its devices.

    Raises
    ------
    OptionError
        For a limit that is none.
    """
    if not limit > 0:
        raise OptionError(f"limit={limit!r}: expected seconds, such as 600")
    wanted = backend.name not in STARTED if isolate is None else isolate
    uses_cuda = "device:cuda" in backend.requires.get("device", ())
    return Rules(tolerance, limit if wanted and not uses_cuda else None)


@dataclass(frozen=True)
class Step:
    """One execution of a region, and what the host gives for it.

    Parameters
    ----------
    symbol : str
        Of the region's function.
    name : str
        For messages.
    inputs : sequence
        Arrays, and ``tvm_ffi.Shape``.
    outputs : sequence of numpy.ndarray
    """

    symbol: str
    name: str
    inputs: Sequence[Any]
    outputs: Sequence[np.ndarray]


def run_steps(
    exe: Executable,
    steps: Sequence[Step],
    start: Callable[[], Any],
    rules: Rules,
    whole: Callable[[], Outcome] | None = None,
) -> list[Outcome]:
    """How each region of `exe` does with the inputs of its steps, and last how the `whole` does.

    Parameters
    ----------
    exe : Executable
    steps : sequence of Step
        In their order.
    start : callable
        Makes `exe` execute them. What follows goes on with the host's results, so that no error
        reaches the next region.
    rules : Rules
    whole : callable, optional
        Runs `exe` as it is.

    Raises
    ------
    ModelError
        When it fails before it comes to a region.
    """
    names = [*(step.name for step in steps), *(["the whole model"] if whole else [])]

    def work(done: Mapping[int, Outcome], report: Report) -> None:
        earlier = frozenset(done)  # not empty after a region that has ended the process
        _take_over(exe, steps, earlier, rules.tolerance, report)
        start()
        exe.vm.set_instrument(lambda *_: RUN)
        if whole is not None and not earlier:
            report(len(steps))
            report(len(steps), whole())

    done = dict.fromkeys(range(len(names)), Outcome(()))
    done |= _followed(work, names, rules.limit)
    return [done[number] for number in range(len(names))]


def _followed(
    work: Callable[[Mapping[int, Outcome], Report], None], names: Sequence[str], limit: float | None
) -> dict[int, Outcome]:
    """The outcomes that `work` reports, which says too what it begins, by number.

    Where it ends its process, that is the outcome of what it was about, and it goes on behind it.
    """
    done: dict[int, Outcome] = {}
    begun: list[int] = []

    def listen(number: int, outcome: Outcome | None = None) -> None:
        if outcome is None:
            _LOG.debug("running %s", names[number])
            begun.append(number)
        else:
            done[number] = outcome

    if limit is None:
        work(done, listen)
        return done
    while True:
        begun.clear()
        try:
            run_in_child(partial(work, done), listen, limit=limit, quiet=False)
        except ChildDied as death:
            if not begun:
                raise ModelError(f"the build cannot be started: {death}") from None
            done[begun[-1]] = replace(done.get(begun[-1], Outcome(())), problem=str(death))
            if not death.hangs:
                continue
        except ChildFailed as failure:
            raise ModelError(f"the build cannot be run: {failure}") from None
        return done


def _take_over(
    exe: Executable,
    steps: Sequence[Step],
    earlier: frozenset[int],
    tolerance: Tolerance | None,
    report: Report,
) -> None:
    """Make the virtual machine hand over its calls of regions."""
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for number, step in enumerate(steps):
        waiting[step.symbol].append(number)

    def take_over(function: Any, symbol: str, before: bool, _result: Any, *arguments: Any) -> int:
        if symbol not in waiting or not before:
            return RUN
        number = waiting[symbol].popleft()
        step = steps[number]
        outputs = arguments[len(arguments) - len(step.outputs) :]
        if number not in earlier:
            report(number)
            report(number, _judge(function, step, outputs, tolerance))
        for output, expected in zip(outputs, step.outputs, strict=True):
            output.copyfrom(expected)
        return SKIP

    exe.vm.set_instrument(take_over)


def run_parts(exe: Executable, parts: Sequence[Step], rules: Rules) -> list[Outcome]:
    """How the regions of a build of ``region_windows.module_of`` do."""

    def start() -> None:
        for number, part in enumerate(parts):
            run_function(exe, f"main_{number}", part.inputs)

    return run_steps(exe, parts, start, rules)


def run_function(exe: Executable, name: str, inputs: Sequence[Any]) -> Sequence[np.ndarray]:
    """The results of one function of `exe`."""
    return [result.numpy() for result in leaves_of([exe.vm[name](*_tensors(inputs))])]


def compare_results(
    results: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance | None
) -> Checks:
    """How results compare that have no names."""
    return tuple(
        compare_output(f"result {number}", *pair, tolerance)
        for number, pair in enumerate(zip(results, expected, strict=True))
    )


def _judge(
    function: Callable[..., Any],
    step: Step,
    like: Sequence[Any],
    tolerance: Tolerance | None,
) -> Outcome:
    """Between two calls with other inputs: so state that is kept from call to call is seen."""
    outputs = [Guarded(tensor) for tensor in like]

    def call(given: Sequence[Any]) -> Sequence[np.ndarray]:
        for output, expected in zip(outputs, step.outputs, strict=True):
            output.tensor.copyfrom(_spoiled(expected))
        function(*given, *(output.tensor for output in outputs))
        return copies_of(output.tensor for output in outputs)

    def call_others() -> Sequence[np.ndarray]:
        with suppress(Exception, SystemExit):  # nobody asked for these inputs
            return call(_tensors(map(_others, step.inputs), like[0].device))
        return ()

    before = call_others()
    given = _tensors(step.inputs, like[0].device)
    try:
        checks = compare_results(call(given), step.outputs, tolerance)
    except (Exception, SystemExit) as error:  # a backend may raise anything
        if "KeyboardInterrupt" in str(error):  # TVM hands it on as an error of its own
            raise
        return Outcome((), f"it fails: {reason(error)}")
    problems = [
        f"it writes outside its output {at}"
        for at, output in enumerate(outputs)
        if not output.is_intact
    ]
    problems += [f"it writes to its input {at}" for at in _written(given, step.inputs)]
    after = call_others()
    if len(before) != len(after) or not all(
        check.ok for check in compare_results(after, before, tolerance)
    ):
        problems.append(UNSTEADY)
    return Outcome(checks, "; ".join(problems))


def _others(value: Any) -> Any:
    """Other inputs of the same range; integers stay, which may be indices."""
    import numpy as np

    dtype = getattr(value, "dtype", None)
    return value if dtype is None or dtype.kind in "biu" else np.roll(value, 1)


def _written(given: Sequence[Any], inputs: Sequence[Any]) -> list[int]:
    """The positions of the inputs that are not any more what was given."""
    return [
        at
        for at, (tensor, value) in enumerate(zip(given, inputs, strict=True))
        if hasattr(value, "dtype") and tensor.numpy().tobytes() != value.tobytes()
    ]


def _spoiled(expected: np.ndarray) -> np.ndarray:
    """What is right nowhere: so what is never written is not right by chance."""
    import numpy as np

    kind = expected.dtype.kind
    spoiled: np.ndarray
    if kind in "iub":
        spoiled = ~expected if kind == "b" else expected + expected.dtype.type(1)
    else:
        spoiled = np.where(np.isnan(expected), 1, np.nan).astype(expected.dtype)
    return spoiled


def _tensors(values: Any, device: Any = None) -> list[Any]:
    """Arrays as tensors; shapes as they are."""
    import tvm

    return [tvm.runtime.tensor(x, device) if hasattr(x, "dtype") else x for x in values]
