"""Watching an engine being built, and stopping it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tvm_byoc_kit.build_progress import Display

__all__ = ["interruptible", "make_monitor"]

T = TypeVar("T")


def make_monitor(module: Any, display: Display, cancelled: threading.Event) -> Any:
    """The vendor's monitor, which reports to `display` and stops the build once `cancelled`.

    Parameters
    ----------
    module : module
        ``tensorrt`` or ``tensorrt_rtx``.
    display : Display
    cancelled : threading.Event
    """

    class Monitor(module.IProgressMonitor):  # type: ignore[misc]
        def __init__(self) -> None:
            module.IProgressMonitor.__init__(self)  # pybind11 wants it called by name
            self._steps: dict[str, int] = {}

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:  # noqa: ARG002 - the vendor passes it by position
            self._steps[phase_name] = num_steps
            display(phase_name, 0, num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            display(phase_name, step + 1, self._steps.get(phase_name, step + 1))
            return not cancelled.is_set()

        def phase_finish(self, phase_name: str) -> None:
            steps = self._steps.pop(phase_name, 0)
            display(phase_name, steps, steps)

    return Monitor()


def interruptible(work: Callable[[], T], cancelled: threading.Event) -> T:
    """What `work` gives; on Ctrl-C it is told to stop, waited for, and the interrupt goes on.

    The vendor's library holds its thread until it is done, and Python sees a Ctrl-C in its main
    thread only: so `work` runs in a thread of its own.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    # Not Thread.join, which in Python 3.11 gives up for good once it was interrupted.
    started, done = threading.Event(), threading.Event()

    def run() -> None:
        started.set()
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - it is raised again, in the caller's thread
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="tensorrt-build")
    try:
        thread.start()
        while not done.wait(_POLL_SECONDS):
            pass
    except BaseException:
        cancelled.set()
        if started.wait(_START_SECONDS):  # else there was no time to start it
            done.wait()
        raise
    if errors:
        raise errors[0]
    return results[0]


_START_SECONDS = 1.0
_POLL_SECONDS = 0.1  # a wait without a limit cannot be interrupted on every platform
