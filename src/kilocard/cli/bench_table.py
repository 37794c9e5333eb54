"""Results of a load test on the terminal: a table of points, then the answer in words."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kilocard.bench.caveats import in_order
from kilocard.bench.document import PointResult, Results, Spread
from kilocard.bench.request_words import request_words
from kilocard.bench.units import count, milliseconds, number, share
from kilocard.cli.output import results as console

_NAMES = (
    "requests", "failed", "req/s", "tok/s", "TTFT p50", "p95", "p99", "TPOT p50", "p95", "ITL p99", "e2e p95", "run",
    "wait", "KV", "preempt",
)  # fmt: skip
#: places of the columns that a narrow terminal can do without; a bare "p95" stays behind the p50 that names it
_LEFT_OUT_FIRST = (9, 7, 15, 1, 10, 12, 3, 11, 14, 13)
STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def show(results: Results, out: Console = console) -> None:
    """The whole answer."""
    target = results.target
    engine = " ".join(part for part in (target.engine, target.engine_version) if part)
    out.print(Text(" · ".join(part for part in (target.model, engine, target.url) if part), style="bold"))
    asked = request_words(results.about.request)
    if asked:
        out.print(Text(f"Each request: {asked}", style="dim"))
    if results.points:
        table, less = points_table(results, out.width)
        out.print(table)
        out.print(Text(_legend(results) + (" A wider terminal shows more columns." if less else ""), style="dim"))
    for line in answer(results):
        out.print(line)


def points_table(results: Results, width: int = 1000) -> tuple[Table, bool]:
    """And whether columns were left out, since the terminal has only `width`."""
    closed = any(point.concurrency is not None for point in results.points)
    names = ["in flight" if closed else "offered/s", *_NAMES]
    if results.slo is not None:
        names.append("good/s")
    names.append("")
    rows = [_row(point, results, len(names)) for point in sorted(results.points, key=in_order)]
    kept = list(range(len(names)))
    wanted = list(_LEFT_OUT_FIRST)
    lines = [names, *(cells for cells, _ in rows)]
    while wanted and _width([[cells[place] for place in kept] for cells in lines]) > width:
        kept.remove(wanted.pop(0))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1))
    for place in kept:
        table.add_column(names[place], justify="left" if place == 0 else "right", no_wrap=True)
    for cells, style in rows:
        table.add_row(*(cells[place] for place in kept), style=style)
    return table, len(kept) < len(names)


def _row(point: PointResult, results: Results, columns: int) -> tuple[list[str], str]:
    """Its cells, and its style."""
    if point.client.limited:
        load = point.concurrency if point.concurrency is not None else point.rate_per_s
        name = "trace" if load is None else f"{load:g}"
        failed = f"{point.errors:,}" if point.errors else ""
        return [name, f"{point.requests:,}", failed, *[""] * (columns - 4), "client limit"], "red"
    at_knee = results.knee.reached and (point.concurrency, point.rate_per_s) == (
        results.knee.concurrency,
        results.knee.rate_per_s,
    )
    return [*_cells(point, results.slo is not None), _state(point, at_knee)], "bold" if at_knee else ""


def _width(rows: list[list[str]]) -> int:
    """Of the table: each column as wide as its widest cell, two spaces between and one behind."""
    return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 1


def answer(results: Results) -> list[Text]:
    """Knee, limit, advice, findings; a line each."""
    lines = [Text.assemble(("Knee   ", "bold"), results.knee.says)]
    if results.knee.confidence:
        lines.append(Text(f"       {results.knee.confidence}.", style="dim"))
    evidence = [each for each in results.limit_evidence if each != results.knee.says]
    lines.append(Text.assemble(("Limit  ", "bold"), (results.limit, "bold"), "  ", " ".join(evidence)))
    lines += [
        Text.assemble(("     → ", "green"), sentence) for sentence in results.advice if sentence != results.knee.says
    ]
    if results.stopped_early:
        lines.append(Text(f"Stopped early: {results.stopped_early}.", style="dim"))
    for severity, style in STYLES.items():
        lines += [
            Text(f"{severity}: {finding.text}", style=style)
            for finding in results.findings
            if finding.severity == severity
        ]
    return lines


def _cells(point: PointResult, with_goodput: bool) -> list[str]:
    load = point.concurrency if point.concurrency is not None else point.rate_per_s
    engine = point.engine
    cells = [
        "trace" if load is None else f"{load:g}",
        f"{point.requests:,}",
        f"{point.errors:,}" if point.errors else "",
        number(point.requests_per_s),
        number(point.output_tokens_per_s),
        *(_shown(point.ttft_s, name) for name in ("p50", "p95", "p99")),
        *(_shown(point.tpot_s, name) for name in ("p50", "p95")),
        _shown(point.itl_s, "p99"),
        _shown(point.e2e_s, "p95"),
        count(engine.running_max),
        count(engine.waiting_max),
        "–" if engine.kv_usage_max is None else share(engine.kv_usage_max),
        count(engine.preemptions),
    ]
    if with_goodput:
        cells.append("–" if point.goodput is None else number(point.goodput.requests_per_s))
    return cells


def _state(point: PointResult, at_knee: bool) -> str:
    label = point.saturation.label if point.saturation is not None else ""
    return "◀ knee" if at_knee else "" if label == "stable" else label


def _legend(results: Results) -> str:
    spreads = [s for p in results.points for s in (p.ttft_s, p.tpot_s, p.itl_s, p.e2e_s) if s is not None]
    parts = ["Times in milliseconds"]
    if any(spread.few for spread in spreads):
        parts.append("~ of too few values")
    if any(spread.at_least for spread in spreads):
        parts.append("≥ at least, since requests were cut off")
    if any(point.withheld for point in results.points):
        parts.append("– not given, see below")
    return "; ".join(parts) + "."


def _shown(spread: Spread | None, name: str) -> str:
    if spread is None:
        return "–"
    mark = "≥" if name in spread.at_least else "~" if name in spread.few else ""
    return mark + milliseconds(getattr(spread, name))
