"""What the command line lets through to the terminal."""

from __future__ import annotations

import io
import os
import sys
import warnings
from pathlib import Path

import pytest
from rich.console import Console

from tvm_byoc_kit import terminal
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.terminal import make_console, progress, quiet_native_log


def native(text: str) -> None:
    """Write as native code does, past sys.stderr."""
    os.write(2, text.encode())


def fail(log: str, error: Exception) -> None:
    with quiet_native_log():
        native(log)
        raise error


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def warn(message: str, filename: str) -> None:
    warnings.warn_explicit(message, UserWarning, filename, 1)


def test_the_native_log_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_native_log():
        native("Warning: Scope Saving:\n")
    native("after\n")
    assert capfd.readouterr().err == "after\n"


def test_an_unexpected_failure_shows_the_native_log(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError):
        fail("the reason\n", ZeroDivisionError())
    assert "the reason" in capfd.readouterr().err


def test_an_error_of_the_kit_says_enough(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ModelError):
        fail("a long stack trace\n", ModelError("what is wrong"))
    assert capfd.readouterr().err == ""


def test_warnings_of_the_kit_are_one_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_native_log():
        warn("a match stays alone", str(Path(terminal.__file__).parent / "cli.py"))
        warn("somebody else's", "/usr/lib/python3/onnx_frontend.py")
    assert capfd.readouterr().err == "tvm-byoc: warning: a match stays alone\n"


def test_standard_error_works_again_afterwards_every_time(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = open_files()
    for number in range(50):
        with quiet_native_log():
            native("hidden\n")
        native(f"{number}\n")
    assert capfd.readouterr().err.split() == [str(number) for number in range(50)]
    assert open_files() - before < 25  # others may open or close a few meanwhile


def test_a_console_that_is_no_terminal_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.delenv("COLUMNS", raising=False)
    console = make_console()
    long = "word " * 100
    with progress(console, "working"):
        console.print(f"[bold]{long}[/bold] 1.5 'text' https://example.org")
    assert "\x1b" not in out.getvalue()
    assert len(out.getvalue().splitlines()) == 1, "nothing is wrapped in a pipe"
    assert console.width > 120, "tables are wider than 80 columns"


def test_what_the_encoding_lacks_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    make_console().print("12.57 µs")
    sys.stdout.flush()
    assert raw.getvalue() == b"12.57 ?s\n"


def test_progress_is_shown_on_a_terminal_alone() -> None:
    for is_terminal in (True, False):
        out = io.StringIO()
        console = Console(file=out, force_terminal=is_terminal, _environ={"TERM": "xterm"})
        with progress(console, "compiling the model"):
            pass
        assert ("compiling the model" in out.getvalue()) == is_terminal
