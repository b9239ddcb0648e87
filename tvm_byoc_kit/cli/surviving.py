"""A command's work in a child process, which a backend may end."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.errors import ByocError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from tvm_byoc_kit.child_process import Report
    from tvm_byoc_kit.runtime import Executable

__all__ = ["surviving", "tell_regions"]


def surviving(console: Console, work: Callable[[Report], Any]) -> Any:
    """What `work` gives, which gets a function that takes the name of what it is about.

    Raises
    ------
    ByocError
        Also when its process ends before it.
    """
    from tvm_byoc_kit.child_process import ChildDied, run_in_child

    at = [""]

    def in_child(report: Report) -> tuple[Any, str | None]:
        try:
            return work(report), None
        except ByocError as error:
            return None, str(error)
        except Exception:
            traceback.print_exc()  # it cannot come with the error
            raise

    try:
        result, error = run_in_child(in_child, at.append, limit=None, quiet=False)
    except ChildDied as death:
        console.show_cursor()  # which a spinner may have hidden
        where = f" in region {at[-1]}" if at[-1] else ""
        raise ModelError(f"{death}{where}; `tvm-byoc bisect` looks into its regions") from None
    if error is not None:
        raise ByocError(error)
    return result


def tell_regions(exe: Executable, report: Report) -> None:
    """Call `report` with the name of each region of `exe` that runs, and with none after it."""

    def watch(_function: Any, symbol: str, before: bool, *_: Any) -> int:
        if symbol in exe.manifest.regions:
            report(symbol if before else "")
        return 0

    exe.vm.set_instrument(watch)
