"""What a bisection found: the regions, the ops, and how far off they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tvm_byoc_kit.comparison import OutputCheck, worst_of
from tvm_byoc_kit.errors import ModelError
from tvm_byoc_kit.verification import Verification

if TYPE_CHECKING:
    from pathlib import Path

    from tvm_byoc_kit.reproducer import Reproducer

__all__ = ["Bisection", "Part", "RegionCheck"]


@dataclass(frozen=True)
class Part:
    """Some ops of a region, built for the backend alone and given the host's inputs.

    Parameters
    ----------
    ops : tuple of str
        Names in the model, as the coverage report has them.
    composites : tuple of str
        The patterns that matched them: one, or several that are wrong only together.
    outputs : tuple of OutputCheck
    problem : str
        What is wrong beside numbers, such as an exception; else empty.
    """

    ops: tuple[str, ...]
    composites: tuple[str, ...]
    outputs: tuple[OutputCheck, ...]
    problem: str = ""

    def __bool__(self) -> bool:
        return not self.problem and all(output.ok for output in self.outputs)

    def __str__(self) -> str:
        return f"{_listed(self.ops)} ({_listed(self.composites)})"


@dataclass(frozen=True)
class RegionCheck:
    """One call of a region, which was given the host's inputs.

    Parameters
    ----------
    name : str
        Of the region, with ``#2`` and so on from the second call of the same function on.
    ops, composites : tuple of str
    outputs : tuple of OutputCheck
        Of the first execution that is wrong, or else the first; empty where the call was not
        executed, or failed.
    problem : str
        What is wrong in it beside numbers, such as an exception; else empty.
    parts : tuple of Part
        Each composite alone, in order; only of the first region that diverges.
    together : Part, optional
        Where every composite alone agrees: the fewest neighbours that diverge together.
    note : str
        Why the region was not taken apart.
    """

    name: str
    ops: tuple[str, ...]
    composites: tuple[str, ...]
    outputs: tuple[OutputCheck, ...]
    problem: str = ""
    parts: tuple[Part, ...] = ()
    together: Part | None = None
    note: str = ""

    def __bool__(self) -> bool:
        return not self.problem and all(output.ok for output in self.outputs)

    @property
    def culprit(self) -> Part | None:
        """The first part that diverges."""
        return next((part for part in self.parts if not part), self.together)


@dataclass(frozen=True)
class Bisection:
    """Truthy when nothing diverges.

    Parameters
    ----------
    backend, model : str
    regions : tuple of RegionCheck
        In the order of execution.
    outputs : tuple of OutputCheck
        Of the whole model on the backend, compared with the host's; empty where it failed.
    problem : str
        What is wrong with the whole beside numbers; else empty.
    host : Verification, optional
        How the host's own code compares with the model's framework, where there is one.
    builds : int
        How often something was compiled.
    reproducer : Reproducer, optional
        Of what diverges first; see `write_reproducer`.
    """

    backend: str
    model: str
    regions: tuple[RegionCheck, ...]
    outputs: tuple[OutputCheck, ...]
    problem: str = ""
    host: Verification | None = None
    builds: int = 0
    reproducer: Reproducer | None = field(default=None, repr=False, compare=False)

    def __bool__(self) -> bool:
        return all(self.regions) and self._whole_agrees and (self.host is None or bool(self.host))

    @property
    def _whole_agrees(self) -> bool:
        return not self.problem and all(output.ok for output in self.outputs)

    @property
    def diverging(self) -> tuple[RegionCheck, ...]:
        """The regions that do, in order."""
        return tuple(region for region in self.regions if not region)

    @property
    def culprit(self) -> Part | None:
        """The first op, or the first ops together, that the backend computes wrong."""
        return self.diverging[0].culprit if self.diverging else None

    @property
    def verdict(self) -> str:
        """One line."""
        if self.diverging:
            first = self.diverging[0]
            where = f"DIVERGES first in region {self.regions.index(first) + 1}"
            if self.culprit is None:
                facts = [where, first.name, first.problem, first.note]
                return ": ".join([", ".join(facts[:2]), *filter(None, facts[2:])])
            problem = f": {self.culprit.problem}" if self.culprit.problem else ""
            if first.together is None:
                return f"{where}, at {self.culprit}{problem}"
            together = f"{self.culprit}{problem}"
            return f"{where}, where each op alone agrees, and these together do not: {together}"
        if not self._whole_agrees:
            return (
                "DIVERGES as a whole, although every region agrees for the host's inputs: "
                f"{self.problem or 'rounding adds up on the way'}"
            )
        if self.host is not None and not self.host:
            return (
                f"{self.backend} agrees with the host's code, which DIFFERS from "
                f"{self.host.reference}: look at import and preparation"
            )
        return f"every region of {self.backend} agrees with the host's code, and so does the whole"

    def __str__(self) -> str:
        lines = [self.verdict]
        for number, region in enumerate(self.regions, 1):
            lines.append(f"  region {number} ({len(region.ops)} ops): {_summary(region)}")
            lines += [f"    {part}: {_summary(part)}" for part in region.parts if not part]
            if region.together is not None:
                lines.append(f"    {region.together}: {_summary(region.together)}")
        lines.append(f"  the whole model: {_summary(self)}")
        if self.host is not None:
            against = f"the host's code against {self.host.reference}"
            lines.append(f"  {against}: {_summary(self.host)}")
        if self.culprit is not None and any(not check.ok for check in self.culprit.outputs):
            wrong = worst_of(self.culprit.outputs)
            lines.append(f"  {_listed(self.culprit.ops)}, {wrong.name}: {wrong.details()}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "ok": bool(self),
            "verdict": self.verdict,
            "backend": self.backend,
            "model": self.model,
            "regions": [_region_facts(region) for region in self.regions],
            "culprit": _part_facts(self.culprit),
            "outputs": [output.to_dict() for output in self.outputs],
            "problem": self.problem,
            "host": None if self.host is None else self.host.to_dict(),
            "builds": self.builds,
        }

    def write_reproducer(self, directory: str | os.PathLike[str]) -> Path:
        """Write what diverges first as a script, ``reproduce.py``, with its arrays beside it.

        The script builds that part alone, runs it, prints how it compares, and exits with 1 when
        it diverges.

        Parameters
        ----------
        directory : str or os.PathLike
            Made, or replaced where it holds an earlier reproducer.

        Returns
        -------
        pathlib.Path
            Of the script.

        Raises
        ------
        ModelError
            When no region diverges.
        OptionError
            When the directory cannot be written, or holds something else.
        """
        if self.reproducer is None:
            raise ModelError(f"there is nothing to reproduce: {self.verdict}")
        return self.reproducer.write(directory)


def _listed(names: Sequence[str]) -> str:
    shown = 4
    if len(names) <= shown:
        return ", ".join(names)
    return f"{names[0]}, ... {names[-1]}, {len(names)} in all"


def _summary(found: RegionCheck | Part | Bisection | Verification) -> str:
    problem = getattr(found, "problem", "")
    if not found.outputs and not problem:
        return "not run"
    agrees = not problem and all(check.ok for check in found.outputs)
    facts = ["agrees" if agrees else "DIVERGES"]
    if found.outputs:
        worst = worst_of(found.outputs)
        facts += [f"max abs {worst.max_abs:.3g}, SNR {worst.snr_db:.1f} dB", *worst.not_finite]
    return ", ".join([*facts, *([problem] if problem else [])])


def _part_facts(part: Part | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {
        "ok": bool(part),
        "ops": list(part.ops),
        "composites": list(part.composites),
        "outputs": [output.to_dict() for output in part.outputs],
        "problem": part.problem,
    }


def _region_facts(region: RegionCheck) -> dict[str, Any]:
    return {
        "name": region.name,
        "ok": bool(region),
        "ops": list(region.ops),
        "composites": list(region.composites),
        "outputs": [output.to_dict() for output in region.outputs],
        "problem": region.problem,
        "parts": [_part_facts(part) for part in region.parts],
        "together": _part_facts(region.together),
        "note": region.note,
    }
