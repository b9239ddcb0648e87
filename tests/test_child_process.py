"""Work in a child process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tvm_byoc_kit.child_process import ChildDied, ChildFailed, run_in_child

LIMIT = 600.0


def ignore(*_facts: object) -> None:
    pass


def is_alive(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_result_comes_back_and_reports_come_before_it() -> None:
    heard: list[Any] = []

    def work(report: Any) -> int:
        report("one", 1)
        report("two", 2)
        return os.getpid()

    assert run_in_child(work, lambda *facts: heard.append(facts), limit=LIMIT) != os.getpid()
    assert heard == [("one", 1), ("two", 2)]


def test_the_child_has_what_this_process_has_in_memory() -> None:
    here = object()  # nothing could write it to a file
    assert run_in_child(lambda _report: id(here), ignore, limit=LIMIT) == id(here)


def test_a_crash_says_which_signal_it_was(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ChildFailed, match="SIGSEGV"):
        run_in_child(lambda _report: ctypes.string_at(0), ignore, limit=LIMIT)
    assert capfd.readouterr() == ("", "")


def test_a_process_that_ends_itself_says_with_which_code() -> None:
    with pytest.raises(ChildDied, match=r"ended itself, exit\(3\)"):
        run_in_child(lambda _report: os._exit(3), ignore, limit=LIMIT)


def test_threads_that_a_library_keeps_for_its_caller_are_there_in_the_child() -> None:
    matrix = torch.ones(256, 256)

    def product(*_report: object) -> float:  # by OpenMP, whose threads are this process's own
        return float((matrix @ matrix).exp().sum())

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert run_in_child(product, ignore, limit=LIMIT) == product()
        assert run_in_child(product, ignore, limit=LIMIT) == product()
    finally:
        torch.set_num_threads(before)


def test_what_the_child_prints_is_seen_where_that_is_wanted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    run_in_child(lambda _report: os.write(1, b"seen"), ignore, limit=LIMIT, quiet=False)
    run_in_child(lambda _report: os.write(1, b"unseen"), ignore, limit=LIMIT)
    assert capfd.readouterr() == ("seen", "")


def test_an_error_says_what_it_was() -> None:
    def work(_report: Any) -> None:
        raise ValueError("the reason")

    with pytest.raises(ChildFailed, match="ValueError: the reason"):
        run_in_child(work, ignore, limit=LIMIT)


def test_what_does_not_come_through_is_an_error() -> None:
    with pytest.raises(ChildFailed, match="pickle"):
        run_in_child(lambda _report: lambda: None, ignore, limit=LIMIT)


def test_a_child_that_says_nothing_for_long_is_ended() -> None:
    with pytest.raises(ChildFailed, match="nothing was heard"):
        run_in_child(lambda _report: time.sleep(600), ignore, limit=0.2)


def test_an_interrupt_ends_the_child_and_what_it_started() -> None:
    processes: list[int] = []

    def work(report: Any) -> None:
        compiler = subprocess.Popen(["sleep", "600"])
        report(os.getpid(), compiler.pid)
        time.sleep(600)

    def listen(*started: int) -> None:
        processes.extend(started)
        signal.raise_signal(signal.SIGINT)

    # pytest, and who runs it in the background, may have another handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_in_child(work, listen, limit=LIMIT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(processes) == 2
    deadline = time.monotonic() + LIMIT
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(is_alive, processes))
