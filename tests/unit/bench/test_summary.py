from __future__ import annotations

from array import array

import pytest
from tests.simulated_points import record, simulated_point

from kilocard.bench.document import Slo
from kilocard.bench.point import EngineSample, Point
from kilocard.bench.record import CUT_OFF
from kilocard.bench.summary import gaps_add_up, means_disagree, summarise


def point(*records, window: tuple[float, float] = (0.0, 10.0), **more) -> Point:
    return Point(*window, concurrency=2, records=list(records), **more)


def test_ten_requests_one_after_the_other() -> None:
    seen = summarise(point(*(record(at, ttft=0.1, gap=0.01, tokens=11) for at in range(10))))
    assert seen.requests == seen.completed == 10
    assert seen.errors == seen.cut_off == 0
    assert seen.requests_per_s == pytest.approx(1.0)
    assert seen.output_tokens_per_s == pytest.approx(11.0)
    assert seen.total_tokens_per_s == pytest.approx(19.0)
    assert seen.in_flight_mean == pytest.approx(0.2)
    assert seen.ttft_s is not None and seen.ttft_s.p50 == pytest.approx(0.1)
    assert seen.tpot_s is not None and seen.tpot_s.mean == pytest.approx(0.01)
    assert seen.itl_s is not None and seen.itl_s.n == 100
    assert seen.e2e_s is not None and seen.e2e_s.max == pytest.approx(0.2)
    assert seen.withheld == {}


def test_throughput_is_over_wall_time_not_concurrency_over_latencies() -> None:
    """The wrong formula, 2 in flight / sum of latencies, would say 2 / 4 s for these; the window says 4 / 10 s."""
    seen = summarise(point(*(record(at, ttft=0.9, gap=0.01, tokens=11) for at in (0, 1, 2, 3))))
    assert seen.requests_per_s == pytest.approx(0.4)


def test_percentiles_of_few_values_are_marked() -> None:
    few = summarise(point(*(record(at / 10) for at in range(19)))).ttft_s
    some = summarise(point(*(record(at / 10) for at in range(20)))).ttft_s
    enough = summarise(point(*(record(at / 20) for at in range(100)))).ttft_s
    assert few is not None and few.few == ["p95", "p99"]
    assert some is not None and some.few == ["p99"]
    assert enough is not None and enough.few == []


def test_errors_are_counted_by_kind_and_give_no_latency() -> None:
    bad = [record(1.0, error="refused: 429"), record(2.0, error="refused: 429"), record(3.0, error="reset")]
    seen = summarise(point(record(), *bad))
    assert seen.errors == 3
    assert seen.errors_by_kind == {"refused: 429": 2, "reset": 1}
    assert seen.ttft_s is not None and seen.ttft_s.n == 1


def test_what_a_failed_request_delivered_is_no_throughput() -> None:
    broken = record(tokens=50)
    broken.error = "reset after 50 tokens"
    assert summarise(point(broken)).output_tokens_per_s == 0


def test_tokens_count_where_they_arrived_though_their_request_reaches_over_the_edge() -> None:
    before = record(-0.5, ttft=0.25, gap=0.1, tokens=11)  # tokens at -0.25, -0.15, …, 0.75: three before the window
    after = record(9.5, ttft=0.25, gap=0.1, tokens=11)  # at 9.75, 9.85, 9.95, 10.05, …: three in it
    seen = summarise(point(after, carried=[before]))
    assert seen.output_tokens_per_s * 10 == pytest.approx(8 + 3)
    assert seen.requests == 1, "one that began before is none of the window's"


def test_a_request_cut_off_counts_what_it_delivered_by_the_tokens_per_arrival_of_the_others() -> None:
    whole = record(1.0, tokens=11)
    whole.output_tokens = 22  # two tokens an arrival
    cut = record(9.0, tokens=5)
    cut.error, cut.output_tokens, cut.last_s, cut.done_s = CUT_OFF, None, None, None
    seen = summarise(point(whole, cut))
    assert seen.output_tokens_per_s * 10 == pytest.approx(22 + 2 * 5)
    assert (seen.completed, seen.cut_off, seen.errors) == (1, 1, 0)


def test_a_closed_loop_keeps_its_concurrency_and_little_s_law() -> None:
    seen = summarise(simulated_point(concurrency=16))
    assert seen.in_flight_mean == pytest.approx(16, rel=0.01)
    assert seen.e2e_s is not None and seen.e2e_s.mean is not None
    assert seen.requests_per_s * seen.e2e_s.mean == pytest.approx(16, rel=0.05)
    assert seen.engine.running_max == 16
    assert seen.engine.preemptions == 0


def test_bn_03_text_that_is_held_back_gives_no_ttft_and_no_token_times() -> None:
    records = [record(at) for at in range(10)]
    for each in records:
        each.last_share = 0.97
    seen = summarise(point(*records))
    assert seen.ttft_s is seen.tpot_s is seen.itl_s is None
    assert "not streamed: 10 of 10" in seen.withheld["ttft_s"]
    assert seen.e2e_s is not None, "how long the whole took is still true"
    assert set(seen.histograms) == {"e2e_s"}


def test_bn_04_tokens_are_those_of_usage_not_arrivals() -> None:
    spaces = record(tokens=8)
    spaces.output_tokens = 100
    seen = summarise(point(spaces))
    assert seen.output_tokens == 100
    assert seen.tpot_s is not None and seen.tpot_s.mean == pytest.approx(0.07 / 99)
    assert seen.itl_s is not None and seen.itl_s.mean == pytest.approx(0.01), "a gap is a gap, whatever came in it"


def test_gaps_that_do_not_add_up_withhold_what_is_made_of_them() -> None:
    broken = record(tokens=101)
    broken.gaps_s = array("d", [0.01] * 20)
    assert not gaps_add_up(broken)
    seen = summarise(point(broken))
    assert seen.itl_s is seen.tpot_s is None
    assert "do not add up" in seen.withheld["itl_s"]
    assert seen.ttft_s is not None


def test_means_of_lengths_that_differ_too_much_are_not_given() -> None:
    short = [record(at, ttft=0.1, gap=0.2, tokens=2) for at in range(5)]
    long = [record(at, ttft=0.1, gap=0.005, tokens=1000) for at in range(5)]
    assert means_disagree(long) is None
    seen = summarise(point(*short, *long))
    assert seen.tpot_s is not None and seen.tpot_s.mean is None
    assert "2 to 1000 tokens" in seen.withheld["tpot_s.mean"]
    assert seen.tpot_s.p50 > 0


def test_a_server_without_usage_gets_no_tpot_and_says_so() -> None:
    silent = record()
    silent.output_tokens = None
    seen = summarise(point(silent))
    assert seen.tpot_s is None
    assert "no usage" in seen.withheld["tpot_s"]
    assert seen.tokens_counted_by == "arrivals"
    assert seen.output_tokens_per_s * 10 == pytest.approx(11)


def test_bn_07_asked_and_given_lengths_stand_side_by_side() -> None:
    records = [record(at, tokens=337) for at in range(3)]
    for each in records:
        each.asked_output = 1000
    lengths = summarise(point(*records)).lengths
    assert (lengths["asked_output"].mean, lengths["output"].mean) == (1000, 337)


def test_goodput_counts_failed_ones_as_bad_and_leaves_undecided_ones_out() -> None:
    late, failed = record(2.0, ttft=0.9), record(3.0, error="reset")
    cut = record(9.9)
    cut.error = CUT_OFF
    slow_cut = record(5.0, ttft=0.9)
    slow_cut.error = CUT_OFF
    seen = summarise(point(record(1.0), late, failed, cut, slow_cut), Slo(ttft_s=0.5, tpot_s=0.05))
    assert seen.goodput is not None
    assert seen.goodput.undecided == 1
    assert seen.goodput.share == pytest.approx(1 / 4)
    assert seen.goodput.requests_per_s == pytest.approx(0.1)


def test_gauges_that_were_not_seen_are_null_and_never_zero() -> None:
    seen = summarise(point(record())).engine
    assert seen.running_max is seen.kv_usage_max is seen.preemptions is seen.prefix_hit_share is None


def test_counters_count_within_the_window_and_survive_a_restart() -> None:
    samples = [
        EngineSample(-1.0, preemptions=1.0),
        EngineSample(1.0, preemptions=5.0, prefix_queries=100.0, prefix_hits=10.0),
        EngineSample(2.0, preemptions=7.0, prefix_queries=200.0, prefix_hits=30.0),
        EngineSample(3.0, preemptions=1.0, prefix_queries=300.0, prefix_hits=50.0),
        EngineSample(11.0, preemptions=99.0),
    ]
    seen = summarise(point(record(), samples=samples)).engine
    assert seen.preemptions == 3
    assert seen.prefix_hit_share == pytest.approx(0.2)
    assert seen.samples == 3


def test_more_pieces_than_counted_tokens_and_no_tpot_is_given() -> None:
    """TPOT is made of the count, so that it agrees with itself whatever the count is: only the pieces tell."""
    odd = record(tokens=40)
    odd.output_tokens = 20  # thinking that usage leaves out
    seen = summarise(point(odd))
    assert seen.tpot_s is None and "does not count all" in seen.withheld["tpot_s"]
    assert seen.ttft_s is not None and seen.itl_s is not None


def test_a_few_more_pieces_than_tokens_are_none_of_that() -> None:
    tool_call = record(tokens=12)
    tool_call.output_tokens = 10
    assert summarise(point(tool_call)).withheld == {}
