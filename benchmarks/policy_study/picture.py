"""A line chart as SVG, that a browser and GitHub show as they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 150, 34, 44
#: told apart without colour by their dashes too
STYLES = (
    ("#888888", "2 3"), ("#d1495b", "7 4"), ("#1b7fbd", ""), ("#8a5fbf", "10 3 2 3"), ("#00875a", "4 2"),
)  # fmt: skip
#: ticks of a logarithmic axis, in each power of ten
TICKS = (1, 2, 5)

Points = Sequence[tuple[float, float]]


def chart(title: str, x_name: str, y_name: str, lines: Mapping[str, Points]) -> str:
    """`lines` by name, each of (x, y) with y above 0; y is logarithmic."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x_low, x_high = min(xs), max(xs)
    y_low, y_high = log10(min(ys)) - 0.05, log10(max(ys)) + 0.05
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low or 1.0)
        up = (log10(y) - y_low) / (y_high - y_low)
        return LEFT + across * (right - LEFT), bottom - up * (bottom - TOP)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="14" fill="#222222">{escape(title)}</text>',
        f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#444444">'
        f"{escape(x_name)}</text>",
        f'<text x="14" y="{(TOP + bottom) / 2:.0f}" text-anchor="middle" fill="#444444" '
        f'transform="rotate(-90 14 {(TOP + bottom) / 2:.0f})">{escape(y_name)}</text>',
    ]
    for value in _ticks(y_low, y_high):
        _, y = place(x_low, value)
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#444444">{value:g}</text>')
    for value in sorted(set(xs)):
        x, _ = place(value, 1.0)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle" fill="#444444">{value:g}</text>')
    for number, (name, points) in enumerate(lines.items()):
        colour, dashes = STYLES[number % len(STYLES)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{drawn}" fill="none" {stroke}/>')
        y = TOP + 8 + 20 * number
        parts.append(f'<line x1="{right + 12}" x2="{right + 38}" y1="{y}" y2="{y}" {stroke}/>')
        parts.append(f'<text x="{right + 43}" y="{y + 4}" fill="#222222">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _ticks(low: float, high: float) -> list[float]:
    powers = range(floor(low), floor(high) + 1)
    return [value for power in powers for step in TICKS if low <= log10(value := step * 10.0**power) <= high]
