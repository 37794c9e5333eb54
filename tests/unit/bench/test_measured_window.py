"""What is measured of all that was sent. Times are made up; nothing waits."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.window import ArrivalWindow, SteadyWindow


def request(intended_s: float, error: str | None = None) -> RequestRecord:
    return RequestRecord(intended_s, intended_s, asked_input=10, asked_output=10, error=error)


def test_the_first_request_of_each_slot_is_warm_up() -> None:
    window = SteadyWindow(slots=2, begun_s=100.0, seconds=10.0)
    window.ended(request(100.0), now=101.0)
    window.ended(request(101.0), now=102.0)  # that slot's second, while the other one still warms up
    assert not window.is_over(102.0)
    window.ended(request(100.0), now=103.0)
    assert window.opened_s == 103.0
    window.ended(request(102.0), now=104.0)
    assert (window.warmup, [record.intended_s for record in window.measured]) == (3, [102.0])


def test_it_closes_after_its_seconds_but_not_before_each_slot_could_end_a_request() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, seconds=10.0)
    window.ended(request(0.0), now=5.0)
    assert not window.is_over(15.0)
    window.ended(request(5.0), now=20.0)
    assert window.is_over(20.0)
    assert window.bounds == (5.0, 20.0)


def test_a_window_in_which_nothing_ends_is_closed_all_the_same() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, seconds=10.0)
    window.ended(request(0.0), now=5.0)
    assert not window.is_over(44.9)
    assert window.is_over(45.0)


def test_a_slot_that_hangs_from_the_start_holds_nobody_up() -> None:
    window = SteadyWindow(slots=2, begun_s=0.0, seconds=10.0, patience_s=60.0)
    window.ended(request(0.0), now=1.0)
    assert not window.is_over(59.0)
    assert not window.is_over(60.0)
    assert window.opened_s == 60.0
    window.ended(request(0.0, CUT_OFF), now=70.0)
    assert len(window.carried) == 1


def test_requests_may_say_how_much_is_measured() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, requests=2)
    for at in range(3):
        assert not window.is_over(at)
        window.ended(request(float(at)), now=at + 1.0)
    window.ended(request(3.0), now=4.0)  # before anybody looked
    assert window.is_over(4.2)
    assert window.bounds == (1.0, 3.0)
    assert (len(window.measured), len(window.carried)) == (2, 1)


def test_what_a_closed_loop_cuts_off_is_throughput_and_no_latency() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, seconds=10.0)
    window.ended(request(0.0), now=1.0)
    window.ended(request(1.0, CUT_OFF), now=11.0)
    assert (window.measured, len(window.carried)) == ([], 1)


def test_a_window_that_is_closed_before_it_opened_is_empty() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, seconds=10.0)
    window.close(3.0)
    assert window.bounds == (3.0, 3.0)


def test_a_request_that_fails_counts_like_any_other() -> None:
    window = SteadyWindow(slots=1, begun_s=0.0, seconds=10.0)
    window.ended(request(0.0, "refused: 429"), now=0.5)
    window.ended(request(0.5, "refused: 429"), now=1.0)
    assert window.measured[0].error == "refused: 429"


@given(st.lists(st.floats(0.01, 30.0), min_size=1, max_size=60), st.integers(1, 8))
def test_no_request_is_lost_or_counted_twice(lengths: list[float], slots: int) -> None:
    """A closed loop on virtual time, with answers that take these seconds."""
    window = SteadyWindow(slots=slots, begun_s=0.0, seconds=20.0)
    running = [(seconds, 0.0) for seconds in lengths[:slots]]
    heapq.heapify(running)
    waiting = lengths[slots:]
    ended = 0
    while running:
        now, began = heapq.heappop(running)
        window.ended(request(began), now)
        ended += 1
        if waiting:
            heapq.heappush(running, (now + waiting.pop(), now))
    assert ended == len(lengths) == window.warmup + len(window.measured) + len(window.carried)
    assert window.opened_s is None or all(record.intended_s >= min(lengths[:slots]) for record in window.measured)


def test_of_an_open_loop_the_arrivals_of_the_window_count_however_long_they_take() -> None:
    window = ArrivalWindow(opens_s=2.0, closes_s=12.0, drain_s=30.0)
    window.ended(request(1.0), now=1.5)
    window.ended(request(1.9), now=3.0)  # warm-up that ran on into the window
    window.ended(request(2.0), now=4.0)
    window.ended(request(12.0), now=13.0)  # arrived only to keep up the load
    assert not window.is_over(13.0, oldest_s=11.9)
    window.ended(request(11.9), now=40.0)
    assert window.is_over(40.0, oldest_s=12.5)
    assert [record.intended_s for record in window.measured] == [2.0, 11.9]
    assert (window.warmup, len(window.carried)) == (2, 1)


def test_what_an_open_loop_cuts_off_counts() -> None:
    window = ArrivalWindow(opens_s=0.0, closes_s=10.0, drain_s=30.0)
    assert not window.is_over(39.9, oldest_s=1.0)
    assert window.is_over(40.0, oldest_s=1.0)
    window.ended(request(1.0, CUT_OFF), now=40.0)
    assert len(window.measured) == 1


@pytest.mark.parametrize(("stopped_at", "bounds"), [(1.0, (2.0, 2.0)), (7.0, (2.0, 7.0)), (20.0, (2.0, 12.0))])
def test_an_open_loop_that_is_stopped_early_keeps_what_it_saw(stopped_at: float, bounds: tuple[float, float]) -> None:
    window = ArrivalWindow(opens_s=2.0, closes_s=12.0, drain_s=30.0)
    window.close(stopped_at)
    assert window.bounds == bounds
