"""What `prepare` did: for each pass the ops before and after, by kind, and the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.rewriting import bindings_of, host_functions, op_name

if TYPE_CHECKING:
    from tvm import IRModule

__all__ = ["PassReport", "PrepareReport", "count_ops"]


@dataclass(frozen=True)
class PassReport:
    """One pass.

    Parameters
    ----------
    name : str
    before, after : mapping of op name to number
        The ops of the module, such as ``{"relax.nn.conv2d": 20}``.
    seconds : float
        CPU time of the process.
    notes : tuple of str
        What the pass left alone, and why.
    skipped : str
        The error that it ended with, the module left as it was; empty when there was none.
    at_import : bool
        Whether it was the importer that ran it.
    """

    name: str
    before: Mapping[str, int]
    after: Mapping[str, int]
    seconds: float
    notes: tuple[str, ...] = ()
    skipped: str = ""
    at_import: bool = False

    @property
    def changes(self) -> dict[str, int]:
        """The difference by op: ``{"relax.nn.batch_norm": -20, "relax.add": 20}``."""
        names = sorted({*self.before, *self.after})
        differences = {name: self.after.get(name, 0) - self.before.get(name, 0) for name in names}
        return {name: difference for name, difference in differences.items() if difference}

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "name": self.name,
            "ops_before": sum(self.before.values()),
            "ops_after": sum(self.after.values()),
            "changes": self.changes,
            "seconds": self.seconds,
            "notes": list(self.notes),
            "skipped": self.skipped,
            "at_import": self.at_import,
        }


@dataclass(frozen=True)
class PrepareReport:
    """All passes, in their order; those at import come first.

    Parameters
    ----------
    passes : tuple of PassReport
    backend : str or None
        The backend that the module was prepared for; None: for none in particular.
    """

    passes: tuple[PassReport, ...]
    backend: str | None = None

    @property
    def seconds(self) -> float:
        """CPU time of all passes."""
        return sum(item.seconds for item in self.passes)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "backend": self.backend,
            "seconds": self.seconds,
            "passes": [item.to_dict() for item in self.passes],
        }

    def __str__(self) -> str:
        target = f"prepared for {self.backend}" if self.backend else "prepared"
        if not self.passes:
            return f"{target}: no pass was run"
        before, after = (sum(c.values()) for c in (self.passes[0].before, self.passes[-1].after))
        lines = [f"{target}: {before} -> {after} ops in {self.seconds:.3f} s of CPU"]
        lines += [_line(item) for item in self.passes if _says_something(item)]
        idle = [item.name for item in self.passes if not _says_something(item)]
        if idle:
            spent = sum(item.seconds for item in self.passes if not _says_something(item))
            lines.append(f"  {spent:6.3f} s  nothing to do: {', '.join(dict.fromkeys(idle))}")
        return "\n".join(lines)


def _says_something(item: PassReport) -> bool:
    return bool(item.changes or item.notes or item.skipped)


def _line(item: PassReport) -> str:
    parts = [f"{name.removeprefix('relax.')} {n:+d}" for name, n in item.changes.items()]
    parts += [f"({note})" for note in item.notes]
    parts += [f"skipped: {item.skipped}"] if item.skipped else []
    name = f"{item.name} (import)" if item.at_import else item.name
    return f"  {item.seconds:6.3f} s  {name:<23} {', '.join(parts)}"


def count_ops(mod: IRModule) -> Counter[str]:
    """The ops of the host functions of `mod`, by name."""
    names = (
        op_name(binding.value)
        for _, function in host_functions(mod)
        for binding in bindings_of(function)
    )
    return Counter(name for name in names if name)
