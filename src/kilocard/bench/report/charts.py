"""Which charts a report has, out of results.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from kilocard.bench.curve import Load, closed, opened
from kilocard.bench.document import Histogram, PointResult, Results, Spread
from kilocard.bench.report.chart import Band, Chart, Dots, Line, Mark
from kilocard.bench.report.scale import Axis, between, from_zero, loads, logarithmic
from kilocard.bench.results import named
from kilocard.bench.units import number, seconds, share

#: distributions drawn into one chart; more can't be told apart
CURVES = 8
_PERCENTILES = (("p50", "c0"), ("p95", "c1"), ("p99", "c2 dashed"))

Time = Callable[[PointResult], Spread | None]


def against_load(results: Results) -> list[Chart]:
    """Throughput and latencies over concurrency or rate. Nothing for a trace."""
    swept, unit = _swept(results)
    if not swept:
        return []
    axis = loads(unit, [load.load for load in swept], log=results.points[0].concurrency is not None)
    marks = _knee(results)
    charts = [_throughput(results, swept, axis, marks)]
    for title, pick in (
        ("Time to first token", lambda p: p.ttft_s),
        ("Time per output token", lambda p: p.tpot_s),
        ("End to end", lambda p: p.e2e_s),
    ):  # type: tuple[str, Time]
        chart = _latency(title, pick, swept, axis, marks)
        if chart is not None:
            charts.append(chart)
    return charts


def distributions(results: Results) -> list[Chart]:
    """Cumulative shares of TTFT and of gaps, one curve a load."""
    charts = []
    for name, title in (("ttft_s", "Time to first token"), ("itl_s", "Gaps between tokens (ITL)")):
        groups = [(text, merged) for text, points in _groups(results) if (merged := _merge(points, name)) is not None]
        shown = _some(groups)
        if not shown:
            continue
        bounds = [bound for _, each in shown for bound in each.bounds]
        lines = [
            Line(text, _cumulative(each), _ramp(place, len(shown)), tips=_share_tips(text, each))
            for place, (text, each) in enumerate(shown)
        ]
        note = "" if len(shown) == len(groups) else f"{len(shown)} of {len(groups)} loads are drawn."
        axis = logarithmic("", bounds)
        percent = Axis("share of all", 0.0, 1.0, ticks=(0, 0.25, 0.5, 0.75, 0.95, 1.0), text=share)
        charts.append(Chart(f"{title}, cumulative", axis, percent, lines, note=note))
    return charts


def over_time(results: Results) -> list[Chart]:
    """The whole run on one axis: the queue, the KV cache, tokens."""
    points = [point for point in results.points if point.series.at_s]
    if not points:
        return []
    begin, end = min(p.started_s for p in points), max(p.started_s + p.window_s for p in points)
    axis = between("seconds since the run's start", begin, end, lambda value: f"{value:g}")
    bands = [Band(point.started_s, point.started_s + point.window_s, _short(point)) for point in points]

    def engine(pick: Callable[[PointResult], Sequence[float | None]]) -> list[tuple[float, float | None]]:
        return _joined(points, lambda p: p.series.engine_at_s, pick)

    running, waiting = engine(lambda p: p.series.running), engine(lambda p: p.series.waiting)
    flying = _joined(points, lambda p: p.series.at_s, lambda p: p.series.in_flight)
    queue = [Line("in flight", flying, "c5 thin dashed")]
    if _any(running):
        queue.append(Line("running", running, "c0", area=True))
    if _any(waiting):
        queue.append(Line("waiting", waiting, "c2"))
    charts = [_time_chart("Requests: running and waiting in the engine, in flight at the client", axis, queue, bands)]
    kv = engine(lambda p: p.series.kv_usage)
    if _any(kv):
        lines = [Line("KV cache", kv, "c3", area=True)]
        percent = Axis("share of the KV cache in use", 0.0, 1.0, ticks=(0, 0.25, 0.5, 0.75, 1.0), text=share)
        lost = sum(point.engine.preemptions or 0 for point in points)
        note = f"{lost:.0f} preemptions in all." if lost else ""
        charts.append(Chart("KV cache", axis, percent, lines, bands=bands, width=1150, height=190, note=note))
    tokens = _joined(points, lambda p: p.series.at_s, lambda p: p.series.output_tokens_per_s)
    charts.append(
        _time_chart("Output tokens/s", axis, [Line("tokens/s", tokens, "c0 thin", area=True)], bands, height=190)
    )
    busy = engine(lambda p: p.series.gpu_busy)
    if _any(busy):
        percent = Axis("share of time", 0.0, 1.0, ticks=(0, 0.5, 1.0), text=share)
        lines = [Line("GPU busy", busy, "c4")]
        charts.append(Chart("GPU", axis, percent, lines, bands=bands, width=1150, height=170))
    return charts


def _throughput(results: Results, swept: Sequence[Load], axis: Axis, marks: Sequence[Mark]) -> Chart:
    if results.points[0].concurrency is not None:
        title, label = "Throughput", "output tokens/s"
        each: Callable[[PointResult], float] = lambda point: point.output_tokens_per_s  # noqa: E731  # one of two
    else:
        title, label = "Answered against offered", "requests/s"
        each = lambda point: point.requests_per_s  # noqa: E731  # the other of two
    mean = [(load.load, sum(map(each, load.repeats)) / len(load.repeats)) for load in swept]
    tips = [f"{at:g} {axis.label}\n{number(value)} {label}" for at, value in mean]
    lines = [Line("", mean, "c0", tips, dots=True, named=False)]
    singles = [(load.load, each(point)) for load in swept if len(load.repeats) > 1 for point in load.repeats]
    if label == "requests/s":
        lines.insert(0, Line("offered", [(load.load, load.load) for load in swept], "c5 dashed thin"))
    if results.slo is not None:
        good = [(load.load, load.mean_of(lambda p: p.goodput.requests_per_s if p.goodput else None)) for load in swept]
        if label == "requests/s":
            lines.append(Line("good", good, "c3", dots=True))
    top = [value for _, value in mean] + [value for _, value in singles]
    y = from_zero(label, top + ([load.load for load in swept] if label == "requests/s" else []))
    return Chart(title, axis, y, lines, [Dots(singles, "c0")] if singles else [], marks)


def _latency(title: str, pick: Time, swept: Sequence[Load], axis: Axis, marks: Sequence[Mark]) -> Chart | None:
    lines, values = [], []
    for name, style in _PERCENTILES:
        curve = [(load.load, load.mean_of(partial(_at, pick, name))) for load in swept]
        known = [(at, value) for at, value in curve if value is not None]
        values += [value for _, value in known]
        tips = [f"{at:g} {axis.label}\n{name} {seconds(value)}" for at, value in known]
        lines.append(Line(name, curve, style, tips, dots=True))
    if not values:
        return None
    return Chart(title, axis, logarithmic("", values), lines, marks=marks)


def _at(pick: Time, name: str, point: PointResult) -> float | None:
    spread = pick(point)
    return None if spread is None else float(getattr(spread, name))


def _time_chart(title: str, axis: Axis, lines: Sequence[Line], bands: Sequence[Band], height: int = 240) -> Chart:
    most = [value for line in lines for _, value in line.points if value is not None]
    return Chart(title, axis, from_zero("", most), lines, bands=bands, width=1150, height=height)


def _swept(results: Results) -> tuple[list[Load], str]:
    concurrencies = closed(results.points)
    return (concurrencies, "requests in flight") if concurrencies else (opened(results.points), "requests/s offered")


def _knee(results: Results) -> list[Mark]:
    at = results.knee.concurrency if results.knee.concurrency is not None else results.knee.rate_per_s
    return [] if at is None else [Mark(at, f"knee {at:g}")]


def _groups(results: Results) -> list[tuple[str, Sequence[PointResult]]]:
    swept, _ = _swept(results)
    if swept:
        return [(f"{load.load:g}", load.repeats) for load in swept]
    return [("trace", results.points)] if results.points else []


def _merge(points: Sequence[PointResult], name: str) -> Histogram | None:
    """Histograms of the repeats added up: their bounds are cut from one grid."""
    made = [each for point in points if (each := point.histograms.get(name)) is not None]
    if not made:
        return None
    counts: dict[float, int] = {}
    for each in made:
        for bound, count in zip(each.bounds, each.counts, strict=False):
            counts[bound] = counts.get(bound, 0) + count
    low = sorted(counts)
    top = max(each.bounds[-1] for each in made)
    return Histogram(bounds=[*low, top], counts=[counts[bound] for bound in low])


def _cumulative(each: Histogram) -> list[tuple[float, float | None]]:
    total, so_far = sum(each.counts), 0
    curve: list[tuple[float, float | None]] = [(each.bounds[0], 0.0)]
    for bound, count in zip(each.bounds[1:], each.counts, strict=True):
        so_far += count
        curve.append((bound, so_far / total))
    return curve


def _share_tips(name: str, each: Histogram) -> list[str]:
    return [f"{name}: {share(got or 0.0)} within {seconds(bound)}" for bound, got in _cumulative(each)]


def _some(groups: Sequence[tuple[str, Histogram]]) -> list[tuple[str, Histogram]]:
    """At most CURVES of them, first and last included."""
    if len(groups) <= CURVES:
        return list(groups)
    return [groups[round(place * (len(groups) - 1) / (CURVES - 1))] for place in range(CURVES)]


def _ramp(place: int, count: int) -> str:
    return f"r{round(place * 7 / max(1, count - 1))}"


def _joined(
    points: Sequence[PointResult],
    at: Callable[[PointResult], Sequence[float]],
    pick: Callable[[PointResult], Sequence[float | None]],
) -> list[tuple[float, float | None]]:
    """One curve through all points, broken between them."""
    curve: list[tuple[float, float | None]] = []
    for point in points:
        curve += [(point.started_s + when, value) for when, value in zip(at(point), pick(point), strict=False)]
        curve.append((math.nan, None))
    return curve


def _any(curve: Sequence[tuple[float, float | None]]) -> bool:
    return any(value is not None for _, value in curve)


def _short(point: PointResult) -> str:
    if point.concurrency is not None:
        return f"{point.concurrency}"
    return named(point) if point.rate_per_s is None else f"{point.rate_per_s:g}/s"
