"""What we believe of a replica, number by number."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kilocard.core.load import LoadSample
from kilocard.routing.load import ReplicaLoad


def loaded(count: int, **kwargs: int) -> ReplicaLoad:
    load = ReplicaLoad("a", **kwargs)
    for _ in range(count):
        load.begin(10, 10)
    return load


def test_scraped_plus_dispatched_minus_finished() -> None:
    load = loaded(0)
    load.scraped(0.0, LoadSample(0.0, 5, 2))
    assert (load.load, load.waiting) == (7, 2)
    load.begin(10, 10)
    assert (load.load, load.waiting) == (8, 3)
    load.end(10, 10, True)
    assert (load.load, load.waiting) == (7, 2)


def test_own_requests_are_the_lower_bound_at_cold_start() -> None:
    """Gauges read 0 for some 18 s."""
    load = loaded(12)
    load.scraped(0.0, LoadSample(0.0, 0, 0, 0.0))
    assert (load.load, load.foreign) == (12, 0)


def test_a_falling_load_seen_late_is_not_foreign() -> None:
    load = loaded(10)
    load.scraped(0.0, LoadSample(0.0, 10, 0))
    for _ in range(8):
        load.end(10, 10, True)
    load.scraped(1.0, LoadSample(1.0, 9, 0))
    assert load.foreign == 0


def test_missing_is_unknown_and_max_running_alone_will_do() -> None:
    assert not loaded(3).waiting_known
    load = loaded(10, max_running=8)
    assert (load.waiting, load.waiting_known) == (2, True)
    load.scraped(0.0, LoadSample(0.0))
    assert (load.waiting, load.load) == (2, 10)


def test_foreign_fades_from_two_to_five_intervals() -> None:
    load = loaded(0)
    load.scraped(0.0, LoadSample(0.0, 9, 0))
    seen = []
    for age in (1.0, 2.0, 3.0, 4.0, 5.0, 9.0):
        load.grow_old(age)
        seen.append(load.foreign)
    assert seen == [9, 9, 6, 3, 0, 0]
    assert load.stale and load.sample is None


def test_streams_that_flow_do_not_wait() -> None:
    load = loaded(6)
    load.scraped(0.0, LoadSample(0.0, 0, 6))
    assert load.waiting == 6
    for _ in range(4):
        load.first_content(10)
    assert load.waiting == 2


def test_preempted_streams_wait_again() -> None:
    load = loaded(6)
    for _ in range(6):
        load.first_content(10)
    load.scraped(0.0, LoadSample(0.0, 2, 4, 0.99))
    assert load.waiting == 4


def test_one_sample_with_a_queue_is_no_proof_of_capacity() -> None:
    load = loaded(32, max_running=256)
    load.scraped(0.0, LoadSample(0.0, 1, 31))
    assert load.capacity == 256
    load.scraped(1.0, LoadSample(1.0, 20, 12))
    assert load.capacity == 20
    load.scraped(2.0, LoadSample(2.0, 32, 0))
    assert load.capacity == 32, "it runs more than was thought"
    load.scraped(3.0, LoadSample(3.0, 32, 0, 0.5))
    assert load.capacity == pytest.approx(35.2), "memory to spare: a tenth more with each reading"
    for second in range(4, 30):
        load.scraped(float(second), LoadSample(float(second), 32, 0, 0.5))
    assert load.capacity == 256


gauges = st.one_of(st.none(), st.integers(0, 60).map(float))


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.lists(st.tuples(gauges, gauges, st.one_of(st.none(), st.floats(0, 1))), max_size=12),
    st.one_of(st.none(), st.integers(1, 20)),
)
def test_bounds_hold_whatever_the_gauges_say(seed: int, samples: list, max_running: int | None) -> None:  # type: ignore[type-arg]  # plain tuples
    """INV-1, INV-7."""
    rng = Random(seed)
    load = ReplicaLoad("a", max_running)
    live: list[bool] = []
    now = 0.0
    for running, waiting, kv in samples:
        load.scraped(now, LoadSample(now, running, waiting, kv))
        for _ in range(rng.randrange(12)):
            if live and rng.random() < 0.5:
                load.end(7, 9, live.pop(rng.randrange(len(live))))
            elif live and live[-1] and rng.random() < 0.5:
                live[-1] = False
                load.first_content(7)
            else:
                live.append(True)
                load.begin(7, 9)
            now += rng.random()
            load.grow_old(now)
            assert load.in_flight == len(live) and load.pending == sum(live)
            assert load.load >= load.in_flight
            assert 0.0 <= load.waiting <= load.load
    for pending in live:
        load.end(7, 9, pending)
    assert (load.in_flight, load.pending, load.prefill, load.decode, load.context) == (0, 0, 0, 0, 0)


@settings(max_examples=60)
@given(st.integers(0, 2**32), st.integers(0, 12), st.sampled_from([None, 2, 6]))
def test_the_estimate_without_the_newest_request_is_the_one_before_it(
    seed: int, count: int, max_running: int | None
) -> None:
    rng = Random(seed)
    replica = ReplicaLoad("a", max_running)
    for number in range(count):
        replica.begin(10, 10)
        if rng.random() < 0.4:
            replica.first_content(10)
        if rng.random() < 0.4:
            replica.scraped(float(number), LoadSample(float(number), rng.randrange(9), rng.randrange(4), 0.5))
        before = replica.waiting
        replica.begin(10, 10)
        assert replica.waiting_before() == before
