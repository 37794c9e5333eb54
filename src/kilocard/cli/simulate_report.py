"""A simulation as one HTML file: the table, the distributions, the cluster over time; one curve for each policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from kilocard.bench.report.chart import Chart, Line, draw
from kilocard.bench.report.page import page
from kilocard.bench.report.scale import Axis, between, from_zero, logarithmic
from kilocard.bench.units import number, plain, seconds, share
from kilocard.cli.simulate_page import COLUMNS, doubts, row, told

Document = Mapping[str, Any]

#: of report.css; more policies than these begin again, dashed
STYLES = ("c0", "c1", "c2", "c3", "c4", "c5")
#: pixels for a policy's name at the end of its curve
NAMES = 124
_LATENCIES = (("ttft_s", "Time to first token"), ("tpot_s", "Time per output token"), ("e2e_s", "End to end"))
_OVER_TIME: tuple[tuple[str, Callable[[Document], float], Callable[[float], str]], ...] = (
    ("Requests that run", lambda m: float(m["running"]), plain),
    ("Requests that wait, in engines and gateways", lambda m: float(m["waiting"] + m["held"]), plain),
    ("Replicas that hold GPUs", lambda m: float(m["there"]), plain),
    ("KV cache in use, mean of the replicas", lambda m: float(m["kv_mean"]), share),
    ("Requests on the busiest replica", lambda m: float(m["most"]), plain),
    ("Spread over replicas (standard deviation over mean)", lambda m: float(m["spread"]), number),
)


def report_html(document: Document) -> str:
    """Of the document that `--json` prints. Needs nothing else: no script, font or image from elsewhere."""
    runs = document["policies"]
    under = f"{document['cluster']} · seed {document['seed']} · {document['wall_seconds']:.1f} s of computing"
    parts = [
        f"<h1>Simulation of {document['replicas']:,} replicas</h1><p class=under>{escape(under)}</p>",
        "".join(f"<p>{escape(line)}</p>" for line in told(document)),
        *(
            f'<p class="finding warning">{escape(f"{name}: {line}")}</p>'
            for name, found in runs.items()
            for line in doubts(found)
        ),
        _table(runs),
        _section("Latencies", [chart for key, title in _LATENCIES if (chart := _latency(runs, key, title))]),
        _section("Over time", [_over_time(document, title, pick, text) for title, pick, text in _OVER_TIME]),
        "<h2>What was simulated</h2>",
        _pools(document),
    ]
    return page("Simulation", parts)


def _style(place: int) -> str:
    return STYLES[place % len(STYLES)] + (" dashed" if place >= len(STYLES) else "")


def _section(title: str, charts: Sequence[Chart]) -> str:
    return f'<h2>{title}</h2><div class="grid">{"".join(f"<div>{draw(chart)}</div>" for chart in charts)}</div>'


def _table(runs: Document) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in (name, *row(found)))}</tr>"
        for name, found in runs.items()
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _latency(runs: Document, key: str, title: str) -> Chart | None:
    curves = {name: found["curves"][key] for name, found in runs.items() if found["curves"][key]}
    if not curves:
        return None
    percent = Axis("share of completed requests", 0.0, 1.0, ticks=(0, 0.25, 0.5, 0.75, 0.95, 1.0), text=share)
    lines = [
        Line(
            name,
            [(value, part) for part, value in curve],
            _style(place),
            tips=[f"{name}: {share(part)} within {seconds(value)}" for part, value in curve],
        )
        for place, (name, curve) in enumerate(curves.items())
    ]
    return Chart(
        title, logarithmic("", [value for curve in curves.values() for _, value in curve]), percent, lines, right=NAMES
    )


def _over_time(
    document: Document, title: str, pick: Callable[[Document], float], text: Callable[[float], str]
) -> Chart:
    """While requests come: what follows is the last few that run out."""
    last = document["workload"]["span_s"]
    lines = []
    for place, (name, found) in enumerate(document["policies"].items()):
        points = [(moment["at_s"], pick(moment)) for moment in found["over_time"] if moment["at_s"] <= last]
        lines.append(Line(name, points, _style(place) + " thin"))
    ends = [at for line in lines for at, _ in line.points]
    values = [value for line in lines for _, value in line.points if value is not None]
    x = between("seconds", 0.0, max(ends, default=1.0) or 1.0, lambda value: f"{value:g}")
    return Chart(title, x, from_zero("", values, text), lines, right=NAMES)


def _pools(document: Document) -> str:
    rows = [(name, f"{pool['replicas']} × {pool['speed']}") for name, pool in document["pools"].items()]
    signals = document["signals"]
    rows.append(("gateways", str(document["gateways"])))
    rows.append(
        ("signals", f"read every {seconds(signals['scrape_s'])} ± {share(signals['jitter'])}, "
                    f"{seconds(signals['delay_s'])} old, {seconds(signals['hop_s'])} to an engine")
    )  # fmt: skip
    rows += [("fault", fault) for fault in document["faults"]]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    return f"<dl>{listed}</dl>"
