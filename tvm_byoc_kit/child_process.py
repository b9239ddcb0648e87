"""Work in a child process, which may crash or hang without harm to this one.

The child is a fork: it has the model in its memory, where nothing else could bring it (TVM writes
no module with regions to a file). It must use no thread pool that was started before, and none of
what a thread of the parent may have locked.
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
from multiprocessing import Pipe
from typing import TYPE_CHECKING, Any, NoReturn

from tvm_byoc_kit.errors import reason

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

__all__ = ["ChildFailed", "Report", "run_in_child"]

Report = Callable[..., None]
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


class ChildFailed(Exception):
    """The child did not finish its work; the message is what it raised, or what ended it."""


def run_in_child(
    work: Callable[[Report], Any], listen: Callable[..., None], *, limit: float
) -> Any:
    """What `work` returns, called in a child process.

    Parameters
    ----------
    work : callable
        Gets a function that hands its arguments to `listen` here. They and the result are pickled.
    listen : callable
    limit : float
        Seconds without a word from the child after which it is ended.

    Raises
    ------
    ChildFailed
        When it raises, crashes, or says nothing for too long.
    """
    receiver, sender = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads, see above
        child = os.fork()
    if not child:
        _run(work, sender)
    sender.close()
    try:
        kind, value = _follow(receiver, listen, limit)
    finally:
        receiver.close()
        code = _end(child)
    if kind == "result":
        return value
    raise ChildFailed(_how_it_ended(code) if kind == "gone" else value)


def _follow(receiver: Connection, listen: Callable[..., None], limit: float) -> tuple[str, Any]:
    """The last word of the child, after all that is for `listen`."""
    while receiver.poll(limit):
        try:
            kind, value = receiver.recv()
        except EOFError:
            return "gone", None
        if kind != "report":
            return kind, value
        listen(*value)
    return "silent", f"nothing was heard of it for {limit:.0f} s"


def _how_it_ended(code: int) -> str:
    return f"the process was ended by {signal.Signals(-code).name}" if code < 0 else "it vanished"


def _end(child: int) -> int:
    """End the child with all that it has started; its exit code, or minus the signal's number."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.kill(child, signal.SIGKILL)  # it may not have had its group yet
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(work: Callable[[Report], Any], sender: Connection) -> NoReturn:
    """The child: do the work, and go without running any of the parent's clean-up."""
    try:
        _end_with_parent()
        os.setsid()  # so that the parent ends what it starts, such as compilers
        faulthandler.disable()  # a crash is the parent's to report; TVM would write for a minute
        for number in (signal.SIGINT, signal.SIGSEGV, signal.SIGABRT):
            signal.signal(number, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        silence = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silence, stream)
        sender.send(("result", work(lambda *facts: sender.send(("report", facts)))))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told
        with contextlib.suppress(Exception):
            sender.send(("error", f"{type(error).__name__}: {reason(error)}"))
    finally:
        os._exit(0)


def _end_with_parent() -> None:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
