"""The times of a benchmark as a picture: SVG inside an HTML page, or PNG."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tvm_byoc_kit.availability import probe
from tvm_byoc_kit.errors import OptionError
from tvm_byoc_kit.files import replacing

if TYPE_CHECKING:
    from tvm_byoc_kit.benchmarking import BenchReport, BenchSide, Spread

__all__ = ["Drawing", "Line", "Text", "check_plot", "draw", "to_html", "write_plot"]

_BLACK, _GREY, _LIGHT = "#222222", "#888888", "#dddddd"
_CPU, _WALL, _WRONG = "#1f77b4", "#ff7f0e", "#c00000"

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP, _BOTTOM = 900, 46, 180, 90, 70, 40
_FONT, _TITLE_FONT = 13, 15
_DOT = 9


@dataclass(frozen=True)
class Line:
    """A straight line; coordinates in pixels from the top left corner."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0


@dataclass(frozen=True)
class Text:
    """Text at a point of its base line; `anchor` is the part of it that is there."""

    x: float
    y: float
    text: str
    anchor: str = "start"  # start, middle, end
    colour: str = _BLACK
    size: int = _FONT


@dataclass(frozen=True)
class Drawing:
    """What a picture consists of, for whichever format draws it."""

    width: int
    height: int
    lines: tuple[Line, ...]
    texts: tuple[Text, ...]


def check_plot(path: Path) -> None:
    """Whether `write_plot` can write a file of that name, to be asked before minutes of measuring.

    Raises
    ------
    OptionError
        For another name than .html, .svg or .png, or .png without Pillow.
    """
    if path.suffix.lower() not in _WRITERS:
        raise OptionError(f"plot {path}: expected a name that ends in {', '.join(_WRITERS)}")
    status = probe("pillow")
    if path.suffix.lower() == ".png" and not status:
        raise OptionError(
            f"plot {path}: {status.detail}. To add it: {status.remedy}; or give a name that ends "
            "in .html"
        )


def write_plot(report: BenchReport, path: Path) -> None:
    """Write the picture in the format that the file's name asks for: .html, .svg or .png.

    Raises
    ------
    OptionError
        As `check_plot` does, or for a file that cannot be written.
    """
    check_plot(path)
    try:
        with replacing(path) as unfinished:
            _WRITERS[path.suffix.lower()](draw(report), unfinished)
    except OSError as error:
        raise OptionError(f"plot {path}: cannot be written ({error})") from error


def draw(report: BenchReport) -> Drawing:
    """A row for each side, with CPU and wall time per call as dots between their quartiles.

    The axis is logarithmic: sides differ by factors, from microseconds to seconds.
    """
    scale = _Scale.of([spread for side in report.sides for spread in (side.cpu_ms, side.wall_ms)])
    bottom = _TOP + _ROW * len(report.sides)
    lines: list[Line] = []
    texts = [
        Text(16, 26, Path(report.model).name, size=_TITLE_FONT),
        Text(16, 46, f"{report.threads} thread(s) of {report.machine}", colour=_GREY),
        Text(_WIDTH - _RIGHT, 26, "CPU time", "end", _CPU),
        Text(_WIDTH - _RIGHT, 46, "wall time", "end", _WALL),
        Text(_WIDTH - _RIGHT, bottom + 32, "ms per call", "end", _GREY),
    ]
    for tick in scale.ticks():
        x = scale.x(tick)
        lines.append(Line(x, _TOP, x, bottom, _LIGHT))
        texts.append(Text(x, bottom + 16, f"{tick:g}", "middle", _GREY))
    for number, side in enumerate(report.sides):
        _draw_side(side, _TOP + _ROW * number, scale, lines, texts)
    return Drawing(_WIDTH, bottom + _BOTTOM, tuple(lines), tuple(texts))


def _draw_side(
    side: BenchSide, top: float, scale: _Scale, lines: list[Line], texts: list[Text]
) -> None:
    texts.append(Text(_LEFT - 12, top + _ROW / 2 + 4, side.name, "end"))
    if not side.agrees:  # there is no speed of wrong numbers
        text = f"wrong numbers: off by {side.max_abs:.2g}"
        texts.append(Text(_LEFT, top + _ROW / 2 + 4, text, colour=_WRONG))
        return
    for spread, colour, y in ((side.cpu_ms, _CPU, top + 15), (side.wall_ms, _WALL, top + 32)):
        x, end = scale.x(spread.median), scale.x(spread.upper)
        lines += [
            Line(scale.x(spread.lower), y, end, y, colour, 2),
            Line(x - _DOT / 2, y, x + _DOT / 2, y, colour, _DOT),
        ]
        beside = max(x + _DOT + 2, end + 4)
        texts.append(Text(beside, y + 4, f"{spread.median:.3g}", colour=colour))


@dataclass(frozen=True)
class _Scale:
    """Logarithmic, over whole decades."""

    low: int
    high: int

    @classmethod
    def of(cls, spreads: list[Spread]) -> _Scale:
        positive = [value for s in spreads for value in (s.lower, s.upper) if value > 0] or [1.0]
        low, high = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
        return cls(low, max(high, low + 1))

    def x(self, value: float) -> float:
        exponent = math.log10(value) if value > 0 else self.low
        share = (exponent - self.low) / (self.high - self.low)
        return _LEFT + max(share, 0.0) * (_WIDTH - _LEFT - _RIGHT)

    def ticks(self) -> list[float]:
        return [10.0**exponent for exponent in range(self.low, self.high + 1)]


def to_html(drawing: Drawing) -> str:
    """A page of its own, which needs nothing else."""
    return (
        f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>tvm-byoc bench</title>\n{_svg(drawing)}'
    )


_SVG_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
    'font-family="sans-serif">'
)


def _svg(drawing: Drawing) -> str:
    parts = [
        _SVG_HEAD.format(width=drawing.width, height=drawing.height),
        '<rect width="100%" height="100%" fill="white"/>',
        *(
            f'<line x1="{line.x1:.1f}" y1="{line.y1:.1f}" x2="{line.x2:.1f}" y2="{line.y2:.1f}" '
            f'stroke="{line.colour}" stroke-width="{line.width:g}"/>'
            for line in drawing.lines
        ),
        *(
            f'<text x="{text.x:.1f}" y="{text.y:.1f}" text-anchor="{text.anchor}" '
            f'fill="{text.colour}" font-size="{text.size}">{html.escape(text.text)}</text>'
            for text in drawing.texts
        ),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _write_html(drawing: Drawing, path: Path) -> None:
    path.write_text(to_html(drawing), encoding="utf-8")


def _write_svg(drawing: Drawing, path: Path) -> None:
    path.write_text(_svg(drawing), encoding="utf-8")


def _write_png(drawing: Drawing, path: Path) -> None:
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (drawing.width * _DENSITY, drawing.height * _DENSITY), "white")
    canvas = ImageDraw.Draw(image)
    for line in drawing.lines:
        ends = [_DENSITY * value for value in (line.x1, line.y1, line.x2, line.y2)]
        canvas.line(ends, fill=line.colour, width=round(_DENSITY * line.width))
    for text in drawing.texts:
        canvas.text(
            (_DENSITY * text.x, _DENSITY * text.y),
            text.text,
            fill=text.colour,
            anchor=_ANCHORS[text.anchor],
            font=ImageFont.load_default(_DENSITY * text.size),
        )
    image.save(path, format="PNG")


_DENSITY = 2  # pixels of a PNG for each of the drawing's
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}

_WRITERS: Mapping[str, Callable[[Drawing, Path], None]] = {
    ".html": _write_html,
    ".svg": _write_svg,
    ".png": _write_png,
}
