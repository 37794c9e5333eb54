"""The calendar of a simulation."""

from __future__ import annotations

from typing import Any

from kilocard.sim.kernel import Kernel


def test_events_come_in_order_of_time_and_equal_times_as_they_were_scheduled() -> None:
    kernel = Kernel()
    seen: list[tuple[float, str]] = []

    def note(now: float, word: str) -> None:
        seen.append((now, word))

    for when, word in [(2.0, "c"), (1.0, "a"), (2.0, "d"), (1.0, "b")]:
        kernel.at(when, note, word)
    kernel.run()
    assert seen == [(1.0, "a"), (1.0, "b"), (2.0, "c"), (2.0, "d")]
    assert kernel.now == 2.0


def test_what_is_scheduled_in_the_past_happens_at_once_and_time_never_goes_back() -> None:
    kernel = Kernel()
    seen: list[float] = []

    def again(now: float, _: Any) -> None:
        seen.append(now)
        if len(seen) < 3:
            kernel.at(now - 5.0, again)

    kernel.at(10.0, again)
    kernel.run()
    assert seen == [10.0, 10.0, 10.0]


def test_it_stops_when_told_and_at_its_end() -> None:
    kernel = Kernel()
    seen: list[float] = []
    for when in (1.0, 2.0, 3.0):
        kernel.at(when, lambda now, _: seen.append(now))
    kernel.run(until=2.5)
    assert seen == [1.0, 2.0]
    assert kernel.now == 2.5
    kernel.at(2.6, lambda now, _: kernel.stop())
    kernel.run()
    assert seen == [1.0, 2.0]
    kernel.run()
    assert seen == [1.0, 2.0, 3.0]
