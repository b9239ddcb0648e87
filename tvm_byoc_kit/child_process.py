"""Work in a child process, which may crash or hang without harm to this one.

The child is a fork: it has the model in its memory, where nothing else could bring it (TVM writes
no module with regions to a file). Of this process's threads it has none, so the work is done in a
thread of its own, for which OpenMP and TVM start their pools anew; other pools that were started
before, such as those of OpenVINO's streams, it must not use, nor what another thread may have
locked.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_byoc_kit.errors import reason

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["ChildDied", "ChildFailed", "Report", "run_in_child"]

Report = Callable[..., None]
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


class ChildFailed(Exception):
    """The child did not finish its work; the message is what it raised, or what ended it."""


class ChildDied(ChildFailed):
    """It raised nothing: it crashed, or ended itself, or did not come to an end (`hangs`)."""

    def __init__(self, message: str, hangs: bool) -> None:
        super().__init__(message)
        self.hangs = hangs


def run_in_child(
    work: Callable[[Report], Any],
    listen: Callable[..., None],
    *,
    limit: float | None,
    quiet: bool = True,
) -> Any:
    """What `work` returns, called in a child process.

    Parameters
    ----------
    work : callable
        Gets a function that hands its arguments to `listen` here. They and the result are pickled.
    listen : callable
    limit : float or None
        Seconds without a word from the child after which it is ended; None: as long as it takes.
    quiet : bool
        Whether what it writes to standard output and error is dropped.

    Raises
    ------
    ChildFailed
        When it raises.
    ChildDied
        When it crashes, or says nothing for too long.
    """
    receiver, sender = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, see above
        child = os.fork()
    if not child:
        _run(work, sender, quiet)
    sender.close()
    try:
        kind, value = _follow(receiver, listen, limit)
    finally:
        receiver.close()
        code = _end(child)
    if kind == "result":
        return value
    if kind == "error":
        raise ChildFailed(value)
    raise ChildDied(value or _how_it_ended(code), hangs=kind == "silent")


def _follow(
    receiver: Connection, listen: Callable[..., None], limit: float | None
) -> tuple[str, Any]:
    """The last word of the child, after all that is for `listen`."""
    while receiver.poll(limit):
        try:
            kind, value = receiver.recv()
        except EOFError:
            return "gone", None
        if kind != "report":
            return kind, value
        listen(*value)
    return "silent", f"nothing was heard of it for {limit:g} s"


def _how_it_ended(code: int) -> str:
    how = (
        f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended itself, exit({code})"
    )
    return f"the process {how}"


def _end(child: int) -> int:
    """End the child with all that it has started; its exit code, or minus the signal's number."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)  # it may not have had its group yet
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(work: Callable[[Report], Any], sender: Connection, quiet: bool) -> NoReturn:
    """The child: do the work, and go without running any of the parent's clean-up."""
    try:
        _end_with_parent()
        os.setsid()  # so that the parent ends what it starts, such as compilers
        faulthandler.disable()  # a crash is the parent's to report; TVM would write for a minute
        for number in (signal.SIGINT, signal.SIGSEGV, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in range(3 if quiet else 1):
            os.dup2(silence, stream)
        doing = ThreadPoolExecutor(1).submit(work, lambda *facts: sender.send(("report", facts)))
        sender.send(("result", doing.result()))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told
        with contextlib.suppress(Exception):
            sender.send(("error", f"{type(error).__name__}: {reason(error)}"))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(0)


def _end_with_parent() -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
