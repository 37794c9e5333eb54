from __future__ import annotations

from tests.curves import CPU_VLLM, QWEN_H100, closed_point, flat_spread, open_point

from kilocard.bench.document import Saturation
from kilocard.bench.knee import find_knee
from kilocard.bench.stop import stop_early


def test_the_cpu_sweep_knee_is_max_num_seqs_and_repeats_agree() -> None:
    points = [closed_point(c, got, repeat=r) for c, pair in CPU_VLLM.items() for r, got in enumerate(pair)]
    knee = find_knee(points)
    assert knee.concurrency == 8
    assert knee.between == [4, 12]
    assert knee.agreement is not None and knee.agreement >= 0.7
    assert "resamples of the 2 repeats" in knee.confidence
    assert "8 in flight: 146 output tokens/s" in knee.says


def test_qwen3_14b_on_an_h100_bends_between_12_and_17_4_requests_a_second() -> None:
    knee = find_knee([open_point(offered, got) for offered, got in QWEN_H100.items()])
    assert knee.reached
    assert knee.rate_per_s == 12
    assert knee.between == [12, 17.46]
    assert knee.capacity == 17.46
    assert knee.output_tokens_per_s is not None and knee.output_tokens_per_s < 2230


def test_a_curve_that_never_bends_is_not_given_a_knee() -> None:
    knee = find_knee([closed_point(c, 100.0 * c) for c in (1, 2, 4, 8)])
    assert not knee.reached and knee.concurrency is None
    assert "Go higher: 16 and 32" in knee.says
    held = find_knee([open_point(rate, rate) for rate in (1.0, 2.0, 4.0)])
    assert not held.reached and "Go higher: 8" in held.says


def test_a_load_just_past_the_bend_does_not_show_it() -> None:
    curve = {1: 100.0, 4: 400.0, 8: 800.0, 10: 810.0}
    assert not find_knee([closed_point(c, got) for c, got in curve.items()]).reached


def test_a_curve_that_falls_has_its_knee_at_the_top_and_says_so() -> None:
    knee = find_knee(
        [closed_point(c, got) for c, got in {4: 400.0, 8: 790.0, 16: 1500.0, 32: 900.0, 64: 700.0}.items()]
    )
    assert knee.concurrency == 16
    assert "Past it throughput falls: 700 at 64" in knee.says


def test_a_knee_at_the_smallest_load_says_that_it_may_lie_below() -> None:
    knee = find_knee([closed_point(c, got) for c, got in {16: 1000.0, 32: 1010.0, 64: 990.0}.items()])
    assert knee.concurrency == 16
    assert "may lie below" in knee.says


def test_without_repeats_the_noise_is_assumed_and_said() -> None:
    knee = find_knee([closed_point(c, min(c, 8) * 10.0) for c in (1, 2, 4, 8, 16, 32)])
    assert knee.concurrency == 8
    assert "5 % of noise (assumed, since no load was repeated)" in knee.confidence
    assert knee == find_knee([closed_point(c, min(c, 8) * 10.0) for c in (1, 2, 4, 8, 16, 32)]), "the same each time"


def test_no_rate_held_no_curve_one_point() -> None:
    assert "Go lower" in find_knee([open_point(50.0, 20.0)]).says
    assert not find_knee([closed_point(8, 100.0)]).reached
    assert not find_knee([]).reached
    assert not find_knee([closed_point(8, 0.0)]).reached


def test_a_sweep_stops_when_it_only_queues() -> None:
    flat = {1: (100.0, 0.1), 2: (200.0, 0.1), 4: (400.0, 0.1), 8: (410.0, 0.3), 16: (405.0, 0.9)}
    points = [closed_point(c, got, ttft_s=flat_spread(wait)) for c, (got, wait) in flat.items()]
    assert stop_early(points[:4]) is None, "one doubling is not enough"
    reason = stop_early(points)
    assert reason is not None and "p95 TTFT is 9.0 times as long" in reason


def test_a_sweep_goes_on_while_it_grows_or_while_nobody_waits_longer() -> None:
    assert stop_early([closed_point(c, 90.0 * c, ttft_s=flat_spread(0.1 * c)) for c in (1, 2, 4, 8)]) is None
    assert stop_early([closed_point(c, 100.0, ttft_s=flat_spread(0.1)) for c in (1, 2, 4, 8)]) is None


def test_a_sweep_stops_at_errors_at_a_fall_and_at_a_limited_client() -> None:
    grown = [closed_point(c, 100.0 * c) for c in (1, 2, 4)]
    failed = closed_point(8, 700.0, errors=200, errors_by_kind={"refused: 429": 200})
    assert "20% of the requests failed (refused: 429)" in str(stop_early([*grown, failed]))
    assert "fell to 50% of the best" in str(stop_early([*grown, closed_point(8, 200.0)]))
    failed.client.limited, failed.errors = "its CPU was busy for 98 %", 0
    assert "load tester itself" in str(stop_early([*grown, failed]))


def test_rates_stop_after_two_that_overload() -> None:
    over = Saturation(label="overloaded", reason="", in_flight_first_third=1, in_flight_last_third=9)
    points = [open_point(10, 10), open_point(20, 15, saturation=over), open_point(30, 15, saturation=over)]
    assert stop_early(points[:2]) is None
    assert "faster than they were answered" in str(stop_early(points))


def test_a_run_that_the_load_tester_limited_counts_for_nothing_beside_one_that_it_did_not() -> None:
    points = [closed_point(c, got) for c, got in {1: 10.0, 2: 20.0, 4: 40.0, 8: 40.0, 16: 41.0}.items()]
    points.append(closed_point(4, 5.0, repeat=1))
    points[-1].client.limited = "it was late"
    knee = find_knee(points)
    assert knee.concurrency == 4
    assert "Doubtful" not in knee.confidence
    points[3].client.limited = "it was late"
    assert "Doubtful: the load tester was the limit at 8 in flight." in find_knee(points).confidence
