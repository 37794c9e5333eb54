from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
from tests.run_results import results
from tests.simulated_points import QUICK, simulated_point

from kilocard.bench import blocks, requests_log
from kilocard.bench.compare import Comparison, compare
from kilocard.bench.document import About, ClientSeen, Results, TargetSeen
from kilocard.bench.point import Point
from kilocard.bench.requests_log import Line
from kilocard.bench.summary import summarise
from kilocard.core.confidence import difference

TARGET = TargetSeen(url="http://a", model="m", engine_version="1")


@cache
def run(seed: int, slower: float = 1.0, repeats: int = 3, length: int = 50) -> tuple[Results, tuple[Line, ...]]:
    points: list[Point] = [
        simulated_point(
            QUICK, concurrency=c, repeat=r, seed=seed, slower=slower, output_tokens=(length - 10, length + 10),
            warmup_s=1.0, window_s=3.0 if repeats > 1 else 9.0,
        )
        for c in (4, 12)
        for r in range(repeats)
    ]  # fmt: skip
    lines = tuple(requests_log.read(requests_log.write(points), "requests.jsonl"))
    return results(points, target=TARGET, about=About()), lines


def of_repeats(a: int, b: int, slower: float = 1.0) -> Comparison:
    return compare(run(a)[0], run(b, slower)[0])


def of_blocks(a: int, b: int, slower: float = 1.0) -> Comparison:
    first, second = run(a, repeats=1), run(b, slower, repeats=1)
    return compare(first[0], second[0], requests=(first[1], second[1]))


@pytest.mark.parametrize("judge", [of_repeats, of_blocks])
def test_ten_percent_slower_is_seen(judge: Callable[..., Comparison]) -> None:
    seen = judge(1, 2, 1.12)
    assert seen.verdict == "slower"
    rows = {(row.concurrency, row.metric): row for row in seen.rows}
    throughput = rows[12, "output_tokens_per_s"]
    assert throughput.verdict == "slower"
    assert throughput.change == pytest.approx(-0.107, abs=0.03)
    assert throughput.low is not None and throughput.high is not None
    assert throughput.low < -0.107 + 0.03 and throughput.high < 0
    assert {row.verdict for row in seen.rows} <= {"slower", "noise", "unknown"}
    assert "B is slower in" in seen.says[0]


@pytest.mark.parametrize("seed", [1, 3, 5])
@pytest.mark.parametrize("judge", [of_repeats, of_blocks])
def test_a_server_compared_with_itself_is_noise(judge: Callable[..., Comparison], seed: int) -> None:
    seen = judge(seed, seed + 1)
    assert seen.verdict == "noise", [(row.load, row.metric, row.change, row.p_value, row.verdict) for row in seen.rows]
    assert not seen.regressions


def test_faster_is_faster() -> None:
    assert of_repeats(1, 2, 0.85).verdict == "faster"


def test_one_run_without_requests_is_shown_and_not_judged() -> None:
    seen = compare(run(1, repeats=1)[0], run(2, 1.5, repeats=1)[0])
    assert seen.verdict == "unknown"
    assert {row.by for row in seen.rows} == {"nothing"}
    assert "at least twice" in seen.says[0]


def test_bn_07_other_lengths_are_other_work_and_get_no_verdict() -> None:
    seen = compare(run(1)[0], run(2, length=100)[0])
    assert {row.verdict for row in seen.rows} == {"different work"}
    assert not seen.regressions
    assert any("50 and 100 tokens on average" in finding.text for finding in seen.findings)


def test_what_else_differs_is_said() -> None:
    a, b = run(1)[0], run(2)[0]
    other = results(
        [simulated_point(concurrency=4)], target=TargetSeen(url="http://b", engine_version="2"), about=About()
    )
    other.points[0].client = ClientSeen(cpu_share=1.0, lag_p99_s=0.5, limited="its CPU was busy")
    text = [finding.text for finding in compare(a, other).findings]
    assert "Not the same engine version: 1 and 2." in text
    assert "Only one of the two has numbers at 4 in flight, 12 in flight." in text
    assert any("B: the load tester was the limit at 4 in flight (its CPU was busy)" in each for each in text)
    assert compare(a, b).findings == []


def test_no_load_in_common() -> None:
    other = results([simulated_point(rate=10)], target=TARGET, about=About())
    seen = compare(run(1)[0], other)
    assert seen.rows == [] and seen.verdict == "unknown"
    assert any(finding.severity == "error" for finding in seen.findings)


def test_p_values_are_adjusted_for_the_number_of_rows() -> None:
    """Holm: the smallest times the number of rows, the next times one fewer, and never less than the one before."""
    a, b = run(1)[0], run(2, 1.02)[0]
    raw = {}
    for concurrency in (4, 12):
        values = [[p.output_tokens_per_s for p in side.points if p.concurrency == concurrency] for side in (a, b)]
        raw[concurrency] = difference(*values).p_value or 0.0
    rows = compare(a, b).rows
    seen = {row.concurrency: row.p_value or 0.0 for row in rows if row.metric == "output_tokens_per_s"}
    smaller = min(raw, key=lambda concurrency: raw[concurrency])
    assert all(seen[concurrency] >= raw[concurrency] for concurrency in raw)
    assert seen[smaller] >= raw[smaller] * (len(rows) // 2)


def test_blocks_are_longer_than_what_depends_on_each_other() -> None:
    point = simulated_point(concurrency=4, window_s=9.0)  # answers of about 0.2 s
    cut = blocks.cut(point.records, point.carried, point.started_s, 9.0)
    assert cut is not None
    assert 3 * 0.19 < cut.seconds < 3 * 0.25
    assert sum(cut.tokens) / 9.0 == pytest.approx(summarise(point).output_tokens_per_s)
    assert sum(map(len, cut.records)) == sum(record.error is None for record in point.records)
    assert blocks.cut(point.records, point.carried, point.started_s, 4.0) is None, "too few of them"
    assert blocks.cut([], [], 0.0, 9.0) is None


def test_a_prefix_cache_that_helped_one_is_other_work() -> None:
    a, b = copy.deepcopy(run(1)[0]), copy.deepcopy(run(2)[0])
    for document, share in ((a, 0.0), (b, 0.4)):
        for point in document.points:
            point.engine.prefix_hit_share = share
    seen = compare(a, b)
    assert {row.verdict for row in seen.rows} == {"different work"}
    assert any("prefix cache: 0% of the prompts' tokens" in finding.text for finding in seen.findings)


def failing(document: Results) -> Results:
    changed = copy.deepcopy(document)
    for point in changed.points:
        point.errors = point.requests // 10 + 1
    return changed


def test_a_gate_hears_of_failing_requests() -> None:
    fine = run(1)[0]
    worse = compare(fine, failing(fine)).worse
    assert worse == ["more of B's requests failed at 4 in flight, 12 in flight"]
    assert "nothing could be judged" in compare(failing(fine), fine).worse[0], "the work was not the same either way"


def test_a_gate_hears_of_loads_that_do_not_meet() -> None:
    other = copy.deepcopy(run(1)[0])
    for point in other.points:
        assert point.concurrency is not None
        point.concurrency += 1
    assert compare(run(1)[0], other).worse == ["nothing could be judged"]


def test_a_gate_passes_what_is_as_good() -> None:
    assert of_repeats(1, 3).worse == []
    assert of_repeats(1, 2, 1.12).worse[0].startswith("B is slower in")
