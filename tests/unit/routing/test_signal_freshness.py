"""INV-26: a reading counts for as old as it is, however late it comes, and what it does not say is unknown."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kilocard.core.load import LoadSample
from kilocard.routing.load import FADE_FROM, STALE_AFTER, ReplicaLoad

gauge = st.one_of(st.none(), st.integers(0, 60).map(float))
share = st.one_of(st.none(), st.floats(0, 1))
seconds = st.floats(0, 12)


def belief(load: ReplicaLoad) -> tuple[object, ...]:
    return load.load, load.waiting, load.foreign, load.kv_usage, load.stale, load.capacity


def busy(own: int, max_running: int | None) -> ReplicaLoad:
    load = ReplicaLoad("a", max_running)
    for _ in range(own):
        load.begin(10, 10)
    return load


@given(gauge, gauge, share, st.integers(0, 20), st.one_of(st.none(), st.integers(1, 20)), seconds, seconds)
def test_a_reading_that_comes_late_is_believed_as_one_that_has_grown_old(
    running: float | None,
    waiting: float | None,
    kv_usage: float | None,
    own: int,
    max_running: int | None,
    late: float,
    later: float,
) -> None:
    sample = LoadSample(100.0, running, waiting, kv_usage)
    at_once, delayed = busy(own, max_running), busy(own, max_running)
    at_once.scraped(100.0, sample)
    at_once.grow_old(100.0 + late)
    delayed.scraped(100.0 + late, sample)
    assert belief(delayed) == belief(at_once)
    assert delayed.sampled_at == sample.at
    for load in (at_once, delayed):
        load.grow_old(100.0 + late + later)
    assert belief(delayed) == belief(at_once)
    if late + later >= STALE_AFTER:
        assert belief(delayed) == belief(busy(own, max_running)), "only own requests are left"
    elif late + later <= FADE_FROM:
        assert delayed.foreign == max(0.0, (running or 0.0) + (waiting or 0.0) - own), "it counts in full"


@given(gauge, gauge, share, st.integers(0, 20))
def test_what_a_reading_does_not_say_is_unknown_and_adds_nothing(
    running: float | None, waiting: float | None, kv_usage: float | None, own: int
) -> None:
    load = busy(own, None)
    load.scraped(1.0, LoadSample(1.0, running, waiting, kv_usage))
    assert load.waiting_known == (waiting is not None)
    assert load.kv_usage == kv_usage
    if running is None and waiting is None:
        assert (load.load, load.foreign, load.waiting) == (own, 0, 0)


def test_a_clock_that_is_ahead_makes_no_reading_younger_than_now() -> None:
    load = busy(0, None)
    load.scraped(5.0, LoadSample(9.0, 3.0, 0.0))
    assert load.sampled_at == 5.0
