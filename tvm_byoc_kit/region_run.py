"""Running one function of a build, whose inputs and results have no names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from tvm_byoc_kit.comparison import OutputCheck, Tolerance, compare_output
from tvm_byoc_kit.host_twin import leaves_of, spoil

if TYPE_CHECKING:
    from tvm_byoc_kit.runtime import Executable

__all__ = ["Checks", "compare_results", "run_function", "run_region"]

Checks: TypeAlias = tuple[OutputCheck, ...]


def run_region(exe: Executable, number: int, inputs: Sequence[Any], outputs: int) -> list[Any]:
    """The results of one region of a build of ``region_windows.module_of``, as arrays."""

    def watch(_function: Any, symbol: str, before: bool, _result: Any, *arguments: Any) -> int:
        if before and symbol == f"region_{number}":
            for output in arguments[len(arguments) - outputs :]:
                spoil(output)
        return 0

    exe.vm.set_instrument(watch)
    return run_function(exe, f"main_{number}", inputs)


def run_function(exe: Executable, name: str, inputs: Sequence[Any]) -> list[Any]:
    """The results of one function of `exe`, as arrays."""
    import tvm

    given = [tvm.runtime.tensor(x) if hasattr(x, "dtype") else x for x in inputs]
    return [result.numpy() for result in leaves_of([exe.vm[name](*given)])]


def compare_results(
    results: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance | None
) -> Checks:
    """How results compare that have no names."""
    return tuple(
        compare_output(f"result {number}", *pair, tolerance)
        for number, pair in enumerate(zip(results, expected, strict=True))
    )
