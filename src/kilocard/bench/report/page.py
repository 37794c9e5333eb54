"""The page: words and table around the charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from importlib.resources import files

from kilocard.bench.caveats import in_order
from kilocard.bench.document import PointResult, Results, Spread
from kilocard.bench.report import charts
from kilocard.bench.report.chart import Chart, draw
from kilocard.bench.request_words import request_words
from kilocard.bench.results import named
from kilocard.bench.units import count, milliseconds, number, seconds, share

LIMITS = {
    "memory": "KV cache memory",
    "compute": "compute",
    "admission": "admission",
    "client": "the load tester",
    "none": "not reached",
    "unknown": "not known",
}


def report_html(results: Results) -> str:
    """One file that needs nothing else: no script, font or image from elsewhere."""
    model = results.target.model or "a model"
    title = f"Load test of {model}"
    engine = " ".join(part for part in (results.target.engine, results.target.engine_version) if part)
    under = " · ".join(part for part in (engine, results.target.url, results.about.started_at) if part)
    asked = request_words(results.about.request)
    under = f"{escape(under)}<br>Each request: {escape(asked)}" if asked else escape(under)
    parts = [
        f"<h1>{escape(title)}</h1><p class=under>{under}</p>",
        cards(results),
        _answer(results),
        _findings(results, ("error", "warning")),
        _section("Against load", charts.against_load(results)),
        _section("Distributions", charts.distributions(results)),
        _section("Over time", charts.over_time(results), wide=True),
        "<h2>All points</h2>",
        table(results),
        _findings(results, ("note",)),
        "<h2>How it was measured</h2>",
        _how(results),
    ]
    return page(title, parts)


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML document."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_text('report.css')}</style></head><body>"
        f"{''.join(parts)}<script>{_text('report.js')}</script></body></html>\n"
    )


@cache
def _text(name: str) -> str:
    return files("kilocard.bench.report").joinpath(name).read_text(encoding="utf-8")


def cards(results: Results) -> str:
    knee = results.knee
    if knee.concurrency is not None:
        at, unit = f"{knee.concurrency}", "requests in flight"
    elif knee.rate_per_s is not None:
        at, unit = f"{knee.rate_per_s:g}", "requests/s held"
    else:
        at, unit = ("below", "the lowest load") if knee.reached else ("–", "not reached: go higher")
    made = [_card("Knee", at, unit)]
    trusted = [point for point in results.points if not point.client.limited]
    best = max(trusted, key=lambda point: point.output_tokens_per_s, default=None)
    if best is not None:
        made.append(_card("Best throughput", number(best.output_tokens_per_s), f"output tokens/s, {named(best)}"))
    made.append(_card("Limit", LIMITS[results.limit], "what ended the growth"))
    if results.best_max_num_seqs is not None:
        made.append(_card("Best max-num-seqs", str(results.best_max_num_seqs), "sequence slots of the engine"))
    single = next((point for point in trusted if point.concurrency == 1), None)
    if single is not None and single.ttft_s is not None and single.tpot_s is not None:
        speed = f"then {seconds(single.tpot_s.p50)} a token (medians)"
        made.append(_card("One request alone", seconds(single.ttft_s.p50), f"to the first token, {speed}"))
    return f'<div class="cards">{"".join(made)}</div>'


def _card(what: str, value: str, unit: str) -> str:
    return f'<div class="card"><span class="what">{what}</span><b>{escape(value)}</b><span>{escape(unit)}</span></div>'


def _answer(results: Results) -> str:
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in results.advice)
    evidence = " ".join([results.knee.says, results.knee.confidence and results.knee.confidence + ".", *(
        each for each in results.limit_evidence if each != results.knee.says
    )])  # fmt: skip
    stopped = f" The sweep stopped early: {results.stopped_early}." if results.stopped_early else ""
    return f'<ul class="advice">{said}</ul><p class="evidence">{escape(evidence + stopped)}</p>'


def _findings(results: Results, severities: tuple[str, ...]) -> str:
    return "".join(
        f'<p class="finding {finding.severity}">{escape(finding.text)}</p>'
        for severity in severities
        for finding in results.findings
        if finding.severity == severity
    )


def _section(title: str, drawn: Sequence[Chart], *, wide: bool = False) -> str:
    if not drawn:
        return ""
    inside = "".join(f'<div class="{"wide" if wide else ""}">{draw(chart)}</div>' for chart in drawn)
    return f'<h2>{title}</h2><div class="grid">{inside}</div>'


#: (group, its columns)
HEADS = (
    ("", ("requests", "failed", "per s")), ("output", ("tokens/s",)), ("in flight", ("mean",)),
    ("TTFT, ms", ("p50", "p95", "p99")), ("TPOT, ms", ("p50", "p95")), ("ITL, ms", ("p50", "p99")),
    ("end to end, s", ("p50", "p95")), ("engine", ("running", "waiting", "KV", "preempt")),
)  # fmt: skip
GOODPUT = ("good", ("per s", "share"))


def table(results: Results) -> str:
    groups = [*HEADS, *([GOODPUT] if results.slo else [])]
    unit = "in flight" if any(point.concurrency is not None for point in results.points) else "offered/s"
    above = "".join(f'<th colspan="{len(columns)}">{name}</th>' for name, columns in groups)
    below = "".join(f"<th>{column}</th>" for _, columns in groups for column in columns)
    columns = sum(len(below) for _, below in groups)
    body = []
    for point in sorted(results.points, key=in_order):
        knee = point.concurrency == results.knee.concurrency and point.rate_per_s == results.knee.rate_per_s
        cells = "".join(f"<td>{cell}</td>" for cell in _cells(point, results.slo is not None))
        if point.client.limited:
            why = '<span class="bad">the load tester was the limit</span>'
            cells = f"<td>{_cells(point, False)[0]}</td><td>{point.requests:,}</td><td>{point.errors:,}</td>"
            cells += f'<td class="not" colspan="{columns - 2}">{why}</td>'
        body.append(f"<tr{' class=knee' if knee and results.knee.reached else ''}>{cells}</tr>")
    notes = "~ of too few values (p99 of fewer than 100, p95 of fewer than 20); ≥ at least: requests that were cut off "
    notes += "may have taken longer; – not given (why is said above) or not seen; the bold rows are the knee."
    head = f'<tr class="above"><th></th>{above}</tr><tr><th>{unit}</th>{below}</tr>'
    inside = f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"
    return f'<div class="scroll">{inside}</div><p class="foot">{notes}</p>'


def _cells(point: PointResult, with_goodput: bool) -> list[str]:
    label = point.saturation.label if point.saturation is not None else ""
    load = point.concurrency if point.concurrency is not None else point.rate_per_s
    name = "trace" if load is None else f"{load:g}"
    name += f" <small>repeat {point.repeat + 1}</small>" if point.repeat else ""
    name += f" <small>{label}</small>" if label and label != "stable" else ""
    engine = point.engine
    cells = [
        name, f"{point.requests:,}", f'<span class="bad">{point.errors:,}</span>' if point.errors else "0",
        number(point.requests_per_s), number(point.output_tokens_per_s), number(point.in_flight_mean),
        at(point.ttft_s, "p50"), at(point.ttft_s, "p95"), at(point.ttft_s, "p99"),
        at(point.tpot_s, "p50"), at(point.tpot_s, "p95"), at(point.itl_s, "p50"), at(point.itl_s, "p99"),
        at(point.e2e_s, "p50", number), at(point.e2e_s, "p95", number),
        count(engine.running_max), count(engine.waiting_max),
        "–" if engine.kv_usage_max is None else share(engine.kv_usage_max), count(engine.preemptions),
    ]  # fmt: skip
    if with_goodput:
        good = point.goodput
        cells.append("–" if good is None else number(good.requests_per_s))
        cells.append("–" if good is None or good.share is None else share(good.share))
    return cells


def at(spread: Spread | None, name: str, text: Callable[[float], str] = milliseconds) -> str:
    """A percentile with its marks: ~ of too few values, ≥ a lower bound."""
    if spread is None:
        return "–"
    mark = "≥ " if name in spread.at_least else "~" if name in spread.few else ""
    return mark + text(getattr(spread, name))


DEFINITIONS = (
    "TTFT is the first token minus the moment the request should have been sent; end to end is the last token minus "
    "that moment. TPOT is (end to end − TTFT) / (output tokens − 1), tokens by the server's own count. ITL is each gap "
    "between two arrivals, and an arrival may carry several tokens. Throughput is what was delivered within the "
    "window, divided by its wall time; warm-up is in no number. Percentiles over requests that were cut off are "
    "Kaplan–Meier's estimate."
)


def _how(results: Results) -> str:
    about, target = results.about, results.target
    rows = [("kilocard", about.kilocard), ("load tester's machine", about.machine), ("prompts", about.prompts)]
    rows.append(("seed", "" if about.seed is None else str(about.seed)))
    rows.append(("address", target.url + target.path))
    rows.append(("max-num-seqs", "" if target.max_num_seqs is None else str(target.max_num_seqs)))
    rows.append(("KV cache", "" if target.kv_tokens is None else f"{target.kv_tokens:,} tokens"))
    rows += [("SLO", _slo(results)), ("knee", results.knee.method)]
    if results.points:
        lags = max(point.client.lag_p99_s for point in results.points)
        rows.append(("load tester", f"its timers were late by {seconds(lags)} at most (p99 of the worst point)"))
    rows += [("note", note) for note in about.notes]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows if value)
    arguments = " ".join(
        f"--{name.replace('_', '-')} {value}" for name, value in about.arguments.items() if value is not None
    )
    command = f"<p><code>{escape('kilocard bench ' + arguments)}</code></p>" if arguments else ""
    return f"<dl>{listed}</dl>{command}<p class=foot>{DEFINITIONS}</p>"


def _slo(results: Results) -> str:
    slo = results.slo
    if slo is None:
        return ""
    bounds = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("end to end", slo.e2e_s))
    return ", ".join(f"{name} ≤ {seconds(bound)}" for name, bound in bounds if bound is not None)
