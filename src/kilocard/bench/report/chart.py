"""Line charts as SVG text. Colours are classes of report.css, so that one drawing does for light, dark and paper.

Each curve is named at its end, where the eye is, and not in a legend; names that would overlap are moved apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from kilocard.bench.report.scale import Axis

LEFT, RIGHT, TOP, BOTTOM = 58, 74, 30, 44
#: pixels between two names
APART = 14.0


@dataclass(frozen=True, slots=True)
class Line:
    """A curve through `points`; None for y breaks it. `tips` are shown for the points, where there are any."""

    name: str
    points: Sequence[tuple[float, float | None]]
    #: of report.css: "c0" … "c5", "r0" … "r7"; "dashed", "faint" besides
    style: str
    tips: Sequence[str] = ()
    dots: bool = False
    #: filled down to the axis
    area: bool = False
    named: bool = True


@dataclass(frozen=True, slots=True)
class Dots:
    """Points without a curve: single runs beside their mean."""

    points: Sequence[tuple[float, float]]
    style: str
    tips: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line with a word at its top."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the x axis with a word at its top."""

    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x: Axis
    y: Axis
    lines: Sequence[Line] = ()
    dots: Sequence[Dots] = ()
    marks: Sequence[Mark] = ()
    bands: Sequence[Band] = ()
    width: int = 560
    height: int = 300
    note: str = field(default="")
    #: pixels for the curves' names
    right: int = RIGHT


class _Canvas:
    """The place of every value of one chart, in pixels."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.left, self.right = LEFT, chart.width - chart.right
        self.top, self.bottom = TOP, chart.height - BOTTOM

    def x(self, value: float) -> float:
        return round(self.left + self.chart.x.place(value) * (self.right - self.left), 1)

    def y(self, value: float) -> float:
        return round(self.bottom - self.chart.y.place(value) * (self.bottom - self.top), 1)


def draw(chart: Chart) -> str:
    """A <figure>."""
    canvas = _Canvas(chart)
    parts = [*(_band(canvas, place, band) for place, band in enumerate(chart.bands)), _grid(canvas)]
    parts += [_mark(canvas, mark) for mark in chart.marks]
    parts += [_line(canvas, line) for line in chart.lines]
    parts += [_circles(canvas, dots.points, dots.tips, f"dot single {dots.style}", 2.6) for dots in chart.dots]
    parts.append(_names(canvas))
    note = f"<figcaption>{escape(chart.note)}</figcaption>" if chart.note else ""
    return (
        f'<figure><h3>{escape(chart.title)}</h3><svg viewBox="0 0 {chart.width} {chart.height}" role="img" '
        f'aria-label="{escape(chart.title)}">{"".join(parts)}</svg>{note}</figure>'
    )


def _grid(canvas: _Canvas) -> str:
    chart, parts = canvas.chart, []
    for tick in chart.y.ticks:
        at = canvas.y(tick)
        parts.append(f'<path class="grid" d="M{canvas.left} {at}H{canvas.right}"/>')
        parts.append(
            f'<text class="tick" x="{canvas.left - 7}" y="{at + 4}" text-anchor="end">{chart.y.text(tick)}</text>'
        )
    for tick in chart.x.ticks:
        at = canvas.x(tick)
        parts.append(f'<path class="stub" d="M{at} {canvas.bottom}v4"/>')
        parts.append(
            f'<text class="tick" x="{at}" y="{canvas.bottom + 17}" text-anchor="middle">{chart.x.text(tick)}</text>'
        )
    middle = (canvas.left + canvas.right) / 2
    parts.append(f'<path class="axis" d="M{canvas.left} {canvas.bottom}H{canvas.right}"/>')
    parts.append(
        f'<text class="label" x="{middle}" y="{chart.height - 6}" text-anchor="middle">{escape(chart.x.label)}</text>'
    )
    parts.append(f'<text class="label" x="0" y="10">{escape(chart.y.label)}</text>')
    return "".join(parts)


def _band(canvas: _Canvas, place: int, band: Band) -> str:
    low, high = canvas.x(band.low), canvas.x(band.high)
    shade = f'<rect class="band b{place % 2}" x="{low}" y="{canvas.top}" width="{round(high - low, 1)}" '
    shade += f'height="{canvas.bottom - canvas.top}"/>'
    if high - low < 7.0 * len(band.text):  # no room for the word
        return shade
    middle = round((low + high) / 2, 1)
    return (
        f'{shade}<text class="band" x="{middle}" y="{canvas.top - 5}" text-anchor="middle">{escape(band.text)}</text>'
    )


def _mark(canvas: _Canvas, mark: Mark) -> str:
    at = canvas.x(mark.at)
    late = at > (canvas.left + 2 * canvas.right) / 3
    side, anchor = (-6, "end") if late else (6, "start")
    return (
        f'<path class="mark" d="M{at} {canvas.top - 4}V{canvas.bottom}"/>'
        f'<text class="mark" x="{at + side}" y="{canvas.top + 6}" text-anchor="{anchor}">{escape(mark.text)}</text>'
    )


def _line(canvas: _Canvas, line: Line) -> str:
    strokes: list[list[tuple[float, float]]] = [[]]
    for at, value in line.points:
        if value is None:
            strokes.append([])
        else:
            strokes[-1].append((canvas.x(at), canvas.y(value)))
    strokes = [stroke for stroke in strokes if stroke]
    path = "".join("M" + "L".join(f"{at} {high}" for at, high in stroke) for stroke in strokes)
    parts = []
    if line.area:
        closed = "".join(
            "M" + "L".join(f"{at} {high}" for at, high in stroke) + f"V{canvas.bottom}H{stroke[0][0]}Z"
            for stroke in strokes
        )
        parts.append(f'<path class="area {line.style}" d="{closed}"/>')
    parts.append(f'<path class="line {line.style}" d="{path}"/>')
    known = [(at, value) for at, value in line.points if value is not None]
    if line.dots or line.tips:
        radius = 3.4 if line.dots else 7.0
        parts.append(_circles(canvas, known, line.tips, f"{'dot' if line.dots else 'hover'} {line.style}", radius))
    return "".join(parts)


def _circles(
    canvas: _Canvas, points: Sequence[tuple[float, float]], tips: Sequence[str], style: str, radius: float
) -> str:
    parts = []
    for place, (at, value) in enumerate(points):
        tip = f"<title>{escape(tips[place])}</title>" if place < len(tips) else ""
        parts.append(f'<circle class="{style}" cx="{canvas.x(at)}" cy="{canvas.y(value)}" r="{radius}">{tip}</circle>')
    return "".join(parts)


def _names(canvas: _Canvas) -> str:
    """At the right end of each curve, moved apart where they would overlap."""
    ends: list[tuple[float, Line]] = []
    for line in canvas.chart.lines:
        last = next((value for _, value in reversed(line.points) if value is not None), None)
        if line.named and line.name and last is not None:
            ends.append((canvas.y(last), line))
    ends.sort(key=lambda end: end[0])
    # down from the top, then back up from the bottom
    places = [height for height, _ in ends]
    for number in range(1, len(places)):
        places[number] = max(places[number], places[number - 1] + APART)
    limit = float(canvas.bottom)
    for number in reversed(range(len(places))):
        places[number] = min(places[number], limit)
        limit = places[number] - APART
    return "".join(
        f'<text class="name {line.style}" x="{canvas.right + 8}" y="{round(place + 4, 1)}">{escape(line.name)}</text>'
        for place, (_, line) in zip(places, ends, strict=True)
    )
