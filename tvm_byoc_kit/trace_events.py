"""The Trace Event Format, which Chrome and Perfetto (https://ui.perfetto.dev) draw; in µs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.files import replacing

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

__all__ = ["counter", "lanes", "span", "write_trace"]

_PROCESS = 1


def lanes(process: str, names: Iterable[str], first: str) -> Iterator[dict[str, Any]]:
    """Name the process and its lanes, which are numbered in this order; `first` is drawn on top."""
    yield _metadata("process_name", {"name": process})
    for lane, name in enumerate(names):
        yield _metadata("thread_name", {"name": name}, lane)
        yield _metadata("thread_sort_index", {"sort_index": -1 if name == first else lane}, lane)


def _metadata(name: str, args: dict[str, Any], lane: int = 0) -> dict[str, Any]:
    return {"ph": "M", "name": name, "pid": _PROCESS, "tid": lane, "ts": 0, "args": args}


def span(
    name: str, category: str, lane: int, start: float, duration: float, *, args: dict[str, Any]
) -> dict[str, Any]:
    """Something that lasts."""
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": _PROCESS,
        "tid": lane,
        "ts": start,
        "dur": duration,
        "args": args,
    }


def counter(name: str, time: float, values: dict[str, float]) -> dict[str, Any]:
    """What has these values from `time` on."""
    return {"ph": "C", "name": name, "pid": _PROCESS, "tid": 0, "ts": time, "args": values}


def write_trace(path: str | os.PathLike[str], trace: dict[str, Any]) -> Path:
    """Write a trace to a file, which is complete or not there; give the file."""
    target = Path(path)
    text = json.dumps(trace, allow_nan=False)
    with replacing(target) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return target
