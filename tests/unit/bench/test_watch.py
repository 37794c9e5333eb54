"""When does the load tester say that its own numbers can't be trusted?"""

from __future__ import annotations

import math
from array import array
from typing import Any

import pytest

from kilocard.bench.point import ClientHealth
from kilocard.bench.record import RequestRecord
from kilocard.bench.watch import FINE_S, Falsified, Watch, falsified, judge, percentile

FINE: dict[str, Any] = {"cpu_share": 0.5, "late_mean_s": 0.0005, "blur_p999_s": 0.0, "starved_share": 0.05}
BOUND = Falsified(mean_s=0.002, tail_s=0.02, blur_s=0.001)


@pytest.mark.parametrize(
    ("change", "unsent", "said"),
    [
        ({}, 0, None),
        ({"cpu_share": 0.95}, 0, "used 95% of its core"),
        ({"late_mean_s": 0.0019}, 0, None),
        ({"late_mean_s": 0.0021}, 0, "acted 2.1 ms late on average"),
        ({"late_p99_s": 0.019}, 0, None),
        ({"late_p99_s": 0.021}, 0, "21.0 ms at p99"),
        ({"late_mean_s": 0.0021, "starved_share": 0.4}, 0, "waited for a processor 40% of the time"),
        ({"late_p99_s": 0.019, "starved_share": 0.9}, 0, None),  # it waited, and it did no harm
        ({"blur_p999_s": 0.002}, 0, "uncertain by 2.0 ms"),
        ({}, 3, "3 requests could not be sent"),
    ],
)
def test_what_limits_the_client(change: dict[str, Any], unsent: int, said: str | None) -> None:
    limited = judge(ClientHealth(**{**FINE, **change}), unsent, BOUND)
    assert limited is None if said is None else said in (limited or "")


def test_percentile_of_few_values_among_many_zeros() -> None:
    assert percentile([], 0, 0.99) == 0.0
    assert percentile([5.0], 1000, 0.99) == 0.0
    assert percentile([5.0, 7.0, 6.0], 200, 0.99) == 6.0
    assert percentile([3.0, 1.0, 2.0], 3, 0.99) == 3.0
    assert percentile([5.0, 7.0], 1000, 0.999) == 7.0


def test_only_events_that_shared_a_read_are_blurred_with_kernel_stamps() -> None:
    watch = Watch()
    watch.arrived(1, 0.0, 0.004)
    watch.arrived(3, 0.0, 0.004)
    assert (watch.arrivals, list(watch.blur)) == (4, [0.004, 0.004])


def test_without_kernel_stamps_every_event_is() -> None:
    watch = Watch()
    watch.arrived(1, 0.002, 0.002)
    watch.arrived(2, 0.001, 0.001)
    assert list(watch.blur) == [0.002, 0.001, 0.001]


def test_events_that_met_while_the_client_woke_up_count_too() -> None:
    """Asleep it can't know how long they lay there; the heartbeats say how late it wakes up."""
    watch = Watch()
    watch.beats.extend([0.004] * 100)
    for _ in range(10):
        watch.arrived(2, 0.0, 0.0)
    assert watch.health(0.0, [], open_loop=True).blur_p999_s == 0.004
    alone = Watch()
    alone.beats.extend([0.004] * 100)
    alone.arrived(1, 0.0, 0.0)
    assert alone.health(0.0, [], open_loop=True).blur_p999_s == 0.0


def test_lateness_is_held_against_what_it_falsifies() -> None:
    """A late send stands in an open loop's TTFT; in a closed loop it only keeps a slot empty for a while."""
    record = RequestRecord(0.0, 0.0, 1, 2, first_s=0.2, last_s=1.0, done_s=1.0, gaps_s=array("d", [0.8]))
    assert falsified([record], open_loop=True) == pytest.approx((0.01, 0.02, 0.04))
    assert falsified([record], open_loop=False) == pytest.approx((0.02, math.inf, 0.04))


def test_no_bound_is_finer_than_a_millisecond() -> None:
    at_once = RequestRecord(0.0, 0.0, 1, 2, first_s=1e-6, last_s=2e-6, done_s=2e-6, gaps_s=array("d", [1e-6]))
    assert falsified([at_once], open_loop=True) == (FINE_S, FINE_S, FINE_S)


@pytest.mark.parametrize("open_loop", [True, False])
def test_where_nothing_was_answered_there_is_nothing_to_falsify(open_loop: bool) -> None:
    """Slots of a server that refuses all rest and wake up late: not the client but the refusals are to be told."""
    refused = RequestRecord(0.0, 0.0, 1, 2, error="no tokens")
    assert set(falsified([refused] * 20, open_loop=open_loop)) == {math.inf}


def test_heartbeats_tell_where_nothing_was_sent() -> None:
    watch = Watch()
    watch.beats.extend([0.004] * 100)
    assert watch.health(0.0, [], open_loop=True).late_mean_s == pytest.approx(0.004)
    watch.late.append(0.0001)
    assert watch.health(0.0, [], open_loop=True).late_mean_s == pytest.approx(0.0001)


def test_one_wrong_time_among_a_few_hundred_is_no_verdict() -> None:
    """A short point has 200 arrivals: their 99.9th percentile is the worst one, and moves neither p95 nor p99."""
    watch = Watch()
    watch.beats.extend([0.004] * 100)
    for _ in range(200):
        watch.arrived(1, 0.0, 0.0)
    watch.arrived(2, 0.0, 0.009)
    assert watch.health(0.0, [], open_loop=True).blur_p999_s == 0.0
    watch.arrived(2, 0.0, 0.009)
    assert watch.health(0.0, [], open_loop=True).blur_p999_s == 0.009
