"""One back-off for all backends."""

from __future__ import annotations

from kilocard.backends.backoff import STABLE_SECONDS, Backoff
from kilocard.spec.model import StartSpec


def test_it_doubles_up_to_the_most_and_becomes_a_crash_loop() -> None:
    backoff = Backoff(StartSpec(backoff=1, backoff_max=5, crash_loop=5))
    assert [backoff.failed(0.0) for _ in range(5)] == [(1, None), (2, None), (4, None), (5, None), (5, 5)]


def test_a_replica_that_served_for_a_while_starts_anew() -> None:
    backoff = Backoff(StartSpec(backoff=1, crash_loop=2))
    backoff.failed(0.0)
    assert backoff.failed(STABLE_SECONDS) == (1, None)
    assert backoff.failed(STABLE_SECONDS - 1) == (60, 2)


def test_asked_to_begin_again_it_forgets() -> None:
    backoff = Backoff(StartSpec(backoff=1, crash_loop=2))
    backoff.failed(0.0)
    backoff.reset()
    assert backoff.failed(0.0) == (1, None)
