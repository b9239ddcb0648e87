"""Running regions of a build, and how what they give compares with the host's results."""

from __future__ import annotations

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.comparison import OutputCheck, Tolerance, compare_output
from tvm_byoc_kit.errors import reason
from tvm_byoc_kit.host_twin import RUN, SKIP, Crossing, copies_of, leaves_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tvm_byoc_kit.occurrences import RegionCall
    from tvm_byoc_kit.runtime import Executable

__all__ = [
    "UNSTEADY",
    "Checks",
    "Outcome",
    "compare_results",
    "run_crossings",
    "run_function",
    "run_region",
]

Checks: TypeAlias = tuple[OutputCheck, ...]
_LOG = logging.getLogger(__name__)  # says where it was when a backend has ended the process
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


def run_crossings(
    exe: Executable,
    inputs: Mapping[str, Any],
    crossings: Sequence[Crossing],
    regions: Sequence[RegionCall],
    tolerance: Tolerance | None,
) -> list[Outcome]:
    """How each region of `exe` does with the inputs of each crossing.

    The rest of the model goes on with the host's results, so that no error reaches the next region.
    """
    waiting: dict[str, deque[int]] = defaultdict(deque)
    for number, crossing in enumerate(crossings):
        waiting[regions[crossing.site].function].append(number)
    outcomes: dict[int, Outcome] = {}

    def take_over(function: Any, symbol: str, before: bool, _result: Any, *arguments: Any) -> int:
        if symbol not in waiting or not before:
            return RUN
        number = waiting[symbol].popleft()
        crossing = crossings[number]
        _LOG.debug("running %s", regions[crossing.site].name)
        outputs = arguments[len(arguments) - len(crossing.outputs) :]

        def call(given: Sequence[Any]) -> Sequence[np.ndarray]:
            for output in outputs:
                _spoil(output)
            function(*given, *outputs)
            return copies_of(outputs)

        outcomes[number] = _judge(
            call, crossing.inputs, crossing.outputs, tolerance, outputs[0].device
        )
        for output, expected in zip(outputs, crossing.outputs, strict=True):
            output.copyfrom(expected)
        return SKIP

    exe.vm.set_instrument(take_over)
    exe.run(inputs)
    exe.vm.set_instrument(lambda *_: RUN)
    return [outcomes[number] for number in range(len(crossings))]


def run_region(
    exe: Executable,
    number: int,
    inputs: Sequence[Any],
    expected: Sequence[np.ndarray],
    tolerance: Tolerance | None,
) -> Outcome:
    """How one region of a build of ``region_windows.module_of`` does."""

    def watch(_function: Any, symbol: str, before: bool, _result: Any, *arguments: Any) -> int:
        if before and symbol == f"region_{number}":
            for output in arguments[len(arguments) - len(expected) :]:
                _spoil(output)
        return RUN

    _LOG.debug("running part %d of it", number + 1)
    exe.vm.set_instrument(watch)
    return _judge(lambda given: _call(exe, f"main_{number}", given), inputs, expected, tolerance)


def run_function(exe: Executable, name: str, inputs: Sequence[Any]) -> Sequence[np.ndarray]:
    """The results of one function of `exe`."""
    return _call(exe, name, _tensors(inputs))


def compare_results(
    results: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance | None
) -> Checks:
    """How results compare that have no names."""
    return tuple(
        compare_output(f"result {number}", *pair, tolerance)
        for number, pair in enumerate(zip(results, expected, strict=True))
    )


def _judge(
    call: Callable[[Sequence[Any]], Sequence[np.ndarray]],
    inputs: Sequence[Any],
    expected: Sequence[np.ndarray],
    tolerance: Tolerance | None,
    device: Any = None,
) -> Outcome:
    """Between two calls with other inputs: so state that is kept from call to call is seen."""

    def call_others() -> Sequence[np.ndarray]:
        with suppress(Exception):  # nobody asked for these inputs
            return call(_tensors(map(_others, inputs), device))
        return ()

    before = call_others()
    given = _tensors(inputs, device)
    try:
        checks = compare_results(call(given), expected, tolerance)
    except Exception as error:  # noqa: BLE001 - a backend may raise anything
        return Outcome((), f"it fails: {reason(error)}")
    written = _written(given, inputs)
    after = call_others()
    if len(before) != len(after) or not all(
        check.ok for check in compare_results(after, before, tolerance)
    ):
        return Outcome(checks, UNSTEADY)
    return Outcome(checks, f"it writes to its input {written[0]}" if written else "")


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


def _spoil(tensor: Any) -> None:
    """Fill a tensor, so that what is never written to it is not right by chance."""
    import numpy as np

    array = tensor.numpy()
    is_integer = array.dtype.kind in "iub"
    tensor.copyfrom(np.full(array.shape, 1 if is_integer else np.nan).astype(array.dtype))


def _call(exe: Executable, name: str, given: Sequence[Any]) -> Sequence[np.ndarray]:
    return [result.numpy() for result in leaves_of([exe.vm[name](*given)])]


def _tensors(values: Any, device: Any = None) -> list[Any]:
    """Arrays as tensors; shapes as they are."""
    import tvm

    return [tvm.runtime.tensor(x, device) if hasattr(x, "dtype") else x for x in values]
