"""Closed and open loop and sessions on virtual time: when is each request sent?"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, cast

import pytest

from kilocard.bench.ask import Ask
from kilocard.bench.client import Client
from kilocard.bench.drive import drive_closed, drive_open
from kilocard.bench.measuring import Driven, Progress
from kilocard.bench.record import CUT_OFF, RequestRecord
from kilocard.bench.watch import Watch
from kilocard.core.errors import UsageError


class FakeClient:
    """Answers each request after `service_s`; time passes only in `turn`."""

    max_sockets = 100

    def __init__(self, service_s: float = 1.0, error: str | None = None) -> None:
        self.error = error
        self.time = 100.0
        self.service_s = service_s
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.count = 0
        self.running: dict[int, Callable[[str | None], None]] = {}
        self.loop = self
        self.slept_s = 0.0
        self.retried = 0
        self.most_in_flight = 0
        self.watch = Watch()
        self.oldest_s = 0.0

    @property
    def in_flight(self) -> int:
        return len(self.running)

    def now(self) -> float:
        return self.time

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.timers, (when, self.count, what))

    def turn(self, until: float) -> None:
        if self.timers and self.timers[0][0] <= until:
            when, _, what = heapq.heappop(self.timers)
            self.time = max(self.time, when)
            what()
        else:
            self.time = until

    def start(self, ask: Ask, intended_s: float, on_done: Callable[[RequestRecord], None]) -> None:
        self.count += 1
        number = self.count
        record = RequestRecord(intended_s, self.time, ask.asked_input, ask.asked_output, session=ask.session)
        record.turn = ask.turn

        def end(error: str | None) -> None:
            if self.running.pop(number, None):
                record.error = error
                if error is None:
                    record.first_s = record.last_s = record.done_s = self.time
                on_done(record)

        self.running[number] = end
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.at(self.time + self.service_s, lambda: end(self.error))

    def cut_off(self) -> None:
        for end in list(self.running.values()):
            end(CUT_OFF)


def ask(at_s: float = 0.0, **more: Any) -> Ask:
    return Ask(b"", 1, 1, at_s=at_s, **more)


def closed(client: FakeClient, make_ask: Callable[[], Ask | None], concurrency: int, **more: Any) -> Driven:
    return drive_closed(cast(Client, client), make_ask, concurrency, **more)


def opened(client: FakeClient, *asks: Ask, **more: Any) -> Driven:
    return drive_open(cast(Client, client), asks, **more)


def intended(driven: Driven) -> list[tuple[str | None, int, float]]:
    return [(r.session, r.turn, round(r.intended_s - driven.started_s, 6)) for r in driven.records]


def test_a_closed_loop_keeps_all_slots_in_use() -> None:
    client = FakeClient(service_s=1.0)
    driven = closed(client, ask, 4, seconds=2.5)
    assert client.most_in_flight == 4
    assert [r.error for r in driven.records] == [None] * 8 + [CUT_OFF] * 4
    assert driven.ended_s - driven.started_s == 2.5


def test_a_closed_loop_ends_after_so_many_requests() -> None:
    driven = closed(FakeClient(), ask, 4, requests=10)
    assert len(driven.records) == 10
    assert not any(r.error for r in driven.records)


def test_a_closed_loop_ends_when_there_is_no_more_to_ask() -> None:
    asks = iter([ask() for _ in range(5)])
    assert len(closed(FakeClient(), lambda: next(asks, None), 3, seconds=60.0).records) == 5


def test_a_slot_that_was_refused_rests_before_it_asks_again() -> None:
    driven = closed(FakeClient(service_s=0.001, error="refused: 429"), ask, 2, seconds=1.0)
    assert 18 <= len(driven.records) <= 22


def test_a_closed_loop_needs_an_end_and_enough_sockets() -> None:
    with pytest.raises(UsageError):
        closed(FakeClient(), ask, 1)
    with pytest.raises(UsageError, match="101 at once"):
        closed(FakeClient(), ask, 101, seconds=1.0)


def test_slots_of_a_closed_loop_wait_for_turns_of_one_session() -> None:
    """Two slots, one session of three turns and one single: never two turns at once."""
    asks = iter([ask(session="a", turn=n, think_s=0.5 * (n > 0)) for n in range(3)] + [ask()])
    client = FakeClient(service_s=1.0)
    driven = closed(client, lambda: next(asks, None), 2, seconds=60.0)
    assert intended(driven) == [("a", 0, 0.0), (None, 0, 0.0), ("a", 1, 1.5), ("a", 2, 3.0)]


def test_turns_that_still_think_do_not_hold_up_the_end() -> None:
    asks = iter([ask(session="a", turn=n, think_s=100.0 * n) for n in range(3)] + [ask()])
    driven = closed(FakeClient(), lambda: next(asks, None), 2, requests=2)
    assert intended(driven) == [("a", 0, 0.0), (None, 0, 0.0)]


def test_an_open_loop_sends_on_time_whatever_the_server_does() -> None:
    client = FakeClient(service_s=10.0)
    driven = opened(client, *(ask(at_s=n * 0.1) for n in range(20)))
    assert client.most_in_flight == 20
    assert [t for _, _, t in intended(driven)] == pytest.approx([n * 0.1 for n in range(20)])
    assert all(r.ttft_s == pytest.approx(10.0) for r in driven.records)


def test_bn_06_a_client_that_is_held_up_counts_from_when_it_should_have_sent() -> None:
    """No coordinated omission, whoever stood still: the server, or the client itself."""
    client = FakeClient(service_s=0.1)

    def hang() -> None:
        client.time += 4.0

    client.at(client.now() + 1.0, hang)
    driven = opened(client, *(ask(at_s=n * 0.1) for n in range(60)))
    late = sorted(r.ttft_s or 0.0 for r in driven.records)
    assert [t for _, _, t in intended(driven)] == pytest.approx([n * 0.1 for n in range(60)])
    assert late[-1] > 3.5
    assert sum(ttft > 1.0 for ttft in late) >= 25
    assert driven.health.late_p99_s > 3.5


def test_what_is_in_flight_at_the_end_is_kept() -> None:
    driven = opened(FakeClient(service_s=10.0), ask(0.0), ask(1.0), ask(2.0), seconds=1.5)
    assert [r.error for r in driven.records] == [CUT_OFF, CUT_OFF]


def test_a_turn_follows_its_predecessor() -> None:
    """Later than its own time where the turn before took longer or is still thought about; latency counts from then."""
    driven = opened(
        FakeClient(service_s=2.0),
        ask(0.0, session="a"),
        ask(0.5, session="b"),
        ask(1.0, session="a", turn=1),  # the turn before runs until 2
        ask(3.0, session="b", turn=1, think_s=1.0),  # it ended at 2.5
        ask(9.0, session="a", turn=2, think_s=1.0),
    )
    assert intended(driven) == [("a", 0, 0.0), ("b", 0, 0.5), ("a", 1, 2.0), ("b", 1, 3.5), ("a", 2, 9.0)]
    assert all(r.ttft_s == pytest.approx(2.0) for r in driven.records)


def test_on_tick_sees_progress_and_may_stop() -> None:
    seen: list[Progress] = []

    def tick(progress: Progress) -> bool:
        seen.append(progress)
        return progress.done >= 4

    driven = closed(FakeClient(), ask, 2, seconds=60.0, on_tick=tick)
    assert driven.stopped
    assert 4 <= len([r for r in driven.records if r.error is None]) <= 6
    assert seen[0].done == 0 and seen[-1].in_flight == 2


def test_ctrl_c_keeps_what_was_measured() -> None:
    client = FakeClient()

    def press() -> None:
        raise KeyboardInterrupt

    client.at(client.now() + 2.5, press)
    driven = closed(client, ask, 2, seconds=60.0)
    assert driven.stopped
    assert [r.error for r in driven.records] == [None] * 4 + [CUT_OFF] * 2


@pytest.mark.parametrize(
    "drive", [lambda client: closed(client, ask, 2, requests=4), lambda client: opened(client, ask())]
)
def test_collecting_garbage_beforehand_makes_no_request_late(
    drive: Callable[[FakeClient], Driven], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 10 ms, and more on a busy machine: a point of few requests would be called late for it."""
    client = FakeClient()

    def collect() -> None:
        client.time += 0.5

    monkeypatch.setattr("kilocard.bench.measuring.gc.collect", collect)
    driven = drive(client)
    assert max(client.watch.late) == 0.0
    assert driven.started_s == driven.records[0].intended_s == 100.5
