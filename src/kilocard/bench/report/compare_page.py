"""The page of a comparison: both curves in one chart, and each difference with its interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from kilocard.bench.compare import Comparison, Row
from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Results
from kilocard.bench.report.chart import Chart, Line, draw
from kilocard.bench.report.page import page
from kilocard.bench.report.scale import from_zero, loads, logarithmic
from kilocard.bench.units import number, seconds

HEADLINES = {
    "faster": "B is faster",
    "slower": "B is slower",
    "mixed": "B is faster here and slower there",
    "noise": "No difference beyond noise",
    "unknown": "Not enough was measured to tell",
}
_CLASSES = {"faster": "better", "slower": "worse"}
_COLOURS = {"faster": "c3", "slower": "c2"}
#: pixels
_WIDTH, _ROW, _LABEL, _EDGE = 1150, 19, 270, 60


def compare_html(comparison: Comparison, a: Results, b: Results) -> str:
    """One file that needs nothing else."""
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in comparison.says)
    found = "".join(f'<p class="finding {each.severity}">{escape(each.text)}</p>' for each in comparison.findings)
    drawn = "".join(f"<div>{draw(chart)}</div>" for chart in _charts(a, b))
    title = HEADLINES[comparison.verdict]
    parts = [
        f"<h1>{title}</h1><p class=under>A: {escape(comparison.a)} · B: {escape(comparison.b)}</p>",
        f'<ul class="advice">{said}</ul>',
        found,
        f'<h2>Both against load</h2><div class="grid">{drawn}</div>' if drawn else "",
        "<h2>Differences with their 95 % intervals</h2>",
        forest(comparison.rows),
        "<h2>All numbers</h2>",
        _table(comparison.rows),
        f"<p class=foot>{METHOD}</p>",
    ]
    return page(f"{title}: {comparison.a} and {comparison.b}", parts)


METHOD = (
    "Loads with two runs or more on each side are judged by Welch's t test on one number for each repeat. Single runs "
    "are judged by a bootstrap over blocks of time, three answers long or more, since requests near each other are not "
    "independent; it does not see what differs between runs, so the change must be larger before it counts. P-values "
    "are adjusted for all rows (Holm). Loads at which the two did different work get no verdict."
)


def _charts(a: Results, b: Results) -> list[Chart]:
    split, unit = (closed, "requests in flight") if closed(a.points) else (opened, "requests/s offered")
    swept = (split(a.points), split(b.points))
    if not all(swept):
        return []
    axis = loads(unit, [load.load for side in swept for load in side], log=split is closed)

    def chart(title: str, pick: Callable[[Load], float | None], *, time: bool) -> Chart:
        curves = [[(load.load, pick(load)) for load in side] for side in swept]
        values = [value for curve in curves for _, value in curve if value is not None]
        y = logarithmic("", values) if time else from_zero("output tokens/s", values)
        lines = [
            Line(name, curve, style, _tips(name, curve, unit, time=time), dots=True)
            for name, curve, style in zip("AB", curves, ("c5 dashed", "c0"), strict=True)
        ]
        return Chart(title, axis, y, lines)

    return [
        chart("Throughput", lambda load: load.tokens_per_s, time=False),
        chart("TTFT, p95", lambda load: load.ttft_p95_s, time=True),
        chart("TPOT, median", lambda load: load.mean_of(lambda p: p.tpot_s.p50 if p.tpot_s else None), time=True),
        chart("End to end, p95", lambda load: load.mean_of(lambda p: p.e2e_s.p95 if p.e2e_s else None), time=True),
    ]


def _tips(name: str, curve: Sequence[tuple[float, float | None]], unit: str, *, time: bool) -> list[str]:
    text = seconds if time else number
    return [f"{name}, {at:g} {unit}\n{text(value)}" for at, value in curve if value is not None]


def forest(rows: Sequence[Row]) -> str:
    """One line a row: the change as a dot, its interval as a bar, 0 in the middle."""
    shown = [row for row in rows if row.change is not None and row.low is not None and row.high is not None]
    if not shown:
        return "<p class=evidence>No row has an interval.</p>"
    # a single wild interval must not squeeze the others
    ends = sorted(max(abs(row.low or 0), abs(row.high or 0)) for row in shown)
    most = max(0.05, min(ends[-1], 2 * ends[int(0.8 * (len(ends) - 1))]))
    left, right = _LABEL, _WIDTH - _EDGE

    def x(share: float) -> float:
        return round((left + right) / 2 + max(-1.0, min(1.0, share / most)) * (right - left) / 2, 1)

    height = _ROW * len(shown) + 40
    parts = []
    for share in (-most, -most / 2, 0.0, most / 2, most):
        style, text = ("grid", f"{share:+.0%}") if share else ("axis", "0")
        parts.append(f'<path class="{style}" d="M{x(share)} 6V{height - 28}"/>')
        parts.append(f'<text class="tick" x="{x(share)}" y="{height - 10}" text-anchor="middle">{text}</text>')
    before = ""
    for number_, row in enumerate(shown):
        y = 16 + _ROW * number_
        colour = _COLOURS.get(row.verdict, "c5")
        tip = f"{row.load}, {row.metric}: {row.change:+.1%} ({row.low:+.1%} to {row.high:+.1%})"
        tip += f"\n{row.verdict}: {row.why}"
        name = row.load if row.load != before else ""
        before = row.load
        parts.append(f'<text class="tick" x="0" y="{y + 4}">{escape(name)}</text>')
        parts.append(f'<text class="tick" x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(row.metric)}</text>')
        parts.append(f'<path class="line {colour}" d="M{x(row.low or 0)} {y}H{x(row.high or 0)}"/>')
        dot = f'<circle class="dot {colour}" cx="{x(row.change or 0)}" cy="{y}" r="4">'
        parts.append(f"{dot}<title>{escape(tip)}</title></circle>")
    svg = f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="differences">{"".join(parts)}</svg>'
    return f"<figure>{svg}</figure>"


def _table(rows: Sequence[Row]) -> str:
    body = []
    for row in rows:
        text = number if row.metric.endswith("per_s") else seconds
        change = "–" if row.change is None else f"{row.change:+.1%}"
        low_high = "–" if row.low is None or row.high is None else f"{row.low:+.1%} … {row.high:+.1%}"
        verdict = f'<span class="{_CLASSES.get(row.verdict, "")}">{row.verdict}</span>'
        cells = (escape(row.load), row.metric, text(row.a), text(row.b), change, low_high, verdict, escape(row.why))
        body.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("load", "number", "A", "B", "change", "95 %", "verdict", "why"))
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'
