"""When a replica is scraped next."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.scrape.pace import Trouble, first_due, next_due, phase, rest_after_failure, rest_after_success


@pytest.mark.parametrize("replicas", [1, 7, 100, 1000])
def test_replicas_are_spread_over_the_interval(replicas: int) -> None:
    turns = sorted(phase(index, 0.3) for index in range(replicas))
    gaps = [b - a for a, b in zip(turns, [*turns[1:], turns[0] + 1.0], strict=True)]
    assert max(gaps) <= 2.0 / replicas


def test_gateways_start_at_different_places() -> None:
    assert phase(0, 0.1) != phase(0, 0.6)


@given(now=st.floats(0, 1e7), share=st.floats(0, 1, exclude_max=True), interval=st.floats(0.1, 60))
def test_the_first_turn_is_within_one_interval(now: float, share: float, interval: float) -> None:
    assert -1e-6 <= first_due(now, interval, share) - now <= interval + 1e-6


def test_a_quick_page_keeps_the_interval() -> None:
    assert rest_after_success(1.0, 0.2) == 1.0


def test_a_slow_page_is_asked_for_less_often() -> None:
    assert rest_after_success(1.0, 2.0) == 8.0


def test_failures_back_off_up_to_a_bound() -> None:
    slow = [rest_after_failure(1.0, n, Trouble.SLOW) for n in range(1, 8)]
    assert slow == [2, 4, 8, 16, 30, 30, 30]
    assert rest_after_failure(1.0, 10_000, Trouble.UNREACHABLE) == 5.0


@settings(max_examples=200)
@given(
    due=st.floats(0, 1e5),
    late=st.floats(0, 20),
    rest=st.floats(0, 60),
    interval=st.sampled_from([0.5, 1.0, 5.0]),
)
def test_the_next_turn_is_later_and_on_the_same_phase(due: float, late: float, rest: float, interval: float) -> None:
    following = next_due(due, due + late, interval, rest)
    assert following >= due + max(interval, rest, late) - 1e-3
    assert following <= due + max(interval, rest, late) + interval + 1e-3
    steps = (following - due) / interval
    assert steps == pytest.approx(round(steps), abs=1e-3)
