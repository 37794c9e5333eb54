from __future__ import annotations

from dataclasses import replace

import pytest
from tests.curves import closed_point
from tests.simulated_points import QUICK, simulated_point

from kilocard.bench.advice import advise
from kilocard.bench.document import EngineSeen, PointResult, Slo
from kilocard.bench.knee import find_knee
from kilocard.bench.limit import Limit, find_limit
from kilocard.bench.summary import summarise
from kilocard.perf.profile import Profile

LADDER = (1, 4, 8, 16, 32, 64)


def sweep(profile: Profile, slo: Slo | None = None) -> list[PointResult]:
    return [summarise(simulated_point(profile, concurrency=c, warmup_s=1.0, window_s=4.0), slo) for c in LADDER]


def limit_of(points: list[PointResult], max_num_seqs: int | None = None) -> Limit:
    return find_limit(points, find_knee(points), max_num_seqs)


@pytest.mark.parametrize("told", [None, 8])
def test_few_slots_and_free_memory_are_admission(told: int | None) -> None:
    points = sweep(replace(QUICK, max_num_seqs=8))
    limit = limit_of(points, told)
    assert limit.resource == "admission"
    assert "Never more than 8 requests ran while up to 5" in limit.evidence[0]
    assert "still grew" in limit.evidence[1]
    assert "Raise max-num-seqs from 8 to 16" in advise(points, find_knee(points), limit)[0]


def test_one_load_at_which_all_others_wait_is_enough() -> None:
    """The smaller ones were limited by the load tester; nobody saw whether more slots would help, and it says so."""
    waits = EngineSeen(running_max=8, waiting_max=24, kv_usage_max=0.1, preemptions=0)
    points = [closed_point(2, 60.0), closed_point(8, 214.0), closed_point(32, 228.0, engine=waits)]
    for point in points[:2]:
        point.client.limited = "it was late"
    limit = limit_of(points)
    assert limit.resource == "admission"
    assert "whether more would help is not seen" in advise(points, find_knee(points), limit)[0]


def test_a_full_kv_cache_is_memory_and_the_slots_are_what_fits() -> None:
    """2,000 tokens; a request holds 64 to 124, on average about 89 with its last block."""
    points = sweep(replace(QUICK, kv_tokens=2000, max_num_seqs=256))
    limit = limit_of(points)
    assert limit.resource == "memory"
    assert any("preempted" in each for each in limit.evidence)
    assert limit.best_max_num_seqs is not None and 14 <= limit.best_max_num_seqs <= 25
    assert f"Set max-num-seqs to {limit.best_max_num_seqs}" in advise(points, find_knee(points), limit)[0]


def test_memory_that_fills_suddenly_is_told_with_the_two_loads() -> None:
    kv = {4: 0.2, 8: 0.4, 16: 1.0, 32: 1.0}
    points = [
        closed_point(c, min(c, 8) * 10.0, engine=EngineSeen(running_max=min(c, 12), waiting_max=0, kv_usage_max=share))
        for c, share in kv.items()
    ]
    assert "It went from 40% at 8 to 100% at 16." in limit_of(points).evidence


def test_a_fall_past_a_full_cache_is_told_and_its_absence_too() -> None:
    def points(last: float) -> list[PointResult]:
        full = EngineSeen(running_max=20, waiting_max=9, kv_usage_max=1.0, preemptions=50)
        fits = EngineSeen(running_max=8, waiting_max=0, kv_usage_max=0.5, preemptions=0)
        return [
            closed_point(4, 400.0, engine=EngineSeen(running_max=4, waiting_max=0, kv_usage_max=0.25, preemptions=0)),
            closed_point(8, 800.0, engine=fits),
            closed_point(16, 900.0, engine=full),
            closed_point(32, last, engine=full),
        ]

    fell = limit_of(points(600.0))
    assert "Throughput fell from 900 output tokens/s at 16 to 600 at 32." in fell.evidence
    assert fell.best_max_num_seqs == 15, "8 running took half of it, and 95 % may be used"
    steady = limit_of(points(900.0))
    assert not steady.fell
    assert "throughput itself did not suffer" in advise(points(900.0), find_knee(points(900.0)), steady)[0]


def test_flat_with_memory_to_spare_is_compute() -> None:
    points = sweep(replace(QUICK, decode_seq_s=0.004, max_num_seqs=256))
    limit = limit_of(points)
    assert limit.resource == "compute"
    assert limit.best_max_num_seqs == find_knee(points).concurrency
    assert "More memory would not help" in advise(points, find_knee(points), limit)[-1]


def test_slots_that_no_longer_help_are_compute_and_stay() -> None:
    """The engine has 32 slots, but bends at about 4: raising them would not help, whatever waits."""
    limit = limit_of(sweep(replace(QUICK, decode_seq_s=0.02, max_num_seqs=32)))
    assert limit.resource == "compute"


def test_a_rising_curve_has_no_limit_yet() -> None:
    points = [closed_point(c, 10.0 * c) for c in (1, 2, 4)]
    limit = limit_of(points)
    assert (limit.resource, limit.evidence) == ("none", ("Throughput still grew at the largest load, 4 in flight.",))
    assert "Go higher" in advise(points, find_knee(points), limit)[0]


def test_one_load_shows_no_growth() -> None:
    limit = limit_of([closed_point(4, 10.0)])
    assert (limit.resource, limit.evidence) == ("none", ("One load, 4 in flight, does not show where the limit is.",))


def test_flat_without_gauges_is_unknown() -> None:
    limit = limit_of([closed_point(c, min(c, 4) * 10.0) for c in (1, 2, 4, 8, 16)])
    assert limit.resource == "unknown"
    assert "gauges were not seen" in limit.evidence[0]


def test_the_client_and_a_closed_door_come_first() -> None:
    points = [closed_point(c, min(c, 4) * 10.0) for c in (1, 2, 4, 8, 16)]
    points[-1].errors_by_kind = {"refused: 429": 300}
    assert limit_of(points).resource == "admission"
    points[-1].client.limited = "its CPU was busy for 98 %"
    assert limit_of(points).resource == "client"
    assert "at 16 in flight: its CPU was busy" in limit_of(points).evidence[0]
    assert limit_of([]).resource == "unknown"


def test_the_load_under_an_slo_is_told() -> None:
    slo = Slo(ttft_s=0.05)
    points = sweep(replace(QUICK, max_num_seqs=8), slo)
    said = advise(points, find_knee(points), limit_of(points), slo)[-1]
    assert "Under the SLO run at most 8 in flight" in said
    impossible = Slo(ttft_s=1e-6)
    points = sweep(replace(QUICK, max_num_seqs=8), impossible)
    assert "No measured load met the SLO" in advise(points, find_knee(points), limit_of(points), impossible)[-1]
