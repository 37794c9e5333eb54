from __future__ import annotations

import pytest
from tests.simulated_points import record, simulated_point

from kilocard.bench.summary import summarise


@pytest.mark.parametrize(("rate", "label"), [(60, "stable"), (140, "stable"), (200, "overloaded"), (300, "overloaded")])
def test_a_server_of_160_requests_a_second(rate: float, label: str) -> None:
    seen = summarise(simulated_point(rate=rate))
    assert seen.saturation is not None
    assert seen.saturation.label == label, seen.saturation.reason


def test_overload_keeps_its_unfinished_requests_in_sight() -> None:
    seen = summarise(simulated_point(rate=300))
    assert seen.cut_off > 1000
    assert seen.offered_per_s == pytest.approx(300, rel=0.05)
    assert seen.requests_per_s == pytest.approx(160, rel=0.05)
    assert seen.ttft_s is not None and "p99" in seen.ttft_s.at_least


def test_a_window_shorter_than_the_answers_says_nothing() -> None:
    seen = summarise(simulated_point(rate=60, warmup_s=0.0, window_s=0.5))
    assert seen.saturation is not None and seen.saturation.label == "unknown"


def test_a_closed_loop_has_no_label() -> None:
    assert summarise(simulated_point(concurrency=4)).saturation is None


def test_bn_06_a_stall_of_ten_seconds_is_in_every_percentile_that_it_hit() -> None:
    """10 requests a second for 60 s; from second 20 to 30 the server answers nobody."""
    point = simulated_point(rate=10, window_s=1.0)
    point.started_s, point.ended_s, point.carried, point.samples = 0.0, 60.0, [], []
    point.records = []
    for number in range(600):
        at = number / 10
        stalled = 30.0 - at if 20.0 <= at < 30.0 else 0.0
        sent = record(at, ttft=0.05 + stalled, gap=0.01)
        sent.sent_s = at + stalled  # a blocked client sends late; the intended time stays
        point.records.append(sent)
    seen = summarise(point)
    assert seen.ttft_s is not None
    assert sum(r.ttft_s is not None and r.ttft_s > 0.1 for r in point.records) == 100
    assert seen.ttft_s.p95 > 6.0
    assert seen.ttft_s.p99 > 9.0
