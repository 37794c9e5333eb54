from __future__ import annotations

import math
import re
from functools import cache
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run_results import results
from tests.simulated_points import simulated_point

from kilocard.bench.compare import compare
from kilocard.bench.document import About, ClientSeen, Results, Slo, TargetSeen
from kilocard.bench.report.chart import APART, Chart, Line, draw
from kilocard.bench.report.compare_page import compare_html, forest
from kilocard.bench.report.page import report_html
from kilocard.bench.report.scale import between, from_zero, loads, logarithmic
from kilocard.bench.results import assemble
from kilocard.bench.units import brief, milliseconds, number, plain, seconds, share

VOID = {"meta"}  # path and rect close themselves
NASTY = '<script>alert("1")</script>&'


class Balanced(HTMLParser):
    """Every tag that opens also closes, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"


def read(page: str) -> Balanced:
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


@cache
def closed(seed: int = 0) -> Results:
    points = [
        simulated_point(concurrency=c, repeat=r, seed=seed, warmup_s=0.5, window_s=2.0)
        for c in (1, 8, 64, 128)
        for r in (0, 1)
    ]
    target, about = TargetSeen(url="http://x", model=NASTY), About(notes=[NASTY])
    return results(points, target=target, about=about, slo=Slo(ttft_s=0.1))


def test_the_page_is_whole_asks_for_nothing_and_runs_nobody_s_words() -> None:
    page = report_html(closed())
    parser = read(page)
    assert parser.links == [], "self-contained"
    assert not re.search(r"https?://(?!x)", page.split("</style>")[1].split("<script>")[0])
    assert parser.seen.count("script") == 1, "only our own"
    assert "&lt;script&gt;alert" in page


def test_it_shows_curves_distributions_time_table_and_answer() -> None:
    page = report_html(closed())
    for text in (
        "Throughput",
        "Time to first token",
        "Gaps between tokens",
        "KV cache",
        "Output tokens/s",
        "All points",
    ):
        assert text in page
    assert 'class="mark"' in page and "knee 64" in page
    assert page.count("<tr class=knee>") == 2, "both repeats"
    assert "nan" not in page and "None" not in page


def test_an_open_loop_and_a_trace_and_a_failure_have_their_pages() -> None:
    about, target = About(), TargetSeen(url="http://x")
    swept = results(
        [simulated_point(rate=r, warmup_s=0.5, window_s=3.0) for r in (40, 300)], target=target, about=about
    )
    page = report_html(swept)
    read(page)
    assert "Answered against offered" in page and "overloaded" in page
    trace = simulated_point(rate=40, warmup_s=0.5, window_s=3.0)
    trace.rate_per_s = None
    read(report_html(results([trace], target=target, about=about)))
    failed = simulated_point(concurrency=2, warmup_s=0.5, window_s=1.0)
    for record in failed.records:
        record.error, record.first_s = "reset", None
    page = report_html(results([failed], target=target, about=about))
    read(page)
    assert "requests failed" in page
    read(report_html(results([], target=target, about=about)))


def test_numbers_that_are_the_client_s_are_called_that() -> None:
    document = closed(5)
    document.points[-1].client = ClientSeen(cpu_share=1.0, lag_p99_s=0.5, limited="its CPU was busy")
    page = report_html(assemble(document.points, target=document.target, about=document.about))
    assert 'class="finding error"' in page


def test_a_comparison_has_both_curves_and_every_interval() -> None:
    comparison = compare(closed(), closed(1))
    page = compare_html(comparison, closed(), closed(1))
    parser = read(page)
    with_interval = [row for row in comparison.rows if row.low is not None]
    assert forest(comparison.rows).count("<circle") == len(with_interval) > 10
    assert parser.seen.count("figure") == 5
    assert "No row has an interval" in forest([])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12), st.integers(2, 9))
def test_curves_stay_inside_and_names_stay_apart(heights: list[float], curves: int) -> None:
    axis = loads("n", list(range(1, len(heights) + 1)), log=False)
    lines = [
        Line(f"curve {place}", [(at + 1, height * place / curves) for at, height in enumerate(heights)], "c0")
        for place in range(curves)
    ]
    drawn = draw(Chart("t", axis, from_zero("", heights), lines))
    read(drawn)
    places = [float(y) for y in re.findall(r'class="name[^>]* y="([-\d.]+)"', drawn)]
    assert len(places) == curves
    assert all(b - a >= APART - 0.2 for a, b in zip(sorted(places), sorted(places)[1:], strict=False))
    for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", "".join(re.findall(r'class="line c0" d="([^"]*)"', drawn))):
        assert 0 <= float(x) <= 560 and 0 <= float(y) <= 300


@given(st.lists(st.floats(1e-6, 1e5), min_size=1, max_size=20))
def test_axes_hold_their_values_and_have_few_ticks_in_order(values: list[float]) -> None:
    for axis in (from_zero("", values), logarithmic("", values), between("", 0.0, max(values))):
        assert all(0 <= axis.place(value) <= 1 for value in values)
        assert len(axis.ticks) <= 9
        assert list(axis.ticks) == sorted(set(axis.ticks))
        assert all(math.isfinite(tick) for tick in axis.ticks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (seconds(0.00085), "0.85 ms"), (seconds(0.0123), "12.3 ms"), (seconds(0.459), "459 ms"),
        (seconds(1.05), "1.05 s"),
        (seconds(651.5), "652 s"), (seconds(0), "0"), (seconds(0.99999), "1.00 s"), (brief(0.005), "5 ms"),
        (brief(1.5), "1.5 s"), (number(2230.4), "2,230"), (number(17.37), "17.4"), (number(0.0123), "0.012"),
        (plain(50.0), "50"), (plain(1000.0), "1,000"), (share(0.974), "97 %"), (share(0.004), "0.4 %"),
        (milliseconds(0.00466), "4.66"), (milliseconds(12.3), "12,300"),
    ],
)  # fmt: skip
def test_numbers_as_people_read_them(text: str, expected: str) -> None:
    assert text == expected
