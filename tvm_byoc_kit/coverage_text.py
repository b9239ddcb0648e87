"""A coverage report as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm_byoc_kit.terminal import aligned

if TYPE_CHECKING:
    from tvm_byoc_kit.coverage import Coverage, Reason, Region

__all__ = ["amount", "patterns", "percent", "reason", "render", "size"]

_MOST_REGIONS = 12
_MOST_PATTERNS = 8
_MOST_REASONS = 20
_WIDTH = 140  # of a reason, in characters
_THREE_DIGITS = 100


def amount(count: int, unit: str) -> str:
    """`count` with three digits and a prefix: ``1.81 GMACs``."""
    return _scaled(count, 1000, ("", "k", "M", "G", "T", "P")) + unit


def size(count: int) -> str:
    """A number of bytes with three digits: ``588 KiB``."""
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def _scaled(count: int, step: int, units: tuple[str, ...]) -> str:
    value, place = float(count), 0
    while round(value) >= step and place < len(units) - 1:
        value, place = value / step, place + 1
    digits = f"{value:.3g}" if value < _THREE_DIGITS else f"{value:.0f}"
    return f"{digits} {units[place]}"


def render(coverage: Coverage) -> str:
    """Totals, one line a region, and one line for each reason with what it keeps on the host."""
    return "\n".join([_headline(coverage), *_region_lines(coverage), *_host_lines(coverage)])


def _headline(coverage: Coverage) -> str:
    line = (
        f"{coverage.offloaded} of {coverage.total} ops offloaded "
        f"in {len(coverage.regions)} region(s)"
    )
    everything, share = coverage.totals.macs, coverage.macs_share
    if everything and share is not None:
        line += f", with {percent(share)} of {amount(everything, 'MACs')}"
    return line


def percent(share: float) -> str:
    """``99.9 %``; never 100 % of less than all, nor 0 % of something."""
    text = f"{100 * share:.1f}"
    if text == "100.0" and share < 1:
        text = "99.9"
    if text == "0.0" and share > 0:
        text = "0.1"
    return f"{text.removesuffix('.0')} %"


def _region_lines(coverage: Coverage) -> list[str]:
    regions = list(enumerate(coverage.regions, 1))
    lines = [_region_line(number, region) for number, region in regions[:_MOST_REGIONS]]
    left_out = coverage.regions[_MOST_REGIONS:]
    if left_out:
        ops = sum(region.ops for region in left_out)
        lines.append(f"  and {len(left_out)} more regions with {ops} ops")
    return lines


def _region_line(number: int, region: Region) -> str:
    facts = [region.backend, f"{region.ops} op{'' if region.ops == 1 else 's'}"]
    if region.macs:
        facts.append(amount(region.macs, "MACs"))
    if region.bytes_in is not None and region.bytes_out is not None:
        facts.append(f"{size(region.bytes_in)} in, {size(region.bytes_out)} out")
    return f"  region {number} ({', '.join(facts)}): {patterns(region.composites, region.backend)}"


def patterns(composites: Sequence[str], backend: str) -> str:
    """The patterns of a region, the most frequent first: ``2 x conv2d_relu, matmul``."""
    counts = Counter(name.removeprefix(f"{backend}.") for name in composites).most_common()
    shown = [name if n == 1 else f"{n} x {name}" for name, n in counts[:_MOST_PATTERNS]]
    left_out = len(counts) - len(shown)
    if left_out:
        shown.append(f"{left_out} more pattern{'' if left_out == 1 else 's'}")
    return ", ".join(shown)


def _host_lines(coverage: Coverage) -> list[str]:
    groups = list(coverage.host_reasons.items())
    if not groups:
        return []
    shown = groups[:_MOST_REASONS]
    digits = len(str(max(count for _, count in shown)))
    rows = [
        (f"{count:>{digits}} x {op.removeprefix('relax.')}", reason(why))
        for (op, why), count in shown
    ]
    lines = ["  on the host:", *(f"    {line}" for line in aligned(rows))]
    if len(groups) > len(shown):
        ops = sum(count for _, count in groups[len(shown) :])
        lines.append(f"    and {ops} more ops, for {len(groups) - len(shown)} more reasons")
    return lines


def reason(why: Reason | None) -> str:
    """Its text, cut to the width of a line; empty for None."""
    text = "" if why is None else why.text
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3].rstrip()}..."
